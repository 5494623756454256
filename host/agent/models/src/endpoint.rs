//! The address of a provider, its key and its options. The key is sent only to the origin of this
//! address.

use std::fmt;
use std::sync::Arc;

use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use toolhold_contract::text::{cut, neutral_line};
use toolhold_net::requests::{Credential, Request, check_url};
use url::Url;

use crate::failure::{ModelError, ModelErrorKind};
use crate::raw::RawJson;
use crate::turn::Turn;
use crate::wire_types::{Caching, WireFormat, WireOptions};

/// The purpose of the requests in the request records.
const PURPOSE: &str = "model";

/// The least bytes of a key. Answers are searched for the key, and a shorter key would be found by
/// chance.
const MIN_KEY: usize = 6;

/// A provider of models: a server and its wire format.
#[derive(Clone, Debug)]
pub struct ModelEndpoint {
    name: String,
    format: WireFormat,
    base: Url,
    keys: Vec<ModelKey>,
    headers: HeaderMap,
    options: WireOptions,
    dimensions: u64,
}

impl ModelEndpoint {
    /// Makes a provider from its base URL, as in the provider's documentation. The URL may end with
    /// `/v1`.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL can't be used.
    pub fn new(name: &str, format: WireFormat, base_url: &str) -> Result<Self, ModelError> {
        let mut base = check_url(base_url).map_err(|error| {
            let why = format!("its base URL can't be used: {error}");
            ModelError::new(ModelErrorKind::Request, name, why)
        })?;
        base.set_fragment(None);
        let path = base_path(format, base.path());
        base.set_path(&path);

        let host = base.host_str().unwrap_or_default();
        let is_openai = host == "api.openai.com" || host.ends_with(".openai.azure.com");
        let options = WireOptions {
            provider: name.to_owned(),
            completion_tokens: is_openai,
            ..WireOptions::default()
        };
        Ok(Self {
            name: name.to_owned(),
            format,
            base,
            keys: Vec::new(),
            headers: HeaderMap::new(),
            options,
            dimensions: 0,
        })
    }

    /// Adds a key. The key is sent only to the origin of the base URL. A second key needs another
    /// header.
    #[must_use]
    pub fn key(mut self, key: ModelKey) -> Self {
        self.keys.push(key);
        self
    }

    /// Adds a header to all requests. A header with a secret has to be a key.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Adds a field to the body of all requests.
    #[must_use]
    pub fn field(mut self, name: &str, value: RawJson) -> Self {
        self.options.fields.push((name.to_owned(), value));
        self
    }

    /// Sets the way of asking for the provider's cache.
    #[must_use]
    pub fn caching(mut self, caching: Caching) -> Self {
        self.options.caching = caching;
        self
    }

    /// Doesn't send thinking back in later requests, because some servers refuse it.
    #[must_use]
    pub fn drop_thinking(mut self) -> Self {
        self.options.drop_thinking = true;
        self
    }

    /// Sets the context size that a local server should reserve.
    #[must_use]
    pub fn context(mut self, tokens: Option<u64>) -> Self {
        self.options.context = tokens;
        self
    }

    /// Sets the number of dimensions of vectors. 0 leaves the number to the model.
    #[must_use]
    pub fn dimensions(mut self, numbers: u64) -> Self {
        self.dimensions = numbers;
        self
    }

    /// Returns the number of dimensions of vectors, or `None` if the model decides it.
    pub(crate) fn wanted_dimensions(&self) -> Option<u64> {
        if self.dimensions > 0 { Some(self.dimensions) } else { None }
    }

    /// Returns the name of the provider.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the format of the provider.
    pub fn format(&self) -> WireFormat {
        self.format
    }

    /// Returns the URL to which the path of each request is added.
    pub fn base_url(&self) -> &Url {
        &self.base
    }

    /// Checks whether the provider is on this machine.
    pub fn is_local(&self) -> bool {
        match self.base.host() {
            Some(url::Host::Domain(name)) => name == "localhost",
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.to_canonical().is_loopback(),
            None => false,
        }
    }

    /// Returns the options of the format.
    pub fn options(&self) -> &WireOptions {
        &self.options
    }

    pub(crate) fn keys(&self) -> &[ModelKey] {
        &self.keys
    }

    /// Makes the request for a turn.
    pub(crate) fn ask(&self, turn: &Turn) -> Result<Request, ModelError> {
        let wire = self.format.request(turn, &self.options);
        let accepted = match self.format {
            WireFormat::Ollama => "application/x-ndjson",
            _ => "text/event-stream",
        };
        let request = self
            .request(Method::POST, wire.path, wire.headers)?
            .header(ACCEPT, HeaderValue::from_static(accepted))
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(wire.body);
        Ok(request)
    }

