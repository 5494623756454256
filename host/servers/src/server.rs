//! A server as a provider.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use berth_core::config::{Folders, Loaded};
use berth_core::text::neutral_line;
use berth_core::{
    Body, BoxFuture, Call, Category, Content, Definition, Failure, HostError, Offers, Outcome,
    Output, Provider, server_places,
};
use rmcp::model::{
    CallToolResult, ContentBlock, GetPromptResult, ReadResourceResult, ResourceContents, Role,
};
use serde_json::json;
use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore};

use crate::connection::{CallError, Connection, Era, Launch};
use crate::definitions::{OfferedTool, checked, offered};
use crate::inquiries::{MeasuringInquirer, WaitClock, within};
use crate::offers::{Asked, ServerOffers};
use crate::pins::{Pins, start_digest};

/// Calls of one server at the same time; further ones wait.
const MAX_CALLS: usize = 16;

/// Time for a server to start and to list its tools.
pub(crate) const START: Duration = Duration::from_secs(60);

/// Calls in a row that reach their time limit before the server is ended.
const MAX_TIMEOUTS: u32 = 2;

/// The longest pause before a server that failed is started again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A server that ends sooner after its start has failed.
const LASTED: Duration = Duration::from_secs(10);

/// The approved servers of the configuration. None is started before a call needs it. Blocks.
///
/// # Errors
///
/// [`HostError`]: a grant names a directory that doesn't exist, or the approvals can't be read.
pub fn providers(
    config: &Loaded,
    folders: &Folders,
    directory: &Path,
) -> Result<Vec<Arc<dyn Provider>>, HostError> {
    let mut providers: Vec<Arc<dyn Provider>> = Vec::new();
    if !config.config.mcp.enabled {
        return Ok(providers);
    }
    for (name, server) in &config.config.mcp.servers {
        if !server.enabled {
            continue;
        }
        let pins = Pins::load(folders, name)?;
        if pins.start != start_digest(server) {
            let state = if pins.start.is_empty() { "isn't approved" } else { "has changed" };
            tracing::warn!("the server `{name}` {state}: run `berth mcp approve {name}`");
            continue;
        }
        let Some(launch) = launch(config, folders, directory, name)? else { continue };
        providers.push(Arc::new(Server::new(name, Arc::new(launch), pins)));
    }
    Ok(providers)
}

/// How the server `name` is started.
pub(crate) fn launch(
    config: &Loaded,
    folders: &Folders,
    directory: &Path,
    name: &str,
) -> Result<Option<Launch>, HostError> {
    let Some(server) = config.config.mcp.servers.get(name).cloned() else { return Ok(None) };
    let helper = berth_core::own_helper();
    let places = server_places(config, folders, directory, helper, name)?;
    Ok(places.map(|places| Launch { server, places, directory: directory.to_owned() }))
}

/// A server of the configuration.
struct Server {
    /// The name of its table.
    server: String,
    /// The name of the provider. No plugin has a `.` in its name, so none shares its rules.
    name: String,
    launch: Arc<Launch>,
    era: Era,
    tools: HashMap<String, OfferedTool>,
    definitions: Vec<Arc<Definition>>,
    offers: ServerOffers,
    /// Its own name and version: as it says since it runs, before as it was approved.
    version: std::sync::Mutex<String>,
    /// Locked while it starts, so that it starts once.
    state: Arc<Mutex<State>>,
    calls: Semaphore,
}

/// The running server.
#[derive(Default)]
struct State {
    connection: Option<Arc<Connection>>,
    started: Option<Instant>,
    /// The digests of what it offers now, by its own names of its tools.
    current: HashMap<String, String>,
    /// Failures in a row.
    failures: u32,
    /// Until when it isn't started again, and why.
    paused: Option<(Instant, String)>,
    last_call: Option<Instant>,
    /// Calls in a row that reached their time limit.
    timeouts: u32,
}

impl State {
    /// Ends a server that answers nothing any more. The next call starts it again.
    fn count_timeout(&mut self) {
        self.timeouts += 1;
        if self.timeouts >= MAX_TIMEOUTS {
            (self.connection, self.timeouts) = (None, 0);
        }
    }

    fn fail(&mut self, reason: String) {
        self.connection = None;
        let pause = Duration::from_secs(1 << self.failures.min(6)).min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.paused = Some((Instant::now() + pause, reason));
    }
}

