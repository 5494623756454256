//! Decides which values apply from a file that may only narrow the configuration: the working
//! directory's `toolhold.toml`, or a ceiling.

mod directories;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use toolhold_config_keys::Narrowing;
use toolhold_contract::text::cut;

use super::keys::{dotted, rule};
use super::leaf::{Leaf, document};
use super::{AllowedPath, Bounded, Config, ConfigValues, Folders, Ignored, Problem, Source};
use directories::Granted;

/// Bytes of an untrusted value that a notice shows.
const MAX_SHOWN: usize = 80;

/// The result for one file.
#[derive(Debug, Default)]
pub(super) struct Narrowed {
    /// The values that apply. They override the operator's file, and the operator's variables
    /// override them.
    pub(super) leaves: Vec<Leaf>,
    /// The values that would widen.
    pub(super) ignored: Vec<Ignored>,
}

/// The directories in which relative paths of a configuration begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bases<'a> {
    pub(super) folders: &'a Folders,
    /// A real path.
    pub(super) working_directory: &'a Path,
}

/// A file that narrows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Narrower {
    /// The file of the working directory, which is untrusted. A value that would widen the
    /// configuration is ignored, and so is a value that would leave nothing.
    Project,
    /// A ceiling, which always applies. A value that can't be compared or applied exactly is an
    /// error. A current value that exceeds the ceiling is replaced.
    Ceiling,
}

/// Finds the values of `proposed` that are narrower than `base`.
///
/// `base` has the operator's file, variables and settings. The variables are needed because a
/// variable may lower a key from which a proposed key inherits.
///
/// # Errors
///
/// Returns every error in the file.
pub(super) fn narrow(
    proposed: &[Leaf],
    base: &Config,
    bases: Bases<'_>,
    narrower: Narrower,
) -> Result<Narrowed, Vec<Problem>> {
    let current_values = serde_json::to_value(effective(base)).unwrap_or_default();
    let mut narrowed = Narrowed::default();
    let mut problems = Vec::new();
    let (known, unknown): (Vec<&Leaf>, Vec<&Leaf>) =
        proposed.iter().partition(|leaf| is_known(&leaf.path, &current_values));
    for leaf in known {
        let Some(rule) = rule(&leaf.path) else { continue };
        let current = value_at(&current_values, &leaf.path);
        let comparison = Comparison { leaf, base, bases, narrower, current };
        match comparison.apply(rule) {
            Ok(outcome) => {
                if !outcome.reasons.is_empty() {
                    narrowed.ignored.push(comparison.ignored(&outcome));
                }
                narrowed.leaves.extend(outcome.leaf);
            }
            Err(faults) => problems.extend(faults),
        }
    }
    match narrower {
        Narrower::Project => narrowed.ignored.extend(new_tables(&unknown)),
        Narrower::Ceiling => {
            for leaf in unknown {
                let key = dotted(&leaf.path);
                let message = format!("`{key}`: a ceiling can't limit this key; remove the key");
                problems.push(Problem::new(leaf.source(), message));
            }
        }
    }
    if problems.is_empty() { Ok(narrowed) } else { Err(problems) }
}

/// Returns the value at a path, or `null` if there is none.
pub(super) fn value_at<'v>(root: &'v Value, path: &[impl AsRef<str>]) -> &'v Value {
    path.iter().fold(root, |value, part| &value[part.as_ref()])
}

/// Returns the values of a trusted file. The file's denials are added to the operator's denials, so
/// trusting a file never removes a denial. The other values apply as they are written.
pub(super) fn trusted(proposed: &[Leaf], narrowed: Vec<Leaf>, base: &Config) -> Vec<Leaf> {
    let current = serde_json::to_value(&base.values).unwrap_or_default();
    let mut leaves = Vec::new();
    for leaf in proposed.iter().filter(|leaf| !is_addition(leaf)) {
        let mut leaf = leaf.clone();
        if let Some(Narrowing::Denials(_) | Narrowing::InCeiling(Narrowing::Adds)) =
            rule(&leaf.path)
            && let Some(items) = leaf.value.as_array_mut()
        {
            // The file's rules come before the operator's.
            for (item, source) in list_of(base, &leaf.path, value_at(&current, &leaf.path)) {
                let Ok(item) = toml::Value::try_from(item) else { continue };
                items.push(item);
                leaf.elements.push(source);
            }
        }
        leaves.push(leaf);
    }
    leaves.extend(narrowed.into_iter().filter(is_addition));
    leaves
}

