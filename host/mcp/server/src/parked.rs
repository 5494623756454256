//! In revision 2026-07-28, keeps a call waiting until its client repeats the request with the
//! answer to the question of the call's tool.
//!
//! In that revision, the server can't ask while a request is open. The request ends with the
//! question, and the client repeats the request with the answer. The call waits meanwhile, so that
//! no part of the call runs twice. The ticket of the call is a random name, and is valid only in
//! the session of the call.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::ErrorData;
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitResult, InputRequest, InputRequiredResult,
    InputResponses,
};
use tokio::sync::{mpsc, oneshot};
use toolhold_core::{Answer, CancellationToken};

/// The key under which a client answers a question.
pub(crate) const FIELD: &str = "answer";

/// The beginning of a ticket.
const TICKET: &str = "call-";

/// Returns the question that the client must ask before it repeats the request of a call, if there
/// is a question.
pub(crate) type RequiredInput = Arc<dyn Fn() -> Option<InputRequiredResult> + Send + Sync>;

/// A call that runs for a request. `None` if the call ended early without an answer.
pub(crate) struct WaitingCall {
    pub(crate) call: Pin<Box<dyn Future<Output = Option<Answer>> + Send>>,
    pub(crate) questions: mpsc::Receiver<OpenQuestion>,
    pub(crate) cancel: CancellationToken,
    pub(crate) required: RequiredInput,
}

/// A question of a call's tool, and where the answer goes.
pub(crate) struct OpenQuestion {
    id: String,
    form: ElicitRequestParams,
    answer: oneshot::Sender<ElicitResult>,
}

struct ParkedCall {
    session: Arc<str>,
    tool: String,
    call: WaitingCall,
    answer: oneshot::Sender<ElicitResult>,
}

/// The waiting calls of a server, by the names of their questions. The host limits the number of
/// open questions.
#[derive(Default)]
pub(crate) struct ParkedCalls(Mutex<HashMap<String, ParkedCall>>);

/// Removes a question when its call no longer waits for the answer.
struct ParkedGuard<'a>(&'a ParkedCalls, String);

impl Drop for ParkedGuard<'_> {
    fn drop(&mut self) {
        let parked = self.0.lock().remove(&self.1);
        drop(parked);
    }
}

impl ParkedCalls {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, ParkedCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks a question. The question ends the request. Returns `None` if nobody answers.
    pub(crate) async fn ask(
        &self,
        id: String,
        form: ElicitRequestParams,
        questions: &mpsc::Sender<OpenQuestion>,
    ) -> Option<ElicitResult> {
        let (answer, receiver) = oneshot::channel();
        let _guard = ParkedGuard(self, id.clone());
        questions.send(OpenQuestion { id, form, answer }).await.ok()?;
        receiver.await.ok()
    }

    /// Makes a call wait, and returns the question for its client.
    pub(crate) fn park(
        &self,
        session: &Arc<str>,
        tool: &str,
        mut call: WaitingCall,
        question: OpenQuestion,
    ) -> InputRequiredResult {
        // The call runs in its own task, so that its time limits apply.
        let running = tokio::spawn(call.call);
        call.call = Box::pin(async move { running.await.ok().flatten() });
        let OpenQuestion { id, form, answer } = question;
        let request = InputRequest::Elicitation(ElicitRequest::new(form));
        let requests = [(FIELD.to_owned(), request)].into();
        let required = InputRequiredResult::new(Some(requests), Some(format!("{TICKET}{id}")));
        let parked =
            ParkedCall { session: Arc::clone(session), tool: tool.to_owned(), call, answer };
        let mut parked_calls = self.lock();
        // A call that has stopped waiting meanwhile would stay in the map.
        if !parked.answer.is_closed() {
            parked_calls.insert(id, parked);
        }
        required
    }

    /// Takes the call that a repeated request continues. Returns `None` if the request has no
    /// ticket of a waiting call.
    ///
    /// # Errors
    ///
    /// Returns an error if no call waits for this answer.
    pub(crate) fn resume(
        &self,
        session: &str,
        tool: &str,
        ticket: Option<&str>,
        responses: Option<&InputResponses>,
    ) -> Option<Result<WaitingCall, ErrorData>> {
        let id = ticket?.strip_prefix(TICKET)?;
        Some(self.take(session, tool, id, responses))
    }

    fn take(
        &self,
        session: &str,
        tool: &str,
        id: &str,
        responses: Option<&InputResponses>,
    ) -> Result<WaitingCall, ErrorData> {
        let response =
            responses.and_then(|responses| responses.get(FIELD)).cloned().ok_or_else(|| {
                ErrorData::invalid_params(format!("`inputResponses` has no `{FIELD}`"), None)
            })?;
        let result: ElicitResult = serde_json::from_value(response)
            .map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
        let mut parked = self.lock();
        let belongs_to_request = match parked.get(id) {
            Some(call) => *call.session == *session && call.tool == tool,
            None => false,
        };
        let call = if belongs_to_request { parked.remove(id) } else { None };
        drop(parked);
        let Some(call) = call else {
            return Err(ErrorData::invalid_params(
                "`requestState` is invalid: no call waits for this answer; repeat the call without `requestState`",
                None,
            ));
        };
        // If the call no longer waits, it ends by itself.
        let _ = call.answer.send(result);
        Ok(call.call)
    }
}
