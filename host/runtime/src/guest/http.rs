//! `wasi:http` and `berth:host/secrets` for guests: their requests, by the host's one way out.

use std::sync::Arc;

use berth_contract::{Body, Content, Denial};
use berth_egress::{Egress, Error, Obstacle, Requests, Timeouts};
use http_body_util::BodyExt as _;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi_http::p2::bindings::http::types::{ErrorCode, IoError};
use wasmtime_wasi_http::{RequestOptions, WasiBody, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks};

use crate::guest::bindings::berth::host::secrets as wit;
use crate::guest::state::CallState;

/// Bytes of a set of headers, as they are in memory: some times as many as on the wire.
const FIELDS: usize = 512 * 1024;

/// The requests of the one call of an instance, and what `wasi:http` needs beside them.
#[derive(Debug)]
pub(crate) struct Http {
    context: WasiHttpCtx,
    hooks: Hooks,
}

#[derive(Debug, Default)]
struct Hooks {
    /// None: nothing is granted, or there is no call.
    requests: Option<Arc<Requests>>,
}

impl Default for Http {
    fn default() -> Self {
        let mut context = WasiHttpCtx::new();
        context.set_field_size_limit(FIELDS);
        Self { context, hooks: Hooks::default() }
    }
}

impl Http {
    /// Gives the instance the requests of its call.
    pub(crate) fn begin(&mut self, requests: Option<Requests>) {
        self.hooks.requests = requests.map(Arc::new);
    }

    /// The way out of its plugin, where there is one.
    pub(crate) fn egress(&self) -> Option<&Egress> {
        self.hooks.requests.as_ref().map(|requests| requests.egress())
    }

    /// What a guest says, without the secrets that were put into its requests.
    pub(crate) fn without_secrets(&self, text: String) -> String {
        self.egress().and_then(|egress| egress.without_secrets(&text)).unwrap_or(text)
    }

    /// What a request met with that the operator can do something about.
    pub(crate) fn take_obstacle(&self) -> Option<Obstacle> {
        self.hooks.requests.as_ref()?.take_obstacle()
    }

    /// The first refusal of a request, and how many there were.
    pub(crate) fn take_refused(&self) -> (Option<Box<Denial>>, u64) {
        self.hooks.requests.as_ref().map(|requests| requests.take_refused()).unwrap_or_default()
    }
}

impl CallState {
    pub(crate) fn http_view(&mut self) -> WasiHttpCtxView<'_> {
        let (http, table) = self.http_and_table();
        WasiHttpCtxView { hooks: &mut http.hooks, table, ctx: &mut http.context }
    }
}

/// What comes of a request: the answer, and what goes on beside it.
type Sent = Result<(http::Response<WasiBody>, BesideIt), wasmtime_wasi_http::Error>;
type BesideIt = Box<dyn Future<Output = Result<(), wasmtime_wasi_http::Error>> + Send>;

impl WasiHttpHooks for Hooks {
    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _processed: BesideIt,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        let requests = self.requests.clone();
        let options = options.unwrap_or_default();
        let timeouts = Timeouts {
            first_byte: options.first_byte_timeout,
            between_bytes: options.between_bytes_timeout,
        };
        Box::new(async move {
            let Some(requests) = requests else {
                return Err(wasmtime_wasi_http::Error::HttpRequestDenied);
            };
            let response = requests.send(request, timeouts).await.map_err(error_for_guest)?;
            let nothing: BesideIt = Box::new(async { Ok(()) });
            Ok((response.map(|body| body.map_err(error_for_guest).boxed_unsync()), nothing))
        })
    }
}

