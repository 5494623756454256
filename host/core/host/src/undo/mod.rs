//! Opens the store for undo, and records an undo in the audit log.

mod call;
mod tool;

use std::time::Duration;

use toolhold_audit::{EntryOrigin, RollbackRecord};
use toolhold_config::{Config, Folders};
use toolhold_contract::HostError;

pub(crate) use call::{CallChanges, CallJournal, Undo};
pub(crate) use tool::UndoTool;

pub use toolhold_undo::{
    ChangeKind, SavedChanges, UndoChange, UndoConflict, UndoEntry, UndoError, UndoPlan, UndoStore,
};

const MIB: u64 = 1024 * 1024;
const SECONDS_OF_DAY: u64 = 24 * 3600;

/// Opens the store for undo, with the limits in the configuration. All processes of the user share
/// the store.
pub fn store(config: &Config, folders: &Folders) -> UndoStore {
    let undo = config.values.tools.undo;
    let limits = toolhold_undo::UndoLimits {
        call_bytes: undo.call_mib.get() * MIB,
        total_bytes: undo.max_mib.get() * MIB,
        age: Duration::from_secs(undo.days.get() * SECONDS_OF_DAY),
    };
    UndoStore::in_folder(folders.data.join("undo"), limits)
}

/// Records an undo in the audit log. `about` is the undone call, `by` is the origin of the undo,
/// and `error` is the reason for a failure. Blocks.
///
/// # Errors
///
/// [`HostError::Io`] if the undo can't be recorded.
pub fn record(
    config: &Config,
    folders: &Folders,
    about: &UndoEntry,
    by: &str,
    error: Option<&str>,
    front_end: &str,
) -> Result<(), HostError> {
    let origin = EntryOrigin::new(front_end.to_owned(), folders);
    record_by(config, folders, about, by, error, origin)
}

fn record_by(
    config: &Config,
    folders: &Folders,
    about: &UndoEntry,
    by: &str,
    error: Option<&str>,
    origin: EntryOrigin,
) -> Result<(), HostError> {
    let record =
        RollbackRecord { call: &about.call, tool: &about.tool, session: &about.session, by, error };
    toolhold_audit::record_rollback(config, folders, &record, origin)
}
