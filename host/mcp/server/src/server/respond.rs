//! Makes the call of a client's request, or continues a call that waited for an answer.

use std::sync::Arc;

use rmcp::model::{InputRequiredResult, InputResponses, JsonObject};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::Value;
use toolhold_core::config::Structured;
use toolhold_core::{Answer, Approver, CancellationToken, Category, Events, NoEvents, Request};

use super::{Server, takes_tasks};
use crate::approver::{CallApprover, ClientAsks};
use crate::calls::CallResponse;
use crate::meta;
use crate::parked::{RequiredInput, WaitingCall};
use crate::progress::ProgressSender;
use crate::tasks::{StartedTask, Task};

/// A call that a client requests.
pub(super) struct ClientCall {
    pub(super) tool: String,
    pub(super) arguments: JsonObject,
    /// The client's answers to the question that ended an earlier request, with the ticket of that
    /// question.
    pub(super) responses: Option<InputResponses>,
    pub(super) ticket: Option<String>,
    /// Whether the response may be a task.
    pub(super) may_be_task: bool,
}

/// The answer to a request.
pub(super) enum Response {
    Answer(Box<Answer>, Structured),
    /// The question that the client must ask before it repeats the request.
    Required(InputRequiredResult),
    Task(Arc<Task>),
}

impl Server {
    /// Makes a call, or continues a call that waited for an answer.
    ///
    /// # Errors
    ///
    /// Returns an error if the client's ticket isn't valid.
    pub(super) async fn respond(
        &self,
        call: ClientCall,
        context: &RequestContext<RoleServer>,
    ) -> Result<Response, ErrorData> {
        let ClientCall { tool, arguments, responses, ticket, may_be_task } = call;
        let session = self.session(&context.extensions)?;
        let capabilities = context.client_capabilities();
        let client = capabilities.as_ref();
        let structured = self.structured(client);
        let asks = client.map(ClientAsks::new).unwrap_or_default();
        let started_task = if may_be_task && takes_tasks(context, client) {
            Some(Arc::<StartedTask>::default())
        } else {
            None
        };
        drop(capabilities);

        let parked =
            self.asking.parked.resume(session.name(), &tool, ticket.as_deref(), responses.as_ref());
        if let Some(parked) = parked {
            let call = parked?;
            let response =
                self.calls.wait(call, session.name(), None, &context.ct, structured).await;
            return self.response(response, session.name(), &tool, structured);
        }

        let approver = Arc::new(
            CallApprover::new(
                &self.asking,
                &self.tickets,
                session.name(),
                context,
                asks,
                (ticket, responses),
                started_task.clone(),
            )
            .await?,
        );
        let token = context.meta.get_progress_token();
        let (progress, progress_task) = if token.is_some() || started_task.is_some() {
            let (sender, task) =
                ProgressSender::begin(&context.peer, token, started_task.clone(), tool.clone());
            (Some(Arc::new(sender)), task)
        } else {
            (None, None)
        };
        let questions = approver.take_questions();
        let required: RequiredInput = {
            let approver = Arc::clone(&approver);
            Arc::new(move || approver.required())
        };
        // A task outlives its request. A call that waits for an answer does so too.
        let outlives_request = questions.is_some() || started_task.is_some();
        let cancel = if outlives_request { CancellationToken::new() } else { context.ct.clone() };
        let events: Arc<dyn Events> = match &progress {
            Some(progress) => Arc::clone(progress) as _,
            None => Arc::new(NoEvents),
        };
        let request = Request {
            session: Some(session.clone()),
            approver: Some(approver as Arc<dyn Approver>),
            events,
            meta: meta::for_tool(&context.meta),
            cancel: cancel.clone(),
            ..Request::new(tool.clone(), Value::Object(arguments))
        };

        let response = if outlives_request {
            let calls = self.calls.clone();
            let waiting = WaitingCall {
                call: Box::pin(async move { Some(calls.run(request).await) }),
                // Without a sender, nobody asks.
                questions: questions.unwrap_or_else(|| tokio::sync::mpsc::channel(1).1),
                cancel,
                required,
            };
            self.calls
                .wait(waiting, session.name(), started_task.as_deref(), &context.ct, structured)
                .await
        } else {
            let answer = Box::new(self.calls.run(request).await);
            CallResponse::Answer(answer, required)
        };

        // Notifications come before the answer.
        if let Some(progress) = progress {
            progress.end();
        }
        if let Some(progress_task) = progress_task {
            tokio::select! {
                _ = progress_task => {}
                () = context.ct.cancelled() => {}
            }
        }
        self.response(response, session.name(), &tool, structured)
    }

    fn response(
        &self,
        response: CallResponse,
        session: &Arc<str>,
        tool: &str,
        structured: Structured,
    ) -> Result<Response, ErrorData> {
        match response {
            CallResponse::Task(task) => Ok(Response::Task(task)),
            CallResponse::Question(parts) => {
                let (call, question) = *parts;
                Ok(Response::Required(self.asking.parked.park(session, tool, call, question)))
            }
            CallResponse::Answer(answer, required) => {
                let needs_approval = match &answer.outcome {
                    Ok(_) => false,
                    Err(failure) => failure.category == Category::ConfirmationRequired,
                };
                Ok(match required() {
                    Some(required) if needs_approval => Response::Required(required),
                    _ => Response::Answer(answer, structured),
                })
            }
            CallResponse::Lost => Err(ErrorData::internal_error("the call ended early", None)),
        }
    }
}