    /// Makes a request below the base URL. Its redirects aren't followed.
    pub(crate) fn request(
        &self,
        method: Method,
        path: &str,
        headers: Vec<(&'static str, &'static str)>,
    ) -> Result<Request, ModelError> {
        let mut url = self.base.clone();
        let (path, query) = match path.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (path, None),
        };
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        if let Some(query) = query {
            let all = match url.query() {
                Some(base_query) => format!("{base_query}&{query}"),
                None => query.to_owned(),
            };
            url.set_query(Some(&all));
        }
        let mut request = Request::new(PURPOSE, method, url.as_str())
            .map_err(|error| ModelError::from_door(&self.name, &error))?
            .stay();
        for key in &self.keys {
            request = request.credential(Some(key.credential(&url, self.format)));
        }
        let fixed = headers
            .into_iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut all: HeaderMap = fixed.collect();
        // The operator's headers take precedence.
        for (name, value) in &self.headers {
            all.insert(name.clone(), value.clone());
        }
        // Small servers close a connection after an answer, and using it again fails. On this
        // machine, a new connection costs almost nothing.
        if self.is_local() {
            all.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        for (name, value) in &all {
            request = request.header(name.clone(), value.clone());
        }
        Ok(request)
    }
}

/// Returns the path to which the paths of requests are added.
fn base_path(format: WireFormat, path: &str) -> String {
    let path = path.trim_end_matches('/');
    let last = path.rsplit('/').next().unwrap_or_default();
    let after_v = last.strip_prefix('v').unwrap_or_default();
    let has_version = after_v.starts_with(|c: char| c.is_ascii_digit());
    match format {
        // The paths of Ollama begin at the root.
        WireFormat::Ollama => path.trim_end_matches("/api").to_owned(),
        WireFormat::Messages if !has_version => format!("{path}/v1"),
        WireFormat::Chat | WireFormat::Responses if path.is_empty() => "/v1".to_owned(),
        _ => path.to_owned(),
    }
}

/// The key of a provider. `Debug` doesn't show it.
#[derive(Clone)]
pub struct ModelKey {
    secret: String,
    value: Arc<str>,
    header: Option<(HeaderName, String)>,
}

impl ModelKey {
    /// Makes a key from the name and the value of a secret.
    ///
    /// # Errors
    ///
    /// The value can't be a key.
    pub fn new(secret: &str, value: &str) -> Result<Self, ModelKeyError> {
        let secret = neutral_line(cut(secret, 100));
        let value = value.trim();
        if value.len() < MIN_KEY {
            return Err(ModelKeyError::Short(secret));
        }
        if !value.bytes().all(|byte| (b'!'..=b'~').contains(&byte)) {
            return Err(ModelKeyError::Characters(secret));
        }
        Ok(Self { secret, value: value.into(), header: None })
    }

    /// Sets another header for the key, instead of the usual header of the format. The value is the
    /// key after `prefix`, such as `Bearer `.
    #[must_use]
    pub fn in_header(mut self, name: HeaderName, prefix: &str) -> Self {
        self.header = Some((name, prefix.to_owned()));
        self
    }

    /// Returns the name of the secret.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    pub(crate) fn value(&self) -> &str {
        &self.value
    }

    fn credential(&self, url: &Url, format: WireFormat) -> Credential {
        let usual = match format {
            WireFormat::Messages => (HeaderName::from_static("x-api-key"), String::new()),
            _ => (AUTHORIZATION, "Bearer ".to_owned()),
        };
        let (name, prefix) = self.header.clone().unwrap_or(usual);
        // The value has only characters that a header may have. If the prefix has other characters,
        // the key isn't sent.
        let value = HeaderValue::from_str(&format!("{prefix}{}", self.value))
            .unwrap_or(HeaderValue::from_static(""));
        Credential::in_header(url, name, value)
    }
}

impl fmt::Debug for ModelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelKey").field("secret", &self.secret).finish_non_exhaustive()
    }
}

/// A secret that can't be a key. The message names the secret, but never contains its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelKeyError {
    /// The value is too short.
    #[error("the secret `{0}` has fewer than {MIN_KEY} bytes, the least")]
    Short(String),
    /// The value has characters that a header can't have.
    #[error("the secret `{0}` has spaces or other characters that no key has")]
    Characters(String),
}
