//! The agent's access to models, tools and files.

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

/// Larger images in a result are left out.
const MAX_IMAGE: usize = 5 * 1024 * 1024;

const NOT_FOUND: &str = "not-found";

/// The host's code for a refusal by a person. Guests can't use this code.
const DENIED_BY_USER: &str = "denied_by_user";

/// The most files that [`FileFinder::find`] returns.
pub const MAX_FOUND: usize = 50;

/// The tool with which a model reads the cut part of a result.
const READ_OVERFLOW: &str = "read_overflow";

/// The time limit for checking whether paths exist.
const LOOK_TIME: Duration = Duration::from_secs(2);

pub(crate) struct AgentEnvironment {
    pub(crate) host: Arc<Host>,
    pub(crate) session: Session,
    /// The agent's name in the audit log, or `None` for the primary agent.
    pub(crate) caller: Option<String>,
    /// The number of agents above this agent: 0 for the primary agent.
    pub(crate) depth: u64,
    pub(crate) phase: Option<Phase>,
    pub(crate) trust: Trust,
    /// The calls that a sub-agent may make, or `None` if the agent may make all calls.
    pub(crate) allowed: Option<AllowedCalls>,
    pub(crate) models: AskedModels,
    pub(crate) approver: Arc<MeasuringApprover>,
}

#[derive(Clone, Debug)]
pub(crate) struct AskedModels {
    pub(crate) model: ChosenModel,
    /// The model that summarises, or `None` if `model` does this, too.
    pub(crate) summariser: Option<ChosenModel>,
    /// The model that corrects arguments, or `None` if arguments aren't corrected.
    pub(crate) corrector: Option<ChosenModel>,
    /// Makes vectors for choosing tools. Without an embedder, the choice compares only words.
    pub(crate) embedder: Option<Embedder>,
}

/// The calls that a sub-agent may make.
#[derive(Clone, Debug)]
pub(crate) struct AllowedCalls {
    pub(crate) tools: BTreeSet<String>,
    pub(crate) read_only: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct ReadyCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: Value,
    pub(crate) read_only: bool,
    pub(crate) is_doubtful: bool,
    /// A warning for the model, which is added to the result.
    pub(crate) warning: Option<String>,
}

impl ReadyCall {
    /// Returns a call without arguments, for a result that Toolhold writes instead of a tool.
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

pub(crate) struct AnsweredCall {
    pub(crate) result: RecordedResult,
    /// Whether the tool reports that a path doesn't exist.
    pub(crate) is_missing: bool,
    /// The reason why the arguments don't match the tool's schema. In this case, nobody was asked
    /// and nothing ran.
    pub(crate) unfit: Option<String>,
    pub(crate) is_refused: bool,
    /// The facts for summarising a cut result. `None` if the result isn't cut, or if the tool is
    /// `read_overflow`.
    pub(crate) cut: Option<CutResult>,
}

pub(crate) struct CutResult {
    pub(crate) tool: String,
    /// Whether text of the result comes from untrusted sources.
    pub(crate) is_untrusted: bool,
    /// The host's notices in the result, except notices about the cut.
    pub(crate) notices: Vec<String>,
}

#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum AskError {
    #[error("the task was cancelled")]
    Cancelled,
    /// The request exceeds the model's context.
    #[error(transparent)]
    ContextFull(ModelError),
    /// Any other failure, for the person.
    #[error(transparent)]
    Failed(ModelError),
}

impl AgentEnvironment {
    /// Returns the tools that the agent may call now, in a stable order.
    pub(crate) fn offered(&self) -> Result<Vec<OfferedTool>, HostError> {
        let mut tools = self.host.tools_for(&self.session)?;
        if let Some(allowed) = &self.allowed {
            tools.retain(|offered| allowed.tools.contains(&offered.definition.name));
            if allowed.read_only {
                // With some tools, it depends on the arguments whether a call only reads. Keep
                // these tools, because `refusal` checks each call again.
                tools.retain(|OfferedTool { definition, .. }| {
                    definition.annotations.read_only || definition.has_read_only_calls()
                });
            }
        }
        Ok(tools)
    }

    /// Returns the failure of a call that this sub-agent may not make, or `None` if the call is
    /// allowed or the tool doesn't exist.
    fn refusal(&self, call: &ReadyCall) -> Option<Failure> {
        let allowed = self.allowed.as_ref()?;
        let tool = self.host.tool(&call.name)?;
        let why = if !allowed.tools.contains(&tool.name) {
            "isn't one of your tools"
        } else if allowed.read_only && !self.reads(&call.name, &call.arguments) {
            "changes something, but you may only read (`access` \"read\")"
        } else {
            return None;
        };
        let failure = Failure::new(Category::PolicyBlocked, format!("`{}` {why}", call.name));
        Some(failure.with_suggestion("Name the remaining work in your answer."))
    }

    pub(crate) fn reads(&self, name: &str, arguments: &Value) -> bool {
        let Some(tool) = self.host.tool(name) else { return false };
        tool.annotations.read_only || tool.is_read_only_call(arguments)
    }

