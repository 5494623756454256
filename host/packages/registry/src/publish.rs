//! Publishes a component with its signatures in an OCI registry, as [`fetch`] expects them.
//!
//! [`fetch`]: crate::fetch()

use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Method, StatusCode};
use serde_json::{Value, json};
use toolhold_net::requests::{Limits, OutboundClient, Request, Response};
use url::Url;

use crate::error::FetchError;
use crate::fetched::{FetchOptions, MAX_SIGNATURES, PURPOSE, unexpected};
use crate::manifest::{digest_of, media_types};
use crate::oci::{MAX_MANIFEST, Purpose, Session};
use crate::reference::Reference;
use crate::source::Source;

/// Most bytes of an answer to an upload. Registries explain an error there.
const MAX_ANSWER: u64 = 64 << 10;

/// The empty configuration of the OCI specification.
const EMPTY: &[u8] = b"{}";

/// The media type of an uploaded blob.
const BYTES: &str = "application/octet-stream";

/// A component to publish.
#[derive(Clone, Copy, Debug)]
pub struct Publication<'p> {
    /// The component.
    pub wasm: &'p [u8],
    /// The plugin's name, from its manifest.
    pub name: &'p str,
    /// The plugin's version, from its manifest.
    pub version: &'p str,
    /// The contents of the component's signature files.
    pub signatures: &'p [Vec<u8>],
    /// Whether an existing tag of another component is moved to this component.
    pub replaces: bool,
}

/// A component that was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The exact source, with the digest of the manifest.
    pub source: Source,
    /// Whether the tag already belonged to the same component.
    pub is_same: bool,
    /// Whether the tag belonged to another component.
    pub is_replaced: bool,
}

/// Publishes a component. The tag is written last, so nobody can fetch an incomplete component. If
/// the tag already has this component, only missing signatures are added.
///
/// # Errors
///
/// Returns an error if the reference has a digest, if the tag has another component, or if the
/// registry refuses the login or an upload.
pub async fn publish(
    reference: &Reference,
    publication: Publication<'_>,
    client: &OutboundClient,
    options: &FetchOptions,
) -> Result<Published, FetchError> {
    let mut session = Session::new(reference, client, options, Purpose::Publish)?;
    let tag = match (reference.tag(), reference.digest()) {
        (Some(tag), None) => tag,
        _ => {
            return Err(session.refused(
                "the destination",
                "the destination names a digest; publish under a tag: oci://REGISTRY/NAME:TAG",
            ));
        }
    };
    if publication.signatures.len() > MAX_SIGNATURES {
        let count = publication.signatures.len();
        let why = format!("the component has {count} signatures; the limit is {MAX_SIGNATURES}");
        return Err(session.refused("the component", why));
    }
    let config = config_of(publication.wasm);
    let manifest = manifest_of(publication, &config);
    let digest = digest_of(&manifest);
    let tag_digest = session.digest_of_tag(tag).await?;
    let is_same = tag_digest.as_ref() == Some(&digest);
    let names_other = tag_digest.is_some() && !is_same;
    if names_other && !publication.replaces {
        return Err(session.refused(
            "the destination",
            format!(
                "the tag `{tag}` already names another component; publish under another tag, or \
                 add `--replace`"
            ),
        ));
    }

    if !is_same {
        session.put_blob(publication.wasm).await?;
        session.put_blob(&config).await?;
        session.put_manifest(&digest, media_types::MANIFEST, &manifest).await?;
    }
    for signature in publication.signatures {
        session.attach(signature, &digest, manifest.len()).await?;
    }
    if !is_same {
        session.put_manifest(tag, media_types::MANIFEST, &manifest).await?;
    }
    let source = Source::Oci(reference.with_digest(&digest));
    Ok(Published { source, is_same, is_replaced: names_other })
}

