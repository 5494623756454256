//! Counts the entries below a directory before it is copied, and fails if one may not be read.

use toolhold_sdk::Failure;
use toolhold_sdk::search::{self, Ending, Kind, Scope};

use crate::notices::entries;

/// The greatest number of entries that a search returns.
const MAX_FOUND: u32 = 10_000;

/// The greatest number of entries below a directory that is copied.
const MAX_ENTRIES: u64 = 100_000;

/// The size of a directory tree that is going to be copied.
#[derive(Default)]
pub(crate) struct Survey {
    pub(crate) files: u64,
    entries: u64,
}

impl Survey {
    /// Counts everything below `source`. Fails if something may not be read: listings leave that
    /// out, so an incomplete copy would look complete.
    pub(crate) fn new(source: &str) -> Result<Self, Failure> {
        let mut survey = Self::default();
        let mut pending = vec![source.to_owned()];
        while let Some(directory) = pending.pop() {
            let mut scope = Scope { root: directory.clone(), ..Scope::default() };
            let mut found = search::find(&scope, MAX_FOUND)?;
            // Too many entries for one search: count each directory separately.
            let whole = found.ending == Ending::Complete;
            if found.ending == Ending::Limit {
                scope.max_depth = Some(1);
                found = search::find(&scope, MAX_FOUND)?;
            }
            if found.skipped.denied > 0 {
                let denied = entries(found.skipped.denied);
                let message = format!(
                    "the operator's rules deny reading {denied} below {source}, so nothing was copied"
                );
                return Err(Failure::permanent("not-permitted", message).with_suggestion(
                    "Copy the readable parts one by one; list_directory shows them.",
                ));
            }
            survey.entries += found.items.len() as u64;
            match found.ending {
                Ending::Complete if survey.entries <= MAX_ENTRIES => {}
                Ending::Deadline | Ending::Cancelled => {
                    return Err(Failure::new(
                        toolhold_sdk::Category::Timeout,
                        format!("the time ran out before everything in {source} was counted"),
                    ));
                }
                _ => {
                    let message = format!(
                        "{source} has too many entries; the limit is {MAX_ENTRIES}, and {MAX_FOUND} in one directory"
                    );
                    return Err(Failure::permanent("too-many", message)
                        .with_suggestion("Copy its parts one by one."));
                }
            }
            survey.files +=
                found.items.iter().filter(|entry| entry.kind == Kind::File).count() as u64;
            if !whole {
                pending.extend(
                    found
                        .items
                        .into_iter()
                        .filter(|entry| entry.kind == Kind::Directory)
                        .map(|entry| entry.path),
                );
            }
        }
        Ok(survey)
    }
}
