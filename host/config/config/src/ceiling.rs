//! Ceilings: the limits that an organisation sets for the operator's values.
//!
//! A ceiling has the format of a `toolhold.toml`. It limits the operator's whole configuration,
//! including variables and flags. It never grants anything.

use std::path::{Path, PathBuf};

use serde_json::Value;
use toolhold_component::Capability;
use toolhold_contract::text::neutral_line;

use super::inputs::ceiling_keys_path;
use super::keys::dotted;
use super::leaf::Leaf;
use super::narrow::{Bases, Narrower, narrow, value_at};
use super::unnamed_limits::unnamed_limits;
use super::{
    Ceiling, Config, Plugin, Problem, Problems, SYSTEM_CEILING, Source, Taken, file, signed,
};

/// The keys of this table limit every plugin.
const EVERY_PLUGIN: [&str; 2] = ["plugins", "*"];

/// A ceiling that was read, but isn't applied yet.
#[derive(Clone)]
pub(super) struct Unapplied {
    path: PathBuf,
    leaves: Vec<Leaf>,
    signed_by: Option<String>,
}

/// Reads the ceilings at two paths. The organisation's ceiling `system` may be missing. The ceiling
/// `named`, whose path comes from a variable, must exist.
///
/// # Errors
///
/// Returns all problems of the ceilings. Toolhold doesn't start if a ceiling can't be trusted or
/// read.
pub(super) fn read(
    system: Option<&Path>,
    named: Option<&Path>,
) -> Result<Vec<Unapplied>, Vec<Problem>> {
    let mut texts = Vec::new();
    let mut problems = Vec::new();
    if let Some(path) = system {
        match signed::read(path) {
            Ok(Some((text, signed_by))) => texts.push((path, text, signed_by)),
            Ok(None) => {}
            Err(problem) => problems.push(problem),
        }
    }
    if let Some(path) = named {
        match file::read_named_ceiling(path) {
            Ok(text) => texts.push((path, text, None)),
            Err(problem) => problems.push(problem),
        }
    }

    let mut ceilings = Vec::new();
    for (path, text, signed_by) in texts {
        let (leaves, file_problems) = file::parse(path, &text.text, file::MAX_VALUES);
        problems.extend(file_problems);
        ceilings.push(Unapplied { path: path.to_owned(), leaves, signed_by });
    }
    if problems.is_empty() { Ok(ceilings) } else { Err(problems) }
}

/// Reads a ceiling before it is signed, and checks each of its values. Returns the ceiling's text.
///
/// # Errors
///
/// Returns all problems of the ceiling.
pub fn check_ceiling(path: &Path) -> Result<String, Problems> {
    let text = file::read_any(path)?.text;
    let (leaves, problems) = file::parse(path, &text, file::MAX_VALUES);
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    check_misplaced(&leaves).map_err(Problems)?;
    // `split_all` has checked the keys for every plugin.
    let (_, leaves) = split_all(leaves).map_err(Problems)?;
    Config::from_leaves(&leaves)?.checked()?;
    Ok(text)
}

impl Config {
    /// Describes the ceilings, their signers and the limited values for a person.
    pub fn describe_ceilings(&self) -> String {
        let mut text = String::new();
        for Ceiling { path, signed_by, taken: limited_values, .. } in &self.ceilings {
            let signature = match signed_by {
                Some(key) => format!("signed by key {key}"),
                None => self.why_signature_is_unchecked(path),
            };
            text += &neutral_line(&format!("{}, {signature}", path.display()));
            text += "\n";
            if limited_values.is_empty() {
                text += "  This ceiling limits no value of your configuration.\n";
            }
            for value in limited_values {
                text += &describe_taken(value);
                text += "\n";
            }
        }
        if text.is_empty() {
            text = format!(
                "There is no ceiling. A ceiling is the file {SYSTEM_CEILING}, or the file that \
                 TOOLHOLD_CEILING names.\n"
            );
        }
        text
    }

