//! Exchanges the host that a server serves, while calls of the earlier host run on.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::sync::watch;
use toolhold_core::Host;

/// The host that serves at the moment.
pub struct LiveHost {
    current: RwLock<Arc<Host>>,
    /// Counts the replacements.
    replaced: watch::Sender<u64>,
    /// The note that the client gets once, with its next answer.
    note: Mutex<Option<String>>,
}

impl LiveHost {
    pub(crate) fn new(host: Arc<Host>) -> Self {
        let (replaced, _) = watch::channel(0);
        Self { current: RwLock::new(host), replaced, note: Mutex::default() }
    }

    /// The host for the next call. A call keeps its host until it ends.
    pub fn current(&self) -> Arc<Host> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes whenever another host takes the place of the one before.
    pub(crate) fn replacements(&self) -> watch::Receiver<u64> {
        self.replaced.subscribe()
    }

    /// Lets another host serve the next calls, and returns the one before. Running calls end with
    /// the host with which they began. Clients are told of other tools.
    pub fn replace(&self, host: Arc<Host>) -> Arc<Host> {
        *self.note.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let before = std::mem::replace(
            &mut *self.current.write().unwrap_or_else(PoisonError::into_inner),
            host,
        );
        self.replaced.send_modify(|count| *count += 1);
        before
    }

    /// Refuses all further calls until another host takes this one's place.
    pub fn refuse_calls(&self, reason: &str) {
        self.current().refuse_calls(reason);
    }

    /// Tells the client something once, with its next answer. Only the client of a pipe: others may
    /// be other people's.
    pub fn tell(&self, note: String) {
        *self.note.lock().unwrap_or_else(PoisonError::into_inner) = Some(note);
    }

    /// Takes the note for the client.
    pub(crate) fn take_note(&self) -> Option<String> {
        self.note.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
