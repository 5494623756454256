//! Stores and searches vectors in Qdrant.

use std::path::Path;
use std::sync::Arc;

use http::header::{CONTENT_TYPE, InvalidHeaderName, InvalidHeaderValue};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;
use tokio::task::JoinError;
use toolhold_core::config::{Config, Folders, VectorBackend, dotted_name};
use toolhold_core::{BoxFuture, VectorDatabase, VectorPoint, VectorSet, outbound_client};
use toolhold_net::requests::{Credential, Limits, OutboundClient, OutboundError, Request};
use toolhold_net::{SecretSource, read};

use crate::choice::pause::{PauseError, ServerPause};

/// The header of the key, unless the configuration names a header.
const KEY_HEADER: &str = "api-key";

const ID_DIGITS: usize = 16;

/// Returns the configured vector database. The first request reads the key. `front_end` is recorded
/// with each request.
pub(super) fn vector_database(
    config: &Config,
    folders: &Folders,
    directory: &Path,
    front_end: &str,
) -> Option<Arc<dyn VectorDatabase>> {
    let index = &config.values.index;
    if index.vector_backend != VectorBackend::Qdrant {
        return None;
    }
    let outbound_client = outbound_client(config, folders, front_end);
    Some(Arc::new(Qdrant {
        client: outbound_client,
        url: index.qdrant.url.trim_end_matches('/').to_owned(),
        collection: index.qdrant.collection.clone(),
        secret: configured_secret(config, folders, directory),
        key: Arc::default(),
        pause: ServerPause::default(),
    }))
}

/// Returns the secret of `[index.qdrant.secrets]`, if there is one.
fn configured_secret(config: &Config, folders: &Folders, directory: &Path) -> Option<Secret> {
    let (name, secret) = config.values.index.qdrant.secrets.first_key_value()?;
    let table = format!("index.qdrant.secrets.{}", dotted_name(name));
    let source = config.source_of(&table, secret, folders, directory);
    let (header, prefix) = match secret.header {
        Some(_) => secret.placement(),
        // The default is Qdrant's own header.
        None => (KEY_HEADER.to_owned(), String::new()),
    };
    Some(Secret { name: name.clone(), source, header, prefix })
}

#[derive(Debug)]
struct Qdrant {
    client: OutboundClient,
    url: String,
    collection: String,
    secret: Option<Secret>,
    /// The header with the key. Reading the key goes on in the background if the first request ends
    /// early.
    key: Arc<OnceCell<Option<(HeaderName, HeaderValue)>>>,
    pause: ServerPause,
}

#[derive(Clone, Debug)]
struct Secret {
    name: String,
    source: SecretSource,
    header: String,
    prefix: String,
}

impl Secret {
    /// Returns the header with the key. Blocks, because a program may run to print the key.
    fn header(&self) -> Result<(HeaderName, HeaderValue), QdrantError> {
        self.read_header().map_err(|error| QdrantError::Secret { secret: self.name.clone(), error })
    }

    fn read_header(&self) -> Result<(HeaderName, HeaderValue), SecretError> {
        let key = read(&self.source)?;
        let name = HeaderName::try_from(&self.header)?;
        let value = HeaderValue::try_from(format!("{}{}", self.prefix, key.expose()))?;
        Ok((name, value))
    }
}

