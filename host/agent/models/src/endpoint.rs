//! A provider's address, keys and options. Each key is only sent to the origin of the address.

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

/// The purpose of requests in their records.
const PURPOSE: &str = "model";

/// The least bytes of a key. Answers are searched for keys, and a shorter key could match by
/// chance.
const MIN_KEY: usize = 6;

/// Most bytes of a secret's name in an error message.
const MAX_SHOWN_NAME: usize = 100;

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
    /// Makes a provider from its base URL. The URL may end with `/v1`.
    ///
    /// # Errors
    ///
    /// Fails if the URL can't be used.
    pub fn new(name: &str, format: WireFormat, base_url: &str) -> Result<Self, ModelError> {
        let mut base = check_url(base_url).map_err(|error| {
            let why = format!("the base URL can't be used: {error}");
            ModelError::new(ModelErrorKind::Request, name, why)
        })?;
        base.set_fragment(None);
        let path = base_path(format, base.path());
        base.set_path(&path);

        let host = base.host_str().unwrap_or_default();
        let is_openai = host == "api.openai.com" || host.ends_with(".openai.azure.com");
        let options = WireOptions {
            provider: name.to_owned(),
            // Only OpenAI names the limit of tokens `max_completion_tokens`.
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

    /// Adds a key, which is only sent to the origin of the base URL. Each key needs its own header.
    #[must_use]
    pub fn key(mut self, key: ModelKey) -> Self {
        self.keys.push(key);
        self
    }

    /// Adds a header to all requests. A secret must be added with [`Self::key`] instead.
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

    /// Sets how requests use the provider's cache.
    #[must_use]
    pub fn caching(mut self, caching: Caching) -> Self {
        self.options.caching = caching;
        self
    }

    /// Leaves thinking out of requests, because some servers refuse thinking in earlier messages.
    #[must_use]
    pub fn drop_thinking(mut self) -> Self {
        self.options.drop_thinking = true;
        self
    }

    /// Sets the context size that a local server reserves.
    #[must_use]
    pub fn context(mut self, tokens: Option<u64>) -> Self {
        self.options.context = tokens;
        self
    }

    /// Sets the length of vectors. 0 means the model's length.
    #[must_use]
    pub fn dimensions(mut self, numbers: u64) -> Self {
        self.dimensions = numbers;
        self
    }

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

    /// Returns the URL below which requests are sent.
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

    /// Makes the request that asks the model for the answer to a turn.
    pub(crate) fn turn_request(&self, turn: &Turn) -> Result<Request, ModelError> {
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

    /// Makes a request below the base URL. Redirects are refused.
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
            let joined_query = match url.query() {
                Some(base_query) => format!("{base_query}&{query}"),
                None => query.to_owned(),
            };
            url.set_query(Some(&joined_query));
        }
        let mut request = Request::new(PURPOSE, method, url.as_str())
            .map_err(|error| ModelError::from_outbound_error(&self.name, &error))?
            .stay();
        for key in &self.keys {
            request = request.credential(Some(key.credential(&url, self.format)));
        }
        let format_headers = headers
            .into_iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut all_headers: HeaderMap = format_headers.collect();
        // The configured headers take precedence.
        for (name, value) in &self.headers {
            all_headers.insert(name.clone(), value.clone());
        }
        // Small servers close a connection after an answer, and a second request on it would fail.
        // On this machine, a new connection for each request costs almost nothing.
        if self.is_local() {
            all_headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        for (name, value) in &all_headers {
            request = request.header(name.clone(), value.clone());
        }
        Ok(request)
    }
}

/// Returns the path before the paths of requests, from the path of the base URL. A version, such as
/// `/v1`, isn't added to a path that already has a version.
fn base_path(format: WireFormat, path: &str) -> String {
    let path = path.trim_end_matches('/');
    let last_part = path.rsplit('/').next().unwrap_or_default();
    let version = last_part.strip_prefix('v').unwrap_or_default();
    let has_version = version.starts_with(|c: char| c.is_ascii_digit());
    match format {
        // Ollama's paths start at the root.
        WireFormat::Ollama => path.trim_end_matches("/api").to_owned(),
        WireFormat::Messages if !has_version => format!("{path}/v1"),
        WireFormat::Chat | WireFormat::Responses if path.is_empty() => "/v1".to_owned(),
        _ => path.to_owned(),
    }
}

/// A key of a provider. `Debug` doesn't show its value.
#[derive(Clone)]
pub struct ModelKey {
    secret: String,
    /// The variable, file or command that gives the key, for people.
    origin: Option<String>,
    value: Arc<str>,
    header: Option<(HeaderName, String)>,
}

impl ModelKey {
    /// Makes a key from the name and the value of a secret.
    ///
    /// # Errors
    ///
    /// Returns an error if the value is too short or isn't only visible ASCII.
    pub fn new(secret: &str, value: &str) -> Result<Self, ModelKeyError> {
        let secret = neutral_line(cut(secret, MAX_SHOWN_NAME));
        let value = value.trim();
        if value.len() < MIN_KEY {
            return Err(ModelKeyError::Short(secret));
        }
        if !value.bytes().all(|byte| (b'!'..=b'~').contains(&byte)) {
            return Err(ModelKeyError::Characters(secret));
        }
        Ok(Self { secret, origin: None, value: value.into(), header: None })
    }

    /// Replaces the default header. The key follows `prefix`, such as `Bearer `, in the header.
    #[must_use]
    pub fn in_header(mut self, name: HeaderName, prefix: &str) -> Self {
        self.header = Some((name, prefix.to_owned()));
        self
    }

    /// Names the variable, file or command that gives the key, for error messages.
    #[must_use]
    pub fn read_from(mut self, origin: String) -> Self {
        self.origin = Some(neutral_line(&origin));
        self
    }

    /// Returns the name of the secret.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Returns a phrase that names the key.
    pub(crate) fn in_words(&self) -> String {
        match &self.origin {
            Some(origin) => format!("the key in {origin}"),
            None => format!("the key of the secret `{}`", self.secret),
        }
    }

    pub(crate) fn value(&self) -> &str {
        &self.value
    }

    /// Returns the configured header with the key, or the usual header of the format.
    fn credential(&self, url: &Url, format: WireFormat) -> Credential {
        let usual_header = match format {
            WireFormat::Messages => (HeaderName::from_static("x-api-key"), String::new()),
            _ => (AUTHORIZATION, "Bearer ".to_owned()),
        };
        let (name, prefix) = self.header.clone().unwrap_or(usual_header);
        // The key is always valid in a header. If the prefix is invalid, an empty header is sent
        // instead of the key.
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

/// The error for an invalid key, which names the secret without its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelKeyError {
    /// The value is too short.
    #[error("the secret `{0}` is too short for a key; the minimum is {MIN_KEY} bytes")]
    Short(String),
    /// The value has characters that a header can't have.
    #[error("the secret `{0}` has spaces or other characters that keys can't contain")]
    Characters(String),
}