impl Server {
    fn new(name: &str, launch: Arc<Launch>, pins: Pins) -> Self {
        let (tools, left_out) = offered(name, &pins, launch.server.trust_annotations);
        let offers = ServerOffers::new(name, &pins.offers, launch.server.trust_annotations);
        for (tool, reason) in left_out {
            tracing::warn!("the tool `{tool}` of the server `{name}` is left out: {reason}");
        }
        let definitions = tools.iter().map(|tool| Arc::clone(&tool.definition));
        let definitions = definitions.chain(offers.definitions.iter().cloned()).collect();
        let tools = tools.into_iter().map(|tool| (tool.definition.name.clone(), tool)).collect();
        Self {
            server: name.to_owned(),
            name: format!("mcp.{name}"),
            era: Era::from_protocol(&pins.protocol),
            launch,
            tools,
            definitions,
            offers,
            version: std::sync::Mutex::new(version([&pins.name, &pins.version])),
            state: Arc::default(),
            calls: Semaphore::new(MAX_CALLS),
        }
    }

    /// The connection for a call of this tool. `None`: it is for something else than a tool.
    async fn connection(&self, tool: Option<&OfferedTool>) -> Result<Arc<Connection>, Failure> {
        let mut state = Arc::clone(&self.state).lock_owned().await;
        state.last_call = Some(Instant::now());
        let lost = state.connection.as_ref().and_then(|connection| connection.ended());
        if let Some(reason) = lost {
            if state.started.is_some_and(|started| started.elapsed() < LASTED) {
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
            // It goes on if the call is cancelled: others may wait for it.
            let starting = start(Arc::clone(&self.launch), self.era, state, now);
            state = tokio::spawn(starting)
                .await
                .map_err(|error| self.unavailable(&error.to_string()))?;
        }
        let Some(connection) = state.connection.clone() else {
            let reason = state.paused.as_ref().map_or("", |(_, reason)| reason.as_str());
            return Err(self.unavailable(reason));
        };
        let [_, own_name, own_version, _] = connection.about();
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) =
            version([&own_name, &own_version]);
        let Some(tool) = tool else { return Ok(connection) };
        match state.current.get(&tool.pin.name) {
            Some(digest) if *digest == tool.pin.digest => Ok(connection),
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
                    "`berth mcp approve {}` shows the difference; then start this host again.",
                    self.server
                )))
            }
        }
    }

    fn unavailable(&self, reason: &str) -> Failure {
        let message =
            format!("the server `{}` can't be used: {}", self.server, neutral_line(reason));
        Failure::new(Category::ServerError, message)
    }

    async fn run(&self, call: &Call) -> Outcome {
        let asked = self.offers.asked(call).transpose()?;
        let tool = self.tools.get(&call.tool);
        let _place = self.calls.acquire().await;
        let (connection, answer) = match (asked, tool) {
            (Some(asked), _) => {
                let connection = self.connection(None).await?;
                let answer = match asked {
                    Asked::Resource(uri) => connection.read(&uri, call).await.map(resource),
                    Asked::Prompt(params) => connection.prompt(&params, call).await.map(prompt),
                };
                (connection, answer)
            }
            (None, Some(tool)) => {
                let connection = self.connection(Some(tool)).await?;
                let answer = match connection.call(&tool.pin.name, call).await {
                    Ok(result) => Ok(fitting(tool, outcome(result)).await),
                    Err(error) => Err(error),
                };
                (connection, answer)
            }
            (None, None) => {
                return Err(Failure::new(Category::ToolNotFound, "the server has no such tool"));
            }
        };
        let mut state = self.state.lock().await;
        state.last_call = Some(Instant::now());
        match answer {
            Ok(result) => {
                (state.failures, state.paused, state.timeouts) = (0, None, 0);
                drop(state);
                result
            }
            Err(CallError::Refused(reason)) => {
                let message = format!("the server `{}` refused the call: {reason}", self.server);
                Err(Failure::new(Category::PermanentFailure, message))
            }
            Err(CallError::Lost(reason)) => {
                let is_current = state
                    .connection
                    .as_ref()
                    .is_some_and(|current| Arc::ptr_eq(current, &connection));
                if is_current {
                    state.fail(reason.clone());
                }
                Err(self.unavailable(&reason))
            }
        }
    }
}

