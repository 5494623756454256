//! The session with one running upstream server: handshake, lists, calls and end. Unknown content
//! of calls is left out.

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
use toolhold_core::Call;
use toolhold_core::text::{cut, neutral_line, neutral_owned};
use toolhold_system::process::{Child, Ending};

use crate::MAX_TOOLS;
use crate::client::Client;
use crate::gate::{ConnectionEnd, EndError};
use crate::http::Http;
use crate::inquiries::MAX_QUESTIONS;
use crate::launch::{Launch, LaunchError, Secrets};
use crate::listed_tools::ListedTools;
use crate::pipe::Pipe;
use crate::program_end::{describe_end, last_words};
use crate::reason::Reason;

/// Time for a server to end after it was asked to.
const GRACE: Duration = Duration::from_millis(500);

/// Time for a server to confirm that it announces changes.
const LISTEN: Duration = Duration::from_secs(2);

/// Most pages of a list.
pub(crate) const MAX_PAGES: usize = 64;

/// How the session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// The protocol revisions of the server aren't known, so the server is asked.
    Unknown,
    /// The server speaks only the revisions with a handshake.
    Handshake,
}

impl Era {
    /// Returns the era of a pinned revision.
    pub(crate) fn from_protocol(protocol: &str) -> Self {
        match protocol {
            "" => Self::Unknown,
            protocol if protocol < ProtocolVersion::V_2026_07_28.as_str() => Self::Handshake,
            _ => Self::Unknown,
        }
    }

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

/// The process of a server. The process ends when this value is dropped.
struct Process(Option<Child>);

/// The end of a program that ended by itself.
struct ProgramEnd {
    /// The way in which the program ended.
    description: String,
    /// Advice, if there is any.
    hint: Option<String>,
}

impl Process {
    /// Ends the program. Returns a description if the program ended by itself before it served.
    async fn into_end(mut self, launch: &Arc<Launch>, ended: &ConnectionEnd) -> Option<ProgramEnd> {
        let mut child = self.0.take()?;
        let launch = Arc::clone(launch);
        let complaint = ended.complaint();
        let has_ended = matches!(ended.reason(), Some(EndError::Ended));
        let program_end = tokio::task::spawn_blocking(move || {
            let wait = if has_ended { GRACE } else { Duration::ZERO };
            child.wait_for_output(Some(Instant::now() + wait), &mut |_, _| {});
            let result = if has_ended { child.finished().cloned() } else { None };
            drop(Self(Some(child)));
            let result = result?;
            let hint = launch.hint(&result, &complaint);
            Some(ProgramEnd { description: describe_end(&result), hint })
        });
        program_end.await.unwrap_or(None)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(child) = self.0.take() else { return };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || end_program(child))),
            Err(_) => end_program(child),
        }
    }
}

fn end_program(mut child: Child) {
    // The standard input is already closed, so the program can end by itself.
    child.wait_for_output(Some(Instant::now() + GRACE), &mut |_, _| {});
    child.end(Ending::Cancelled);
}

/// A session with a running server.
pub(crate) struct Connection {
    // This field is dropped first, which closes the pipes.
    service: RunningService<RoleClient, Client>,
    process: Process,
    client: Client,
    ended: Arc<ConnectionEnd>,
}

impl Connection {
    /// Starts the server and the session.
    ///
    /// # Errors
    ///
    /// The reason why the server or the session can't be started, for people.
    pub(crate) async fn open(launch: Arc<Launch>, era: Era) -> Result<Self, OpenError> {
        let asks = launch.server.elicitation;
        let starting = Arc::clone(&launch);
        let started = tokio::task::spawn_blocking(move || {
            let secrets = starting.secrets()?;
            let address = starting.address(&secrets)?;
            let child = if address.is_none() { Some(starting.start(&secrets)?) } else { None };
            Ok::<_, LaunchError>((child, address, secrets.connection_end()))
        });
        let (child, address, connection_end) = started.await.map_err(LaunchError::from)??;
        let ended = Arc::new(connection_end);
        match (child, address) {
            (_, Some(mut address)) => {
                address.tokens = launch.tokens().await?;
                let http = Http::new(address, Arc::clone(&ended));
                Self::begin(http, Process(None), &launch, era, ended, asks).await
            }
            (Some(mut child), None) => {
                let streams = child.take_streams().ok_or(LaunchError::NoPipes)?;
                let process = Process(Some(child));
                let pipe = Pipe::new(streams, Arc::clone(&ended)).map_err(LaunchError::Pipes)?;
                Self::begin(pipe, process, &launch, era, ended, asks).await
            }
            (None, None) => Err(LaunchError::NoProgram.into()),
        }
    }

