//! Runs long calls as MCP tasks: the request is answered at once, and the client fetches the result
//! later.
//!
//! A call becomes a task only if its client allows this in the request, and only if the call isn't
//! quick. A question while the request is open ends the request, like a question without tasks. A
//! later question is asked in the task.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rmcp::ErrorData;
use rmcp::model::{
    CallToolResult, ContentBlock, DetailedTask, ElicitRequest, ElicitRequestParams, InputRequest,
    InputResponses, JsonObject, TaskPayload, TaskStatus,
};
use rmcp::task_manager::current_timestamp;
use serde_json::Value;
use tokio::sync::oneshot::{Receiver, Sender, channel};
use toolhold_core::CancellationToken;

use crate::random;

/// Returns the owner of a session, which is the session's name without the handle that the caller
/// chose. All connections on stdio belong to the user.
pub(crate) fn owner(session: &str) -> &str {
    match session.rfind(']') {
        Some(end) => &session[..=end],
        None => session.match_indices(' ').nth(1).map_or(session, |(end, _)| &session[..end]),
    }
}

/// Time for which a call keeps its request open before the call becomes a task. A client polls the
/// state of a task, so it gets the result later than an answer. Below half a second, a call feels
/// instant and all proxies accept the wait, so a task has no advantage.
pub(crate) const QUICK: Duration = Duration::from_millis(500);

/// Time for the client to fetch the result of a task.
pub(crate) const KEPT: Duration = Duration::from_secs(300);

/// Most tasks of one session and of all sessions, including stored tasks that have ended. A further
/// call keeps its request open, like a call without tasks.
const MOST_OF_SESSION: usize = 64;
const MOST: usize = 1024;

/// Most bytes of stored results for one session and for all sessions.
const BYTES_OF_SESSION: usize = 32 << 20;
const BYTES: usize = 128 << 20;

/// Limits of the polling interval. The interval is a quarter of the time that the call has taken,
/// so that the result is late by at most a quarter.
const SOONEST: Duration = Duration::from_millis(250);
const LATEST: Duration = Duration::from_secs(5);

/// A call that isn't a task yet, of a client that supports MCP tasks.
#[derive(Debug, Default)]
pub(crate) struct StartedTask(Mutex<Stage>);

#[derive(Debug)]
enum Stage {
    /// The request is open. Contains the last message for a later task.
    Open(Option<String>),
    /// The request ends with a question. The call doesn't become a task any more.
    Asked,
    Task(Arc<Task>),
}

impl Default for Stage {
    fn default() -> Self {
        Self::Open(None)
    }
}

impl StartedTask {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the task that the call has become. Returns `None` if the call isn't a task. In this
    /// case the call can no longer become a task, because its question ends the request.
    pub(crate) fn asks(&self) -> Option<Arc<Task>> {
        let mut stage = self.stage();
        match &*stage {
            Stage::Task(task) => Some(Arc::clone(task)),
            Stage::Open(_) | Stage::Asked => {
                *stage = Stage::Asked;
                None
            }
        }
    }

    /// Checks whether the call is a task.
    pub(crate) fn is_task(&self) -> bool {
        matches!(*self.stage(), Stage::Task(_))
    }

    /// Sets the status message of the task. An empty text removes the message.
    pub(crate) fn say(&self, text: &str) {
        let new_message = if text.is_empty() { None } else { Some(text.to_owned()) };
        match &mut *self.stage() {
            Stage::Open(message) => *message = new_message,
            Stage::Asked => {}
            Stage::Task(task) => task.change(|state| state.message = new_message),
        }
    }
}

/// A call whose result the client fetches.
#[derive(Debug)]
pub(crate) struct Task {
    id: String,
    session: Arc<str>,
    began: Instant,
    /// The start time of the task, in the form for the client.
    created: String,
    cancel: CancellationToken,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    updated: String,
    /// The last status message.
    message: Option<String>,
    /// The open question for the task's client.
    question: Option<TaskQuestion>,
    /// The number of questions so far. The number gives each question a unique name.
    question_count: usize,
    end: Option<(End, Instant)>,
}

