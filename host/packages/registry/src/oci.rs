//! Fetches a component, its signatures and its tags from an OCI registry.

use http::header::{ACCEPT, CONTENT_TYPE, LINK};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use serde::Deserialize;
use toolhold_net::requests::{Credential, Limits, OutboundClient, Request, Response};
use url::Url;

use crate::challenge::{Challenge, may_get_password};
use crate::credentials::Login;
use crate::error::FetchError;
use crate::fetched::{
    FetchOptions, Fetched, MAX_SIGNATURE, MAX_SIGNATURES, PURPOSE, Tags, unexpected,
};
use crate::manifest::{Descriptor, Index, Manifest, digest, media_types};
use crate::reference::{Reference, check_digest, check_tag};
use crate::source::Source;

/// Largest manifest, as the specification recommends, and the largest list of manifests.
const MAX_MANIFEST: u64 = 4 << 20;

/// Largest answer with a token, and the largest token.
const MAX_TOKEN_ANSWER: u64 = 64 << 10;
const MAX_TOKEN: usize = 16 << 10;

/// The most manifests that are looked at for signatures.
const MAX_REFERRERS: usize = 32;

/// Tags of a page, pages, and bytes of a page.
const PAGE: usize = 100;
const MAX_PAGES: usize = 20;
const MAX_PAGE: u64 = 1 << 20;

/// The header in which a registry states the digest of a manifest.
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// The requests about one artifact.
pub(crate) struct Session<'a> {
    door: &'a OutboundClient,
    reference: &'a Reference,
    options: &'a FetchOptions,
    base: Url,
    authorization: Option<Credential>,
}

