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

/// Fetches a plugin. `progress` is called with the number of received bytes of the component, and
/// with its length if the length is known.
///
/// # Errors
///
/// Returns an error if the plugin can't be fetched, or if the received bytes differ from the
/// description by the source or the server.
pub async fn fetch(
    source: &Source,
    door: &OutboundClient,
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
        Source::Url(url) => from_url(url, door, options, progress).await,
        Source::Oci(reference) => {
            Session::new(reference, door, options, Purpose::Fetch)?.fetch(progress).await
        }
    }
}

/// Fetches the tags of the repository of a source. Only a source in a registry has tags.
///
/// # Errors
///
/// The tags can't be fetched, or the source isn't in a registry.
pub async fn tags(
    source: &Source,
    door: &OutboundClient,
    options: &FetchOptions,
) -> Result<Tags, FetchError> {
    match source {
        Source::Oci(reference) => {
            Session::new(reference, door, options, Purpose::Fetch)?.tags().await
        }
        other => Err(FetchError::Source {
            text: shown(&other.to_string()),
            why: "only a source in a registry (oci://…) has tags".to_owned(),
        }),
    }
}

/// Fetches the component at a URL and the signature next to the component.
async fn from_url(
    url: &Url,
    door: &OutboundClient,
    options: &FetchOptions,
    progress: &(dyn Fn(u64, Option<u64>) + Send + Sync),
) -> Result<Fetched, FetchError> {
    let request = Request::get(PURPOSE, url.as_str())?
        .header(ACCEPT, HeaderValue::from_static(media_types::WASM))
        .header(ACCEPT, HeaderValue::from_static("*/*"))
        .limits(options.component());
    let answer = door.send(request).await?;
    if answer.status() != StatusCode::OK {
        return Err(unexpected(&answer, "the component"));
    }
    let bytes = answer.bytes(progress).await?;

    let mut signature_url = url.clone();
    signature_url.set_path(&format!("{}.minisig", url.path()));
    let request =
        Request::get(PURPOSE, signature_url.as_str())?.limits(options.small(MAX_SIGNATURE));
    let answer = door.send(request).await?;
    let signature = match answer.status() {
        StatusCode::OK => Some(answer.bytes(&|_, _| {}).await?),
        StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::FORBIDDEN => None,
        _ => return Err(unexpected(&answer, "the signature next to the component")),
    };
    Fetched::new(bytes, Source::Url(url.clone()), signature.into_iter().collect())
}
