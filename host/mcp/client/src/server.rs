//! Makes the calls of an upstream server's tools, prompts and resources, once more if the server
//! forgot the session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{
    CallToolResult, ContentBlock, GetPromptResult, ReadResourceResult, ResourceContents, Role,
};
use serde_json::json;
use toolhold_core::{
    Body, BoxFuture, Call, Category, Content, Definition, Failure, Offers, Outcome, Output,
    ToolSource, ToolSourceState,
};

use crate::connection::{CallError, Connection};
use crate::definitions::{OfferedTool, offered};
use crate::inquiries::{MeasuringInquirer, WaitClock, within};
use crate::masked::masked;
use crate::offers::{Asked, ServerOffers};
use crate::reason::Reason;
use crate::running::{LASTED, Running};

/// A server of the configuration.
pub(crate) struct Server {
    /// The name of its table.
    server: String,
    /// The name of the provider. No plugin has a `.` in its name, so none shares its rules.
    name: String,
    running: Arc<Running>,
    tools: HashMap<String, OfferedTool>,
    definitions: Vec<Arc<Definition>>,
    offers: ServerOffers,
    /// Its own name and version: as it says since it runs, before as it was approved.
    version: Mutex<String>,
}

/// The outcome of one attempt at a call.
enum Attempt {
    Done(Outcome),
    /// The server didn't look at the call: it doesn't know the session any more.
    Unheard(Failure),
}

/// The name of a server's provider.
pub(crate) fn provider_name(server: &str) -> String {
    format!("mcp.{server}")
}

impl Server {
    /// The server with this program.
    pub(crate) fn new(name: &str, running: Arc<Running>) -> Self {
        let pins = &running.pins;
        let trusted = running.launch.server.trust_annotations;
        let (tools, left_out) = offered(name, pins, trusted);
        let offers = ServerOffers::new(name, &pins.offers, trusted);
        for (tool, reason) in left_out {
            tracing::warn!("the tool `{tool}` of the server `{name}` is left out: {reason}");
        }
        let listed = tools.iter().map(|tool| Arc::clone(&tool.definition));
        let definitions = listed.chain(offers.definitions.iter().cloned()).collect();
        let tools = tools.into_iter().map(|tool| (tool.definition.name.clone(), tool)).collect();
        Self {
            server: name.to_owned(),
            name: provider_name(name),
            tools,
            definitions,
            offers,
            version: Mutex::new(version([&pins.name, &pins.version])),
            running,
        }
    }