    pub(crate) async fn ask(
        &self,
        turn: &Turn,
        on_event: &mut (dyn FnMut(ModelEvent) + Send),
        cancel: &CancellationToken,
    ) -> Result<ModelAnswer, AskError> {
        self.models.model.ask(turn, on_event, cancel).await.map_err(ask_error)
    }

    pub(crate) async fn summarise(
        &self,
        turn: &Turn,
        cancel: &CancellationToken,
    ) -> Result<ModelAnswer, AskError> {
        let model = self.models.summariser.as_ref().unwrap_or(&self.models.model);
        model.ask(turn, &mut |_| {}, cancel).await.map_err(ask_error)
    }

    /// Asks the correcting model. Returns `None` if no correcting model is configured.
    pub(crate) async fn ask_corrector(
        &self,
        turn: &Turn,
        cancel: &CancellationToken,
    ) -> Option<Result<ModelAnswer, AskError>> {
        let corrector = self.models.corrector.as_ref()?;
        Some(corrector.ask(turn, &mut |_| {}, cancel).await.map_err(ask_error))
    }

    /// Makes calls at the same time, and returns their results in the same order. `live_events`
    /// gets the events while the calls run.
    pub(crate) async fn call_all(
        self: &Arc<Self>,
        calls: &[ReadyCall],
        live_events: &Arc<LiveEvents>,
        cancel: &CancellationToken,
    ) -> Vec<AnsweredCall> {
        let mut tasks = Vec::new();
        for call in calls {
            let environment = Arc::clone(self);
            let call = call.clone();
            let cancel = cancel.clone();
            let live_events = Arc::clone(live_events);
            tasks.push(tokio::spawn(
                async move { environment.call(&call, live_events, &cancel).await },
            ));
        }

        let mut results = Vec::new();
        for (call, task) in calls.iter().zip(tasks) {
            results.push(task.await.unwrap_or_else(|error| {
                let text = format!("the call failed: {error}");
                AnsweredCall::without_tool(call, text, Category::PermanentFailure)
            }));
        }
        results
    }

    /// Returns the total time that people have been asked.
    pub(crate) fn waited(&self) -> Duration {
        self.approver.waited()
    }
}

fn ask_error(error: ModelError) -> AskError {
    match error.kind {
        ModelErrorKind::Cancelled => AskError::Cancelled,
        ModelErrorKind::Context => AskError::ContextFull(error),
        _ => AskError::Failed(error),
    }
}

impl AnsweredCall {
    /// Makes the result of a call that doesn't reach the tool.
    fn without_tool(call: &ReadyCall, text: String, category: Category) -> Self {
        let result = RecordedResult::new(call, vec![Part::Text(text)], Some(category));
        Self { result, is_missing: false, unfit: None, is_refused: false, cut: None }
    }
}

impl AgentEnvironment {
    async fn call(
        self: &Arc<Self>,
        call: &ReadyCall,
        live_events: Arc<LiveEvents>,
        cancel: &CancellationToken,
    ) -> AnsweredCall {
        if let Some(failure) = self.refusal(call) {
            return AnsweredCall::without_tool(call, failure.feedback(), failure.category);
        }
        let environment = Arc::clone(self);
        let hide = Box::new(move |text: &str| environment.without_keys(text));
        let call_events = Arc::new(CallEvents::new(&call.id, live_events, hide));
        let approver =
            AnnouncingApprover::new(Arc::clone(&self.approver), Arc::clone(&call_events));
        let request = Request {
            session: Some(self.session.clone()),
            caller: self.caller.clone(),
            phase: self.phase,
            trust: self.trust,
            approver: Some(Arc::new(approver)),
            events: call_events,
            cancel: cancel.child_token(),
            doubtful: call.is_doubtful,
            ..Request::new(&call.name, call.arguments.clone())
        };
        let answer = self.host.call(request).await;
        let mut is_missing = false;
        let mut unfit = None;
        let mut is_refused = false;
        if let Err(failure) = &answer.outcome {
            is_refused = failure.code.as_deref() == Some(DENIED_BY_USER);
            is_missing = failure.code.as_deref() == Some(NOT_FOUND);
            let is_about_arguments =
                matches!(failure.category, Category::InvalidParameters | Category::TypeMismatch);
            let is_valid = answer.steps.iter().any(|step| step.name == "validate");
            if is_about_arguments && !is_valid {
                unfit = Some(self.without_keys(&failure.message));
            }
        }

        let cut = self.cut_result(&answer);
        let mut result = recorded(call, answer);
        for part in &mut result.result.content {
            if let Part::Text(text) = part {
                *text = self.without_keys(text);
            }
        }
        AnsweredCall { result, is_missing, unfit, is_refused, cut }
    }

