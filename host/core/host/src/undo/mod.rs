//! Opens the store of undo for a user, and records an undo in the audit log.

mod call;
mod tool;

use std::time::Duration;

use toolhold_audit::RollbackRecord;
use toolhold_config::{Config, Folders};
use toolhold_contract::HostError;

pub(crate) use call::{CallChanges, CallJournal, Undo};
pub(crate) use tool::UndoTool;

pub use toolhold_undo::{
    ChangeKind, SavedChanges, UndoChange, UndoConflict, UndoEntry, UndoError, UndoPlan, UndoStore,
};

/// Opens the store of the changes by the user's calls. All programs of the user that use these
/// folders share the store.
pub fn store(config: &Config, folders: &Folders) -> UndoStore {
    let undo = config.values.tools.undo;
    let bounds = toolhold_undo::UndoLimits {
        call_bytes: undo.call_mib.get() << 20,
        total_bytes: undo.max_mib.get() << 20,
        age: Duration::from_secs(undo.days.get() * 24 * 3600),
    };
    UndoStore::in_folder(folders.data.join("undo"), bounds)
}

/// Records an undo in the audit log. Blocks.
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
    let record =
        RollbackRecord { call: &about.call, tool: &about.tool, session: &about.session, by, error };
    toolhold_audit::record_rollback(config, folders, &record, front_end)
}
