//! Keeps and searches vectors in Qdrant, the database that `[index]` may name.

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
use toolhold_core::{BoxFuture, VectorDatabase, VectorPoint, VectorSet, door};
use toolhold_net::requests::{Credential, Limits, OutboundClient, OutboundError, Request};
use toolhold_net::{SecretSource, read};

use crate::choice::rest::{Rest, RestError};

/// The header for the key, unless the configuration names another header.
const KEY: &str = "api-key";

/// Digits of a hash of the secret of an index.
const DIGITS: usize = 16;

/// Returns the vector database that `[index]` names, if any. The key of the database is read at the
/// first request. The request records name `front_end`.
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
    Some(Arc::new(Qdrant {
        door: door(config, folders, front_end),
        url: index.qdrant.url.trim_end_matches('/').to_owned(),
        collection: index.qdrant.collection.clone(),
        secret: configured_secret(config, folders, directory),
        key: Arc::default(),
        rest: Rest::default(),
    }))
}

/// Returns the source of the key, if the configuration has one.
fn configured_secret(config: &Config, folders: &Folders, directory: &Path) -> Option<Secret> {
    let (name, secret) = config.values.index.qdrant.secrets.first_key_value()?;
    let table = format!("index.qdrant.secrets.{}", dotted_name(name));
    let source = config.source_of(&table, secret, folders, directory);
    let (header, prefix) = match secret.header {
        Some(_) => secret.placement(),
        None => (KEY.to_owned(), String::new()),
    };
    Some(Secret { name: name.clone(), source, header, prefix })
}

/// A Qdrant server.
#[derive(Debug)]
struct Qdrant {
    door: OutboundClient,
    /// The URL without a `/` at its end.
    url: String,
    /// The prefix of the database's collection names.
    collection: String,
    secret: Option<Secret>,
    /// The header with the key, once the key is read. An [`Arc`], because reading continues if the
    /// first request ends earlier.
    key: Arc<OnceCell<Option<(HeaderName, HeaderValue)>>>,
    rest: Rest,
}

/// The source of the key.
#[derive(Clone, Debug)]
struct Secret {
    name: String,
    source: SecretSource,
    header: String,
    prefix: String,
}

