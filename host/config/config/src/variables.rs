//! Parses values that are given as one string each: `TOOLHOLD_*` variables and `--set`.

use std::ffi::{OsStr, OsString};

use serde::Deserialize;
use toml::Value;
use toml::de::ValueDeserializer;

use super::keys::{Key, known, nearest};
use super::leaf::Leaf;
use super::renamed::rename;
use super::{Problem, Source};

/// Variables that begin with `TOOLHOLD_` but don't set keys: the folders, a ceiling, the log level,
/// and a variable for the build of Toolhold.
const OTHER: [&str; 6] = [
    "TOOLHOLD_CONFIG_DIR",
    "TOOLHOLD_DATA_DIR",
    "TOOLHOLD_CACHE_DIR",
    super::inputs::VARIABLE,
    "TOOLHOLD_LOG",
    "TOOLHOLD_PLUGINS_DIR",
];

/// Maximum number of parts of a key. No key has as many parts, and recursion over this depth is
/// safe.
const MAX_DEPTH: usize = 16;

/// Parses the variables that set keys.
pub(super) fn from_environment(variables: &[(OsString, OsString)]) -> (Vec<Leaf>, Vec<Problem>) {
    let named: Vec<(&str, &OsStr)> = variables
        .iter()
        .filter_map(|(name, value)| Some((name.to_str()?, value.as_os_str())))
        .filter(|(name, _)| name.starts_with("TOOLHOLD_") && !OTHER.contains(name))
        .collect();
    let mut leaves = Vec::new();
    let mut problems = Vec::new();
    // Building the list of keys takes time, and most starts don't need the list.
    if named.is_empty() {
        return (leaves, problems);
    }

    let keys: Vec<&Key> = known().iter().filter(|key| !key.table && !key.in_list).collect();
    for (name, value) in named {
        let source = Source::Variable(name.to_owned());
        let Some(path) = find_key(name, &keys) else {
            let message = format!("unknown variable{}", advice(name, &keys));
            problems.push(Problem::new(source, message));
            continue;
        };
        let Some(text) = value.to_str() else {
            problems.push(Problem::new(source, "its value is not UTF-8"));
            continue;
        };
        match parse(path, text, &source) {
            Ok(leaf) => leaves.push(leaf),
            Err(faults) => problems.extend(faults),
        }
    }
    (leaves, problems)
}

/// Parses the key and the value of a `--set key=value`.
pub(super) fn from_setting(setting: &str) -> Result<Leaf, Vec<Problem>> {
    let source = Source::Flag(format!("--set {setting}"));
    let Some((key, text)) = setting.split_once('=') else {
        return Err(vec![Problem::new(source, "needs a key and a value: `--set tools.call=60`")]);
    };
    let path: Vec<String> = key.trim().split('.').map(str::to_owned).collect();
    if path.len() > MAX_DEPTH {
        let message = format!("key has {} parts; the limit is {MAX_DEPTH}", path.len());
        return Err(vec![Problem::new(source, message)]);
    }
    parse(path, text, &source)
}

/// Parses `text` as TOML. If the value doesn't fit the key, uses the text as a string, or as a list
/// with only that string.
fn parse(path: Vec<String>, text: &str, source: &Source) -> Result<Leaf, Vec<Problem>> {
    let mut candidates = Vec::new();
    match ValueDeserializer::parse(text.trim()).and_then(Value::deserialize) {
        Ok(value) => candidates.push(value),
        // A broken list must not become a path with odd characters.
        Err(error) if text.trim_start().starts_with(['[', '{', '"', '\'']) => {
            let message = format!("its value is not TOML: {}", error.message());
            return Err(vec![Problem::new(source.clone(), message)]);
        }
        Err(_) => {}
    }
    candidates.push(Value::String(text.to_owned()));
    candidates.push(Value::Array(vec![Value::String(text.to_owned())]));

    let mut first_problems = None;
    for value in candidates {
        let mut leaf = Leaf::new(path.clone(), value, source);
        let renaming = rename(std::slice::from_mut(&mut leaf));
        let problems = if renaming.is_empty() { leaf.problems() } else { renaming };
        if problems.is_empty() {
            return Ok(leaf);
        }
        first_problems.get_or_insert(problems);
    }
    Err(first_problems.unwrap_or_default())
}

/// Finds the key that a variable sets. The variable's name has the key's parts in capitals, joined
/// by `_`. The name of a plugin may contain `-` but not `_`.
fn find_key(name: &str, keys: &[&Key]) -> Option<Vec<String>> {
    let matches = keys.iter().filter_map(|key| Some((*key, chosen_name(name, key)?)));
    // The end of `…_A_ALLOWED_PATHS` may match several keys. The longest key leaves the shortest
    // name.
    let (key, written) = matches.min_by_key(|(_, chosen)| chosen.len())?;
    let mut chosen = written.to_ascii_lowercase();
    // Names of tools contain `_`, and names of plugins contain `-`.
    if key.path[0] == "plugins" {
        chosen = chosen.replace('_', "-");
    }
    let parts = key.path.iter().map(|part| if part == "*" { &chosen } else { part });
    Some(parts.cloned().collect())
}

/// Returns the part of a variable's name that replaces the key's `*`, or an empty string if the key
/// has no `*`. Returns `None` if the variable doesn't set this key.
fn chosen_name<'a>(name: &'a str, key: &Key) -> Option<&'a str> {
    let pattern = variable_pattern(key);
    match pattern.split_once('*') {
        Some((before, after)) => {
            let chosen = name.strip_prefix(before)?.strip_suffix(after)?;
            if chosen.is_empty() { None } else { Some(chosen) }
        }
        None if name == pattern => Some(""),
        None => None,
    }
}

/// Returns advice about a variable that sets a key of another agent. Returns `None` for other
/// variables.
fn foreign_advice(name: &str) -> Option<String> {
    let key = crate::migration::keys_instead()
        .find(|key| name == format!("TOOLHOLD_{}", in_capitals(&key.old.replace('.', "_"))))?;
    let path: Vec<String> = key.old.split('.').map(str::to_owned).collect();
    crate::migration::advice(&path)
}

fn variable_pattern(key: &Key) -> String {
    format!("TOOLHOLD_{}", in_capitals(&key.path.join("_")))
}

fn in_capitals(text: &str) -> String {
    text.to_ascii_uppercase().replace('-', "_")
}

fn advice(name: &str, keys: &[&Key]) -> String {
    if let Some(advice) = foreign_advice(name) {
        return format!("; {advice}");
    }
    let mut names: Vec<String> =
        keys.iter().map(|key| variable_pattern(key).replace('*', "NAME")).collect();
    names.extend(OTHER.iter().map(|other| (*other).to_owned()));
    match nearest(name, names.iter().map(String::as_str)) {
        Some(similar) => format!("; did you mean {similar}?"),
        None => {
            "; the names are the keys in capitals, as in TOOLHOLD_TOOLS_FILE_ALLOWED_PATHS (`toolhold config schema` lists the keys)".to_owned()
        }
    }
}
