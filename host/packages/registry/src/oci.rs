//! Fetches a component, its signatures and its tags from an OCI registry.

use http::header::{ACCEPT, CONTENT_TYPE, LINK};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use serde::Deserialize;
use toolhold_net::requests::{
    Credential, Limits, OutboundClient, OutboundError, Request, Response, same_origin,
};
use url::Url;

use crate::challenge::{Challenge, may_get_password};
use crate::credentials::Login;
use crate::error::FetchError;
use crate::fetched::{
    FetchOptions, Fetched, MAX_SIGNATURE, MAX_SIGNATURES, PURPOSE, Tags, unexpected,
};
use crate::manifest::{Descriptor, Index, Manifest, digest_of, media_types, shown};
use crate::reference::{Reference, check_digest, check_tag};
use crate::source::Source;

/// Largest manifest, as the specification recommends, and the largest list of manifests.
const MAX_MANIFEST: u64 = 4 << 20;

/// Largest answer with a token, and the largest token.
const MAX_TOKEN_ANSWER: u64 = 64 << 10;
const MAX_TOKEN: usize = 16 << 10;

/// The most manifests that are looked at for signatures.
const MAX_REFERRERS: usize = 32;

/// The number of tags that are requested for one page.
const PAGE: usize = 100;

/// The most pages of tags, and the most tags.
const MAX_PAGES: usize = 20;
const MAX_TAGS: usize = MAX_PAGES * PAGE;

/// Largest page, in bytes.
const MAX_PAGE: u64 = 1 << 20;

/// The header in which a registry states the digest of a manifest.
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// The actions of a session in its repository. A token is requested for no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Fetching.
    Fetch,
    /// Fetching and publishing.
    Publish,
}

/// The requests about one artifact.
pub(crate) struct Session<'a> {
    door: &'a OutboundClient,
    pub(crate) reference: &'a Reference,
    pub(crate) options: &'a FetchOptions,
    pub(crate) base: Url,
    purpose: Purpose,
    authorization: Option<Credential>,
}