    /// Asks a server at a URL for its tools without a login. Returns the server's text about the
    /// authorization that this needs. Returns `None` if authorization isn't needed.
    ///
    /// # Errors
    ///
    /// Returns the reason why the server can't be asked, as a text for people.
    pub(crate) async fn challenge(launch: &Arc<Launch>) -> Result<Option<String>, LaunchError> {
        let Some(address) = launch.address(&Secrets::default())? else { return Ok(None) };
        let ended = Arc::new(ConnectionEnd::default());
        let http = Http::new(address, Arc::clone(&ended));
        let process = Process(None);
        let session_end = Arc::clone(&ended);
        let session = Self::begin(http, process, launch, Era::Unknown, session_end, false).await;
        if let Ok(connection) = session {
            // Only the server's refusal matters here.
            let _ = connection.tools().await;
        }
        Ok(ended.challenge().map(str::to_owned))
    }

    /// Starts the session. `asks` means that the server may send elicitations to the user.
    async fn begin<T: Transport<RoleClient> + 'static>(
        transport: T,
        process: Process,
        launch: &Arc<Launch>,
        era: Era,
        ended: Arc<ConnectionEnd>,
        asks: bool,
    ) -> Result<Self, OpenError> {
        let client = Client { asks, ..Client::default() };
        match serve_client_with_lifecycle(client.clone(), transport, era.lifecycle()).await {
            Ok(service) => Ok(Self { service, process, client, ended }),
            Err(error) => {
                if process.0.is_some() {
                    ended.wait_for_complaint().await;
                }
                let end_reason = ended.reason().map(EndError::to_string);
                let (own, hint) = match process.into_end(launch, &ended).await {
                    Some(ProgramEnd { description, hint }) => (Some(description), hint),
                    None => (end_reason, None),
                };
                let reason = match own {
                    Some(own) => with_complaint(&own, &ended),
                    None => Reason::said("", &error.to_string()),
                };
                Err(OpenError { reason: reason.with_hint(hint), may_be_era: !ended.is_refused() })
            }
        }
    }

    /// Ends the server, or the session with a server at a URL. Blocks for a moment, because the
    /// sandbox removes its own files from granted directories, and because a server at a URL gets a
    /// message.
    pub(crate) fn end(self) {
        let Self { mut service, mut process, .. } = self;
        if let Some(mut child) = process.0.take() {
            drop(service);
            child.end(Ending::Cancelled);
        } else if let Ok(runtime) = Handle::try_current()
            && runtime.runtime_flavor() == RuntimeFlavor::MultiThread
        {
            let close = service.close_with_timeout(GRACE);
            // The session is over in any case.
            let _ = tokio::task::block_in_place(|| runtime.block_on(close));
        }
    }

    /// Returns the last lines of the server's standard error, neutralised.
    pub(crate) fn complaint(&self) -> String {
        neutral_owned(self.ended.complaint())
    }

    pub(crate) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Returns the reason why the session can't be used any more. Returns `None` if the session can
    /// be used.
    pub(crate) fn ended(&self) -> Option<Reason> {
        let is_over = self.service.is_closed() || self.peer().is_transport_closed();
        let reason = match self.ended.reason() {
            Some(reason) => reason,
            None if is_over => &EndError::Ended,
            None => return None,
        };
        Some(with_complaint(&reason.to_string(), &self.ended))
    }

    /// Checks whether the session ended because the server doesn't know the session any more, for
    /// example after a restart.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.ended.is_forgotten()
    }

    /// Asks a server without a handshake to announce changed tools, unless it already does. A
    /// server with a handshake always announces them. A list that is fetched after this call can't
    /// miss a change.
    async fn listen(&self) {
        let Some(info) = self.peer().peer_info() else { return };
        let list_changed = info.capabilities.tools.as_ref().and_then(|tools| tools.list_changed);
        let has_handshake = info.protocol_version < ProtocolVersion::V_2026_07_28;
        if list_changed != Some(true) || has_handshake {
            return;
        }
        // A server that refuses or doesn't answer isn't asked again.
        let was_listening = self.client.listening.swap(true, Ordering::Relaxed);
        if was_listening {
            return;
        }
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        let result = tokio::time::timeout(LISTEN, self.peer().listen(filter)).await;
        let Ok(Ok(mut subscription)) = result else { return };
        let client = self.client.clone();
        tokio::spawn(async move {
            while let Ok(Some(_)) = subscription.next().await {
                client.changed.store(true, Ordering::Relaxed);
            }
            // Changes aren't announced from now on, so the next call asks again and lists the
            // tools.
            client.listening.store(false, Ordering::Relaxed);
            client.changed.store(true, Ordering::Relaxed);
        });
    }

    /// Returns the state of the session, and the secrets that the server has.
    pub(crate) fn ended_state(&self) -> &ConnectionEnd {
        &self.ended
    }

    /// Checks whether the server has announced changed tools since the last call of this function.
    pub(crate) fn take_change(&self) -> bool {
        self.client.changed.swap(false, Ordering::Relaxed)
    }

    /// Returns the server's data about itself.
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

    /// Lists all tools of the server.
    ///
    /// # Errors
    ///
    /// The reason why the tools can't be listed, for people.
    pub(crate) async fn tools(&self) -> Result<ListedTools, Reason> {
        self.listen().await;
        let mut listed = ListedTools::default();
        let mut names = HashSet::new();
        let mut cursors = Cursors::default();
        for _ in 0..MAX_PAGES {
            let page = PaginatedRequestParams::default().with_cursor(cursors.current());
            let tools_before = listed.tools.len();
            let next = self.add_page(page, &mut listed).await?;

            // A server that starts its list again sends the same tools with another cursor.
            let names_before = names.len();
            names.extend(listed.tools[tools_before..].iter().map(|tool| tool.name.clone()));
            if names.len() == names_before && listed.tools.len() > tools_before {
                listed.tools.truncate(tools_before);
                return Ok(listed);
            }
            // One tool above the limit is enough to report that there are too many.
            listed.tools.truncate(MAX_TOOLS + 1);
            listed.unreadable.truncate(MAX_TOOLS);
            if listed.tools.len() > MAX_TOOLS || !cursors.advance(next) {
                return Ok(listed);
            }
        }
        Err(Reason::new(format!("its list of tools has more than {MAX_PAGES} pages, the limit")))
    }

    /// Adds a page of the list of tools. Returns the cursor of the next page.
    async fn add_page(
        &self,
        page: PaginatedRequestParams,
        listed: &mut ListedTools,
    ) -> Result<Option<String>, Reason> {
        match self.peer().list_tools(Some(page.clone())).await {
            Ok(page) => {
                listed.tools.extend(page.tools);
                return Ok(page.next_cursor);
            }
            // A tool on this page isn't valid, so the page is read again without a type.
            Err(ServiceError::UnexpectedResponse) => {}
            Err(error) => return Err(self.explain(&error)),
        }
        let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(page));
        match self.peer().send_request(request).await {
            Ok(ServerResult::CustomResult(CustomResult(page))) => Ok(listed.add_page(page)?),
            Ok(_) => Err(self.explain(&ServiceError::UnexpectedResponse)),
            Err(error) => Err(self.explain(&error)),
        }
    }

    /// Calls a tool. Dropping the future tells the server that the call is cancelled.
    ///
    /// # Errors
    ///
    /// Returns the reason why there is no answer, as a text for people.
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
        match answer {
            ServerResult::CallToolResult(result) => Ok(result),
            ServerResult::CustomResult(CustomResult(value)) => with_known_content(value)
                .ok_or_else(|| CallError::refused("its answer isn't the result of a tool")),
            _ => Err(CallError::refused("its answer isn't the result of a tool")),
        }
    }

    /// Reads a resource.
    ///
    /// # Errors
    ///
    /// Returns the reason why there is no answer, as a text for people.
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
            _ => Err(CallError::refused("its answer isn't a resource")),
        }
    }

    /// Gets a prompt.
    ///
    /// # Errors
    ///
    /// Returns the reason why there is no answer, as a text for people.
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
            _ => Err(CallError::refused("its answer isn't a prompt")),
        }
    }

    /// Makes a request for a call. If the server answers that it needs input, this function asks
    /// for the input and repeats the request.
    async fn request(
        &self,
        call: &Call,
        request: impl Fn(Option<InputResponses>, Option<String>) -> ClientRequest,
    ) -> Result<ServerResult, CallError> {
        let running = self.client.running.add(call);
        let mut responses = None;
        let mut state = None;
        for round in 0..=MAX_QUESTIONS {
            let required = match self.send(request(responses, state), call).await {
                Ok(ServerResult::InputRequiredResult(required)) => required,
                Ok(result) => return Ok(result),
                // The server looked at the rounds before.
                Err(CallError::Unheard(reason)) if round > 0 => {
                    return Err(CallError::Lost(reason));
                }
                Err(error) => return Err(error),
            };
            if required.input_requests.is_some() && !self.client.asks {
                return Err(CallError::refused(
                    "it needs an answer of the user, but `elicitation = false` is set",
                ));
            }
            let requests = required.input_requests.unwrap_or_default();
            let answers = running.answers(requests).await;
            responses = Some(answers.map_err(|error| CallError::Refused(error.into()))?);
            state = required.request_state;
        }
        Err(CallError::refused(format!("it asked for input more than {MAX_QUESTIONS} times")))
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
        // The call has its answer, so dropping `sent` must not cancel it.
        sent.0 = None;

        let is_unheard = self.ended.is_unheard(&id);
        match answer {
            Ok(result) => Ok(result),
            Err(error) if is_unheard => Err(CallError::Unheard(self.explain(&error))),
            Err(ServiceError::McpError(error)) => {
                let own = format!("error {}", error.code.0);
                Err(CallError::Refused(Reason::said(own, &error.message)))
            }
            // Over HTTP each answer has its own stream, so the other streams continue.
            Err(ServiceError::TransportClosed)
                if self.process.0.is_none() && self.ended().is_none() =>
            {
                Err(CallError::refused("its stream ended before the answer"))
            }
            Err(error) => {
                if self.process.0.is_some() && self.ended().is_some() {
                    self.ended.wait_for_complaint().await;
                }
                Err(CallError::Lost(self.explain(&error)))
            }
        }
    }

    pub(crate) fn explain(&self, error: &ServiceError) -> Reason {
        self.ended().unwrap_or_else(|| Reason::said("", &error.to_string()))
    }
}

