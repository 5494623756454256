//! Parses values that are given as one string each: `TOOLHOLD_*` variables and `--set`.

use std::ffi::{OsStr, OsString};

use serde::Deserialize;
use toml::Value;
use toml::de::ValueDeserializer;

use super::keys::{Key, known, nearest};
use super::leaf::Leaf;
use super::renamed::rename;
use super::{Problem, Source};

/// Variables that begin with `TOOLHOLD_` but aren't keys: the folders, a ceiling, the log level,
/// and a variable for the build of Toolhold.
const OTHER: [&str; 6] = [
    "TOOLHOLD_CONFIG_DIR",
    "TOOLHOLD_DATA_DIR",
    "TOOLHOLD_CACHE_DIR",
    super::inputs::VARIABLE,
    "TOOLHOLD_LOG",
    "TOOLHOLD_PLUGINS_DIR",
];

/// Parts of a key. No key has as many, and recursion can read this many.
const MAX_DEPTH: usize = 16;

/// The keys that `variables` set.
pub(super) fn from_environment(variables: &[(OsString, OsString)]) -> (Vec<Leaf>, Vec<Problem>) {
    let ours: Vec<(&str, &OsStr)> = variables
        .iter()
        .filter_map(|(name, value)| Some((name.to_str()?, value.as_os_str())))
        .filter(|(name, _)| name.starts_with("TOOLHOLD_") && !OTHER.contains(name))
        .collect();
    let mut leaves = Vec::new();
    let mut problems = Vec::new();
    if ours.is_empty() {
        return (leaves, problems);
    }
    let keys: Vec<&Key> = known().iter().filter(|key| !key.table && !key.in_list).collect();
    for (name, value) in ours {
        let source = Source::Variable(name.to_owned());
        let leaf = match (find(name, &keys), value.to_str()) {
            (Some(path), Some(text)) => parse(path, text, &source),
            (Some(_), None) => Err(vec![Problem::new(source, "its value is not UTF-8")]),
            (None, _) => {
                Err(vec![Problem::new(source, format!("unknown variable{}", advice(name, &keys)))])
            }
        };
        match leaf {
            Ok(leaf) => leaves.push(leaf),
            Err(found) => problems.extend(found),
        }
    }
    (leaves, problems)
}

/// The key that a `--set key=value` sets.
pub(super) fn from_setting(setting: &str) -> Result<Leaf, Vec<Problem>> {
    let source = Source::Flag(format!("--set {setting}"));
    let Some((key, text)) = setting.split_once('=') else {
        return Err(vec![Problem::new(source, "needs a key and a value: `--set tools.call=60`")]);
    };
    let path: Vec<String> = key.trim().split('.').map(str::to_owned).collect();
    if path.len() > MAX_DEPTH {
        return Err(vec![Problem::new(
            source,
            format!("key has {} parts; the limit is {MAX_DEPTH}", path.len()),
        )]);
    }
    parse(path, text, &source)
}

/// Reads `text` as TOML. If that doesn't fit the key, reads it as a string, or as a list of that
/// one string.
fn parse(path: Vec<String>, text: &str, source: &Source) -> Result<Leaf, Vec<Problem>> {
    let mut candidates = Vec::new();
    match ValueDeserializer::parse(text.trim()).and_then(Value::deserialize) {
        Ok(value) => candidates.push(value),
        // A broken list must not become a path with odd characters.
        Err(error) if text.trim_start().starts_with(['[', '{', '"', '\'']) => {
            return Err(vec![Problem::new(
                source.clone(),
                format!("its value is not TOML: {}", error.message()),
            )]);
        }
        Err(_) => {}
    }
    candidates.push(Value::String(text.to_owned()));
    candidates.push(Value::Array(vec![Value::String(text.to_owned())]));
    let mut first = None;
    for value in candidates {
        let mut leaf = Leaf::new(path.clone(), value, source);
        let renaming = rename(std::slice::from_mut(&mut leaf));
        let problems = if renaming.is_empty() { leaf.problems() } else { renaming };
        if problems.is_empty() {
            return Ok(leaf);
        }
        first.get_or_insert(problems);
    }
    Err(first.unwrap_or_default())
}

/// The key with the variable's name: its parts in capitals, joined by `_`. The name of a plugin may
/// contain `-` but not `_`.
fn find(name: &str, keys: &[&Key]) -> Option<Vec<String>> {
    let named: Vec<(&Key, &str)> =
        keys.iter().filter_map(|key| Some((*key, chosen(name, key)?))).collect();
    // `…_A_ALLOWED_PATHS` may end like several keys. The longest key leaves the shortest name.
    let (key, chosen) = named.into_iter().min_by_key(|(_, chosen)| chosen.len())?;
    let chosen = chosen.to_ascii_lowercase();
    // Names of tools contain `_`, and names of plugins contain `-`.
    let chosen = if key.path[0] == "plugins" { chosen.replace('_', "-") } else { chosen };
    Some(
        key.path
            .iter()
            .map(|part| if part == "*" { chosen.clone() } else { part.clone() })
            .collect(),
    )
}

/// The part of `name` for the key's `*`, or an empty text if the key has no `*`. `None` if `name`
/// is another key.
fn chosen<'a>(name: &'a str, key: &Key) -> Option<&'a str> {
    let pattern = pattern(key);
    match pattern.split_once('*') {
        Some((before, after)) => {
            name.strip_prefix(before)?.strip_suffix(after).filter(|chosen| !chosen.is_empty())
        }
        None => (name == pattern).then_some(""),
    }
}

/// Advice about a variable that names a key of another agent. `None`: it names none.
fn foreign_advice(name: &str) -> Option<String> {
    let key = crate::migration::keys_instead()
        .find(|key| name == format!("TOOLHOLD_{}", capitals(&key.old.replace('.', "_"))))?;
    let path: Vec<String> = key.old.split('.').map(str::to_owned).collect();
    crate::migration::advice(&path)
}

fn pattern(key: &Key) -> String {
    format!("TOOLHOLD_{}", capitals(&key.path.join("_")))
}

fn capitals(text: &str) -> String {
    text.to_ascii_uppercase().replace('-', "_")
}

fn advice(name: &str, keys: &[&Key]) -> String {
    if let Some(advice) = foreign_advice(name) {
        return format!("; {advice}");
    }
    let mut names: Vec<String> = keys.iter().map(|key| pattern(key).replace('*', "NAME")).collect();
    names.extend(OTHER.iter().map(|other| (*other).to_owned()));
    match nearest(name, names.iter().map(String::as_str)) {
        Some(near) => format!("; did you mean {near}?"),
        None => {
            "; the names are the keys in capitals, as in TOOLHOLD_TOOLS_FILE_ALLOWED_PATHS (`toolhold config schema` lists the keys)".to_owned()
        }
    }
}