    /// The connection for a call of this tool. `None`: the call is for something else than a tool.
    async fn connection(&self, tool: Option<&OfferedTool>) -> Result<Arc<Connection>, Failure> {
        let mut state = Arc::clone(&self.running.state).lock_owned().await;
        state.last_call = Some(Instant::now());
        let lost = state.connection.as_ref().and_then(|connection| connection.ended());
        if let Some(reason) = lost {
            let is_forgotten = state.connection.as_ref().is_some_and(|it| it.is_forgotten());
            if !is_forgotten && state.started.is_some_and(|started| started.elapsed() < LASTED) {
                state.fail(reason);
            } else {
                state.connection = None;
            }
        }
        let needs_list = match &state.connection {
            Some(connection) => connection.took_change(),
            None => true,
        };
        if needs_list {
            let now = Instant::now();
            if let Some((until, reason)) = &state.paused
                && let Some(left) = until.checked_duration_since(now).filter(|left| !left.is_zero())
            {
                return Err(self.unavailable(reason).retry_in(left));
            }
            let started = self.running.start(state, now).await;
            state = started.map_err(|reason| self.unavailable(&reason.into()))?;
        }
        let Some(connection) = state.connection.clone() else {
            let reason = state.paused.as_ref().map(|(_, reason)| reason.clone());
            return Err(self.unavailable(&reason.unwrap_or_default()));
        };
        let [_, own_name, own_version, _] = connection.about();
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) =
            version([&own_name, &own_version]);
        let Some(tool) = tool else { return Ok(connection) };
        match state.current.get(&tool.own_name) {
            Some(digest) if *digest == tool.digest => Ok(connection),
            found => {
                let what = if found.is_some() { "has changed" } else { "is missing" };
                Err(Failure::new(
                    Category::PermanentFailure,
                    format!(
                        "the tool `{}` of the server `{}` {what} since it was approved",
                        tool.definition.name, self.server
                    ),
                )
                .with_code("changed")
                .with_suggestion(format!(
                    "`toolhold mcp approve {}` shows the difference.",
                    self.server
                )))
            }
        }
    }

    fn unavailable(&self, reason: &Reason) -> Failure {
        let what = format!("the server `{}` can't be used", self.server);
        reason.failure(Category::ServerError, &what)
    }

    async fn run(&self, call: &Call) -> Outcome {
        let asked = self.offers.asked(call).transpose()?;
        let tool = self.tools.get(&call.tool);
        let _place = self.running.calls.acquire().await;
        match self.attempt(call, asked.as_ref(), tool).await? {
            Attempt::Done(outcome) => outcome,
            // The server may have been started again: one more try, in a new session.
            Attempt::Unheard(_) => match self.attempt(call, asked.as_ref(), tool).await? {
                Attempt::Done(outcome) => outcome,
                Attempt::Unheard(failure) => Err(failure),
            },
        }
    }

    /// Tries a call once.
    async fn attempt(
        &self,
        call: &Call,
        asked: Option<&Asked>,
        tool: Option<&OfferedTool>,
    ) -> Result<Attempt, Failure> {
        let (connection, answer) = match (asked, tool) {
            (Some(asked), _) => {
                let connection = self.connection(None).await?;
                let answer = match asked {
                    Asked::Resource(uri) => connection.read(uri, call).await.map(resource),
                    Asked::Prompt(params) => connection.prompt(params, call).await.map(prompt),
                };
                (connection, answer)
            }
            (None, Some(tool)) => {
                let connection = self.connection(Some(tool)).await?;
                let answer = match connection.call(&tool.own_name, call).await {
                    Ok(result) => Ok(fitting(tool, outcome(result)).await),
                    Err(error) => Err(error),
                };
                (connection, answer)
            }
            (None, None) => {
                return Err(Failure::new(Category::ToolNotFound, "the server has no such tool"));
            }
        };
        let mut state = self.running.state.lock().await;
        state.last_call = Some(Instant::now());
        match answer {
            Ok(result) => {
                state.failures = 0;
                state.paused = None;
                state.timeouts = 0;
                drop(state);
                Ok(Attempt::Done(masked(result, connection.ended_state())))
            }
            Err(CallError::Refused(reason)) => {
                let what = format!("the server `{}` refused the call", self.server);
                Err(reason.failure(Category::PermanentFailure, &what))
            }
            Err(CallError::Lost(reason)) => {
                if state.has(&connection) && connection.is_forgotten() {
                    state.connection = None;
                } else if state.has(&connection) {
                    state.fail(reason.clone());
                }
                Err(self.unavailable(&reason))
            }
            Err(CallError::Unheard(reason)) => {
                if state.has(&connection) {
                    state.connection = None;
                }
                Ok(Attempt::Unheard(self.unavailable(&reason)))
            }
        }
    }
}

impl ToolSource for Server {
    fn name(&self) -> &str {
        &self.name
    }

    fn tools(&self) -> Vec<Arc<Definition>> {
        self.definitions.clone()
    }

    fn offers(&self) -> Offers {
        self.offers.offers.clone()
    }

    fn version(&self) -> Option<String> {
        let version = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        (!version.is_empty()).then(|| version.clone())
    }

    fn is_third_party(&self) -> bool {
        true
    }

    fn state(&self) -> Option<ToolSourceState> {
        Some(self.running.describe(&self.name))
    }

