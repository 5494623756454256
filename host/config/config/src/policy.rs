//! Builds the rules for paths from the configuration: which directories tools and plugins get, and
//! which files of Toolhold's own no grant opens.

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
    /// The path rules of the built-in file tools. They grant nothing if the tools are disabled.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] for a grant that isn't an existing directory. Such a grant isn't
    /// skipped: if it is read-only inside a writable directory, a directory that is made there
    /// later would be writable.
    pub fn built_in_files(
        &self,
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<FileGrants, HostError> {
        let file = &self.values.tools.file;
        let paths = if file.enabled { file.granted_paths() } else { Vec::new() };
        self.file_policy("tools.file.allowed_paths", &paths, &|_| true, folders, working_directory)
    }

    /// The path rules of the tools to which a table grants, as they decide. `table`: `tools.file`,
    /// `tools.shell` or that of a plugin.
    ///
    /// # Errors
    ///
    /// As [`Self::built_in_files`].
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

    /// The path rules of the plugin `name`. They grant nothing if the configuration doesn't name
    /// it.
    ///
    /// # Errors
    ///
    /// As [`Self::built_in_files`].
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

    /// The component of the plugin `name`. `None` if the configuration names no path: the plugin
    /// comes from [`Self::plugin_folder`].
    pub fn plugin_path(
        &self,
        name: &str,
        folders: &Folders,
        working_directory: &Path,
    ) -> Option<PathBuf> {
        let path = self
            .values
            .plugins
            .get(name)
            .map(|plugin| plugin.path.as_str())
            .filter(|path| !path.is_empty())?;
        Some(self.beside_its_source(
            &format!("plugins.{name}.path"),
            path,
            folders,
            working_directory,
        ))
    }

    /// The folder whose plugins are loaded without being named one by one. It need not exist.
    pub fn plugin_folder(&self, folders: &Folders, working_directory: &Path) -> PathBuf {
        match self.values.plugin_folder.path.as_str() {
            "" => folders.data.join("plugins"),
            path => self.beside_its_source("plugin_folder.path", path, folders, working_directory),
        }
    }

    /// The treatment of the component of the plugin `name` if it is new or has changed.
    pub fn reload(&self, name: &str) -> Reload {
        let plugin = self.values.plugins.get(name);
        let default = if plugin.is_some_and(|plugin| !plugin.path.is_empty()) {
            Reload::Approve
        } else {
            self.values.plugin_folder.reload
        };
        plugin.and_then(|plugin| plugin.reload).unwrap_or(default)
    }

    /// A path of one of Toolhold's own files. A relative path starts at the folder of the
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

    /// Toolhold's own files, which no grant opens: its folders, the configuration file, the
    /// ceilings, the plugin folder, and the files of plugins. A tool that writes them could grant
    /// itself more at the next start.
    ///
    /// The folders of the user's skills belong to them, since a model follows what is in them. So
    /// do the files of secrets, the programs that print secrets, and the certificates of trusted
    /// authorities. No tool can read the files of secrets.
    pub fn own(&self, folders: &Folders, working_directory: &Path) -> Vec<OwnFolder> {
        let plugins = self
            .values
            .plugins
            .keys()
            .filter_map(|name| self.plugin_path(name, folders, working_directory));
        let folder = self.plugin_folder(folders, working_directory);
        let ceilings = self.ceilings.iter().map(|ceiling| &ceiling.path);
        // If there is no ceiling yet, and no defaults, no tool can make them.
        let system_folder = Path::new(super::SYSTEM_CEILING).parent().map(Path::to_owned);
        let authorities = self.authorities(folders, working_directory);
        let filter_rules = self.filter_rules_path(folders, working_directory);
        // A skill is read as an instruction of the user.
        let skills = self.skill_folders(folders, working_directory);
        let files = self
            .file
            .iter()
            .chain(ceilings)
            .map(|file| working_directory.join(file))
            .chain([folder])
            .chain(plugins)
            .chain(system_folder)
            .chain(authorities)
            .chain([filter_rules])
            .chain(skills)
            .map(|path| OwnFolder { path, secret: false });
        let secret_files = self.secrets().flat_map(|(table, name, secret)| {
            let key = format!("{table}.secrets.{}", super::dotted_name(name));
            match self.source_of(&key, &secret, folders, working_directory) {
                SecretSource::File(path) => vec![OwnFolder { path, secret: true }],
                source => {
                    let places = source.program_places().into_iter();
                    places.map(|path| OwnFolder { path, secret: false }).collect()
                }
            }
        });
        folders.own().into_iter().chain(files).chain(secret_files).collect()
    }

    /// The paths that no tool may change: [`own`](Self::own), and all links that lead there or to
    /// paths that a rule denies. An exchanged link would choose another configuration, or lift the
    /// denial, from the next start on.
    pub fn protected(&self, folders: &Folders, working_directory: &Path) -> Vec<OwnFolder> {
        let tools = &self.values.tools;
        let denied = tools.policy.rules.iter().filter(|rule| rule.effect == PolicyEffect::Deny);
        let links = denied
            .flat_map(|rule| &rule.paths)
            .chain(&tools.file.deny_read)
            .chain(&tools.file.deny_write)
            .map(|glob| absolute(glob.as_str(), folders.home.as_deref()))
            .filter(|glob| glob.starts_with('/'))
            .map(|glob| OwnFolder { path: plain_part(&glob).0, secret: false })
            // What the rule denies isn't Toolhold's own.
            .flat_map(|denied| with_its_links(denied).skip(1));
        let own = self.own(folders, working_directory);
        own.into_iter().flat_map(with_its_links).chain(links).collect()
    }

    /// The limits of one call of the plugin `name`.
    pub fn plugin_limits(&self, name: &str) -> Limits {
        let all = self.values.tools.limits;
        self.values.plugins.get(name).map_or(all, |plugin| plugin.limits.over(all))
    }

    /// The path rules for the directories `paths`. `denies` selects the globs of `deny_write` that
    /// count.
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
                let mut all = spellings(glob, home);
                for repository in &repositories {
                    all.extend(of_repository(glob, repository));
                }
                all
            })?;
        Ok(FileGrants { grants, deny_read, allow_read, deny_write })
    }

    /// The paths whose changes by commands are saved. `None`: all.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] for a pattern that isn't a valid glob.
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

    /// The granted directories that don't exist and that calls go on without, each with its line.
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
                if may_be_missing(&error, &source, &written, allowed, &paths, |path| {
                    expand(path, base, folders)
                }) {
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

    fn path_globs(
        &self,
        key: &str,
        globs: &[PathGlob],
        counts: &dyn Fn(&(usize, &PathGlob)) -> bool,
        everywhere: &dyn Fn(&str) -> Vec<String>,
    ) -> Result<PathGlobs, Problems> {
        let mut patterns = Vec::new();
        for (index, glob) in globs.iter().enumerate().filter(counts) {
            let place = self.origin(&format!("{key}.{index}"));
            let spelled = everywhere(glob.as_str()).into_iter();
            patterns.extend(spelled.map(|pattern| (pattern, place.clone())));
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
            let path = match resolve(&written) {
                Ok(Resolved { real, link: None }) if real.is_dir() => real,
                Ok(Resolved { real, link: Some(link) }) if real.is_dir() => {
                    problems.push(Problem::new(
                        source,
                        format!(
                            "{} leads through the link {} to {}. Links aren't granted, because a \
                             tool can change them. Write the target of the link, or remove the \
                             entry",
                            written.display(),
                            link.display(),
                            real.display()
                        ),
                    ));
                    continue;
                }
                // A writable directory below the working directory, for commands only. It is
                // skipped because another working directory may not have it.
                Err(_) | Ok(_)
                    if key == "tools.shell.allowed_paths"
                        && allowed.access == PathAccess::ReadWrite
                        && is_below(&allowed.path) =>
                {
                    continue;
                }
                Err(error)
                    if may_be_missing(&error, &source, &written, allowed, paths, |path| {
                        expand(path, base, folders)
                    }) =>
                {
                    continue;
                }
                Ok(_) => {
                    problems.push(Problem::new(
                        source,
                        format!(
                            "{} is not a directory; grant the directory that contains it",
                            written.display()
                        ),
                    ));
                    continue;
                }
                Err(error) => {
                    problems.push(Problem::new(
                        source,
                        format!(
                            "{} can't be granted: {error}; create it, or remove the entry",
                            written.display()
                        ),
                    ));
                    continue;
                }
            };
            let access = match allowed.access {
                PathAccess::Read => Access::Read,
                PathAccess::ReadWrite => Access::Write,
            };
            // A flag may widen a file's grant of the same directory. Within one source, the
            // narrower grant counts.
            grants.retain(|(known, from)| known.path != path || same_origin(from, &source));
            grants.push((Grant { path, access, place: self.origin(&element) }, source));
        }
        if problems.is_empty() {
            Ok(grants.into_iter().map(|(grant, _)| grant).collect())
        } else {
            Err(Problems(problems))
        }
    }
}

