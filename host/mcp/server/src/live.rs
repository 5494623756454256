//! Exchanges the host that a server serves, while calls of the earlier host run on.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::sync::watch;
use toolhold_core::Host;

/// The host that serves at the moment.
pub struct LiveHost {
    current: RwLock<Arc<Host>>,
    /// The number of replacements.
    replaced: watch::Sender<u64>,
    /// The note that the client gets once with its next answer.
    note: Mutex<Option<String>>,
}

impl LiveHost {
    pub(crate) fn new(host: Arc<Host>) -> Self {
        let (replaced, _) = watch::channel(0);
        Self { current: RwLock::new(host), replaced, note: Mutex::default() }
    }

    /// Returns the host for the next call. A call keeps its host until it ends.
    pub fn current(&self) -> Arc<Host> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a receiver that changes whenever the host is replaced.
    pub(crate) fn replacements(&self) -> watch::Receiver<u64> {
        self.replaced.subscribe()
    }

    /// Replaces the host for the next calls. Returns the earlier host, in which running calls
    /// continue. Clients get a notification if the tools are different.
    pub fn replace(&self, host: Arc<Host>) -> Arc<Host> {
        *self.note.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let earlier = std::mem::replace(&mut *current, host);
        drop(current);
        self.replaced.send_modify(|count| *count += 1);
        earlier
    }

    /// Refuses all further calls until the host is replaced.
    pub fn refuse_calls(&self, reason: &str) {
        self.current().refuse_calls(reason);
    }

    /// Sets a note that the client gets once with its next answer. Call this function only if the
    /// server serves one client over a pipe, because clients over HTTP may belong to other people.
    pub fn tell(&self, note: String) {
        *self.note.lock().unwrap_or_else(PoisonError::into_inner) = Some(note);
    }

    /// Takes the note for the client.
    pub(crate) fn take_note(&self) -> Option<String> {
        self.note.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
