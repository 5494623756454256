//! Makes the calls of an upstream server's tools, prompts and resources.

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
use crate::naming::provider_name;
use crate::offers::{OfferRequest, ServerOffers};
use crate::reason::Reason;
use crate::running::{Running, State};

/// Bytes of an error that are searched for signs of a missing grant.
const MAX_FAILURE_TEXT: usize = 16 * 1024;

pub(crate) struct Server {
    /// The name of the server's table.
    server: String,
    /// The name of the provider. Contains a `.`, so no plugin can have this name and its rules.
    name: String,
    running: Arc<Running>,
    tools: HashMap<String, OfferedTool>,
    definitions: Vec<Arc<Definition>>,
    offers: ServerOffers,
    /// The server's name and version in the last session, or the approved ones before it.
    version: Mutex<String>,
}

enum Attempt {
    Done(Outcome),
    /// The server has not processed the call, because it no longer knows the session.
    Unheard(Failure),
}

impl Server {
    pub(crate) fn new(name: &str, running: Arc<Running>) -> Self {
        let pins = &running.pins;
        let table = &running.launch.server;
        let (tools, left_out) = offered_tools(name, pins, table);
        let offers = ServerOffers::new(name, &pins.offers, table.trust_annotations);
        for (tool, reason) in left_out {
            tracing::warn!("the tool `{tool}` of the server `{name}` is left out: {reason}");
        }
        let mut definitions = Vec::new();
        for tool in &tools {
            definitions.push(Arc::clone(&tool.definition));
        }
        definitions.extend(offers.definitions.iter().cloned());
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

    /// Returns the connection for a call, and starts the server if needed. `tool` is `None` for a
    /// prompt or resource.
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
            // A failed start begins a pause, which has the reason of the failure.
            let reason = match &state.paused {
                Some((_until, reason)) => reason.clone(),
                None => Reason::default(),
            };
            return Err(self.unavailable(&reason));
        };