/// The bytes of a manifest in the form in which the registry sent them, and their digest.
pub(crate) struct ReceivedManifest {
    pub(crate) bytes: Vec<u8>,
    pub(crate) digest: String,
    pub(crate) media_type: String,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        reference: &'a Reference,
        door: &'a OutboundClient,
        options: &'a FetchOptions,
        purpose: Purpose,
    ) -> Result<Self, FetchError> {
        let base = reference.base()?;
        Ok(Self { door, reference, options, base, purpose, authorization: None })
    }

    /// Fetches the component with its signatures. Only the first request may name a tag. The other
    /// requests name digests, so a change of the tag has no effect on them.
    pub(crate) async fn fetch(
        mut self,
        progress: &(dyn Fn(u64, Option<u64>) + Send + Sync),
    ) -> Result<Fetched, FetchError> {
        let manifest_limits = self.options.small(MAX_MANIFEST);
        let received = self.fetch_manifest(self.reference.version(), manifest_limits).await?;
        let limits = self.options.component();
        let manifest = Manifest::parse(&received.bytes, &received.media_type)
            .map_err(|error| self.refused("the manifest", error))?;
        let layer = manifest
            .component(limits.bytes)
            .map_err(|error| self.refused("the manifest", error))?;
        let bytes = self.fetch_blob("the component", layer, limits, progress).await?;
        let signatures = self.fetch_signatures(&received.digest).await?;
        let resolved = Source::Oci(self.reference.with_digest(&received.digest));
        Fetched::new(bytes, resolved, signatures)
    }

    /// Fetches the tags, page by page.
    pub(crate) async fn tags(mut self) -> Result<Tags, FetchError> {
        #[derive(Deserialize)]
        struct Page {
            #[serde(default)]
            tags: Option<Vec<String>>,
        }
        let mut tags = Vec::new();
        let mut url = self.url(&format!("tags/list?n={PAGE}"))?;
        let path = url.path().to_owned();
        for _ in 0..MAX_PAGES {
            let answer = self.get(&url, &[], self.options.small(MAX_PAGE)).await?;
            if answer.status() != StatusCode::OK {
                return Err(unexpected(&answer, "the tags"));
            }
            let link = answer.headers().get(LINK).and_then(parse_next_page);
            let bytes = answer.bytes(&|_, _| {}).await?;
            let page: Page = serde_json::from_slice(&bytes)
                .map_err(|_| self.refused("the list of tags", "it isn't valid JSON"))?;

            // No honest registry sends more tags than requested on a page, or an invalid tag.
            let page_tags = page.tags.unwrap_or_default().into_iter().take(MAX_TAGS);
            tags.extend(page_tags.filter_map(|tag| check_tag(&tag).ok()));
            if tags.len() >= MAX_TAGS {
                tags.truncate(MAX_TAGS);
                return Ok(Tags { tags, is_complete: false });
            }

            let Some(link) = link else { return Ok(Tags { tags, is_complete: true }) };
            url = match self.base.join(&link) {
                Ok(next) if same_origin(&next, &self.base) && next.path() == path => next,
                _ => {
                    let why = "its next page is on another server";
                    return Err(self.refused("the list of tags", why));
                }
            };
        }
        Ok(Tags { tags, is_complete: false })
    }

    /// Fetches a manifest by its tag or digest.
    async fn fetch_manifest(
        &mut self,
        version: &str,
        limits: Limits,
    ) -> Result<ReceivedManifest, FetchError> {
        let url = self.url(&format!("manifests/{version}"))?;
        // The request also accepts an index, so that the error can name the index.
        let accepted = [media_types::MANIFEST, media_types::INDEX];
        let answer = self.get(&url, &accepted, limits).await?;
        if answer.status() != StatusCode::OK {
            return Err(unexpected(&answer, &format!("the manifest of {}", self.reference)));
        }
        self.receive_manifest(answer, version).await
    }

    /// Receives a manifest. Compares its digest with the requested digest and with the digest that
    /// the registry states.
    pub(crate) async fn receive_manifest(
        &self,
        answer: Response,
        version: &str,
    ) -> Result<ReceivedManifest, FetchError> {
        let requested_digest = check_digest(version).ok();
        let stated_digest = header(&answer, &CONTENT_DIGEST);
        let media_type = header(&answer, &CONTENT_TYPE).unwrap_or_default();
        let bytes = answer.bytes(&|_, _| {}).await?;
        let digest = digest_of(&bytes);
        for expected in requested_digest.iter().chain(&stated_digest) {
            // A registry may also state a digest with another algorithm.
            if expected.starts_with("sha256:") && *expected != digest {
                let expected_digest = shown(expected);
                let why = format!("its digest is {digest}, but {expected_digest} was requested");
                return Err(self.refused("the manifest", why));
            }
        }
        Ok(ReceivedManifest { bytes, digest, media_type })
    }

    /// Fetches a blob, and compares it with its descriptor.
    async fn fetch_blob(
        &mut self,
        what: &str,
        descriptor: &Descriptor,
        limits: Limits,
        progress: &(dyn Fn(u64, Option<u64>) + Send + Sync),
    ) -> Result<Vec<u8>, FetchError> {
        let url = self.url(&format!("blobs/{}", descriptor.digest))?;
        let size = descriptor.size;
        let answer = self.get(&url, &[], Limits { bytes: size, ..limits }).await?;
        if answer.status() != StatusCode::OK {
            return Err(unexpected(&answer, what));
        }
        let bytes = answer.bytes(&|bytes, _| progress(bytes, Some(size))).await?;
        if bytes.len() as u64 != size {
            let why = format!("it has {} bytes, but {size} in its manifest", bytes.len());
            return Err(self.refused(what, why));
        }
        let digest = digest_of(&bytes);
        if digest != descriptor.digest {
            let why = format!("its digest is {digest}, but {} in its manifest", descriptor.digest);
            return Err(self.refused(what, why));
        }
        Ok(bytes)
    }

    /// Fetches the signatures of a manifest. These are artifacts that refer to the manifest. Other
    /// artifacts are skipped.
    async fn fetch_signatures(&mut self, subject: &str) -> Result<Vec<Vec<u8>>, FetchError> {
        let mut signatures = Vec::new();
        for descriptor in self.fetch_referrers(subject).await? {
            if signatures.len() == MAX_SIGNATURES {
                break;
            }
            if check_digest(&descriptor.digest).is_err() {
                continue;
            }
            let limits = self.options.small(MAX_MANIFEST);
            let received = self.fetch_manifest(&descriptor.digest, limits).await?;
            let Ok(manifest) = Manifest::parse(&received.bytes, &received.media_type) else {
                continue;
            };
            if let Some(layer) = manifest.signature_of(subject, MAX_SIGNATURE) {
                let limits = self.options.small(MAX_SIGNATURE);
                let signature = self.fetch_blob("a signature", layer, limits, &|_, _| {}).await?;
                signatures.push(signature);
            }
        }
        Ok(signatures)
    }

    /// Fetches the list of the manifests that refer to a manifest. Older registries don't have this
    /// list. They may have the list as the content of a tag.
    async fn fetch_referrers(&mut self, subject: &str) -> Result<Vec<Descriptor>, FetchError> {
        let kind = media_types::SIGNATURE;
        let list = self.url(&format!("referrers/{subject}?artifactType={kind}"))?;
        let tag = self.url(&format!("manifests/{}", subject.replace(':', "-")))?;
        let limits = self.options.small(MAX_MANIFEST);
        for url in [list, tag] {
            let answer = self.get(&url, &[media_types::INDEX], limits).await?;
            match answer.status() {
                StatusCode::OK => {}
                // Registries without the list return one of these statuses.
                StatusCode::NOT_FOUND
                | StatusCode::BAD_REQUEST
                | StatusCode::METHOD_NOT_ALLOWED => continue,
                _ => return Err(unexpected(&answer, "the signatures")),
            }
            let bytes = answer.bytes(&|_, _| {}).await?;
            let index: Index = serde_json::from_slice(&bytes)
                .map_err(|_| self.refused("the list of signatures", "it isn't an index"))?;
            let mut entries = index.manifests;
            // The type in an entry isn't reliable, so other entries are tried after the entries
            // with this type.
            entries.sort_by_key(|entry| entry.artifact_type.as_deref() != Some(kind));
            entries.truncate(MAX_REFERRERS);
            return Ok(entries);
        }
        Ok(Vec::new())
    }

    /// Sends a GET.
    pub(crate) async fn get(
        &mut self,
        url: &Url,
        accepted: &[&'static str],
        limits: Limits,
    ) -> Result<Response, FetchError> {
        let mut request = Request::get(PURPOSE, url.as_str())?.limits(limits);
        for media_type in accepted {
            request = request.header(ACCEPT, HeaderValue::from_static(media_type));
        }
        self.send(request).await
    }

    /// Sends a request. After a 401, sends it once more with the credential that the registry asks
    /// for: a token may have expired since the last request.
    pub(crate) async fn send(&mut self, request: Request) -> Result<Response, FetchError> {
        let mut is_second = false;
        loop {
            let with_login = request.clone().credential(self.authorization.clone());
            let answer = self.door.send(with_login).await?;
            // A challenge by a server that the registry redirects to has no effect.
            let is_from_registry = same_origin(answer.url(), &self.base);
            if answer.status() != StatusCode::UNAUTHORIZED || !is_from_registry {
                return Ok(answer);
            }
            if is_second {
                return Err(self.login_error(None));
            }
            is_second = true;
            let challenge = Challenge::from_headers(answer.headers());
            drop(answer);
            self.authorization = Some(self.authorize(challenge).await?);
        }
    }

    /// Makes the credential that the registry asks for.
    async fn authorize(&self, challenge: Option<Challenge>) -> Result<Credential, FetchError> {
        let login = self.options.credentials.login(self.reference.registry());
        match challenge {
            Some(Challenge::Basic) => match login {
                Login::Basic(value) => Ok(Credential::new(&self.base, value)),
                other => Err(self.login_error(Some(other))),
            },
            Some(Challenge::Bearer { realm, service }) => {
                self.fetch_token(&realm, service.as_deref(), login).await
            }
            None => Err(FetchError::Login {
                registry: self.reference.registry().to_owned(),
                hint: "its kind of login isn't supported; Toolhold supports a user name with a \
                     password, and tokens for these"
                    .to_owned(),
            }),
        }
    }

    /// Fetches a token for this repository. `login` is the login for the registry.
    async fn fetch_token(
        &self,
        realm: &str,
        service: Option<&str>,
        login: Login,
    ) -> Result<Credential, FetchError> {
        let mut url = Url::parse(realm).map_err(|_| {
            let why = format!("`{}` isn't a URL", shown(realm));
            self.refused("the token server", why)
        })?;
        let host = authority(&url);
        let actions = match self.purpose {
            Purpose::Fetch => "pull",
            Purpose::Publish => "pull,push",
        };
        url.query_pairs_mut()
            .extend_pairs(service.map(|service| ("service", service)))
            .append_pair("scope", &format!("repository:{}:{actions}", self.reference.name()));

        let host_login = self.options.credentials.login(&host);
        let mut named_urls = vec![&self.base];
        // The host is in your file with logins, so you chose the host.
        if matches!(host_login, Login::Basic(_)) {
            named_urls.push(&url);
        }
        let password = match (&login, host_login) {
            (Login::Basic(value), _) if may_get_password(&self.base, &url) => Some(value.clone()),
            (_, Login::Basic(value)) => Some(value),
            _ => None,
        };
        let is_withheld = matches!(login, Login::Basic(_)) && password.is_none();
        let credential = password.map(|value| Credential::new(&url, value));
        let request = Request::chosen_by_server(PURPOSE, Method::GET, url.as_str(), &named_urls)?
            .credential(credential)
            .limits(self.options.small(MAX_TOKEN_ANSWER));
        let answer = self.door.send(request).await?;
        match answer.status() {
            StatusCode::OK => self.receive_token(answer).await,
            _ if is_withheld => Err(FetchError::Login {
                registry: self.reference.registry().to_owned(),
                hint: format!(
                    "its tokens come from another host, {host}, which doesn't get the password. If \
                     you trust {host}, write an entry for it below `auths` in {file}",
                    file = self.options.credentials.place()
                ),
            }),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.login_error(Some(login))),
            _ => Err(unexpected(&answer, "a token")),
        }
    }

    async fn receive_token(&self, answer: Response) -> Result<Credential, FetchError> {
        #[derive(Deserialize)]
        struct Answer {
            #[serde(default)]
            token: String,
            #[serde(default)]
            access_token: String,
        }
        let bytes = answer.bytes(&|_, _| {}).await?;
        let answer: Answer = serde_json::from_slice(&bytes)
            .map_err(|_| self.refused("the token", "the answer isn't valid JSON"))?;
        let token = if answer.token.is_empty() { answer.access_token } else { answer.token };
        if token.is_empty() || token.len() > MAX_TOKEN {
            return Err(self.refused("the token", "it is missing or too long"));
        }
        let value = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| self.refused("the token", "it isn't valid in a header"))?;
        Ok(Credential::new(&self.base, value))
    }

    /// Returns the error for a missing login. `login` is the login for the registry, or `None` if
    /// the registry refused it.
    fn login_error(&self, login: Option<Login>) -> FetchError {
        let registry = self.reference.registry();
        let file = self.options.credentials.place();
        let hint = match login {
            Some(Login::Unreadable(why)) => why,
            Some(Login::Missing) => format!(
                "{file} has no login for it. Log in with another registry client, or write an \
                 entry for {registry} with `auth` below `auths` in that file"
            ),
            Some(Login::Basic(_)) | None => format!(
                "the login was refused. Check the login for {registry} in {file}, and its \
                 permission to {} {}",
                match self.purpose {
                    Purpose::Fetch => "read",
                    Purpose::Publish => "write to",
                },
                self.reference.name()
            ),
        };
        FetchError::Login { registry: registry.to_owned(), hint }
    }

    /// Returns a URL of the repository.
    pub(crate) fn url(&self, path: &str) -> Result<Url, FetchError> {
        let url = self.base.join(&format!("/v2/{}/{path}", self.reference.name()));
        url.map_err(|error| OutboundError::Url(error.to_string()).into())
    }

    pub(crate) fn refused(&self, what: &str, why: impl ToString) -> FetchError {
        FetchError::Refused {
            what: what.to_owned(),
            from: self.reference.to_string(),
            why: why.to_string(),
        }
    }
}

fn header(answer: &Response, name: &HeaderName) -> Option<String> {
    let value = answer.headers().get(name)?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// Returns the host of a URL, with the port if it isn't the usual port.
fn authority(url: &Url) -> String {
    let origin = toolhold_net::requests::origin(url);
    match origin.split_once("://") {
        Some((_, authority)) => authority.to_owned(),
        None => String::new(),
    }
}

/// Parses the URL of the next page from a header such as `</v2/a/tags/list?last=x>; rel="next"`.
fn parse_next_page(header: &HeaderValue) -> Option<String> {
    let header = header.to_str().ok()?;
    let (url, parameters) = header.trim().strip_prefix('<')?.split_once('>')?;
    let is_next = parameters.replace(' ', "").contains("rel=\"next\"");
    is_next.then(|| url.to_owned())
}
