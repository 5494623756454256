//! Handles MCP requests by method, and notifies clients of changed tools.

mod respond;

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, ClientCapabilities,
    CompleteRequestParams, CompleteResult, CreateTaskResult, CustomRequest, CustomResult,
    ErrorCode, Extensions, GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskResult,
    Implementation, InitializeRequestParams, InitializeResult, JsonObject, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, Reference,
    ServerCapabilities, ServerConfig, SubscriptionFilter, Tool, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio::time::timeout;
use toolhold_core::config::{Approvals, Folders, Structured};
use toolhold_core::text::cut;
use toolhold_core::{CancellationToken, Definition, Host, PostingApprover, Session};

use crate::approver::{QuestionMeans, Tickets};
use crate::calls::{CallerEnd, Calls};
use crate::error::ServeError;
use crate::extras::{Extras, NoExtras};
use crate::live::LiveHost;
use crate::metrics::Metrics;
use crate::parked::ParkedCalls;
use crate::server_offers::OfferCall;
use crate::tasks::Task;
use crate::{prompts, resources, server_offers, tools};
use respond::{ClientCall, Response};

/// Instructions for the client's model.
const INSTRUCTIONS: &str = "Tools run in a sandbox and use only the user's grants. A denial names \
                            the deciding rule and the configuration line that would change the \
                            decision: show both to the user, and don't try to get around the rule. \
                            Some calls wait for the user's approval.";

/// Methods of supported requests. A request with one of these methods that can't be parsed is
/// answered with an error about its parameters.
const METHODS: [&str; 15] = [
    "completion/complete",
    "initialize",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "server/discover",
    "subscriptions/listen",
    "tasks/cancel",
    "tasks/get",
    "tasks/update",
    "tools/call",
    "tools/list",
];

/// Requests that revision 2026-07-28 has removed.
const REMOVED_METHODS: [&str; 2] = ["initialize", "ping"];

/// The extension with which a client requests structured answers of all tools.
const STRUCTURED_EXTENSION: &str = "toolhold/structured";

/// Maximum length of an unknown method in an error, in bytes. Longer methods are cut.
const MAX_METHOD_BYTES: usize = 100;

/// Maximum time for which lists and notifications wait for plugins that are being loaded.
const MAX_LOADING_TIME: Duration = Duration::from_secs(1);

/// Serves the host's tools to clients.
#[derive(Clone)]
pub struct Server {
    live: Arc<LiveHost>,
    /// `None` if each request names its session.
    session: Option<Session>,
    /// For reading the audit log.
    folders: Folders,
    asking: Arc<QuestionMeans>,
    tickets: Arc<Tickets>,
    extras: Arc<dyn Extras>,
    calls: Calls,
    structured: Structured,
    connection: Arc<Connection>,
}

#[derive(Default)]
struct Connection {
    /// Whether a task already notifies the client. A client may send its initialized notification
    /// several times, but only the first one starts the task.
    notifies: AtomicBool,
    gone: CancellationToken,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.gone.cancel();
    }
}

impl Server {
    /// Creates a server for the tools of a host. `approvals` determines how clients are asked.
    ///
    /// # Errors
    ///
    /// Returns an error if the key that seals tickets can't be read or created.
    pub fn new(
        host: Arc<Host>,
        folders: Folders,
        approvals: &Approvals,
    ) -> Result<Self, ServeError> {
        let asking = QuestionMeans {
            mcp: approvals.mcp,
            posting: PostingApprover::new(&folders, approvals),
            parked: ParkedCalls::default(),
        };
        let tickets = Tickets::new(&folders, asking.posting.lasting)?;
        let live = Arc::new(LiveHost::new(host));
        let calls = Calls::new(Arc::clone(&live));
        Ok(Self {
            live,
            session: None,
            folders,
            asking: Arc::new(asking),
            tickets: Arc::new(tickets),
            extras: Arc::new(NoExtras),
            calls,
            structured: Structured::default(),
            connection: Arc::default(),
        })
    }

    /// Returns the live host, which can be replaced.
    pub fn live(&self) -> Arc<LiveHost> {
        Arc::clone(&self.live)
    }

    /// Adds prompts and resources of an embedding program.
    #[must_use]
    pub fn with_extras(self, extras: Arc<dyn Extras>) -> Self {
        Self { extras, ..self }
    }

