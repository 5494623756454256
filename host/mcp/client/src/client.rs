//! Answers the requests of an upstream server to its client, such as elicitations. Receives the
//! server's progress notifications.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationCapability,
    FormElicitationCapability, Implementation, ProgressNotificationParam, ProgressToken,
    UrlElicitationCapability,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, ErrorData, RoleClient};
use toolhold_core::text::{cut, neutral_line, shown};
use toolhold_core::{Events, NAME, Progress};

use crate::inquiries::RunningCalls;

/// Most bytes of a progress message.
const MAX_PROGRESS: usize = 1024;

/// The event receivers of the running calls, by progress token.
#[derive(Clone, Default)]
pub(crate) struct Watchers(Arc<Mutex<HashMap<ProgressToken, Arc<dyn Events>>>>);

impl Watchers {
    /// Passes progress with this token on until the guard is dropped.
    pub(crate) fn add(&self, token: ProgressToken, events: Arc<dyn Events>) -> WatcherGuard {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(token.clone(), events);
        WatcherGuard { watchers: self.clone(), token }
    }
}

/// Passes on progress until this guard is dropped.
pub(crate) struct WatcherGuard {
    watchers: Watchers,
    token: ProgressToken,
}

impl Drop for WatcherGuard {
    fn drop(&mut self) {
        self.watchers.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.token);
    }
}

/// The client of one connection. The client may pass elicitations on to the person, and answers
/// pings. The client refuses all other requests of the server.
#[derive(Clone, Default)]
pub(crate) struct Client {
    /// The receivers of progress.
    pub(crate) watchers: Watchers,
    /// The running calls whose server may send elicitations.
    pub(crate) running: RunningCalls,
    /// Whether the client declares that it supports elicitations.
    pub(crate) asks: bool,
    /// Whether the server announced that its tools changed.
    pub(crate) changed: Arc<AtomicBool>,
    /// Whether a server without a handshake was asked to announce changes, and may still announce
    /// them.
    pub(crate) listening: Arc<AtomicBool>,
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
        let ratio = params.total.map(|total| params.progress / total);
        let fraction = ratio.filter(|ratio| (0.0..=1.0).contains(ratio));
        let raw_message = params.message.unwrap_or_default();
        let plain_message = shown(cut(&raw_message, MAX_PROGRESS).to_owned(), false);
        let message = neutral_line(&plain_message);
        events.progress(Progress { fraction, message, untrusted: true });
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changed.store(true, Ordering::Relaxed);
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        if !self.asks {
            return Err(ErrorData::invalid_params("the user can't be asked", None));
        }
        // A question that the server takes back is no longer shown.
        match context.ct.run_until_cancelled(self.running.ask(request)).await {
            Some(answer) => {
                answer.map_err(|error| ErrorData::invalid_params(error.to_string(), None))
            }
            None => Err(ErrorData::invalid_params("the question was withdrawn", None)),
        }
    }

    fn get_info(&self) -> ClientConfig {
        let implementation = Implementation::new(NAME, env!("CARGO_PKG_VERSION"));
        let mut capabilities = ClientCapabilities::default();
        if self.asks {
            let elicitation = ElicitationCapability::new()
                .with_form(FormElicitationCapability::default())
                .with_url(UrlElicitationCapability::default());
            capabilities.elicitation = Some(elicitation);
        }
        ClientConfig::new(capabilities, implementation)
    }
}