    /// Returns the facts for summarising a cut result. Returns `None` if the result isn't cut or is
    /// from `read_overflow`, with which the model reads the cut text itself.
    fn cut_result(&self, answer: &Answer) -> Option<CutResult> {
        let cut_part = answer.rest.as_ref()?;
        let tool = answer.tool.clone()?;
        if tool == READ_OVERFLOW {
            return None;
        }
        let mut notices = Vec::new();
        for notice in &answer.notices {
            // Leave out the notice that the result was cut, because the summary replaces it. This
            // notice names the ID of the cut part.
            let is_about_cut = notice.contains(&cut_part.id);
            if !is_about_cut {
                notices.push(self.without_keys(notice));
            }
        }
        Some(CutResult { tool, is_untrusted: answer.untrusted, notices })
    }

    /// Returns the paths that exist or that the agent may not read without approval. Returns all
    /// paths if the check fails or takes too long.
    pub(crate) async fn existing(self: &Arc<Self>, paths: Vec<String>) -> BTreeSet<String> {
        let environment = Arc::clone(self);
        let candidates = paths.clone();
        let checking = tokio::task::spawn_blocking(move || {
            candidates.into_iter().filter(|path| !environment.is_missing(path)).collect()
        });
        match tokio::time::timeout(LOOK_TIME, checking).await {
            Ok(Ok(existing)) => existing,
            _ => paths.into_iter().collect(),
        }
    }

    /// Checks whether a path doesn't exist and the agent may read it without approval. Blocks.
    fn is_missing(&self, path: &str) -> bool {
        self.host.has_missing_path(Request {
            session: Some(self.session.clone()),
            caller: self.caller.clone(),
            phase: self.phase,
            trust: self.trust,
            ..Request::new("read", json!({ "path": path }))
        })
    }

    /// Replaces the providers' keys in a text, because a project's file may contain a key, and the
    /// text goes to other providers and to the session file.
    fn without_keys(&self, text: &str) -> String {
        let AskedModels { model, summariser, corrector, .. } = &self.models;
        let mut hidden = model.endpoint().hide_keys(text);
        for other in summariser.iter().chain(corrector) {
            hidden = other.endpoint().hide_keys(&hidden);
        }
        hidden
    }
}

/// Finds files for the person who writes a message.
#[derive(Clone)]
pub struct FileFinder(Arc<AgentEnvironment>);

impl FileFinder {
    pub(crate) fn new(environment: &Arc<AgentEnvironment>) -> Self {
        Self(Arc::clone(environment))
    }

    /// Returns at most [`MAX_FOUND`] paths that may complete `start`. A returned file is in the
    /// folder of `start`, its name contains the last part of `start`, and `find_path` finds it
    /// without approval.
    pub async fn find(&self, start: &str) -> Vec<String> {
        if !start.chars().all(|c| c.is_alphanumeric() || "-_./".contains(c)) {
            return Vec::new();
        }
        let (folder, name) = match start.rsplit_once('/') {
            Some(("", name)) => ("/", name),
            Some((folder, name)) => (folder, name),
            None => (".", start),
        };
        let arguments =
            json!({ "pattern": format!("*{name}*"), "path": folder, "limit": MAX_FOUND });
        let calling = self.0.host.call(Request {
            session: Some(self.0.session.clone()),
            phase: self.0.phase,
            ..Request::new("find_path", arguments)
        });
        let Ok(answer) = tokio::time::timeout(LOOK_TIME, calling).await else { return Vec::new() };
        let Ok(output) = answer.outcome else { return Vec::new() };

        // The text has one path per line, followed by notes. The structured content tells how many
        // of the lines are paths.
        let text = output.content.iter().find_map(Content::as_text).unwrap_or_default();
        let structured = output.structured.unwrap_or_default();
        let count = structured["paths"].as_u64().unwrap_or_default();
        let count = usize::try_from(count).unwrap_or_default();
        text.lines().take(count).map(str::to_owned).collect()
    }
}

fn recorded(call: &ReadyCall, answer: Answer) -> RecordedResult {
    let (content, category) = match answer.outcome {
        Ok(output) => (parts(&output.content), None),
        Err(failure) => {
            let mut content = vec![Part::Text(failure.feedback())];
            content.extend(parts(&failure.content));
            (content, Some(failure.category))
        }
    };
    let mut result = RecordedResult::new(call, content, category);
    result.rest = answer.rest;
    result.filtered = answer.filtered;
    result
}

impl RecordedResult {
    /// Makes the result of a call, which failed if there is a `category`. A note replaces empty
    /// content.
    pub(crate) fn new(call: &ReadyCall, content: Vec<Part>, category: Option<Category>) -> Self {
        let is_blank =
            content.iter().all(|part| matches!(part, Part::Text(text) if text.trim().is_empty()));
        let content = if !is_blank {
            content
        } else if category.is_none() {
            // Small models misread an empty result as a failure.
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

fn parts(content: &[Content]) -> Vec<Part> {
    content.iter().map(readable_part).collect()
}

/// Converts a part of a result for the model. A small image stays an image. Other bytes are
/// replaced by their number.
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
