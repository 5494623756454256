//! Runs long calls as MCP tasks. The request is answered at once, and the client fetches the result
//! later.
//!
//! A call becomes a task if its client supports tasks and the call takes longer than
//! [`TASK_DELAY`]. If the call asks a question before that, the request ends with the question.
//! Later questions are asked in the task.

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
use toolhold_core::{CancellationToken, state};

/// Returns the owner of a session. Sessions are named `mcp CALLER HANDLE`, and the caller chooses
/// the handle. The owner is the part before the handle.
pub(crate) fn owner(session: &str) -> &str {
    // The caller with a token of an authorization server is named by a JSON list, which may contain
    // spaces.
    if let Some(list_end) = session.rfind(']') {
        return &session[..=list_end];
    }
    let mut spaces = session.match_indices(' ');
    let _first_space = spaces.next();
    match spaces.next() {
        Some((second_space, _)) => &session[..second_space],
        None => session,
    }
}

/// Time after which a call becomes a task. Polling delays the result of a task, so short calls are
/// answered directly. No proxy closes a request within this time.
pub(crate) const TASK_DELAY: Duration = Duration::from_millis(500);

/// Time for which the result of a task is stored.
pub(crate) const RESULT_LIFETIME: Duration = Duration::from_secs(300);

const SECONDS_PER_MINUTE: u64 = 60;

/// Maximum number of tasks of an owner and of all owners, including ended tasks. Further calls
/// don't become tasks.
const MAX_TASKS_OF_OWNER: usize = 64;
const MAX_TASKS: usize = 1024;

/// Maximum number of bytes of stored results of an owner and of all owners. An error replaces a
/// further result.
const MAX_BYTES_OF_OWNER: usize = 32 << 20;
const MAX_BYTES: usize = 128 << 20;

/// Limits of the polling interval. The interval is a quarter of the call's time so far.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(250);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// A running call that may become an MCP task.
#[derive(Debug, Default)]
pub(crate) struct StartedTask(Mutex<Stage>);

#[derive(Debug)]
enum Stage {
    /// The request is open. Contains the status message.
    Open(Option<String>),
    /// The request ends with a question, so the call can't become a task.
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

    /// Returns the task in which a question can be asked. Returns `None` if the call isn't a task.
    /// The question then ends the request, and the call can't become a task any more.
    pub(crate) fn task_for_question(&self) -> Option<Arc<Task>> {
        let mut stage = self.stage();
        match &*stage {
            Stage::Task(task) => Some(Arc::clone(task)),
            Stage::Open(_) | Stage::Asked => {
                *stage = Stage::Asked;
                None
            }
        }
    }

    pub(crate) fn is_task(&self) -> bool {
        matches!(*self.stage(), Stage::Task(_))
    }

