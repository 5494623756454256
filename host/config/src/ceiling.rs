//! Ceilings: the most that an organisation allows. A ceiling is written like a `berth.toml` and
//! bounds the operator's whole configuration, including variables and flags. It only takes away.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::keys::dotted;
use super::leaf::Leaf;
use super::narrow::{Bases, Narrower, narrow};
use super::{Ceiling, Loaded, Plugin, Problem, Taken, file};

/// A ceiling that was read but isn't applied yet.
pub(super) struct Unapplied {
    path: PathBuf,
    leaves: Vec<Leaf>,
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
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    let system = system.map(|path| (path, file::read_ceiling(path)));
    let other = other.map(|path| (path, file::read_named_ceiling(path).map(Some)));
    for (path, text) in system.into_iter().chain(other) {
        let text = match text {
            Ok(Some(text)) => text.text,
            Ok(None) => continue,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        let (leaves, wrong) = file::parse(path, &text, file::MAX_VALUES);
        problems.extend(wrong);
        found.push(Unapplied { path: path.to_owned(), leaves });
    }
    if problems.is_empty() { Ok(found) } else { Err(problems) }
}

/// Applies each ceiling to `leaves`, and adds the values that hold instead.
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
    for Unapplied { path, leaves: own_leaves } in ceilings {
        // As in the user's file, an invalid plugin name is a mistake.
        let contents = Loaded::from_leaves(&own_leaves)?.checked()?;
        let problems: Vec<Problem> = own_leaves
            .iter()
            .filter(|leaf| is_at(leaf, ["tools", "authorization", "rules"]))
            .map(misplaced)
            .collect();
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
        let inherited = inherited(&bounds, &Loaded::from_leaves(leaves)?);
        taken.extend(bound(leaves, &inherited, &contents, bases)?);
        applied.push(Ceiling { path, taken, contents });
    }
    Ok(applied)
}

fn is_at(leaf: &Leaf, key: [&str; 3]) -> bool {
    leaf.path.iter().map(String::as_str).eq(key)
}

/// The problem for a key whose rules would count only in part.
fn misplaced(leaf: &Leaf) -> Problem {
    Problem::new(
        leaf.source(),
        "`tools.authorization.rules`: a ceiling can't bound it; write its rules into [tools.policy]",
    )
}

fn bound(
    leaves: &mut Vec<Leaf>,
    bounds: &[Leaf],
    contents: &Loaded,
    bases: Bases<'_>,
) -> Result<Vec<Taken>, Vec<Problem>> {
    let before = Loaded::from_leaves(leaves)?;
    let mut base = before.clone();
    // A ceiling also bounds a plugin of the plugin folder that has no table of its own.
    for name in contents.config.plugins.keys() {
        base.config.plugins.entry(name.clone()).or_insert_with(Plugin::default);
    }
    let narrowed = narrow(bounds, &base, bases, Narrower::Ceiling)?.leaves;
    let taken = narrowed.iter().map(|leaf| {
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
        let all = serde_json::to_value(&before.config).unwrap_or_default();
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
    });
    let taken = taken.collect();
    leaves.extend(narrowed);
    Ok(taken)
}

/// The bounds that the shell and plugins inherit from a ceiling's bounds for all tools. The keys of
/// a plugin can't exceed `[tools.limits]`, `[tools.file]`, `[tools.shell]`, `[tools.web]` and
/// `[plugin_folder]`. Commands can't leave the directories of `[tools.file]`.
fn inherited(bounds: &[Leaf], base: &Loaded) -> Vec<Leaf> {
    let mut inherited = Vec::new();
    let mut inherit = |leaf: &Leaf, path: &[&str], value: toml::Value| {
        let path: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
        inherited.push(Leaf {
            sources: vec![leaf.source(); path.len()],
            path,
            value,
            ..leaf.clone()
        });
    };
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
            inherit(leaf, &["tools", "shell", "allowed_paths"], leaf.value.clone());
        }
        for name in base.config.plugins.keys() {
            let path: Vec<&str> =
                ["plugins", name].into_iter().chain(plugin_key.iter().copied()).collect();
            inherit(leaf, &path, value.clone());
        }
    }
    inherited
}
