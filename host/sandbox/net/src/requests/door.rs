//! Sends Toolhold's own requests and follows their redirects.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, LOCATION};
use http::{HeaderValue, Method, StatusCode};
use tokio::time::{Instant, timeout_at};
use toolhold_policy::egress::Target;
use url::Url;

use crate::Network;
use crate::own_requests::{DoorRecord, Recorder};
use crate::requests::client;
use crate::requests::error::{OutboundError, one_line};
use crate::requests::request::Request;
use crate::requests::response::{Pending, Response};
use crate::requests::rules;

/// Maximum number of redirects of one request. A further redirect fails.
pub const MAX_REDIRECTS: usize = 5;

/// Maximum number of stored clients. At this limit, all clients are dropped.
const MAX_CLIENTS: usize = 16;

/// The client for Toolhold's own requests. Clones share connections.
#[derive(Clone)]
pub struct OutboundClient(Arc<Inner>);

struct Inner {
    network: Network,
    recorder: Arc<dyn Recorder>,
    clients: Mutex<Clients>,
}

/// Clients by origin, and by whether the operator named the origin.
type Clients = HashMap<(String, bool), reqwest::Client>;

impl fmt::Debug for OutboundClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboundClient").field("recorder", &self.0.recorder).finish_non_exhaustive()
    }
}

impl OutboundClient {
    /// Prepares requests with the settings of `[network]`, without opening a connection.
    pub fn new(network: Network, recorder: Arc<dyn Recorder>) -> Self {
        Self(Arc::new(Inner { network, recorder, clients: Mutex::default() }))
    }

    /// Returns the recorder of the requests.
    pub fn recorder(&self) -> Arc<dyn Recorder> {
        Arc::clone(&self.0.recorder)
    }

    /// Sends a request. Follows redirects if the method is GET or HEAD. Returns the answer,
    /// whatever its status.
    ///
    /// # Errors
    ///
    /// Returns an error if a rule refuses the request or one of its redirects, or if no answer
    /// arrives within the limits.
    pub async fn send(&self, request: Request) -> Result<Response, OutboundError> {
        let until = Instant::now() + request.limits.time;
        let mut url = request.url.clone();
        let mut hop = 0;
        loop {
            let record = new_record(&request, &url, hop);
            let pending = Pending::new(Arc::clone(&self.0.recorder), record);
            let answer = match self.send_hop(&request, &url, until).await {
                Ok(answer) => answer,
                Err(error) => return Err(pending.fail(error)),
            };
            let mut response = Response::new(answer, url, request.limits, until, pending);
            url = match redirect_target(&request, &response) {
                Ok(None) => return check_encoding(response),
                Ok(Some(target)) => target,
                Err(error) => return Err(response.fail(error)),
            };
            hop += 1;
            if hop > MAX_REDIRECTS {
                return Err(response.fail(OutboundError::Redirects(MAX_REDIRECTS)));
            }
            response.finish()?;
        }
    }

    async fn send_hop(
        &self,
        request: &Request,
        url: &Url,
        until: Instant,
    ) -> Result<reqwest::Response, OutboundError> {
        let target = rules::target(url)?;
        let origin = target.origin();
        let is_named = request.named.contains(&origin);
        rules::check_scheme(url, &request.named)?;
        rules::check_host(&target, is_named)?;

        let send = async {
            client::check_before_proxy(&self.0.network, &target, is_named).await?;
            let client = self.client(&target, is_named).await?;
            let mut headers = request.headers.clone();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            for credential in &request.credentials {
                credential.insert_into(&mut headers, &origin);
            }
            let built = client
                .request(request.method.clone(), url.clone())
                .headers(headers)
                .body(request.body.clone())
                .build()
                .map_err(|error| OutboundError::from_client(&origin, error))?;
            // The checked URL must also be the sent URL.
            if built.url() != url {
                return Err(OutboundError::Setup("the client changed the URL".to_owned()));
            }
            client.execute(built).await.map_err(|error| OutboundError::from_client(&origin, error))
        };
        let idle_until = Instant::now() + request.limits.idle;
        match timeout_at(until.min(idle_until), send).await {
            Ok(answer) => answer,
            Err(_) if until < idle_until => Err(OutboundError::Time(origin, request.limits.time)),
            Err(_) => Err(OutboundError::Idle(origin, request.limits.idle)),
        }
    }

    /// Returns the client for a target. `is_named` means that the operator named the origin.
    async fn client(
        &self,
        target: &Target,
        is_named: bool,
    ) -> Result<reqwest::Client, OutboundError> {
        let key = (target.origin(), is_named);
        if let Some(client) = self.clients().get(&key) {
            return Ok(client.clone());
        }
        let client = client::build(&self.0.network, target, is_named).await?;
        let mut clients = self.clients();
        if clients.len() >= MAX_CLIENTS {
            clients.clear();
        }
        // Another request may have created the same client meanwhile.
        Ok(clients.entry(key).or_insert(client).clone())
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.0.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn new_record(request: &Request, url: &Url, hop: usize) -> DoorRecord {
    DoorRecord {
        purpose: request.purpose.into(),
        began: SystemTime::now(),
        method: request.method.to_string(),
        origin: rules::origin(url),
        path: url.path().to_owned(),
        hop,
        address: None,
        status: None,
        bytes: 0,
        sent: 0,
        program: None,
        secrets: Vec::new(),
        time: std::time::Duration::ZERO,
        refused: false,
        failed: None,
    }
}

/// Returns the URL of a redirect, or `None` for other answers.
fn redirect_target(request: &Request, response: &Response) -> Result<Option<Url>, OutboundError> {
    let is_redirect = matches!(
        response.status(),
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    if !is_redirect {
        return Ok(None);
    }
    if !request.follows {
        return Err(refused(response, "this request doesn't follow redirects"));
    }
    if !matches!(request.method, Method::GET | Method::HEAD) {
        return Err(refused(response, "only GET and HEAD requests follow redirects"));
    }
    let target = parse_location(response)?;
    let loses_encryption = response.url().scheme() == "https" && target.scheme() != "https";
    if loses_encryption {
        return Err(refused(response, "the redirect leads from https to another scheme"));
    }
    Ok(Some(target))
}

/// Returns the URL in the `Location` header of a response. The header may have a relative URL.
fn parse_location(response: &Response) -> Result<Url, OutboundError> {
    let Some(location) = response.headers().get(LOCATION) else {
        return Err(refused(response, "the `Location` header is missing"));
    };
    let location =
        location.to_str().map_err(|_| refused(response, "the `Location` header isn't a URL"))?;
    let joined = response
        .url()
        .join(location)
        .map_err(|_| refused(response, "the `Location` header isn't a URL"))?;
    rules::parse(joined.as_str()).map_err(|error| refused(response, error.to_string()))
}

fn refused(response: &Response, why: impl Into<String>) -> OutboundError {
    OutboundError::Redirect { from: response.origin().to_owned(), why: why.into() }
}

/// Refuses an encoded answer, because the request didn't ask for an encoding, and the decoded size
/// would have no limit.
fn check_encoding(response: Response) -> Result<Response, OutboundError> {
    for value in response.headers().get_all(CONTENT_ENCODING) {
        let encoding = String::from_utf8_lossy(value.as_bytes()).trim().to_ascii_lowercase();
        if !encoding.is_empty() && encoding != "identity" {
            let error = OutboundError::Encoded(response.origin().to_owned(), one_line(&encoding));
            return Err(response.fail(error));
        }
    }
    Ok(response)
}
