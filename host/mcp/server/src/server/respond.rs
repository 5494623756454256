//! Starts or continues the call of a client's request.

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

pub(super) struct ClientCall {
    pub(super) tool: String,
    pub(super) arguments: JsonObject,
    /// The client's answers to the question that ended the previous request.
    pub(super) responses: Option<InputResponses>,
    pub(super) ticket: Option<String>,
    /// Whether the response may be an MCP task.
    pub(super) may_be_task: bool,
}

pub(super) enum Response {
    Answer(Box<Answer>, Structured),
    /// The question that the client must answer before it repeats the request.
    Required(InputRequiredResult),
    Task(Arc<Task>),
}

impl Server {
    pub(super) async fn respond(
        &self,
        call: ClientCall,
        context: &RequestContext<RoleServer>,
    ) -> Result<Response, ErrorData> {
        let ClientCall { tool, arguments, responses, ticket, may_be_task } = call;
        let session = self.session(&context.extensions)?;
        let caller_end = Self::caller_end(&context.extensions);
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
                call: Box::pin(async move { Some(calls.run(request, &caller_end).await) }),
                // A receiver without a sender never gets a question.
                questions: questions.unwrap_or_else(|| tokio::sync::mpsc::channel(1).1),
                cancel,
                required,
            };
            self.calls
                .wait(waiting, session.name(), started_task.as_deref(), &context.ct, structured)
                .await
        } else {
            let answer = Box::new(self.calls.run(request, &caller_end).await);
            CallResponse::Answer(answer, required)
        };

        // The client must get all notifications before the answer, so wait until they are sent.
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

    /// Converts a call's response for the client: an answer, a task, or a question.
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
            CallResponse::Answer(answer, take_question) => {
                let question = take_question();
                let needs_approval = match &answer.outcome {
                    Ok(_) => false,
                    Err(failure) => failure.category == Category::ConfirmationRequired,
                };
                let response = match question {
                    // The client gets the question in place of the failure.
                    Some(question) if needs_approval => Response::Required(question),
                    _ => Response::Answer(answer, structured),
                };
                Ok(response)
            }
            CallResponse::Lost => Err(ErrorData::internal_error("the call ended early", None)),
        }
    }
}
