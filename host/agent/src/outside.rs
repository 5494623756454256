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
    CallResult, ModelAnswer, ModelClient, ModelError, ModelEvent, Part, Turn,
};
use serde_json::Value;

use crate::record::{Ended, Entry, RecordedResult, Task, read_entries};
use crate::waiting::MeasuringApprover;

/// Most bytes of an image in a result.
const MAX_IMAGE: usize = 5 * 1024 * 1024;

/// The model and the tools, or what they did.
pub(crate) enum Outside {
    Live(Box<Live>),
    Recorded(Recording),
}

/// The model and the tools.
pub(crate) struct Live {
    pub(crate) host: Host,
    pub(crate) session: Session,
    pub(crate) model: ModelClient,
    /// The one that summarises. `None`: `model` does.
    pub(crate) summariser: Option<ModelClient>,
    pub(crate) approver: Arc<MeasuringApprover>,
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
}

/// Why the model gave no answer.
pub(crate) enum AskError {
    /// The task was cancelled.
    Cancelled,
    /// The request is larger than the model can read.
    ContextFull(String),
    /// Anything else, for the person.
    Failed(String),
}

impl Outside {
    /// The tools that the model is offered, and whether each exists: in a stable order.
    pub(crate) fn tools(&self) -> Result<Vec<Arc<Definition>>, HostError> {
        match self {
            Self::Live(live) => {
                let offered = live.host.tools_for(&live.session)?;
                Ok(offered.into_iter().map(|tool| tool.definition).collect())
            }
            Self::Recorded(_) => Ok(Vec::new()),
        }
    }

    /// The tool of this name or alias.
    pub(crate) fn tool(&self, name: &str) -> Option<Arc<Definition>> {
        match self {
            Self::Live(live) => live.host.tool(name),
            Self::Recorded(_) => None,
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
            Self::Recorded(_) => Err(AskError::Failed("the record has no summary".to_owned())),
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
                let calls = calls.iter().map(|call| live.call(call, cancel));
                futures_util::future::join_all(calls).await
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
    answer.map_err(|error| match error {
        ModelError::Cancelled => AskError::Cancelled,
        error if error.is_context_full() => AskError::ContextFull(error.to_string()),
        error => AskError::Failed(error.to_string()),
    })
}

impl Live {
    async fn call(&self, call: &ReadyCall, cancel: &CancellationToken) -> RecordedResult {
        let request = Request {
            session: Some(self.session.clone()),
            approver: Some(Arc::clone(&self.approver) as _),
            cancel: cancel.child_token(),
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
                Entry::Began(_) | Entry::Note(_) | Entry::Pruned(_) | Entry::Compressed(_) => {}
            }
        }
        Ok(recording)
    }

    fn answer(
        &mut self,
        on_event: &mut (dyn FnMut(ModelEvent) + Send),
    ) -> Result<ModelAnswer, AskError> {
        let answer = self.answers.pop_front().ok_or(AskError::Cancelled)?;
        let text = answer.text();
        if !text.is_empty() {
            on_event(ModelEvent::Text(text));
        }
        Ok(answer)
    }

    fn result(&mut self, call: &ReadyCall) -> RecordedResult {
        self.results.pop_front().unwrap_or_else(|| {
            let text = "the record ends before this call has its result".to_owned();
            RecordedResult::new(call, vec![Part::Text(text)], Some(Category::Cancelled))
        })
    }
}
