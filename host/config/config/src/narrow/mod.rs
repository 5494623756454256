//! Decides which values apply of a file that may only narrow: the working directory's
//! `toolhold.toml`, or a ceiling.

mod directories;

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
    /// The values that count, between those of the operator's file and of the operator's variables.
    pub(super) leaves: Vec<Leaf>,
    /// The values that would widen.
    pub(super) ignored: Vec<Ignored>,
}

/// The directories in which the paths of a configuration begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bases<'a> {
    pub(super) folders: &'a Folders,
    /// A real path.
    pub(super) working_directory: &'a Path,
}

/// A file that narrows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Narrower {
    /// The working directory's, which is untrusted. A value that would widen is ignored, and so is
    /// a value that would leave nothing.
    Project,
    /// A ceiling, which always holds. A value that can't be compared or applied exactly is a
    /// mistake, and nothing beyond the ceiling is allowed instead.
    Ceiling,
}

/// Finds the values of `proposed` that are narrower than `base`. `base` has the operator's file,
/// variables and settings. It includes the variables because a variable may lower the key from
/// which a proposed key inherits.
///
/// # Errors
///
/// Everything in the file that is a mistake.
pub(super) fn narrow(
    proposed: &[Leaf],
    base: &Config,
    bases: Bases<'_>,
    narrower: Narrower,
) -> Result<Narrowed, Vec<Problem>> {
    let current = serde_json::to_value(effective(base)).unwrap_or_default();
    let mut narrowed = Narrowed::default();
    let mut problems = Vec::new();
    let (known, unknown): (Vec<&Leaf>, Vec<&Leaf>) =
        proposed.iter().partition(|leaf| is_known(&leaf.path, &current));
    for leaf in known {
        let Some(rule) = rule(&leaf.path) else { continue };
        let comparison = Comparison {
            leaf,
            base,
            bases,
            narrower,
            current: leaf.path.iter().fold(&current, |value, part| &value[part]),
        };
        match comparison.apply(rule) {
            Ok(outcome) => {
                narrowed
                    .ignored
                    .extend((!outcome.reasons.is_empty()).then(|| comparison.ignored(&outcome)));
                narrowed.leaves.extend(outcome.leaf);
            }
            Err(found) => problems.extend(found),
        }
    }
    match narrower {
        Narrower::Project => narrowed.ignored.extend(new_tables(&unknown)),
        Narrower::Ceiling => problems.extend(unknown.iter().map(|leaf| {
            Problem::new(
                leaf.source(),
                format!("`{}`: a ceiling can't limit this key; remove the key", dotted(&leaf.path)),
            )
        })),
    }
    if problems.is_empty() { Ok(narrowed) } else { Err(problems) }
}

/// The values of a trusted file. Its denials are added to the operator's, so that trusting a file
/// never takes away a denial. Its other values count as they are written.
pub(super) fn trusted(proposed: &[Leaf], narrowed: Vec<Leaf>, base: &Config) -> Vec<Leaf> {
    let current = serde_json::to_value(&base.values).unwrap_or_default();
    let whole = proposed.iter().filter(|leaf| !is_addition(leaf)).map(|leaf| {
        let mut leaf = leaf.clone();
        if let (Some(Narrowing::Denials(_) | Narrowing::InCeiling(Narrowing::Adds)), Some(items)) =
            (rule(&leaf.path), leaf.value.as_array_mut())
        {
            // The file's rules come before the operator's.
            let known = list_of(
                base,
                &leaf.path,
                leaf.path.iter().fold(&current, |value, part| &value[part]),
            );
            for (item, source) in known {
                let Ok(item) = toml::Value::try_from(item) else { continue };
                items.push(item);
                leaf.elements.push(source);
            }
        }
        leaf
    });
    whole.chain(narrowed.into_iter().filter(is_addition)).collect()
}

/// Whether a value of the file is added to the operator's.
fn is_addition(leaf: &Leaf) -> bool {
    matches!(rule(&leaf.path), Some(Narrowing::Adds))
}

/// The elements of a current list, each with its source.
fn list_of<'v>(base: &Config, path: &[String], current: &'v Value) -> Vec<(&'v Value, Source)> {
    let key = dotted(path);
    let items = current.as_array().into_iter().flatten().enumerate();
    items.map(|(index, item)| (item, base.source(&format!("{key}.{index}")))).collect()
}