/// Whether calls go on without a granted directory that doesn't exist: a disk that isn't mounted
/// ends nothing else. But if the directory would have less access than one that contains it, it
/// would have more once somebody makes it. A flag was typed just now, so its mistake is told.
fn may_be_missing(
    error: &io::Error,
    source: &Source,
    written: &Path,
    allowed: &AllowedPath,
    all: &[AllowedPath],
    expand: impl Fn(&str) -> PathBuf,
) -> bool {
    error.kind() == io::ErrorKind::NotFound
        && !matches!(source, Source::Flag(_))
        && !all
            .iter()
            .any(|outer| outer.access > allowed.access && written.starts_with(expand(&outer.path)))
}

/// Whether globs of files leave no file out.
pub(super) fn is_everything(globs: &[PathGlob]) -> bool {
    globs.is_empty() || globs.iter().any(|glob| glob.as_str() == "**")
}

/// Whether a path, as it is written, is below the working directory and isn't that directory.
fn is_below(path: &str) -> bool {
    let path = Path::new(path);
    path.is_relative()
        && !path.starts_with("~")
        && path.components().all(|part| matches!(part, std::path::Component::Normal(_)))
}

fn same_origin(a: &Source, b: &Source) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

/// The spellings of a glob that the rules compare. `~` is replaced. For a glob that begins at the
/// root, a second spelling has the links in its plain part resolved, since the rules compare real
/// paths: otherwise a denial of `/data/keys` would do nothing if `/data` is a link.
pub(super) fn spellings(glob: &str, home: Option<&Path>) -> Vec<String> {
    let glob = absolute(glob, home);
    if !glob.starts_with('/') {
        return vec![glob];
    }
    let (plain, rest) = plain_part(&glob);
    let resolved = literal(real_or_given(&plain).to_string_lossy().trim_end_matches('/'));
    let other = resolved + rest;
    if other == glob || other.is_empty() { vec![glob] } else { vec![glob, other] }
}

