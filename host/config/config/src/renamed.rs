//! Renamed keys of the configuration. An old name still applies, and a notice names the new name.

use std::fmt;

use toolhold_contract::text::neutral_line;

use super::keys::dotted;
use super::leaf::Leaf;
use super::{Problem, Source};

const KEYS: [(&str, &str); 3] = [
    ("agent.max_tool_retries", "tools.retry.max_attempts"),
    ("agent.max_retry_duration_secs", "tools.retry.budget_secs"),
    (ALLOW_NETWORK, "tools.shell.network"),
];

/// A renamed key whose values changed, too.
const ALLOW_NETWORK: &str = "tools.shell.allow_network";

/// A key that the configuration sets by an old name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// The old name, as it was written.
    pub old: &'static str,
    /// The new name.
    pub new: &'static str,
    /// The source of the value.
    pub source: Source,
}

/// Writes one line for the person who wrote the key.
impl fmt::Display for Renamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: `{}` was renamed to `{}`; the old name still works",
            neutral_line(&self.source.to_string()),
            self.old,
            self.new
        )
    }
}

/// Replaces the old names of keys with their new names. Returns a problem for each key that is set
/// by both names.
pub(super) fn rename(leaves: &mut [Leaf]) -> Vec<Problem> {
    let mut problems = Vec::new();
    // Each step searches all leaves and then changes one leaf, so the loop uses indexes.
    for index in 0..leaves.len() {
        let key = dotted(&leaves[index].path);
        let Some((old, new)) = KEYS.into_iter().find(|(old, _)| *old == key) else { continue };
        let path: Vec<String> = new.split('.').map(str::to_owned).collect();
        let source = leaves[index].source();
        if let Some(other) = leaves.iter().find(|other| other.path == path) {
            let message = format!(
                "`{old}` was renamed to `{new}`, which is also set ({}); keep only `{new}`",
                other.source()
            );
            problems.push(Problem::new(source, message));
            continue;
        }
        let leaf = &mut leaves[index];
        if old == ALLOW_NETWORK {
            let Some(is_allowed) = leaf.value.as_bool() else {
                let message = format!(
                    "`{old}` takes `true` or `false`; `{new}` takes \"deny\", \"ask\" or \"allow\""
                );
                problems.push(Problem::new(source, message));
                continue;
            };
            leaf.value = if is_allowed { "allow" } else { "deny" }.into();
        }
        leaf.sources = vec![source; path.len()];
        leaf.path = path;
        leaf.renamed = Some(old);
    }
    problems
}

pub(super) fn new_name(old: &str) -> Option<&'static str> {
    KEYS.into_iter().find(|(name, _)| *name == old).map(|(_, new)| new)
}

pub(super) fn renamed(leaves: &[Leaf]) -> Vec<Renamed> {
    let renamed = leaves.iter().filter_map(|leaf| {
        let (old, new) = KEYS.into_iter().find(|(old, _)| leaf.renamed == Some(*old))?;
        Some(Renamed { old, new, source: leaf.source() })
    });
    renamed.collect()
}
