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

use super::keys::{PRINCIPALS, dotted, rule};
use super::leaf::{Leaf, document};
use super::{AllowedPath, Bounded, Config, ConfigValues, Folders, Ignored, Problem, Source};
use directories::Granted;
pub(super) use directories::grants;

/// Most bytes of an untrusted value in a notice. A longer value is cut.
const MAX_SHOWN: usize = 80;

#[derive(Debug, Default)]
pub(super) struct Narrowed {
    /// The values that apply. These values have precedence over the operator's file. The operator's
    /// variables have precedence over these values.
    pub(super) leaves: Vec<Leaf>,
    /// The values that would widen the configuration.
    pub(super) ignored: Vec<Ignored>,
}

/// The directories where relative paths of a configuration start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bases<'a> {
    pub(super) folders: &'a Folders,
    /// The real path of the working directory.
    pub(super) working_directory: &'a Path,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Narrower {
    /// The untrusted file of the working directory. Values that would widen the configuration, or
    /// leave nothing, are ignored.
    Project,
    /// A ceiling, which always applies. A value that can't be compared is an error. A current value
    /// that exceeds the ceiling is replaced.
    Ceiling,
}

/// Finds the values of `proposed` that are narrower than `base`.
///
/// `base` has the operator's file, variables and settings. Variables are included because a
/// proposed key may inherit from a key that a variable lowers.
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

/// Returns `null` if there is no such value.
pub(super) fn value_at<'v>(root: &'v Value, path: &[impl AsRef<str>]) -> &'v Value {
    path.iter().fold(root, |value, part| &value[part.as_ref()])
}

