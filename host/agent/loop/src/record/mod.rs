//! The agent's sessions on disk. Each session is one file, to which lines are only added. With the
//! file alone, a session can be resumed after its process was killed, and replayed without a model.

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

/// The most bytes of one line.
const MAX_LINE: usize = 64 * 1024 * 1024;

/// The most entries of a session. Many small entries take far more memory than bytes in the file.
pub(crate) const MAX_ENTRIES: usize = 1_000_000;
