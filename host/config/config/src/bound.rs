//! Bounds the configuration of a scheduled task's run by that of its maker.

use serde_json::Value;
use toolhold_config_keys::Narrowing;
use toolhold_contract::HostError;

use super::keys::rule;
use super::leaf::{Leaf, document};
use super::narrow::{Bases, effective, is_known};
use super::{Ceiling, Config, Folders, Problem, Source, ceiling};

/// Bytes of one text: more than a configuration with all of its lists has.
const MAX_TEXT: usize = 256 * 1024;

/// The list of rules that decides by itself, so that no value bounds it.
const RULES: [&str; 3] = ["tools", "policy", "rules"];

/// Tables whose names start something.
const STARTED: [&[&str]; 2] = [&["plugins"], &["mcp", "servers"]];

impl Config {
    /// Whether it is that of a task: it was loaded with [`Inputs::bounds`](super::Inputs::bounds).
    pub fn is_of_task(&self) -> bool {
        self.read_from.as_ref().is_some_and(|(_, inputs)| !inputs.bounds.is_empty())
    }

    /// The limits of this configuration, with its flags.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] if it is too long.
    pub(super) fn bounds_with_flags(&self) -> Result<Vec<String>, HostError> {
        let mut leaves = Vec::new();
        let all = serde_json::to_value(effective(self)).unwrap_or_default();
        collect(&all, &mut Vec::new(), &mut leaves);
        // The rules of each ceiling are a gate of their own.
        let of_ceilings: Vec<Vec<Leaf>> = self
            .ceilings
            .iter()
            .map(|ceiling| {
                let all = serde_json::to_value(&ceiling.contents.values).unwrap_or_default();
                let mut leaves = Vec::new();
                collect(&all, &mut Vec::new(), &mut leaves);
                leaves.retain(is_rules);
                leaves
            })
            .filter(|leaves| leaves.iter().any(has_rules))
            .collect();
        std::iter::once(leaves).chain(of_ceilings).map(|leaves| text(&leaves)).collect()
    }
}

fn text(leaves: &[Leaf]) -> Result<String, HostError> {
    let table = document(leaves).map_err(|error| HostError::Config(error.to_string()))?;
    let text = serde_json::to_string(&table);
    match text.map_err(|error| HostError::Config(error.to_string()))? {
        text if text.len() <= MAX_TEXT => Ok(text),
        text => Err(HostError::Config(format!(
            "the configuration is {} bytes with its defaults; the limit for creating tasks is \
             {MAX_TEXT}",
            text.len()
        ))),
    }
}

/// The values that can be compared.
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
        // Anything else is no bound.
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

/// Bounds `leaves` by texts of [`Config::task_bounds`].
///
/// # Errors
///
/// A text that can't be read, or can't be compared with the present configuration: then nothing may
/// run.
pub(super) fn apply(
    leaves: &mut Vec<Leaf>,
    texts: &[String],
    folders: &Folders,
    bases: Bases<'_>,
) -> Result<Vec<Ceiling>, Vec<Problem>> {
    // It is in no file of its own, so errors name the one that it was kept in.
    let path = folders.data.join("schedule").join("tasks.db");
    let mut applied = Vec::new();
    for text in texts {
        let then: Value = serde_json::from_str(text).map_err(|error| {
            vec![Problem::new(
                Source::Path(path.clone()),
                format!("the stored configuration of the task: {error}"),
            )]
        })?;
        let mut own = Vec::new();
        collect(&then, &mut Vec::new(), &mut own);
        let base = Config::from_leaves(leaves)?;
        let current = serde_json::to_value(effective(&base)).unwrap_or_default();
        let mut own: Vec<Leaf> = own
            .into_iter()
            // What is still the same, or no longer exists, needs no bound.
            .filter(|leaf| is_known(&leaf.path, &current) && !is_same(leaf, &current))
            .collect();
        if applied.is_empty() {
            own.extend(new_tables(&then, &current));
        }
        let contents = Config::from_leaves(&own)?;
        let bounds: Vec<Leaf> = own.iter().filter(|leaf| !is_rules(leaf)).cloned().collect();
        let taken = ceiling::bound(leaves, &bounds, &contents, bases)?;
        applied.push(Ceiling { path: path.clone(), signed_by: None, taken, contents });
    }
    Ok(applied)
}

fn is_same(leaf: &Leaf, current: &Value) -> bool {
    let value = leaf.path.iter().fold(current, |value, part| &value[part]);
    serde_json::to_value(&leaf.value).is_ok_and(|own| own == *value)
}

/// Disables the tables that were added since: the maker of the task didn't have them.
fn new_tables(then: &Value, current: &Value) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    for table in STARTED {
        let [now, then] = [current, then].map(|all| table.iter().fold(all, |at, part| &at[part]));
        let names = now.as_object().into_iter().flat_map(|tables| tables.keys());
        for name in names.filter(|name| then.get(name).is_none()) {
            let mut path: Vec<String> = table.iter().map(|part| (*part).to_owned()).collect();
            path.extend([name.clone(), "enabled".to_owned()]);
            leaves.push(Leaf::new(path, false.into(), &Source::TaskBounds));
        }
    }
    leaves
}
