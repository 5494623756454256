//! The loaded configuration: the values, their sources, and the ignored values.

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
use super::principal_tables::{AppliedPrincipal, Tables};
use super::renamed::renamed;
use super::{ConfigValues, Folders, Inputs, Problem, Problems, ProviderSettings, Renamed, Source};

/// A configuration with the source of each value. The default has no sources.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The current values.
    pub values: ConfigValues,
    /// The user's file, if it exists.
    pub file: Option<PathBuf>,
    /// The organisation's file, if it exists. The user's file has precedence over it.
    pub defaults: Option<PathBuf>,
    /// The working directory's file, if it exists, with the user's trust in it.
    pub project: Option<Project>,
    /// The keys that were written by an old name.
    pub renamed: Vec<Renamed>,
    /// The ceilings, in the order in which they were applied.
    pub ceilings: Vec<Ceiling>,
    /// The caller whose rights this configuration has. `None` for the operator.
    pub principal: Option<AppliedPrincipal>,
    /// The tables of `[principals]`.
    pub(super) principal_tables: Tables,
    /// The first lines of second-level tables in the user's file, by their dotted keys.
    pub(super) tables: BTreeMap<String, usize>,
    /// The sources by dotted key. Elements of lists have the keys `key.0`, `key.1` and so on.
    sources: BTreeMap<String, Source>,
    /// The folders and inputs from which the configuration was loaded. `None` if a program made the
    /// configuration.
    pub(super) read_from: Option<(Folders, Inputs)>,
    /// The providers of models that were found on this machine. No file names them.
    found_providers: BTreeMap<String, ProviderSettings>,
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
    /// The source of each element of a list.
    pub elements: Vec<Source>,
}

/// The `toolhold.toml` of the working directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Project {
    /// The real path of the file.
    pub path: PathBuf,
    /// The SHA-256 of the file's content and of the real paths of its directories, in hexadecimal.
    /// The user trusts this digest. The real paths are part of it, because a changed link would
    /// grant another directory.
    pub digest: String,
    /// The user's trust in the file.
    pub standing: ProjectTrust,
    /// The values in the file that would widen the operator's configuration.
    pub widening: Vec<Ignored>,
}

/// The user's trust in the working directory's `toolhold.toml`. It decides which values of the file
/// apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectTrust {
    /// Only narrowing values apply. The user hasn't trusted the file.
    Narrows,
    /// Only narrowing values apply. The file has changed since the user trusted it.
    Changed,
    /// All values apply, as in the user's own file. The file still can't remove a denial.
    Trusted,
}

impl Project {
    /// Returns the values of the file that don't apply.
    pub fn ignored(&self) -> &[Ignored] {
        if self.standing == ProjectTrust::Trusted { &[] } else { &self.widening }
    }
}

/// A key of the working directory's `toolhold.toml` that is ignored, completely or in part, because
/// it would widen the grants.
#[derive(Clone, Debug, PartialEq)]
pub struct Ignored {
    /// The dotted key.
    pub key: String,
    /// Whether only some rules of a list are ignored. In this case, `source` is the source of the
    /// first ignored rule, and `proposed` has only the ignored rules. The other rules apply.
    pub rules: bool,
    /// The source of the value.
    pub source: Source,
    /// The value without the file, or null if there is no value.
    pub current: Value,
    /// The value in the file.
    pub proposed: Value,
    /// The reason for each ignored part. There is at least one reason.
    pub reasons: Vec<String>,
}

/// Writes one line with the first reason, without terminal control characters.
impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.reasons.first().map_or("", String::as_str);
        let prefix = if self.rules { "a rule of " } else { "" };
        write!(
            f,
            "{}: {prefix}`{}` is ignored: {}",
            neutral_line(&self.source.to_string()),
            neutral_line(&self.key),
            neutral_line(first)
        )?;
        let further = self.reasons.len().saturating_sub(1);
        if further > 0 { write!(f, ", and {further} more") } else { Ok(()) }
    }
}

/// A ceiling that was applied.
#[derive(Clone, Debug)]
pub struct Ceiling {
    /// The path of the ceiling.
    pub path: PathBuf,
    /// The name of the key that signed the ceiling. `None` if the organisation has no signing keys.
    pub signed_by: Option<String>,
    /// The values that the ceiling replaced.
    pub taken: Vec<Taken>,
    /// The ceiling's own contents. The rules of a ceiling are checked separately from the
    /// operator's rules.
    pub contents: Config,
}