    /// Sets which structured answers are sent. The default is [`Structured::Auto`].
    #[must_use]
    pub fn with_structured(self, structured: Structured) -> Self {
        Self { structured, ..self }
    }

    /// Returns which structured answers are sent. With the setting `auto`, a client may request all
    /// structured answers.
    fn structured(&self, client: Option<&ClientCapabilities>) -> Structured {
        let extensions = client.and_then(|client| client.extensions.as_ref());
        let requests_all =
            extensions.is_some_and(|extensions| extensions.contains_key(STRUCTURED_EXTENSION));
        match self.structured {
            Structured::Auto if requests_all => Structured::Always,
            structured => structured,
        }
    }

    pub(crate) fn counted(&self, metrics: Arc<Metrics>) -> Self {
        Self { calls: self.calls.counted(metrics), ..self.clone() }
    }

    /// Creates the server of one connection. Without `session`, each request names its session.
    pub(crate) fn connection(&self, session: Option<Session>) -> Self {
        Self { session, connection: Arc::default(), ..self.clone() }
    }

    /// Returns the session of the connection, or else of the authenticated caller.
    fn session(&self, extensions: &Extensions) -> Result<Session, ErrorData> {
        if let Some(session) = &self.session {
            return Ok(session.clone());
        }
        // Over HTTP, the session is in the extensions of the HTTP request.
        if let Some(parts) = extensions.get::<http::request::Parts>()
            && let Some(session) = parts.extensions.get::<Session>()
        {
            return Ok(session.clone());
        }
        Err(ErrorData::internal_error("the request has no session", None))
    }

    /// Returns the end of the authenticated caller. Only callers over HTTP can end.
    fn caller_end(extensions: &Extensions) -> CallerEnd {
        let parts = extensions.get::<http::request::Parts>();
        parts.and_then(|parts| parts.extensions.get::<CallerEnd>()).cloned().unwrap_or_default()
    }

    /// Returns a token that is cancelled when the connection ends.
    pub(crate) fn closed(&self) -> &CancellationToken {
        &self.connection.gone
    }

    pub(crate) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// Reads a resource that a source offers, by calling the source's tool for reading resources.
    async fn read_offered_resource(
        &self,
        (tool, arguments): OfferCall,
        request: ReadResourceRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let call = ClientCall {
            tool,
            arguments,
            responses: request.input_responses,
            ticket: request.request_state,
            may_be_task: false,
        };
        match Box::pin(self.respond(call, context)).await? {
            Response::Required(required) => Ok(ReadResourceResponse::InputRequired(required)),
            Response::Answer(answer, _) => {
                let read = server_offers::resource_result(*answer, &request.uri);
                read.map(ReadResourceResponse::from)
            }
            Response::Task(_) => Err(ErrorData::internal_error("the call became a task", None)),
        }
    }

    fn task(&self, id: &str, context: &RequestContext<RoleServer>) -> Result<Arc<Task>, ErrorData> {
        let session = self.session(&context.extensions)?;
        self.calls.tasks.find(session.name(), id)
    }

    /// Starts to watch the list of the session's tools for changes.
    fn watch(&self, session: Session) -> Watch {
        let replacements = self.live.replacements();
        let host = self.live.current();
        Watch {
            changes: host.changes(),
            replacements,
            known_tools: None,
            live: Arc::downgrade(&self.live),
            session,
            gone: self.connection.gone.clone(),
            end: self.calls.end.clone(),
        }
    }
}

/// Checks whether the client allows an MCP task as the response.
fn takes_tasks(context: &RequestContext<RoleServer>, client: Option<&ClientCapabilities>) -> bool {
    let supports_tasks = client.is_some_and(ClientCapabilities::supports_tasks);
    supports_tasks && is_without_handshake(context)
}

fn is_without_handshake(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| !version.has_initialize())
}

/// Notices changes of the tools, without keeping the connection or the host alive.
struct Watch {
    live: Weak<LiveHost>,
    session: Session,
    /// Changes of the current host's tools.
    changes: tokio::sync::watch::Receiver<u64>,
    replacements: tokio::sync::watch::Receiver<u64>,
    /// The tools at the last notification. `None` before the first list.
    known_tools: Option<Vec<Arc<Definition>>>,
    gone: CancellationToken,
    end: CancellationToken,
}

