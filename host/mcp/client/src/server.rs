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
use toolhold_core::text::cut;
use toolhold_core::{
    Body, BoxFuture, Call, Category, Content, Definition, Failure, Offers, Outcome, Output,
    ToolSource, ToolSourceState,
};

use crate::connection::{CallError, Connection, ServerInfo};
use crate::definitions::{OfferedTool, offered_tools};
use crate::inquiries::{MeasuringInquirer, WaitClock, within};
use crate::masked::mask_outcome;
use crate::offers::{OfferRequest, ServerOffers};
use crate::reason::Reason;
use crate::running::{Running, State};

/// Bytes of an answer that are searched for signs of a missing grant.
const MAX_WORDS: usize = 16 * 1024;

/// A server of the configuration.
pub(crate) struct Server {
    /// The name of the server's configuration table.
    server: String,
    /// The name of the provider. It contains a `.`, so no plugin can have this name and its rules.
    name: String,
    running: Arc<Running>,
    tools: HashMap<String, OfferedTool>,
    definitions: Vec<Arc<Definition>>,
    offers: ServerOffers,
    /// The server's own name and version, from the last session. Before the first session, these
    /// are the approved name and version.
    version: Mutex<String>,
}

/// The outcome of one attempt at a call.
enum Attempt {
    Done(Outcome),
    /// The server didn't process the call because it no longer knows the session.
    Unheard(Failure),
}

/// Returns the name of a server's provider.
pub(crate) fn provider_name(server: &str) -> String {
    format!("mcp.{server}")
}

impl Server {
    /// Makes the server with this program.
    pub(crate) fn new(name: &str, running: Arc<Running>) -> Self {
        let pins = &running.pins;
        let table = &running.launch.server;
        let (tools, left_out) = offered_tools(name, pins, table);
        let offers = ServerOffers::new(name, &pins.offers, table.trust_annotations);
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
            version: Mutex::new(join_version(&pins.name, &pins.version)),
            running,
        }
    }

    /// Returns the connection for a call of this tool. Starts the server if it doesn't run. `tool`
    /// is `None` for a call that gets a prompt or a resource.
    async fn connection(&self, tool: Option<&OfferedTool>) -> Result<Arc<Connection>, Failure> {
        let mut state = Arc::clone(&self.running.state).lock_owned().await;
        state.last_call = Some(Instant::now());
        state.close_lost();

        let needs_list = match &state.connection {
            Some(connection) => connection.take_change(),
            None => true,
        };
        if needs_list {
            let now = Instant::now();
            if let Some((until, reason)) = &state.paused
                && *until > now
            {
                return Err(self.unavailable(reason).retry_in(*until - now));
            }
            let started = self.running.start(state, now).await;
            state = started.map_err(|reason| self.unavailable(&reason.into()))?;
        }
        let Some(connection) = state.connection.clone() else {
            let reason = state.paused.as_ref().map(|(_, reason)| reason.clone());
            return Err(self.unavailable(&reason.unwrap_or_default()));
        };

        let ServerInfo { name, version, .. } = connection.about();
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) =
            join_version(&name, &version);
        if let Some(tool) = tool {
            self.check_approved(tool, &state)?;
        }
        Ok(connection)
    }

    /// Checks that the server offers a tool in its approved form.
    fn check_approved(&self, tool: &OfferedTool, state: &State) -> Result<(), Failure> {
        let change = match state.current.get(&tool.own_name) {
            Some(digest) if *digest == tool.digest => return Ok(()),
            Some(_) => "has changed",
            None => "is missing",
        };
        let server = &self.server;
        let name = &tool.definition.name;
        let message =
            format!("the tool `{name}` of the server `{server}` {change} since it was approved");
        let suggestion = format!("`toolhold mcp approve {server}` shows the difference.");
        Err(Failure::new(Category::PermanentFailure, message)
            .with_code("changed")
            .with_suggestion(suggestion))
    }

    fn unavailable(&self, reason: &Reason) -> Failure {
        let what = format!("the server `{}` can't be used", self.server);
        reason.failure(Category::ServerError, &what)
    }

    async fn run(&self, call: &Call) -> Outcome {
        let request = self.offers.parse_request(call)?;
        let tool = self.tools.get(&call.tool);
        let _permit = self.running.calls.acquire().await;
        if let Attempt::Done(outcome) = self.attempt(call, request.as_ref(), tool).await? {
            return outcome;
        }
        // The server may have restarted, so the call is tried once more in a new session.
        match self.attempt(call, request.as_ref(), tool).await? {
            Attempt::Done(outcome) => outcome,
            Attempt::Unheard(failure) => Err(failure),
        }
    }

    /// Tries once to make a call.
    async fn attempt(
        &self,
        call: &Call,
        request: Option<&OfferRequest>,
        tool: Option<&OfferedTool>,
    ) -> Result<Attempt, Failure> {
        let (connection, answer) = match (request, tool) {
            (Some(request), _) => {
                let connection = self.connection(None).await?;
                let answer = match request {
                    OfferRequest::Resource(uri) => connection.read(uri, call).await.map(resource),
                    OfferRequest::Prompt(params) => {
                        connection.prompt(params, call).await.map(prompt)
                    }
                };
                (connection, answer)
            }
            (None, Some(tool)) => {
                let connection = self.connection(Some(tool)).await?;
                let answer = match connection.call(&tool.own_name, call).await {
                    Ok(result) => Ok(remove_unfit_value(tool, outcome(result)).await),
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
                state.advice = None;
                drop(state);
                let outcome = mask_outcome(result, connection.ended_state());
                Ok(Attempt::Done(self.with_advice(outcome).await))
            }
            Err(CallError::Refused(reason)) => {
                drop(state);
                let what = format!("the server `{}` refused the call", self.server);
                let failure = reason.failure(Category::PermanentFailure, &what);
                Ok(Attempt::Done(self.with_advice(Err(failure)).await))
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

    /// Adds advice to a failure of which a missing grant may be the cause.
    async fn with_advice(&self, outcome: Outcome) -> Outcome {
        let failure = match outcome {
            Ok(output) => return Ok(output),
            Err(failure) => failure,
        };
        let words = words_of(&failure);
        let launch = Arc::clone(&self.running.launch);
        let advised = tokio::task::spawn_blocking(move || launch.advise(&words)).await;
        let Ok(Some(advice)) = advised else { return Err(failure) };
        self.running.state.lock().await.advice = Some(advice.clone());
        Err(failure.with_suggestion(advice))
    }
}

/// Returns the beginning of a server's words about a failure.
fn words_of(failure: &Failure) -> String {
    let mut words = String::new();
    for part in &failure.content {
        if let Body::Text(text) = &part.body
            && words.len() < MAX_WORDS
        {
            words.push('\n');
            words.push_str(cut(text, MAX_WORDS));
        }
    }
    words
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
        let version = self.version.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if version.is_empty() { None } else { Some(version) }
    }

    fn is_third_party(&self) -> bool {
        true
    }

    fn state(&self) -> Option<ToolSourceState> {
        Some(self.running.describe(&self.name))
    }

    fn call(&self, mut call: Call) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            let limit = Duration::from_secs(self.running.launch.server.timeout_secs.get());
            let time = call.time.map_or(limit, |time| time.min(limit));
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
                    let server = &self.server;
                    let seconds = time.as_secs_f64();
                    let message = format!(
                        "the server `{server}` didn't answer within {seconds} s, the limit"
                    );
                    let suggestion =
                        format!("`timeout_secs` in [mcp.servers.{server}] sets the limit.");
                    Err(Failure::new(Category::Timeout, message).with_suggestion(suggestion))
                }
            }
        })
    }
}

