//! The loaded configuration: the current values, the source of each value, and the ignored values.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toolhold_contract::text::neutral_line;
use toolhold_policy::rules::MAX_RULES;
use toolhold_policy::{ConfigFile, Origin, OriginKind, OwnTable, TablePlace};

use super::keys::{dotted, dotted_name};
use super::leaf::{Leaf, merge};
use super::renamed::renamed;
use super::{ConfigValues, Folders, Inputs, Problem, Problems, Renamed, Source};

/// A configuration with the source of each value. The default is a configuration without sources.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The current values.
    pub values: ConfigValues,
    /// The user's file, if it exists.
    pub file: Option<PathBuf>,
    /// The organisation's file, if it exists. The user's file has precedence over it.
    pub defaults: Option<PathBuf>,
    /// The working directory's file, if it exists, and the user's trust in it.
    pub project: Option<Project>,
    /// The keys that were written by an old name.
    pub renamed: Vec<Renamed>,
    /// The ceilings, in the order in which they were applied.
    pub ceilings: Vec<Ceiling>,
    /// The lines of the user's file where second-level tables begin, by their dotted keys.
    pub(super) tables: BTreeMap<String, usize>,
    /// The sources by dotted key. Elements of lists are `key.0`, `key.1` and so on.
    sources: BTreeMap<String, Source>,
    /// The folders and inputs from which the configuration was loaded. `None`: a program made the
    /// configuration.
    pub(super) read_from: Option<(Folders, Inputs)>,
}

/// One value of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigEntry {
    /// The value's dotted key.
    pub key: String,
    /// The current value.
    pub value: Value,
    /// The value's source.
    pub source: Source,
    /// The source of each element, if the value is a list.
    pub elements: Vec<Source>,
}

/// The `toolhold.toml` of the working directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Project {
    /// The real path of the file.
    pub path: PathBuf,
    /// The SHA-256 of the file's content and of the real paths of its directories, in hexadecimal.
    /// The user trusts this digest. The real paths are included because links may change.
    pub digest: String,
    /// The user's trust in the file.
    pub standing: ProjectTrust,
    /// The values in the file that would widen the operator's own configuration.
    pub widening: Vec<Ignored>,
}

/// The user's trust in the working directory's `toolhold.toml`. The trust decides which values of
/// the file apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectTrust {
    /// Only narrowing values apply, because the user hasn't trusted the file.
    Narrows,
    /// Only narrowing values apply, because the file has changed since the user trusted it.
    Changed,
    /// All values apply, as in the user's own file. However, the file can't remove a denial.
    Trusted,
}

impl Project {
    /// Returns the values in the file that don't apply.
    pub fn ignored(&self) -> &[Ignored] {
        if self.standing == ProjectTrust::Trusted { &[] } else { &self.widening }
    }
}

/// A key of the working directory's `toolhold.toml` that is ignored completely or in part, because
/// it would widen the grants.
#[derive(Clone, Debug, PartialEq)]
pub struct Ignored {
    /// The dotted key.
    pub key: String,
    /// Whether only some rules of a list are ignored. Then `source` is the source of the first
    /// ignored rule, `proposed` has only the ignored rules, and the other rules apply.
    pub rules: bool,
    /// The source of the value.
    pub source: Source,
    /// The value without this file, or null if there is no value.
    pub current: Value,
    /// The value in the file.
    pub proposed: Value,
    /// The reasons: at least one, and one for each ignored part.
    pub reasons: Vec<String>,
}

/// Formats one line with the first reason, without terminal control characters.
impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.reasons.first().map_or("", String::as_str);
        let what = if self.rules { "a rule of " } else { "" };
        write!(
            f,
            "{}: {what}`{}` is ignored: {}",
            neutral_line(&self.source.to_string()),
            neutral_line(&self.key),
            neutral_line(first)
        )?;
        match self.reasons.len() {
            0 | 1 => Ok(()),
            count => write!(f, ", and {} more", count - 1),
        }
    }
}

/// A ceiling that was applied.
#[derive(Clone, Debug)]
pub struct Ceiling {
    /// The file.
    pub path: PathBuf,
    /// The name of the key that signed the ceiling. `None`: the organisation doesn't sign it.
    pub signed_by: Option<String>,
    /// The values that the ceiling removed.
    pub taken: Vec<Taken>,
    /// The ceiling's own contents. Its rules are evaluated separately from the operator's rules.
    pub contents: Config,
}