#[cfg(test)]
impl Connection {
    /// Begins a session over pipes, without a program. Returns `None` if it didn't begin.
    pub(crate) async fn over_pipe(pipe: Pipe, era: Era, ended: Arc<ConnectionEnd>) -> Option<Self> {
        let client = Client { asks: true, ..Client::default() };
        let service = serve_client_with_lifecycle(client.clone(), pipe, era.lifecycle()).await;
        Some(Self { service: service.ok()?, process: Process(None), client, ended })
    }
}

/// The data of a server about itself.
#[derive(Default)]
pub(crate) struct ServerInfo {
    /// The revision of the protocol.
    pub(crate) protocol: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) instructions: String,
}

/// The reason why a session couldn't begin.
pub(crate) struct OpenError {
    /// The reason.
    pub(crate) reason: Reason,
    /// Whether the era may be the cause, so that another era may work.
    pub(crate) may_be_era: bool,
}

impl From<LaunchError> for OpenError {
    fn from(error: LaunchError) -> Self {
        Self { reason: error.into(), may_be_era: false }
    }
}

impl From<OpenError> for Reason {
    fn from(error: OpenError) -> Self {
        error.reason
    }
}

/// The reason why a call has no result.
pub(crate) enum CallError {
    /// The server refused the call.
    Refused(Reason),
    /// The connection is lost.
    Lost(Reason),
    /// The connection is lost, and the server didn't look at the call.
    Unheard(Reason),
}

