//! Remembers the findings of earlier calls, so that a call can show only new findings.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use toolhold_sdk::{Failure, store};

use crate::checker::Level;
use crate::finding::Finding;
use crate::report::{Ran, State};

/// How often each finding was there, by checker.
type Seen = BTreeMap<String, BTreeMap<String, u32>>;

/// Marks the findings of this call that the last call in the same folder didn't have, and remembers
/// the findings of this call. Returns also how many findings of the last call are gone. A checker
/// that didn't finish keeps its known findings. Each level is compared with itself, and its first
/// call with the other level: clippy finds more than a check.
///
/// # Errors
///
/// The store can't be used.
pub(crate) fn compare(folder: &Path, level: Level, ran: &mut [Ran]) -> Result<usize, Failure> {
    let mut seen = read(folder, level);
    let other = read(folder, level.other());
    let mut gone = 0;
    for ran in ran {
        let known = seen.get(ran.checker.name()).or_else(|| other.get(ran.checker.name()));
        let mut left = known.cloned().unwrap_or_default();
        let mut now: BTreeMap<String, u32> = BTreeMap::new();
        for (finding, is_new) in &mut ran.findings {
            let identity = identity(finding);
            *is_new = match left.get_mut(&identity) {
                Some(count @ 1..) => {
                    *count -= 1;
                    false
                }
                _ => true,
            };
            *now.entry(identity).or_default() += 1;
        }
        if ran.state == State::Ran {
            gone += left.values().sum::<u32>() as usize;
            seen.insert(ran.checker.name().to_owned(), now);
        }
    }
    store::put(&key(folder, level), serde_json::to_vec(&seen)?)?;
    Ok(gone)
}

/// The findings of the last call. A value of an older version, or a damaged one, counts as empty.
fn read(folder: &Path, level: Level) -> Seen {
    store::get_json(&key(folder, level)).unwrap_or_default().unwrap_or_default()
}

fn key(folder: &Path, level: Level) -> String {
    format!("seen/{:016x}", hash(&(folder, level.as_str())))
}

/// The identity of a finding, which stays the same if lines are added above it.
fn identity(finding: &Finding) -> String {
    let Finding { path, severity, code, message, .. } = finding;
    format!("{:016x}", hash(&(path, severity, code, message)))
}

fn hash(value: &impl Hash) -> u64 {
    // Without random keys, so it is the same in the next call.
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
