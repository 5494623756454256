//! Limits the operator's configuration to the rights of one caller.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toolhold_contract::text::{cut, neutral_line};
use toolhold_policy::files::OwnFolder;
use toolhold_system::files::real_or_given;

use super::denied::DeniedPrincipal;
use super::template::{self, TemplateError};
use crate::keys::dotted;
use crate::leaf::Leaf;
use crate::narrow::{Bases, effective, grants, value_at};
use crate::principal_tables::{AppliedPrincipal, Table, Tables, is_directory_list};
use crate::resolved::{Resolved, expand, resolve};
use crate::{
    AllowedPath, Ceiling, Config, Folders, Inputs, McpServer, Problem, Problems, Project, Source,
    Who, ceiling, project,
};

/// Most bytes of a text of a token in an error. A longer text is cut.
const MAX_SHOWN: usize = 200;

/// The mode of a caller's own directory.
const DIRECTORY_MODE: u32 = 0o700;

/// The key of the directories of the file tools.
const FILE_PATHS: &str = "tools.file.allowed_paths";

/// The keys that name a provider of models.
const PROVIDER_KEYS: [&[&str]; 8] = [
    &["agent", "provider"],
    &["agent", "compress_provider"],
    &["agent", "parameter_reformat_provider"],
    &["agent", "delegate", "provider"],
    &["agent", "tool_filter", "embeddings"],
    &["tools", "adversarial_policy", "provider"],
    &["tools", "memory", "embeddings"],
    &["index", "embeddings"],
];

/// The operator's configuration, as an input of [`apply`].
pub(crate) struct Operator<'a> {
    pub(crate) config: &'a Config,
    pub(crate) tables: &'a Tables,
    pub(crate) folders: &'a Folders,
    pub(crate) inputs: &'a Inputs,
    /// The working directory.
    pub(crate) directory: PathBuf,
    /// The device and the inode of the user's file.
    pub(crate) user_file: Option<(u64, u64)>,
    /// The servers, limited by the ceilings.
    pub(crate) servers: BTreeMap<String, McpServer>,
}

/// The result of [`apply`].
pub(crate) struct Restricted {
    pub(crate) principal: AppliedPrincipal,
    /// The file of the caller's directory, which only narrows.
    pub(crate) project: Option<Project>,
    pub(crate) table: Ceiling,
    /// The names of the plugins that the caller may have.
    pub(crate) plugins: BTreeSet<String>,
}

impl Config {
    /// Returns the name of the table of `[principals]` that applies to a caller.
    pub fn principal_table(&self, who: &Who) -> Option<&str> {
        self.principal_tables.matching(who).map(|table| table.name.as_str())
    }

    /// Checks whether the configuration has tables of `[principals]`. If it has none, all callers
    /// have the operator's rights.
    pub fn has_principals(&self) -> bool {
        !self.principal_tables.0.is_empty()
    }

    /// Checks whether this is the configuration of a caller with a table of `[principals]`.
    pub fn is_of_principal(&self) -> bool {
        self.principal.is_some()
    }

    /// Returns the server `name` as the operator has approved it. For a principal, the server itself
    /// has fewer grants.
    pub fn approved_server(&self, name: &str) -> Option<&McpServer> {
        match &self.principal {
            Some(principal) => principal.servers.get(name),
            None => self.values.mcp.servers.get(name),
        }
    }

    /// Finds directories in the tables of `[principals]` that the operator's configuration doesn't
    /// grant. Callers with such a table are refused.
    pub fn principal_problems(&self, folders: &Folders, working_directory: &Path) -> Vec<Problem> {
        let bases = Bases { folders, working_directory };
        let mut problems = Vec::new();
        for table in self.principal_tables.iter() {
            for (list, written, source) in table.directories() {
                let path = template::fixed_part(&written.path).to_owned();
                let fixed = AllowedPath { path, access: written.access };
                if let Err(error) = check_granted(self, list, &fixed, &written, bases) {
                    let message = format!("[{}] {error}", table.key());
                    problems.push(Problem::new(source, message));
                }
            }
        }
        problems
    }
}