#[derive(Debug)]
struct TaskQuestion {
    name: String,
    form: ElicitRequestParams,
    answer: Sender<Value>,
}

/// The result of a task.
#[derive(Debug)]
pub(crate) enum End {
    /// The call's result as JSON. The length of the text equals its memory.
    Completed(String),
    Failed(ErrorData),
    Cancelled,
}

impl End {
    /// Makes the end of a task from the result of its call.
    pub(crate) fn from_result(result: Result<CallToolResult, ErrorData>) -> Self {
        let result = match result {
            Ok(result) => result,
            Err(error) => return Self::Failed(error),
        };
        match serde_json::to_string(&result) {
            Ok(text) => Self::Completed(text),
            Err(error) => Self::Failed(ErrorData::internal_error(error.to_string(), None)),
        }
    }

    /// Returns the size of the result.
    fn bytes(&self) -> usize {
        match self {
            Self::Completed(text) => text.len(),
            Self::Failed(_) | Self::Cancelled => 0,
        }
    }

    fn payload(&self) -> TaskPayload {
        match self {
            Self::Completed(text) => {
                TaskPayload::Completed { result: serde_json::from_str(text).unwrap_or_default() }
            }
            Self::Failed(error) => TaskPayload::Failed { error: object(error) },
            Self::Cancelled => TaskPayload::Cancelled,
        }
    }
}

fn object(error: &ErrorData) -> JsonObject {
    match serde_json::to_value(error) {
        Ok(Value::Object(object)) => object,
        _ => JsonObject::new(),
    }
}