#[derive(Debug, thiserror::Error)]
enum QdrantError {
    #[error("secret `{secret}`: {error}")]
    Secret { secret: String, error: SecretError },
    #[error(transparent)]
    Task(#[from] JoinError),
    #[error(transparent)]
    Paused(#[from] PauseError),
    #[error(transparent)]
    Request(#[from] OutboundError),
    // The answer's text is left out, because a model reads errors, and the text may contain prompt
    // injection.
    #[error("the server answered with status {0}")]
    Status(u16),
    #[error("the server answered with status {0}; check the key in [index.qdrant.secrets]")]
    Key(u16),
    #[error("the server has no collection `{0}`")]
    NoCollection(String),
    #[error(
        "the collection `{collection}` isn't for vectors of {numbers} numbers with cosine \
         distance; remove the collection, or set another `collection` in [index.qdrant]"
    )]
    Collection { collection: String, numbers: usize },
    #[error("the answer isn't an answer of Qdrant")]
    Answer(#[from] serde_json::Error),
}

/// The error of a secret that can't be the key.
#[derive(Debug, thiserror::Error)]
enum SecretError {
    #[error(transparent)]
    Unread(#[from] toolhold_net::SecretError),
    #[error(transparent)]
    Header(#[from] InvalidHeaderName),
    // The source contains no part of the value.
    #[error("the secret has a character that headers don't allow")]
    Value(#[from] InvalidHeaderValue),
}

#[derive(Deserialize)]
struct Answer<T> {
    result: T,
}

#[derive(Deserialize)]
struct Collection {
    config: CollectionConfig,
}

#[derive(Deserialize)]
struct CollectionConfig {
    params: CollectionParameters,
}

#[derive(Deserialize)]
struct CollectionParameters {
    /// An object with the size and the distance, except in collections with named vectors.
    vectors: Value,
}

#[derive(Deserialize)]
struct Count {
    count: u64,
}

#[derive(Deserialize)]
struct Nearest {
    points: Vec<Near>,
}

#[derive(Deserialize)]
struct Near {
    /// A number or a UUID.
    id: Value,
}

impl Qdrant {
    /// Sends a request about the collection of a set, and returns the body of the answer, or `None`
    /// if the collection is missing. `path` is the part of the URL after the collection.
    async fn ask(
        &self,
        method: Method,
        set: &VectorSet,
        path: &str,
        body: Option<Value>,
    ) -> Result<Option<Vec<u8>>, QdrantError> {
        let url = format!("{}/collections/{}{path}", self.url, self.name_of(set));
        let request = self.request(method, &url, body).await?;
        // A circuit breaker: after a slow failure, requests fail at once for a while.
        self.pause.check()?;
        let attempt = self.pause.begin();
        let result = self.send(request).await;
        attempt.end(result.as_ref().err().map(ToString::to_string));
        let (status, bytes) = result?;
        match status {
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(QdrantError::Key(status.as_u16()))
            }
            _ if status.is_success() => Ok(Some(bytes)),
            _ => Err(QdrantError::Status(status.as_u16())),
        }
    }

    async fn request(
        &self,
        method: Method,
        url: &str,
        body: Option<Value>,
    ) -> Result<Request, QdrantError> {
        let request = Request::new("qdrant", method, url)?;
        let key = self.key().await?;
        let credential = key.map(|(name, value)| Credential::in_header(request.url(), name, value));
        // `stay` refuses redirects, so that no other server gets the key.
        let request = request.stay().credential(credential).limits(Limits::default());
        let Some(body) = body else { return Ok(request) };
        let content_type = HeaderValue::from_static("application/json");
        Ok(request.header(CONTENT_TYPE, content_type).body(body.to_string()))
    }

    /// Sends a request, and returns the status and the body. The body of an error isn't read.
    async fn send(&self, request: Request) -> Result<(StatusCode, Vec<u8>), OutboundError> {
        let answer = self.client.send(request).await?;
        let status = answer.status();
        if !status.is_success() {
            return Ok((status, Vec::new()));
        }
        let bytes = answer.bytes(&ignore_progress).await?;
        Ok((status, bytes))
    }

    /// Sends a request about the collection of a set, which must exist.
    async fn ask_existing(
        &self,
        method: Method,
        set: &VectorSet,
        path: &str,
        body: Value,
    ) -> Result<Vec<u8>, QdrantError> {
        let answer = self.ask(method, set, path, Some(body)).await?;
        answer.ok_or_else(|| QdrantError::NoCollection(self.name_of(set)))
    }

    /// Returns the header with the key, or `None` if no key is configured. Only the first call
    /// reads the key.
    async fn key(&self) -> Result<Option<(HeaderName, HeaderValue)>, QdrantError> {
        let Some(secret) = self.secret.clone() else { return Ok(None) };
        let key = Arc::clone(&self.key);
        // The program that prints the key may run longer than this request. Reading has a task of
        // its own, so that a later request finds the key.
        let reading = tokio::spawn(async move {
            let header = key.get_or_try_init(|| async {
                let header = tokio::task::spawn_blocking(move || secret.header()).await?;
                header.map(Some)
            });
            header.await.cloned()
        });
        reading.await?
    }

    fn name_of(&self, set: &VectorSet) -> String {
        format!("{}-{}", self.collection, set.numbers)
    }

    /// Creates the collection of a set, or checks that an existing collection fits.
    async fn ensure_collection(&self, set: &VectorSet) -> Result<(), QdrantError> {
        let path = "";
        let no_body = None;
        if let Some(description) = self.ask(Method::GET, set, path, no_body).await? {
            return self.check_collection(set, &description);
        }
        let body = json!({ "vectors": { "size": set.numbers, "distance": "Cosine" } });
        self.ask_existing(Method::PUT, set, path, body).await?;
        // Create indexes of these fields, because the filter of each request uses them.
        for field in ["index", "group"] {
            let body = json!({ "field_name": field, "field_schema": "keyword" });
            self.ask_existing(Method::PUT, set, "/index?wait=true", body).await?;
        }
        Ok(())
    }

    /// Checks that a collection can store the vectors of a set. `description` is Qdrant's JSON
    /// about the collection.
    fn check_collection(&self, set: &VectorSet, description: &[u8]) -> Result<(), QdrantError> {
        let vectors = parse::<Collection>(description)?.config.params.vectors;
        let is_same_length = vectors["size"].as_u64() == u64::try_from(set.numbers).ok();
        let is_cosine = vectors["distance"].as_str() == Some("Cosine");
        if is_same_length && is_cosine {
            return Ok(());
        }
        Err(QdrantError::Collection { collection: self.name_of(set), numbers: set.numbers })
    }
}

impl VectorDatabase for Qdrant {
    fn name(&self) -> String {
        "Qdrant".to_owned()
    }

    fn place(&self) -> String {
        digits(&[&self.url, &self.collection])
    }

    /// Counts the points of a set, after creating a missing collection.
    fn count<'a>(&'a self, set: &'a VectorSet) -> BoxFuture<'a, Result<u64, String>> {
        with_text_errors(async move {
            self.ensure_collection(set).await?;
            let body = json!({ "filter": filter(set), "exact": true });
            let answer = self.ask_existing(Method::POST, set, "/points/count", body).await?;
            Ok(parse::<Count>(&answer)?.count)
        })
    }

    fn clear<'a>(&'a self, set: &'a VectorSet) -> BoxFuture<'a, Result<(), String>> {
        with_text_errors(async move {
            let body = json!({ "filter": filter(set) });
            self.ask_existing(Method::POST, set, "/points/delete?wait=true", body).await.map(drop)
        })
    }

    /// Stores points, and replaces points with the same IDs.
    fn put<'a>(
        &'a self,
        set: &'a VectorSet,
        points: Vec<VectorPoint>,
    ) -> BoxFuture<'a, Result<(), String>> {
        with_text_errors(async move {
            let mut items: Vec<Value> = Vec::new();
            for point in &points {
                let payload = json!({ "index": index(set), "group": group(set) });
                let id = point_id(set, point.id);
                items.push(json!({ "id": id, "vector": point.vector, "payload": payload }));
            }
            let body = json!({ "points": items });
            self.ask_existing(Method::PUT, set, "/points?wait=true", body).await.map(drop)
        })
    }

    /// Removes the points with these IDs.
    fn remove<'a>(
        &'a self,
        set: &'a VectorSet,
        ids: Vec<i64>,
    ) -> BoxFuture<'a, Result<(), String>> {
        with_text_errors(async move {
            let ids: Vec<String> = ids.into_iter().map(|id| point_id(set, id)).collect();
            let body = json!({ "points": ids });
            self.ask_existing(Method::POST, set, "/points/delete?wait=true", body).await.map(drop)
        })
    }