impl Ceiling {
    /// Checks whether the ceiling removed all directories of the built-in plugin `builtin`.
    pub(super) fn leaves_no_directory(&self, builtin: &str) -> bool {
        let key = format!("tools.{builtin}.allowed_paths");
        let mut directories = self.taken.iter().filter(|taken| taken.key == key);
        directories.any(|taken| taken.held.as_array().is_some_and(Vec::is_empty))
    }
}

/// A value that the ceiling has replaced.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// The dotted key.
    pub key: String,
    /// The value without the ceiling, or null if there is no value.
    pub wanted: Value,
    /// The source of `wanted`.
    pub wanted_by: Source,
    /// The value that applies.
    pub held: Value,
    /// The line of the ceiling.
    pub source: Source,
}

impl Config {
    /// Sets the providers of models, which no file names. The agent asks the provider `first`.
    pub fn add_found_providers(
        &mut self,
        first: &str,
        providers: BTreeMap<String, ProviderSettings>,
    ) {
        // A principal uses only models that its table lists.
        if self.is_of_principal() {
            return;
        }
        first.clone_into(&mut self.values.agent.provider);
        self.values.providers.clone_from(&providers);
        self.found_providers = providers;
    }

    /// Checks whether the provider was found on this machine. No file names such a provider.
    pub fn has_found_provider(&self, name: &str) -> bool {
        self.found_providers.contains_key(name)
    }

    /// Adds the found providers of `earlier`, unless a file names a provider now.
    pub(super) fn with_found_providers_of(mut self, earlier: &Self) -> Self {
        if self.values.providers.is_empty() && !earlier.found_providers.is_empty() {
            let first = &earlier.values.agent.provider;
            self.add_found_providers(first, earlier.found_providers.clone());
        }
        self
    }

    /// Later leaves have precedence.
    pub(super) fn from_leaves(leaves: &[Leaf]) -> Result<Self, Problems> {
        let values =
            merge(leaves).map_err(|error| Problem::new(Source::Default, error.to_string()))?;
        let sources = collect_sources(leaves);
        Ok(Self { values, sources, renamed: renamed(leaves), ..Self::default() })
    }

    /// If `[tools.authorization]` is enabled, appends its rules to the rules of `[tools.policy]`.
    /// The rules keep their sources.
    pub(super) fn with_authorization(mut self) -> Self {
        let tools = &mut self.values.tools;
        let authorization = std::mem::take(&mut tools.authorization);
        if !authorization.enabled || authorization.rules.is_empty() {
            return self;
        }
        let first_added = tools.policy.rules.len();
        let added_count = authorization.rules.len();
        tools.policy.rules.extend(authorization.rules);
        let list_source = self.source("tools.authorization.rules");
        self.sources.entry("tools.policy.rules".to_owned()).or_insert(list_source);
        for index in 0..added_count {
            let source = self.source(&format!("tools.authorization.rules.{index}"));
            self.sources.insert(format!("tools.policy.rules.{}", first_added + index), source);
        }
        self
    }

    /// Returns the configuration, or the problems that [`problems`](Self::problems) finds.
    pub(super) fn checked(self) -> Result<Self, Problems> {
        let problems = self.problems();
        if problems.is_empty() { Ok(self) } else { Err(Problems(problems)) }
    }

