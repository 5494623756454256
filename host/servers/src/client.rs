//! What Berth answers to a server, and what it takes from its notifications.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use berth_core::text::{cut, neutral_line};
use berth_core::{Events, Progress};
use rmcp::model::{
    ClientCapabilities, ClientConfig, Implementation, ProgressNotificationParam, ProgressToken,
};
use rmcp::service::NotificationContext;
use rmcp::{ClientHandler, RoleClient};

/// Most bytes of a progress message.
const MAX_PROGRESS: usize = 1024;

/// The events of the running calls, by the tokens of their progress.
#[derive(Clone, Default)]
pub(crate) struct Watchers(Arc<Mutex<HashMap<ProgressToken, Arc<dyn Events>>>>);

impl Watchers {
    /// Passes progress with this token on until the guard is dropped.
    pub(crate) fn add(&self, token: ProgressToken, events: Arc<dyn Events>) -> WatcherGuard {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(token.clone(), events);
        WatcherGuard { watchers: self.clone(), token }
    }
}

/// Ends the passing on of progress.
pub(crate) struct WatcherGuard {
    watchers: Watchers,
    token: ProgressToken,
}

impl Drop for WatcherGuard {
    fn drop(&mut self) {
        self.watchers.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.token);
    }
}

/// The client of one connection. It declares no capabilities: requests of the server other than a
/// ping are refused.
#[derive(Clone, Default)]
pub(crate) struct Client {
    /// Who learns of progress.
    pub(crate) watchers: Watchers,
    /// Whether the server said that its tools changed.
    pub(crate) changed: Arc<AtomicBool>,
}

impl ClientHandler for Client {
    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        let watchers = self.watchers.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(events) = watchers.get(&params.progress_token).cloned() else { return };
        drop(watchers);
        let fraction = params
            .total
            .map(|total| params.progress / total)
            .filter(|fraction| (0.0..=1.0).contains(fraction));
        let message = params.message.unwrap_or_default();
        let message = neutral_line(cut(&message, MAX_PROGRESS));
        events.progress(Progress { fraction, message });
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changed.store(true, Ordering::Relaxed);
    }

    fn get_info(&self) -> ClientConfig {
        let this = Implementation::new("berth", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), this)
    }
}