impl Drop for Server {
    /// The program may end at once, so the server ends before.
    fn drop(&mut self) {
        let connection = self.state.try_lock().ok().and_then(|mut state| state.connection.take());
        if let Some(connection) = connection.and_then(Arc::into_inner) {
            connection.end();
        }
    }
}

impl Provider for Server {
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

    fn call(&self, mut call: Call) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            let own = Duration::from_secs(self.launch.server.timeout_secs.get());
            let time = call.time.map_or(own, |time| time.min(own));
            let clock = Arc::new(WaitClock::default());
            let inquirer = call.inquirer.take().filter(|_| self.launch.server.elicitation);
            call.inquirer = inquirer.map(|inquirer| {
                Arc::new(MeasuringInquirer { inquirer, clock: Arc::clone(&clock) }) as _
            });
            let run = within(time, &clock, self.run(&call));
            match call.cancel.run_until_cancelled(run).await {
                None => Err(Failure::new(Category::Cancelled, "the call was cancelled")),
                Some(Some(outcome)) => outcome,
                Some(None) => {
                    // If it is locked, the server is starting.
                    if let Ok(mut state) = self.state.try_lock() {
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

/// Starts the server unless it runs, and lists its tools. Returns the state of it.
async fn start(
    launch: Arc<Launch>,
    era: Era,
    mut state: OwnedMutexGuard<State>,
    now: Instant,
) -> OwnedMutexGuard<State> {
    let running = state.connection.take();
    let is_new = running.is_none();
    let idle = Duration::from_secs(launch.server.idle_secs.get());
    let open = async {
        let connection = match running {
            Some(connection) => connection,
            None => Arc::new(Connection::open(launch, era).await?),
        };
        let tools = connection.tools().await?;
        // Hashing and compiling schemas takes time.
        let (pins, _) = tokio::task::spawn_blocking(move || checked(&tools))
            .await
            .map_err(|error| error.to_string())?;
        Ok((connection, pins))
    };
    let opened = tokio::time::timeout(START, open)
        .await
        .unwrap_or_else(|_| Err(format!("it didn't start within {} s", START.as_secs())));
    match opened {
        Ok((connection, pins)) => {
            state.current = pins.into_iter().map(|pin| (pin.name, pin.digest)).collect();
            if is_new {
                state.started = Some(now);
                let whole = Arc::downgrade(OwnedMutexGuard::mutex(&state));
                tokio::spawn(end_idle(whole, Arc::downgrade(&connection), idle));
            }
            state.connection = Some(connection);
        }
        Err(reason) => state.fail(reason),
    }
    state
}

/// Ends a connection that no call used for some time.
async fn end_idle(state: Weak<Mutex<State>>, connection: Weak<Connection>, idle: Duration) {
    let mut pause = idle;
    loop {
        tokio::time::sleep(pause).await;
        let (Some(state), Some(connection)) = (state.upgrade(), connection.upgrade()) else {
            return;
        };
        let mut state = state.lock().await;
        if !state.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, &connection)) {
            return;
        }
        let since = state.last_call.map_or(idle, |last| last.elapsed());
        // The state and this task have one each; calls have the others.
        let is_used = Arc::strong_count(&connection) > 2;
        if since >= idle && !is_used {
            state.connection = None;
            return;
        }
        pause = idle.saturating_sub(since).max(Duration::from_secs(1));
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
fn resource(result: ReadResourceResult) -> Outcome {
    let content = result.contents.into_iter().map(contents).collect();
    Ok(Output { content, structured: None, meta: None })
}

/// A prompt in the host's form: a part for each message.
fn prompt(result: GetPromptResult) -> Outcome {
    let message = |message: rmcp::model::PromptMessage| {
        let meta = (message.role == Role::Assistant).then(|| json!({ "role": "assistant" }));
        Content { meta, ..content(message.content) }
    };
    let content = result.messages.into_iter().map(message).collect();
    Ok(Output { content, structured: None, meta: None })
}

/// The result of a call in the host's form.
fn outcome(result: CallToolResult) -> Outcome {
    let is_error = result.is_error == Some(true);
    let content: Vec<Content> = result.content.into_iter().map(content).collect();
    if is_error {
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