/// A failure after which a call can be repeated later.
trait RetryIn {
    fn retry_in(self, time: Duration) -> Self;
}

impl RetryIn for Failure {
    fn retry_in(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }
}

/// Removes a structured value that doesn't match the tool's output schema. A client that expects a
/// value then gets an error.
async fn remove_unfit_value(tool: &OfferedTool, outcome: Outcome) -> Outcome {
    let mut output = outcome?;
    if tool.definition.output_schema.is_none() {
        return Ok(output);
    }
    let Some(value) = output.structured.take() else { return Ok(output) };
    let tool = tool.clone();
    let checked = tokio::task::spawn_blocking(move || tool.fits(&value).then_some(value)).await;
    output.structured = checked.unwrap_or(None);
    Ok(output)
}

/// Joins the name and version of a server's program. Both may be empty.
pub(crate) fn join_version(name: &str, version: &str) -> String {
    format!("{name} {version}").trim().to_owned()
}

/// Converts a resource to the host's form, with one part for each of its contents.
pub(crate) fn resource(result: ReadResourceResult) -> Outcome {
    let content = result.contents.into_iter().map(contents).collect();
    Ok(Output { content, structured: None, meta: None })
}

/// Converts a prompt to the host's form, with one part for each message.
pub(crate) fn prompt(result: GetPromptResult) -> Outcome {
    let parts = result.messages.into_iter().map(|message| {
        let mut part = content(message.content);
        if message.role == Role::Assistant {
            part.meta = Some(json!({ "role": "assistant" }));
        }
        part
    });
    Ok(Output { content: parts.collect(), structured: None, meta: None })
}

/// Converts the result of a call to the host's form.
pub(crate) fn outcome(result: CallToolResult) -> Outcome {
    let mut content: Vec<Content> = result.content.into_iter().map(content).collect();
    let structured = result.structured_content;
    if result.is_error != Some(true) {
        return Ok(Output { content, structured, meta: None });
    }
    // Clients and models that read only text would learn nothing of the error.
    if content.is_empty()
        && let Some(error) = &structured
    {
        content.push(Content::text(error.to_string()));
    }
    let mut failure = Failure::new(Category::PermanentFailure, "the tool failed");
    failure.content = content;
    failure.structured = structured;
    Err(failure)
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
