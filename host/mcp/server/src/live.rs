//! Replaces the host of a running server. Running calls stay with their host.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use toolhold_core::Host;

/// The time between two checks whether a replaced host still makes calls.
const CALL_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The current host of a server.
pub struct LiveHost {
    current: RwLock<Arc<Host>>,
    replaced: watch::Sender<u64>,
    note: Mutex<Option<String>>,
}

impl LiveHost {
    pub(crate) fn new(host: Arc<Host>) -> Self {
        let (replaced, _) = watch::channel(0);
        Self { current: RwLock::new(host), replaced, note: Mutex::default() }
    }

    /// Returns the host for the next call. Each call keeps its host until the call ends.
    pub fn current(&self) -> Arc<Host> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn replacements(&self) -> watch::Receiver<u64> {
        self.replaced.subscribe()
    }

    /// Replaces the host for later calls. Running calls stay with the earlier host, which is dropped
    /// after the last of them. Clients are notified if the tools differ. A waiting note is dropped.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub fn replace(&self, host: Arc<Host>) {
        *self.note.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let earlier = std::mem::replace(&mut *current, host);
        drop(current);
        self.replaced.send_modify(|count| *count += 1);
        retire(earlier);
    }

    /// Refuses all calls until the host is replaced.
    pub fn refuse_calls(&self, reason: &str) {
        self.current().refuse_calls(reason);
    }

    /// Sets a note for the next answer. Don't use this function for HTTP servers, because the next
    /// client may belong to another person.
    pub fn tell(&self, note: String) {
        *self.note.lock().unwrap_or_else(PoisonError::into_inner) = Some(note);
    }

    pub(crate) fn take_note(&self) -> Option<String> {
        self.note.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Drops a host after its last call, on a thread for blocking work.
fn retire(host: Arc<Host>) {
    tokio::spawn(async move {
        // Each call has a reference to its host.
        while Arc::strong_count(&host) > 1 {
            sleep(CALL_CHECK_INTERVAL).await;
        }
        let _ = tokio::task::spawn_blocking(move || drop(host)).await;
    });
}
