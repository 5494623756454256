//! The session with a running upstream server: handshake, lists, calls and end.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ContentBlock,
    CustomResult, GetPromptRequest, GetPromptRequestParams, GetPromptResult, InputResponses,
    ListToolsRequest, PaginatedRequestParams, ProtocolVersion, ReadResourceRequest,
    ReadResourceRequestParams, ReadResourceResult, ServerResult, SubscriptionFilter,
};
use rmcp::service::{
    ClientLifecycleMode, PeerRequestOptions, RequestHandle, RunningService, ServiceError,
    serve_client_with_lifecycle,
};
use rmcp::transport::Transport;
use rmcp::{Peer, RoleClient};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::{Handle, RuntimeFlavor};
use toolhold_core::text::{cut, neutral_line, neutral_owned};
use toolhold_core::{Call, Denial};
use toolhold_net::HostGate;
use toolhold_system::process::{Child, Ending};

use crate::MAX_TOOLS;
use crate::client::Client;
use crate::gate::{ConnectionState, EndError};
use crate::http::Http;
use crate::inquiries::MAX_QUESTIONS;
use crate::launch::{Launch, LaunchError, Secrets};
use crate::listed_tools::ListedTools;
use crate::pipe::Pipe;
use crate::program_end::{describe_end, last_words};
use crate::reason::Reason;

/// Time for a server to end by itself.
const END_TIMEOUT: Duration = Duration::from_millis(500);

/// Time for a server to accept a subscription to changes.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(2);

/// Time to wait after an answer until the standard error that the server wrote before it has been
/// read. Reading a full pipe takes four reads, with a pause after each.
const STDERR_DELAY: Duration = Duration::from_millis(50);

/// Most pages of a list.
pub(crate) const MAX_PAGES: usize = 64;

/// Longest name, version or protocol revision of a server in bytes. Longer strings are cut.
const MAX_NAME_BYTES: usize = 128;

/// Longest reason of an end in bytes, without the server's last output. Longer reasons are cut.
const MAX_REASON_BYTES: usize = 1024;

/// Longest kind of a content block in bytes. Longer kinds are cut.
const MAX_KIND_BYTES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// The server may speak any revision, so it is asked.
    Unknown,
    /// The server speaks only revisions with a handshake.
    Handshake,
}

impl Era {
    pub(crate) fn from_protocol(protocol: &str) -> Self {
        match protocol {
            "" => Self::Unknown,
            protocol if protocol < ProtocolVersion::V_2026_07_28.as_str() => Self::Handshake,
            _ => Self::Unknown,
        }
    }

    /// Returns how the session starts. If the server may support the newest revision, the client
    /// asks for this revision first. Otherwise the session starts with the handshake of older
    /// revisions.
    fn lifecycle(self) -> ClientLifecycleMode {
        match self {
            Self::Unknown => ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
                legacy_version: Some(ProtocolVersion::V_2025_11_25),
            },
            Self::Handshake => ClientLifecycleMode::Initialize,
        }
    }
}

/// The process of a server. Dropping ends the process.
#[derive(Default)]
struct Process {
    child: Option<Child>,
    /// The gate of the connections. `None` if no host is granted to the server.
    gate: Option<Arc<HostGate>>,
}

/// How a program ended by itself.
struct ProgramEnd {
    description: String,
    hint: Option<String>,
}

impl Process {
    /// Ends the program. Returns a description if the program had ended by itself.
    async fn into_end(
        mut self,
        launch: &Arc<Launch>,
        connection_state: &ConnectionState,
    ) -> Option<ProgramEnd> {
        let mut child = self.child.take()?;
        let denial = self.denial_since(None);
        let launch = Arc::clone(launch);
        let stderr = connection_state.last_stderr();
        let has_output_ended = matches!(connection_state.reason(), Some(EndError::Ended));
        let program_end = tokio::task::spawn_blocking(move || {
            // The output may end a moment before the program, so wait for the program for a moment.
            let max_wait = if has_output_ended { END_TIMEOUT } else { Duration::ZERO };
            child.wait_for_output(Some(Instant::now() + max_wait), &mut |_, _| {});
            let result = if has_output_ended { child.finished().cloned() } else { None };
            // The drop ends a program that still runs.
            drop(Self { child: Some(child), gate: None });

            let result = result?;
            let hint = launch.hint(&result, &stderr, denial.as_ref());
            Some(ProgramEnd { description: describe_end(&result), hint })
        });
        // A panic in the thread leaves no description.
        program_end.await.unwrap_or(None)
    }