        let ServerInfo { name, version, .. } = connection.about();
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) =
            join_version(&name, &version);
        if let Some(tool) = tool {
            self.check_approved(tool, &state)?;
        }
        Ok(connection)
    }

    /// Checks that the running server offers a tool with the approved definition.
    fn check_approved(&self, tool: &OfferedTool, state: &State) -> Result<(), Failure> {
        let change = match state.current.get(&tool.own_name) {
            Some(digest) if *digest == tool.digest => return Ok(()),
            Some(_) => "has changed",
            None => "is missing",
        };
        let server = &self.server;
        let name = &tool.definition.name;
        let message =
            format!("the tool `{name}` of the server `{server}` {change} since the approval");
        let suggestion = format!("`toolhold mcp approve {server}` shows the difference.");
        Err(Failure::new(Category::PermanentFailure, message)
            .with_code("changed")
            .with_suggestion(suggestion))
    }

    fn unavailable(&self, reason: &Reason) -> Failure {
        let what = format!("the server `{}` can't be used", self.server);
        reason.failure(Category::ServerError, &what)
    }

    /// Runs a call. A call that didn't reach the server is repeated once.
    async fn run(&self, call: &Call) -> Outcome {
        let request = self.offers.parse_request(call)?;
        let tool = self.tools.get(&call.tool);
        let _permit = self.running.calls.acquire().await;
        if let Attempt::Done(outcome) = self.attempt(call, request.as_ref(), tool).await? {
            return outcome;
        }
        // The server no longer knew the session. The second attempt uses a new session.
        match self.attempt(call, request.as_ref(), tool).await? {
            Attempt::Done(outcome) => outcome,
            Attempt::Unheard(failure) => Err(failure),
        }
    }

    async fn attempt(
        &self,
        call: &Call,
        request: Option<&OfferRequest>,
        tool: Option<&OfferedTool>,
    ) -> Result<Attempt, Failure> {
        let (connection, start, answer) = match (request, tool) {
            (Some(request), _) => {
                let connection = self.connection(None).await?;
                let start = CallStart::new(&connection);
                let answer = match request {
                    OfferRequest::Resource(uri) => connection.read(uri, call).await.map(resource),
                    OfferRequest::Prompt(params) => {
                        connection.prompt(params, call).await.map(prompt)
                    }
                };
                (connection, start, answer)
            }
            (None, Some(tool)) => {
                let connection = self.connection(Some(tool)).await?;
                let start = CallStart::new(&connection);
                let answer = match connection.call(&tool.own_name, call).await {
                    Ok(result) => Ok(remove_unfit_value(tool, outcome(result)).await),
                    Err(error) => Err(error),
                };
                (connection, start, answer)
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
                let outcome = mask_outcome(result, connection.state());
                Ok(Attempt::Done(self.with_advice(outcome, &connection, start).await))
            }
            Err(CallError::Refused(reason)) => {
                drop(state);
                let what = format!("the server `{}` refused the call", self.server);
                let failure = reason.failure(Category::PermanentFailure, &what);
                Ok(Attempt::Done(self.with_advice(Err(failure), &connection, start).await))
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

    /// Adds advice to a failure of a call if a missing grant may be the cause.
    async fn with_advice(
        &self,
        outcome: Outcome,
        connection: &Connection,
        start: CallStart,
    ) -> Outcome {
        let failure = match outcome {
            Ok(output) => return Ok(output),
            Err(failure) => failure,
        };
        let failure_text = text_of(&failure);
        // Some servers write the cause only to their log.
        let stderr = connection.stderr_since(start.stderr_length).await;
        let denial = connection.denial_since(start.time);
        let launch = Arc::clone(&self.running.launch);
        let result = tokio::task::spawn_blocking(move || {
            launch.advise(&[&failure_text, &stderr], denial.as_ref())
        })
        .await;
        let Ok(Some(advice)) = result else { return Err(failure) };
        // Store the advice, because the description of the server also contains it.
        self.running.state.lock().await.advice = Some(advice.clone());
        Err(failure.with_suggestion(advice))
    }
}

/// The start of a call, from which the cause of a failure is searched.
struct CallStart {
    time: Instant,
    /// Bytes that the server had written to its standard error before the call.
    stderr_length: usize,
}

impl CallStart {
    fn new(connection: &Connection) -> Self {
        Self { time: Instant::now(), stderr_length: connection.state().stderr_length() }
    }
}

/// Returns the start of the text that the server sent with a failure.
fn text_of(failure: &Failure) -> String {
    let mut failure_text = String::new();
    for part in &failure.content {
        if let Body::Text(text) = &part.body
            && failure_text.len() < MAX_FAILURE_TEXT
        {
            failure_text.push('\n');
            failure_text.push_str(cut(text, MAX_FAILURE_TEXT));
        }
    }
    failure_text
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
            let time = match call.time {
                Some(time) => time.min(limit),
                None => limit,
            };

            // The time limit doesn't include the time in which the user answers a question.
            let clock = Arc::new(WaitClock::default());
            let can_ask_user = self.running.launch.server.elicitation;
            let inquirer = call.inquirer.take();
            if let Some(inquirer) = inquirer
                && can_ask_user
            {
                let clock = Arc::clone(&clock);
                call.inquirer = Some(Arc::new(MeasuringInquirer { inquirer, clock }));
            }

            let run = within(time, &clock, self.run(&call));
            match call.cancel.run_until_cancelled(run).await {
                None => Err(Failure::new(Category::Cancelled, "the call was cancelled")),
                Some(Some(outcome)) => outcome,
                // The time limit has passed.
                Some(None) => {
                    // The state is locked while the server starts, and a slow start isn't a timeout
                    // of a call.
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

trait RetryIn {
    fn retry_in(self, time: Duration) -> Self;
}

impl RetryIn for Failure {
    fn retry_in(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }
}

/// Removes a structured value that doesn't match the tool's output schema. A client that requires
/// the value then gets an error.
async fn remove_unfit_value(tool: &OfferedTool, outcome: Outcome) -> Outcome {
    let mut output = outcome?;
    if tool.definition.output_schema.is_none() {
        return Ok(output);
    }
    let Some(value) = output.structured.take() else { return Ok(output) };
    let tool = tool.clone();
    let checking =
        tokio::task::spawn_blocking(move || if tool.fits(&value) { Some(value) } else { None });
    // A panic in the check also removes the value.
    output.structured = checking.await.unwrap_or(None);
    Ok(output)
}

/// Joins a name and a version. Both may be empty.
pub(crate) fn join_version(name: &str, version: &str) -> String {
    format!("{name} {version}").trim().to_owned()
}

pub(crate) fn resource(result: ReadResourceResult) -> Outcome {
    let content = result.contents.into_iter().map(contents).collect();
    Ok(Output { content, structured: None, meta: None })
}

/// Converts a prompt to the content of an answer. Messages of the assistant are marked.
pub(crate) fn prompt(result: GetPromptResult) -> Outcome {
    let mut parts = Vec::new();
    for message in result.messages {
        let mut part = content(message.content);
        if message.role == Role::Assistant {
            part.meta = Some(json!({ "role": "assistant" }));
        }
        parts.push(part);
    }
    Ok(Output { content: parts, structured: None, meta: None })
}

/// Converts the result of a tool to an answer or a failure.
pub(crate) fn outcome(result: CallToolResult) -> Outcome {
    let mut content: Vec<Content> = result.content.into_iter().map(content).collect();
    let structured = result.structured_content;
    if result.is_error != Some(true) {
        return Ok(Output { content, structured, meta: None });
    }
    // Clients that ignore structured values would otherwise show no error text.
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

/// Converts the contents of a resource.
fn contents(contents: ResourceContents) -> Content {
    match contents {
        ResourceContents::TextResourceContents { text, mime_type, .. } => {
            Content { media_type: mime_type, ..Content::text(text) }
        }
        ResourceContents::BlobResourceContents { blob, mime_type, .. } => bytes(&blob, mime_type),
        _ => Content::text("[content of an unknown kind]"),
    }
}

/// Converts a block of content.
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
