//! A configuration that was read: what holds, where each value came from, and what didn't count.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use berth_contract::text::neutral_line;
use berth_policy::rules::MAX_RULES;
use berth_policy::{Origin, OriginKind};
use serde_json::Value;

use super::keys::{dotted, dotted_name};
use super::leaf::{Leaf, merge};
use super::renamed::renamed;
use super::{Config, Folders, Inputs, Problem, Problems, Renamed, Source};

/// A configuration, and where each of its values came from. The default is what holds with no
/// source at all.
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
    /// The lines at which the user's own file comes to tables of the second level, by their dotted
    /// keys.
    pub(super) tables: BTreeMap<String, usize>,
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

/// The `berth.toml` of the working directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Project {
    /// Its real path.
    pub path: PathBuf,
    /// The SHA-256 of its bytes and of where the directories lead that it names, in hexadecimal
    /// digits: what the user trusts. A link may be changed by whoever brought the file.
    pub digest: String,
    /// How much of it counts.
    pub standing: ProjectTrust,
    /// What in it would widen what the operator's own configuration grants.
    pub widening: Vec<Ignored>,
}

/// How much of the working directory's `berth.toml` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectTrust {
    /// What narrows. Nobody said more.
    Narrows,
    /// What narrows: it was trusted, and has changed since.
    Changed,
    /// All of it, as in a file of the user's own, except that it can't take a denial away.
    Trusted,
}

impl Project {
    /// What doesn't count of it.
    pub fn ignored(&self) -> &[Ignored] {
        if self.standing == ProjectTrust::Trusted { &[] } else { &self.widening }
    }
}

/// A key of the working directory's `berth.toml` that would widen what is granted, and so is not
/// followed, or only in part.
#[derive(Clone, Debug, PartialEq)]
pub struct Ignored {
    /// The dotted key.
    pub key: String,
    /// Whether it is about single rules of a list: `source` is that of the first of them,
    /// `proposed` holds them alone, and the others count.
    pub rules: bool,
    /// Where it stands.
    pub source: Source,
    /// What holds without that file; null where nothing is said.
    pub current: Value,
    /// What the file asks for.
    pub proposed: Value,
    /// Why it is ignored: a reason for each part of it that is, at least one.
    pub reasons: Vec<String>,
}

/// One line with the first reason, without anything that could steer a terminal.
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

/// A ceiling that holds.
#[derive(Clone, Debug)]
pub struct Ceiling {
    /// The file.
    pub path: PathBuf,
    /// What it took away of what would hold without it.
    pub taken: Vec<Taken>,
    /// What it says itself: its rules are decided on apart from the operator's.
    pub says: Loaded,
}

impl Ceiling {
    /// Whether it left no directory of those that were granted to the built-in plugin of this name.
    pub(super) fn leaves_no_directory(&self, builtin: &str) -> bool {
        let key = format!("tools.{builtin}.allowed_paths");
        self.taken
            .iter()
            .any(|taken| taken.key == key && taken.held.as_array().is_some_and(Vec::is_empty))
    }
}

/// A key that a ceiling bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// The dotted key.
    pub key: String,
    /// What would hold without the ceiling; null where nobody said anything.
    pub wanted: Value,
    /// Who said that.
    pub wanted_by: Source,
    /// What holds instead.
    pub held: Value,
    /// The ceiling's line.
    pub source: Source,
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
        let parent =
            key.rsplit_once('.').filter(|(_, last)| last.bytes().all(|byte| byte.is_ascii_digit()));
        parent.map_or(Source::Default, |(list, _)| self.source(list))
    }

    /// Where a table was written first, by its dotted key.
    pub fn source_below(&self, table: &str) -> Source {
        let below = |key: &str| {
            key.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.sources
            .iter()
            .find(|(key, _)| below(key))
            .map_or(Source::Default, |(_, source)| source.clone())
    }

    /// Where the rule stands that a dotted key makes, for denials.
    pub fn place(&self, key: &str) -> String {
        self.source(key).place(key.trim_end_matches(|c: char| c == '.' || c.is_ascii_digit()))
    }

    /// The same for the gates, which say by its kind what undoes it.
    pub fn origin(&self, key: &str) -> Origin {
        self.origin_of(
            &self.source(key),
            key.trim_end_matches(|c: char| c == '.' || c.is_ascii_digit()),
        )
    }

    /// The place of a value that comes from `source`.
    pub(super) fn origin_of(&self, source: &Source, key: &str) -> Origin {
        let kind = match source {
            Source::Default => {
                OriginKind::Default(key.rsplit_once('.').and_then(|(table, _)| self.beside(table)))
            }
            Source::File { path, .. }
                if self.ceilings.iter().any(|ceiling| ceiling.path == *path) =>
            {
                OriginKind::Ceiling(path.display().to_string())
            }
            Source::File { path, .. }
                if self.project.as_ref().is_some_and(|project| project.path == *path) =>
            {
                let path = path.display().to_string();
                let is_trusted = self
                    .project
                    .as_ref()
                    .is_some_and(|project| project.standing == ProjectTrust::Trusted);
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
        entries.push(ConfigEntry {
            source: self.source(&key),
            key,
            value: value.clone(),
            elements,
        });
    }

    /// What no single value shows.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for name in self.config.plugins.keys() {
            let source =
                self.source_below(&format!("plugins.{}", dotted(std::slice::from_ref(name))));
            let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if name.len() > 24
                || !name.starts_with(|c: char| c.is_ascii_lowercase())
                || !name.chars().all(allowed)
            {
                let message = format!(
                    "`{}` isn't a valid plugin name: 1 to 24 of a-z, 0-9 and `-`, starting with a letter",
                    neutral_line(name)
                );
                problems.push(Problem::new(source, message));
            }
        }
        let tools = &self.config.tools;
        let lists = tools
            .permissions
            .iter()
            .map(|(tool, rules)| (format!("tools.permissions.{}", dotted_name(tool)), rules.len()));
        let policies = [
            ("tools.policy.rules", &tools.policy.rules),
            ("tools.authorization.rules", &tools.authorization.rules),
        ];
        for (key, count) in lists.chain(policies.map(|(key, rules)| (key.to_owned(), rules.len())))
        {
            if count > MAX_RULES {
                problems.push(Problem::new(
                    self.source(&key),
                    format!("`{key}` has {count} rules; at most {MAX_RULES} are taken"),
                ));
            }
        }
        problems
    }
}

fn sources(leaves: &[Leaf]) -> BTreeMap<String, Source> {
    let mut sources = BTreeMap::new();
    for leaf in leaves {
        let key = dotted(&leaf.path);
        // A list that replaces a longer one must not leave the places of its last elements behind.
        sources.retain(|known: &String, _| {
            !known.strip_prefix(&key).is_some_and(|rest| rest.starts_with('.'))
                || leaf.value.is_table()
        });
        for (index, source) in leaf.elements.iter().enumerate() {
            sources.insert(format!("{key}.{index}"), source.clone());
        }
        sources.insert(key, leaf.source());
    }
    sources
}