    /// Returns the newest denial of a connection, if it isn't older than `start`.
    fn denial_since(&self, start: Option<Instant>) -> Option<Denial> {
        let (time, denial) = self.gate.as_ref()?.last_denial()?;
        if start.is_some_and(|start| time < start) { None } else { Some(denial) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(child) = self.child.take() else { return };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || end_program(child))),
            Err(_) => end_program(child),
        }
    }
}

fn end_program(mut child: Child) {
    // The standard input is closed, so most programs end by themselves.
    child.wait_for_output(Some(Instant::now() + END_TIMEOUT), &mut |_, _| {});
    child.end(Ending::Cancelled);
}

pub(crate) struct Connection {
    // Dropped first, which closes the pipes. The program can then end by itself.
    service: RunningService<RoleClient, Client>,
    process: Process,
    client: Client,
    connection_state: Arc<ConnectionState>,
}

impl Connection {
    /// Starts the server and the session.
    pub(crate) async fn open(launch: Arc<Launch>, era: Era) -> Result<Self, OpenError> {
        let can_ask_user = launch.server.elicitation;
        let launch_in_thread = Arc::clone(&launch);
        let started = tokio::task::spawn_blocking(move || {
            let secrets = launch_in_thread.secrets()?;
            let address = launch_in_thread.address(&secrets)?;
            // A server without an address is a program.
            let program =
                if address.is_none() { Some(launch_in_thread.start(&secrets)?) } else { None };
            Ok::<_, LaunchError>((program, address, secrets.connection_state()))
        });
        let (program, address, connection_state) = started.await.map_err(LaunchError::from)??;
        let connection_state = Arc::new(connection_state);

        if let Some(mut address) = address {
            address.tokens = launch.tokens().await?;
            let http = Http::new(address, Arc::clone(&connection_state));
            let process = Process::default();
            return Self::begin(http, process, &launch, era, connection_state, can_ask_user).await;
        }
        let (mut child, gate) = program.ok_or(LaunchError::NoProgram)?;
        let streams = child.take_streams().ok_or(LaunchError::NoPipes)?;
        let process = Process { child: Some(child), gate };
        let pipe = Pipe::new(streams, Arc::clone(&connection_state)).map_err(LaunchError::Pipes)?;
        Self::begin(pipe, process, &launch, era, connection_state, can_ask_user).await
    }

    /// Asks a server at a URL for its tools without a login. Returns its `WWW-Authenticate` header
    /// if the server requires authorization.
    pub(crate) async fn challenge(launch: &Arc<Launch>) -> Result<Option<String>, LaunchError> {
        let Some(address) = launch.address(&Secrets::default())? else { return Ok(None) };
        let connection_state = Arc::new(ConnectionState::default());
        let http = Http::new(address, Arc::clone(&connection_state));
        let process = Process::default();
        let era = Era::Unknown;
        let state_in_session = Arc::clone(&connection_state);
        let can_ask_user = false;
        let session = Self::begin(http, process, launch, era, state_in_session, can_ask_user).await;
        if let Ok(connection) = session {
            // The tools don't matter here. If the server refuses the request, `connection_state`
            // stores the refusal.
            let _ = connection.tools().await;
        }
        Ok(connection_state.challenge().map(str::to_owned))
    }