    /// Returns the reason why the signature of a ceiling isn't checked, if it has a signature.
    fn why_signature_is_unchecked(&self, path: &Path) -> String {
        let organisation = self.read_from.as_ref().and_then(|(_, inputs)| inputs.ceiling.as_ref());
        if organisation.is_some_and(|organisation| organisation == path) {
            let keys = ceiling_keys_path(path);
            return format!(
                "signature not checked, because {} with the public key is missing",
                keys.display()
            );
        }
        let keys = ceiling_keys_path(Path::new(SYSTEM_CEILING));
        format!(
            "signature not checked, because TOOLHOLD_CEILING names the file; only the signature of \
             {SYSTEM_CEILING} is checked, with the public key in {}",
            keys.display()
        )
    }
}

/// Applies each ceiling to `leaves`. For a value above a ceiling, it appends a leaf with the
/// allowed value, which has precedence over the earlier leaf.
///
/// # Errors
///
/// Returns a problem for each value of a ceiling that can't be applied.
pub(super) fn apply(
    leaves: &mut Vec<Leaf>,
    ceilings: Vec<Unapplied>,
    bases: Bases<'_>,
) -> Result<Vec<Ceiling>, Vec<Problem>> {
    let mut applied = Vec::new();
    for Unapplied { path, leaves: own_leaves, signed_by } in ceilings {
        let (for_all, own_leaves) = split_all(own_leaves)?;
        // `checked` refuses an invalid plugin name, as in the user's file.
        let contents = Config::from_leaves(&own_leaves)?.checked()?;
        check_misplaced(&own_leaves)?;

        let mut limited_values = limit(leaves, &own_leaves, &contents, bases)?;

        let base = Config::from_leaves(leaves)?;
        let mut plugin_bounds = Vec::new();
        for name in base.values.plugins.keys() {
            plugin_bounds.extend(for_all.iter().map(|leaf| for_plugin(leaf, name)));
        }
        limited_values.extend(bound(leaves, &plugin_bounds, &contents, bases)?);
        applied.push(Ceiling { path, signed_by, taken: limited_values, contents });
    }
    Ok(applied)
}

/// Applies the table of a principal like a ceiling, and denies the grants that the table doesn't
/// name. `path` is the file with the table, and `source` is the table.
///
/// # Errors
///
/// Returns the same errors as [`apply`].
pub(super) fn apply_table(
    leaves: &mut Vec<Leaf>,
    path: PathBuf,
    limits: &[Leaf],
    source: &Source,
    bases: Bases<'_>,
) -> Result<Ceiling, Vec<Problem>> {
    let named_contents = Config::from_leaves(limits)?.checked()?;
    let mut taken = limit(leaves, limits, &named_contents, bases)?;
    // These limits come from no key for all tools, so they don't limit plugins with named keys.
    let unnamed = unnamed_limits(limits, source, &Config::from_leaves(leaves)?);
    let contents = Config::from_leaves(&[limits, &unnamed].concat())?;
    taken.extend(bound(leaves, &unnamed, &contents, bases)?);
    Ok(Ceiling { path, signed_by: None, taken, contents })
}

/// Limits `leaves` by the values of a ceiling, and by the limits that follow from them for plugins
/// and commands.
fn limit(
    leaves: &mut Vec<Leaf>,
    own_leaves: &[Leaf],
    contents: &Config,
    bases: Bases<'_>,
) -> Result<Vec<Taken>, Vec<Problem>> {
    // A ceiling's policy rules don't limit the operator's list of rules, so they aren't bounds.
    // The policy checks them as a list of their own, before the operator's rules.
    let bounds: Vec<Leaf> = own_leaves
        .iter()
        .filter(|leaf| !is_at(leaf, ["tools", "policy", "rules"]))
        .cloned()
        .collect();
    let mut limited_values = bound(leaves, &bounds, contents, bases)?;

    let base = Config::from_leaves(leaves)?;
    let inherited = inherited_bounds(&bounds, &base);
    limited_values.extend(bound(leaves, &inherited, contents, bases)?);
    Ok(limited_values)
}

