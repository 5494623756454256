//! Requests the vectors of texts.

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use toolhold_contract::CancellationToken;

use crate::body::object;
use crate::driver::{ModelClient, cancelled};
use crate::endpoint::ModelEndpoint;
use crate::failure::{ModelError, ModelErrorKind};
use crate::raw::Fields;
use crate::wire_types::WireFormat;

const MAX_BATCH: usize = 32;

/// The most numbers of a vector. The largest known models make 4,096.
const MAX_NUMBERS: usize = 8192;

impl ModelClient {
    /// Requests the vectors of texts from an `/embeddings` endpoint in the format of `OpenAI`. The
    /// vectors are in the order of the texts and have the same length.
    ///
    /// # Errors
    ///
    /// Returns an error if the provider has no `/embeddings`, or a text has no vector.
    pub async fn embed(
        &self,
        provider: &ModelEndpoint,
        model: &str,
        texts: &[String],
        cancel: &CancellationToken,
    ) -> Result<Vec<Vec<f32>>, ModelError> {
        match cancel.run_until_cancelled(self.embed_all(provider, model, texts)).await {
            Some(result) => result.map_err(|error| provider.hide_keys_in(error)),
            None => Err(cancelled(provider)),
        }
    }

    /// Requests the vectors of texts in batches. Checks that all vectors have the same length.
    async fn embed_all(
        &self,
        provider: &ModelEndpoint,
        model: &str,
        texts: &[String],
    ) -> Result<Vec<Vec<f32>>, ModelError> {
        let mut vectors: Vec<Vec<f32>> = Vec::with_capacity(texts.len());
        for batch in texts.chunks(MAX_BATCH) {
            vectors.extend(self.embed_batch(provider, model, batch).await?);
            if vectors.iter().any(|vector| vector.len() != vectors[0].len()) {
                return Err(vector_error(provider, "the model's vectors have different lengths"));
            }
        }
        Ok(vectors)
    }

    /// Requests the vectors of texts in one request. Checks that the vectors have the configured
    /// length.
    async fn embed_batch(
        &self,
        provider: &ModelEndpoint,
        model: &str,
        texts: &[String],
    ) -> Result<Vec<Vec<f32>>, ModelError> {
        let path = match provider.format() {
            WireFormat::Chat | WireFormat::Responses => "/embeddings",
            WireFormat::Ollama => "/v1/embeddings",
            WireFormat::Messages => {
                return Err(vector_error(
                    provider,
                    "the provider's format doesn't support vectors",
                ));
            }
        };
        let body = object(|body| {
            body.field("model", model);
            body.field("input", texts);
            body.field("encoding_format", "float");
            body.optional_field("dimensions", provider.wanted_dimensions().as_ref());
        });
        let request = provider
            .request(Method::POST, path, Vec::new())?
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(body);
        let answer = self.read(provider, request, model).await?;
        let vectors =
            parse_vectors(&answer, texts.len()).map_err(|why| vector_error(provider, why))?;
        if let Some(expected) = provider.wanted_dimensions()
            && let Some(first) = vectors.first()
            && first.len() as u64 != expected
        {
            let length = first.len();
            let why = format!("each vector has {length} numbers, but `dimensions` is {expected}");
            return Err(vector_error(provider, &why));
        }
        Ok(vectors)
    }
}

/// Parses exactly `count` vectors. An item without an index gets its position as the index.
fn parse_vectors(answer: &str, count: usize) -> Result<Vec<Vec<f32>>, &'static str> {
    let fields = Fields::parse(answer).ok_or("the answer isn't a JSON object")?;
    let mut vectors: Vec<Option<Vec<f32>>> = vec![None; count];
    for (position, item) in fields.items("data").into_iter().enumerate() {
        let item = Fields::parse(item.get()).ok_or("an item of `data` isn't an object")?;
        let sent_index = item.number("index").unwrap_or(position as u64);
        let index = usize::try_from(sent_index).map_err(|_| "`data` has too many items")?;
        let slot = vectors.get_mut(index).ok_or("`data` has too many items")?;
        let embedding = item.raw("embedding").map_or("", |embedding| embedding.get());
        let Ok(vector) = serde_json::from_str::<Vec<f32>>(embedding) else {
            return Err("an `embedding` isn't a list of numbers");
        };
        if vector.is_empty() || vector.len() > MAX_NUMBERS {
            return Err("an `embedding` is empty or too long");
        }
        *slot = Some(vector);
    }
    let all_vectors: Option<Vec<Vec<f32>>> = vectors.into_iter().collect();
    all_vectors.ok_or("`data` has too few items")
}

fn vector_error(provider: &ModelEndpoint, why: &str) -> ModelError {
    let message = format!("the model's vectors can't be used: {why}");
    ModelError::new(ModelErrorKind::Malformed, provider.name(), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_gets_its_vector() {
        let answer = r#"{"data":[{"index":1,"embedding":[0.5,1]},{"index":0,"embedding":[2,3]}]}"#;
        assert_eq!(parse_vectors(answer, 2), Ok(vec![vec![2.0, 3.0], vec![0.5, 1.0]]));
        // Without numbers, the order of the texts counts.
        assert_eq!(parse_vectors(r#"{"data":[{"embedding":[1]}]}"#, 1), Ok(vec![vec![1.0]]));
    }

    #[test]
    fn answer_that_is_not_one_vector_for_each_text_is_refused() {
        for (answer, why) in [
            ("[]", "JSON object"),
            ("{}", "too few"),
            (r#"{"data":[{"index":0,"embedding":[1]}]}"#, "too few"),
            (r#"{"data":[{"index":9,"embedding":[1]}]}"#, "too many"),
            (r#"{"data":[{"index":0,"embedding":[]}]}"#, "empty"),
            (r#"{"data":[{"index":0,"embedding":[1e99]}]}"#, "list of numbers"),
            (r#"{"data":[{"index":0,"embedding":["a"]}]}"#, "list of numbers"),
            (r#"{"data":[{"index":0,"embedding":"AAAA"}]}"#, "list of numbers"),
            (r#"{"data":[1]}"#, "object"),
        ] {
            let error = parse_vectors(answer, 2).unwrap_err();
            assert!(error.contains(why), "{answer}: {error}");
        }
        let long = format!(r#"{{"data":[{{"embedding":[{}0]}}]}}"#, "0,".repeat(MAX_NUMBERS));
        assert!(parse_vectors(&long, 1).unwrap_err().contains("too long"));
    }
}