impl Secret {
    /// Returns the header with the key. Blocks, because a program may have to print the key.
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

/// A failure to keep or search vectors in Qdrant.
#[derive(Debug, thiserror::Error)]
enum QdrantError {
    #[error("secret `{secret}`: {error}")]
    Secret { secret: String, error: SecretError },
    /// Reading the secret panicked.
    #[error(transparent)]
    Task(#[from] JoinError),
    #[error(transparent)]
    Rest(#[from] RestError),
    #[error(transparent)]
    Request(#[from] OutboundError),
    // The text of the answer is left out, because a model would read it and it may contain
    // anything.
    #[error("it answered with status {0}")]
    Status(u16),
    #[error("it answered with status {0}; its key is that of [index.qdrant.secrets]")]
    Key(u16),
    #[error("it has no collection `{0}`")]
    NoCollection(String),
    #[error(
        "its collection `{collection}` isn't for vectors of {numbers} numbers by cosine; remove it, or write another `collection` in [index.qdrant]"
    )]
    Collection { collection: String, numbers: usize },
    #[error("its answer isn't one of Qdrant")]
    Answer(#[from] serde_json::Error),
}

/// The reason why a secret can't be the key.
#[derive(Debug, thiserror::Error)]
enum SecretError {
    #[error(transparent)]
    Unread(#[from] toolhold_net::SecretError),
    #[error(transparent)]
    Header(#[from] InvalidHeaderName),
    // The source doesn't show the key, and says nothing that helps.
    #[error("it isn't valid in a header")]
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
    /// The settings of the collection's vectors. A collection with named vectors isn't Toolhold's.
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
    /// A number, or a text with a UUID.
    id: Value,
}

impl Qdrant {
    /// Sends a request about the collection of a set. Returns the body of the answer, or `None` if
    /// the collection is missing.
    async fn ask(
        &self,
        method: Method,
        set: &VectorSet,
        path: &str,
        body: Option<Value>,
    ) -> Result<Option<Vec<u8>>, QdrantError> {
        let url = format!("{}/collections/{}{path}", self.url, self.name_of(set));
        let request = Request::new("qdrant", method, &url)?;
        let key = self.key().await?;
        let credential = key.map(|(name, value)| Credential::in_header(request.url(), name, value));
        let mut request = request.stay().credential(credential).limits(Limits::default());
        if let Some(body) = body {
            request = request
                .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
                .body(body.to_string());
        }

        self.rest.check()?;
        let attempt = self.rest.begin();
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

    /// Returns the status and the body of the answer. The body of an error isn't read.
    async fn send(&self, request: Request) -> Result<(StatusCode, Vec<u8>), OutboundError> {
        let answer = self.door.send(request).await?;
        let status = answer.status();
        if !status.is_success() {
            return Ok((status, Vec::new()));
        }
        let bytes = answer.bytes(&|_, _| ()).await?;
        Ok((status, bytes))
    }

    /// Sends a request about the collection of a set. The collection must exist.
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

    async fn key(&self) -> Result<Option<(HeaderName, HeaderValue)>, QdrantError> {
        let Some(secret) = self.secret.clone() else { return Ok(None) };
        let key = Arc::clone(&self.key);
        // If the request ends first, reading continues and the key is stored.
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

    /// Creates the collection of a set if it doesn't exist.
    async fn ensure(&self, set: &VectorSet) -> Result<(), QdrantError> {
        if let Some(description) = self.ask(Method::GET, set, "", None).await? {
            return self.check(set, &description);
        }
        let body = json!({ "vectors": { "size": set.numbers, "distance": "Cosine" } });
        self.ask_existing(Method::PUT, set, "", body).await?;
        for field in ["index", "group"] {
            let body = json!({ "field_name": field, "field_schema": "keyword" });
            self.ask_existing(Method::PUT, set, "/index?wait=true", body).await?;
        }
        Ok(())
    }

    /// Checks that a collection can store the vectors of a set. `description`: the database's
    /// description of the collection.
    fn check(&self, set: &VectorSet, description: &[u8]) -> Result<(), QdrantError> {
        let vectors = parse::<Collection>(description)?.config.params.vectors;
        let has_size = vectors["size"].as_u64() == u64::try_from(set.numbers).ok();
        let is_cosine = vectors["distance"].as_str() == Some("Cosine");
        if has_size && is_cosine {
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

    fn count<'a>(&'a self, set: &'a VectorSet) -> BoxFuture<'a, Result<u64, String>> {
        with_text_errors(async move {
            self.ensure(set).await?;
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

    fn put<'a>(
        &'a self,
        set: &'a VectorSet,
        points: Vec<VectorPoint>,
    ) -> BoxFuture<'a, Result<(), String>> {
        with_text_errors(async move {
            let points = points.iter().map(|point| {
                let payload = json!({ "index": index(set), "group": group(set) });
                json!({ "id": point_id(set, point.id), "vector": point.vector, "payload": payload })
            });
            let body = json!({ "points": points.collect::<Vec<Value>>() });
            self.ask_existing(Method::PUT, set, "/points?wait=true", body).await.map(drop)
        })
    }

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
            let near = parse::<Nearest>(&answer)?.points.into_iter();
            Ok(near.filter_map(|near| id_of_point(set, near.id.as_str()?)).take(limit).collect())
        })
    }
}

/// Runs a task of [`VectorDatabase`], and turns its errors into strings.
fn with_text_errors<'a, T>(
    task: impl Future<Output = Result<T, QdrantError>> + Send + 'a,
) -> BoxFuture<'a, Result<T, String>> {
    Box::pin(async move { task.await.map_err(|error| error.to_string()) })
}

fn parse<'a, T: Deserialize<'a>>(answer: &'a [u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice::<Answer<T>>(answer).map(|answer| answer.result)
}

/// Returns the filter for the points of a set.
fn filter(set: &VectorSet) -> Value {
    json!({ "must": [has("index", index(set)), has("group", group(set))] })
}

/// Returns the condition that the payload of a point has a value.
fn has(key: &str, value: String) -> Value {
    json!({ "key": key, "match": { "value": value } })
}

/// Returns the hash that all points of an index have, and no other points.
fn index(set: &VectorSet) -> String {
    digits(&[&set.secret, "index"])
}

fn group(set: &VectorSet) -> String {
    digits(&[&set.secret, "group", &set.group])
}

/// Makes the UUID of a point from the index and the document, without hyphens.
fn point_id(set: &VectorSet, id: i64) -> String {
    format!("{}{id:016x}", index(set))
}

/// Returns the document of a point, or `None` if the point isn't of this index.
fn id_of_point(set: &VectorSet, id: &str) -> Option<i64> {
    let simple = id.replace('-', "").to_ascii_lowercase();
    let number = simple.strip_prefix(&index(set))?;
    if number.len() != DIGITS || !number.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let id = u64::from_str_radix(number, 16).ok()?;
    Some(id.cast_signed())
}

/// Returns a short hash of some texts.
fn digits(texts: &[&str]) -> String {
    let digest = Sha256::digest(texts.join("\n"));
    digest[..DIGITS / 2].iter().map(|byte| format!("{byte:02x}")).collect()
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
