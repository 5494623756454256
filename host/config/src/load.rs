use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use berth_contract::HostError;
use berth_contract::text::neutral_line;
use berth_policy::rules::MAX_RULES;
use berth_policy::{Origin, OriginKind};
use berth_system::files::real_or_given;
use serde_json::Value;

use super::check::{Leaf, merge};
use super::keys::dotted;
use super::narrow::Bases;
use super::renamed::renamed;
use super::{
    AllowedPath, Ceiling, Config, Folders, PathAccess, Problem, Problems, Project, ProjectTrust, Renamed, Source, ceiling, file, project,
    variables,
};

/// What the operator says beside the user's file.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// A file to read instead of the user's own; it has to exist.
    pub file: Option<PathBuf>,
    /// The directory whose `berth.toml` may narrow what the user's says. None: no such file is read.
    pub working_directory: Option<PathBuf>,
    /// Environment variables; those that do not begin with `BERTH_` are passed over.
    pub variables: Vec<(OsString, OsString)>,
    /// `key=value` each, the key dotted and the value TOML or a bare text.
    pub settings: Vec<String>,
    /// Directories granted in addition, and how.
    pub allow: Vec<(PathBuf, PathAccess)>,
    /// The organisation's [`Ceiling`], where there is such a file: [`SYSTEM_CEILING`](super::SYSTEM_CEILING) for what runs in a user's name.
    /// `BERTH_CEILING` among the variables names another one beside it.
    pub ceiling: Option<PathBuf>,
}

impl Inputs {
    /// The variables and the working directory of this process, the organisation's ceiling, and nothing else.
    ///
    /// # Errors
    ///
    /// [`HostError`] where there is no working directory any more.
    pub fn from_environment() -> Result<Self, HostError> {
        let working_directory = working_directory()?;
        let ceiling = Some(PathBuf::from(super::SYSTEM_CEILING));
        Ok(Self { working_directory: Some(working_directory), variables: std::env::vars_os().collect(), ceiling, ..Self::default() })
    }
}

/// The directory that this process works in.
///
/// # Errors
///
/// [`HostError`] where it was deleted.
pub fn working_directory() -> Result<PathBuf, HostError> {
    std::env::current_dir().map_err(|error| match error.kind() {
        ErrorKind::NotFound => HostError::Config("the working directory was deleted or moved; go to one that is there".to_owned()),
        _ => HostError::io("finding the working directory")(error),
    })
}

/// A configuration, and where each of its values came from. The default is what holds with no source at all.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// What holds.
    pub config: Config,
    /// The user's file, if there was one.
    pub file: Option<PathBuf>,
    /// The working directory's file, if there was one, and what became of it.
    pub project: Option<Project>,
    /// What was written by a name that it no longer has.
    pub renamed: Vec<Renamed>,
    /// What bounds all of that, in the order in which it was applied.
    pub ceilings: Vec<Ceiling>,
    /// The lines at which the user's own file comes to tables of the second level, by their dotted keys.
    tables: BTreeMap<String, usize>,
    /// By dotted key; the elements of a list as `key.0`.
    sources: BTreeMap<String, Source>,
    /// What it was read from, where it was.
    pub(super) read_from: Option<(Folders, Inputs)>,
}

/// One value of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigEntry {
    /// Its dotted key.
    pub key: String,
    /// What holds.
    pub value: Value,
    /// Where it came from.
    pub source: Source,
    /// Where each element came from, if the value is a list.
    pub elements: Vec<Source>,
}

/// Reads the user's file, or the one that `inputs` names instead, lets the working directory's narrow it, puts `inputs` over it, and lets
/// the ceilings bound what that comes to.
///
/// # Errors
///
/// Everything that is wrong with any of them.
pub fn load(folders: &Folders, inputs: &Inputs) -> Result<Loaded, Problems> {
    let path = inputs.file.clone().unwrap_or_else(|| folders.config_file());
    let text = file::read(&path)?;
    load_with(folders, inputs, path, text)
}