impl Ceiling {
    /// Checks whether the ceiling leaves no directory that is granted to the built-in plugin of
    /// this name.
    pub(super) fn leaves_no_directory(&self, builtin: &str) -> bool {
        let key = format!("tools.{builtin}.allowed_paths");
        let mut directories = self.taken.iter().filter(|taken| taken.key == key);
        directories.any(|taken| taken.held.as_array().is_some_and(Vec::is_empty))
    }
}

/// A key that a ceiling bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// The dotted key.
    pub key: String,
    /// The value without the ceiling, or null if there is no value.
    pub wanted: Value,
    /// The source of that value.
    pub wanted_by: Source,
    /// The value that applies instead.
    pub held: Value,
    /// The ceiling's line.
    pub source: Source,
}

impl Config {
    /// Makes the configuration with the values of `leaves`. Later leaves win.
    pub(super) fn from_leaves(leaves: &[Leaf]) -> Result<Self, Problems> {
        let values =
            merge(leaves).map_err(|error| Problem::new(Source::Default, error.to_string()))?;
        let sources = collect_sources(leaves);
        Ok(Self { values, sources, renamed: renamed(leaves), ..Self::default() })
    }

    /// Appends the rules of `[tools.authorization]` to the rules of `[tools.policy]` if they are
    /// enabled. Each rule keeps its source.
    pub(super) fn with_authorization(mut self) -> Self {
        let tools = &mut self.values.tools;
        let authorization = std::mem::take(&mut tools.authorization);
        if !authorization.enabled || authorization.rules.is_empty() {
            return self;
        }
        let first = tools.policy.rules.len();
        let added = authorization.rules.len();
        tools.policy.rules.extend(authorization.rules);
        let list = self.source("tools.authorization.rules");
        self.sources.entry("tools.policy.rules".to_owned()).or_insert(list);
        for index in 0..added {
            let source = self.source(&format!("tools.authorization.rules.{index}"));
            self.sources.insert(format!("tools.policy.rules.{}", first + index), source);
        }
        self
    }

    /// Returns the same configuration if it has no problems.
    pub(super) fn checked(self) -> Result<Self, Problems> {
        let problems = self.problems();
        if problems.is_empty() { Ok(self) } else { Err(Problems(problems)) }
    }

