//! One running server: its process in the sandbox, and the session with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use berth_core::config::McpServer;
use berth_core::text::{cut, neutral_line};
use berth_core::{Call, CancellationToken, ServerPlaces};
use berth_system::process::{Child, Command, Ending};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, PaginatedRequestParams,
    ProtocolVersion, ServerResult, Tool,
};
use rmcp::service::{
    ClientLifecycleMode, PeerRequestOptions, RequestHandle, RunningService, ServiceError,
    serve_client_with_lifecycle,
};
use rmcp::{Peer, RoleClient};
use serde_json::Value;

use crate::MAX_TOOLS;
use crate::client::Client;
use crate::pipe::{Ended, Pipe};

/// Time for a server that was told to end.
const GRACE: Duration = Duration::from_millis(500);

/// The latest time of a process: no server lasts so long.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Most pages of a list of tools.
const MAX_PAGES: usize = 64;

/// How a server is started.
#[derive(Debug)]
pub(crate) struct Launch {
    /// The keys of its table.
    pub(crate) server: McpServer,
    /// Where it runs, and its environment.
    pub(crate) places: ServerPlaces,
    /// The working directory of the host.
    pub(crate) directory: PathBuf,
}

impl Launch {
    /// Where the server starts: the working directory, if it may see that.
    fn directory(&self) -> PathBuf {
        let rules = self.places.places.grants.rules();
        let is_seen = rules.grants().iter().any(|grant| self.directory.starts_with(&grant.path));
        if is_seen { self.directory.clone() } else { Path::new("/").to_owned() }
    }

    /// Starts the process. Blocks until the program runs.
    fn start(&self) -> Result<Child, String> {
        let arguments = std::iter::once(&self.server.command).chain(&self.server.args);
        let command = Command {
            arguments: arguments.cloned().collect(),
            environment: self.places.environment.clone(),
            directory: self.directory(),
            network: self.places.network,
            path_rules: None,
            changes: None,
            shared_network: None,
            output: None,
            shell: None,
        };
        let end = Instant::now() + FOREVER;
        Child::start(&self.places.places, &command, 0, end, &CancellationToken::new())
            .map_err(|error| error.to_string())
    }
}

/// How the session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// It isn't known which revisions the server speaks: asks it.
    Unknown,
    /// It speaks those with a handshake only.
    Handshake,
}

impl Era {
    /// The era of a pinned revision.
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

/// The process of a server, which ends with its owner.
struct Process(Option<Child>);

impl Drop for Process {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else { return };
        let mut end = move || {
            // Its standard input is closed by now, so it can end by itself.
            child.wait_for_output(Some(Instant::now() + GRACE), &mut |_| {});
            child.end(Ending::Cancelled);
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(end)),
            Err(_) => end(),
        }
    }
}

/// A session with a running server.
pub(crate) struct Connection {
    // Dropped first, which closes the pipes.
    service: RunningService<RoleClient, Client>,
    process: Process,
    client: Client,
    ended: Arc<Ended>,
}

impl Connection {
    /// Starts the server and the session.
    ///
    /// # Errors
    ///
    /// Why it failed, for people.
    pub(crate) async fn open(launch: Arc<Launch>, era: Era) -> Result<Self, String> {
        let started = tokio::task::spawn_blocking(move || launch.start()).await;
        let mut child = started.map_err(|error| error.to_string())??;
        let streams = child.take_streams().ok_or("its pipes are missing")?;
        let process = Process(Some(child));
        let ended = Arc::new(Ended::default());
        let pipe = Pipe::new(streams, Arc::clone(&ended)).map_err(|error| error.to_string())?;
        let client = Client::default();
        match serve_client_with_lifecycle(client.clone(), pipe, era.lifecycle()).await {
            Ok(service) => Ok(Self { service, process, client, ended }),
            Err(error) => {
                let reason = ended.reason().map_or_else(|| error.to_string(), str::to_owned);
                Err(with_complaint(&reason, &ended))
            }
        }
    }

    /// Ends the server before this returns. Blocks for a moment: the sandbox cleans up what it made
    /// in granted directories.
    pub(crate) fn end(self) {
        let Self { service, mut process, .. } = self;
        drop(service);
        if let Some(mut child) = process.0.take() {
            child.end(Ending::Cancelled);
        }
    }

    fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Why it can't be used any more.
    pub(crate) fn ended(&self) -> Option<String> {
        let is_over = self.service.is_closed() || self.peer().is_transport_closed();
        let reason = self.ended.reason().or(is_over.then_some("it ended"))?;
        Some(with_complaint(reason, &self.ended))
    }

    /// Whether the server said that its tools changed, since the last time that this was asked.
    pub(crate) fn took_change(&self) -> bool {
        self.client.changed.swap(false, Ordering::Relaxed)
    }

    /// The revision of the protocol, the server's name, version and instructions.
    pub(crate) fn about(&self) -> [String; 4] {
        let Some(info) = self.peer().peer_info() else { return Default::default() };
        let line = |text: &str| neutral_line(cut(text, 128));
        let (name, version) = info
            .server_info
            .as_ref()
            .map(|server| (line(&server.name), line(&server.version)))
            .unwrap_or_default();
        let protocol = line(info.protocol_version.as_str());
        [protocol, name, version, info.instructions.clone().unwrap_or_default()]
    }

    /// All its tools.
    ///
    /// # Errors
    ///
    /// Why they can't be had, for people.
    pub(crate) async fn tools(&self) -> Result<Vec<Tool>, String> {
        let (mut tools, mut cursor) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let page = PaginatedRequestParams::default().with_cursor(cursor.take());
            let page = self.peer().list_tools(Some(page)).await;
            let page = page.map_err(|error| self.explain(&error))?;
            tools.extend(page.tools);
            // Enough to say that there are too many.
            tools.truncate(MAX_TOOLS + 1);
            cursor = page.next_cursor.filter(|_| tools.len() <= MAX_TOOLS);
            if cursor.is_none() {
                return Ok(tools);
            }
        }
        Err(format!("its list of tools has more than {MAX_PAGES} pages, the limit"))
    }

    /// Calls a tool. Dropping the future tells the server that the call is cancelled.
    ///
    /// # Errors
    ///
    /// Why there is no answer, for people.
    pub(crate) async fn call(&self, tool: &str, call: &Call) -> Result<CallToolResult, CallError> {
        let mut params = CallToolRequestParams::new(tool.to_owned());
        params.arguments = match &*call.arguments {
            Value::Object(arguments) => Some(arguments.clone()),
            _ => None,
        };
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let sent =
            self.peer().send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        let handle = sent.map_err(|error| CallError::Lost(self.explain(&error)))?;
        let _watcher =
            self.client.watchers.add(handle.progress_token.clone(), Arc::clone(&call.events));
        let mut sent = SentCall(Some(handle));
        let answer = match &mut sent.0 {
            Some(handle) => (&mut handle.rx).await.unwrap_or(Err(ServiceError::TransportClosed)),
            None => Err(ServiceError::TransportClosed),
        };
        sent.0 = None;
        match answer {
            Ok(ServerResult::CallToolResult(result)) => Ok(result),
            Ok(ServerResult::InputRequiredResult(_)) => Err(CallError::Refused(
                "the server asks for more input, which Berth doesn't pass on".to_owned(),
            )),
            Ok(_) => Err(CallError::Refused("its answer isn't the result of a tool".to_owned())),
            Err(ServiceError::McpError(error)) => {
                let message = neutral_line(cut(&error.message, 2048));
                Err(CallError::Refused(format!("error {}: {message}", error.code.0)))
            }
            Err(error) => Err(CallError::Lost(self.explain(&error))),
        }
    }

    fn explain(&self, error: &ServiceError) -> String {
        self.ended().unwrap_or_else(|| neutral_line(cut(&error.to_string(), 1024)))
    }
}

/// Why a call has no result.
pub(crate) enum CallError {
    /// The server refused it.
    Refused(String),
    /// The connection is lost.
    Lost(String),
}

/// A request that was sent. Dropped before its answer came, it is cancelled.
struct SentCall(Option<RequestHandle<RoleClient>>);

impl Drop for SentCall {
    fn drop(&mut self) {
        let Some(handle) = self.0.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let _ = handle.cancel(Some("the call was cancelled".to_owned())).await;
        });
    }
}

fn with_complaint(reason: &str, ended: &Ended) -> String {
    let reason = neutral_line(cut(reason, 1024));
    match ended.complaint() {
        complaint if complaint.is_empty() => reason,
        complaint => {
            let last: Vec<&str> = complaint.lines().rev().take(3).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            format!("{reason}; its last words: {}", neutral_line(&last.join(" ")))
        }
    }
}