/// What a guest is told. Which rule refused a request, the host remembers.
fn error_for_guest(error: Error) -> wasmtime_wasi_http::Error {
    use wasmtime_wasi_http::Error as Told;
    match error {
        Error::Refused(_) => Told::HttpRequestDenied,
        Error::Address(_) => Told::DestinationIpProhibited,
        Error::Url(_) => Told::HttpRequestUriInvalid,
        Error::RequestHeaders(_) => Told::HttpRequestHeaderSectionSize(None),
        Error::RequestBody(most) => Told::HttpRequestBodySize(Some(most)),
        Error::RequestBodyBroken(reason) => Told::InternalError(Some(reason)),
        Error::Redirects(_) => Told::LoopDetected,
        Error::Busy => Told::ConnectionLimitReached,
        Error::Name(reason) => Told::DnsError { rcode: Some(reason), info_code: None },
        Error::NameTimeout => Told::DnsTimeout,
        Error::ConnectionRefused => Told::ConnectionRefused,
        Error::ConnectionTimeout => Told::ConnectionTimeout,
        Error::Connection(_) => Told::ConnectionTerminated,
        Error::Certificate(_) => Told::TlsCertificateError,
        Error::Tls(_) => Told::TlsProtocolError,
        Error::Timeout(_) => Told::HttpResponseTimeout,
        Error::Headers => Told::HttpResponseHeaderSectionSize(None),
        Error::Body(most) => Told::HttpResponseBodySize(Some(most)),
        Error::Incomplete => Told::HttpResponseIncomplete,
        Error::Coding(coding) => Told::HttpResponseContentCoding(Some(coding)),
        Error::Protocol(_) => Told::HttpProtocolError,
        // Nothing in the interface is about these, and their words tell.
        Error::Requests(_) | Error::Proxy(_) => Told::InternalError(Some(error.to_string())),
        // A guest has no use for what the operator has to mend: the answer, the log and the record
        // say it.
        Error::Secret(..) | Error::Setup(_) => Told::ConfigurationError,
    }
}

/// Tells guests why a body ended before its end. The crate's own function looks for another type
/// than the one that the streams of its bodies fail with, and so never finds a reason.
pub(crate) fn link_error_codes(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let why = |mut store: StoreContextMut<'_, CallState>, (error,): (Resource<IoError>,)| {
        let (_, table) = store.data_mut().http_and_table();
        let error: &wasmtime::Error = table.get(&error)?;
        Ok((error.downcast_ref().map(of_body),))
    };
    linker.instance("wasi:http/types@0.2.12")?.func_wrap("http-error-code", why)?;
    linker.allow_shadowing(false);
    Ok(())
}

/// What a body can end with, of what [`told`] makes.
fn of_body(error: &wasmtime_wasi_http::Error) -> ErrorCode {
    use wasmtime_wasi_http::Error as Told;
    match error {
        Told::HttpResponseBodySize(most) => ErrorCode::HttpResponseBodySize(*most),
        Told::HttpResponseTimeout => ErrorCode::HttpResponseTimeout,
        Told::HttpResponseIncomplete => ErrorCode::HttpResponseIncomplete,
        Told::HttpResponseContentCoding(coding) => {
            ErrorCode::HttpResponseContentCoding(coding.clone())
        }
        Told::HttpProtocolError => ErrorCode::HttpProtocolError,
        Told::ConnectionTerminated => ErrorCode::ConnectionTerminated,
        other => ErrorCode::InternalError(Some(other.to_string())),
    }
}

impl wit::Host for &mut CallState {
    fn exists(&mut self, name: String) -> wasmtime::Result<bool> {
        let requests = self.http.hooks.requests.as_ref();
        Ok(requests.is_some_and(|requests| requests.egress().has_secret(&name)))
    }
}

/// Takes secrets out of one part of an answer.
pub(crate) fn part_without_secrets(part: &mut Content, egress: &Egress) {
    match &mut part.body {
        Body::Text(text) | Body::Link(text) => {
            if let Some(without) = egress.without_secrets(text) {
                *text = without;
            }
        }
        Body::Bytes(bytes) => {
            if let Some(without) = egress.without_secrets_in(bytes) {
                *bytes = without;
            }
        }
    }
}
