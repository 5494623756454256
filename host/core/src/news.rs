//! What changed since an earlier version and is told once.

use toolhold_config::{Folders, Loaded, Source};
use toolhold_private::PrivateFolder;

/// The file that says that the user knows the default of `autonomy`.
const KNOWN: &str = "default-autonomy";

/// Entries of the data folder that are looked at.
const MAX_ENTRIES: usize = 1000;

/// What the user has to know about a default that changed since an earlier version. `None`: there
/// is nothing, or the user was told already. Blocks.
pub fn unread(config: &Loaded, folders: &Folders) -> Option<String> {
    if config.source("tools.autonomy") != Source::Default {
        return None;
    }
    // If it can't be noted that the user was told, nothing is told: it would be told each time.
    let data = PrivateFolder::make(&folders.data).ok()?;
    if data.file(KNOWN).is_ok() {
        return None;
    }
    let is_used = data.names(MAX_ENTRIES).ok()?.iter().any(|name| name == "audit");
    data.put_lightly(KNOWN, b"sandboxed\n").ok()?;
    is_used.then(|| {
        format!("file tools, and commands in the sandbox, now run without a question by default, since `toolhold undo` restores what they change; to be asked as before, set `autonomy = \"ask\"` in {}", config.own_table("tools"))
    })
}
