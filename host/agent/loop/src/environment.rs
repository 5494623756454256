//! The agent's access to the models and the tools: asks the models, makes calls through the host,
//! and looks up files.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use toolhold_core::{
    Answer, Body, CancellationToken, Category, Content, Failure, Host, HostError, OfferedTool,
    Phase, Request, Session, Trust,
};
use toolhold_models::choice::ChosenModel;
use toolhold_models::{
    CallResult, ModelAnswer, ModelError, ModelErrorKind, ModelEvent, Part, Turn,
};

use crate::live::{CallEvents, LiveEvents};
use crate::record::RecordedResult;
use crate::vectors::Embedder;
use crate::waiting::{AnnouncingApprover, MeasuringApprover};

/// Most bytes of an image in a result.
const MAX_IMAGE: usize = 5 * 1024 * 1024;

/// The code of a failure because there is no such path.
const NOT_FOUND: &str = "not-found";

/// Files that are offered.
pub const MAX_FOUND: usize = 50;

/// The tool that reads what was cut.
const READ_OVERFLOW: &str = "read_overflow";

/// The time for looking whether paths exist.
const LOOK: Duration = Duration::from_secs(2);

/// The model and the tools.
pub(crate) struct AgentEnvironment {
    pub(crate) host: Arc<Host>,
    pub(crate) session: Session,
    /// The agent's name in the audit. `None`: the primary one.
    pub(crate) caller: Option<String>,
    /// How often the task was handed on before this agent got it.
    pub(crate) depth: u64,
    pub(crate) phase: Option<Phase>,
    pub(crate) trust: Trust,
    /// The calls that it may make. `None`: all.
    pub(crate) allowed: Option<AllowedCalls>,
    pub(crate) models: AskedModels,
    pub(crate) approver: Arc<MeasuringApprover>,
}

/// The models that an agent asks.
#[derive(Clone, Debug)]
pub(crate) struct AskedModels {
    pub(crate) model: ChosenModel,
    /// The model that summarises. `None`: `model` does.
    pub(crate) summariser: Option<ChosenModel>,
    /// The model that corrects arguments. `None`: arguments aren't corrected.
    pub(crate) corrector: Option<ChosenModel>,
    /// The model that makes vectors, by which tools are chosen. `None`: tools are chosen by words.
    pub(crate) embedder: Option<Embedder>,
}

/// The calls that an agent may make for another one.
#[derive(Clone, Debug)]
pub(crate) struct AllowedCalls {
    /// The names of the tools.
    pub(crate) tools: BTreeSet<String>,
    /// Whether only calls that read are allowed.
    pub(crate) read_only: bool,
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
    /// A warning for the model, with the result.
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

/// A call with its result, and other facts from the host.
pub(crate) struct AnsweredCall {
    pub(crate) result: RecordedResult,
    /// Whether the tool says that there is no such path.
    pub(crate) is_missing: bool,
    /// The reason why the arguments don't match the tool's schema. In this case no gate was asked,
    /// and nothing ran.
    pub(crate) unfit: Option<String>,
    /// `None`: the result is whole, or what `read_overflow` reads.
    pub(crate) cut: Option<CutResult>,
}

/// Facts from the host about a result that was cut.
pub(crate) struct CutResult {
    /// The tool's full name.
    pub(crate) tool: String,
    /// Whether it has untrusted sources.
    pub(crate) is_untrusted: bool,
    /// The host's notices in it, without those about the cut.
    pub(crate) notices: Vec<String>,
}

/// The reason why the model gave no answer.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum AskError {
    /// The task was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The request is larger than the model can read.
    #[error(transparent)]
    ContextFull(ModelError),
    /// Anything else, for the person.
    #[error(transparent)]
    Failed(ModelError),
}

impl AgentEnvironment {
    /// The tools that the agent may call now, in a stable order.
    pub(crate) fn offered(&self) -> Result<Vec<OfferedTool>, HostError> {
        let mut tools = self.host.tools_for(&self.session)?;
        if let Some(allowed) = &self.allowed {
            tools.retain(|OfferedTool { definition: tool, .. }| {
                let reads = tool.annotations.read_only || tool.reads_with_some();
                allowed.tools.contains(&tool.name) && (reads || !allowed.read_only)
            });
        }
        Ok(tools)
    }

    /// The failure of a call that an agent may not make for another agent.
    fn refusal(&self, call: &ReadyCall) -> Option<Failure> {
        let allowed = self.allowed.as_ref()?;
        let name = self.host.tool(&call.name).map(|tool| tool.name.clone());
        let why = match name {
            Some(name) if !allowed.tools.contains(&name) => "isn't one of your tools",
            Some(_) if allowed.read_only && !self.reads(&call.name, &call.arguments) => {
                "acts, and you were started with `access` \"read\""
            }
            _ => return None,
        };
        let failure = Failure::new(Category::PolicyBlocked, format!("`{}` {why}", call.name));
        Some(failure.with_suggestion("Say in your answer what remains to be done."))
    }

