//! Runs the calls of a server. Long calls become MCP tasks. All calls can be ended together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rmcp::ErrorData;
use rmcp::model::CallToolResult;
use tokio::sync::Semaphore;
use toolhold_core::audit::User;
use toolhold_core::config::Structured;
use toolhold_core::{Answer, CancellationToken, Category, Content, Host, Request};

use crate::answer;
use crate::live::LiveHost;
use crate::metrics::Metrics;
use crate::parked::{OpenQuestion, RequiredInput, WaitingCall};
use crate::tasks::{End, RESULT_LIFETIME, StartedTask, TASK_DELAY, Task, Tasks};

/// Maximum number of calls that a server has at its host at a time, running or waiting there.
/// Further calls wait before they reach the host, which has its own, lower limit of running calls.
const MAX_CALLS: u32 = 4096;

/// Time for running calls to end after the client is gone.
const END_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct Calls {
    live: Arc<LiveHost>,
    call_slots: Arc<Semaphore>,
    pub(crate) end: CancellationToken,
    pub(crate) tasks: Arc<Tasks>,
    /// Set if the server serves metrics.
    metrics: Option<Arc<Metrics>>,
}

/// Cancelled when the caller may make no more calls. A part of the extensions of an HTTP request.
#[derive(Clone, Default)]
pub(crate) struct CallerEnd(pub(crate) CancellationToken);

/// The response to the request of a call.
pub(crate) enum CallResponse {
    Answer(Box<Answer>, RequiredInput),
    Task(Arc<Task>),
    /// The tool sent an elicitation, and the call waits for the answer.
    Question(Box<(WaitingCall, OpenQuestion)>),
    /// The call ended without an answer.
    Lost,
}

impl Calls {
    pub(crate) fn new(live: Arc<LiveHost>) -> Self {
        let call_slots = Arc::new(Semaphore::new(MAX_CALLS as usize));
        Self {
            live,
            call_slots,
            end: CancellationToken::new(),
            tasks: Arc::default(),
            metrics: None,
        }
    }

    pub(crate) fn counted(&self, metrics: Arc<Metrics>) -> Self {
        Self { metrics: Some(metrics), ..self.clone() }
    }

    /// Waits until all calls have ended. Returns `false` if this takes longer than `patience`.
    pub(crate) async fn ended_within(&self, patience: Duration) -> bool {
        tokio::time::timeout(patience, self.call_slots.acquire_many(MAX_CALLS)).await.is_ok()
    }

    /// Checks whether no call runs or waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.call_slots.available_permits() == MAX_CALLS as usize
    }

    /// Cancels all calls and waits until they are recorded.
    pub(crate) async fn end(&self) {
        self.end.cancel();
        if !self.ended_within(END_TIMEOUT).await {
            tracing::warn!("a call did not end within {} s of its client", END_TIMEOUT.as_secs());
        }
    }

    /// Makes a call. The call is cancelled when the server or its caller ends.
    pub(crate) async fn run(&self, request: Request, caller_end: &CallerEnd) -> Answer {
        // Acquiring a permit can't fail, because the semaphore is never closed.
        let _permit = self.call_slots.acquire().await;
        let cancel = request.cancel.clone();
        let started = Instant::now();
        let _running = self.metrics.as_ref().map(|metrics| metrics.count_running());
        let host = self.live.current();
        // Boxed, because each move of this future copies the call.
        let mut call = Box::pin(host.call(request));
        let mut answer = tokio::select! {
            // The answer is polled first, because most calls are ready at once.
            biased;
            answer = &mut call => answer,
            () = self.end.cancelled() => {
                cancel.cancel();
                call.await
            }
            () = caller_end.0.cancelled() => {
                cancel.cancel();
                call.await
            }
        };

        if let Some(note) = self.live.take_note() {
            let content = match &mut answer.outcome {
                Ok(output) => &mut output.content,
                Err(failure) => &mut failure.content,
            };
            content.push(Content::text(format!("[{note}]\n")));
            answer.notices.push(note);
        }
        self.count_call(&host, &answer, started);
        answer
    }

    fn count_call(&self, host: &Host, answer: &Answer, started: Instant) {
        // Unknown tools aren't counted, because clients could create any number of label values.
        let (Some(metrics), Some(tool)) = (&self.metrics, &answer.tool) else { return };
        let outcome = match &answer.outcome {
            Ok(_) => "success",
            Err(failure) => failure.category.as_str(),
        };
        let user = host.user().map(User::unique_name).unwrap_or_default();
        metrics.count_call(tool, outcome, &user, started.elapsed());
        if let Some(summary) = &answer.filtered {
            metrics.count_filtered(summary);
        }
    }

    /// Converts the answer of a call.
    ///
    /// # Errors
    ///
    /// Returns an error if the tool doesn't exist.
    pub(crate) fn result(
        &self,
        answer: Answer,
        structured: Structured,
    ) -> Result<CallToolResult, ErrorData> {
        let tool = answer.tool.as_ref().and_then(|name| self.live.current().tool(name));
        answer::result(answer, tool.as_deref(), structured)
    }

    /// Waits until a call ends or its tool sends an elicitation. With `started_task`, a long call
    /// becomes an MCP task. `gone` is cancelled when the client cancels its request.
    pub(crate) async fn wait(
        &self,
        mut waiting: WaitingCall,
        session: &Arc<str>,
        started_task: Option<&StartedTask>,
        gone: &CancellationToken,
        structured: Structured,
    ) -> CallResponse {
        let cancel = waiting.cancel.clone();
        let mut task_delay = std::pin::pin!(tokio::time::sleep(TASK_DELAY));
        let mut may_become_task = started_task.is_some();
        let task = loop {
            tokio::select! {
                answer = &mut waiting.call => return match answer {
                    Some(answer) => CallResponse::Answer(Box::new(answer), waiting.required),
                    None => CallResponse::Lost,
                },
                Some(question) = waiting.questions.recv() => {
                    return CallResponse::Question(Box::new((waiting, question)));
                }
                () = gone.cancelled(), if !cancel.is_cancelled() => cancel.cancel(),
                () = &mut task_delay, if may_become_task => {
                    may_become_task = false;
                    if let Some(started_task) = started_task
                        && let Some(task) = self.tasks.begin(started_task, session, cancel.clone())
                    {
                        break task;
                    }
                }
            }
        };
        let calls = self.clone();
        let ended_task = Arc::clone(&task);
        tokio::spawn(async move {
            // The elicitations of a task are sent directly to its client, so nothing receives
            // questions here any more.
            let WaitingCall { call, questions, .. } = waiting;
            drop(questions);
            let Some(answer) = call.await else { return };
            let end = match &answer.outcome {
                Err(failure) if failure.category == Category::Cancelled => End::Cancelled,
                _ => End::from_result(calls.result(answer, structured)),
            };
            calls.tasks.end(&ended_task, end);
            tokio::select! {
                () = tokio::time::sleep(RESULT_LIFETIME) => {}
                () = calls.end.cancelled() => {}
            }
            calls.tasks.forget(&ended_task);
        });
        CallResponse::Task(task)
    }
}
