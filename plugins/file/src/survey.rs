//! Counts what is below a directory before it is copied.

use berth_sdk::Failure;
use berth_sdk::search::{self, Ending, Kind, Scope};

use crate::notices::entries;

/// The most entries that a search returns.
const MAX_FOUND: u32 = 10_000;

/// A directory with more below it is not copied.
const MAX_ENTRIES: u64 = 100_000;

/// How much there is to copy.
#[derive(Default)]
pub(crate) struct Survey {
    pub(crate) files: u64,
    entries: u64,
}

impl Survey {
    /// Looks at everything below `source`. Fails where something may not be read: listings leave
    /// that out, so an incomplete copy would look complete.
    pub(crate) fn new(source: &str) -> Result<Self, Failure> {
        let mut survey = Self::default();
        let mut pending = vec![source.to_owned()];
        while let Some(directory) = pending.pop() {
            let mut scope = Scope { root: directory.clone(), ..Scope::default() };
            let mut found = search::find(&scope, MAX_FOUND)?;
            // Too many for one search: directory by directory then.
            let whole = found.ending == Ending::Complete;
            if found.ending == Ending::Limit {
                scope.max_depth = Some(1);
                found = search::find(&scope, MAX_FOUND)?;
            }
            if found.skipped.denied > 0 {
                let denied = entries(found.skipped.denied);
                let message = format!(
                    "{denied} below {source} may not be read by the operator's rules, so nothing was copied"
                );
                return Err(Failure::permanent("not-permitted", message).with_suggestion(
                    "Copy the parts of it that may be read, one by one; list_directory shows them.",
                ));
            }
            survey.entries += found.items.len() as u64;
            match found.ending {
                Ending::Complete if survey.entries <= MAX_ENTRIES => {}
                Ending::Deadline | Ending::Cancelled => {
                    return Err(Failure::new(
                        berth_sdk::Category::Timeout,
                        format!("there was not enough time to check all of {source}"),
                    ));
                }
                _ => {
                    let message = format!("{source} holds more than is copied at once");
                    return Err(Failure::permanent("too-many", message).with_suggestion(format!(
                        "At most {MAX_ENTRIES} entries, and {MAX_FOUND} in one directory, are. Copy parts of it."
                    )));
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
