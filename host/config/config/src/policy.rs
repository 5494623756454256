//! Builds the rules for paths from the configuration. The rules cover the directories that tools
//! and plugins may use, and Toolhold's own files, which no grant opens.

use std::io;
use std::path::{Path, PathBuf};

use toolhold_contract::{Access, HostError};
use toolhold_data_dir::Repository;
use toolhold_net::SecretSource;
use toolhold_policy::files::{FileRules, Grant, OwnFolder, PathGlobs};
use toolhold_policy::literal;
use toolhold_system::files::{real_or_given, with_its_links};

use super::resolved::{Resolved, expand, resolve};
use super::{
    AllowedPath, Config, Folders, Limits, PathAccess, PathGlob, PolicyEffect, Problem, Problems,
    Reload, Source,
};

/// The path rules for one set of tools.
#[derive(Clone, Debug, Default)]
pub struct FileGrants {
    /// Granted directories that exist, by their real paths.
    pub grants: Vec<Grant>,
    /// Globs of files that aren't read.
    pub deny_read: PathGlobs,
    /// Globs of the only files that are read. If empty, all files.
    pub allow_read: PathGlobs,
    /// Globs of files that aren't written.
    pub deny_write: PathGlobs,
}

impl Config {
    /// Builds the path rules of the built-in file tools. If the tools are disabled, the rules grant
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] if a granted directory doesn't exist. The grant isn't skipped: a
    /// read-only directory inside a writable one would be writable if it were created later.
    pub fn built_in_files(
        &self,
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<FileGrants, HostError> {
        let file = &self.values.tools.file;
        let paths = if file.enabled { file.granted_paths() } else { Vec::new() };
        self.file_policy("tools.file.allowed_paths", &paths, &|_| true, folders, working_directory)
    }

    /// Builds the path rules for the table `table`, with the protected paths. `table` is
    /// `tools.file`, `tools.shell` or the table of a plugin.
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

    /// Builds the path rules of the plugin `name`. If the configuration doesn't name the plugin,
    /// the rules grant nothing.
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
        let paths = self.values.plugins.get(name).map_or(&[][..], |plugin| &plugin.allowed_paths);
        self.file_policy(
            &format!("plugins.{name}.allowed_paths"),
            paths,
            &|_| true,
            folders,
            working_directory,
        )
    }

    /// Returns the path of the component of the plugin `name`. Returns `None` if the configuration
    /// has no path for the plugin. The plugin is then in [`Self::plugin_folder`].
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

    /// Returns the folder whose plugins are loaded even if the configuration doesn't name them. The
    /// folder may be missing.
    pub fn plugin_folder(&self, folders: &Folders, working_directory: &Path) -> PathBuf {
        match self.values.plugin_folder.path.as_str() {
            "" => folders.data.join("plugins"),
            path => self.beside_its_source("plugin_folder.path", path, folders, working_directory),
        }
    }

    /// Returns what happens to a new or changed component of the plugin `name`.
    pub fn reload(&self, name: &str) -> Reload {
        let of_folder = self.values.plugin_folder.reload;
        match self.values.plugins.get(name) {
            Some(plugin) if plugin.path.is_empty() => plugin.reload.unwrap_or(of_folder),
            Some(plugin) => plugin.reload.unwrap_or(Reload::Approve),
            None => of_folder,
        }
    }

    /// Resolves a path in the configuration. A relative path starts at the folder of the
    /// configuration file that contains it.
    pub(super) fn beside_its_source(
        &self,
        key: &str,
        path: &str,
        folders: &Folders,
        working_directory: &Path,
    ) -> PathBuf {
        let source = self.source(key);
        let base = match &source {
            Source::File { path, .. } => path.parent().unwrap_or(working_directory),
            _ => working_directory,
        };
        working_directory.join(expand(path, base, folders))
    }

    /// Returns Toolhold's own files, which no grant opens: its folders, the configuration file, the
    /// ceilings, the plugin folder, and the files of plugins. A tool that writes these files could
    /// grant itself more at the next start.
    ///
    /// The result also contains the folders of the user's skills, since a model follows their text,
    /// the files of secrets, the programs that print secrets, and the certificates of trusted
    /// authorities. No tool can read the files of secrets.
    pub fn own(&self, folders: &Folders, working_directory: &Path) -> Vec<OwnFolder> {
        let mut paths = Vec::new();
        let ceilings = self.ceilings.iter().map(|ceiling| &ceiling.path);
        paths.extend(self.file.iter().chain(ceilings).map(|file| working_directory.join(file)));
        paths.push(self.plugin_folder(folders, working_directory));
        let plugins = self.values.plugins.keys();
        paths.extend(plugins.filter_map(|name| self.plugin_path(name, folders, working_directory)));
        // Tools can't create a ceiling or a file of defaults that is missing.
        paths.extend(Path::new(super::SYSTEM_CEILING).parent().map(Path::to_owned));
        paths.extend(self.authorities(folders, working_directory));
        paths.push(self.filter_rules_path(folders, working_directory));
        // A skill is read as an instruction of the user.
        paths.extend(self.skill_folders(folders, working_directory));

        let mut own = folders.own();
        own.extend(paths.into_iter().map(|path| OwnFolder { path, secret: false }));
        for (table, name, secret) in self.secrets() {
            let key = format!("{table}.secrets.{}", super::dotted_name(name));
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

    /// Returns the paths that no tool may change: [`own`](Self::own), and all links that lead to
    /// those paths or to paths that a rule denies. A changed link would select another
    /// configuration, or lift the denial, at the next start.
    pub fn protected(&self, folders: &Folders, working_directory: &Path) -> Vec<OwnFolder> {
        let own = self.own(folders, working_directory).into_iter();
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
                // The first path is the denied path itself, which isn't one of Toolhold's own
                // files.
                let links = with_its_links(OwnFolder { path, secret: false }).skip(1);
                protected.extend(links);
            }
        }
        protected
    }

    /// Returns the limits of one call of the plugin `name`.
    pub fn plugin_limits(&self, name: &str) -> Limits {
        let all = self.values.tools.limits;
        self.values.plugins.get(name).map_or(all, |plugin| plugin.limits.over(all))
    }

    /// Builds the path rules for the directories `paths`. `denies` selects the globs of
    /// `deny_write` that apply.
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
            self.path_globs("tools.file.deny_read", &file.deny_read, &|_| true, &|glob| {
                spellings(glob, home)
            })?;
        let allow_read =
            self.path_globs("tools.file.allow_read", &file.allow_read, &|_| true, &|glob| {
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

    /// Builds the globs of the paths for which changes by commands are saved. Returns `None` if
    /// changes to all paths are saved.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] if a pattern isn't a valid glob.
    pub fn transaction_scope(&self, folders: &Folders) -> Result<Option<PathGlobs>, HostError> {
        let globs = &self.values.tools.shell.transaction_scope;
        if is_everything(globs) {
            return Ok(None);
        }
        let scope =
            self.path_globs("tools.shell.transaction_scope", globs, &|_| true, &|glob| {
                spellings(glob, folders.home.as_deref())
            })?;
        Ok(Some(scope))
    }

    /// Finds the granted directories that are missing but don't stop a call. Each problem names the
    /// line of the grant.
    pub fn missing_directories(&self, folders: &Folders, base: &Path) -> Vec<Problem> {
        let tools = &self.values.tools;
        let own = [
            ("tools.file.allowed_paths".to_owned(), tools.file.granted_paths()),
            ("tools.shell.allowed_paths".to_owned(), tools.shell.allowed_paths.clone()),
        ];
        let plugins = self.values.plugins.iter().map(|(name, plugin)| {
            (format!("plugins.{name}.allowed_paths"), plugin.allowed_paths.clone())
        });
        let mut missing = Vec::new();
        for (key, paths) in own.into_iter().chain(plugins) {
            for (index, allowed) in paths.iter().enumerate() {
                let written = expand(&allowed.path, base, folders);
                let Err(error) = written.canonicalize() else { continue };
                let source = self.source(&format!("{key}.{index}"));
                let is_in_wider = is_in_wider_directory(allowed, &paths, base, folders);
                if may_be_missing(&error, &source) && !is_in_wider {
                    let message = format!(
                        "{} doesn't exist, so nothing there is granted; create it, or remove the entry",
                        written.display()
                    );
                    missing.push(Problem::new(source, message));
                }
            }
        }
        missing
    }

    /// Parses globs of a list. `applies` selects globs, and `spell` returns the spellings of a
    /// glob.
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
                // Here the missing directory is a writable one below the working directory, granted
                // to commands only. It is skipped because another working directory may not have
                // it.
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
                        "{shown} can't be granted: {error}; create it, or remove the entry"
                    );
                    problems.push(Problem::new(source, message));
                    continue;
                }
            };
            let access = match allowed.access {
                PathAccess::Read => Access::Read,
                PathAccess::ReadWrite => Access::Write,
            };
            // A flag may widen a grant that a file makes for the same directory. Within one source,
            // the narrower grant applies.
            grants.retain(|(known, from)| known.path != path || is_same_kind(from, &source));
            grants.push((Grant { path, access, place: self.origin(&element) }, source));
        }
        if problems.is_empty() {
            Ok(grants.into_iter().map(|(grant, _)| grant).collect())
        } else {
            Err(Problems(problems))
        }
    }
}