impl Watch {
    /// Waits until the list of tools changes. Returns `false` if the connection or the server has
    /// ended.
    async fn changed(&mut self) -> bool {
        if self.known_tools.is_none() {
            self.known_tools = self.list().await;
        }
        loop {
            tokio::select! {
                // `biased` handles a replacement of the host first, because the old host's channel
                // of changes then closes, and a closed channel ends this watch.
                biased;
                () = self.gone.cancelled() => return false,
                () = self.end.cancelled() => return false,
                replaced = self.replacements.changed() => match (replaced, self.live.upgrade()) {
                    (Ok(()), Some(live)) => self.changes = live.current().changes(),
                    _ => return false,
                },
                changed = self.changes.changed() => {
                    if changed.is_err() {
                        return false;
                    }
                }
            }
            let tools = self.list().await;
            if tools.is_none() {
                return false;
            }
            if tools != self.known_tools {
                self.known_tools = tools;
                return true;
            }
        }
    }

    /// Lists the tools after loading, or after [`MAX_LOADING_TIME`], so that many plugins cause one
    /// notification. Returns `None` if the server has ended.
    async fn list(&self) -> Option<Vec<Arc<Definition>>> {
        let host = self.live.upgrade()?.current();
        let _ = timeout(MAX_LOADING_TIME, host.ready()).await;
        Some(tools::list(&host, &self.session).unwrap_or_default())
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::builder()
            .enable_completions()
            .enable_prompts()
            .enable_resources()
            .enable_tasks()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        let mut implementation =
            Implementation::new(toolhold_core::NAME, env!("CARGO_PKG_VERSION"));
        implementation.title = Some("Toolhold".to_owned());
        capabilities
            .extensions
            .get_or_insert_default()
            .insert(STRUCTURED_EXTENSION.to_owned(), JsonObject::new());
        ServerConfig::new(capabilities)
            .with_server_info(implementation)
            .with_instructions(INSTRUCTIONS)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        let oldest = ProtocolVersion::V_2025_03_26.as_str();
        let known = ProtocolVersion::KNOWN_VERSIONS.iter();
        known.filter(|version| version.as_str() >= oldest).cloned().collect()
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let supported = self.supported_protocol_versions();
        let requested = &request.protocol_version;
        // A client whose revision is too old can't use a newer revision, so it gets an error. A
        // client with an unknown, newer revision is offered a supported revision below.
        if ProtocolVersion::KNOWN_VERSIONS.contains(requested) && !supported.contains(requested) {
            let names: Vec<&str> = supported.iter().map(ProtocolVersion::as_str).collect();
            let mut error = ErrorData::unsupported_protocol_version(requested.clone(), &supported);
            error.message = format!(
                "protocol revision {} is not supported; this server speaks {}",
                requested.as_str(),
                names.join(", ")
            )
            .into();
            return Err(error);
        }
        context.peer.set_peer_info(request.clone());
        self.negotiate_initialize(&request)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        let host = self.live.current();
        // Many clients list tools only once, so the list waits for plugins that are still loading.
        // After a timeout, the list has the tools of the other plugins.
        let _ = timeout(MAX_LOADING_TIME, host.ready()).await;
        let session = self.session(&context.extensions)?;
        let tools = tools::list(&host, &session)?;
        let structured = self.structured(context.client_capabilities().as_ref());
        tools::page(&tools, cursor.as_deref(), structured)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.live.current().tool(name).map(|definition| tools::tool(&definition, self.structured))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let CallToolRequestParams { name, arguments, input_responses, request_state, .. } = request;
        let call = ClientCall {
            tool: name.into_owned(),
            arguments: arguments.unwrap_or_default(),
            responses: input_responses,
            ticket: request_state,
            may_be_task: true,
        };
        match self.respond(call, &context).await? {
            Response::Task(task) => Ok(CreateTaskResult::new(task.seed()).into()),
            Response::Required(required) => Ok(required.into()),
            Response::Answer(answer, structured) => {
                self.calls.result(*answer, structured).map(CallToolResponse::from)
            }
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.task(&request.task_id, &context).map(|task| GetTaskResult::new(task.describe()))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.task(&request.task_id, &context)
            .map(|task| task.deliver_answer(request.input_responses))
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.task(&request.task_id, &context).map(|task| task.cancel())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method.as_str();
        // Sessions without a handshake use the revision that has removed these methods.
        let is_removed = REMOVED_METHODS.contains(&method) && is_without_handshake(&context);
        let is_known = METHODS.contains(&method) && !is_removed;
        // The library passes on a request of a known method only if its parameters are invalid.
        let error = if is_known {
            ErrorData::invalid_params(format!("invalid parameters of `{method}`"), None)
        } else {
            ErrorData::new(
                ErrorCode::METHOD_NOT_FOUND,
                cut(method, MAX_METHOD_BYTES).to_owned(),
                None,
            )
        };
        Err(error)
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(
            [
                vec![prompts::definition()],
                server_offers::prompts(&self.live.current()),
                self.extras.prompts(),
            ]
            .concat(),
        ))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let session = self.session(&context.extensions)?;
        if let Some((tool, arguments)) = server_offers::prompt_call(&self.live.current(), &request)
        {
            let call = ClientCall {
                tool,
                arguments,
                responses: request.input_responses,
                ticket: request.request_state,
                may_be_task: false,
            };
            // Boxed, so that this rare request doesn't enlarge the future of all requests.
            return match Box::pin(self.respond(call, &context)).await? {
                Response::Required(required) => Ok(GetPromptResponse::InputRequired(required)),
                Response::Answer(answer, _) => {
                    server_offers::prompt_result(*answer).map(GetPromptResponse::from)
                }
                Response::Task(_) => Err(ErrorData::internal_error("the call became a task", None)),
            };
        }
        if request.name != prompts::TOOLS {
            let prompt = self.extras.prompt(&session, &request).await.unwrap_or_else(|| {
                Err(ErrorData::invalid_params(
                    format!("the prompt doesn't exist; the only prompt is `{}`", prompts::TOOLS),
                    None,
                ))
            });
            return prompt.map(GetPromptResponse::from);
        }
        let host = self.live.current();
        let tools = tools::list(&host, &session)?;
        let prompt = tokio::task::spawn_blocking(move || {
            prompts::answer_prompt(&host, &tools, request.arguments.as_ref())
        })
        .await
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        prompt.map(GetPromptResponse::from)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let session = self.session(&context.extensions)?;
        let completion = match (&request.r#ref, request.argument.name.as_str()) {
            (Reference::Prompt(prompt), prompts::PATH) if prompt.name == prompts::TOOLS => {
                let host = self.live.current();
                // Boxed, so that this rare request doesn't enlarge the future of all requests.
                Some(Box::pin(prompts::paths(&host, &session, &request.argument.value)).await)
            }
            _ => self.extras.completed(&session, &request).await,
        };
        completion.map(CompleteResult::new).ok_or_else(|| {
            ErrorData::invalid_params(
                "no prompt or resource with that name has arguments to complete",
                None,
            )
        })
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(
            [
                resources::definitions(),
                server_offers::resources(&self.live.current()),
                self.extras.resources(),
            ]
            .concat(),
        ))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(
            [
                resources::templates(),
                server_offers::templates(&self.live.current()),
                self.extras.resource_templates(),
            ]
            .concat(),
        ))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let session = self.session(&context.extensions)?;
        let offer_call = server_offers::resource_call(&self.live.current(), &request.uri);
        if let Some(offer_call) = offer_call {
            return self.read_offered_resource(offer_call, request, &context).await;
        }
        let read = if request.uri.starts_with(resources::OWN_SCHEME) {
            let host = self.live.current();
            Box::pin(resources::read(&host, &session, &self.folders, &request.uri)).await
        } else {
            let extra = self.extras.resource(&session, &request.uri).await;
            extra.unwrap_or_else(|| Err(resources::not_found(&request.uri)))
        };
        read.map(ReadResourceResponse::from)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let Ok(session) = self.session(&context.extensions) else { return };
        if self.connection.notifies.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut watch = self.watch(session);
        tokio::spawn(async move {
            while watch.changed().await {
                // An error means that the connection is closed.
                if context.peer.notify_tool_list_changed().await.is_err() {
                    return;
                }
            }
        });
    }

    fn accepted_subscription_filter(
        &self,
        _requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().build())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut watch = self.watch(self.session(&context.request_context().extensions)?);
        let notify = async {
            while watch.changed().await {
                // An error means that the connection is closed.
                if context.sink().notify_tool_list_changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = notify => {}
            () = context.cancelled() => {}
        }
        Ok(())
    }
}