    /// Starts the session. With `can_ask_user`, the server may send elicitations.
    async fn begin<T: Transport<RoleClient> + 'static>(
        transport: T,
        process: Process,
        launch: &Arc<Launch>,
        era: Era,
        connection_state: Arc<ConnectionState>,
        can_ask_user: bool,
    ) -> Result<Self, OpenError> {
        let client = Client { can_ask_user, ..Client::default() };
        match serve_client_with_lifecycle(client.clone(), transport, era.lifecycle()).await {
            Ok(service) => Ok(Self { service, process, client, connection_state }),
            Err(error) => {
                let error_text = error.to_string();
                Err(explain_failed_start(&error_text, process, launch, &connection_state).await)
            }
        }
    }

    /// Ends the server's program, or the session with a server at a URL. Blocks for a moment: the
    /// sandbox removes its files from granted directories, and a server at a URL gets a request.
    pub(crate) fn end(self) {
        let Self { mut service, mut process, .. } = self;
        if let Some(mut child) = process.child.take() {
            drop(service);
            child.end(Ending::Cancelled);
        } else if let Ok(runtime) = Handle::try_current()
            && runtime.runtime_flavor() == RuntimeFlavor::MultiThread
        {
            let close = service.close_with_timeout(END_TIMEOUT);
            // If the request fails, the server ends the session by itself later.
            let _ = tokio::task::block_in_place(|| runtime.block_on(close));
        }
    }

    /// Returns the end of the server's standard error, neutralised.
    pub(crate) fn last_stderr(&self) -> String {
        neutral_owned(self.connection_state.last_stderr())
    }

    /// Returns the last lines of the program's standard error, without the first `start` bytes. The
    /// lines may contain control characters. Waits for a moment first, because standard error is
    /// read later than answers. Returns an empty string for a server at a URL.
    pub(crate) async fn stderr_since(&self, start: usize) -> String {
        if self.process.child.is_none() {
            return String::new();
        }
        tokio::time::sleep(STDERR_DELAY).await;
        self.connection_state.stderr_since(start)
    }

    /// Returns the newest denial of a connection since `start`.
    pub(crate) fn denial_since(&self, start: Instant) -> Option<Denial> {
        self.process.denial_since(Some(start))
    }

    pub(crate) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Returns the reason why the session has ended. Returns `None` if the session hasn't ended.
    pub(crate) fn end_reason(&self) -> Option<Reason> {
        let is_closed = self.service.is_closed() || self.peer().is_transport_closed();
        let reason = match self.connection_state.reason() {
            Some(reason) => reason,
            None if is_closed => &EndError::Ended,
            None => return None,
        };
        Some(with_last_output(&reason.to_string(), &self.connection_state))
    }

    /// Checks whether the server no longer knows the session, for example after a restart.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.connection_state.is_forgotten()
    }

    /// Asks a server without a handshake to announce changed tools. A server with a handshake
    /// announces changes without a request. Call this before a list is fetched: a change between
    /// the list and the subscription would be missed.
    async fn listen(&self) {
        let Some(info) = self.peer().peer_info() else { return };
        let Some(tools) = &info.capabilities.tools else { return };
        let can_announce = tools.list_changed == Some(true);
        let has_handshake = info.protocol_version < ProtocolVersion::V_2026_07_28;
        if !can_announce || has_handshake {
            return;
        }
        // `listening` stays true if the server refuses, so the server isn't asked again.
        let was_listening = self.client.listening.swap(true, Ordering::Relaxed);
        if was_listening {
            return;
        }
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        let result = tokio::time::timeout(LISTEN_TIMEOUT, self.peer().listen(filter)).await;
        let Ok(Ok(mut subscription)) = result else { return };

        let client = self.client.clone();
        tokio::spawn(async move {
            while let Ok(Some(_)) = subscription.next().await {
                client.changed.store(true, Ordering::Relaxed);
            }
            // Changes after the end of the subscription are missed, so the tools are listed again.
            // The next list also subscribes again.
            client.listening.store(false, Ordering::Relaxed);
            client.changed.store(true, Ordering::Relaxed);
        });
    }

    pub(crate) fn state(&self) -> &ConnectionState {
        &self.connection_state
    }

    /// Checks whether the server has announced changed tools since the last call.
    pub(crate) fn take_change(&self) -> bool {
        self.client.changed.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn about(&self) -> ServerInfo {
        let Some(info) = self.peer().peer_info() else { return ServerInfo::default() };
        let mut about = ServerInfo {
            protocol: short_line(info.protocol_version.as_str()),
            instructions: info.instructions.clone().unwrap_or_default(),
            ..ServerInfo::default()
        };
        if let Some(server) = &info.server_info {
            about.name = short_line(&server.name);
            about.version = short_line(&server.version);
        }
        about
    }

    /// Fetches all pages of the list of tools.
    pub(crate) async fn tools(&self) -> Result<ListedTools, Reason> {
        self.listen().await;
        let mut listed = ListedTools::default();
        let mut names = HashSet::new();
        let mut cursors = Cursors::default();
        for _ in 0..MAX_PAGES {
            let page = PaginatedRequestParams::default().with_cursor(cursors.current());
            let tools_before = listed.tools.len();
            let next_cursor = self.fetch_page(page, &mut listed).await?;

            // Some servers start their list again, with a new cursor. Then the page has only tools
            // with known names.
            let names_before = names.len();
            for tool in &listed.tools[tools_before..] {
                names.insert(tool.name.clone());
            }
            let has_tools = listed.tools.len() > tools_before;
            let has_new_name = names.len() > names_before;
            if has_tools && !has_new_name {
                listed.tools.truncate(tools_before);
                return Ok(listed);
            }

            // One tool above the limit tells the caller that there are too many tools.
            listed.tools.truncate(MAX_TOOLS + 1);
            listed.unreadable.truncate(MAX_TOOLS);
            let has_too_many = listed.tools.len() > MAX_TOOLS;
            let has_next_page = cursors.advance(next_cursor);
            if has_too_many || !has_next_page {
                return Ok(listed);
            }
        }
        Err(Reason::new(format!(
            "the server's list of tools has more than {MAX_PAGES} pages, the limit"
        )))
    }

    /// Fetches a page and adds its tools to `listed`. Returns the cursor of the next page.
    async fn fetch_page(
        &self,
        page: PaginatedRequestParams,
        listed: &mut ListedTools,
    ) -> Result<Option<String>, Reason> {
        match self.peer().list_tools(Some(page.clone())).await {
            Ok(result) => {
                listed.tools.extend(result.tools);
                return Ok(result.next_cursor);
            }
            // A tool on this page is malformed. The page is fetched again as raw JSON.
            Err(ServiceError::UnexpectedResponse) => {}
            Err(error) => return Err(self.explain(&error)),
        }
        let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(page));
        match self.peer().send_request(request).await {
            Ok(ServerResult::CustomResult(CustomResult(raw_page))) => {
                Ok(listed.add_raw_page(raw_page)?)
            }
            Ok(_) => Err(self.explain(&ServiceError::UnexpectedResponse)),
            Err(error) => Err(self.explain(&error)),
        }
    }

    /// Calls a tool. Dropping the future cancels the call at the server.
    pub(crate) async fn call(&self, tool: &str, call: &Call) -> Result<CallToolResult, CallError> {
        let mut params = CallToolRequestParams::new(tool.to_owned());
        params.arguments = match &*call.arguments {
            Value::Object(arguments) => Some(arguments.clone()),
            _ => None,
        };
        let answer = self
            .request(call, |responses, state| {
                let mut params = params.clone();
                params.input_responses = responses;
                params.request_state = state;
                ClientRequest::CallToolRequest(CallToolRequest::new(params))
            })
            .await?;
        let result = match answer {
            ServerResult::CallToolResult(result) => Some(result),
            ServerResult::CustomResult(CustomResult(value)) => with_known_content(value),
            _ => None,
        };
        result.ok_or_else(|| CallError::refused("the server's answer isn't the result of a tool"))
    }

    /// Reads a resource of the server.
    pub(crate) async fn read(
        &self,
        uri: &str,
        call: &Call,
    ) -> Result<ReadResourceResult, CallError> {
        let answer = self
            .request(call, |responses, state| {
                let mut params = ReadResourceRequestParams::new(uri);
                params.input_responses = responses;
                params.request_state = state;
                ClientRequest::ReadResourceRequest(ReadResourceRequest::new(params))
            })
            .await?;
        match answer {
            ServerResult::ReadResourceResult(result) => Ok(result),
            _ => Err(CallError::refused("the server's answer isn't a resource")),
        }
    }

    /// Gets a prompt of the server.
    pub(crate) async fn prompt(
        &self,
        params: &GetPromptRequestParams,
        call: &Call,
    ) -> Result<GetPromptResult, CallError> {
        let answer = self
            .request(call, |responses, state| {
                let mut params = params.clone();
                params.input_responses = responses;
                params.request_state = state;
                ClientRequest::GetPromptRequest(GetPromptRequest::new(params))
            })
            .await?;
        match answer {
            ServerResult::GetPromptResult(result) => Ok(result),
            _ => Err(CallError::refused("the server's answer isn't a prompt")),
        }
    }

    /// Sends a request. If the server answers that it needs input, asks the user and sends the
    /// request again.
    async fn request(
        &self,
        call: &Call,
        make_request: impl Fn(Option<InputResponses>, Option<String>) -> ClientRequest,
    ) -> Result<ServerResult, CallError> {
        let running = self.client.running.add(call);
        let mut responses = None;
        let mut state = None;
        for round in 0..=MAX_QUESTIONS {
            let required = match self.send(make_request(responses, state), call).await {
                Ok(ServerResult::InputRequiredResult(required)) => required,
                Ok(result) => return Ok(result),
                // The server has processed an earlier round, so the call must not be repeated.
                Err(CallError::Unheard(reason)) if round > 0 => {
                    return Err(CallError::Lost(reason));
                }
                Err(error) => return Err(error),
            };
            if required.input_requests.is_some() && !self.client.can_ask_user {
                return Err(CallError::refused(
                    "the server needs an answer from the user, but `elicitation = false` is set",
                ));
            }
            // If there are no questions, the request is repeated with the server's state alone.
            let requests = required.input_requests.unwrap_or_default();
            let answers = running.answers(requests).await;
            responses = Some(answers.map_err(|error| CallError::Refused(error.into()))?);
            state = required.request_state;
        }
        Err(CallError::refused(format!(
            "the server asked for input more than {MAX_QUESTIONS} times, the limit"
        )))
    }

    async fn send(&self, request: ClientRequest, call: &Call) -> Result<ServerResult, CallError> {
        let options = PeerRequestOptions::no_options();
        let handle = self
            .peer()
            .send_cancellable_request(request, options)
            .await
            .map_err(|error| CallError::Lost(self.explain(&error)))?;
        let id = handle.id.clone();
        let _watcher =
            self.client.watchers.add(handle.progress_token.clone(), Arc::clone(&call.events));
        let mut sent = SentCall(Some(handle));
        let answer = match &mut sent.0 {
            Some(handle) => (&mut handle.rx).await.unwrap_or(Err(ServiceError::TransportClosed)),
            None => Err(ServiceError::TransportClosed),
        };
        // Dropping `sent` would cancel the answered call.
        sent.0 = None;

        // An unheard request didn't reach the session, so it can be repeated.
        let is_unheard = self.connection_state.is_unheard(&id);
        match answer {
            Ok(result) => Ok(result),
            Err(error) if is_unheard => Err(CallError::Unheard(self.explain(&error))),
            Err(ServiceError::McpError(error)) => {
                let own = format!("error {}", error.code.0);
                Err(CallError::Refused(Reason::said(own, &error.message)))
            }
            // Over HTTP, each answer has its own stream, so the session continues if one stream
            // ends early.
            Err(ServiceError::TransportClosed)
                if self.process.child.is_none() && self.end_reason().is_none() =>
            {
                Err(CallError::refused("the server's stream ended before the answer"))
            }
            Err(error) => {
                if self.process.child.is_some() && self.end_reason().is_some() {
                    self.connection_state.wait_for_stderr().await;
                }
                Err(CallError::Lost(self.explain(&error)))
            }
        }
    }

    pub(crate) fn explain(&self, error: &ServiceError) -> Reason {
        self.end_reason().unwrap_or_else(|| Reason::said("", &error.to_string()))
    }
}

