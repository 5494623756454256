//! Lets a large write to a derived index go on while the plugin makes the next documents.

use std::panic::resume_unwind;
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};

use crate::{Stop, StoreError};

use crate::index::{Document, DocumentIndex};

/// Bytes of documents whose words take longer than the start of a thread.
const LARGE: usize = 64 << 10;

/// A write that goes on. It has the lock of the index, so all later operations come after it.
#[derive(Debug)]
pub struct PendingWrite(JoinHandle<Result<(), StoreError>>);

impl PendingWrite {
    /// Waits until it ends.
    ///
    /// # Errors
    ///
    /// Nothing was written: the disk failed, or the stop was due.
    pub fn wait(self) -> Result<(), StoreError> {
        self.0.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl DocumentIndex {
    /// Writes documents as [`put`](Self::put) does. Another thread writes many documents of a
    /// derived index, and this returns as soon as only the disk or the stop can fail. The caller
    /// has to wait for a returned write before the next one, since that may build on it.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
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
        // The thread sends nothing if the write may not fit, or has failed.
        match receiver.recv() {
            Ok(()) => Ok(Some(write)),
            Err(_) => write.wait().map(|()| None),
        }
    }
}