/// Checks whether a value of the file is added to the operator's.
fn is_addition(leaf: &Leaf) -> bool {
    matches!(rule(&leaf.path), Some(Narrowing::Adds))
}

/// Returns the elements of a current list, each with its source.
fn list_of<'v>(base: &Config, path: &[String], current: &'v Value) -> Vec<(&'v Value, Source)> {
    let key = dotted(path);
    let items = current.as_array().into_iter().flatten().enumerate();
    items.map(|(index, item)| (item, base.source(&format!("{key}.{index}")))).collect()
}

/// Returns the real paths of the directories that `leaves` grant. The digest contains these paths,
/// because a link in the working directory may change while the file stays the same.
pub(super) fn destinations(leaves: &[Leaf], bases: Bases<'_>) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for leaf in leaves {
        if !matches!(rule(&leaf.path), Some(Narrowing::Directories)) {
            continue;
        }
        for item in leaf.value.as_array().into_iter().flatten() {
            if let Ok(written) = AllowedPath::deserialize(item.clone()) {
                paths.push(Granted::new(written, Source::Default, bases).real);
            }
        }
    }
    paths
}

/// Returns the configuration with all inherited, automatic and implied values filled in.
/// Comparisons need these values.
pub(super) fn effective(base: &Config) -> ConfigValues {
    let mut config = base.values.clone();
    config.tools.max_concurrent = Bounded::clamped(concurrency(config.tools.max_concurrent.get()));
    config.tools.file.allowed_paths = config.tools.file.granted_paths();
    if config.tools.shell.allowed_paths.is_empty() {
        config.tools.shell.allowed_paths = config.tools.file.allowed_paths.clone();
    }
    for (name, plugin) in &mut config.plugins {
        plugin.reload = Some(base.reload(name));
        plugin.limits = base.plugin_limits(name).into();
    }
    config
}

fn concurrency(written: u64) -> u64 {
    if written == 0 {
        u64::try_from(toolhold_system::machine::automatic_concurrency()).unwrap_or(u64::MAX)
    } else {
        written
    }
}

/// Returns the path of the named table that contains a key, such as `plugins.NAME`. Returns `None`
/// if no named table contains the key.
fn named_table(path: &[String]) -> Option<&[String]> {
    let depth =
        (1..path.len()).find(|depth| matches!(rule(&path[..*depth]), Some(Narrowing::Named(_))))?;
    Some(&path[..=depth])
}

/// Checks whether the operator's configuration has the key's table, if that table has a chosen
/// name.
pub(super) fn is_known(path: &[String], current: &Value) -> bool {
    match named_table(path) {
        Some(table) => value_at(current, table).is_object(),
        None => true,
    }
}

/// Makes a notice for each table that the operator's configuration doesn't have.
fn new_tables(leaves: &[&Leaf]) -> Vec<Ignored> {
    let mut tables: BTreeMap<&[String], Vec<Leaf>> = BTreeMap::new();
    for leaf in leaves {
        let table = named_table(&leaf.path).unwrap_or(&leaf.path[..1]);
        tables.entry(table).or_default().push((*leaf).clone());
    }
    tables.into_iter().map(|(path, leaves)| new_table(path, &leaves)).collect()
}

fn new_table(path: &[String], leaves: &[Leaf]) -> Ignored {
    let table = document(leaves).unwrap_or_default();
    let root = serde_json::to_value(table).unwrap_or_default();
    let what = if path[0] == "plugins" { "a plugin" } else { "this table" };
    Ignored {
        key: dotted(path),
        rules: false,
        source: leaves[0].sources[path.len() - 1].clone(),
        current: Value::Null,
        proposed: value_at(&root, path).clone(),
        reasons: vec![format!("only your own configuration can add {what}")],
    }
}

/// One key of the file, compared with the current value.
struct Comparison<'a> {
    leaf: &'a Leaf,
    base: &'a Config,
    bases: Bases<'a>,
    narrower: Narrower,
    current: &'a Value,
}

/// The part of a key that applies, and the reasons why the other parts don't. Both are empty if the
/// key changes nothing.
#[derive(Default)]
struct Outcome {
    leaf: Option<Leaf>,
    reasons: Vec<String>,
    /// The rules of a list that are ignored while other rules of the list may apply.
    rules: Option<Leaf>,
}