#[cfg(test)]
impl Connection {
    /// Begins a session over pipes, without a program. Returns `None` if the session fails.
    pub(crate) async fn over_pipe(
        pipe: Pipe,
        era: Era,
        connection_state: Arc<ConnectionState>,
    ) -> Option<Self> {
        let client = Client { can_ask_user: true, ..Client::default() };
        let service = serve_client_with_lifecycle(client.clone(), pipe, era.lifecycle()).await;
        Some(Self { service: service.ok()?, process: Process::default(), client, connection_state })
    }
}

/// What a server says about itself.
#[derive(Default)]
pub(crate) struct ServerInfo {
    /// The protocol revision.
    pub(crate) protocol: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) instructions: String,
}

pub(crate) struct OpenError {
    pub(crate) reason: Reason,
    /// Whether another [`Era`] may work.
    pub(crate) era_may_be_wrong: bool,
}

impl From<LaunchError> for OpenError {
    fn from(error: LaunchError) -> Self {
        Self { reason: error.into(), era_may_be_wrong: false }
    }
}

impl From<OpenError> for Reason {
    fn from(error: OpenError) -> Self {
        error.reason
    }
}

pub(crate) enum CallError {
    /// The server or the client refused the call.
    Refused(Reason),
    /// The connection is lost.
    Lost(Reason),
    /// The connection is lost, and the server has not processed the call.
    Unheard(Reason),
}