    fn call(&self, mut call: Call) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            let own = Duration::from_secs(self.running.launch.server.timeout_secs.get());
            let time = call.time.map_or(own, |time| time.min(own));
            let clock = Arc::new(WaitClock::default());
            let may_ask = self.running.launch.server.elicitation;
            let inquirer = if may_ask { call.inquirer.take() } else { None };
            call.inquirer = inquirer.map(|inquirer| {
                Arc::new(MeasuringInquirer { inquirer, clock: Arc::clone(&clock) }) as _
            });
            let run = within(time, &clock, self.run(&call));
            match call.cancel.run_until_cancelled(run).await {
                None => Err(Failure::new(Category::Cancelled, "the call was cancelled")),
                Some(Some(outcome)) => outcome,
                Some(None) => {
                    // If the state is locked, the server is starting.
                    if let Ok(mut state) = self.running.state.try_lock() {
                        state.count_timeout();
                    }
                    let message = format!(
                        "the server `{}` didn't answer within {} s, the limit",
                        self.server,
                        time.as_secs_f64()
                    );
                    let place = format!("`timeout_secs` in [mcp.servers.{}]", self.server);
                    Err(Failure::new(Category::Timeout, message)
                        .with_suggestion(format!("{place} sets the limit.")))
                }
            }
        })
    }
}

/// A failure that may be repeated later.
trait RetryIn {
    fn retry_in(self, time: Duration) -> Self;
}

impl RetryIn for Failure {
    fn retry_in(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }
}

/// The outcome of a tool, without a structured answer that doesn't fit its output schema: then a
/// client that was promised one gets an error.
async fn fitting(tool: &OfferedTool, outcome: Outcome) -> Outcome {
    let Ok(Output { structured: Some(value), content, meta }) = outcome else { return outcome };
    if tool.definition.output_schema.is_none() {
        return Ok(Output { structured: Some(value), content, meta });
    }
    let tool = tool.clone();
    let checked = tokio::task::spawn_blocking(move || tool.fits(&value).then_some(value)).await;
    Ok(Output { structured: checked.ok().flatten(), content, meta })
}

/// The name and version of a server's program.
fn version(parts: [&str; 2]) -> String {
    parts.join(" ").trim().to_owned()
}

/// A resource in the host's form: a part for each of its contents.
pub(crate) fn resource(result: ReadResourceResult) -> Outcome {
    let content = result.contents.into_iter().map(contents).collect();
    Ok(Output { content, structured: None, meta: None })
}

/// A prompt in the host's form: a part for each message.
pub(crate) fn prompt(result: GetPromptResult) -> Outcome {
    let parts = result.messages.into_iter().map(|message| {
        let meta = (message.role == Role::Assistant).then(|| json!({ "role": "assistant" }));
        Content { meta, ..content(message.content) }
    });
    Ok(Output { content: parts.collect(), structured: None, meta: None })
}

/// The result of a call in the host's form.
pub(crate) fn outcome(result: CallToolResult) -> Outcome {
    let is_error = result.is_error == Some(true);
    let mut content: Vec<Content> = result.content.into_iter().map(content).collect();
    if is_error {
        // Clients and models that read text alone would learn nothing of the error.
        if content.is_empty() {
            content.extend(
                result.structured_content.as_ref().map(|error| Content::text(error.to_string())),
            );
        }
        let mut failure = Failure::new(Category::PermanentFailure, "the tool failed");
        failure.content = content;
        failure.structured = result.structured_content;
        return Err(failure);
    }
    Ok(Output { content, structured: result.structured_content, meta: None })
}

fn bytes(data: &str, kind: Option<String>) -> Content {
    match STANDARD.decode(data) {
        Ok(bytes) => Content { body: Body::Bytes(bytes), media_type: kind, meta: None },
        Err(_) => Content::text("[content that isn't valid base64]"),
    }
}

fn contents(contents: ResourceContents) -> Content {
    match contents {
        ResourceContents::TextResourceContents { text, mime_type, .. } => {
            Content { media_type: mime_type, ..Content::text(text) }
        }
        ResourceContents::BlobResourceContents { blob, mime_type, .. } => bytes(&blob, mime_type),
        _ => Content::text("[content of an unknown kind]"),
    }
}

fn content(block: ContentBlock) -> Content {
    match block {
        ContentBlock::Text(text) => Content::text(text.text),
        ContentBlock::Image(image) => bytes(&image.data, Some(image.mime_type)),
        ContentBlock::Audio(audio) => bytes(&audio.data, Some(audio.mime_type)),
        ContentBlock::ResourceLink(link) => {
            Content { body: Body::Link(link.uri), media_type: link.mime_type, meta: None }
        }
        ContentBlock::Resource(embedded) => contents(embedded.resource),
        _ => Content::text("[content of an unknown kind]"),
    }
}