/// Checks whether calls may run without a granted directory. A disk that isn't mounted shouldn't
/// stop other work. A flag was typed just now, so its mistake is reported.
fn may_be_missing(error: &io::Error, source: &Source) -> bool {
    error.kind() == io::ErrorKind::NotFound && !matches!(source, Source::Flag(_))
}

/// Checks whether a directory is inside another directory of the list that has more access. If the
/// inner directory is missing, it would get that access when it is created.
fn is_in_wider_directory(
    allowed: &AllowedPath,
    list: &[AllowedPath],
    base: &Path,
    folders: &Folders,
) -> bool {
    let path = expand(&allowed.path, base, folders);
    let mut wider = list.iter().filter(|outer| outer.access > allowed.access);
    wider.any(|outer| path.starts_with(expand(&outer.path, base, folders)))
}

/// Checks whether globs of files leave no file out.
pub(super) fn is_everything(globs: &[PathGlob]) -> bool {
    globs.is_empty() || globs.iter().any(|glob| glob.as_str() == "**")
}

/// Checks whether a path, as written, is below the working directory and not equal to it.
fn is_below(path: &str) -> bool {
    let path = Path::new(path);
    path.is_relative()
        && !path.starts_with("~")
        && path.components().all(|part| matches!(part, std::path::Component::Normal(_)))
}

