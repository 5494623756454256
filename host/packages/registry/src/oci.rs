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
use crate::reference::{Reference, authority, check_digest, check_tag};
use crate::source::Source;

/// Largest manifest, as the specification recommends, and the largest list of manifests.
pub(crate) const MAX_MANIFEST: u64 = 4 << 20;

/// Most bytes of an answer with a token, and of the token itself. A larger answer or token is
/// refused.
const MAX_TOKEN_ANSWER: u64 = 64 << 10;
const MAX_TOKEN: usize = 16 << 10;

/// Most manifests that are fetched to find signatures. Further manifests are ignored.
const MAX_REFERRERS: usize = 32;

const PAGE: usize = 100;

/// Most pages of tags, and most tags. Further pages and tags are ignored.
const MAX_PAGES: usize = 20;
const MAX_TAGS: usize = MAX_PAGES * PAGE;

/// Most bytes of a page of tags. A larger page is refused.
const MAX_PAGE: u64 = 1 << 20;

/// The header with the digest of a manifest.
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// The actions of a session in its repository. Tokens are requested only for these actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Fetch,
    Publish,
}

/// Sends the requests about one artifact.
pub(crate) struct Session<'a> {
    client: &'a OutboundClient,
    pub(crate) reference: &'a Reference,
    pub(crate) options: &'a FetchOptions,
    pub(crate) base: Url,
    purpose: Purpose,
    authorization: Option<Credential>,
}