impl Session<'_> {
    /// Returns the digest of a tag's manifest. Returns `None` if the registry doesn't have the tag.
    async fn digest_of_tag(&mut self, tag: &str) -> Result<Option<String>, FetchError> {
        let url = self.url(&format!("manifests/{tag}"))?;
        let limits = self.options.small_limits(MAX_MANIFEST);
        let accepted = [media_types::MANIFEST, media_types::INDEX];
        let answer = self.get(&url, &accepted, limits).await?;
        match answer.status() {
            StatusCode::OK => Ok(Some(self.receive_manifest(answer, tag).await?.digest)),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(unexpected(&answer, &format!("the manifest of {}", self.reference))),
        }
    }

    /// Uploads a blob. The first request asks the registry for the URL of the upload.
    async fn put_blob(&mut self, bytes: &[u8]) -> Result<(), FetchError> {
        let url = self.url("blobs/uploads/")?;
        let first_request = Request::new(PURPOSE, Method::POST, url.as_str())?
            .limits(self.options.small_limits(MAX_ANSWER));
        let first_answer = self.send(first_request).await?;
        if first_answer.status() != StatusCode::ACCEPTED {
            return Err(unexpected(&first_answer, "an upload"));
        }
        let mut upload_url = self.upload_url_from(&first_answer)?;
        upload_url.query_pairs_mut().append_pair("digest", &digest_of(bytes));

        // The registry sends no data during the upload, so the idle limit is as long as the time
        // limit.
        let time = self.options.component_limits().time;
        let limits = Limits { time, idle: time, bytes: MAX_ANSWER };
        let request =
            Request::chosen_by_server(PURPOSE, Method::PUT, upload_url.as_str(), &[&self.base])?
                .header(CONTENT_TYPE, HeaderValue::from_static(BYTES))
                .limits(limits)
                .body(bytes.to_vec());
        let answer = self.send(request).await?;
        if answer.status() != StatusCode::CREATED {
            return Err(unexpected(&answer, "an upload"));
        }
        Ok(())
    }

    fn upload_url_from(&self, answer: &Response) -> Result<Url, FetchError> {
        let location = answer.headers().get(LOCATION).and_then(|place| place.to_str().ok());
        match location.map(|location| answer.url().join(location)) {
            Some(Ok(place)) => Ok(place),
            _ => Err(self.refused("the upload", "the registry returned no URL for the upload")),
        }
    }

    /// Uploads a manifest or an index. `version` is a tag or the digest.
    async fn put_manifest(
        &mut self,
        version: &str,
        media_type: &'static str,
        bytes: &[u8],
    ) -> Result<Response, FetchError> {
        let url = self.url(&format!("manifests/{version}"))?;
        let request = Request::new(PURPOSE, Method::PUT, url.as_str())?
            .header(CONTENT_TYPE, HeaderValue::from_static(media_type))
            .limits(self.options.small_limits(MAX_ANSWER))
            .body(bytes.to_vec());
        let answer = self.send(request).await?;
        if answer.status() != StatusCode::CREATED {
            return Err(unexpected(&answer, "an upload"));
        }
        Ok(answer)
    }

    /// Uploads a signature as an artifact that refers to the manifest `subject`.
    async fn attach(
        &mut self,
        signature: &[u8],
        subject: &str,
        subject_size: usize,
    ) -> Result<(), FetchError> {
        self.put_blob(EMPTY).await?;
        self.put_blob(signature).await?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": media_types::MANIFEST,
            "artifactType": media_types::SIGNATURE,
            "config": descriptor(media_types::EMPTY, EMPTY),
            "layers": [descriptor(media_types::SIGNATURE, signature)],
            "subject": {
                "mediaType": media_types::MANIFEST, "digest": subject, "size": subject_size,
            },
        });
        let bytes = manifest.to_string().into_bytes();
        let answer = self.put_manifest(&digest_of(&bytes), media_types::MANIFEST, &bytes).await?;
        // This header says that the registry adds the artifact to the list of referrers.
        if answer.headers().contains_key("oci-subject") {
            return Ok(());
        }
        let mut entry = descriptor(media_types::MANIFEST, &bytes);
        entry["artifactType"] = json!(media_types::SIGNATURE);
        self.list_referrer(entry, subject).await
    }

    /// Adds `entry` to the list of the artifacts that refer to the manifest `subject`. Older
    /// registries don't keep this list, so clients store it under a tag.
    async fn list_referrer(&mut self, entry: Value, subject: &str) -> Result<(), FetchError> {
        let tag = subject.replace(':', "-");
        let url = self.url(&format!("manifests/{tag}"))?;
        let limits = self.options.small_limits(MAX_MANIFEST);
        let answer = self.get(&url, &[media_types::INDEX], limits).await?;
        let mut index: Value = match answer.status() {
            StatusCode::OK => {
                let bytes = answer.bytes(&|_, _| {}).await?;
                serde_json::from_slice(&bytes).map_err(|_| {
                    self.refused("the list of signatures", "the list isn't an OCI index")
                })?
            }
            StatusCode::NOT_FOUND => json!({
                "schemaVersion": 2, "mediaType": media_types::INDEX, "manifests": [],
            }),
            _ => return Err(unexpected(&answer, "the signatures")),
        };
        let Some(entries) = index.get_mut("manifests").and_then(Value::as_array_mut) else {
            return Err(self.refused("the list of signatures", "the list isn't an OCI index"));
        };
        if entries.iter().any(|known| known["digest"] == entry["digest"]) {
            return Ok(());
        }
        entries.push(entry);
        let bytes = index.to_string().into_bytes();
        self.put_manifest(&tag, media_types::INDEX, &bytes).await?;
        Ok(())
    }
}

/// Returns the configuration of a component. It has a time, because other registry clients require
/// one. The time is always the same, because equal components must have equal digests.
fn config_of(wasm: &[u8]) -> Vec<u8> {
    let config = json!({
        "created": "1970-01-01T00:00:00Z",
        "architecture": "wasm",
        "os": "wasip2",
        "layerDigests": [digest_of(wasm)],
    });
    config.to_string().into_bytes()
}

/// Returns the manifest of a component. `config` is its configuration.
fn manifest_of(publication: Publication<'_>, config: &[u8]) -> Vec<u8> {
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": media_types::MANIFEST,
        "config": descriptor(media_types::WASM_CONFIG, config),
        "layers": [descriptor(media_types::WASM, publication.wasm)],
        "annotations": {
            "org.opencontainers.image.title": publication.name,
            "org.opencontainers.image.version": publication.version,
        },
    });
    manifest.to_string().into_bytes()
}

fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": digest_of(bytes), "size": bytes.len() })
}