/// The same with what stands in the user's file, or would.
pub(super) fn load_with(folders: &Folders, inputs: &Inputs, path: PathBuf, text: Option<file::Text>) -> Result<Loaded, Problems> {
    let (mut leaves, mut operator, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    if let (Some(missing), None) = (&inputs.file, &text) {
        return Err(Problem::new(Source::Path(missing.clone()), "there is no such file").into());
    }
    if let Some(text) = &text {
        let (found, wrong) = file::parse(&path, &text.text, file::MAX_VALUES);
        leaves.extend(found);
        problems.extend(wrong);
    }
    let tables = tables(&leaves);

    let mut proposal = None;
    if let Some(directory) = &inputs.working_directory {
        let missing = |error: std::io::Error| Problem::new(Source::Default, format!("{}: {error}", directory.display()));
        let directory = directory.canonicalize().map_err(missing)?;
        match project::read(&directory, text.as_ref().map(|text| text.identity)) {
            Ok(found) => proposal = found,
            Err(wrong) => problems.extend(wrong),
        }
    }

    let (found, wrong) = variables::from_environment(&inputs.variables);
    operator.extend(found);
    problems.extend(wrong);
    for setting in &inputs.settings {
        match variables::from_setting(setting) {
            Ok(leaf) => operator.push(leaf),
            Err(wrong) => problems.extend(wrong),
        }
    }
    let named = inputs.variables.iter().find(|(name, value)| name == ceiling::VARIABLE && !value.is_empty());
    let ceilings = ceiling::read(inputs.ceiling.as_deref(), named.map(|(_, path)| path.as_ref())).unwrap_or_else(|wrong| {
        problems.extend(wrong);
        Vec::new()
    });
    if !problems.is_empty() {
        return Err(Problems(problems));
    }

    let project = match proposal {
        None => None,
        Some(proposal) => {
            let base = Loaded::from_leaves(&[leaves.as_slice(), &operator].concat())?;
            let (project, narrower) = project::settle(proposal, &base, folders).map_err(Problems)?;
            leaves.extend(narrower);
            Some(project)
        }
    };
    leaves.extend(operator);
    for (path, access) in &inputs.allow {
        match allowed(&Loaded::from_leaves(&leaves)?, path, *access) {
            Ok(leaf) => leaves.push(leaf),
            Err(problem) => problems.push(problem),
        }
    }
    let all = Loaded::from_leaves(&leaves)?;
    problems.extend(all.problems());
    problems.extend(all.secret_problems());
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    let ceilings = match ceilings.is_empty() {
        true => Vec::new(),
        false => {
            let directory = inputs.working_directory.clone().map_or_else(working_directory, Ok);
            let directory = directory.map_err(|error| Problem::new(Source::Default, error.to_string()))?;
            let directory = real_or_given(&directory);
            ceiling::apply(&mut leaves, ceilings, Bases { folders, working_directory: &directory }).map_err(Problems)?
        }
    };
    let read_from = Some((folders.clone(), inputs.clone()));
    Ok(Loaded { file: text.map(|_| path), project, ceilings, read_from, tables, ..Loaded::from_leaves(&leaves)? })
}

/// One granted directory more than `loaded` has.
fn allowed(loaded: &Loaded, path: &Path, access: PathAccess) -> Result<Leaf, Problem> {
    let flag = if access == PathAccess::Read { "--allow-read" } else { "--allow" };
    let source = Source::Flag(format!("{flag} {}", path.display()));
    let text = path.to_str().filter(|text| !text.is_empty());
    let Some(text) = text else {
        return Err(Problem::new(source, "takes a path in UTF-8"));
    };
    // The shell has expanded a `~` already; one that is left is a name.
    let path = if text.starts_with('~') { format!("./{text}") } else { text.to_owned() };
    let key = ["tools", "file", "allowed_paths"].map(str::to_owned).to_vec();
    let list = dotted(&key);
    let mut grants = loaded.config.tools.file.allowed_paths.clone();
    if grants.is_empty() {
        grants.extend(super::FileTools::default().allowed_paths);
    }
    let mut elements: Vec<Source> = (0..grants.len()).map(|index| loaded.source(&format!("{list}.{index}"))).collect();
    elements.push(source.clone());
    grants.push(AllowedPath { path, access });
    let value = toml::Value::try_from(grants).map_err(|error| Problem::new(source, error.to_string()))?;
    // The list is still that of who said it; the flag's is one element.
    let sources = vec![loaded.source(&list); key.len()];
    Ok(Leaf { path: key, value, sources, elements, renamed: None })
}

impl Loaded {
    /// What `leaves` say, the later ones winning.
    pub(super) fn from_leaves(leaves: &[Leaf]) -> Result<Self, Problems> {
        let config = merge(leaves).map_err(|message| Problem::new(Source::Default, message))?;
        Ok(Self { config, sources: sources(leaves), renamed: renamed(leaves), ..Self::default() })
    }

    /// The same if nothing is wrong with it.
    pub(super) fn checked(self) -> Result<Self, Problems> {
        let problems = self.problems();
        if problems.is_empty() { Ok(self) } else { Err(Problems(problems)) }
    }

    /// Where the value of a dotted key came from; of an element of a list, `key.0`.
    pub fn source(&self, key: &str) -> Source {
        if let Some(source) = self.sources.get(key) {
            return source.clone();
        }
        let parent = key.rsplit_once('.').filter(|(_, last)| last.bytes().all(|byte| byte.is_ascii_digit()));
        parent.map_or(Source::Default, |(list, _)| self.source(list))
    }

    /// Where a table was written first, by its dotted key.
    pub fn source_below(&self, table: &str) -> Source {
        let below = |key: &str| key.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        self.sources.iter().find(|(key, _)| below(key)).map_or(Source::Default, |(_, source)| source.clone())
    }

    /// Where the rule stands that a dotted key makes, for denials.
    pub fn place(&self, key: &str) -> String {
        self.source(key).place(key.trim_end_matches(|c: char| c == '.' || c.is_ascii_digit()))
    }

    /// The same for the gates, which say by its kind what undoes it.
    pub fn origin(&self, key: &str) -> Origin {
        self.origin_of(&self.source(key), key.trim_end_matches(|c: char| c == '.' || c.is_ascii_digit()))
    }

    /// The place of a value that comes from `source`.
    pub(super) fn origin_of(&self, source: &Source, key: &str) -> Origin {
        let kind = match source {
            Source::Default => OriginKind::Default(key.rsplit_once('.').and_then(|(table, _)| self.beside(table))),
            Source::File { path, .. } if self.ceilings.iter().any(|ceiling| ceiling.path == *path) => {
                OriginKind::Ceiling(path.display().to_string())
            }
            Source::File { path, .. } if self.project.as_ref().is_some_and(|project| project.path == *path) => {
                let path = path.display().to_string();
                let is_trusted = self.project.as_ref().is_some_and(|project| project.standing == ProjectTrust::Trusted);
                if is_trusted { OriginKind::Trusted(path) } else { OriginKind::Project(path) }
            }
            Source::File { .. } | Source::Path(_) => OriginKind::Own,
            Source::Variable(name) => OriginKind::Variable(name.clone()),
            Source::Flag(text) => OriginKind::Flag(text.clone()),
        };
        Origin { text: source.place(key).into(), kind }
    }

    /// Where the user's own file has a table: a line more of it has to stand there.
    pub(super) fn beside(&self, table: &str) -> Option<String> {
        let (file, line) = (self.file.as_ref()?, self.tables.get(table)?);
        Some(format!("{}, line {line}", file.display()))
    }

    /// Every value that holds, in the order of the keys' definition.
    pub fn entries(&self) -> Vec<ConfigEntry> {
        let mut entries = Vec::new();
        // The configuration came from text or from code of ours, so it always has a JSON form.
        let value = serde_json::to_value(&self.config).unwrap_or_default();
        self.collect(&value, &mut Vec::new(), &mut entries);
        entries
    }

    fn collect(&self, value: &Value, path: &mut Vec<String>, entries: &mut Vec<ConfigEntry>) {
        if let Value::Object(table) = value {
            for (name, value) in table {
                path.push(name.clone());
                self.collect(value, path, entries);
                path.pop();
            }
            return;
        }
        let key = dotted(path);
        let count = value.as_array().map_or(0, Vec::len);
        let elements = (0..count).map(|index| self.source(&format!("{key}.{index}"))).collect();
        entries.push(ConfigEntry { source: self.source(&key), key, value: value.clone(), elements });
    }

    /// What no single value shows.
    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for name in self.config.plugins.keys() {
            let source = self.source_below(&format!("plugins.{}", dotted(std::slice::from_ref(name))));
            let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if name.len() > 24 || !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(allowed) {
                let message = format!("`{}` is no name for a plugin: at most 24 of a-z, 0-9 and `-`, a letter first", neutral_line(name));
                problems.push(Problem::new(source, message));
            }
        }
        let tools = &self.config.tools;
        let lists = tools.permissions.iter().map(|(tool, rules)| (format!("tools.permissions.{}", super::dotted_name(tool)), rules.len()));
        let policies = [("tools.policy.rules", &tools.policy.rules), ("tools.authorization.rules", &tools.authorization.rules)];
        for (key, count) in lists.chain(policies.map(|(key, rules)| (key.to_owned(), rules.len()))) {
            if count > MAX_RULES {
                problems.push(Problem::new(self.source(&key), format!("`{key}` has {count} rules; at most {MAX_RULES} are taken")));
            }
        }
        problems
    }
}

fn tables(leaves: &[Leaf]) -> BTreeMap<String, usize> {
    let mut tables = BTreeMap::new();
    for leaf in leaves {
        if let ([first, second, ..], [_, Source::File { line, .. }, ..]) = (leaf.path.as_slice(), leaf.sources.as_slice()) {
            tables.entry(format!("{first}.{second}")).and_modify(|known: &mut usize| *known = (*known).min(*line)).or_insert(*line);
        }
    }
    tables
}

fn sources(leaves: &[Leaf]) -> BTreeMap<String, Source> {
    let mut sources = BTreeMap::new();
    for leaf in leaves {
        let key = dotted(&leaf.path);
        // A list that replaces a longer one must not leave the places of its last elements behind.
        sources.retain(|known: &String, _| !known.strip_prefix(&key).is_some_and(|rest| rest.starts_with('.')) || leaf.value.is_table());
        for (index, source) in leaf.elements.iter().enumerate() {
            sources.insert(format!("{key}.{index}"), source.clone());
        }
        sources.insert(key, leaf.source());
    }
    sources
}
