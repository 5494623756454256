//! Ceilings: applies the most that an organisation allows to the operator's values. A ceiling is
//! written like a `toolhold.toml` and bounds the operator's whole configuration, including
//! variables and flags. It only takes away.

use std::path::{Path, PathBuf};

use serde_json::Value;
use toolhold_component::Capability;
use toolhold_contract::text::neutral_line;

use super::keys::dotted;
use super::leaf::Leaf;
use super::narrow::{Bases, Narrower, narrow};
use super::{
    Ceiling, Config, Plugin, Problem, Problems, SYSTEM_CEILING, Source, Taken, file, signed,
};

/// The table whose keys bound every plugin.
const EVERY_PLUGIN: [&str; 2] = ["plugins", "*"];

/// A ceiling that was read but isn't applied yet.
pub(super) struct Unapplied {
    path: PathBuf,
    leaves: Vec<Leaf>,
    signed_by: Option<String>,
}

/// Reads the organisation's ceiling, if it exists, and the `other` ceiling, which has to exist.
///
/// # Errors
///
/// Everything that is wrong with them. A ceiling that can't be trusted or read ends the start: it
/// might forbid the next call.
pub(super) fn read(
    system: Option<&Path>,
    other: Option<&Path>,
) -> Result<Vec<Unapplied>, Vec<Problem>> {
    let mut found = Vec::new();
    let mut problems = Vec::new();
    let system = system.map(|path| (path, signed::read(path)));
    let other =
        other.map(|path| (path, file::read_named_ceiling(path).map(|text| Some((text, None)))));
    for (path, text) in system.into_iter().chain(other) {
        let text = match text {
            Ok(Some(text)) => text,
            Ok(None) => continue,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        let (text, signed_by) = text;
        let (leaves, wrong) = file::parse(path, &text.text, file::MAX_VALUES);
        problems.extend(wrong);
        found.push(Unapplied { path: path.to_owned(), leaves, signed_by });
    }
    if problems.is_empty() { Ok(found) } else { Err(problems) }
}

/// Reads a ceiling that is about to be signed, and checks what can be checked without the
/// configuration that it will bound. Returns its text.
///
/// # Errors
///
/// Everything that is wrong with it.
pub fn check_ceiling(path: &Path) -> Result<String, Problems> {
    let text = file::read_any(path)?.text;
    let (leaves, problems) = file::parse(path, &text, file::MAX_VALUES);
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    let problems: Vec<Problem> = misplaced_in(&leaves).collect();
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    let (_, leaves) = split_all(leaves).map_err(Problems)?;
    Config::from_leaves(&leaves)?.checked()?;
    Ok(text)
}

impl Config {
    /// The ceilings, who signed them, and what they take away, in lines for a person.
    pub fn describe_ceilings(&self) -> String {
        let mut text = String::new();
        for Ceiling { path, signed_by, taken, .. } in &self.ceilings {
            let signed = match signed_by {
                Some(key) => format!("signed by key {key}"),
                None => "not signed".to_owned(),
            };
            text += &neutral_line(&format!("{}, {signed}", path.display()));
            text += "\n";
            if taken.is_empty() {
                text += "  This ceiling limits no value of your configuration.\n";
            }
            for Taken { key, wanted, wanted_by, held, source } in taken {
                let by = match wanted_by {
                    Source::Default => "by default".to_owned(),
                    other => format!("in {other}"),
                };
                let held = neutral_line(&super::inline(held));
                let wanted = neutral_line(&super::inline(wanted));
                let line = format!("  {key}: limited to {held}, from {wanted} {by} ({source})");
                text += &neutral_line(&line);
                text += "\n";
            }
        }
        if text.is_empty() {
            text = format!(
                "There is no ceiling. Its place is {SYSTEM_CEILING}, or the file that \
                 TOOLHOLD_CEILING names.\n"
            );
        }
        text
    }
}

/// Applies each ceiling to `leaves`, and adds the values that apply instead.
///
/// # Errors
///
/// Everything in a ceiling that can't be applied.
pub(super) fn apply(
    leaves: &mut Vec<Leaf>,
    ceilings: Vec<Unapplied>,
    bases: Bases<'_>,
) -> Result<Vec<Ceiling>, Vec<Problem>> {
    let mut applied = Vec::new();
    for Unapplied { path, leaves: own_leaves, signed_by } in ceilings {
        let (for_all, own_leaves) = split_all(own_leaves)?;
        // As in the user's file, an invalid plugin name is a mistake.
        let contents = Config::from_leaves(&own_leaves)?.checked()?;
        let problems: Vec<Problem> = misplaced_in(&own_leaves).collect();
        if !problems.is_empty() {
            return Err(problems);
        }
        // The rules of a ceiling don't bound a key: they are a gate of their own, before the
        // operator's.
        let bounds: Vec<Leaf> = own_leaves
            .iter()
            .filter(|leaf| !is_at(leaf, ["tools", "policy", "rules"]))
            .cloned()
            .collect();
        let mut taken = bound(leaves, &bounds, &contents, bases)?;
        let inherited = inherited(&bounds, &Config::from_leaves(leaves)?);
        taken.extend(bound(leaves, &inherited, &contents, bases)?);
        let base = Config::from_leaves(leaves)?;
        let names = base.values.plugins.keys();
        let of_each: Vec<Leaf> =
            names.flat_map(|name| for_all.iter().map(|leaf| renamed(leaf, name))).collect();
        taken.extend(bound(leaves, &of_each, &contents, bases)?);
        applied.push(Ceiling { path, signed_by, taken, contents });
    }
    Ok(applied)
}

fn is_at(leaf: &Leaf, key: [&str; 3]) -> bool {
    leaf.path.iter().map(String::as_str).eq(key)
}

/// Separates the keys of `[plugins."*"]`, which bound every plugin.
///
/// # Errors
///
/// The keys of the table that grant nothing: without a table, a plugin has their defaults, so they
/// would not bound every plugin.
fn split_all(leaves: Vec<Leaf>) -> Result<(Vec<Leaf>, Vec<Leaf>), Vec<Problem>> {
    let (for_all, own): (Vec<Leaf>, Vec<Leaf>) = leaves
        .into_iter()
        .partition(|leaf| leaf.path.starts_with(&EVERY_PLUGIN.map(str::to_owned)));
    let grants: Vec<&str> =
        Capability::ALL.iter().flat_map(|capability| capability.facts().keys).copied().collect();
    let wrong = for_all.iter().filter(|leaf| {
        !leaf.path.get(2).is_some_and(|key| grants.contains(&key.as_str()) && leaf.path.len() == 3)
    });
    let problems: Vec<Problem> = wrong
        .map(|leaf| {
            let message = format!(
                "`{}`: [plugins.\"*\"] can have only {}",
                dotted(&leaf.path),
                grants.join(", ")
            );
            Problem::new(leaf.source(), message)
        })
        .collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    // Also where there is no plugin yet.
    let any: Vec<Leaf> = for_all.iter().map(|leaf| renamed(leaf, "any")).collect();
    Config::from_leaves(&any)?.checked()?;
    Ok((for_all, own))
}

/// A key of `[plugins."*"]` for one plugin.
fn renamed(leaf: &Leaf, name: &str) -> Leaf {
    let mut leaf = leaf.clone();
    name.clone_into(&mut leaf.path[1]);
    leaf
}

fn misplaced_in(leaves: &[Leaf]) -> impl Iterator<Item = Problem> {
    leaves.iter().filter(|leaf| is_at(leaf, ["tools", "authorization", "rules"])).map(misplaced)
}

/// The problem for a key whose rules would count only in part.
fn misplaced(leaf: &Leaf) -> Problem {
    Problem::new(
        leaf.source(),
        "`tools.authorization.rules`: a ceiling can't limit this key; write its rules into \
         [tools.policy]",
    )
}

pub(super) fn bound(
    leaves: &mut Vec<Leaf>,
    bounds: &[Leaf],
    contents: &Config,
    bases: Bases<'_>,
) -> Result<Vec<Taken>, Vec<Problem>> {
    let before = Config::from_leaves(leaves)?;
    let mut base = before.clone();
    // A ceiling also bounds a plugin of the plugin folder that has no table of its own.
    for name in contents.values.plugins.keys() {
        base.values.plugins.entry(name.clone()).or_insert_with(Plugin::default);
    }
    let narrowed = narrow(bounds, &base, bases, Narrower::Ceiling)?.leaves;
    let taken: Vec<Taken> = narrowed
        .iter()
        .map(|leaf| {
            let is_written =
                bounds.iter().any(|bound| bound.path == leaf.path && bound.value == leaf.value);
            // If no directory is left, the tools are disabled, though the ceiling has no such key.
            let nothing_left = (is_at(leaf, ["tools", "file", "enabled"])
                || is_at(leaf, ["tools", "shell", "enabled"]))
                && !is_written;
            let path = if nothing_left {
                [&leaf.path[..2], &["allowed_paths".to_owned()]].concat()
            } else {
                leaf.path.clone()
            };
            let key = dotted(&path);
            let all = serde_json::to_value(&before.values).unwrap_or_default();
            let wanted = path.iter().fold(&all, |value, part| &value[part]).clone();
            let held = if path == leaf.path {
                serde_json::to_value(&leaf.value).unwrap_or_default()
            } else {
                Value::Array(Vec::new())
            };
            let source = bounds
                .iter()
                .find(|bound| bound.path == path)
                .map_or_else(|| leaf.source(), Leaf::source);
            Taken { wanted, wanted_by: before.source(&key), held, source, key }
        })
        .collect();
    leaves.extend(narrowed);
    Ok(taken)
}

/// The bounds that the shell and plugins inherit from a ceiling's bounds for all tools. The keys of
/// a plugin can't exceed `[tools.limits]`, `[tools.file]`, `[tools.shell]`, `[tools.web]` and
/// `[plugin_folder]`. Commands can't leave the directories of `[tools.file]`.
fn inherited(bounds: &[Leaf], base: &Config) -> Vec<Leaf> {
    let mut inherited = Vec::new();
    for leaf in bounds {
        let path: Vec<&str> = leaf.path.iter().map(String::as_str).collect();
        let (plugin_key, value) = match path[..] {
            ["tools", "limits", key] => (vec!["limits", key], leaf.value.clone()),
            ["tools", "file", "allowed_paths"] => (vec!["allowed_paths"], leaf.value.clone()),
            ["tools", "shell", "env"] => (vec!["env"], leaf.value.clone()),
            ["tools", "web", key @ ("https_only" | "allowed_private_hosts" | "credentials_to")] => {
                (vec![key], leaf.value.clone())
            }
            // A plugin's processes can't ask for approval, so anything stricter than `allow`
            // denies.
            ["tools", "shell", "network"] if leaf.value.as_str() != Some("allow") => {
                (vec!["network"], false.into())
            }
            ["tools", "shell", "enabled"] if leaf.value.as_bool() == Some(false) => {
                (vec!["shell"], false.into())
            }
            ["plugin_folder", "reload"] => (vec!["reload"], leaf.value.clone()),
            _ => continue,
        };
        if path == ["tools", "file", "allowed_paths"]
            && !bounds.iter().any(|bound| is_at(bound, ["tools", "shell", "allowed_paths"]))
        {
            let path = ["tools", "shell", "allowed_paths"];
            inherited.push(leaf_at(leaf, &path, leaf.value.clone()));
        }
        for name in base.values.plugins.keys() {
            let path: Vec<&str> =
                ["plugins", name].into_iter().chain(plugin_key.iter().copied()).collect();
            inherited.push(leaf_at(leaf, &path, value.clone()));
        }
    }
    inherited
}

fn leaf_at(leaf: &Leaf, path: &[&str], value: toml::Value) -> Leaf {
    let path: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
    Leaf { sources: vec![leaf.source(); path.len()], path, value, ..leaf.clone() }
}
