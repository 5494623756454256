//! Makes the call that a client asks for, or goes on with one that waited for an answer.

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

/// A call as a client asks for it.
pub(super) struct ClientCall {
    pub(super) tool: String,
    pub(super) arguments: JsonObject,
    /// The client's answers to the question with which the request ended before, and the ticket.
    pub(super) responses: Option<InputResponses>,
    pub(super) ticket: Option<String>,
    /// Whether it may be answered with a task.
    pub(super) may_be_task: bool,
}

/// The answer to a request.
pub(super) enum Response {
    Answer(Box<Answer>, Structured),
    /// The question that the client has to ask before it repeats the request.
    Required(InputRequiredResult),
    Task(Arc<Task>),
}

impl Server {
    /// Makes a call, or goes on with one that waited for an answer.
    ///
    /// # Errors
    ///
    /// The client's ticket doesn't count.
    pub(super) async fn respond(
        &self,
        call: ClientCall,
        context: &RequestContext<RoleServer>,
    ) -> Result<Response, ErrorData> {
        let ClientCall { tool, arguments, responses, ticket, may_be_task } = call;
        let session = self.session(&context.extensions)?;
        let (begun, structured, asks) = {
            let capabilities = context.client_capabilities();
            let client = capabilities.as_ref();
            let begun =
                (may_be_task && takes_tasks(context, client)).then(Arc::<StartedTask>::default);
            (begun, self.structured(client), client.map(ClientAsks::new).unwrap_or_default())
        };
        let resumed =
            self.asking.parked.resume(session.name(), &tool, ticket.as_deref(), responses.as_ref());
        if let Some(resumed) = resumed {
            let resumed = resumed?;
            let response =
                self.calls.wait(resumed, session.name(), None, &context.ct, structured).await;
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
                begun.clone(),
            )
            .await?,
        );
        let token = context.meta.get_progress_token();
        let tells = token.is_some() || begun.is_some();
        let (telling, told) = tells
            .then(|| ProgressSender::begin(&context.peer, token, begun.clone(), tool.clone()))
            .map_or((None, None), |(telling, told)| (Some(Arc::new(telling)), told));
        let questions = approver.take_questions();
        let required: RequiredInput = {
            let approver = Arc::clone(&approver);
            Arc::new(move || approver.required())
        };
        let outlives = questions.is_some() || begun.is_some();
        let cancel = if outlives { CancellationToken::new() } else { context.ct.clone() };
        let request = Request {
            session: Some(session.clone()),
            approver: Some(approver as Arc<dyn Approver>),
            events: telling.as_ref().map_or_else(
                || Arc::new(NoEvents) as Arc<dyn Events>,
                |telling| Arc::clone(telling) as _,
            ),
            meta: meta::for_tool(&context.meta),
            // A task, and a call that waits for an answer, live longer than their request.
            cancel: cancel.clone(),
            ..Request::new(tool.clone(), Value::Object(arguments))
        };
        let came_to = match questions {
            None if begun.is_none() => {
                let answer = Box::new(self.calls.run(request).await);
                CallResponse::Answer(answer, required)
            }
            questions => {
                let calls = self.calls.clone();
                let waiting = WaitingCall {
                    call: Box::pin(async move { Some(calls.run(request).await) }),
                    // Without a sender, nobody asks.
                    questions: questions.unwrap_or_else(|| tokio::sync::mpsc::channel(1).1),
                    cancel,
                    required,
                };
                self.calls
                    .wait(waiting, session.name(), begun.as_deref(), &context.ct, structured)
                    .await
            }
        };
        // Notifications come before the answer.
        if let Some(telling) = telling {
            telling.end();
        }
        if let Some(told) = told {
            tokio::select! {
                _ = told => {}
                () = context.ct.cancelled() => {}
            }
        }
        self.response(came_to, session.name(), &tool, structured)
    }

    fn response(
        &self,
        came_to: CallResponse,
        session: &Arc<str>,
        tool: &str,
        structured: Structured,
    ) -> Result<Response, ErrorData> {
        match came_to {
            CallResponse::Task(task) => Ok(Response::Task(task)),
            CallResponse::Question(parts) => {
                let (call, question) = *parts;
                Ok(Response::Required(self.asking.parked.park(session, tool, call, question)))
            }
            CallResponse::Answer(answer, required) => {
                let asked = answer
                    .outcome
                    .as_ref()
                    .err()
                    .is_some_and(|failure| failure.category == Category::ConfirmationRequired);
                Ok(match required() {
                    Some(required) if asked => Response::Required(required),
                    _ => Response::Answer(answer, structured),
                })
            }
            CallResponse::Lost => Err(ErrorData::internal_error("the call ended early", None)),
        }
    }
}
