//! Remembers what earlier calls found, so that a call can show only what is new.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use toolhold_sdk::{Failure, store};

use crate::checker::Level;
use crate::finding::Finding;
use crate::report::{Ran, State};

/// How often each finding was there, by checker.
type Seen = BTreeMap<String, BTreeMap<String, u32>>;

/// Marks the findings of this call that the last one in the same folder didn't have, and remembers
/// those of this call. Returns also how many of the last one are gone. A checker that didn't finish
/// keeps what is known of it. Each level is compared with itself, and its first call with the other
/// one: clippy finds more than a check.
///
/// # Errors
///
/// The store can't be used.
pub(crate) fn compare(folder: &Path, level: Level, ran: &mut [Ran]) -> Result<usize, Failure> {
    let key = |level: Level| format!("seen/{:016x}", hash(&(folder, level.as_str())));
    // What an older version wrote, or a damaged value, counts as nothing.
    let read = |level: Level| store::get_json::<Seen>(&key(level)).unwrap_or_default();
    let mut seen = read(level).unwrap_or_default();
    let other = read(level.other()).unwrap_or_default();
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
    store::put(&key(level), serde_json::to_vec(&seen)?)?;
    Ok(gone)
}

/// What stays the same if lines are added above it.
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
