//! What the loop reaches: the model and the tools, or the record of both.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use berth_core::{
    Answer, Body, CancellationToken, Category, Content, Definition, Host, HostError, Request,
    Session,
};
use berth_models::{
    CallResult, ModelAnswer, ModelClient, ModelEndpoint, ModelError, ModelErrorKind, ModelEvent,
    Part, Turn,
};
use serde_json::Value;

use crate::ending::{EndKind, Ending};
use crate::record::{Ended, Entry, RecordedResult, Task, read_entries};
use crate::settings::AgentSettings;
use crate::waiting::MeasuringApprover;

/// Most bytes of an image in a result.
const MAX_IMAGE: usize = 5 * 1024 * 1024;

/// The model and the tools, or what they did.
pub(crate) enum Outside {
    Live(Arc<Live>),
    Recorded(Recording),
}

/// The model and the tools.
pub(crate) struct Live {
    pub(crate) host: Host,
    pub(crate) session: Session,
    pub(crate) model: ChosenModel,
    /// The one that summarises. `None`: `model` does.
    pub(crate) summariser: Option<ChosenModel>,
    pub(crate) approver: Arc<MeasuringApprover>,
}

/// A provider and its model, ready to be asked.
#[derive(Clone, Debug)]
pub struct ChosenModel {
    pub(crate) client: ModelClient,
    pub(crate) provider: ModelEndpoint,
    pub(crate) model: String,
}

impl ChosenModel {
    /// Asks it, and gives what it says while it says it.
    ///
    /// # Errors
    ///
    /// There is no whole answer.
    pub async fn ask(
        &self,
        turn: &Turn,
        on_event: &mut (dyn FnMut(ModelEvent) + Send),
        cancel: &CancellationToken,
    ) -> Result<ModelAnswer, ModelError> {
        self.client.ask(&self.provider, turn, on_event, cancel).await
    }
}

/// A call, ready to be made.
#[derive(Clone, Debug)]
pub(crate) struct ReadyCall {
    /// The model's ID for it.
    pub(crate) id: String,
    /// The tool's name, as the model wrote it.
    pub(crate) name: String,
    pub(crate) arguments: Value,
    pub(crate) read_only: bool,
    /// Whether it needs approval if it acts.
    pub(crate) is_doubtful: bool,
    /// What the model is told with the result.
    pub(crate) warning: Option<String>,
}

impl ReadyCall {
    /// A call that isn't made.
    pub(crate) fn without_arguments(id: &str, name: &str) -> Self {
        let arguments = Value::Object(serde_json::Map::new());
        Self {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments,
            read_only: false,
            is_doubtful: false,
            warning: None,
        }
    }
}

/// Why the model gave no answer.
pub(crate) enum AskError {
    /// The task was cancelled.
    Cancelled,
    /// The request is larger than the model can read.
    ContextFull(String),
    /// Anything else, for the person.
    Failed(String),
    /// The record ends here: how the task ended.
    RecordEnds(Ending),
}

impl Outside {
    /// The tools that the model is offered, and whether each exists: in a stable order.
    pub(crate) fn tools(&mut self) -> Result<Vec<Arc<Definition>>, HostError> {
        match self {
            Self::Live(live) => {
                let offered = live.host.tools_for(&live.session)?;
                Ok(offered.into_iter().map(|tool| tool.definition).collect())
            }
            Self::Recorded(recording) => Ok(recording.next_tools()),
        }
    }

    /// Whether a call only reads. `ahead`: the number of calls that are made before it, and have no
    /// result yet.
    pub(crate) fn reads(&self, name: &str, arguments: &Value, ahead: usize) -> bool {
        match self {
            Self::Live(live) => live
                .host
                .tool(name)
                .is_some_and(|tool| tool.annotations.read_only || tool.reads_with(arguments)),
            Self::Recorded(recording) => {
                recording.results.get(ahead).is_some_and(|result| result.read_only)
            }
        }
    }

