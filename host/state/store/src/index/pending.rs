//! Lets a large write to a derived index go on while the plugin makes the next documents.

use std::panic::resume_unwind;
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};

use crate::{Stop, StoreError};

use crate::index::{Document, DocumentIndex};

/// The size of documents, in bytes, from which indexing their words takes longer than starting a
/// thread.
const LARGE: usize = 64 << 10;

/// A write in progress. It has the lock of the index, so all later operations wait for it.
#[derive(Debug)]
pub struct PendingWrite(JoinHandle<Result<(), StoreError>>);

impl PendingWrite {
    /// Waits for the end of the write.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk failed or the operation was stopped. Nothing was then written.
    pub fn wait(self) -> Result<(), StoreError> {
        self.0.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl DocumentIndex {
    /// Writes documents like [`put`](Self::put). Many documents of a derived index are written by
    /// another thread. This function then returns when only the disk or a stop can make the write
    /// fail. The caller must wait for a returned write before the next write, since that may depend
    /// on it.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`put`](Self::put).
    pub fn begin_put(
        self: &Arc<Self>,
        documents: Vec<Document>,
        stop: &Stop,
    ) -> Result<Option<PendingWrite>, StoreError> {
        let bytes: usize = documents.iter().map(Document::bytes).sum();
        if !self.is_derived || bytes < LARGE {
            return self.put(&documents, stop).map(|()| None);
        }
        let (sender, receiver) = mpsc::sync_channel(1);
        let index = Arc::clone(self);
        let stop = stop.clone();
        let thread = Builder::new().name("toolhold-index".to_owned()).spawn(move || {
            index.write(&documents, &stop, || {
                // The caller waits for this message.
                let _ = sender.send(());
            })
        });
        let thread = thread.map_err(|error| StoreError::Unavailable {
            path: self.path(),
            reason: format!("this machine starts no thread: {error}"),
        })?;
        let write = PendingWrite(thread);
        // The thread sends nothing if the write may exceed the quota or has failed.
        match receiver.recv() {
            Ok(()) => Ok(Some(write)),
            Err(_) => write.wait().map(|()| None),
        }
    }
}