fn is_same_kind(a: &Source, b: &Source) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

/// Returns the spellings of a glob that the rules compare, with `~` replaced.
///
/// For a glob that begins at the root, a second spelling resolves the links in the part without
/// wildcards. The rules compare real paths: without this spelling, a denial of `/data/keys` would
/// do nothing if `/data` is a link.
pub(super) fn spellings(glob: &str, home: Option<&Path>) -> Vec<String> {
    let glob = absolute(glob, home);
    if !glob.starts_with('/') {
        return vec![glob];
    }
    let (plain, pattern) = split_plain_part(&glob);
    let resolved = literal(real_or_given(&plain).to_string_lossy().trim_end_matches('/'));
    let other = resolved + pattern;
    if other == glob || other.is_empty() { vec![glob] } else { vec![glob, other] }
}

/// Returns further globs for a glob that denies a part of `.git`. If the repository, or a part of
/// it that git would run, is in another place, the result has a glob for the same part in that
/// place, and globs for the links and the file that lead to it.
fn repository_globs(glob: &str, repository: &Repository) -> Vec<String> {
    let Some(inner) = glob.strip_prefix("**/").unwrap_or(glob).strip_prefix(".git/") else {
        return Vec::new();
    };
    let mut globs: Vec<String> = repository.names.iter().map(|name| literal_glob(name)).collect();
    if !globs.is_empty() {
        globs.push(format!("{}/{inner}", literal_glob(&repository.folder)));
    }
    for (name, real) in repository.parts() {
        // The part of the glob that is below this part of the repository.
        let below = match inner.strip_prefix(name) {
            Some(below) if below.is_empty() || below.starts_with('/') => below,
            _ if inner.starts_with('*') => "",
            _ => continue,
        };
        if real != repository.folder.join(name) {
            globs.push(literal_glob(real) + below);
        }
    }
    globs
}

/// Returns the glob of one path. Bytes that aren't UTF-8 match any text.
fn literal_glob(path: &Path) -> String {
    literal(&path.to_string_lossy()).replace('\u{fffd}', "*")
}

/// Replaces the `~` of a glob with the home.
fn absolute(glob: &str, home: Option<&Path>) -> String {
    match (home, glob.strip_prefix('~')) {
        (Some(home), Some(below)) => format!("{}{below}", literal(&home.to_string_lossy())),
        _ => glob.to_owned(),
    }
}

/// Splits a glob that begins at the root. The first part is the path of the leading names without a
/// wildcard. The second part is the rest, including the slash before it.
fn split_plain_part(glob: &str) -> (PathBuf, &str) {
    let mut plain = PathBuf::from("/");
    let mut pattern = glob;
    while let Some(below) = pattern.strip_prefix('/') {
        let name = below.split('/').next().unwrap_or(below);
        let Some(unescaped) = unescape_name(name) else { break };
        plain.push(unescaped);
        pattern = &below[name.len()..];
    }
    (plain, pattern)
}

/// Returns a name without its escapes, or `None` if it has a wildcard.
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
