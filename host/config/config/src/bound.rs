//! Limits the configuration with which a scheduled task runs to the configuration of the task's
//! creator.

use serde_json::Value;
use toolhold_config_keys::Narrowing;
use toolhold_contract::HostError;

use super::keys::rule;
use super::leaf::{Leaf, document};
use super::narrow::{Bases, effective, is_known, value_at};
use super::{Ceiling, Config, ConfigValues, Folders, Problem, Source, ceiling};

/// Most bytes of one text. With a longer configuration, no task can be created.
const MAX_TEXT: usize = 256 * 1024;

/// The policy rules. They are checked separately, so they don't limit the rules of another
/// configuration.
const RULES: [&str; 3] = ["tools", "policy", "rules"];

/// Tables whose entries start a plugin or a server.
const PLUGINS_AND_SERVERS: [&[&str]; 2] = [&["plugins"], &["mcp", "servers"]];

impl Config {
    /// Checks whether this is the configuration of a task: it was loaded with
    /// [`Inputs::bounds`](super::Inputs::bounds).
    pub fn is_of_task(&self) -> bool {
        self.read_from.as_ref().is_some_and(|(_, inputs)| !inputs.bounds.is_empty())
    }

    /// Returns the limits of a later configuration as JSON texts. The first text has all values of
    /// this configuration, including values of flags. Each further text has the policy rules of one
    /// ceiling.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Config`] if the configuration is too long.
    pub(super) fn bounds_with_flags(&self) -> Result<Vec<String>, HostError> {
        let mut texts = vec![to_text(&comparable_leaves(&effective(self)))?];
        // The rules of each ceiling are checked separately, so each ceiling has its own text.
        for ceiling in &self.ceilings {
            let mut leaves = comparable_leaves(&ceiling.contents.values);
            leaves.retain(is_rule_list);
            if leaves.iter().any(is_filled_rule_list) {
                texts.push(to_text(&leaves)?);
            }
        }
        Ok(texts)
    }
}

/// Returns values as JSON, which is stored with a task. Refuses more than [`MAX_TEXT`] bytes.
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

/// Adds to `leaves` each value below `path` that can limit another configuration.
fn collect(value: &Value, path: &mut Vec<String>, leaves: &mut Vec<Leaf>) {
    // The root of the configuration has no rule.
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
        // These values can't limit another configuration.
        (
            None
            | Some(Narrowing::Ignored | Narrowing::Free | Narrowing::InCeiling(Narrowing::Ignored)),
            _,
        )
        | (_, Value::Null) => {}
        // A key with this rule limits another configuration only with the value `approve`.
        (Some(Narrowing::Approve), value) if value != "approve" => {}
        (Some(_), value) => {
            // TOML can't represent `null` inside a list, so such a list isn't used as a limit.
            let Ok(value) = toml::Value::try_from(value) else { return };
            leaves.push(Leaf::new(path.clone(), value, &Source::TaskBounds));
        }
    }
}

fn is_rule_list(leaf: &Leaf) -> bool {
    leaf.path.iter().map(String::as_str).eq(RULES)
}

fn is_filled_rule_list(leaf: &Leaf) -> bool {
    is_rule_list(leaf) && leaf.value.as_array().is_some_and(|rules| !rules.is_empty())
}

/// Limits `leaves` by the texts of [`Config::task_bounds`]. Returns a ceiling for each text.
///
/// # Errors
///
/// Returns an error if a text can't be read or compared with the current configuration. The task
/// then can't run.
pub(super) fn apply(
    leaves: &mut Vec<Leaf>,
    texts: &[String],
    folders: &Folders,
    bases: Bases<'_>,
) -> Result<Vec<Ceiling>, Vec<Problem>> {
    // The limits are stored in the task database, so errors name its file.
    let path = folders.data.join("schedule").join("tasks.db");
    let mut applied = Vec::new();
    for text in texts {
        let stored: Value = serde_json::from_str(text).map_err(|error| {
            let message = format!("the stored configuration of the task: {error}");
            vec![Problem::new(Source::Path(path.clone()), message)]
        })?;
        let base = Config::from_leaves(leaves)?;
        let current = serde_json::to_value(effective(&base)).unwrap_or_default();

        let mut limits = Vec::new();
        collect(&stored, &mut Vec::new(), &mut limits);
        // A value needs no limit if it is unchanged or no longer exists.
        limits.retain(|leaf| is_known(&leaf.path, &current) && !is_same(leaf, &current));
        // Only the first text has the tables of plugins and servers. Later texts have only rules.
        let is_first_text = applied.is_empty();
        if is_first_text {
            limits.extend(disable_new_tables(&stored, &current));
        }
        let contents = Config::from_leaves(&limits)?;
        // The rules in `contents` are checked separately, so they aren't compared as bounds.
        let bounds: Vec<Leaf> = limits.iter().filter(|leaf| !is_rule_list(leaf)).cloned().collect();
        let limited_values = ceiling::bound(leaves, &bounds, &contents, bases)?;
        applied.push(Ceiling {
            path: path.clone(),
            signed_by: None,
            taken: limited_values,
            contents,
        });
    }
    Ok(applied)
}

fn is_same(leaf: &Leaf, current: &Value) -> bool {
    let current_value = value_at(current, &leaf.path);
    serde_json::to_value(&leaf.value).is_ok_and(|stored| stored == *current_value)
}

/// Returns leaves that disable the plugins and servers that were added after the task was created.
fn disable_new_tables(stored: &Value, current: &Value) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    for table in PLUGINS_AND_SERVERS {
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
