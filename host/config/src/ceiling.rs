//! Ceilings: what an organisation allows at most. A ceiling is written like a `berth.toml` and
//! bounds everything that the operator says, variables and flags included. It only takes away, so
//! whoever adds one needs no one's leave.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::keys::dotted;
use super::leaf::Leaf;
use super::narrow::{Bases, Whose, narrow};
use super::{Ceiling, Loaded, Plugin, Problem, Taken, file};

/// A ceiling that was read, and bounds nothing yet.
pub(super) struct Unapplied {
    path: PathBuf,
    leaves: Vec<Leaf>,
}

/// Reads the organisation's file, where there is one, and the `other` one, which has to be there.
///
/// # Errors
///
/// Everything that is wrong with them: a ceiling that can't be believed or understood might have
/// forbidden what is about to be done.
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

/// Lets each ceiling take away from what `leaves` say, and adds to them what holds instead.
///
/// # Errors
///
/// What in a ceiling can't be followed.
pub(super) fn apply(
    leaves: &mut Vec<Leaf>,
    ceilings: Vec<Unapplied>,
    bases: Bases<'_>,
) -> Result<Vec<Ceiling>, Vec<Problem>> {
    let mut applied = Vec::new();
    for Unapplied { path, leaves: said } in ceilings {
        // As in the user's file: a name that no plugin can have is a mistake.
        let says = Loaded::from_leaves(&said)?.checked()?;
        let problems: Vec<Problem> = said
            .iter()
            .filter(|leaf| is_at(leaf, ["tools", "authorization", "rules"]))
            .map(misplaced)
            .collect();
        if !problems.is_empty() {
            return Err(problems);
        }
        // Rules are no bounds of a key: they are a gate of their own, before the operator's.
        let bounds: Vec<Leaf> = said
            .iter()
            .filter(|leaf| !is_at(leaf, ["tools", "policy", "rules"]))
            .cloned()
            .collect();
        let mut taken = bound(leaves, &bounds, &says, bases)?;
        let inherited = inherited(&bounds, &Loaded::from_leaves(leaves)?);
        taken.extend(bound(leaves, &inherited, &says, bases)?);
        applied.push(Ceiling { path, taken, says });
    }
    Ok(applied)
}

fn is_at(leaf: &Leaf, key: [&str; 3]) -> bool {
    leaf.path.iter().map(String::as_str).eq(key)
}

/// What among the operator's rules would count only in part.
fn misplaced(leaf: &Leaf) -> Problem {
    Problem::new(
        leaf.source(),
        "`tools.authorization.rules`: a ceiling can't bound it; write its rules into [tools.policy]",
    )
}

fn bound(
    leaves: &mut Vec<Leaf>,
    bounds: &[Leaf],
    says: &Loaded,
    bases: Bases<'_>,
) -> Result<Vec<Taken>, Vec<Problem>> {
    let before = Loaded::from_leaves(leaves)?;
    let mut base = before.clone();
    // A plugin of the plugin folder has no table of its own where nothing is said of it, and is
    // bounded nevertheless.
    for name in says.config.plugins.keys() {
        base.config.plugins.entry(name.clone()).or_insert_with(Plugin::default);
    }
    let narrowed = narrow(bounds, &base, bases, Whose::Organisation)?.leaves;
    let taken = narrowed.iter().map(|leaf| {
        let is_written =
            bounds.iter().any(|bound| bound.path == leaf.path && bound.value == leaf.value);
        // Where no directory is left, the tools are switched off, which the ceiling doesn't say.
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

/// What the shell and a plugin may not say of themselves where the ceiling bounds it for all tools:
/// no table of a plugin's leads out of `[tools.limits]`, `[tools.file]`, `[tools.shell]`,
/// `[tools.web]` and `[plugin_folder]`, nor commands out of the directories of `[tools.file]`.
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
        let (of_plugin, value) = match path[..] {
            ["tools", "limits", key] => (vec!["limits", key], leaf.value.clone()),
            ["tools", "file", "allowed_paths"] => (vec!["allowed_paths"], leaf.value.clone()),
            ["tools", "shell", "env"] => (vec!["env"], leaf.value.clone()),
            ["tools", "web", key @ ("https_only" | "allowed_private_hosts" | "credentials_to")] => {
                (vec![key], leaf.value.clone())
            }
            // Of a plugin it isn't asked.
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
                ["plugins", name].into_iter().chain(of_plugin.iter().copied()).collect();
            inherit(leaf, &path, value.clone());
        }
    }
    inherited
}
