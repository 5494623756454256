//! The HTTP requests of a call. All requests go through the host's egress.

mod functions;

use std::sync::Arc;

use http_body_util::BodyExt as _;
use toolhold_contract::{Body, Content};
use toolhold_net::{Denials, Egress, Error, Obstacle, Requests, Scope, Timeouts};
use wasmtime::component::{Linker, ResourceTable};
use wasmtime_wasi_http::{RequestOptions, WasiBody, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks};

use crate::guest::CallState;
use crate::guest::capability::{CallCapability, CallFacts};

/// Most bytes of a set of headers in memory, where it is several times larger than on the wire.
const FIELDS: usize = 512 * 1024;

/// The requests of a call, and the context of `wasi:http`. The context is also needed without a
/// grant.
#[derive(Debug)]
pub(crate) struct Http {
    context: WasiHttpCtx,
    hooks: Hooks,
}

#[derive(Debug, Default)]
struct Hooks {
    /// `None` if the plugin has no grant, or the instance has no call.
    requests: Option<Arc<Requests>>,
}

impl Default for Http {
    fn default() -> Self {
        let mut context = WasiHttpCtx::new();
        context.set_field_size_limit(FIELDS);
        Self { context, hooks: Hooks::default() }
    }
}

impl CallCapability for Http {
    type Grant = Arc<Egress>;

    fn begin(grant: &Arc<Egress>, facts: &CallFacts<'_>) -> Self {
        let call = facts.call;
        let scope = Scope {
            report: Arc::clone(&call.report),
            read_only: facts.reads_files_only(),
            origins: call.requests.origins.clone(),
            servers: call.requests.job_servers.clone(),
        };
        let requests = Requests::new(Arc::clone(grant), scope);
        Self { hooks: Hooks { requests: Some(Arc::new(requests)) }, ..Self::default() }
    }

    fn link(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
        functions::link(linker)
    }
}

impl Http {
    pub(crate) fn egress(&self) -> Option<&Egress> {
        self.hooks.requests.as_ref().map(|requests| requests.egress())
    }

    fn view<'a>(&'a mut self, table: &'a mut ResourceTable) -> WasiHttpCtxView<'a> {
        WasiHttpCtxView { hooks: &mut self.hooks, table, ctx: &mut self.context }
    }

    /// Redacts the secrets that requests may use.
    pub(crate) fn without_secrets(&self, text: String) -> String {
        self.egress().and_then(|egress| egress.without_secrets(&text)).unwrap_or(text)
    }

    /// Takes the problem of a failed request that the user can fix.
    pub(crate) fn take_obstacle(&self) -> Option<Obstacle> {
        self.hooks.requests.as_ref()?.take_obstacle()
    }

    pub(crate) fn take_refused(&self) -> Denials {
        self.hooks.requests.as_ref().map(|requests| requests.take_refused()).unwrap_or_default()
    }
}

/// The response, and a background task for its connection.
type SendResult = Result<(http::Response<WasiBody>, BackgroundTask), wasmtime_wasi_http::Error>;
type BackgroundTask = Box<dyn Future<Output = Result<(), wasmtime_wasi_http::Error>> + Send>;

impl WasiHttpHooks for Hooks {
    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _processed: BackgroundTask,
    ) -> Box<dyn Future<Output = SendResult> + Send> {
        let requests = self.requests.clone();
        let options = options.unwrap_or_default();
        let timeouts = Timeouts {
            first_byte: options.first_byte_timeout,
            between_bytes: options.between_bytes_timeout,
        };
        Box::new(async move {
            let Some(requests) = requests else {
                // The plugin has no grant, or the instance has no call yet.
                return Err(wasmtime_wasi_http::Error::HttpRequestDenied);
            };
            let answer = requests.send(request, timeouts).await.map_err(error_for_guest)?;
            let response = answer.map(|body| body.map_err(error_for_guest).boxed_unsync());
            // The host drives the connection itself, so `wasi:http` gets an empty task.
            let no_task: BackgroundTask = Box::new(async { Ok(()) });
            Ok((response, no_task))
        })
    }
}

/// Converts an error for the guest. The error code doesn't name the rule that denied a request, but
/// the failure of the call does.
fn error_for_guest(error: Error) -> wasmtime_wasi_http::Error {
    use wasmtime_wasi_http::Error as GuestError;
    match error {
        Error::Refused(_) | Error::NoJob(_) => GuestError::HttpRequestDenied,
        Error::Address(_) => GuestError::DestinationIpProhibited,
        Error::Url(_) => GuestError::HttpRequestUriInvalid,
        Error::RequestHeaders(_) => GuestError::HttpRequestHeaderSectionSize(None),
        Error::RequestBody(limit) => GuestError::HttpRequestBodySize(Some(limit)),
        Error::RequestBodyBroken(reason) => GuestError::InternalError(Some(reason)),
        Error::Redirects(_) => GuestError::LoopDetected,
        Error::Busy => GuestError::ConnectionLimitReached,
        Error::Name(reason) => GuestError::DnsError { rcode: Some(reason), info_code: None },
        Error::NameTimeout => GuestError::DnsTimeout,
        Error::ConnectionRefused => GuestError::ConnectionRefused,
        Error::ConnectionTimeout => GuestError::ConnectionTimeout,
        Error::Connection(_) => GuestError::ConnectionTerminated,
        Error::Certificate(_) => GuestError::TlsCertificateError,
        Error::Tls(_) => GuestError::TlsProtocolError,
        Error::Timeout(_) => GuestError::HttpResponseTimeout,
        Error::Headers => GuestError::HttpResponseHeaderSectionSize(None),
        Error::Body(limit) => GuestError::HttpResponseBodySize(Some(limit)),
        Error::Incomplete => GuestError::HttpResponseIncomplete,
        Error::Coding(coding) => GuestError::HttpResponseContentCoding(Some(coding)),
        Error::Protocol(_) => GuestError::HttpProtocolError,
        // `wasi:http` has no codes for these errors.
        Error::Requests(_) | Error::Proxy(_) => GuestError::InternalError(Some(error.to_string())),
        // Only the user can fix these errors. The failure of the call contains the details.
        Error::Secret(..) | Error::Setup(_) => GuestError::ConfigurationError,
    }
}

pub(crate) fn part_without_secrets(part: &mut Content, egress: &Egress) {
    match &mut part.body {
        Body::Text(text) | Body::Link(text) => {
            if let Some(redacted) = egress.without_secrets(text) {
                *text = redacted;
            }
        }
        Body::Bytes(bytes) => {
            if let Some(redacted) = egress.without_secrets_in(bytes) {
                *bytes = redacted;
            }
        }
    }
}