fn describe_taken(Taken { key, wanted, wanted_by, held, source }: &Taken) -> String {
    let place = match wanted_by {
        Source::Default => "by default".to_owned(),
        other => format!("in {other}"),
    };
    let held = neutral_line(&super::inline(held));
    let wanted = neutral_line(&super::inline(wanted));
    let line = format!("  {key}: limited to {held}, from {wanted} {place} ({source})");
    neutral_line(&line)
}

fn is_at(leaf: &Leaf, key: [&str; 3]) -> bool {
    leaf.path.iter().map(String::as_str).eq(key)
}

/// Separates the keys of `[plugins."*"]`, which limit every plugin, from the other keys. Returns
/// the keys for every plugin first.
///
/// # Errors
///
/// Returns a problem for each key of `[plugins."*"]` that grants nothing.
fn split_all(leaves: Vec<Leaf>) -> Result<(Vec<Leaf>, Vec<Leaf>), Vec<Problem>> {
    let (for_all, others): (Vec<Leaf>, Vec<Leaf>) = leaves
        .into_iter()
        .partition(|leaf| leaf.path.starts_with(&EVERY_PLUGIN.map(str::to_owned)));
    check_for_all(&for_all)?;
    // Check the values even if there is no plugin. The check needs the name of a plugin, but its
    // result is the same for every name.
    let example: Vec<Leaf> = for_all.iter().map(|leaf| for_plugin(leaf, "any")).collect();
    Config::from_leaves(&example)?.checked()?;
    Ok((for_all, others))
}

