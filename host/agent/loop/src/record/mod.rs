//! The agent's sessions on disk. Each session is a file to which lines are only added. The file is
//! enough to resume a killed session, and to replay a session without a model.

mod entry;
mod file;
mod load;
mod store;

pub(crate) use entry::FORMAT_VERSION;
pub use entry::{
    Began, Compressed, CompressionMethod, Corrected, Delegated, Ended, RecordedResult, Replacement,
    Rewound, SessionEntry, Task,
};
pub use file::SessionFile;
pub use load::{EarlierMessage, Recorded, read_entries};
pub use store::{SessionStore, StoredSession};

const MAX_LINE: usize = 64 * 1024 * 1024;

/// Larger sessions are refused. Many small entries take far more memory than disk space.
pub(crate) const MAX_ENTRIES: usize = 1_000_000;