/// The bytes of a manifest as the registry sent them, and their digest.
pub(crate) struct ReceivedManifest {
    pub(crate) bytes: Vec<u8>,
    pub(crate) digest: String,
    pub(crate) media_type: String,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        reference: &'a Reference,
        client: &'a OutboundClient,
        options: &'a FetchOptions,
        purpose: Purpose,
    ) -> Result<Self, FetchError> {
        let base = reference.base()?;
        Ok(Self { client, reference, options, base, purpose, authorization: None })
    }

    /// Fetches the component with its signatures. Only the first request may name a tag. All
    /// further requests name digests, because the tag may change in the meantime.
    pub(crate) async fn fetch(
        mut self,
        progress: &(dyn Fn(u64, Option<u64>) + Send + Sync),
    ) -> Result<Fetched, FetchError> {
        let manifest_limits = self.options.small_limits(MAX_MANIFEST);
        let received = self.fetch_manifest(self.reference.version(), manifest_limits).await?;
        let limits = self.options.component_limits();
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

    /// Fetches the list of tags, page by page. The result tells whether the list is complete.
    pub(crate) async fn tags(mut self) -> Result<Tags, FetchError> {
        #[derive(Deserialize)]
        struct Page {
            #[serde(default)]
            tags: Option<Vec<String>>,
        }
        let mut tags = Vec::new();
        let mut url = self.url(&format!("tags/list?n={PAGE}"))?;
        let path_of_pages = url.path().to_owned();
        for _ in 0..MAX_PAGES {
            let answer = self.get(&url, &[], self.options.small_limits(MAX_PAGE)).await?;
            if answer.status() != StatusCode::OK {
                return Err(unexpected(&answer, "the tags"));
            }
            let link = answer.headers().get(LINK).and_then(parse_next_page);
            let bytes = answer.bytes(&|_, _| {}).await?;
            let page: Page = serde_json::from_slice(&bytes)
                .map_err(|_| self.refused("the list of tags", "the list isn't valid JSON"))?;

            // A malicious registry could send invalid tags, or more tags than requested.
            for tag in page.tags.unwrap_or_default().into_iter().take(MAX_TAGS) {
                if check_tag(&tag).is_ok() {
                    tags.push(tag);
                }
            }
            if tags.len() >= MAX_TAGS {
                tags.truncate(MAX_TAGS);
                return Ok(Tags { tags, is_complete: false });
            }

            let Some(link) = link else { return Ok(Tags { tags, is_complete: true }) };
            url = self.next_page(&link, &path_of_pages)?;
        }
        Ok(Tags { tags, is_complete: false })
    }

    /// Returns the URL that `link` names. The URL must be on the same server and have the path
    /// `path`.
    fn next_page(&self, link: &str, path: &str) -> Result<Url, FetchError> {
        match self.base.join(link) {
            Ok(next) if same_origin(&next, &self.base) && next.path() == path => Ok(next),
            _ => {
                let why = "the next page of the list is on another server";
                Err(self.refused("the list of tags", why))
            }
        }
    }

    /// Fetches the manifest of a version, which is a tag or a digest.
    async fn fetch_manifest(
        &mut self,
        version: &str,
        limits: Limits,
    ) -> Result<ReceivedManifest, FetchError> {
        let url = self.url(&format!("manifests/{version}"))?;
        // An index is accepted here, because the error for an index explains more than a status.
        let accepted = [media_types::MANIFEST, media_types::INDEX];
        let answer = self.get(&url, &accepted, limits).await?;
        if answer.status() != StatusCode::OK {
            return Err(unexpected(&answer, &format!("the manifest of {}", self.reference)));
        }
        self.receive_manifest(answer, version).await
    }

    /// Reads a manifest. Its digest must be the requested digest, and the digest that the registry
    /// states.
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
            // A registry may state a digest with another algorithm, which isn't compared.
            if expected.starts_with("sha256:") && *expected != digest {
                let expected_digest = shown(expected);
                let why = format!("the digest is {digest}, but {expected_digest} was requested");
                return Err(self.refused("the manifest", why));
            }
        }
        Ok(ReceivedManifest { bytes, digest, media_type })
    }

    /// Fetches a blob, and compares its length and its digest with `descriptor`. `what` names the
    /// blob in errors.
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
        let bytes = answer.bytes(&|received, _| progress(received, Some(size))).await?;
        if bytes.len() as u64 != size {
            let why =
                format!("the size is {} bytes, but the manifest says {size} bytes", bytes.len());
            return Err(self.refused(what, why));
        }
        let digest = digest_of(&bytes);
        if digest != descriptor.digest {
            let why =
                format!("the digest is {digest}, but the manifest says {}", descriptor.digest);
            return Err(self.refused(what, why));
        }
        Ok(bytes)
    }

    /// Fetches the signatures of a manifest: the artifacts that refer to the manifest. Artifacts
    /// that aren't signatures are skipped.
    async fn fetch_signatures(
        &mut self,
        manifest_digest: &str,
    ) -> Result<Vec<Vec<u8>>, FetchError> {
        let mut signatures = Vec::new();
        for descriptor in self.fetch_referrers(manifest_digest).await? {
            if signatures.len() == MAX_SIGNATURES {
                break;
            }
            if check_digest(&descriptor.digest).is_err() {
                continue;
            }
            let manifest_limits = self.options.small_limits(MAX_MANIFEST);
            let received = self.fetch_manifest(&descriptor.digest, manifest_limits).await?;
            let Ok(manifest) = Manifest::parse(&received.bytes, &received.media_type) else {
                continue;
            };
            if let Some(layer) = manifest.signature_of(manifest_digest, MAX_SIGNATURE) {
                let limits = self.options.small_limits(MAX_SIGNATURE);
                let signature = self.fetch_blob("a signature", layer, limits, &|_, _| {}).await?;
                signatures.push(signature);
            }
        }
        Ok(signatures)
    }

    /// Fetches the list of the artifacts that refer to a manifest. Older registries don't keep this
    /// list, so clients store it under a tag with the name of the digest.
    async fn fetch_referrers(
        &mut self,
        manifest_digest: &str,
    ) -> Result<Vec<Descriptor>, FetchError> {
        let kind = media_types::SIGNATURE;
        let list_url = self.url(&format!("referrers/{manifest_digest}?artifactType={kind}"))?;
        let tag_url = self.url(&format!("manifests/{}", manifest_digest.replace(':', "-")))?;
        let limits = self.options.small_limits(MAX_MANIFEST);
        for url in [list_url, tag_url] {
            let answer = self.get(&url, &[media_types::INDEX], limits).await?;
            match answer.status() {
                StatusCode::OK => {}
                // Older registries, which don't keep the list, answer with one of these statuses.
                StatusCode::NOT_FOUND
                | StatusCode::BAD_REQUEST
                | StatusCode::METHOD_NOT_ALLOWED => continue,
                _ => return Err(unexpected(&answer, "the signatures")),
            }
            let bytes = answer.bytes(&|_, _| {}).await?;
            let index: Index = serde_json::from_slice(&bytes).map_err(|_| {
                self.refused("the list of signatures", "the list isn't an OCI index")
            })?;
            let mut entries = index.manifests;
            // Some registries leave out the type. Entries without the right type come last, because
            // `false` is sorted before `true`.
            entries.sort_by_key(|entry| entry.artifact_type.as_deref() != Some(kind));
            entries.truncate(MAX_REFERRERS);
            return Ok(entries);
        }
        Ok(Vec::new())
    }

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

    /// Sends a request. After a 401, sends the request once more with a new credential, because the
    /// registry needs a login or the token has expired.
    pub(crate) async fn send(&mut self, request: Request) -> Result<Response, FetchError> {
        let mut is_repeated = false;
        loop {
            let with_login = request.clone().credential(self.authorization.clone());
            let answer = self.client.send(with_login).await?;
            // A registry may redirect to another server. A 401 of the other server is final,
            // because the credential isn't for that server.
            let is_from_registry = same_origin(answer.url(), &self.base);
            let needs_login = answer.status() == StatusCode::UNAUTHORIZED && is_from_registry;
            if !needs_login {
                return Ok(answer);
            }
            if is_repeated {
                return Err(self.login_error(None));
            }
            is_repeated = true;
            let challenge = Challenge::from_headers(answer.headers());
            drop(answer);
            self.authorization = Some(self.authorize(challenge).await?);
        }
    }

    /// Makes the credential for the login that the registry requests.
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
                hint:
                    "the registry's kind of login isn't supported; Toolhold supports a user name \
                     with a password, and tokens for these"
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
        // The operator chose the token server if the file with logins has a login for it.
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
            .limits(self.options.small_limits(MAX_TOKEN_ANSWER));
        let answer = self.client.send(request).await?;
        match answer.status() {
            StatusCode::OK => self.receive_token(answer).await,
            _ if is_withheld => Err(FetchError::Login {
                registry: self.reference.registry().to_owned(),
                hint: format!(
                    "the registry's tokens come from another host, {host}, which doesn't get the \
                     password. If you trust {host}, add an entry for {host} below `auths` in \
                     {file}",
                    file = self.options.credentials.shown_path()
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
        let parsed: Answer = serde_json::from_slice(&bytes)
            .map_err(|_| self.refused("the token", "the answer isn't valid JSON"))?;
        let token = if parsed.token.is_empty() { parsed.access_token } else { parsed.token };
        if token.is_empty() || token.len() > MAX_TOKEN {
            return Err(
                self.refused("the token", "the answer has no token, or a token that is too long")
            );
        }
        let value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
            self.refused("the token", "the token has a character that headers don't allow")
        })?;
        Ok(Credential::new(&self.base, value))
    }

    /// Makes the error for a missing, unreadable or refused login. `None` and [`Login::Basic`] mean
    /// that the registry refused the login.
    fn login_error(&self, login: Option<Login>) -> FetchError {
        let registry = self.reference.registry();
        let file = self.options.credentials.shown_path();
        let action = match self.purpose {
            Purpose::Fetch => "read",
            Purpose::Publish => "write to",
        };
        let hint = match login {
            Some(Login::Unreadable(why)) => why,
            Some(Login::Missing) => format!(
                "{file} has no login for {registry}. Log in with another registry client, or add \
                 an entry for {registry} with `auth` below `auths` in that file"
            ),
            Some(Login::Basic(_)) | None => format!(
                "the registry refused the login. Check the login for {registry} in {file}, and \
                 whether the login may {action} {}",
                self.reference.name()
            ),
        };
        FetchError::Login { registry: registry.to_owned(), hint }
    }

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

/// Parses the URL in a header such as `</v2/a/tags/list?last=x>; rel="next"`.
fn parse_next_page(header: &HeaderValue) -> Option<String> {
    let header = header.to_str().ok()?;
    let (url, parameters) = header.trim().strip_prefix('<')?.split_once('>')?;
    let is_next = parameters.replace(' ', "").contains("rel=\"next\"");
    is_next.then(|| url.to_owned())
}