    /// Returns the source of a dotted key. `key.0` is the first element of a list.
    pub fn source(&self, key: &str) -> Source {
        if let Some(source) = self.sources.get(key) {
            return source.clone();
        }
        // An element without a source has the source of its list.
        match key.rsplit_once('.') {
            Some((list, index)) if index.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.source(list)
            }
            _ => Source::Default,
        }
    }

    /// Returns the source of a table, or else of the first key in it. `table` is a dotted key.
    pub fn source_below(&self, table: &str) -> Source {
        if let Some(source) = self.sources.get(table) {
            return source.clone();
        }
        match sources_below(&self.sources, table).next() {
            Some((_, source)) => source.clone(),
            None => Source::default(),
        }
    }

    /// Describes where a dotted key is set, for denials.
    pub fn place(&self, key: &str) -> String {
        self.source(key).place(without_index(key))
    }

    /// Returns where a dotted key is set, for decisions on calls. The kind of the origin determines
    /// the remedy in a denial.
    pub fn origin(&self, key: &str) -> Origin {
        self.origin_of(&self.source(key), without_index(key))
    }

    /// Returns the place that sets `key`. The value of `key` comes from `source`.
    pub(super) fn origin_of(&self, source: &Source, key: &str) -> Origin {
        let kind = match source {
            Source::Default => {
                let table = match key.rsplit_once('.') {
                    Some((table, _)) => table,
                    None => key,
                };
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

    /// Returns the place of a table in the user's own file, where a person would add a key.
    pub(super) fn table_place(&self, table: &str) -> TablePlace {
        TablePlace { file: self.own_file(), line: self.tables.get(table).copied() }
    }

    /// Returns the table with the dotted name `name` of the user's own file, for remedies.
    pub fn own_table(&self, name: &str) -> OwnTable {
        OwnTable { name: name.to_owned(), place: self.table_place(name) }
    }

    /// Returns the user's own file, which may not exist.
    pub fn own_file(&self) -> ConfigFile {
        let Some((folders, inputs)) = &self.read_from else { return ConfigFile::default() };
        let path = inputs.file.clone().unwrap_or_else(|| folders.config_file());
        std::path::absolute(&path).as_deref().unwrap_or(&path).into()
    }

    /// Returns every value in the order of the keys' definition.
    pub fn entries(&self) -> Vec<ConfigEntry> {
        let mut entries = Vec::new();
        // Each configuration has a JSON form, because all of its values come from TOML or from
        // defaults.
        let value = serde_json::to_value(&self.values).unwrap_or_default();
        self.collect(&value, &mut Vec::new(), &mut entries);
        entries
    }

    /// Adds the values below `path` to `entries`.
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

    /// Finds invalid plugin names and lists with too many rules.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let mut problems = self.plugin_name_problems();
        problems.extend(self.rule_count_problems());
        problems
    }

    fn plugin_name_problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for name in self.values.plugins.keys().filter(|name| !is_provider_name(name)) {
            let mut message = format!(
                "`{}` isn't a valid plugin name: use 1 to 24 of a-z, 0-9 and `-`, the first a \
                 letter",
                neutral_line(name)
            );
            if name == "*" {
                message += "; only a ceiling can have [plugins.\"*\"], and `TOOLHOLD_CEILING=FILE \
                            toolhold config ceiling show` checks a ceiling";
            }
            let source = self.source_below(&format!("plugins.{}", dotted_name(name)));
            problems.push(Problem::new(source, message));
        }
        problems
    }

    fn rule_count_problems(&self) -> Vec<Problem> {
        let tools = &self.values.tools;
        let mut rule_counts = Vec::new();
        for (tool, rules) in &tools.permissions {
            rule_counts.push((format!("tools.permissions.{}", dotted_name(tool)), rules.len()));
        }
        rule_counts.push(("tools.policy.rules".to_owned(), tools.policy.rules.len()));
        let mut problems = Vec::new();
        for (key, count) in rule_counts {
            if count > MAX_RULES {
                let message = format!("`{key}` has {count} rules; the limit is {MAX_RULES}");
                problems.push(Problem::new(self.source(&key), message));
            }
        }
        problems
    }
}

fn without_index(key: &str) -> &str {
    key.trim_end_matches(|c: char| c == '.' || c.is_ascii_digit())
}

pub(super) fn is_provider_name(name: &str) -> bool {
    name.len() <= 24
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// Returns the source of each key and of each list element. Later leaves have precedence.
fn collect_sources(leaves: &[Leaf]) -> BTreeMap<String, Source> {
    let mut sources = BTreeMap::new();
    for leaf in leaves {
        let key = dotted(&leaf.path);
        // A list may replace a longer list, so the sources of the old elements are removed.
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

/// Returns the sources of all keys in a table.
fn sources_below<'s>(
    sources: &'s BTreeMap<String, Source>,
    table: &str,
) -> impl Iterator<Item = (&'s String, &'s Source)> {
    let prefix = format!("{table}.");
    // The keys are sorted, so the keys with this prefix are next to each other.
    let from = (Bound::Included(prefix.clone()), Bound::Unbounded);
    sources.range(from).take_while(move |(key, _)| key.starts_with(&prefix))
}