/// Limits `leaves`, the operator's values, to the rights of the caller `who`. Creates the caller's
/// own directory.
///
/// # Errors
///
/// Returns the reason why the caller has no rights.
pub(crate) fn apply(
    leaves: &mut Vec<Leaf>,
    who: &Who,
    operator: &Operator<'_>,
) -> Result<Restricted, Problems> {
    let Operator { config, tables, folders, inputs, ref directory, user_file, .. } = *operator;
    DeniedPrincipal::check(folders, who)
        .map_err(|error| Problem::new(Source::Default, error.to_string()))?;
    let table = match &inputs.principal_table {
        Some(name) => tables.named(name).ok_or_else(|| missing_table(name, config))?,
        None => tables.matching(who).ok_or_else(|| unmatched(who, config))?,
    };
    let protected = protected(operator);
    let bases = Bases { folders, working_directory: directory };

    // The caller works in another directory, where a relative path of the operator would lead
    // elsewhere.
    make_absolute(leaves, config, bases);
    let base = Config::from_leaves(leaves)?;
    let caller = Caller { who, table, tables, operator: &base, bases };
    let limits = caller.limits().map_err(Problems)?;
    let working_directory = match first_directory(&limits) {
        Some(path) => real_or_given(Path::new(&path)),
        None => directory.clone(),
    };

    let mut read_project = None;
    if let Some(proposal) = project::read(&working_directory, user_file).map_err(Problems)? {
        let (project, narrower) =
            project::apply_untrusted(&proposal, &base, folders).map_err(Problems)?;
        leaves.extend(narrower);
        read_project = Some(project);
    }
    remove_unlisted(leaves, table, config);
    leaves.extend(plugins_without_table(table, &base));
    let path = match &table.source {
        Source::File { path, .. } => path.clone(),
        _ => inputs.file.clone().unwrap_or_else(|| folders.config_file()),
    };
    let ceiling =
        ceiling::apply_table(leaves, path, &limits, &table.source, bases).map_err(Problems)?;
    let principal = AppliedPrincipal {
        name: table.name.clone(),
        who: who.clone(),
        directory: working_directory,
        operator_directory: directory.clone(),
        servers: operator.servers.clone(),
        protected,
    };
    let plugins = Config::from_leaves(leaves)?.values.plugins.into_keys().collect();
    Ok(Restricted { principal, project: read_project, table: ceiling, plugins })
}

fn missing_table(name: &str, config: &Config) -> Problem {
    let message = format!(
        "the token is for the table [principals.{}], which isn't in {}: add the table, or ask the \
         administrator of this server",
        shown(name),
        config.own_file()
    );
    Problem::new(Source::Default, message)
}

fn unmatched(who: &Who, config: &Config) -> Problem {
    let issuer = shown(&who.issuer);
    let subject = shown(&who.subject);
    let groups =
        if who.groups.is_empty() { "none".to_owned() } else { shown(&who.groups.join(", ")) };
    let message = format!(
        "no table [principals.*] of {} matches this token (issuer {issuer}, subject {subject}, \
         groups {groups}): add the caller to a table, or ask the administrator of this server",
        config.own_file()
    );
    Problem::new(Source::Default, message)
}

fn shown(text: &str) -> String {
    neutral_line(cut(text, MAX_SHOWN))
}

/// Returns the operator's own paths, and the ceilings.
fn protected(operator: &Operator<'_>) -> Vec<OwnFolder> {
    let mut protected = operator.config.own_paths(operator.folders, &operator.directory);
    for path in operator.inputs.ceiling_files() {
        let path = operator.directory.join(path);
        if !protected.iter().any(|own| own.path == path) {
            protected.push(OwnFolder { path, secret: false });
        }
    }
    protected
}

/// Replaces the relative paths of granted directories. Adds the default directory if no value sets
/// the directories of the file tools.
fn make_absolute(leaves: &mut Vec<Leaf>, config: &Config, bases: Bases<'_>) {
    for leaf in leaves.iter_mut().filter(|leaf| is_directory_list(&leaf.path)) {
        for item in leaf.value.as_array_mut().into_iter().flatten() {
            let Ok(written) = AllowedPath::deserialize(item.clone()) else { continue };
            if let Some(absolute) = absolute(&written, bases) {
                *item = absolute;
            }
        }
    }
    let file = &config.values.tools.file;
    if file.allowed_paths.is_empty() || config.source(FILE_PATHS) == Source::Default {
        let path = FILE_PATHS.split('.').map(str::to_owned).collect();
        let grants = file.granted_paths();
        let items = grants.iter().filter_map(|written| absolute(written, bases)).collect();
        leaves.push(Leaf::new(path, toml::Value::Array(items), &Source::Default));
    }
}