    /// Returns the source of a dotted key. `key.0` is the first element of a list.
    pub fn source(&self, key: &str) -> Source {
        if let Some(source) = self.sources.get(key) {
            return source.clone();
        }
        // An element without its own source has the source of its list.
        match key.rsplit_once('.') {
            Some((list, index)) if index.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.source(list)
            }
            _ => Source::Default,
        }
    }

    /// Returns the first source of a table. `table`: its dotted key.
    pub fn source_below(&self, table: &str) -> Source {
        if let Some(source) = self.sources.get(table) {
            return source.clone();
        }
        match sources_below(&self.sources, table).next() {
            Some((_, source)) => source.clone(),
            None => Source::default(),
        }
    }

    /// Describes the place of a dotted key for denials.
    pub fn place(&self, key: &str) -> String {
        self.source(key).place(without_index(key))
    }

    /// Returns the place of a dotted key for the gates. Its kind decides which remedy a denial
    /// proposes.
    pub fn origin(&self, key: &str) -> Origin {
        self.origin_of(&self.source(key), without_index(key))
    }

    /// Returns the place of a value that comes from `source`.
    pub(super) fn origin_of(&self, source: &Source, key: &str) -> Origin {
        let kind = match source {
            Source::Default => {
                let table = key.rsplit_once('.').map_or(key, |(table, _)| table);
                OriginKind::Default(self.table_place(table))
            }
            Source::File { path, .. } => self.origin_of_file(path),
            Source::Path(_) => OriginKind::Own,
            Source::Variable(name) => OriginKind::Variable(name.clone()),
            Source::Flag(text) => OriginKind::Flag(text.clone()),
            Source::TaskBounds => OriginKind::TaskBounds,
        };
        Origin { text: source.place(key).into(), kind }
    }

    fn origin_of_file(&self, path: &Path) -> OriginKind {
        let text = path.display().to_string();
        if self.ceilings.iter().any(|ceiling| ceiling.path == path) {
            return OriginKind::Ceiling(text);
        }
        match &self.project {
            Some(project) if project.path == path => {
                if project.standing == ProjectTrust::Trusted {
                    OriginKind::Trusted(text, self.own_file())
                } else {
                    OriginKind::Project(text)
                }
            }
            _ => OriginKind::Own,
        }
    }

    /// Returns the place of a table in the user's own file, where another key of the table must be
    /// written.
    pub(super) fn table_place(&self, table: &str) -> TablePlace {
        TablePlace { file: self.own_file(), line: self.tables.get(table).copied() }
    }

    /// Returns a table of the user's own file for remedies. `name`: its dotted name.
    pub fn own_table(&self, name: &str) -> OwnTable {
        OwnTable { name: name.to_owned(), place: self.table_place(name) }
    }

    /// Returns the user's own file. The file may not exist.
    pub fn own_file(&self) -> ConfigFile {
        let Some((folders, inputs)) = &self.read_from else { return ConfigFile::default() };
        let path = inputs.file.clone().unwrap_or_else(|| folders.config_file());
        std::path::absolute(&path).as_deref().unwrap_or(&path).into()
    }

    /// Returns every current value, in the order in which the keys are defined.
    pub fn entries(&self) -> Vec<ConfigEntry> {
        let mut entries = Vec::new();
        // The configuration always has a JSON form, because it came from a text or from Toolhold's
        // code.
        let value = serde_json::to_value(&self.values).unwrap_or_default();
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
        entries.push(ConfigEntry {
            source: self.source(&key),
            key,
            value: value.clone(),
            elements,
        });
    }

    /// Finds problems that can't be found in a single value.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for name in self.values.plugins.keys().filter(|name| !is_provider_name(name)) {
            let message = format!(
                "`{}` isn't a valid plugin name: 1 to 24 of a-z, 0-9 and `-`, starting with a letter",
                neutral_line(name)
            );
            let source = self.source_below(&format!("plugins.{}", dotted_name(name)));
            problems.push(Problem::new(source, message));
        }
        let tools = &self.values.tools;
        let lists = tools
            .permissions
            .iter()
            .map(|(tool, rules)| (format!("tools.permissions.{}", dotted_name(tool)), rules.len()));
        let policy = ("tools.policy.rules".to_owned(), tools.policy.rules.len());
        for (key, count) in lists.chain([policy]) {
            if count > MAX_RULES {
                let message = format!("`{key}` has {count} rules; the limit is {MAX_RULES}");
                problems.push(Problem::new(self.source(&key), message));
            }
        }
        problems
    }
}

/// Returns a dotted key without the index of an element at its end.
fn without_index(key: &str) -> &str {
    key.trim_end_matches(|c: char| c == '.' || c.is_ascii_digit())
}

/// Checks whether a plugin or a server can have this name.
pub(super) fn is_provider_name(name: &str) -> bool {
    name.len() <= 24
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

fn collect_sources(leaves: &[Leaf]) -> BTreeMap<String, Source> {
    let mut sources = BTreeMap::new();
    for leaf in leaves {
        let key = dotted(&leaf.path);
        // A list may replace a longer one, so the sources of the old elements are removed.
        if !leaf.value.is_table() {
            let old: Vec<String> =
                sources_below(&sources, &key).map(|(key, _)| key.clone()).collect();
            for element in old {
                sources.remove(&element);
            }
        }
        for (index, source) in leaf.elements.iter().enumerate() {
            sources.insert(format!("{key}.{index}"), source.clone());
        }
        sources.insert(key, leaf.source());
    }
    sources
}

/// Returns the sources of the keys below `table`, in order.
fn sources_below<'s>(
    sources: &'s BTreeMap<String, Source>,
    table: &str,
) -> impl Iterator<Item = (&'s String, &'s Source)> {
    let prefix = format!("{table}.");
    let from = (Bound::Included(prefix.clone()), Bound::Unbounded);
    sources.range(from).take_while(move |(key, _)| key.starts_with(&prefix))
}