impl Outcome {
    fn applies(leaf: Leaf) -> Self {
        Self { leaf: Some(leaf), ..Self::default() }
    }

    fn ignored(reason: impl Into<String>) -> Self {
        Self { reasons: vec![reason.into()], ..Self::default() }
    }
}

impl Comparison<'_> {
    fn apply(&self, rule: Narrowing) -> Result<Outcome, Vec<Problem>> {
        Ok(match rule {
            // A leaf is a table only if the table is empty.
            Narrowing::Table(_) | Narrowing::Named(_) | Narrowing::Each(_) => Outcome::default(),
            Narrowing::Smaller => return self.smaller(0.0),
            Narrowing::InCeiling(rule) if self.narrower == Narrower::Ceiling => {
                return self.apply(*rule);
            }
            Narrowing::InCeiling(Narrowing::Smaller) => {
                Outcome::ignored("a smaller value would remove data of other directories")
            }
            Narrowing::InCeiling(_) => {
                Outcome::ignored("only your own configuration can set this key")
            }
            Narrowing::SmallerOrAutomatic => return self.smaller(concurrency(0) as f64),
            Narrowing::SmallerOrUnbounded => return self.smaller(f64::INFINITY),
            Narrowing::OnlyFalse => self.only(false),
            Narrowing::OnlyTrue => self.only(true),
            Narrowing::OnlyEmpty => self.only_empty(),
            Narrowing::Stricter(words) => return self.stricter(words),
            Narrowing::Directories => return self.directories(),
            Narrowing::Adds => self.adds(),
            Narrowing::Denials(key) => self.denials(key),
            Narrowing::Subset => self.subset(|known, item| known == item),
            Narrowing::Covered(covers) => self.subset(covers),
            Narrowing::Restricts => return self.restricts(),
            Narrowing::Approve => self.approve(),
            Narrowing::Free if self.leaf.value.as_table().is_some_and(toml::Table::is_empty) => {
                Outcome::default()
            }
            Narrowing::Ignored | Narrowing::Free => {
                return self.uncomparable(
                    "only your own configuration can set this key",
                    "a ceiling can't limit this key; remove the key",
                );
            }
        })
    }

    /// Returns the outcome for a value that can't be compared. An untrusted file's value is
    /// ignored. A ceiling's value is an error, because the organisation relies on the ceiling.
    fn uncomparable(&self, reason: &str, mistake: &str) -> Result<Outcome, Vec<Problem>> {
        match self.narrower {
            Narrower::Project => Ok(Outcome::ignored(reason)),
            Narrower::Ceiling => Err(vec![Problem::new(
                self.leaf.source(),
                format!("`{}`: {mistake}", dotted(&self.leaf.path)),
            )]),
        }
    }

    fn ignored(&self, outcome: &Outcome) -> Ignored {
        let leaf = outcome.rules.as_ref().unwrap_or(self.leaf);
        let mut source = self.leaf.source();
        if let Some(rules) = &outcome.rules
            && let Some(first) = rules.elements.first()
        {
            source = first.clone();
        }
        Ignored {
            key: dotted(&self.leaf.path),
            rules: outcome.rules.is_some(),
            source,
            current: self.current.clone(),
            proposed: serde_json::to_value(&leaf.value).unwrap_or_default(),
            reasons: outcome.reasons.clone(),
        }
    }

    fn proposed(&self) -> Value {
        serde_json::to_value(&self.leaf.value).unwrap_or_default()
    }

    /// Checks whether the value changes nothing.
    fn is_current(&self) -> bool {
        self.proposed() == *self.current
    }

    /// Accepts a smaller number, where 0 means `zero`. Whole numbers of the configuration fit
    /// exactly into a float.
    fn smaller(&self, zero: f64) -> Result<Outcome, Vec<Problem>> {
        let written = match &self.leaf.value {
            toml::Value::Integer(number) => Some(*number as f64),
            value => value.as_float(),
        };
        let proposed = written.and_then(|number| effective_number(number, zero));
        let current = self.current.as_f64().and_then(|number| effective_number(number, zero));
        let (Some(proposed), Some(current)) = (proposed, current) else {
            return self.uncomparable(
                "the value can't be compared with the current value",
                "the value can't be compared with the current value; remove the key",
            );
        };
        Ok(match proposed.total_cmp(&current) {
            Ordering::Less => Outcome::applies(self.leaf.clone()),
            Ordering::Equal => Outcome::default(),
            Ordering::Greater if proposed.is_infinite() => {
                Outcome::ignored(format!("0 (no limit) is more than {current}"))
            }
            Ordering::Greater => Outcome::ignored(format!("{proposed} is more than {current}")),
        })
    }

    fn only(&self, strict: bool) -> Outcome {
        if self.is_current() {
            return Outcome::default();
        }
        if self.leaf.value.as_bool() == Some(strict) {
            return Outcome::applies(self.leaf.clone());
        }
        Outcome::ignored(format!("only your own configuration can set this key to {}", !strict))
    }

    fn only_empty(&self) -> Outcome {
        if self.is_current() {
            return Outcome::default();
        }
        if self.leaf.value.as_str() == Some("") {
            return Outcome::applies(self.leaf.clone());
        }
        match self.narrower {
            Narrower::Project => Outcome::ignored("only your own configuration can set this key"),
            // The ceiling doesn't allow any other value.
            Narrower::Ceiling => {
                Outcome::applies(Leaf { value: String::new().into(), ..self.leaf.clone() })
            }
        }
    }

    fn approve(&self) -> Outcome {
        if self.is_current() {
            return Outcome::default();
        }
        if self.leaf.value.as_str() == Some("approve") {
            return Outcome::applies(self.leaf.clone());
        }
        Outcome::ignored("only your own configuration can trust new plugins without approval")
    }

    fn stricter(&self, words: &[&str]) -> Result<Outcome, Vec<Problem>> {
        let proposed = rank(words, self.leaf.value.as_str());
        let current = rank(words, self.current.as_str());
        let (Some(proposed), Some(current)) = (proposed, current) else {
            return self.uncomparable(
                "the value can't be compared with the current value",
                "the value can't be compared with the current value; remove the key",
            );
        };
        Ok(match proposed.cmp(&current) {
            Ordering::Less => Outcome::applies(self.leaf.clone()),
            Ordering::Equal => Outcome::default(),
            Ordering::Greater => {
                Outcome::ignored(format!("the value is less strict than {}", self.current))
            }
        })
    }

    /// Returns the elements of the current list, each with its source.
    fn current_list(&self) -> Vec<(&Value, Source)> {
        list_of(self.base, &self.leaf.path, self.current)
    }

    /// Returns the elements of the file's list, each with its source.
    fn elements(&self) -> impl Iterator<Item = (&toml::Value, &Source)> {
        self.leaf.value.as_array().into_iter().flatten().zip(&self.leaf.elements)
    }

    /// Makes a leaf for the same key with other elements.
    fn list(&self, elements: impl IntoIterator<Item = (toml::Value, Source)>) -> Leaf {
        let (items, elements): (Vec<_>, Vec<_>) = elements.into_iter().unzip();
        Leaf { value: toml::Value::Array(items), elements, ..self.leaf.clone() }
    }

    /// Adds the file's strings to the current list.
    fn adds(&self) -> Outcome {
        let current = self.current_list();
        let new: Vec<_> = self
            .elements()
            .filter(|(item, _)| !current.iter().any(|(known, _)| known.as_str() == item.as_str()))
            .map(|(item, source)| (item.clone(), source.clone()))
            .collect();
        if new.is_empty() {
            return Outcome::default();
        }
        let known = current.iter().map(|(item, source)| {
            (toml::Value::from(item.as_str().unwrap_or_default()), source.clone())
        });
        Outcome::applies(self.list(known.chain(new)))
    }

    /// Adds rules that deny or ask. They come before the current rules, so that no current rule
    /// hides them.
    fn denials(&self, key: &str) -> Outcome {
        let current = self.current_list();
        let mut allowing = Vec::new();
        let mut reasons = Vec::new();
        let mut denying = Vec::new();
        for (item, source) in self.elements() {
            let value = serde_json::to_value(item).unwrap_or_default();
            if current.iter().any(|(known, _)| **known == value) {
                continue;
            }
            if item.get(key).and_then(toml::Value::as_str) != Some("allow") {
                denying.push((item.clone(), source.clone()));
                continue;
            }
            let pattern = match item.get("pattern").and_then(toml::Value::as_str) {
                Some(pattern) => shown(pattern),
                None => "something".to_owned(),
            };
            reasons.push(format!("only your own configuration can allow {pattern}"));
            allowing.push((item.clone(), source.clone()));
        }

        let leaf = if denying.is_empty() {
            None
        } else {
            Some(self.list(denying.into_iter().chain(current.iter().filter_map(to_element))))
        };
        Outcome { leaf, reasons, rules: Some(self.list(allowing)) }
    }

    /// Keeps the grants that are in both lists. `covers` returns whether its first entry grants
    /// everything that its second entry grants.
    fn subset(&self, covers: fn(&Value, &Value) -> bool) -> Outcome {
        let current = self.current_list();
        let mut written = Vec::new();
        let mut reasons = Vec::new();
        for (item, source) in self.elements() {
            let value = serde_json::to_value(item).unwrap_or_default();
            if !current.iter().any(|(known, _)| covers(known, &value)) {
                let text = match value.as_str() {
                    Some(text) => text.to_owned(),
                    None => super::inline(&value),
                };
                reasons.push(format!("{} is not in your list", shown(&text)));
            }
            written.push((value, (item.clone(), source.clone())));
        }

        let (kept, lost): (Vec<_>, Vec<_>) = current
            .iter()
            .partition(|(known, _)| written.iter().any(|(value, _)| covers(value, known)));
        if lost.is_empty() {
            return Outcome { leaf: None, reasons, rules: None };
        }
        let mut elements: Vec<_> = kept.into_iter().filter_map(to_element).collect();
        // A wider current grant is replaced by the narrower grants of the file.
        for (value, element) in written {
            if lost.iter().any(|(known, _)| covers(known, &value)) {
                elements.push(element);
            }
        }
        Outcome { leaf: Some(self.list(elements)), reasons, rules: None }
    }

    /// Keeps the strings that are in both lists. An empty list allows everything.
    fn restricts(&self) -> Result<Outcome, Vec<Problem>> {
        let current = self.current_list();
        if self.elements().next().is_none() {
            return Ok(if current.is_empty() {
                Outcome::default()
            } else {
                Outcome::ignored("an empty list would allow everything, so it isn't used")
            });
        }
        let (kept, added): (Vec<_>, Vec<_>) = self.elements().partition(|(item, _)| {
            current.is_empty() || current.iter().any(|(known, _)| known.as_str() == item.as_str())
        });
        if kept.is_empty() && self.narrower == Narrower::Ceiling {
            let list_source =
                current.first().map_or_else(String::new, |(_, source)| source.to_string());
            let message = format!(
                "`{}` has no glob of the list of {list_source}, so no file could be read",
                dotted(&self.leaf.path)
            );
            return Err(vec![Problem::new(self.leaf.source(), message)]);
        }

        let texts = added.iter().map(|(item, _)| shown(item.as_str().unwrap_or_default()));
        let reasons = texts.map(|text| format!("{text} is not in your list")).collect();
        let keeps_all = current
            .iter()
            .all(|(known, _)| kept.iter().any(|(item, _)| item.as_str() == known.as_str()));
        let is_same = !current.is_empty() && keeps_all;
        let leaf = if kept.is_empty() || is_same {
            None
        } else {
            let elements = kept.into_iter().map(|(item, source)| (item.clone(), source.clone()));
            Some(self.list(elements))
        };
        Ok(Outcome { leaf, reasons, rules: None })
    }
}

/// Converts an element of a current list.
fn to_element((item, source): &(&Value, Source)) -> Option<(toml::Value, Source)> {
    Some((toml::Value::try_from(item).ok()?, source.clone()))
}

/// Returns the number, or `zero` if the number is 0. Returns `None` if the number is negative.
fn effective_number(number: f64, zero: f64) -> Option<f64> {
    if number > 0.0 {
        Some(number)
    } else if number == 0.0 {
        Some(zero)
    } else {
        None
    }
}

/// Returns the strictness of a word, which is its index in `words`. An element of `words` may have
/// an older name of the same value after a `|`.
fn rank(words: &[&str], word: Option<&str>) -> Option<usize> {
    words.iter().position(|known| known.split('|').any(|known| Some(known) == word))
}

/// Returns an untrusted value for a notice, quoted and cut.
fn shown(text: &str) -> String {
    let short = cut(text, MAX_SHOWN);
    let ellipsis = if short.len() < text.len() { "…" } else { "" };
    format!("\"{short}{ellipsis}\"")
}