/// The real paths of the directories that `leaves` grant. They are part of the digest: a link in
/// the working directory may change while the file stays the same.
pub(super) fn destinations(leaves: &[Leaf], bases: Bases<'_>) -> Vec<PathBuf> {
    let granting =
        leaves.iter().filter(|leaf| matches!(rule(&leaf.path), Some(Narrowing::Directories)));
    let items = granting.flat_map(|leaf| leaf.value.as_array().into_iter().flatten());
    let written = items.filter_map(|item| AllowedPath::deserialize(item.clone()).ok());
    written.map(|written| Granted::new(written, Source::Default, bases).real).collect()
}

/// The configuration with all inherited, automatic and implied values filled in. Only such values
/// can be compared.
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

/// The depth of the table with a chosen name that contains a key. `None` if there is no such table.
fn named(path: &[String]) -> Option<usize> {
    (1..path.len()).find(|&depth| matches!(rule(&path[..depth]), Some(Narrowing::Named(_))))
}

/// Whether the operator's configuration has the key's table, if that table has a chosen name.
pub(super) fn is_known(path: &[String], current: &Value) -> bool {
    named(path).is_none_or(|depth| {
        path[..=depth].iter().fold(current, |value, part| &value[part]).is_object()
    })
}

/// One notice for each table that the operator's configuration doesn't have.
fn new_tables(leaves: &[&Leaf]) -> Vec<Ignored> {
    let mut tables: BTreeMap<&[String], Vec<Leaf>> = BTreeMap::new();
    for leaf in leaves {
        let depth = named(&leaf.path).unwrap_or_default();
        tables.entry(&leaf.path[..=depth]).or_default().push((*leaf).clone());
    }
    tables.into_iter().map(|(path, leaves)| new_table(path, &leaves)).collect()
}