    /// Returns the IDs of the `limit` nearest points, the nearest point first.
    fn nearest<'a>(
        &'a self,
        set: &'a VectorSet,
        vector: &'a [i8],
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<i64>, String>> {
        with_text_errors(async move {
            let body = json!({
                "query": vector, "filter": filter(set), "limit": limit,
                "with_payload": false,
            });
            let answer = self.ask_existing(Method::POST, set, "/points/query", body).await?;
            let mut ids = Vec::new();
            for point in parse::<Nearest>(&answer)?.points {
                // Points with a number as the ID aren't Toolhold's.
                let Some(uuid) = point.id.as_str() else { continue };
                ids.extend(id_of_point(set, uuid));
            }
            ids.truncate(limit);
            Ok(ids)
        })
    }
}

fn ignore_progress(_bytes: u64, _length: Option<u64>) {}

fn with_text_errors<'a, T>(
    task: impl Future<Output = Result<T, QdrantError>> + Send + 'a,
) -> BoxFuture<'a, Result<T, String>> {
    Box::pin(async move { task.await.map_err(|error| error.to_string()) })
}

fn parse<'a, T: Deserialize<'a>>(answer: &'a [u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice::<Answer<T>>(answer).map(|answer| answer.result)
}

fn filter(set: &VectorSet) -> Value {
    json!({ "must": [has("index", index(set)), has("group", group(set))] })
}

