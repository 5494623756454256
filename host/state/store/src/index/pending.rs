//! Writes to a derived index while the plugin makes the next documents.

use std::panic::resume_unwind;
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};

use crate::{Stop, StoreError};

use crate::index::{Document, DocumentIndex};

/// Indexing this number of bytes takes longer than starting a thread.
const LARGE: usize = 64 << 10;

/// A running write. It holds the lock of the index, so later operations wait for it.
#[derive(Debug)]
pub struct PendingWrite(JoinHandle<Result<(), StoreError>>);

impl PendingWrite {
    /// Waits for the end of the write.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk failed or the operation was stopped. Nothing was written then.
    pub fn wait(self) -> Result<(), StoreError> {
        match self.0.join() {
            Ok(result) => result,
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl DocumentIndex {
    /// Writes documents like [`put`](Self::put). A large write to a derived index continues in
    /// another thread, and can then fail only because of the disk or `stop`. The caller must wait
    /// for the returned write before the next write. Returns `None` if the write has ended.
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
        let is_large = bytes >= LARGE;
        if !self.is_derived || !is_large {
            self.put(&documents, stop)?;
            return Ok(None);
        }
        let (sender, receiver) = mpsc::sync_channel(1);
        let index = Arc::clone(self);
        let stop = stop.clone();
        let thread = Builder::new().name("toolhold-index".to_owned()).spawn(move || {
            index.write(&documents, &stop, || {
                let _ = sender.send(());
            })
        });
        let thread = thread.map_err(|error| StoreError::Unavailable {
            path: self.path(),
            reason: format!("no thread can be started: {error}"),
        })?;
        let write = PendingWrite(thread);
        // If the write fails early or may exceed the quota, the thread ends without a message, so
        // we wait for its result.
        match receiver.recv() {
            Ok(()) => Ok(Some(write)),
            Err(_) => {
                write.wait()?;
                Ok(None)
            }
        }
    }
}