    /// Berth itself gave the next result.
    pub(crate) fn skip_result(&mut self) {
        if let Self::Recorded(recording) = self {
            recording.results.pop_front();
        }
    }

    /// Asks the model.
    pub(crate) async fn ask(
        &mut self,
        turn: &Turn,
        on_event: &mut (dyn FnMut(ModelEvent) + Send),
        cancel: &CancellationToken,
    ) -> Result<ModelAnswer, AskError> {
        match self {
            Self::Live(live) => answered(live.model.ask(turn, on_event, cancel).await),
            Self::Recorded(recording) => recording.answer(on_event),
        }
    }

    /// Asks the model that summarises.
    pub(crate) async fn summarise(
        &mut self,
        turn: &Turn,
        cancel: &CancellationToken,
    ) -> Result<ModelAnswer, AskError> {
        match self {
            Self::Live(live) => {
                let model = live.summariser.as_ref().unwrap_or(&live.model);
                answered(model.ask(turn, &mut |_| {}, cancel).await)
            }
            Self::Recorded(recording) => Err(recording.ending()),
        }
    }

    /// Makes calls: all at once.
    pub(crate) async fn call(
        &mut self,
        calls: &[ReadyCall],
        cancel: &CancellationToken,
    ) -> Vec<RecordedResult> {
        match self {
            Self::Live(live) => {
                let mut running = Vec::new();
                for call in calls {
                    let (live, call, cancel) = (Arc::clone(live), call.clone(), cancel.clone());
                    running.push(tokio::spawn(async move { live.call(&call, &cancel).await }));
                }
                let mut results = Vec::new();
                for (call, running) in calls.iter().zip(running) {
                    results.push(running.await.unwrap_or_else(|error| {
                        let text = format!("the call failed: {error}");
                        let category = Some(Category::PermanentFailure);
                        RecordedResult::new(call, vec![Part::Text(text)], category)
                    }));
                }
                results
            }
            Self::Recorded(recording) => calls.iter().map(|call| recording.result(call)).collect(),
        }
    }

    /// How long a person has been asked so far.
    pub(crate) fn waited(&self) -> std::time::Duration {
        match self {
            Self::Live(live) => live.approver.waited(),
            Self::Recorded(_) => std::time::Duration::ZERO,
        }
    }
}

fn answered(answer: Result<ModelAnswer, ModelError>) -> Result<ModelAnswer, AskError> {
    answer.map_err(|error| match error.kind {
        ModelErrorKind::Cancelled => AskError::Cancelled,
        ModelErrorKind::Context => AskError::ContextFull(error.to_string()),
        _ => AskError::Failed(error.to_string()),
    })
}

impl Live {
    async fn call(&self, call: &ReadyCall, cancel: &CancellationToken) -> RecordedResult {
        let request = Request {
            session: Some(self.session.clone()),
            approver: Some(Arc::clone(&self.approver) as _),
            cancel: cancel.child_token(),
            doubtful: call.is_doubtful,
            ..Request::new(&call.name, call.arguments.clone())
        };
        recorded(call, self.host.call(request).await)
    }
}

/// The answer of the host, as the model gets it and as it is recorded.
fn recorded(call: &ReadyCall, answer: Answer) -> RecordedResult {
    let rest = answer.rest;
    let (content, category) = match answer.outcome {
        Ok(output) => (parts(output.content), None),
        Err(failure) => {
            let mut content = vec![Part::Text(failure.feedback())];
            content.extend(parts(failure.content));
            (content, Some(failure.category))
        }
    };
    let mut result = RecordedResult::new(call, content, category);
    result.rest = rest;
    result
}

impl RecordedResult {
    /// The result of a call.
    pub(crate) fn new(call: &ReadyCall, content: Vec<Part>, category: Option<Category>) -> Self {
        let content = match content.is_empty() {
            true => vec![Part::Text("(no output)".to_owned())],
            false => content,
        };
        let result = CallResult {
            call: call.id.clone(),
            name: call.name.clone(),
            content,
            failed: category.is_some(),
        };
        let category = category.map(|category| category.as_str().to_owned());
        Self { result, category, read_only: call.read_only, rest: None }
    }
}