fn absolute(written: &AllowedPath, bases: Bases<'_>) -> Option<toml::Value> {
    let path = expand(&written.path, bases.working_directory, bases.folders);
    let path = path.to_str()?.to_owned();
    toml::Value::try_from(AllowedPath { path, access: written.access }).ok()
}

/// A caller, its table, and the operator's configuration.
struct Caller<'a> {
    who: &'a Who,
    table: &'a Table,
    tables: &'a Tables,
    operator: &'a Config,
    bases: Bases<'a>,
}

impl Caller<'_> {
    /// Returns the limits of the table with the caller's own directories. Creates missing
    /// directories that are named after the caller.
    fn limits(&self) -> Result<Vec<Leaf>, Vec<Problem>> {
        let mut limits = Vec::new();
        let mut problems = Vec::new();
        for leaf in &self.table.limits {
            let mut leaf = leaf.clone();
            if is_directory_list(&leaf.path) {
                problems.extend(self.fill_directories(&mut leaf));
                // The empty list of a built-in tool would mean the working directory.
                let is_empty = leaf.value.as_array().is_some_and(Vec::is_empty);
                if is_empty && leaf.path[0] == "tools" {
                    continue;
                }
            }
            limits.push(leaf);
        }
        if problems.is_empty() { Ok(limits) } else { Err(problems) }
    }

    /// Replaces the elements of a list of directories. Returns the problems.
    fn fill_directories(&self, leaf: &mut Leaf) -> Vec<Problem> {
        let mut problems = Vec::new();
        let items = leaf.value.as_array_mut().into_iter().flatten().zip(&leaf.elements);
        for (item, source) in items {
            let Ok(written) = AllowedPath::deserialize(item.clone()) else { continue };
            match self.directory(&leaf.path, &written) {
                Ok(directory) => *item = directory,
                Err(message) => {
                    let message = format!("[{}] {message}", self.table.key());
                    problems.push(Problem::new(source.clone(), message));
                }
            }
        }
        problems
    }

    /// Returns an element of the list at `list` for this caller.
    fn directory(
        &self,
        list: &[String],
        written: &AllowedPath,
    ) -> Result<toml::Value, DirectoryError> {
        let filled =
            AllowedPath { path: template::fill(&written.path, self.who)?, access: written.access };
        let path = expand(&filled.path, self.bases.working_directory, self.bases.folders);
        if filled != *written {
            // `toolhold token new --for` takes a table of any issuer.
            if !self.table.principal.issuer.contains(&self.who.issuer) {
                let path = written.path.clone();
                return Err(DirectoryError::Issuer { path, issuer: shown(&self.who.issuer) });
            }
            self.check_name(&path)?;
        }
        check_granted(self.operator, list, &filled, written, self.bases)?;
        if template::ends_in_placeholder(&written.path) {
            create(&path)?;
        }
        check_directory(&path)?;
        absolute(&filled, self.bases).ok_or(DirectoryError::Missing(path))
    }

    /// Refuses a caller whose name is also the name of a directory that a table grants: the caller
    /// would get this directory.
    fn check_name(&self, own: &Path) -> Result<(), DirectoryError> {
        let own = real_or_given(own);
        for (_, directory, _) in self.tables.iter().flat_map(Table::directories) {
            let fixed = template::fixed_part(&directory.path);
            let other = expand(fixed, self.bases.working_directory, self.bases.folders);
            if real_or_given(&other).starts_with(&own) {
                return Err(DirectoryError::Taken { own, other });
            }
        }
        Ok(())
    }
}

/// The reason why a caller can't have a directory. The name of the table comes before the text.
#[derive(Debug, thiserror::Error)]
enum DirectoryError {
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error(
        "the caller's directory {} would contain {}, which a table of [principals] grants",
        .own.display(),
        .other.display()
    )]
    Taken { own: PathBuf, other: PathBuf },
    #[error(
        "grants {}, but `allowed_paths` doesn't ({place}): add {added:?} there",
        .path.display()
    )]
    Ungranted { path: PathBuf, place: String, added: String },
    #[error(
        "{path:?} is for callers of another issuer than {issuer}; use a table with this `issuer`"
    )]
    Issuer { path: String, issuer: String },
    #[error("grants {}, which isn't a directory; create the directory", .0.display())]
    Missing(PathBuf),
    #[error(
        "grants {}, which leads through the link {}; name the link's target",
        .path.display(),
        .link.display()
    )]
    Link { path: PathBuf, link: PathBuf },
    #[error("{} can't be created: {source}", .path.display())]
    Create { path: PathBuf, source: io::Error },
}