/// Returns the values of a trusted file. The file's denials are added to the operator's denials:
/// trusting a file never removes a denial. Other values apply as they are written.
pub(super) fn trusted(proposed: &[Leaf], narrowed: Vec<Leaf>, base: &Config) -> Vec<Leaf> {
    let current = serde_json::to_value(&base.values).unwrap_or_default();
    let mut leaves = Vec::new();
    // Even a trusted file of a directory has no tables for callers.
    let own_keys = proposed.iter().filter(|leaf| leaf.path[0] != PRINCIPALS);
    for leaf in own_keys.filter(|leaf| !is_addition(leaf)) {
        let mut leaf = leaf.clone();
        if let Some(Narrowing::Denials(_) | Narrowing::InCeiling(Narrowing::Adds)) =
            rule(&leaf.path)
            && let Some(items) = leaf.value.as_array_mut()
        {
            // The operator's rules are appended, so the file's rules come first.
            for (item, source) in list_of(base, &leaf.path, value_at(&current, &leaf.path)) {
                // Each of these values comes from TOML, so this conversion doesn't fail.
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

fn is_addition(leaf: &Leaf) -> bool {
    matches!(rule(&leaf.path), Some(Narrowing::Adds))
}

fn list_of<'v>(base: &Config, path: &[String], current: &'v Value) -> Vec<(&'v Value, Source)> {
    let key = dotted(path);
    let items = current.as_array().into_iter().flatten().enumerate();
    items.map(|(index, item)| (item, base.source(&format!("{key}.{index}")))).collect()
}

/// Returns the real paths of the directories that `leaves` grant. The trusted digest contains these
/// paths: a link in the working directory may change while the file stays the same.
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

/// Returns the configuration with all inherited, automatic and implied values filled in. Without
/// these values, a proposed value can't be compared.
pub(super) fn effective(base: &Config) -> ConfigValues {
    let mut config = base.values.clone();
    // The automatic number may be greater than the maximum of the key, so it is clamped.
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

/// Returns the path of the table with a chosen name that contains the key, such as `plugins.NAME`.
fn named_table(path: &[String]) -> Option<&[String]> {
    let depth =
        (1..path.len()).find(|depth| matches!(rule(&path[..*depth]), Some(Narrowing::Named(_))))?;
    Some(&path[..=depth])
}

/// Checks whether `current`, the operator's configuration, has the table of a key. Only a table
/// with a chosen name, such as `plugins.NAME`, can be missing.
pub(super) fn is_known(path: &[String], current: &Value) -> bool {
    match named_table(path) {
        Some(table) => value_at(current, table).is_object(),
        None => true,
    }
}

/// Describes the ignored tables that the operator's configuration doesn't have.
fn new_tables(leaves: &[&Leaf]) -> Vec<Ignored> {
    let mut tables: BTreeMap<&[String], Vec<Leaf>> = BTreeMap::new();
    for leaf in leaves {
        // Only keys in tables with chosen names are unknown, so each key is in such a table.
        let table = named_table(&leaf.path).unwrap_or(&leaf.path[..1]);
        tables.entry(table).or_default().push((*leaf).clone());
    }
    tables.into_iter().map(|(path, leaves)| new_table(path, &leaves)).collect()
}

/// Describes one ignored table. `leaves` are the values in the table, and there is at least one.
fn new_table(path: &[String], leaves: &[Leaf]) -> Ignored {
    let table = document(leaves).unwrap_or_default();
    let root = serde_json::to_value(table).unwrap_or_default();
    let addition = if path[0] == "plugins" { "a plugin" } else { "this table" };
    Ignored {
        key: dotted(path),
        rules: false,
        // The source of the table's own name is the source of the path's last part.
        source: leaves[0].sources[path.len() - 1].clone(),
        current: Value::Null,
        proposed: value_at(&root, path).clone(),
        reasons: vec![format!("only your own configuration can add {addition}")],
    }
}

struct Comparison<'a> {
    leaf: &'a Leaf,
    base: &'a Config,
    bases: Bases<'a>,
    narrower: Narrower,
    current: &'a Value,
}

/// The part of a key that applies, and the reasons why other parts don't. Both are empty if the key
/// changes nothing.
#[derive(Default)]
struct Outcome {
    leaf: Option<Leaf>,
    reasons: Vec<String>,
    /// The ignored rules of a list. Other rules of the list may apply.
    ignored_rules: Option<Leaf>,
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
    /// Compares the value in the file with the current value, by the rule of the key.
    fn apply(&self, rule: Narrowing) -> Result<Outcome, Vec<Problem>> {
        match rule {
            // A leaf is a table only if the table is empty.
            Narrowing::Table(_) | Narrowing::Named(_) | Narrowing::Each(_) => {
                Ok(Outcome::default())
            }
            // 0 is the smallest number here.
            Narrowing::Smaller => self.smaller(0.0),
            Narrowing::InCeiling(rule) if self.narrower == Narrower::Ceiling => self.apply(*rule),
            Narrowing::InCeiling(Narrowing::Smaller) => {
                Ok(Outcome::ignored("a smaller value would remove data of other directories"))
            }
            Narrowing::InCeiling(_) => {
                Ok(Outcome::ignored("only your own configuration can set this key"))
            }
            // 0 stands for a number that depends on the machine.
            Narrowing::SmallerOrAutomatic => self.smaller(concurrency(0) as f64),
            // 0 means that there is no limit.
            Narrowing::SmallerOrUnbounded => self.smaller(f64::INFINITY),
            Narrowing::OnlyFalse => Ok(self.only(false)),
            Narrowing::OnlyTrue => Ok(self.only(true)),
            Narrowing::OnlyEmpty => Ok(self.only_empty()),
            Narrowing::Stricter(words) => self.stricter(words),
            Narrowing::Directories => self.directories(),
            Narrowing::Adds => Ok(self.adds()),
            Narrowing::Denials(key) => Ok(self.denials(key)),
            Narrowing::Subset => Ok(self.subset(|known, item| known == item)),
            Narrowing::Covered(covers) => Ok(self.subset(covers)),
            Narrowing::Restricts => self.restricts(),
            Narrowing::Approve => Ok(self.approve()),
            // An empty table sets no value.
            Narrowing::Free if self.leaf.value.as_table().is_some_and(toml::Table::is_empty) => {
                Ok(Outcome::default())
            }
            Narrowing::Ignored | Narrowing::Free => self.uncomparable(
                "only your own configuration can set this key",
                "a ceiling can't limit this key; remove the key",
            ),
        }
    }

    /// Returns the outcome for a value that can't be compared. An untrusted file's value is ignored
    /// for `reason`. A ceiling's value is an error with the text `mistake`, because the
    /// organisation relies on the ceiling.
    fn uncomparable(&self, reason: &str, mistake: &str) -> Result<Outcome, Vec<Problem>> {
        match self.narrower {
            Narrower::Project => Ok(Outcome::ignored(reason)),
            Narrower::Ceiling => Err(vec![Problem::new(
                self.leaf.source(),
                format!("`{}`: {mistake}", dotted(&self.leaf.path)),
            )]),
        }
    }

    /// Describes the part of the value that doesn't apply.
    fn ignored(&self, outcome: &Outcome) -> Ignored {
        let leaf = outcome.ignored_rules.as_ref().unwrap_or(self.leaf);
        let mut source = self.leaf.source();
        if let Some(rules) = &outcome.ignored_rules
            && let Some(first) = rules.elements.first()
        {
            source = first.clone();
        }
        Ignored {
            key: dotted(&self.leaf.path),
            rules: outcome.ignored_rules.is_some(),
            source,
            current: self.current.clone(),
            proposed: serde_json::to_value(&leaf.value).unwrap_or_default(),
            reasons: outcome.reasons.clone(),
        }
    }

    fn proposed(&self) -> Value {
        serde_json::to_value(&self.leaf.value).unwrap_or_default()
    }

    fn is_current(&self) -> bool {
        self.proposed() == *self.current
    }

    /// Accepts a smaller number. The written number 0 means the number `meaning_of_zero`. All
    /// numbers are compared as floats, which represent each whole number of the configuration
    /// exactly.
    fn smaller(&self, meaning_of_zero: f64) -> Result<Outcome, Vec<Problem>> {
        let written = match &self.leaf.value {
            toml::Value::Integer(number) => Some(*number as f64),
            value => value.as_float(),
        };
        let proposed = written.and_then(|number| effective_number(number, meaning_of_zero));
        let current =
            self.current.as_f64().and_then(|number| effective_number(number, meaning_of_zero));
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

    /// Accepts only the value `strict`, unless the value is the current value.
    fn only(&self, strict: bool) -> Outcome {
        if self.is_current() {
            return Outcome::default();
        }
        if self.leaf.value.as_bool() == Some(strict) {
            return Outcome::applies(self.leaf.clone());
        }
        Outcome::ignored(format!("only your own configuration can set this key to {}", !strict))
    }

    /// Accepts only the empty string, unless the value is the current value.
    fn only_empty(&self) -> Outcome {
        if self.is_current() {
            return Outcome::default();
        }
        if self.leaf.value.as_str() == Some("") {
            return Outcome::applies(self.leaf.clone());
        }
        match self.narrower {
            Narrower::Project => Outcome::ignored("only your own configuration can set this key"),
            // The ceiling has another string than the current one, so only the empty string is
            // allowed. It replaces the current string.
            Narrower::Ceiling => {
                Outcome::applies(Leaf { value: String::new().into(), ..self.leaf.clone() })
            }
        }
    }

    /// Accepts only the value `approve`, unless the value is the current value.
    fn approve(&self) -> Outcome {
        if self.is_current() {
            return Outcome::default();
        }
        if self.leaf.value.as_str() == Some("approve") {
            return Outcome::applies(self.leaf.clone());
        }
        Outcome::ignored("only your own configuration can trust new plugins without approval")
    }

    /// Accepts a stricter value. `words` are the values of the key, the strictest first.
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

    fn current_list(&self) -> Vec<(&Value, Source)> {
        list_of(self.base, &self.leaf.path, self.current)
    }

    fn elements(&self) -> impl Iterator<Item = (&toml::Value, &Source)> {
        self.leaf.value.as_array().into_iter().flatten().zip(&self.leaf.elements)
    }

    /// Makes a leaf for the same key with `elements`.
    fn list(&self, elements: impl IntoIterator<Item = (toml::Value, Source)>) -> Leaf {
        let (items, elements): (Vec<_>, Vec<_>) = elements.into_iter().unzip();
        Leaf { value: toml::Value::Array(items), elements, ..self.leaf.clone() }
    }

    /// Adds the new elements of the file to the current list.
    fn adds(&self) -> Outcome {
        let current = self.current_list();
        let mut new = Vec::new();
        for (item, source) in self.elements() {
            let is_known = current.iter().any(|(known, _)| known.as_str() == item.as_str());
            if !is_known {
                new.push((item.clone(), source.clone()));
            }
        }
        if new.is_empty() {
            return Outcome::default();
        }
        // The elements of these lists are strings.
        let known = current.iter().map(|(item, source)| {
            (toml::Value::from(item.as_str().unwrap_or_default()), source.clone())
        });
        Outcome::applies(self.list(known.chain(new)))
    }

    /// Adds the file's rules that deny or ask before the current rules, because the first matching
    /// rule decides. Rules that allow are ignored. `key` is the key of a rule's decision.
    fn denials(&self, key: &str) -> Outcome {
        let current = self.current_list();
        let mut allowing = Vec::new();
        let mut reasons = Vec::new();
        let mut denying = Vec::new();
        for (item, source) in self.elements() {
            let value = serde_json::to_value(item).unwrap_or_default();
            let is_current = current.iter().any(|(known, _)| **known == value);
            if is_current {
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
        Outcome { leaf, reasons, ignored_rules: Some(self.list(allowing)) }
    }

    /// Keeps the grants that are in both lists. `covers` says whether the grant in its first
    /// argument includes the grant in its second argument.
    fn subset(&self, covers: fn(&Value, &Value) -> bool) -> Outcome {
        let current = self.current_list();
        let mut written_grants = Vec::new();
        let mut reasons = Vec::new();
        for (item, source) in self.elements() {
            let value = serde_json::to_value(item).unwrap_or_default();
            if !current.iter().any(|(known, _)| covers(known, &value)) {
                reasons.push(reason_not_in_list(&value));
            }
            written_grants.push((value, (item.clone(), source.clone())));
        }

        let (covered, uncovered): (Vec<_>, Vec<_>) = current
            .iter()
            .partition(|(known, _)| written_grants.iter().any(|(value, _)| covers(value, known)));
        if uncovered.is_empty() {
            return Outcome { leaf: None, reasons, ignored_rules: None };
        }
        let mut elements: Vec<_> = covered.into_iter().filter_map(to_element).collect();
        // A wider current grant is replaced by the file's narrower grants.
        for (value, element) in written_grants {
            if uncovered.iter().any(|(known, _)| covers(known, &value)) {
                elements.push(element);
            }
        }
        Outcome { leaf: Some(self.list(elements)), reasons, ignored_rules: None }
    }

    /// Keeps the strings that are in both lists. An empty list allows everything. A list of a
    /// ceiling without a common string is an error.
    fn restricts(&self) -> Result<Outcome, Vec<Problem>> {
        let current = self.current_list();
        if self.elements().next().is_none() {
            return Ok(if current.is_empty() {
                Outcome::default()
            } else {
                Outcome::ignored("an empty list would allow everything, so it isn't used")
            });
        }
        // An empty current list allows everything, so each string of the file narrows it.
        let (kept, added): (Vec<_>, Vec<_>) = self.elements().partition(|(item, _)| {
            current.is_empty() || current.iter().any(|(known, _)| known.as_str() == item.as_str())
        });
        if kept.is_empty() && self.narrower == Narrower::Ceiling {
            // `current` isn't empty, because every string would be kept then.
            let list_source =
                current.first().map_or_else(String::new, |(_, source)| source.to_string());
            let message = format!(
                "`{}` has no glob of the list of {list_source}, so no file could be read",
                dotted(&self.leaf.path)
            );
            return Err(vec![Problem::new(self.leaf.source(), message)]);
        }

        let mut reasons = Vec::new();
        for (item, _) in added {
            // The elements of these lists are strings.
            let text = shown(item.as_str().unwrap_or_default());
            reasons.push(format!("{text} is not in your list"));
        }

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
        Ok(Outcome { leaf, reasons, ignored_rules: None })
    }
}

fn to_element((item, source): &(&Value, Source)) -> Option<(toml::Value, Source)> {
    Some((toml::Value::try_from(item).ok()?, source.clone()))
}

fn reason_not_in_list(grant: &Value) -> String {
    let text = match grant.as_str() {
        Some(text) => text.to_owned(),
        None => super::inline(grant),
    };
    format!("{} is not in your list", shown(&text))
}

/// Returns the number that a written number means, or `None` for a negative number.
fn effective_number(number: f64, meaning_of_zero: f64) -> Option<f64> {
    if number > 0.0 {
        Some(number)
    } else if number == 0.0 {
        Some(meaning_of_zero)
    } else {
        None
    }
}

/// Returns the index of `word` in `words`, which begin with the strictest word. After a `|`, an
/// element of `words` may have an older name of the same value.
fn rank(words: &[&str], word: Option<&str>) -> Option<usize> {
    words.iter().position(|known| known.split('|').any(|known| Some(known) == word))
}

fn shown(text: &str) -> String {
    let short = cut(text, MAX_SHOWN);
    let ellipsis = if short.len() < text.len() { "…" } else { "" };
    format!("\"{short}{ellipsis}\"")
}