    /// Whether a call only reads.
    pub(crate) fn reads(&self, name: &str, arguments: &Value) -> bool {
        let tool = self.host.tool(name);
        tool.is_some_and(|tool| tool.annotations.read_only || tool.reads_with(arguments))
    }

    /// Asks the model.
    pub(crate) async fn ask(
        &self,
        turn: &Turn,
        on_event: &mut (dyn FnMut(ModelEvent) + Send),
        cancel: &CancellationToken,
    ) -> Result<ModelAnswer, AskError> {
        answered(self.models.model.ask(turn, on_event, cancel).await)
    }

    /// Asks the model that summarises.
    pub(crate) async fn summarise(
        &self,
        turn: &Turn,
        cancel: &CancellationToken,
    ) -> Result<ModelAnswer, AskError> {
        let model = self.models.summariser.as_ref().unwrap_or(&self.models.model);
        answered(model.ask(turn, &mut |_| {}, cancel).await)
    }

    /// Asks the model that corrects arguments. `None`: there is none.
    pub(crate) async fn ask_corrector(
        &self,
        turn: &Turn,
        cancel: &CancellationToken,
    ) -> Option<Result<ModelAnswer, AskError>> {
        Some(answered(self.models.corrector.as_ref()?.ask(turn, &mut |_| {}, cancel).await))
    }

    /// Makes calls, all at once. `told` gets the events while they run.
    pub(crate) async fn call_all(
        self: &Arc<Self>,
        calls: &[ReadyCall],
        told: &Arc<LiveEvents>,
        cancel: &CancellationToken,
    ) -> Vec<AnsweredCall> {
        let mut running = Vec::new();
        for call in calls {
            let live = Arc::clone(self);
            let call = call.clone();
            let cancel = cancel.clone();
            let told = Arc::clone(told);
            running.push(tokio::spawn(async move { live.call(&call, told, &cancel).await }));
        }
        let mut results = Vec::new();
        for (call, running) in calls.iter().zip(running) {
            results.push(running.await.unwrap_or_else(|error| {
                let text = format!("the call failed: {error}");
                let category = Some(Category::PermanentFailure);
                let result = RecordedResult::new(call, vec![Part::Text(text)], category);
                AnsweredCall { result, is_missing: false, unfit: None, cut: None }
            }));
        }
        results
    }

    /// How long a person has been asked so far.
    pub(crate) fn waited(&self) -> Duration {
        self.approver.waited()
    }
}

fn answered(answer: Result<ModelAnswer, ModelError>) -> Result<ModelAnswer, AskError> {
    answer.map_err(|error| match error.kind {
        ModelErrorKind::Cancelled => AskError::Cancelled,
        ModelErrorKind::Context => AskError::ContextFull(error),
        _ => AskError::Failed(error),
    })
}

impl AgentEnvironment {
    async fn call(
        self: &Arc<Self>,
        call: &ReadyCall,
        told: Arc<LiveEvents>,
        cancel: &CancellationToken,
    ) -> AnsweredCall {
        if let Some(failure) = self.refusal(call) {
            let content = vec![Part::Text(failure.feedback())];
            let result = RecordedResult::new(call, content, Some(failure.category));
            return AnsweredCall { result, is_missing: false, unfit: None, cut: None };
        }
        let live = Arc::clone(self);
        let hide = Box::new(move |text: &str| live.without_keys(text));
        let shown = Arc::new(CallEvents::new(&call.id, told, hide));
        let approver = AnnouncingApprover::new(Arc::clone(&self.approver), Arc::clone(&shown));
        let request = Request {
            session: Some(self.session.clone()),
            caller: self.caller.clone(),
            phase: self.phase,
            trust: self.trust,
            approver: Some(Arc::new(approver)),
            events: shown,
            cancel: cancel.child_token(),
            doubtful: call.is_doubtful,
            ..Request::new(&call.name, call.arguments.clone())
        };
        let answer = self.host.call(request).await;
        let failure = answer.outcome.as_ref().err();
        let is_missing = failure.is_some_and(|it| it.code.as_deref() == Some(NOT_FOUND));
        let is_valid = answer.steps.iter().any(|step| step.name == "validate");
        let unfit = failure
            .filter(|it| {
                matches!(it.category, Category::InvalidParameters | Category::TypeMismatch)
                    && !is_valid
            })
            .map(|failure| self.without_keys(&failure.message));
        let cut = self.cut(&answer);
        let mut result = recorded(call, answer);
        for part in &mut result.result.content {
            if let Part::Text(text) = part {
                *text = self.without_keys(text);
            }
        }
        AnsweredCall { result, is_missing, unfit, cut }
    }

    fn cut(&self, answer: &Answer) -> Option<CutResult> {
        let rest = answer.rest.as_ref()?;
        let tool = answer.tool.clone().filter(|tool| tool != READ_OVERFLOW)?;
        let others = answer.notices.iter().filter(|notice| !notice.contains(&rest.id));
        let notices = others.map(|notice| self.without_keys(notice)).collect();
        Some(CutResult { tool, is_untrusted: answer.untrusted, notices })
    }