/// A manifest as it came, with its digest.
struct Received {
    bytes: Vec<u8>,
    digest: String,
    media_type: String,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        reference: &'a Reference,
        door: &'a OutboundClient,
        options: &'a FetchOptions,
    ) -> Result<Self, FetchError> {
        Ok(Self { door, reference, options, base: reference.base()?, authorization: None })
    }

    /// Fetches the component with its signatures. Only the first request may name a tag: all others
    /// name digests, so a tag that changes meanwhile changes nothing.
    pub(crate) async fn fetch(
        mut self,
        progress: &(dyn Fn(u64, Option<u64>) + Send + Sync),
    ) -> Result<Fetched, FetchError> {
        let limits = self.options.small(MAX_MANIFEST);
        let received = self.manifest(self.reference.version(), limits).await?;
        let manifest = Manifest::parse(&received.bytes, &received.media_type)
            .map_err(|error| self.refused("the manifest", error))?;
        let layer = manifest
            .component(self.options.component().bytes)
            .map_err(|error| self.refused("the manifest", error))?;
        let limits = self.options.component();
        let bytes = self.blob("the component", layer, limits, progress).await?;
        let signatures = self.signatures(&received.digest).await?;
        let resolved = Source::Oci(self.reference.with_digest(&received.digest));
        Fetched::new(bytes, resolved, signatures)
    }

    /// The tags, page by page.
    pub(crate) async fn tags(mut self) -> Result<Tags, FetchError> {
        #[derive(Deserialize)]
        struct Page {
            #[serde(default)]
            tags: Option<Vec<String>>,
        }
        let mut found = Vec::new();
        let mut next = self.url(&format!("tags/list?n={PAGE}"))?;
        let path = next.path().to_owned();
        for _ in 0..MAX_PAGES {
            let answer = self.get(&next, &[], self.options.small(MAX_PAGE)).await?;
            if answer.status() != StatusCode::OK {
                return Err(unexpected(&answer, "the tags"));
            }
            let link = answer.headers().get(LINK).and_then(next_page);
            let page = answer.bytes(&|_, _| {}).await?;
            let page: Page = serde_json::from_slice(&page)
                .map_err(|_| self.refused("the list of tags", "it isn't valid JSON"))?;
            let tags = page.tags.unwrap_or_default();
            // More tags than requested on a page, or an invalid one: no registry sends that.
            found.extend(
                tags.into_iter().take(MAX_PAGES * PAGE).filter_map(|tag| check_tag(&tag).ok()),
            );
            if found.len() >= MAX_PAGES * PAGE {
                found.truncate(MAX_PAGES * PAGE);
                return Ok(Tags { tags: found, is_complete: false });
            }
            let Some(link) = link else { return Ok(Tags { tags: found, is_complete: true }) };
            let url = self.base.join(&link).ok().filter(|url| {
                toolhold_net::requests::same_origin(url, &self.base) && url.path() == path
            });
            next = url.ok_or_else(|| {
                self.refused("the list of tags", "its next page is on another server")
            })?;
        }
        Ok(Tags { tags: found, is_complete: false })
    }

    /// A manifest by its tag or digest.
    async fn manifest(&mut self, version: &str, limits: Limits) -> Result<Received, FetchError> {
        let url = self.url(&format!("manifests/{version}"))?;
        // An index is asked for too, so that the error says that it is one.
        let accepted = [media_types::MANIFEST, media_types::INDEX];
        let answer = self.get(&url, &accepted, limits).await?;
        if answer.status() != StatusCode::OK {
            return Err(unexpected(&answer, &format!("the manifest of {}", self.reference)));
        }
        self.received(answer, version).await
    }

    async fn received(&self, answer: Response, version: &str) -> Result<Received, FetchError> {
        // A registry may also state a digest of another algorithm.
        let stated =
            header(&answer, &CONTENT_DIGEST).filter(|stated| stated.starts_with("sha256:"));
        let media_type = header(&answer, &CONTENT_TYPE).unwrap_or_default();
        let bytes = answer.bytes(&|_, _| {}).await?;
        let digest = digest(&bytes);
        let named = check_digest(version).ok();
        let differs = named.iter().chain(&stated).find(|expected| **expected != digest);
        if let Some(expected) = differs {
            let expected = crate::manifest::shown(expected);
            let why = format!("its digest is {digest}, but {expected} was requested");
            return Err(self.refused("the manifest", why));
        }
        Ok(Received { bytes, digest, media_type })
    }

    /// A blob, compared with its description.
    async fn blob(
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
        let found = digest(&bytes);
        if found != descriptor.digest {
            let why = format!("its digest is {found}, but {} in its manifest", descriptor.digest);
            return Err(self.refused(what, why));
        }
        Ok(bytes)
    }

    /// The signatures of a manifest: artifacts that refer to it. Other artifacts are passed over.
    async fn signatures(&mut self, subject: &str) -> Result<Vec<Vec<u8>>, FetchError> {
        let mut found = Vec::new();
        for descriptor in self.referrers(subject).await? {
            if found.len() == MAX_SIGNATURES {
                break;
            }
            if check_digest(&descriptor.digest).is_err() {
                continue;
            }
            let limits = self.options.small(MAX_MANIFEST);
            let received = self.manifest(&descriptor.digest, limits).await?;
            let Ok(manifest) = Manifest::parse(&received.bytes, &received.media_type) else {
                continue;
            };
            if let Some(layer) = manifest.signature_of(subject, MAX_SIGNATURE) {
                let limits = self.options.small(MAX_SIGNATURE);
                found.push(self.blob("a signature", layer, limits, &|_, _| {}).await?);
            }
        }
        Ok(found)
    }

    /// Lists the manifests that refer to a manifest. Older registries have a tag with this list
    /// instead of a list of their own.
    async fn referrers(&mut self, subject: &str) -> Result<Vec<Descriptor>, FetchError> {
        let kind = media_types::SIGNATURE;
        let list = self.url(&format!("referrers/{subject}?artifactType={kind}"))?;
        let tag = self.url(&format!("manifests/{}", subject.replace(':', "-")))?;
        for url in [list, tag] {
            let answer =
                self.get(&url, &[media_types::INDEX], self.options.small(MAX_MANIFEST)).await?;
            match answer.status() {
                StatusCode::OK => {}
                // Registries without the list answer in these ways.
                StatusCode::NOT_FOUND
                | StatusCode::BAD_REQUEST
                | StatusCode::METHOD_NOT_ALLOWED => continue,
                _ => return Err(unexpected(&answer, "the signatures")),
            }
            let bytes = answer.bytes(&|_, _| {}).await?;
            let index: Index = serde_json::from_slice(&bytes)
                .map_err(|_| self.refused("the list of signatures", "it isn't an index"))?;
            // The type in an entry isn't reliable, so it only says which ones are looked at first.
            let mut entries = index.manifests;
            entries.sort_by_key(|entry| entry.artifact_type.as_deref() != Some(kind));
            entries.truncate(MAX_REFERRERS);
            return Ok(entries);
        }
        Ok(Vec::new())
    }

    /// Sends a GET; after 401 once more, with the credential that the registry asks for.
    async fn get(
        &mut self,
        url: &Url,
        accepted: &[&'static str],
        limits: Limits,
    ) -> Result<Response, FetchError> {
        // A token may have expired since the last request.
        let mut is_second = false;
        loop {
            let mut request = Request::get(PURPOSE, url.as_str())?
                .limits(limits)
                .credential(self.authorization.clone());
            for media_type in accepted {
                request = request.header(ACCEPT, HeaderValue::from_static(media_type));
            }
            let answer = self.door.send(request).await?;
            // Only the registry's own challenge counts, not that of a place it redirects to.
            let is_asked = answer.status() == StatusCode::UNAUTHORIZED
                && toolhold_net::requests::same_origin(answer.url(), &self.base);
            if !is_asked {
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
                self.token(&realm, service.as_deref(), login).await
            }
            None => Err(FetchError::Login {
                registry: self.reference.registry().to_owned(),
                hint: "its kind of login isn't supported; Toolhold supports a user name with a \
                     password, and tokens for these"
                    .to_owned(),
            }),
        }
    }

    /// A token for reading this repository.
    async fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        login: Login,
    ) -> Result<Credential, FetchError> {
        let mut url = Url::parse(realm).map_err(|_| {
            let why = format!("`{}` isn't a URL", crate::manifest::shown(realm));
            self.refused("the token server", why)
        })?;
        let own = self.options.credentials.login(&authority(&url));
        url.query_pairs_mut()
            .extend_pairs(service.map(|service| ("service", service)))
            .append_pair("scope", &format!("repository:{}:pull", self.reference.name()));
        // A login for that host names it.
        let is_named = matches!(own, Login::Basic(_));
        let named: Vec<&Url> =
            [Some(&self.base), is_named.then_some(&url)].into_iter().flatten().collect();
        let is_trusted = may_get_password(&self.base, &url);
        let value = match (&login, own) {
            (Login::Basic(value), _) if is_trusted => Some(value.clone()),
            (_, Login::Basic(value)) => Some(value),
            _ => None,
        };
        let has_password = value.is_some();
        let credential = value.map(|value| Credential::new(&url, value));
        let request = Request::chosen_by_server(PURPOSE, Method::GET, url.as_str(), &named)?
            .credential(credential)
            .limits(self.options.small(MAX_TOKEN_ANSWER));
        let answer = self.door.send(request).await?;
        if answer.status() != StatusCode::OK {
            if matches!(login, Login::Basic(_)) && !has_password {
                return Err(FetchError::Login {
                    registry: self.reference.registry().to_owned(),
                    hint: format!(
                        "its tokens come from another host, {host}, which doesn't get the \
                         password. If you trust {host}, write an entry for it below `auths` in \
                         {file}",
                        host = authority(&url),
                        file = self.options.credentials.place()
                    ),
                });
            }
            return match answer.status() {
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    Err(self.login_error(Some(login)))
                }
                _ => Err(unexpected(&answer, "a token")),
            };
        }
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

    /// Why a login is needed. `login`: the known login. `None`: the registry refused the known one.
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
                 permission to read {}",
                self.reference.name()
            ),
        };
        FetchError::Login { registry: registry.to_owned(), hint }
    }

    fn url(&self, below: &str) -> Result<Url, FetchError> {
        let url = self.base.join(&format!("/v2/{}/{below}", self.reference.name()));
        url.map_err(|error| toolhold_net::requests::OutboundError::Url(error.to_string()).into())
    }

    fn refused(&self, what: &str, why: impl ToString) -> FetchError {
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

/// Host and port of a URL, without the usual port.
fn authority(url: &Url) -> String {
    let origin = toolhold_net::requests::origin(url);
    origin.split_once("://").map_or_else(String::new, |(_, authority)| authority.to_owned())
}

/// The URL of the next page, from a header like `</v2/a/tags/list?last=x>; rel="next"`.
fn next_page(header: &HeaderValue) -> Option<String> {
    let header = header.to_str().ok()?;
    let (url, rest) = header.trim().strip_prefix('<')?.split_once('>')?;
    rest.replace(' ', "").contains("rel=\"next\"").then(|| url.to_owned())
}
