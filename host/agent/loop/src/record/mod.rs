//! The agent's sessions on disk: one file of lines for each, to which lines are only added. The
//! file is enough to go on after the process was killed, and to run the session again without a
//! model.

mod entry;
mod file;
mod load;
mod store;

pub use entry::{
    Began, Compressed, CompressionMethod, Corrected, Delegated, Ended, RecordedResult, Replacement,
    SessionEntry, Task,
};
pub use file::SessionFile;
pub use load::{Recorded, read_entries};
pub use store::{SessionStore, StoredSession};

/// Bytes of one line.
const MAX_LINE: usize = 64 * 1024 * 1024;

/// Entries of a session. Many small ones take far more memory than the file has bytes.
pub(crate) const MAX_ENTRIES: usize = 1_000_000;