impl Task {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        state.updated = current_timestamp();
        change(&mut state)
    }

    /// Asks the user of the task's client. [`answered`](Self::answered) delivers the answer. If the
    /// task has ended, there is no answer.
    pub(crate) fn ask(&self, form: ElicitRequestParams) -> Receiver<Value> {
        let (sender, receiver) = channel();
        self.change(|state| {
            state.question_count += 1;
            let name = format!("question-{}", state.question_count);
            if state.end.is_none() {
                state.question = Some(TaskQuestion { name, form, answer: sender });
            }
        });
        receiver
    }

    /// Withdraws the open question.
    pub(crate) fn withdraw_question(&self) {
        self.change(|state| state.question = None);
    }

    /// Takes the client's answers. Answers to unknown questions are ignored.
    pub(crate) fn answered(&self, mut answers: InputResponses) {
        self.change(|state| {
            let Some(question) = state.question.take() else { return };
            match answers.remove(&question.name) {
                // If the call no longer waits, the answer is ignored.
                Some(answer) => drop(question.answer.send(answer)),
                None => state.question = Some(question),
            }
        });
    }

    /// Cancels the call. The task ends as soon as its work has stopped.
    pub(crate) fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Describes the new task in the protocol's form.
    pub(crate) fn seed(&self) -> rmcp::model::Task {
        self.describe().task
    }

    /// Describes the task with its question or its result, in the protocol's form.
    pub(crate) fn describe(&self) -> DetailedTask {
        let state = self.state();
        let mut task =
            rmcp::model::Task::new(&self.id, TaskStatus::Working, &self.created, &state.updated);
        task.status_message.clone_from(&state.message);
        let until = match &state.end {
            Some((_, ended)) => *ended,
            None => Instant::now(),
        };
        let age = until - self.began;
        // The task is stored for this time from now on, or from its end.
        task.ttl_ms = Some(milliseconds(age + KEPT));
        task.poll_interval_ms = Some(milliseconds((age / 4).clamp(SOONEST, LATEST)));
        let payload = match (&state.end, &state.question) {
            (Some((end, _)), _) => end.payload(),
            (None, Some(TaskQuestion { name, form, .. })) => {
                let request = InputRequest::Elicitation(ElicitRequest::new(form.clone()));
                TaskPayload::InputRequired { input_requests: [(name.clone(), request)].into() }
            }
            (None, None) => TaskPayload::Working,
        };
        DetailedTask::new(task, payload)
    }

    fn bytes(&self) -> usize {
        self.state().end.as_ref().map_or(0, |(end, _)| end.bytes())
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The tasks of a server.
#[derive(Debug, Default)]
pub(crate) struct Tasks(Mutex<HashMap<String, Arc<Task>>>);

impl Tasks {
    fn lock_tasks(&self) -> MutexGuard<'_, HashMap<String, Arc<Task>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call a task of its session. Returns `None` if a limit is reached, or if the request
    /// ends with a question.
    pub(crate) fn begin(
        &self,
        started_task: &StartedTask,
        session: &Arc<str>,
        cancel: CancellationToken,
    ) -> Option<Arc<Task>> {
        let mut stage = started_task.stage();
        let mut tasks = self.lock_tasks();
        let Stage::Open(message) = &mut *stage else { return None };
        let of_owner = tasks.values().filter(|task| owner(&task.session) == owner(session));
        if tasks.len() >= MOST || of_owner.count() >= MOST_OF_SESSION {
            return None;
        }
        let id = random::name().ok()?;
        let created = current_timestamp();
        let state = State {
            updated: created.clone(),
            message: message.take(),
            question: None,
            question_count: 0,
            end: None,
        };
        let session = Arc::clone(session);
        let task = Arc::new(Task {
            id: id.clone(),
            session,
            began: Instant::now(),
            created,
            cancel,
            state: Mutex::new(state),
        });
        tasks.insert(id, Arc::clone(&task));
        *stage = Stage::Task(Arc::clone(&task));
        Some(task)
    }

    /// Returns a session's task.
    ///
    /// # Errors
    ///
    /// Returns an error if the session has no task with this ID, or if the task ended too long ago.
    pub(crate) fn find(&self, session: &str, id: &str) -> Result<Arc<Task>, ErrorData> {
        if let Some(task) = self.lock_tasks().get(id)
            && *task.session == *session
        {
            return Ok(Arc::clone(task));
        }
        let minutes = KEPT.as_secs() / 60;
        let why = format!("there is no such task: results are kept for {minutes} minutes");
        Err(ErrorData::invalid_params(why, None))
    }

    /// Stores the result of a task unless the limits are reached.
    pub(crate) fn end(&self, task: &Task, end: End) {
        let tasks = self.lock_tasks();
        let mut of_owner: usize = 0;
        let mut of_all: usize = 0;
        for other in tasks.values() {
            let bytes = other.bytes();
            of_all += bytes;
            if owner(&other.session) == owner(&task.session) {
                of_owner += bytes;
            }
        }
        let bytes = end.bytes();
        let end = if of_owner + bytes > BYTES_OF_SESSION || of_all + bytes > BYTES {
            let why = format!(
                "the call has ended, but there is no room for its answer of {bytes} bytes. Answers of earlier tasks are kept for {} minutes after their end",
                KEPT.as_secs() / 60
            );
            End::from_result(Ok(CallToolResult::error(vec![ContentBlock::text(why)])))
        } else {
            end
        };
        task.change(|state| {
            state.question = None;
            state.message = None;
            state.end = Some((end, Instant::now()));
        });
    }

    /// Forgets a task.
    pub(crate) fn forget(&self, task: &Task) {
        self.lock_tasks().remove(&task.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::ElicitationSchema;
    use serde_json::json;

    fn session(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    fn begin(tasks: &Tasks, of: &str) -> Option<Arc<Task>> {
        tasks.begin(&StartedTask::default(), &session(of), CancellationToken::new())
    }

    fn answer(bytes: usize) -> End {
        End::Completed(format!("{{\"isError\":false}}{}", " ".repeat(bytes)))
    }

    fn form() -> ElicitRequestParams {
        let requested_schema = ElicitationSchema::new(std::collections::BTreeMap::new());
        ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: "May it?".to_owned(),
            requested_schema,
        }
    }

    #[test]
    fn task_belongs_to_its_session_and_its_id_is_random() {
        let tasks = Tasks::default();
        let task = begin(&tasks, "a").expect("there is a place");
        assert!(tasks.find("a", &task.id).is_ok());
        assert!(tasks.find("b", &task.id).is_err(), "another session's");
        assert!(tasks.find("a", "").is_err() && tasks.find("a", &task.id[1..]).is_err());
        assert!(task.id.len() >= 32, "{}", task.id);
        tasks.forget(&task);
        assert!(tasks.find("a", &task.id).is_err());
    }

    #[test]
    fn tasks_are_bounded_per_session_and_in_all() {
        let tasks = Tasks::default();
        let kept: Vec<_> =
            (0..MOST_OF_SESSION).map(|_| begin(&tasks, "a").expect("there is a place")).collect();
        assert!(begin(&tasks, "a").is_none());
        tasks.end(&kept[0], answer(1));
        assert!(begin(&tasks, "a").is_none(), "one that has ended is kept");
        tasks.forget(&kept[0]);
        assert!(begin(&tasks, "a").is_some());
        for other in 1..MOST / MOST_OF_SESSION {
            assert!(
                (0..MOST_OF_SESSION).all(|_| begin(&tasks, &other.to_string()).is_some()),
                "{other}"
            );
        }
        assert!(begin(&tasks, "z").is_none());
    }

    #[test]
    fn task_results_are_bounded_with_a_notice() {
        let tasks = Tasks::default();
        let told = |task: &Task| serde_json::to_value(task.describe()).expect("is JSON");
        for of in 0..BYTES / BYTES_OF_SESSION {
            let of = of.to_string();
            let (first, second) = (
                begin(&tasks, &of).expect("there is a place"),
                begin(&tasks, &of).expect("there is a place"),
            );
            tasks.end(&first, answer(BYTES_OF_SESSION - 1000));
            tasks.end(&second, answer(1000));
            let (first, second) = (told(&first), told(&second));
            assert_eq!(first["result"]["isError"], false, "{first}");
            assert_eq!(
                (&second["status"], &second["result"]["isError"]),
                (&json!("completed"), &json!(true)),
                "{second}"
            );
        }
        let other = begin(&tasks, "other").expect("there is a place");
        tasks.end(&other, answer(BYTES / 10));
        assert_eq!(told(&other)["result"]["isError"], true, "the budget of all");
    }

    #[test]
    fn question_ends_an_open_request_and_is_asked_in_a_task() {
        let tasks = Tasks::default();
        let open = StartedTask::default();
        assert!(open.asks().is_none());
        assert!(
            tasks.begin(&open, &session("a"), CancellationToken::new()).is_none(),
            "its request has its answer"
        );

        let begun = StartedTask::default();
        let task =
            tasks.begin(&begun, &session("a"), CancellationToken::new()).expect("there is a place");
        let asked = begun.asks().expect("it is a task");
        let mut answers = asked.ask(form());
        let told = serde_json::to_value(task.describe()).expect("is JSON");
        assert_eq!(told["status"], "input_required");
        assert_eq!(told["inputRequests"]["question-1"]["params"]["message"], "May it?", "{told}");
        task.answered(
            [("question-2".to_owned(), json!("no")), (String::new(), json!("yes"))].into(),
        );
        assert_eq!(
            task.describe().status(),
            TaskStatus::InputRequired,
            "what answers nothing counts for nothing"
        );
        assert!(answers.try_recv().is_err());
        task.answered([("question-1".to_owned(), json!("yes"))].into());
        assert_eq!(answers.try_recv().ok(), Some(json!("yes")));
        assert_eq!(task.describe().status(), TaskStatus::Working);

        let mut late = task.ask(form());
        tasks.end(&task, End::Cancelled);
        assert!(late.try_recv().is_err());
        assert_eq!(task.describe().status(), TaskStatus::Cancelled);
        assert!(
            task.ask(form()).try_recv().is_err()
                && task.describe().status() == TaskStatus::Cancelled,
            "it asks nothing any more"
        );
    }

    #[test]
    fn only_a_protocol_error_fails_a_task() {
        let tasks = Tasks::default();
        let task = begin(&tasks, "a").expect("there is a place");
        tasks.end(&task, End::from_result(Err(ErrorData::invalid_params("no such tool", None))));
        let told = serde_json::to_value(task.describe()).expect("is JSON");
        assert_eq!(
            (&told["status"], &told["error"]["code"]),
            (&json!("failed"), &json!(-32602)),
            "{told}"
        );
        assert!(told.get("result").is_none());
    }
}