    /// The paths that exist, or whose existence the agent may not learn: only paths that the agent
    /// may read without approval are looked at. If the file system doesn't answer in time, all
    /// paths count as existing.
    pub(crate) async fn existing(self: &Arc<Self>, paths: Vec<String>) -> BTreeSet<String> {
        let live = Arc::clone(self);
        let looked_at = paths.clone();
        let looking = tokio::task::spawn_blocking(move || {
            looked_at.into_iter().filter(|path| !live.is_missing(path)).collect()
        });
        match tokio::time::timeout(LOOK, looking).await {
            Ok(Ok(found)) => found,
            _ => paths.into_iter().collect(),
        }
    }

    /// Whether the agent may read a path that doesn't exist. Blocks.
    fn is_missing(&self, path: &str) -> bool {
        self.host.has_missing_path(Request {
            session: Some(self.session.clone()),
            caller: self.caller.clone(),
            phase: self.phase,
            trust: self.trust,
            ..Request::new("read", json!({ "path": path }))
        })
    }

    /// A text without the keys of the providers. A file of the project may have one, and neither
    /// another provider nor the record has to.
    fn without_keys(&self, text: &str) -> String {
        let AskedModels { model, summariser, corrector, .. } = &self.models;
        let others = summariser.iter().chain(corrector);
        let text = model.endpoint().hide_keys(text);
        others.fold(text, |text, model| model.endpoint().hide_keys(&text))
    }
}

/// Finds files for the person who writes a message.
#[derive(Clone)]
pub struct FileFinder(Arc<AgentEnvironment>);

impl FileFinder {
    pub(crate) fn new(live: &Arc<AgentEnvironment>) -> Self {
        Self(Arc::clone(live))
    }

    /// The files whose paths go on from `wanted`, as the tool `find_path` finds them without a
    /// question: at most [`MAX_FOUND`], and none that the rules hide.
    pub async fn find(&self, wanted: &str) -> Vec<String> {
        if !wanted.chars().all(|c| c.is_alphanumeric() || "-_./".contains(c)) {
            return Vec::new();
        }
        let (folder, name) = wanted.rsplit_once('/').unwrap_or((".", wanted));
        let folder = if folder.is_empty() { "/" } else { folder };
        let arguments =
            json!({ "pattern": format!("*{name}*"), "path": folder, "limit": MAX_FOUND });
        let answer = self.0.host.call(Request {
            session: Some(self.0.session.clone()),
            phase: self.0.phase,
            ..Request::new("find_path", arguments)
        });
        let Ok(Ok(output)) = tokio::time::timeout(LOOK, answer).await.map(|it| it.outcome) else {
            return Vec::new();
        };
        let text = output.content.iter().find_map(Content::as_text).unwrap_or_default();
        let found = output.structured.and_then(|it| it["paths"].as_u64()).unwrap_or_default();
        let found = usize::try_from(found).unwrap_or_default();
        text.lines().take(found).map(str::to_owned).collect()
    }
}

/// The answer of the host, as the model gets it and as it is recorded.
fn recorded(call: &ReadyCall, answer: Answer) -> RecordedResult {
    let rest = answer.rest;
    let filtered = answer.filtered;
    let (content, category) = match answer.outcome {
        Ok(output) => (parts(&output.content), None),
        Err(failure) => {
            let mut content = vec![Part::Text(failure.feedback())];
            content.extend(parts(&failure.content));
            (content, Some(failure.category))
        }
    };
    let mut result = RecordedResult::new(call, content, category);
    result.rest = rest;
    result.filtered = filtered;
    result
}

impl RecordedResult {
    /// The result of a call.
    pub(crate) fn new(call: &ReadyCall, content: Vec<Part>, category: Option<Category>) -> Self {
        let is_blank =
            content.iter().all(|part| matches!(part, Part::Text(text) if text.trim().is_empty()));
        let content = if !is_blank {
            content
        } else if category.is_none() {
            // Small models take a result without a word for a failure.
            vec![Part::Text("(the call succeeded, without output)".to_owned())]
        } else {
            vec![Part::Text("(no output)".to_owned())]
        };
        let result = CallResult {
            call: call.id.clone(),
            name: call.name.clone(),
            content,
            failed: category.is_some(),
        };
        let category = category.map(|category| category.as_str().to_owned());
        Self { result, category, begun: 1, rest: None, filtered: None }
    }
}

/// The parts of an answer that a model can read.
fn parts(content: &[Content]) -> Vec<Part> {
    content.iter().map(readable_part).collect()
}

fn readable_part(content: &Content) -> Part {
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
}

fn is_image(media_type: &str) -> bool {
    matches!(media_type, "image/png" | "image/jpeg" | "image/gif" | "image/webp")
}
