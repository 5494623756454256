//! Runs long calls as MCP tasks: the request is answered at once, and the client fetches the result
//! later.
//!
//! Only a client that allows it in its request gets a task, and only for a call that isn't quick. A
//! question while the request is open ends the request, as without tasks; a later question is asked
//! in the task.

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

/// The owner of a session: its name without the handle that the caller chose. All connections on
/// stdio are the user's.
pub(crate) fn owner(session: &str) -> &str {
    match session.rfind(']') {
        Some(end) => &session[..=end],
        None => session.match_indices(' ').nth(1).map_or(session, |(end, _)| &session[..end]),
    }
}

/// Time that a call holds its request open before it becomes a task. A client polls a task's state
/// and learns its end later than an answer; below half a second, which feels instant and which
/// every proxy accepts, a task isn't worth it.
pub(crate) const QUICK: Duration = Duration::from_millis(500);

/// Time for the client to fetch the result of a task.
pub(crate) const KEPT: Duration = Duration::from_secs(300);

/// Tasks of one session and of all, including ended ones that are kept. A further call holds its
/// request open, as without tasks.
const MOST_OF_SESSION: usize = 64;
const MOST: usize = 1024;

/// Bytes of stored results for one session and for all.
const BYTES_OF_SESSION: usize = 32 << 20;
const BYTES: usize = 128 << 20;

/// Interval for polling: a quarter of the time that the call has taken, so that the result is late
/// by at most that, within these limits.
const SOONEST: Duration = Duration::from_millis(250);
const LATEST: Duration = Duration::from_secs(5);

/// A call of a client that takes tasks, before it is a task.
#[derive(Debug, Default)]
pub(crate) struct StartedTask(Mutex<Stage>);

#[derive(Debug)]
enum Stage {
    /// The request is open. The last message is kept for a later task.
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

    /// The task that it has become. If the call isn't a task, it doesn't become one: the question
    /// ends its request.
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

    /// Whether the call is a task.
    pub(crate) fn is_task(&self) -> bool {
        matches!(*self.stage(), Stage::Task(_))
    }

    /// Sets the status message of the task. An empty text: nothing to say any more.
    pub(crate) fn say(&self, text: &str) {
        let text = (!text.is_empty()).then(|| text.to_owned());
        match &mut *self.stage() {
            Stage::Open(message) => *message = text,
            Stage::Asked => {}
            Stage::Task(task) => task.change(|state| state.message = text),
        }
    }
}

/// A call whose result the client fetches.
#[derive(Debug)]
pub(crate) struct Task {
    id: String,
    session: Arc<str>,
    began: Instant,
    /// The same time, for the client.
    created: String,
    cancel: CancellationToken,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    updated: String,
    /// Its last status message.
    message: Option<String>,
    /// The open question for its client, and the channel for the answer.
    question: Option<(String, ElicitRequestParams, Sender<Value>)>,
    /// Number of questions so far: each has its own name.
    asked: usize,
    end: Option<(End, Instant)>,
}

/// The result of a task.
#[derive(Debug)]
pub(crate) enum End {
    /// The call's result as JSON: its length is its memory.
    Completed(String),
    Failed(ErrorData),
    Cancelled,
}

impl End {
    /// The size of a result.
    pub(crate) fn from_result(result: Result<CallToolResult, ErrorData>) -> Self {
        match result.and_then(|result| {
            serde_json::to_string(&result)
                .map_err(|error| ErrorData::internal_error(error.to_string(), None))
        }) {
            Ok(text) => Self::Completed(text),
            Err(error) => Self::Failed(error),
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

    /// Asks its client's user. The answer comes with [`answered`](Self::answered), never if the
    /// task has ended before.
    pub(crate) fn ask(&self, form: ElicitRequestParams) -> Receiver<Value> {
        let (sender, answer) = channel();
        self.change(|state| {
            state.asked += 1;
            let name = format!("question-{}", state.asked);
            if state.end.is_none() {
                state.question = Some((name, form, sender));
            }
        });
        answer
    }

    /// Takes the question back.
    pub(crate) fn withdraw_question(&self) {
        self.change(|state| state.question = None);
    }

    /// Takes the client's answers. Answers to unknown questions are ignored.
    pub(crate) fn answered(&self, mut answers: InputResponses) {
        self.change(|state| {
            if let Some((name, form, sender)) = state.question.take() {
                match answers.remove(&name) {
                    // If the call no longer waits, the answer is ignored.
                    Some(answer) => drop(sender.send(answer)),
                    None => state.question = Some((name, form, sender)),
                }
            }
        });
    }

    /// Ends it as soon as its work has stopped.
    pub(crate) fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Its state in the protocol's form when it is created.
    pub(crate) fn seed(&self) -> rmcp::model::Task {
        self.describe().task
    }

    /// Its state with its question or its result.
    pub(crate) fn describe(&self) -> DetailedTask {
        let state = self.state();
        let mut task =
            rmcp::model::Task::new(&self.id, TaskStatus::Working, &self.created, &state.updated);
        task.status_message.clone_from(&state.message);
        let age = state.end.as_ref().map_or_else(Instant::now, |(_, at)| *at) - self.began;
        // The task is kept for this time from now on, or from its end.
        task.ttl_ms = Some(milliseconds(age + KEPT));
        task.poll_interval_ms = Some(milliseconds((age / 4).clamp(SOONEST, LATEST)));
        let payload = match (&state.end, &state.question) {
            (Some((end, _)), _) => end.payload(),
            (None, Some((name, form, _))) => {
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

    /// Makes a call a task of its session if there is room and its request doesn't end with a
    /// question.
    pub(crate) fn begin(
        &self,
        begun: &StartedTask,
        session: &Arc<str>,
        cancel: CancellationToken,
    ) -> Option<Arc<Task>> {
        let mut stage = begun.stage();
        let mut held = self.lock_tasks();
        let of_session =
            held.values().filter(|task| owner(&task.session) == owner(session)).count();
        let Stage::Open(message) = &mut *stage else { return None };
        if held.len() >= MOST || of_session >= MOST_OF_SESSION {
            return None;
        }
        let id = random::name().ok()?;
        let created = current_timestamp();
        let state = State {
            updated: created.clone(),
            message: message.take(),
            question: None,
            asked: 0,
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
        held.insert(id, Arc::clone(&task));
        *stage = Stage::Task(Arc::clone(&task));
        Some(task)
    }

    /// A session's task.
    ///
    /// # Errors
    ///
    /// The session has no task with this ID, or the task ended too long ago.
    pub(crate) fn find(&self, session: &str, id: &str) -> Result<Arc<Task>, ErrorData> {
        let task =
            self.lock_tasks().get(id).filter(|task| *task.session == *session).map(Arc::clone);
        task.ok_or_else(|| {
            let kept = KEPT.as_secs() / 60;
            ErrorData::invalid_params(
                format!("there is no such task: results are kept for {kept} minutes"),
                None,
            )
        })
    }

    /// Stores the result of a task if there is room.
    pub(crate) fn end(&self, task: &Task, end: End) {
        let held = self.lock_tasks();
        let of_session: usize = held
            .values()
            .filter(|other| owner(&other.session) == owner(&task.session))
            .map(|other| other.bytes())
            .sum();
        let of_all: usize = held.values().map(|other| other.bytes()).sum();
        let bytes = end.bytes();
        let end = if of_session + bytes > BYTES_OF_SESSION || of_all + bytes > BYTES {
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