impl CallError {
    fn refused(reason: impl Into<String>) -> Self {
        Self::Refused(Reason::new(reason))
    }
}

/// A request that was sent. Dropping cancels it.
struct SentCall(Option<RequestHandle<RoleClient>>);

impl Drop for SentCall {
    fn drop(&mut self) {
        let Some(handle) = self.0.take() else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            let _ = handle.cancel(Some("the call was cancelled".to_owned())).await;
        });
    }
}

fn short_line(text: &str) -> String {
    neutral_line(cut(text, MAX_NAME_BYTES))
}

/// Ends the process of a session that couldn't start, and explains the failure.
async fn explain_failed_start(
    error: &str,
    process: Process,
    launch: &Arc<Launch>,
    connection_state: &ConnectionState,
) -> OpenError {
    if process.child.is_some() {
        connection_state.wait_for_stderr().await;
    }
    // Ending the process may set another reason, so the reason is read first.
    let end_reason = connection_state.reason().map(EndError::to_string);
    let program_end = process.into_end(launch, connection_state).await;
    let (end_description, hint) = match program_end {
        Some(ProgramEnd { description, hint }) => (Some(description), hint),
        None => (end_reason, None),
    };
    let reason = match end_description {
        Some(description) => with_last_output(&description, connection_state),
        None => Reason::said("", error),
    };
    // A server that refuses the authorization does so in each protocol revision, so another era
    // wouldn't help.
    let era_may_be_wrong = !connection_state.is_refused();
    OpenError { reason: reason.with_hint(hint), era_may_be_wrong }
}