impl CallError {
    fn refused(reason: impl Into<String>) -> Self {
        Self::Refused(Reason::new(reason))
    }
}

/// A request that was sent. Dropped before its answer came, it is cancelled.
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
    neutral_line(cut(text, 128))
}

fn with_complaint(reason: &str, ended: &ConnectionEnd) -> Reason {
    let reason = neutral_line(cut(reason, 1024));
    match ended.complaint() {
        complaint if complaint.is_empty() => Reason::new(reason),
        complaint => Reason::said(format!("{reason}; its last output"), &last_words(&complaint)),
    }
}

/// The cursors of a list. A list ends where a cursor repeats: some servers send an empty cursor, or
/// always the same cursor, after the last page.
#[derive(Default)]
pub(crate) struct Cursors {
    seen: HashSet<String>,
    current: Option<String>,
}

impl Cursors {
    /// Returns the cursor of the next page. Returns `None` for the first page.
    pub(crate) fn current(&self) -> Option<String> {
        self.current.clone()
    }

    /// Takes the cursor that a page ends with. Returns whether there is another page.
    pub(crate) fn advance(&mut self, next: Option<String>) -> bool {
        let is_new = next.as_ref().is_some_and(|next| self.seen.insert(next.clone()));
        self.current = next;
        is_new
    }
}

/// Parses the result of a tool. A note replaces content that the protocol doesn't define or that is
/// incomplete. Returns `None` if the value isn't the result of a tool.
fn with_known_content(mut result: Value) -> Option<CallToolResult> {
    for block in result.get_mut("content")?.as_array_mut()? {
        if ContentBlock::deserialize(&*block).is_err() {
            let raw_kind = block.get("type").and_then(Value::as_str).unwrap_or("(none)");
            let kind = neutral_line(cut(raw_kind, 64));
            let note =
                format!("[content of the kind `{kind}` is left out: it is unknown or incomplete]");
            *block = json!({ "type": "text", "text": note });
        }
    }
    CallToolResult::deserialize(result).ok()
}
