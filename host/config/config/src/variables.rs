//! Parses values in strings: `TOOLHOLD_*` variables and `--set`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use serde::Deserialize;
use toml::Value;
use toml::de::ValueDeserializer;

use super::keys::{Key, known, nearest};
use super::leaf::Leaf;
use super::renamed::rename;
use super::{Inputs, Problem, Source};

/// Variables that begin with `TOOLHOLD_`, but don't set keys.
const OTHER: [&str; 6] = [
    "TOOLHOLD_CONFIG_DIR",
    "TOOLHOLD_DATA_DIR",
    "TOOLHOLD_CACHE_DIR",
    super::inputs::CEILING_VARIABLE,
    "TOOLHOLD_LOG",
    "TOOLHOLD_PLUGINS_DIR",
];

/// Most parts of a key. A longer key is refused: it exists nowhere, and deep recursion could
/// overflow the stack.
const MAX_DEPTH: usize = 16;

/// Reads the values that environment variables set. Also returns the problems of unknown variables
/// and of invalid values.
pub(super) fn from_environment(variables: &[(OsString, OsString)]) -> (Vec<Leaf>, Vec<Problem>) {
    let named = variables_for_keys(variables);
    let mut leaves = Vec::new();
    let mut problems = Vec::new();
    // Building the list of keys takes time, and most starts don't need it, because no variable is
    // set.
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
            problems.push(Problem::new(source, "the value is not UTF-8"));
            continue;
        };
        match parse(path, text, &source) {
            Ok(leaf) => leaves.push(leaf),
            Err(faults) => problems.extend(faults),
        }
    }
    (leaves, problems)
}

/// Returns the variables of the environment. Variables that aren't UTF-8 are left out.
pub(super) fn texts(inputs: &Inputs) -> BTreeMap<String, String> {
    let mut texts = BTreeMap::new();
    for (name, value) in &inputs.variables {
        if let (Some(name), Some(value)) = (name.to_str(), value.to_str()) {
            texts.insert(name.to_owned(), value.to_owned());
        }
    }
    texts
}

/// Returns the variables that may set keys.
fn variables_for_keys(variables: &[(OsString, OsString)]) -> Vec<(&str, &OsStr)> {
    let mut named: Vec<(&str, &OsStr)> = Vec::new();
    for (name, value) in variables {
        if let Some(name) = name.to_str()
            && name.starts_with("TOOLHOLD_")
            && !OTHER.contains(&name)
        {
            named.push((name, value.as_os_str()));
        }
    }
    named
}

/// Reads the value of a flag such as `--set tools.call=60`.
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

/// Returns the values that a text may mean: a value in TOML, a string, and a list with this string.
fn candidates(text: &str, source: &Source) -> Result<Vec<Value>, Problem> {
    let mut candidates = Vec::new();
    match ValueDeserializer::parse(text.trim()).and_then(Value::deserialize) {
        Ok(value) => candidates.push(value),
        // A broken list is an error. It must not become the path of a directory.
        Err(error) if text.trim_start().starts_with(['[', '{', '"', '\'']) => {
            let message = format!("the value is not TOML: {}", error.message());
            return Err(Problem::new(source.clone(), message));
        }
        Err(_) => {}
    }
    candidates.push(Value::String(text.to_owned()));
    candidates.push(Value::Array(vec![Value::String(text.to_owned())]));
    Ok(candidates)
}

/// Makes the leaf with the first of the [`candidates`] that fits the key. If no candidate fits,
/// returns the problems of the first candidate.
fn parse(path: Vec<String>, text: &str, source: &Source) -> Result<Leaf, Vec<Problem>> {
    let mut first_problems = Vec::new();
    for value in candidates(text, source).map_err(|problem| vec![problem])? {
        let mut leaf = Leaf::new(path.clone(), value, source);
        let rename_problems = rename(std::slice::from_mut(&mut leaf));
        let problems = if rename_problems.is_empty() { leaf.problems() } else { rename_problems };
        if problems.is_empty() {
            return Ok(leaf);
        }
        if first_problems.is_empty() {
            first_problems = problems;
        }
    }
    Err(first_problems)
}

/// Finds the key that a variable sets. The name has the key's parts in capitals, joined by `_`:
/// `TOOLHOLD_TOOLS_CALL` sets `tools.call`.
fn find_key(name: &str, keys: &[&Key]) -> Option<Vec<String>> {
    let matches = keys.iter().filter_map(|key| Some((*key, chosen_name(name, key)?)));
    // `…_ALLOWED_PATHS` may match several keys with a `*`. The longest key leaves the shortest
    // part of `name` for the `*`.
    let (key, replacement) = matches.min_by_key(|(_, replacement)| replacement.len())?;
    let mut chosen = replacement.to_ascii_lowercase();
    // A variable's name can't contain `-`, which separates the words in a plugin's name, so `_`
    // stands for it. Names of tools contain `_` themselves.
    if key.path[0] == "plugins" {
        chosen = chosen.replace('_', "-");
    }
    let parts = key.path.iter().map(|part| if part == "*" { &chosen } else { part });
    Some(parts.cloned().collect())
}

/// Returns the part of `name` that replaces the key's `*`, or an empty string if the key has no
/// `*`. Returns `None` if `name` doesn't set this key.
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

/// Returns advice about a variable for a key of another agent.
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

/// Returns the advice about an unknown variable, as the end of a message.
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
