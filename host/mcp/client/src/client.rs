//! Handles the requests and notifications of an upstream server, such as elicitations and progress.

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
use toolhold_core::{Events, Progress};

use crate::inquiries::RunningCalls;

/// Longest progress message in bytes. Longer messages are cut.
const MAX_MESSAGE_BYTES: usize = 1024;

/// Receivers of progress, by the token of their call.
#[derive(Clone, Default)]
pub(crate) struct Watchers(Arc<Mutex<HashMap<ProgressToken, Arc<dyn Events>>>>);

impl Watchers {
    /// Passes progress with this token to `events` until the guard is dropped.
    pub(crate) fn add(&self, token: ProgressToken, events: Arc<dyn Events>) -> WatcherGuard {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(token.clone(), events);
        WatcherGuard { watchers: self.clone(), token }
    }
}

pub(crate) struct WatcherGuard {
    watchers: Watchers,
    token: ProgressToken,
}

impl Drop for WatcherGuard {
    fn drop(&mut self) {
        self.watchers.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.token);
    }
}

/// The client of one connection. Passes elicitations to the user, answers pings, and refuses all
/// other requests.
#[derive(Clone, Default)]
pub(crate) struct Client {
    pub(crate) watchers: Watchers,
    /// Running calls, whose users can be asked.
    pub(crate) running: RunningCalls,
    /// Whether the client declares support for elicitations.
    pub(crate) can_ask_user: bool,
    /// Whether the server announced changed tools.
    pub(crate) changed: Arc<AtomicBool>,
    /// Whether a server without a handshake was asked to announce changes.
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

        let mut fraction = None;
        if let Some(total) = params.total {
            let ratio = params.progress / total;
            // A server may send more progress than the total, or a total of zero.
            if (0.0..=1.0).contains(&ratio) {
                fraction = Some(ratio);
            }
        }

        let raw_message = params.message.unwrap_or_default();
        let cut_message = cut(&raw_message, MAX_MESSAGE_BYTES).to_owned();
        let as_lines = false;
        let message = neutral_line(&shown(cut_message, as_lines));
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
        if !self.can_ask_user {
            return Err(ErrorData::invalid_params("the user can't be asked", None));
        }
        // If the server withdraws the question, the question isn't shown any more.
        match context.ct.run_until_cancelled(self.running.ask(request)).await {
            Some(answer) => {
                answer.map_err(|error| ErrorData::invalid_params(error.to_string(), None))
            }
            None => Err(ErrorData::invalid_params("the question was withdrawn", None)),
        }
    }

    fn get_info(&self) -> ClientConfig {
        let implementation = Implementation::new(toolhold_core::NAME, env!("CARGO_PKG_VERSION"));
        let mut capabilities = ClientCapabilities::default();
        if self.can_ask_user {
            let elicitation = ElicitationCapability::new()
                .with_form(FormElicitationCapability::default())
                .with_url(UrlElicitationCapability::default());
            capabilities.elicitation = Some(elicitation);
        }
        ClientConfig::new(capabilities, implementation)
    }
}