/// The further paths that a glob of `.git` denies where a repository, or a part of it that git
/// would run, is elsewhere: the same part there, and the links and the file that lead there.
fn of_repository(glob: &str, repository: &Repository) -> Vec<String> {
    let inner = glob.strip_prefix("**/").unwrap_or(glob).strip_prefix(".git/");
    let Some(inner) = inner else { return Vec::new() };
    let mut all: Vec<String> = repository.names.iter().map(|name| literal_glob(name)).collect();
    if !all.is_empty() {
        all.push(format!("{}/{inner}", literal_glob(&repository.folder)));
    }
    for (name, real) in repository.parts() {
        let rest = match inner.strip_prefix(name) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => rest,
            _ if inner.starts_with('*') => "",
            _ => continue,
        };
        if real != repository.folder.join(name) {
            all.push(literal_glob(real) + rest);
        }
    }
    all
}

/// The glob of one path. Bytes that aren't UTF-8 match any text.
fn literal_glob(path: &Path) -> String {
    literal(&path.to_string_lossy()).replace('\u{fffd}', "*")
}

/// A glob with the home in the place of its `~`.
fn absolute(glob: &str, home: Option<&Path>) -> String {
    match (home, glob.strip_prefix('~')) {
        (Some(home), Some(rest)) => format!("{}{rest}", literal(&home.to_string_lossy())),
        _ => glob.to_owned(),
    }
}

/// The path of the whole names at the begin of a glob that begins at the root, and the rest of it.
fn plain_part(glob: &str) -> (PathBuf, &str) {
    let mut plain = PathBuf::from("/");
    let mut length = 0;
    for name in glob.split('/').map_while(|name| Some((name, plain_name(name)?))) {
        plain.push(name.1);
        length += name.0.len() + 1;
    }
    (plain, &glob[length.saturating_sub(1).min(glob.len())..])
}

/// A name without its escapes. `None`: it has a wildcard.
fn plain_name(name: &str) -> Option<String> {
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
            assert_eq!(plain_part(glob), (PathBuf::from(plain), rest), "{glob}");
        }
    }
}