fn new_table(path: &[String], leaves: &[Leaf]) -> Ignored {
    let whole = document(leaves)
        .ok()
        .and_then(|document| serde_json::to_value(document).ok())
        .unwrap_or_default();
    let what = if path[0] == "plugins" { "a plugin" } else { "this table" };
    Ignored {
        key: dotted(path),
        rules: false,
        source: leaves[0].sources[path.len() - 1].clone(),
        current: Value::Null,
        proposed: path.iter().fold(&whole, |value, part| &value[part]).clone(),
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

/// The part of a key that counts, and the reasons why the rest doesn't. Both are empty if the key
/// changes nothing.
#[derive(Default)]
struct Outcome {
    leaf: Option<Leaf>,
    reasons: Vec<String>,
    /// The rules of a list that don't count, if other rules of the list may count.
    rules: Option<Leaf>,
}

impl Outcome {
    fn counts(leaf: Leaf) -> Self {
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
            Narrowing::OnlyEmpty => match self.leaf.value.as_str() {
                _ if self.proposed() == *self.current => Outcome::default(),
                Some("") => Outcome::counts(self.leaf.clone()),
                _ if self.narrower == Narrower::Project => {
                    Outcome::ignored("only your own configuration can set this key")
                }
                // The ceiling doesn't allow any other value.
                _ => Outcome::counts(Leaf { value: String::new().into(), ..self.leaf.clone() }),
            },
            Narrowing::Stricter(words) => return self.stricter(words),
            Narrowing::Directories => return self.directories(),
            Narrowing::Adds => self.adds(),
            Narrowing::Denials(key) => self.denials(key),
            Narrowing::Subset => self.subset(|known, item| known == item),
            Narrowing::Covered(covers) => self.subset(covers),
            Narrowing::Restricts => return self.restricts(),
            Narrowing::Approve => match self.leaf.value.as_str() {
                _ if self.proposed() == *self.current => Outcome::default(),
                Some("approve") => Outcome::counts(self.leaf.clone()),
                _ => Outcome::ignored(
                    "only your own configuration can trust new plugins without approval",
                ),
            },
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

    /// A value that can't be compared. In an untrusted file it is ignored; in a ceiling it is an
    /// error, since the organisation relies on it.
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
        let rules = outcome.rules.as_ref();
        let first = rules.and_then(|rules| rules.elements.first()).cloned();
        Ignored {
            key: dotted(&self.leaf.path),
            rules: rules.is_some(),
            source: first.unwrap_or_else(|| self.leaf.source()),
            current: self.current.clone(),
            proposed: rules.map_or_else(
                || self.proposed(),
                |rules| serde_json::to_value(&rules.value).unwrap_or_default(),
            ),
            reasons: outcome.reasons.clone(),
        }
    }

    fn proposed(&self) -> Value {
        serde_json::to_value(&self.leaf.value).unwrap_or_default()
    }

    /// The smaller number, where 0 stands for `zero`. Whole numbers of the configuration are far
    /// below those that a float can't have.
    fn smaller(&self, zero: f64) -> Result<Outcome, Vec<Problem>> {
        let whole = self.leaf.value.as_integer().map(|number| number as f64);
        let written = whole.or_else(|| self.leaf.value.as_float());
        let proposed = written.and_then(|number| effective_number(number, zero));
        let current = self.current.as_f64().and_then(|number| effective_number(number, zero));
        let (Some(proposed), Some(current)) = (proposed, current) else {
            return self.uncomparable(
                "the value can't be compared with the current value",
                "the value can't be compared with the current value; remove the key",
            );
        };
        Ok(match proposed.total_cmp(&current) {
            std::cmp::Ordering::Less => Outcome::counts(self.leaf.clone()),
            std::cmp::Ordering::Equal => Outcome::default(),
            std::cmp::Ordering::Greater => Outcome::ignored(if proposed.is_infinite() {
                format!("0 (no limit) is more than {current}")
            } else {
                format!("{proposed} is more than {current}")
            }),
        })
    }

    fn only(&self, strict: bool) -> Outcome {
        match self.leaf.value.as_bool() {
            _ if self.proposed() == *self.current => Outcome::default(),
            Some(proposed) if proposed == strict => Outcome::counts(self.leaf.clone()),
            _ => Outcome::ignored(format!(
                "only your own configuration can set this key to {}",
                !strict
            )),
        }
    }

    fn stricter(&self, words: &[&str]) -> Result<Outcome, Vec<Problem>> {
        let proposed = rank(words, self.leaf.value.as_str());
        let current = rank(words, self.current.as_str());
        Ok(match (proposed, current) {
            (Some(proposed), Some(current)) if proposed == current => Outcome::default(),
            (Some(proposed), Some(current)) if proposed < current => {
                Outcome::counts(self.leaf.clone())
            }
            (Some(_), Some(_)) => {
                Outcome::ignored(format!("the value is less strict than {}", self.current))
            }
            _ => {
                return self.uncomparable(
                    "the value can't be compared with the current value",
                    "the value can't be compared with the current value; remove the key",
                );
            }
        })
    }

    /// The elements of the current list, each with its source.
    fn current_list(&self) -> Vec<(&Value, Source)> {
        list_of(self.base, &self.leaf.path, self.current)
    }

    /// The elements of the file's list.
    fn elements(&self) -> impl Iterator<Item = (&toml::Value, &Source)> {
        self.leaf.value.as_array().into_iter().flatten().zip(&self.leaf.elements)
    }

    fn list(&self, elements: impl IntoIterator<Item = (toml::Value, Source)>) -> Leaf {
        let (items, elements): (Vec<_>, Vec<_>) = elements.into_iter().unzip();
        Leaf { value: toml::Value::Array(items), elements, ..self.leaf.clone() }
    }

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
        Outcome::counts(self.list(known.chain(new)))
    }

    /// Adds rules that deny or ask. They come before the current rules, so that no current rule
    /// hides them.
    fn denials(&self, key: &str) -> Outcome {
        let current = self.current_list();
        let (allowing, denying): (Vec<_>, Vec<_>) = self
            .elements()
            .filter(|(item, _)| {
                let item = serde_json::to_value(item).unwrap_or_default();
                !current.iter().any(|(known, _)| **known == item)
            })
            .map(|(item, source)| (item.clone(), source.clone()))
            .partition(|(item, _)| item.get(key).and_then(toml::Value::as_str) == Some("allow"));
        let reasons = allowing
            .iter()
            .map(|(item, _)| {
                let written = item.get("pattern").and_then(toml::Value::as_str);
                let pattern = written.map_or_else(|| "something".to_owned(), shown);
                format!("only your own configuration can allow {pattern}")
            })
            .collect();
        let leaf = (!denying.is_empty()).then(|| {
            let known = current.iter().filter_map(|(item, source)| {
                Some((toml::Value::try_from(item).ok()?, source.clone()))
            });
            self.list(denying.into_iter().chain(known))
        });
        Outcome { leaf, reasons, rules: Some(self.list(allowing)) }
    }

    /// The grants that are in both lists. `covers` tells whether its first entry grants everything
    /// that its second entry grants.
    fn subset(&self, covers: fn(&Value, &Value) -> bool) -> Outcome {
        let current = self.current_list();
        let written: Vec<_> = self
            .elements()
            .map(|(item, source)| (item, serde_json::to_value(item).unwrap_or_default(), source))
            .collect();
        let more = written
            .iter()
            .filter(|(_, item, _)| !current.iter().any(|(known, _)| covers(known, item)));
        let reasons = more
            .map(|(_, item, _)| {
                let text = item.as_str().map_or_else(|| super::inline(item), str::to_owned);
                format!("{} is not in your list", shown(&text))
            })
            .collect();
        let (kept, lost): (Vec<_>, Vec<_>) = current
            .iter()
            .partition(|(known, _)| written.iter().any(|(_, item, _)| covers(item, known)));
        let leaf = (!lost.is_empty()).then(|| {
            let kept = kept.iter().filter_map(|(item, source)| {
                Some((toml::Value::try_from(item).ok()?, source.clone()))
            });
            // A wider current grant is replaced by the narrower grants of the file.
            let parts = written
                .iter()
                .filter(|(_, item, _)| lost.iter().any(|(known, _)| covers(known, item)));
            self.list(
                kept.chain(parts.map(|(item, _, source)| ((*item).clone(), (*source).clone()))),
            )
        });
        Outcome { leaf, reasons, rules: None }
    }

    fn restricts(&self) -> Result<Outcome, Vec<Problem>> {
        let current = self.current_list();
        let written: Vec<_> = self.elements().collect();
        let (kept, more): (Vec<_>, Vec<_>) = written.iter().partition(|(item, _)| {
            current.is_empty() || current.iter().any(|(known, _)| known.as_str() == item.as_str())
        });
        if written.is_empty() {
            let reason = "an empty list would allow everything, so it isn't used";
            return Ok(if current.is_empty() {
                Outcome::default()
            } else {
                Outcome::ignored(reason)
            });
        }
        if kept.is_empty() && self.narrower == Narrower::Ceiling {
            let list_source =
                current.first().map_or_else(String::new, |(_, source)| source.to_string());
            let message = format!(
                "`{}` has no glob of the list of {list_source}, so no file could be read",
                dotted(&self.leaf.path)
            );
            return Err(vec![Problem::new(self.leaf.source(), message)]);
        }
        let texts = more.iter().map(|(item, _)| shown(item.as_str().unwrap_or_default()));
        let reasons = texts.map(|text| format!("{text} is not in your list")).collect();
        let same = !current.is_empty()
            && current
                .iter()
                .all(|(known, _)| kept.iter().any(|(item, _)| item.as_str() == known.as_str()));
        let leaf = (!kept.is_empty() && !same).then(|| {
            self.list(kept.into_iter().map(|(item, source)| (item.clone(), source.clone())))
        });
        Ok(Outcome { leaf, reasons, rules: None })
    }
}

/// A number where 0 stands for `zero`. `None`: it is negative.
fn effective_number(number: f64, zero: f64) -> Option<f64> {
    (number >= 0.0).then_some(if number == 0.0 { zero } else { number })
}

/// How strict a word is: its place among `words`. Behind a `|` is an older name of the same value.
fn rank(words: &[&str], word: Option<&str>) -> Option<usize> {
    words.iter().position(|known| known.split('|').any(|known| Some(known) == word))
}

/// An untrusted value in a notice, quoted and cut.
fn shown(text: &str) -> String {
    let short = cut(text, MAX_SHOWN);
    format!("\"{short}{}\"", if short.len() < text.len() { "…" } else { "" })
}