fn has(key: &str, value: String) -> Value {
    json!({ "key": key, "match": { "value": value } })
}

/// Returns a hash that marks the points of an index.
fn index(set: &VectorSet) -> String {
    digits(&[&set.secret, "index"])
}

fn group(set: &VectorSet) -> String {
    digits(&[&set.secret, "group", &set.group])
}

/// Returns the UUID of a point, without hyphens: the hash of the index, then the document's ID.
fn point_id(set: &VectorSet, id: i64) -> String {
    format!("{}{id:016x}", index(set))
}

/// Returns the document's ID in a UUID of [`point_id`], or `None` for a point of another index.
fn id_of_point(set: &VectorSet, uuid: &str) -> Option<i64> {
    let digits = uuid.replace('-', "").to_ascii_lowercase();
    let document = digits.strip_prefix(&index(set))?;
    if document.len() != ID_DIGITS || !document.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let id = u64::from_str_radix(document, 16).ok()?;
    Some(id.cast_signed())
}

fn digits(texts: &[&str]) -> String {
    let digest = Sha256::digest(texts.join("\n"));
    digest[..ID_DIGITS / 2].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(secret: &str) -> VectorSet {
        VectorSet { secret: secret.to_owned(), group: "c/project/".to_owned(), numbers: 3 }
    }

    #[test]
    fn point_leads_back_to_its_document_and_to_no_other_index() {
        let set = set("a");
        for id in [0, 1, -1, i64::MIN, i64::MAX] {
            let written = point_id(&set, id);
            assert_eq!((written.len(), id_of_point(&set, &written)), (32, Some(id)));
            // As Qdrant writes it.
            let (one, rest) = written.split_at(8);
            let (two, rest) = rest.split_at(4);
            let (three, rest) = rest.split_at(4);
            let (four, five) = rest.split_at(4);
            let answered = format!("{one}-{two}-{three}-{four}-{five}").to_uppercase();
            assert_eq!(id_of_point(&set, &answered), Some(id));
            assert_eq!(id_of_point(&super::tests::set("b"), &written), None);
        }
        let begin = index(&set);
        for wrong in ["", "7", &begin, &format!("{begin}+000000000000001"), &format!("{begin}1")] {
            assert_eq!(id_of_point(&set, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn nothing_that_is_sent_names_the_secret_or_the_group() {
        let set = set("0123456789abcdef");
        let sent = filter(&set).to_string() + &point_id(&set, 1);
        assert!(!sent.contains("project") && !sent.contains(&set.secret), "{sent}");
        assert_ne!(group(&set), group(&super::tests::set("b")));
    }
}