/// Checks that each key of `[plugins."*"]` grants a capability.
fn check_for_all(for_all: &[Leaf]) -> Result<(), Vec<Problem>> {
    let grants: Vec<&str> =
        Capability::ALL.iter().flat_map(|capability| capability.facts().keys).copied().collect();
    let mut problems = Vec::new();
    for leaf in for_all {
        if let [_, _, key] = leaf.path.as_slice()
            && grants.contains(&key.as_str())
        {
            continue;
        }
        let key = dotted(&leaf.path);
        let message = format!(
            "`{key}`: only these keys are allowed in [plugins.\"*\"]: {}",
            grants.join(", ")
        );
        problems.push(Problem::new(leaf.source(), message));
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Replaces the `*` in a key of `[plugins."*"]` by `name`.
fn for_plugin(leaf: &Leaf, name: &str) -> Leaf {
    let mut leaf = leaf.clone();
    name.clone_into(&mut leaf.path[1]);
    leaf
}

/// Refuses `tools.authorization.rules`, because only some of these rules would apply.
fn check_misplaced(leaves: &[Leaf]) -> Result<(), Vec<Problem>> {
    let mut problems = Vec::new();
    for leaf in leaves {
        if is_at(leaf, ["tools", "authorization", "rules"]) {
            problems.push(Problem::new(
                leaf.source(),
                "`tools.authorization.rules`: a ceiling can't limit this key; write the rules into \
                 [tools.policy]",
            ));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Limits `leaves` by `bounds`. Returns the limited values. `contents` is the whole ceiling.
pub(super) fn bound(
    leaves: &mut Vec<Leaf>,
    bounds: &[Leaf],
    contents: &Config,
    bases: Bases<'_>,
) -> Result<Vec<Taken>, Vec<Problem>> {
    let before = Config::from_leaves(leaves)?;
    let mut base = before.clone();
    // A plugin in the plugin folder needs no table in the configuration. Give each plugin that the
    // ceiling names a default table, so that the ceiling limits this plugin, too.
    for name in contents.values.plugins.keys() {
        base.values.plugins.entry(name.clone()).or_insert_with(Plugin::default);
    }
    let narrowed = narrow(bounds, &base, bases, Narrower::Ceiling)?.leaves;
    let limited_values = narrowed.iter().map(|leaf| taken_value(leaf, bounds, &before)).collect();
    leaves.extend(narrowed);
    Ok(limited_values)
}

/// Describes a limited value for people. `leaf` replaces a value of `before`, the configuration
/// without the ceiling.
fn taken_value(leaf: &Leaf, bounds: &[Leaf], before: &Config) -> Taken {
    let is_switch =
        is_at(leaf, ["tools", "file", "enabled"]) || is_at(leaf, ["tools", "shell", "enabled"]);
    let ceiling_has_value =
        bounds.iter().any(|bound| bound.path == leaf.path && bound.value == leaf.value);
    let mut path = leaf.path.clone();
    let mut held = serde_json::to_value(&leaf.value).unwrap_or_default();
    // If a ceiling leaves no directory, `leaf` disables the tools with `enabled`. The user then
    // sees the limited `allowed_paths` instead.
    if is_switch && !ceiling_has_value {
        path.pop();
        path.push("allowed_paths".to_owned());
        held = Value::Array(Vec::new());
    }

    let key = dotted(&path);
    let values = serde_json::to_value(&before.values).unwrap_or_default();
    let wanted = value_at(&values, &path).clone();
    // An inherited limit isn't in `bounds` with this path, so its source is the source of `leaf`.
    let bound = bounds.iter().find(|bound| bound.path == path).unwrap_or(leaf);
    Taken { wanted, wanted_by: before.source(&key), held, source: bound.source(), key }
}

/// Returns the limits that follow from a ceiling's limits for all tools. A plugin can't exceed
/// `[tools.limits]`, `[tools.file]`, `[tools.shell]`, `[tools.web]` and `[plugin_folder]`. Commands
/// can't leave the directories of `[tools.file]`.
fn inherited_bounds(bounds: &[Leaf], base: &Config) -> Vec<Leaf> {
    let mut inherited = Vec::new();
    for leaf in bounds {
        let bound_path: Vec<&str> = leaf.path.iter().map(String::as_str).collect();
        let Some((plugin_key, value)) = plugin_bound(&bound_path, &leaf.value) else { continue };
        let shell_paths = ["tools", "shell", "allowed_paths"];
        let bounds_shell = bounds.iter().any(|bound| is_at(bound, shell_paths));
        if bound_path == ["tools", "file", "allowed_paths"] && !bounds_shell {
            inherited.push(leaf_at(leaf, &shell_paths, leaf.value.clone()));
        }
        for name in base.values.plugins.keys() {
            let path = [&["plugins", name][..], &plugin_key].concat();
            inherited.push(leaf_at(leaf, &path, value.clone()));
        }
    }
    inherited
}

/// Converts a limit for all tools into a key of a plugin's table and its value. Returns `None` if
/// the limit doesn't concern plugins.
fn plugin_bound<'p>(path: &[&'p str], value: &toml::Value) -> Option<(Vec<&'p str>, toml::Value)> {
    Some(match *path {
        ["tools", "limits", key] => (vec!["limits", key], value.clone()),
        ["tools", "file", "allowed_paths"] => (vec!["allowed_paths"], value.clone()),
        ["tools", "shell", "env"] => (vec!["env"], value.clone()),
        ["tools", "web", key @ ("https_only" | "allowed_private_hosts" | "credentials_to")] => {
            (vec![key], value.clone())
        }
        // A plugin's processes can't ask for approval. A level stricter than `allow` therefore
        // denies them the network.
        ["tools", "shell", "network"] if value.as_str() != Some("allow") => {
            (vec!["network"], false.into())
        }
        ["tools", "shell", "enabled"] if value.as_bool() == Some(false) => {
            (vec!["shell"], false.into())
        }
        ["plugin_folder", "reload"] => (vec!["reload"], value.clone()),
        _ => return None,
    })
}

/// Makes a leaf for the key `path`, with the source of `leaf`.
fn leaf_at(leaf: &Leaf, path: &[&str], value: toml::Value) -> Leaf {
    let path: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
    Leaf { sources: vec![leaf.source(); path.len()], path, value, ..leaf.clone() }
}