    /// Sets the status message. An empty `text` removes the message.
    pub(crate) fn set_status_message(&self, text: &str) {
        let new_message = if text.is_empty() { None } else { Some(text.to_owned()) };
        match &mut *self.stage() {
            Stage::Open(message) => *message = new_message,
            Stage::Asked => {}
            Stage::Task(task) => task.change(|state| state.message = new_message),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Task {
    id: String,
    session: Arc<str>,
    began: Instant,
    created: String,
    cancel: CancellationToken,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    updated: String,
    message: Option<String>,
    question: Option<TaskQuestion>,
    /// Number of questions so far, which names the next question.
    question_count: usize,
    end: Option<(End, Instant)>,
}

#[derive(Debug)]
struct TaskQuestion {
    name: String,
    form: ElicitRequestParams,
    answer: Sender<Value>,
}

#[derive(Debug)]
pub(crate) enum End {
    /// The result as JSON text, whose length is the memory that it takes.
    Completed(String),
    Failed(ErrorData),
    Cancelled,
}

impl End {
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

    fn bytes(&self) -> usize {
        match self {
            Self::Completed(text) => text.len(),
            Self::Failed(_) | Self::Cancelled => 0,
        }
    }

    fn payload(&self) -> TaskPayload {
        match self {
            Self::Completed(text) => {
                // The text was made from a result, so it is valid JSON.
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

    /// Asks the client's user. [`deliver_answer`](Self::deliver_answer) delivers the answer. The
    /// receiver gets no answer if the task has ended.
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

    pub(crate) fn withdraw_question(&self) {
        self.change(|state| state.question = None);
    }

    /// Delivers the answer to the open question. Answers to earlier questions are ignored.
    pub(crate) fn deliver_answer(&self, mut answers: InputResponses) {
        self.change(|state| {
            let Some(question) = state.question.take() else { return };
            if let Some(answer) = answers.remove(&question.name) {
                // An error means that the call has stopped waiting.
                let _ = question.answer.send(answer);
            } else {
                state.question = Some(question);
            }
        });
    }

    /// Cancels the call. The task ends when the call has ended.
    pub(crate) fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Describes the task without question and result.
    pub(crate) fn seed(&self) -> rmcp::model::Task {
        self.describe().task
    }

    /// Describes the task with its question or its result.
    pub(crate) fn describe(&self) -> DetailedTask {
        let state = self.state();
        let mut task =
            rmcp::model::Task::new(&self.id, TaskStatus::Working, &self.created, &state.updated);
        task.status_message.clone_from(&state.message);
        let work_end = match &state.end {
            Some((_end, ended_at)) => *ended_at,
            None => Instant::now(),
        };
        let work_time = work_end - self.began;
        // The protocol counts the time to live from the start of the task.
        task.ttl_ms = Some(milliseconds(work_time + RESULT_LIFETIME));
        // The client should poll a long task more rarely.
        let quarter = work_time / 4;
        let poll_interval = quarter.clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL);
        task.poll_interval_ms = Some(milliseconds(poll_interval));
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

#[derive(Debug, Default)]
pub(crate) struct Tasks(Mutex<HashMap<String, Arc<Task>>>);

impl Tasks {
    fn lock_tasks(&self) -> MutexGuard<'_, HashMap<String, Arc<Task>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Turns a call into a task. Returns `None` if a limit is reached or the request ends with a
    /// question.
    pub(crate) fn begin(
        &self,
        started_task: &StartedTask,
        session: &Arc<str>,
        cancel: CancellationToken,
    ) -> Option<Arc<Task>> {
        let mut stage = started_task.stage();
        let mut tasks = self.lock_tasks();
        let Stage::Open(message) = &mut *stage else { return None };
        let tasks_of_owner = tasks.values().filter(|task| owner(&task.session) == owner(session));
        let count_of_owner = tasks_of_owner.count();
        if tasks.len() >= MAX_TASKS || count_of_owner >= MAX_TASKS_OF_OWNER {
            return None;
        }

        let id = state::random_digits().ok()?;
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

    /// Returns a task of `session`.
    ///
    /// # Errors
    ///
    /// Returns an error if the session has no such task, or if the task's result has expired.
    pub(crate) fn find(&self, session: &str, id: &str) -> Result<Arc<Task>, ErrorData> {
        if let Some(task) = self.lock_tasks().get(id)
            && *task.session == *session
        {
            return Ok(Arc::clone(task));
        }
        let minutes = RESULT_LIFETIME.as_secs() / SECONDS_PER_MINUTE;
        let why = format!("the task doesn't exist; results are stored for {minutes} minutes");
        Err(ErrorData::invalid_params(why, None))
    }

    /// Stores the result of a task. An error is stored in place of a result that exceeds the limit
    /// of all tasks or of the owner's tasks.
    pub(crate) fn end(&self, task: &Task, end: End) {
        // The lock is held until the end, because two results together could exceed a limit.
        let tasks = self.lock_tasks();
        let mut bytes_of_owner: usize = 0;
        let mut bytes_of_all: usize = 0;
        for other_task in tasks.values() {
            let stored_bytes = other_task.bytes();
            bytes_of_all += stored_bytes;
            if owner(&other_task.session) == owner(&task.session) {
                bytes_of_owner += stored_bytes;
            }
        }

        let bytes = end.bytes();
        let is_above_limit =
            bytes_of_owner + bytes > MAX_BYTES_OF_OWNER || bytes_of_all + bytes > MAX_BYTES;
        let end = if is_above_limit { no_space_left(bytes) } else { end };
        task.change(|state| {
            state.question = None;
            state.message = None;
            state.end = Some((end, Instant::now()));
        });
    }

    pub(crate) fn forget(&self, task: &Task) {
        self.lock_tasks().remove(&task.id);
    }
}

/// Creates the error in place of a result of `bytes` bytes.
fn no_space_left(bytes: usize) -> End {
    let why = format!(
        "the call has ended, but the answer of {bytes} bytes can't be stored, because the \
         answers of earlier tasks take all the space. Answers are stored for {} minutes \
         after the end of a task",
        RESULT_LIFETIME.as_secs() / SECONDS_PER_MINUTE
    );
    End::from_result(Ok(CallToolResult::error(vec![ContentBlock::text(why)])))
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
        let kept: Vec<_> = (0..MAX_TASKS_OF_OWNER)
            .map(|_| begin(&tasks, "a").expect("there is a place"))
            .collect();
        assert!(begin(&tasks, "a").is_none());
        tasks.end(&kept[0], answer(1));
        assert!(begin(&tasks, "a").is_none(), "one that has ended is kept");
        tasks.forget(&kept[0]);
        assert!(begin(&tasks, "a").is_some());
        for other in 1..MAX_TASKS / MAX_TASKS_OF_OWNER {
            assert!(
                (0..MAX_TASKS_OF_OWNER).all(|_| begin(&tasks, &other.to_string()).is_some()),
                "{other}"
            );
        }
        assert!(begin(&tasks, "z").is_none());
    }

    #[test]
    fn task_results_are_bounded_with_a_notice() {
        let tasks = Tasks::default();
        let told = |task: &Task| serde_json::to_value(task.describe()).expect("is JSON");
        for of in 0..MAX_BYTES / MAX_BYTES_OF_OWNER {
            let of = of.to_string();
            let (first, second) = (
                begin(&tasks, &of).expect("there is a place"),
                begin(&tasks, &of).expect("there is a place"),
            );
            tasks.end(&first, answer(MAX_BYTES_OF_OWNER - 1000));
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
        tasks.end(&other, answer(MAX_BYTES / 10));
        assert_eq!(told(&other)["result"]["isError"], true, "the budget of all");
    }

    #[test]
    fn question_ends_an_open_request_and_is_asked_in_a_task() {
        let tasks = Tasks::default();
        let open = StartedTask::default();
        assert!(open.task_for_question().is_none());
        assert!(
            tasks.begin(&open, &session("a"), CancellationToken::new()).is_none(),
            "its request has its answer"
        );

        let begun = StartedTask::default();
        let task =
            tasks.begin(&begun, &session("a"), CancellationToken::new()).expect("there is a place");
        let asked = begun.task_for_question().expect("it is a task");
        let mut answers = asked.ask(form());
        let told = serde_json::to_value(task.describe()).expect("is JSON");
        assert_eq!(told["status"], "input_required");
        assert_eq!(told["inputRequests"]["question-1"]["params"]["message"], "May it?", "{told}");
        task.deliver_answer(
            [("question-2".to_owned(), json!("no")), (String::new(), json!("yes"))].into(),
        );
        assert_eq!(
            task.describe().status(),
            TaskStatus::InputRequired,
            "what answers nothing counts for nothing"
        );
        assert!(answers.try_recv().is_err());
        task.deliver_answer([("question-1".to_owned(), json!("yes"))].into());
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
