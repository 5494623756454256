//! Fetches a plugin from its source: a file, a project, a URL or a registry.

use http::header::ACCEPT;
use http::{HeaderValue, StatusCode};
use toolhold_net::requests::{OutboundClient, Request};
use url::Url;

use crate::error::FetchError;
use crate::fetched::{FetchOptions, Fetched, MAX_SIGNATURE, PURPOSE, Tags, unexpected};
use crate::files;
use crate::manifest::{media_types, shown};
use crate::oci::{Purpose, Session};
use crate::source::Source;

/// Fetches a plugin. `progress` gets the number of received bytes of the component, and the length
/// of the component if the length is known.
///
/// # Errors
///
/// Returns an error if the plugin can't be fetched, or if it differs from the stated digest, length
/// or media type.
pub async fn fetch(
    source: &Source,
    client: &OutboundClient,
    options: &FetchOptions,
    progress: &(dyn Fn(u64, Option<u64>) + Send + Sync),
) -> Result<Fetched, FetchError> {
    match source {
        Source::Path(path) => {
            let path = path.clone();
            let task = tokio::task::spawn_blocking(move || files::read(&path));
            match task.await {
                Ok(result) => result,
                Err(error) => {
                    Err(FetchError::File { path: source.to_string(), why: error.to_string() })
                }
            }
        }
        Source::Url(url) => from_url(url, client, options, progress).await,
        Source::Oci(reference) => {
            Session::new(reference, client, options, Purpose::Fetch)?.fetch(progress).await
        }
    }
}

/// Fetches the tags of the repository of a source in a registry.
///
/// # Errors
///
/// Returns an error if the tags can't be fetched, or if the source isn't in a registry.
pub async fn tags(
    source: &Source,
    client: &OutboundClient,
    options: &FetchOptions,
) -> Result<Tags, FetchError> {
    match source {
        Source::Oci(reference) => {
            Session::new(reference, client, options, Purpose::Fetch)?.tags().await
        }
        other => Err(FetchError::Source {
            text: shown(&other.to_string()),
            why: "only a source in a registry (oci://…) has tags".to_owned(),
        }),
    }
}

/// Fetches a component from a web server, and its signature from the same URL with `.minisig`.
async fn from_url(
    url: &Url,
    client: &OutboundClient,
    options: &FetchOptions,
    progress: &(dyn Fn(u64, Option<u64>) + Send + Sync),
) -> Result<Fetched, FetchError> {
    let request = Request::get(PURPOSE, url.as_str())?
        .header(ACCEPT, HeaderValue::from_static(media_types::WASM))
        .header(ACCEPT, HeaderValue::from_static("*/*"))
        .limits(options.component_limits());
    let answer = client.send(request).await?;
    if answer.status() != StatusCode::OK {
        return Err(unexpected(&answer, "the component"));
    }
    let bytes = answer.bytes(progress).await?;
    let signatures = signatures_next_to(url, client, options).await?;
    Fetched::new(bytes, Source::Url(url.clone()), signatures)
}

/// Fetches the signature from the component's URL with `.minisig`, if there is one.
async fn signatures_next_to(
    url: &Url,
    client: &OutboundClient,
    options: &FetchOptions,
) -> Result<Vec<Vec<u8>>, FetchError> {
    let mut signature_url = url.clone();
    signature_url.set_path(&format!("{}.minisig", url.path()));
    let signature_request =
        Request::get(PURPOSE, signature_url.as_str())?.limits(options.small_limits(MAX_SIGNATURE));
    let signature_answer = client.send(signature_request).await?;
    match signature_answer.status() {
        StatusCode::OK => Ok(vec![signature_answer.bytes(&|_, _| {}).await?]),
        // Some servers answer 403 for a missing file.
        StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::FORBIDDEN => Ok(Vec::new()),
        _ => Err(unexpected(&signature_answer, "the signature next to the component")),
    }
}
