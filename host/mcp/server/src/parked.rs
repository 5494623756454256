//! Parks calls in revision 2026-07-28 until the client answers an elicitation of their tool.
//!
//! In this revision, the server can't send requests. The request ends with the elicitation, and the
//! client repeats the request with the answer and a ticket. The parked call then continues, so
//! nothing runs twice. The ticket is a random name and is valid only in the session of the call.

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

/// The key of the answer in `inputResponses`.
pub(crate) const ANSWER_FIELD: &str = "answer";

/// Prefix of a ticket.
const TICKET_PREFIX: &str = "call-";

/// Takes the question that the client must answer before it repeats the call.
pub(crate) type RequiredInput = Arc<dyn Fn() -> Option<InputRequiredResult> + Send + Sync>;

/// A running call. The future returns `None` if the call ends without an answer.
pub(crate) struct WaitingCall {
    pub(crate) call: Pin<Box<dyn Future<Output = Option<Answer>> + Send>>,
    pub(crate) questions: mpsc::Receiver<OpenQuestion>,
    pub(crate) cancel: CancellationToken,
    pub(crate) required: RequiredInput,
}

/// An elicitation of a call's tool.
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

/// Parked calls by the IDs of their elicitations. The host limits the number of elicitations.
#[derive(Default)]
pub(crate) struct ParkedCalls(Mutex<HashMap<String, ParkedCall>>);

/// Removes the parked call when its tool no longer waits for the answer.
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

    /// Sends an elicitation, which ends the request, and waits for the answer. Returns `None`
    /// without an answer.
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

    /// Parks a call, and returns the elicitation for the client.
    pub(crate) fn park(
        &self,
        session: &Arc<str>,
        tool: &str,
        mut call: WaitingCall,
        question: OpenQuestion,
    ) -> InputRequiredResult {
        // The call continues in its own task, because a call's time limits work only while its
        // future is polled.
        let running = tokio::spawn(call.call);
        call.call = Box::pin(async move { running.await.ok().flatten() });
        let OpenQuestion { id, form, answer } = question;
        let request = InputRequest::Elicitation(ElicitRequest::new(form));
        let requests = [(ANSWER_FIELD.to_owned(), request)].into();
        let required =
            InputRequiredResult::new(Some(requests), Some(format!("{TICKET_PREFIX}{id}")));
        let parked =
            ParkedCall { session: Arc::clone(session), tool: tool.to_owned(), call, answer };
        let mut parked_calls = self.lock();
        // If the tool has already stopped waiting, its guard has run, and nothing would remove an
        // entry that is added now.
        if !parked.answer.is_closed() {
            parked_calls.insert(id, parked);
        }
        required
    }

    /// Takes the parked call to which the ticket belongs, and passes the client's answer on to the
    /// call. Returns `None` if the request has no ticket, or if the ticket belongs to an approval
    /// instead of a parked call.
    ///
    /// # Errors
    ///
    /// Returns an error if the ticket's call isn't parked any more, or if the answer is missing or
    /// invalid.
    pub(crate) fn resume(
        &self,
        session: &str,
        tool: &str,
        ticket: Option<&str>,
        responses: Option<&InputResponses>,
    ) -> Option<Result<WaitingCall, ErrorData>> {
        // Only tickets of parked calls have this prefix.
        let id = ticket?.strip_prefix(TICKET_PREFIX)?;
        Some(self.take(session, tool, id, responses))
    }

    /// Takes a parked call, and gives the client's answer to the call.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer is missing or invalid, or if no such call of the session and
    /// the tool is parked.
    fn take(
        &self,
        session: &str,
        tool: &str,
        id: &str,
        responses: Option<&InputResponses>,
    ) -> Result<WaitingCall, ErrorData> {
        let result = parse_response(responses)?;
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
        // Sending fails if the tool no longer waits. The call then ends without the answer.
        let _ = call.answer.send(result);
        Ok(call.call)
    }
}

/// Parses the answer to the elicitation in the client's responses.
fn parse_response(responses: Option<&InputResponses>) -> Result<ElicitResult, ErrorData> {
    let response = responses.and_then(|responses| responses.get(ANSWER_FIELD));
    let Some(response) = response else {
        let why = format!("`inputResponses` has no `{ANSWER_FIELD}`");
        return Err(ErrorData::invalid_params(why, None));
    };
    serde_json::from_value(response.clone())
        .map_err(|error| ErrorData::invalid_params(error.to_string(), None))
}