/// Checks that the operator's list at `list` grants `directory`. `written` is the entry of the
/// table.
fn check_granted(
    operator: &Config,
    list: &[String],
    directory: &AllowedPath,
    written: &AllowedPath,
    bases: Bases<'_>,
) -> Result<(), DirectoryError> {
    let current = serde_json::to_value(effective(operator)).unwrap_or_default();
    if grants(value_at(&current, list), directory, bases) {
        return Ok(());
    }
    let path = expand(&directory.path, bases.working_directory, bases.folders);
    let place = operator.place(&dotted(list));
    let added = template::fixed_part(&written.path).to_owned();
    Err(DirectoryError::Ungranted { path, place, added })
}

/// Creates a caller's own directory, unless it exists. The folder that contains it must exist.
fn create(path: &Path) -> Result<(), DirectoryError> {
    // Through a link of one caller, the directory would be made in that of another.
    path.parent().map_or(Ok(()), check_directory)?;
    match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(source) => Err(DirectoryError::Create { path: path.to_owned(), source }),
    }
}

/// Checks that a path leads to a directory, and through no link that a tool could change.
fn check_directory(path: &Path) -> Result<(), DirectoryError> {
    let path = path.to_owned();
    match resolve(&path) {
        Ok(Resolved { link: Some(link), .. }) => Err(DirectoryError::Link { path, link }),
        Ok(Resolved { real, link: None }) if real.is_dir() => Ok(()),
        Ok(_) | Err(_) => Err(DirectoryError::Missing(path)),
    }
}

/// Returns the first directory of the file tools.
fn first_directory(limits: &[Leaf]) -> Option<String> {
    let list = limits.iter().find(|leaf| dotted(&leaf.path) == FILE_PATHS)?;
    let first = list.value.as_array()?.first()?;
    Some(AllowedPath::deserialize(first.clone()).ok()?.path)
}

/// Returns an empty table for each plugin that the table names and the configuration doesn't. Such
/// plugins are in the plugin folder.
fn plugins_without_table(table: &Table, operator: &Config) -> Vec<Leaf> {
    let mut leaves: Vec<Leaf> = Vec::new();
    for limit in &table.limits {
        let [first, name, ..] = limit.path.as_slice() else { continue };
        let path = vec![first.clone(), name.clone()];
        let is_known = operator.values.plugins.contains_key(name)
            || leaves.iter().any(|leaf| leaf.path == path);
        if first == "plugins" && !is_known {
            leaves.push(Leaf::new(path, toml::Table::new().into(), &table.source));
        }
    }
    leaves
}

/// Removes the secrets and the models that the table doesn't list.
fn remove_unlisted(leaves: &mut Vec<Leaf>, table: &Table, operator: &Config) {
    leaves.retain(|leaf| match secret_name(&leaf.path) {
        Some(secret) => table.principal.secrets.iter().any(|listed| listed == secret),
        None => match leaf.path.as_slice() {
            [first, provider, ..] if first == "providers" => table.lists_model(provider),
            _ => true,
        },
    });

    let values = serde_json::to_value(&operator.values).unwrap_or_default();
    let mut keys: Vec<Vec<&str>> = PROVIDER_KEYS.iter().map(|key| key.to_vec()).collect();
    for name in operator.values.plugins.keys() {
        keys.push(vec!["plugins", name, "embeddings"]);
    }
    for key in keys {
        let provider = value_at(&values, &key).as_str().unwrap_or_default();
        if !provider.is_empty() && !table.lists_model(provider) {
            let path = key.iter().map(|part| (*part).to_owned()).collect();
            leaves.push(Leaf::new(path, String::new().into(), &table.source));
        }
    }
}

/// Returns the name of the secret to whose table the key belongs. The secrets of a provider belong
/// to its models. Toolhold uses the secrets of `[telemetry]` for itself.
fn secret_name(path: &[String]) -> Option<&str> {
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    match parts[..] {
        ["tools", "web" | "shell", "secrets", name, ..]
        | ["plugins", _, "secrets", name, ..]
        | ["mcp", "servers", _, "secrets", name, ..]
        | ["mcp", "servers", _, "oauth", "secrets", name, ..]
        | ["index", "qdrant", "secrets", name, ..] => Some(name),
        _ => None,
    }
}