/// Adds the server's last output, if there is any, to the reason why the server ended.
fn with_last_output(reason: &str, connection_state: &ConnectionState) -> Reason {
    let reason = neutral_line(cut(reason, MAX_REASON_BYTES));
    let stderr = connection_state.last_stderr();
    if stderr.is_empty() {
        return Reason::new(reason);
    }
    Reason::said(format!("{reason}; the server's last output"), &last_words(&stderr))
}

/// The cursors of a list. A repeated cursor ends the list: after the last page, some servers send
/// an empty cursor or the same cursor again.
#[derive(Default)]
pub(crate) struct Cursors {
    seen: HashSet<String>,
    current: Option<String>,
}

impl Cursors {
    /// Returns the cursor of the next page, or `None` for the first page.
    pub(crate) fn current(&self) -> Option<String> {
        self.current.clone()
    }

    /// Takes the cursor at the end of a page. Returns whether there is another page.
    pub(crate) fn advance(&mut self, next: Option<String>) -> bool {
        let is_new = next.as_ref().is_some_and(|next| self.seen.insert(next.clone()));
        self.current = next;
        is_new
    }
}

/// Parses the result of a tool. A note replaces each block of an unknown or incomplete kind.
/// Returns `None` if `result` isn't the result of a tool.
fn with_known_content(mut result: Value) -> Option<CallToolResult> {
    for block in result.get_mut("content")?.as_array_mut()? {
        if ContentBlock::deserialize(&*block).is_err() {
            let raw_kind = block.get("type").and_then(Value::as_str).unwrap_or("(none)");
            let kind = neutral_line(cut(raw_kind, MAX_KIND_BYTES));
            let note = format!("[content of the unknown or incomplete kind `{kind}` is left out]");
            *block = json!({ "type": "text", "text": note });
        }
    }
    CallToolResult::deserialize(result).ok()
}
