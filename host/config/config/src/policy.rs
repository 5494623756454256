//! Builds the rules for paths from the configuration: the directories that tools and plugins may
//! use, and Toolhold's own files, to which no grant applies.

use std::io;
use std::path::{Path, PathBuf};

use toolhold_contract::{Access, HostError};
use toolhold_data_dir::Repository;
use toolhold_net::SecretSource;
use toolhold_policy::files::{FileRules, Grant, OwnFolder, PathGlobs};
use toolhold_policy::literal;
use toolhold_system::files::{real_or_given, with_its_links};

use super::egress::secret_key;
use super::resolved::{Resolved, expand, resolve};
use super::{
    AllowedPath, Config, Folders, Limits, PathAccess, PathGlob, PolicyEffect, Problem, Problems,
    Reload, Source,
};

/// The granted directories and the globs of a set of tools.
#[derive(Clone, Debug, Default)]
pub struct FileGrants {
    /// The granted directories that exist, by their real paths.
    pub grants: Vec<Grant>,
    /// Globs of files that can't be read.
    pub deny_read: PathGlobs,
    /// Globs of the files that can be read. If empty, all files can be read.
    pub allow_read: PathGlobs,
    /// Globs of files that can't be written.
    pub deny_write: PathGlobs,
}

impl Config {
    /// Builds the path rules of the built-in file tools. Disabled tools get no grants.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Config`] if a granted directory doesn't exist. A missing directory
    /// isn't skipped: inside a writable directory, a read-only directory would be writable if it
    /// were created later.
    pub fn built_in_files(
        &self,
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<FileGrants, HostError> {
        let file = &self.values.tools.file;
        let paths = if file.enabled { file.granted_paths() } else { Vec::new() };
        self.file_policy("tools.file.allowed_paths", &paths, &all_globs, folders, working_directory)
    }

    /// Builds the path rules of a table, with the protected paths. `table` is `tools.file`,
    /// `tools.shell`, or the table of a plugin.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Self::built_in_files`].
    pub fn file_rules(
        &self,
        table: &str,
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<FileRules, HostError> {
        let FileGrants { grants, deny_read, allow_read, deny_write } =
            match table.strip_prefix("plugins.") {
                Some(name) => self.plugin_files(name, folders, working_directory)?,
                None if table == "tools.shell" => self.shell_files(folders, working_directory)?,
                None => self.built_in_files(folders, working_directory)?,
            };
        let rules = FileRules::new(grants, self.protected(folders, working_directory));
        Ok(rules.with_globs(deny_read, allow_read, deny_write))
    }

    /// Builds the path rules of the plugin `name`. A plugin without a table gets no grants.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Self::built_in_files`].
    pub fn plugin_files(
        &self,
        name: &str,
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<FileGrants, HostError> {
        let paths: &[AllowedPath] = match self.values.plugins.get(name) {
            Some(plugin) => &plugin.allowed_paths,
            None => &[],
        };
        let key = format!("plugins.{name}.allowed_paths");
        self.file_policy(&key, paths, &all_globs, folders, working_directory)
    }

    /// Returns the path of the component of the plugin `name`. Returns `None` if the configuration
    /// has no path. The plugin is then in [`Self::plugin_folder`].
    pub fn plugin_path(
        &self,
        name: &str,
        folders: &Folders,
        working_directory: &Path,
    ) -> Option<PathBuf> {
        let plugin = self.values.plugins.get(name)?;
        if plugin.path.is_empty() {
            return None;
        }
        let key = format!("plugins.{name}.path");
        Some(self.beside_its_source(&key, &plugin.path, folders, working_directory))
    }

    /// Returns the folder of the plugins that are loaded without a table. The folder may be
    /// missing.
    pub fn plugin_folder(&self, folders: &Folders, working_directory: &Path) -> PathBuf {
        match self.values.plugin_folder.path.as_str() {
            "" => folders.operator_data().join("plugins"),
            path => self.beside_its_source("plugin_folder.path", path, folders, working_directory),
        }
    }

    /// Returns the treatment of a new or changed component of the plugin `name`. Only a plugin of
    /// the plugin folder has the folder's treatment as its default.
    pub fn reload(&self, name: &str) -> Reload {
        let folder_reload = self.values.plugin_folder.reload;
        match self.values.plugins.get(name) {
            Some(plugin) if plugin.path.is_empty() => plugin.reload.unwrap_or(folder_reload),
            Some(plugin) => plugin.reload.unwrap_or(Reload::Approve),
            None => folder_reload,
        }
    }

    /// Resolves a path in the configuration. A relative path starts at the folder of the
    /// configuration file with the path.
    pub(super) fn beside_its_source(
        &self,
        key: &str,
        path: &str,
        folders: &Folders,
        working_directory: &Path,
    ) -> PathBuf {
        // A caller works in another directory than the operator, and may write there.
        let start = match &self.principal {
            Some(principal) => principal.operator_directory.as_path(),
            None => working_directory,
        };
        let source = self.source(key);
        let base = match &source {
            Source::File { path, .. } => path.parent().unwrap_or(start),
            _ => start,
        };
        start.join(expand(path, base, folders))
    }

    /// Returns Toolhold's own files, to which no grant applies: its folders, the configuration
    /// file, the ceilings, the plugin folder, and the files of plugins. A tool that writes these
    /// files could grant itself more at the next start.
    ///
    /// The result also contains the folders of the user's skills, because a model follows their
    /// text. It contains files of secrets, programs that print secrets, and certificates of
    /// authorities. No tool can read the files of secrets.
    ///
    /// For a principal, these are the operator's paths: the configuration of a principal lacks
    /// secrets whose files must stay protected.
    pub fn own_paths(&self, folders: &Folders, working_directory: &Path) -> Vec<OwnFolder> {
        if let Some(principal) = &self.principal {
            return principal.protected.clone();
        }
        let mut paths = Vec::new();
        let ceilings = self.ceilings.iter().map(|ceiling| &ceiling.path);
        paths.extend(self.file.iter().chain(ceilings).map(|file| working_directory.join(file)));
        paths.push(self.plugin_folder(folders, working_directory));
        let plugins = self.values.plugins.keys();
        paths.extend(plugins.filter_map(|name| self.plugin_path(name, folders, working_directory)));
        // The folder of the organisation's files is included. Otherwise, tools could create a
        // missing ceiling or a missing file of defaults.
        paths.extend(Path::new(super::SYSTEM_CEILING).parent().map(Path::to_owned));
        paths.extend(self.authorities(folders, working_directory));
        paths.push(self.filter_rules_path(folders, working_directory));
        paths.extend(self.skill_folders(folders, working_directory));

        let mut own = folders.own_folders();
        own.extend(paths.into_iter().map(|path| OwnFolder { path, secret: false }));
        for (table, name, secret) in self.secrets() {
            let key = secret_key(&table, name);
            match self.source_of(&key, &secret, folders, working_directory) {
                SecretSource::File(path) => own.push(OwnFolder { path, secret: true }),
                source => {
                    let programs = source.program_places().into_iter();
                    own.extend(programs.map(|path| OwnFolder { path, secret: false }));
                }
            }
        }
        own
    }

    /// Returns the paths that no tool may change: the [`own_paths`](Self::own_paths), and all links
    /// that lead to these paths or to denied paths. With a changed link, the next start would use
    /// another configuration, or a denial would apply to another path.
    pub fn protected(&self, folders: &Folders, working_directory: &Path) -> Vec<OwnFolder> {
        let own = self.own_paths(folders, working_directory).into_iter();
        let mut protected: Vec<OwnFolder> = own.flat_map(with_its_links).collect();

        let tools = &self.values.tools;
        let denials = tools.policy.rules.iter().filter(|rule| rule.effect == PolicyEffect::Deny);
        let globs = denials
            .flat_map(|rule| &rule.paths)
            .chain(&tools.file.deny_read)
            .chain(&tools.file.deny_write);
        for glob in globs {
            let absolute_glob = absolute(glob.as_str(), folders.home.as_deref());
            if absolute_glob.starts_with('/') {
                let (path, _) = split_plain_part(&absolute_glob);
                // The first path is the denied path itself. Only its links are protected here.
                let links = with_its_links(OwnFolder { path, secret: false }).skip(1);
                protected.extend(links);
            }
        }
        protected
    }

    /// Returns the limits of one call of the plugin `name`.
    pub fn plugin_limits(&self, name: &str) -> Limits {
        let defaults = self.values.tools.limits;
        match self.values.plugins.get(name) {
            Some(plugin) => plugin.limits.with_defaults(defaults),
            None => defaults,
        }
    }

    /// Builds the path rules for the directories `paths`. `denies` says whether a glob of
    /// `deny_write`, with its index in the list, applies.
    pub(super) fn file_policy(
        &self,
        key: &str,
        paths: &[AllowedPath],
        denies: &dyn Fn(&(usize, &PathGlob)) -> bool,
        folders: &Folders,
        base: &Path,
    ) -> Result<FileGrants, HostError> {
        let file = &self.values.tools.file;
        let grants = self.grants(key, paths, folders, base)?;
        let repositories: Vec<Repository> =
            grants.iter().map(|grant| Repository::find(&grant.path)).collect();
        let home = folders.home.as_deref();
        let deny_read =
            self.path_globs("tools.file.deny_read", &file.deny_read, &all_globs, &|glob| {
                spellings(glob, home)
            })?;
        let allow_read =
            self.path_globs("tools.file.allow_read", &file.allow_read, &all_globs, &|glob| {
                spellings(glob, home)
            })?;
        let deny_write =
            self.path_globs("tools.file.deny_write", &file.deny_write, denies, &|glob| {
                let mut globs = spellings(glob, home);
                for repository in &repositories {
                    globs.extend(repository_globs(glob, repository));
                }
                globs
            })?;
        Ok(FileGrants { grants, deny_read, allow_read, deny_write })
    }

    /// Builds the globs of the paths whose changes by commands are saved. Returns `None` if the
    /// changes of all paths are saved.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Config`] if a pattern isn't a valid glob.
    pub fn transaction_scope(&self, folders: &Folders) -> Result<Option<PathGlobs>, HostError> {
        let globs = &self.values.tools.shell.transaction_scope;
        if is_everything(globs) {
            return Ok(None);
        }
        let scope =
            self.path_globs("tools.shell.transaction_scope", globs, &all_globs, &|glob| {
                spellings(glob, folders.home.as_deref())
            })?;
        Ok(Some(scope))
    }

    /// Returns a problem for each granted directory that is missing and may be missing. Each
    /// problem names the line of the grant.
    pub fn missing_directories(&self, folders: &Folders, base: &Path) -> Vec<Problem> {
        let tools = &self.values.tools;
        let own_lists = [
            ("tools.file.allowed_paths".to_owned(), tools.file.granted_paths()),
            ("tools.shell.allowed_paths".to_owned(), tools.shell.allowed_paths.clone()),
        ];
        let plugin_lists = self.values.plugins.iter().map(|(name, plugin)| {
            (format!("plugins.{name}.allowed_paths"), plugin.allowed_paths.clone())
        });
        let mut missing = Vec::new();
        for (key, paths) in own_lists.into_iter().chain(plugin_lists) {
            for (index, allowed) in paths.iter().enumerate() {
                let written = expand(&allowed.path, base, folders);
                let Err(error) = written.canonicalize() else { continue };
                let source = self.source(&format!("{key}.{index}"));
                let is_in_wider = is_in_wider_directory(allowed, &paths, base, folders);
                if may_be_missing(&error, &source) && !is_in_wider {
                    let message = format!(
                        "{} doesn't exist, so the entry grants nothing; create the directory, or \
                         remove the entry",
                        written.display()
                    );
                    missing.push(Problem::new(source, message));
                }
            }
        }
        missing
    }

    /// Builds the globs of the key `key`. `applies` says whether a glob, with its index in the
    /// list, applies. `spell` returns all spellings of a glob.
    fn path_globs(
        &self,
        key: &str,
        globs: &[PathGlob],
        applies: &dyn Fn(&(usize, &PathGlob)) -> bool,
        spell: &dyn Fn(&str) -> Vec<String>,
    ) -> Result<PathGlobs, Problems> {
        let mut patterns = Vec::new();
        for (index, glob) in globs.iter().enumerate().filter(applies) {
            let place = self.origin(&format!("{key}.{index}"));
            for pattern in spell(glob.as_str()) {
                patterns.push((pattern, place.clone()));
            }
        }
        PathGlobs::new(patterns)
            .map_err(|error| Problems::from(Problem::new(self.source(key), error.to_string())))
    }

    fn grants(
        &self,
        key: &str,
        paths: &[AllowedPath],
        folders: &Folders,
        base: &Path,
    ) -> Result<Vec<Grant>, Problems> {
        let mut grants: Vec<(Grant, Source)> = Vec::new();
        let mut problems = Vec::new();
        for (index, allowed) in paths.iter().enumerate() {
            let element = format!("{key}.{index}");
            let source = self.source(&element);
            let written = expand(&allowed.path, base, folders);
            let shown = written.display();
            let is_for_commands = key == "tools.shell.allowed_paths"
                && allowed.access == PathAccess::ReadWrite
                && is_below(&allowed.path);
            let path = match resolve(&written) {
                Ok(Resolved { real, link: None }) if real.is_dir() => real,
                Ok(Resolved { real, link: Some(link) }) if real.is_dir() => {
                    let message = format!(
                        "{shown} leads through the link {} to {}. Links aren't granted, because a \
                         tool can change them. Write the target of the link, or remove the entry",
                        link.display(),
                        real.display()
                    );
                    problems.push(Problem::new(source, message));
                    continue;
                }
                // A missing directory below the working directory that is granted to commands is
                // skipped: other working directories may not have it.
                Err(_) | Ok(_) if is_for_commands => continue,
                Err(error)
                    if may_be_missing(&error, &source)
                        && !is_in_wider_directory(allowed, paths, base, folders) =>
                {
                    continue;
                }
                Ok(_) => {
                    let message =
                        format!("{shown} is not a directory; grant the directory that contains it");
                    problems.push(Problem::new(source, message));
                    continue;
                }
                Err(error) => {
                    let message = format!(
                        "{shown} can't be granted: {error}; create the directory, or remove the \
                         entry"
                    );
                    problems.push(Problem::new(source, message));
                    continue;
                }
            };
            let access = match allowed.access {
                PathAccess::Read => Access::Read,
                PathAccess::ReadWrite => Access::Write,
            };
            // A flag may widen a grant of a file for the same directory. Within one source, the
            // narrower grant applies.
            grants.retain(|(known, known_source)| {
                known.path != path || is_same_kind(known_source, &source)
            });
            grants.push((Grant { path, access, place: self.origin(&element) }, source));
        }
        if problems.is_empty() {
            Ok(grants.into_iter().map(|(grant, _)| grant).collect())
        } else {
            Err(Problems(problems))
        }
    }
}

/// Selects every glob of a list.
pub(super) fn all_globs(_: &(usize, &PathGlob)) -> bool {
    true
}

/// A missing directory of a file is no error: its disk may not be mounted, and other work must
/// continue. A missing directory of a flag is an error, because the user has just typed it.
fn may_be_missing(error: &io::Error, source: &Source) -> bool {
    error.kind() == io::ErrorKind::NotFound && !matches!(source, Source::Flag(_))
}

/// Checks whether a directory of `list` with more access contains `allowed`. A missing `allowed`
/// would get the greater access when it is created.
fn is_in_wider_directory(
    allowed: &AllowedPath,
    list: &[AllowedPath],
    base: &Path,
    folders: &Folders,
) -> bool {
    let path = expand(&allowed.path, base, folders);
    let mut wider_directories = list.iter().filter(|outer| outer.access > allowed.access);
    wider_directories.any(|outer| path.starts_with(expand(&outer.path, base, folders)))
}

pub(super) fn is_everything(globs: &[PathGlob]) -> bool {
    globs.is_empty() || globs.iter().any(|glob| glob.as_str() == "**")
}

/// Checks whether the written path is below the working directory. Links aren't resolved.
fn is_below(path: &str) -> bool {
    let path = Path::new(path);
    path.is_relative()
        && !path.starts_with("~")
        && path.components().all(|part| matches!(part, std::path::Component::Normal(_)))
}

fn is_same_kind(a: &Source, b: &Source) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

/// Returns the glob with `~` replaced, in one or two spellings.
///
/// For a glob that begins at the root, the second spelling resolves the links in the part without
/// wildcards. The rules compare real paths: if `/data` is a link, a denial of `/data/keys` would
/// otherwise do nothing.
pub(super) fn spellings(glob: &str, home: Option<&Path>) -> Vec<String> {
    let glob = absolute(glob, home);
    if !glob.starts_with('/') {
        return vec![glob];
    }
    let (plain, pattern) = split_plain_part(&glob);
    let resolved = literal(real_or_given(&plain).to_string_lossy().trim_end_matches('/'));
    let resolved_glob = resolved + pattern;
    // The glob `/` has an empty spelling, which would match nothing.
    if resolved_glob == glob || resolved_glob.is_empty() {
        vec![glob]
    } else {
        vec![glob, resolved_glob]
    }
}

/// Returns further globs for a glob that denies a part of `.git`. A `.git` may be a link or a file
/// that leads to another folder. The parts of this folder may be links, too. The result denies the
/// same part at its real path, and the links and files that lead to the real path.
fn repository_globs(glob: &str, repository: &Repository) -> Vec<String> {
    let relative = glob.strip_prefix("**/").unwrap_or(glob);
    let Some(inner) = relative.strip_prefix(".git/") else { return Vec::new() };
    let mut globs: Vec<String> = repository.names.iter().map(|name| literal_glob(name)).collect();
    if !globs.is_empty() {
        globs.push(format!("{}/{inner}", literal_glob(&repository.folder)));
    }
    for (name, real) in repository.parts() {
        // `below` is the part of `inner` after `name`. A leading wildcard may match all of `name`.
        let below = match inner.strip_prefix(name) {
            Some(below) if below.is_empty() || below.starts_with('/') => below,
            _ if inner.starts_with('*') => "",
            // The glob is for another part of the repository.
            _ => continue,
        };
        if real != repository.folder.join(name) {
            globs.push(literal_glob(real) + below);
        }
    }
    globs
}

/// Returns a glob that matches exactly this path. In place of bytes that aren't UTF-8, it matches
/// any text.
fn literal_glob(path: &Path) -> String {
    literal(&path.to_string_lossy()).replace('\u{fffd}', "*")
}

fn absolute(glob: &str, home: Option<&Path>) -> String {
    match (home, glob.strip_prefix('~')) {
        (Some(home), Some(below)) => format!("{}{below}", literal(&home.to_string_lossy())),
        _ => glob.to_owned(),
    }
}

/// Splits a glob that begins with `/`. The first part is the path of the names before the first
/// wildcard. The second part begins with a slash, or is empty.
fn split_plain_part(glob: &str) -> (PathBuf, &str) {
    let mut plain = PathBuf::from("/");
    let mut pattern = glob;
    while let Some(below) = pattern.strip_prefix('/') {
        let name = match below.split_once('/') {
            Some((name, _)) => name,
            None => below,
        };
        let Some(unescaped) = unescape_name(name) else { break };
        plain.push(unescaped);
        pattern = &below[name.len()..];
    }
    (plain, pattern)
}

/// Removes the backslashes that escape characters in a name. Returns `None` for a name with a
/// wildcard, or with a backslash at the end.
fn unescape_name(name: &str) -> Option<String> {
    let mut plain = String::new();
    let mut letters = name.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '*' | '?' | '[' | '{' => return None,
            '\\' => plain.push(letters.next()?),
            letter => plain.push(letter),
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_part_ends_before_a_wildcard() {
        for (glob, plain, rest) in [
            ("/a/b/*.x", "/a/b", "/*.x"),
            ("/a/b", "/a/b", ""),
            ("/*", "/", "/*"),
            (r"/h\[1\]/w/**", "/h[1]/w", "/**"),
            (r"/h[1]/w/**", "/", "/h[1]/w/**"),
            (r"/a\*/b", "/a*/b", ""),
        ] {
            assert_eq!(split_plain_part(glob), (PathBuf::from(plain), rest), "{glob}");
        }
    }
}
