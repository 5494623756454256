//! Limits the configuration of a scheduled task's run by the configuration of the task's creator.

use serde_json::Value;
use toolhold_config_keys::Narrowing;
use toolhold_contract::HostError;

use super::keys::rule;
use super::leaf::{Leaf, document};
use super::narrow::{Bases, effective, is_known, value_at};
use super::{Ceiling, Config, ConfigValues, Folders, Problem, Source, ceiling};

/// The most bytes of one text. A configuration with all of its lists is shorter.
const MAX_TEXT: usize = 256 * 1024;

/// The list of rules that is evaluated separately, so that no value limits it.
const RULES: [&str; 3] = ["tools", "policy", "rules"];

/// Tables whose entries start something.
const STARTED: [&[&str]; 2] = [&["plugins"], &["mcp", "servers"]];

impl Config {
    /// Checks whether this is the configuration of a task. Such a configuration was loaded with
    /// [`Inputs::bounds`](super::Inputs::bounds).
    pub fn is_of_task(&self) -> bool {
        self.read_from.as_ref().is_some_and(|(_, inputs)| !inputs.bounds.is_empty())
    }

    /// Writes the limits of this configuration, including its flags.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Config`] if the configuration is too long.
    pub(super) fn bounds_with_flags(&self) -> Result<Vec<String>, HostError> {
        let mut texts = vec![to_text(&comparable_leaves(&effective(self)))?];
        // The rules of each ceiling form a separate gate.
        for ceiling in &self.ceilings {
            let mut leaves = comparable_leaves(&ceiling.contents.values);
            leaves.retain(is_rules);
            if leaves.iter().any(has_rules) {
                texts.push(to_text(&leaves)?);
            }
        }
        Ok(texts)
    }
}

fn to_text(leaves: &[Leaf]) -> Result<String, HostError> {
    let table = document(leaves).map_err(|error| HostError::Config(error.to_string()))?;
    let text =
        serde_json::to_string(&table).map_err(|error| HostError::Config(error.to_string()))?;
    let size = text.len();
    if size > MAX_TEXT {
        return Err(HostError::Config(format!(
            "the configuration is {size} bytes with its defaults; the limit for creating tasks is \
             {MAX_TEXT}"
        )));
    }
    Ok(text)
}

fn comparable_leaves(values: &ConfigValues) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    let root = serde_json::to_value(values).unwrap_or_default();
    collect(&root, &mut Vec::new(), &mut leaves);
    leaves
}

/// Collects the values that can be compared.
fn collect(value: &Value, path: &mut Vec<String>, leaves: &mut Vec<Leaf>) {
    let rule = if path.is_empty() { None } else { rule(path) };
    match (rule, value) {
        (
            None | Some(Narrowing::Table(_) | Narrowing::Named(_) | Narrowing::Each(_)),
            Value::Object(table),
        ) => {
            for (name, value) in table {
                path.push(name.clone());
                collect(value, path, leaves);
                path.pop();
            }
        }
        (
            None
            | Some(Narrowing::Ignored | Narrowing::Free | Narrowing::InCeiling(Narrowing::Ignored)),
            _,
        )
        | (_, Value::Null) => {}
        // Any other value than `approve` is no bound.
        (Some(Narrowing::Approve), value) if value != "approve" => {}
        (Some(_), value) => {
            if let Ok(value) = toml::Value::try_from(value) {
                leaves.push(Leaf::new(path.clone(), value, &Source::TaskBounds));
            }
        }
    }
}

fn is_rules(leaf: &Leaf) -> bool {
    leaf.path.iter().map(String::as_str).eq(RULES)
}

fn has_rules(leaf: &Leaf) -> bool {
    is_rules(leaf) && leaf.value.as_array().is_some_and(|rules| !rules.is_empty())
}

/// Limits `leaves` by the texts of [`Config::task_bounds`].
///
/// # Errors
///
/// Returns an error if a text can't be read, or if it can't be compared with the current
/// configuration. The task may not run in this case.
pub(super) fn apply(
    leaves: &mut Vec<Leaf>,
    texts: &[String],
    folders: &Folders,
    bases: Bases<'_>,
) -> Result<Vec<Ceiling>, Vec<Problem>> {
    // The limits have no file of their own, so errors name the file that stores them.
    let path = folders.data.join("schedule").join("tasks.db");
    let mut applied = Vec::new();
    for text in texts {
        let stored: Value = serde_json::from_str(text).map_err(|error| {
            let message = format!("the stored configuration of the task: {error}");
            vec![Problem::new(Source::Path(path.clone()), message)]
        })?;
        let base = Config::from_leaves(leaves)?;
        let current = serde_json::to_value(effective(&base)).unwrap_or_default();

        let mut own = Vec::new();
        collect(&stored, &mut Vec::new(), &mut own);
        // A value that is unchanged, or no longer exists, needs no limit.
        own.retain(|leaf| is_known(&leaf.path, &current) && !is_same(leaf, &current));
        if applied.is_empty() {
            own.extend(disable_new_tables(&stored, &current));
        }
        let contents = Config::from_leaves(&own)?;
        let bounds: Vec<Leaf> = own.iter().filter(|leaf| !is_rules(leaf)).cloned().collect();
        let taken = ceiling::bound(leaves, &bounds, &contents, bases)?;
        applied.push(Ceiling { path: path.clone(), signed_by: None, taken, contents });
    }
    Ok(applied)
}

fn is_same(leaf: &Leaf, current: &Value) -> bool {
    let value = value_at(current, &leaf.path);
    serde_json::to_value(&leaf.value).is_ok_and(|own| own == *value)
}

/// Returns leaves that disable the tables that were added after the task was created.
fn disable_new_tables(stored: &Value, current: &Value) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    for table in STARTED {
        let stored_tables = value_at(stored, table);
        let current_tables = value_at(current, table).as_object();
        for name in current_tables.into_iter().flat_map(|tables| tables.keys()) {
            if stored_tables.get(name).is_some() {
                continue;
            }
            let mut path: Vec<String> = table.iter().map(|part| (*part).to_owned()).collect();
            path.extend([name.clone(), "enabled".to_owned()]);
            leaves.push(Leaf::new(path, false.into(), &Source::TaskBounds));
        }
    }
    leaves
}
