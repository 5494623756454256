//! Runs the calls of a server. Makes long calls MCP tasks, and ends all calls together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rmcp::ErrorData;
use rmcp::model::CallToolResult;
use tokio::sync::Semaphore;
use toolhold_core::config::Structured;
use toolhold_core::{Answer, CancellationToken, Category, Content, Request};

use crate::answer;
use crate::live::LiveHost;
use crate::metrics::Metrics;
use crate::parked::{OpenQuestion, RequiredInput, WaitingCall};
use crate::tasks::{End, KEPT, QUICK, StartedTask, Task, Tasks};

/// Calls of one process at a time. A host runs fewer calls, and the others wait for a slot in the
/// host.
const CALLS: u32 = 4096;

/// Time for running calls to end when the client is gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// The calls of a server. They can be ended together.
#[derive(Clone)]
pub(crate) struct Calls {
    live: Arc<LiveHost>,
    places: Arc<Semaphore>,
    pub(crate) end: CancellationToken,
    pub(crate) tasks: Arc<Tasks>,
    /// The metrics, if the server serves them.
    metrics: Option<Arc<Metrics>>,
}

/// The state of a call when its request is answered.
pub(crate) enum CallResponse {
    Answer(Box<Answer>, RequiredInput),
    Task(Arc<Task>),
    /// The call waits for the answer to its tool's elicitation.
    Question(Box<(WaitingCall, OpenQuestion)>),
    /// The call ended early.
    Lost,
}

impl Calls {
    pub(crate) fn new(live: Arc<LiveHost>) -> Self {
        let places = Arc::new(Semaphore::new(CALLS as usize));
        Self { live, places, end: CancellationToken::new(), tasks: Arc::default(), metrics: None }
    }

    /// Returns the calls with metrics.
    pub(crate) fn counted(&self, metrics: Arc<Metrics>) -> Self {
        Self { metrics: Some(metrics), ..self.clone() }
    }

    /// Waits until no call runs. Returns `false` if this takes longer than the limit.
    pub(crate) async fn ended_within(&self, patience: Duration) -> bool {
        tokio::time::timeout(patience, self.places.acquire_many(CALLS)).await.is_ok()
    }

    /// Ends all running calls and waits until that is recorded.
    pub(crate) async fn end(&self) {
        self.end.cancel();
        if !self.ended_within(PATIENCE).await {
            tracing::warn!("a call did not end within {} s of its client", PATIENCE.as_secs());
        }
    }

    /// Makes a call that ends with the server.
    pub(crate) async fn run(&self, request: Request) -> Answer {
        // The semaphore is never closed.
        let _permit = self.places.acquire().await;
        let cancel = request.cancel.clone();
        let started = Instant::now();
        let _running = self.metrics.as_ref().map(|metrics| metrics.runs());
        // A separate allocation: a request's task is moved before it runs. Without the allocation,
        // each move would copy the whole call.
        let host = self.live.current();
        let mut call = Box::pin(host.call(request));
        let mut answer = tokio::select! {
            // Most calls end before they wait for anything.
            biased;
            answer = &mut call => answer,
            () = self.end.cancelled() => {
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
        // Only existing tools are counted, or clients would make up label values.
        if let (Some(metrics), Some(tool)) = (&self.metrics, &answer.tool) {
            let outcome = match &answer.outcome {
                Ok(_) => "success",
                Err(failure) => failure.category.as_str(),
            };
            metrics.count_call(tool, outcome, started.elapsed());
            if let Some(summary) = &answer.filtered {
                metrics.filtered(summary);
            }
        }
        answer
    }

    /// Returns the client's answer to a call.
    ///
    /// # Errors
    ///
    /// The tool doesn't exist.
    pub(crate) fn result(
        &self,
        answer: Answer,
        structured: Structured,
    ) -> Result<CallToolResult, ErrorData> {
        let tool = answer.tool.as_ref().and_then(|name| self.live.current().tool(name));
        answer::result(answer, tool.as_deref(), structured)
    }

    /// Waits until a call ends or its tool sends an elicitation. With `started_task`, a long call
    /// becomes a task of its session. `gone` is cancelled when the client cancels its request.
    pub(crate) async fn wait(
        &self,
        mut waiting: WaitingCall,
        session: &Arc<str>,
        started_task: Option<&StartedTask>,
        gone: &CancellationToken,
        structured: Structured,
    ) -> CallResponse {
        let cancel = waiting.cancel.clone();
        let mut quick = std::pin::pin!(tokio::time::sleep(QUICK));
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
                () = &mut quick, if may_become_task => {
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
            // The task sends its elicitations itself.
            let WaitingCall { call, questions, .. } = waiting;
            drop(questions);
            let Some(answer) = call.await else { return };
            let end = match &answer.outcome {
                Err(failure) if failure.category == Category::Cancelled => End::Cancelled,
                _ => End::from_result(calls.result(answer, structured)),
            };
            calls.tasks.end(&ended_task, end);
            tokio::select! {
                () = tokio::time::sleep(KEPT) => {}
                () = calls.end.cancelled() => {}
            }
            calls.tasks.forget(&ended_task);
        });
        CallResponse::Task(task)
    }
}