/// The parts of an answer that a model can read.
fn parts(content: Vec<Content>) -> Vec<Part> {
    let part = |content: Content| {
        let media_type = content.media_type.as_deref().unwrap_or("application/octet-stream");
        match &content.body {
            Body::Text(text) => Part::Text(text.clone()),
            Body::Bytes(bytes) if is_image(media_type) && bytes.len() <= MAX_IMAGE => {
                Part::Image { media_type: media_type.to_owned(), data: STANDARD.encode(bytes) }
            }
            Body::Bytes(bytes) => {
                Part::Text(format!("[{} bytes of {media_type}, left out]", bytes.len()))
            }
            Body::Link(uri) => Part::Text(format!("[{uri}]")),
        }
    };
    content.into_iter().map(part).collect()
}

fn is_image(media_type: &str) -> bool {
    matches!(media_type, "image/png" | "image/jpeg" | "image/gif" | "image/webp")
}

/// The record of a session, in the order in which it happened.
pub(crate) struct Recording {
    /// The session's directory.
    pub(crate) directory: String,
    tasks: VecDeque<Task>,
    answers: VecDeque<ModelAnswer>,
    results: VecDeque<RecordedResult>,
    /// How each task ended.
    ends: VecDeque<Ended>,
}

impl Recording {
    /// Reads a session's file. Blocks.
    pub(crate) fn read(file: File) -> std::io::Result<Self> {
        let mut recording = Self {
            directory: String::new(),
            tasks: VecDeque::new(),
            answers: VecDeque::new(),
            results: VecDeque::new(),
            ends: VecDeque::new(),
        };
        for entry in read_entries(file) {
            match entry? {
                Entry::Task(task) => recording.tasks.push_back(task),
                Entry::Answer(answer) => recording.answers.push_back(answer),
                Entry::Result(result) => recording.results.push_back(result),
                Entry::Ended(ended) => recording.ends.push_back(ended),
                Entry::Began(began) => recording.directory = began.directory,
                Entry::Note(_) | Entry::Pruned(_) | Entry::Compressed(_) => {}
            }
        }
        Ok(recording)
    }

    fn answer(
        &mut self,
        on_event: &mut (dyn FnMut(ModelEvent) + Send),
    ) -> Result<ModelAnswer, AskError> {
        let Some(answer) = self.answers.pop_front() else { return Err(self.ending()) };
        let text = answer.text();
        if !text.is_empty() {
            on_event(ModelEvent::Text(text));
        }
        Ok(answer)
    }

    /// How the task ended.
    fn ending(&mut self) -> AskError {
        let ended = self.ends.pop_front().map(|ended| ended.ending);
        AskError::RecordEnds(ended.unwrap_or_else(|| {
            Ending::new(EndKind::Cancelled, "the record ends here: Berth was killed")
        }))
    }

    /// The tools of the next task.
    fn next_tools(&mut self) -> Vec<Arc<Definition>> {
        self.tasks.pop_front().map(|task| task.tools).unwrap_or_default()
    }

    /// What the tasks are.
    pub(crate) fn tasks(&self) -> Vec<Vec<Part>> {
        self.tasks.iter().map(|task| task.parts.clone()).collect()
    }

    /// The settings of the first task.
    pub(crate) fn settings(&self) -> Option<AgentSettings> {
        self.tasks.front().map(|task| task.settings.clone())
    }

    fn result(&mut self, call: &ReadyCall) -> RecordedResult {
        self.results.pop_front().unwrap_or_else(|| {
            let text = "the record ends before this call has its result".to_owned();
            RecordedResult::new(call, vec![Part::Text(text)], Some(Category::Cancelled))
        })
    }
}
