//! `toolhold:host/embeddings`: makes vectors of texts with the configured model.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use toolhold_contract::text::{cut, neutral_line};
use toolhold_contract::{BoxFuture, Report};
use toolhold_redaction::{self as redaction, Keys};
use wasmtime::component::Linker;

use crate::guest::bindings::toolhold::host::types::Error;
use crate::guest::capability::bindings::toolhold::host::embeddings as wit;
use crate::guest::capability::{CallCapability, CallFacts};
use crate::guest::convert::host_error;
use crate::guest::{CallState, HasState};

/// Most texts of a call. Further texts are refused.
const MAX_TEXTS_OF_CALL: usize = 2048;

/// Most texts at a time.
const MAX_TEXTS: usize = 64;

/// Longest text in bytes. Models cut longer texts, and a long text has several meanings.
const MAX_TEXT: usize = 8192;

/// Most numbers of a vector. Equals the limit of an index.
const MAX_NUMBERS: usize = toolhold_store::index::MAX_VECTOR;

/// Time limit of a request to the model: `TIME`, and `TIME_OF_TEXT` for each text, up to
/// `MAX_TIME`.
const TIME: Duration = Duration::from_secs(10);
const TIME_OF_TEXT: Duration = Duration::from_secs(1);
const MAX_TIME: Duration = Duration::from_secs(30);

/// Longest error message of a model in bytes. Longer messages are cut.
const MAX_REASON: usize = 400;

#[derive(Debug, thiserror::Error)]
enum VectorsError {
    #[error("the model returned only {made} of {count} vectors")]
    Count { made: usize, count: usize },
    #[error(
        "the model's vectors have {0} numbers; the limit is {MAX_NUMBERS} (`dimensions` in the \
         model's table)"
    )]
    ManyNumbers(usize),
    #[error("the model's vectors have different lengths")]
    Lengths,
    #[error("a vector of the model is zero, or has a value that isn't a number")]
    NoDirection,
}

/// A model that makes vectors of texts.
pub trait EmbeddingModel: fmt::Debug + Send + Sync + 'static {
    /// Returns the model's name in the configuration.
    fn name(&self) -> String;

    /// Returns an identifier that no other model has. Doesn't contact the model.
    fn id(&self) -> String;

    /// Makes a vector of each text, in the same order. The caller limits the time by dropping the
    /// future.
    fn embed(&self, texts: Vec<String>) -> BoxFuture<'_, Result<Vec<Vec<f32>>, String>>;
}

/// The grant for making vectors.
#[derive(Clone, Debug)]
pub struct EmbeddingsGrant {
    /// The model. `None` if the configuration chooses no model, or this program has none.
    pub model: Option<Arc<dyn EmbeddingModel>>,
}

/// The state of this capability in a call.
pub(crate) struct Embeddings {
    model: Option<Arc<dyn EmbeddingModel>>,
    /// Texts that the call may still send.
    texts_left: usize,
    report: Arc<Report>,
}

impl CallCapability for Option<Embeddings> {
    type Grant = EmbeddingsGrant;

    fn begin(grant: &EmbeddingsGrant, facts: &CallFacts<'_>) -> Self {
        let report = Arc::clone(&facts.call.report);
        Some(Embeddings { model: grant.model.clone(), texts_left: MAX_TEXTS_OF_CALL, report })
    }

    fn link(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
        wit::add_to_linker::<CallState, HasState>(linker, |state| state)
    }
}

impl wit::Host for &mut CallState {
    async fn model(&mut self) -> wasmtime::Result<Option<String>> {
        let Some(access) = &self.capabilities.embeddings else { return Ok(None) };
        Ok(access.model.as_ref().map(|model| model.id()))
    }

    async fn embed(&mut self, texts: Vec<String>) -> wasmtime::Result<Result<Vec<Vec<i8>>, Error>> {
        Ok(self.make_vectors(texts).await)
    }
}

impl CallState {
    async fn make_vectors(&mut self, texts: Vec<String>) -> Result<Vec<Vec<i8>>, Error> {
        let Some(access) = &mut self.capabilities.embeddings else {
            // The instance has no call yet, or the plugin is only inspected.
            return Err(host_error("denied", "no embeddings are granted to this plugin"));
        };
        check_texts(&texts)?;
        let Some(model) = access.model.clone() else {
            let table = &self.call.table.name;
            return Err(host_error(
                "unavailable",
                format!("no embedding model is configured; set `embeddings` in [{table}]"),
            ));
        };
        let Some(texts_left) = access.texts_left.checked_sub(texts.len()) else {
            return Err(host_error(
                "limit",
                format!(
                    "the call sends more than {MAX_TEXTS_OF_CALL} strings to the model, the limit"
                ),
            ));
        };
        access.texts_left = texts_left;
        // The answer depends on the model's data, which the report can't name.
        access.report.mark_incomplete();
        let watch = Arc::clone(&self.call.watch);
        watch.may_block().await;

        let count = texts.len();
        let texts = texts.into_iter().map(|text| redaction::owned(text, Keys::Text)).collect();
        let name = model.name();
        let plugin = &*self.call.plugin;
        let texts_time = TIME_OF_TEXT.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        let time_left = watch.deadline().saturating_duration_since(Instant::now());
        // Half of the time is left for the tool, which must continue if the model doesn't answer.
        let time = (TIME + texts_time).min(MAX_TIME).min(time_left / 2);

        let embedding = tokio::time::timeout(time, model.embed(texts));
        let Some(in_time) = watch.cancel.run_until_cancelled(embedding).await else {
            return Err(model_failed(plugin, &name, "the call was cancelled"));
        };
        let Ok(answer) = in_time else {
            let why = format!("the model didn't answer within {:.1} s", time.as_secs_f64());
            return Err(model_failed(plugin, &name, &why));
        };
        let vectors = answer.map_err(|why| model_failed(plugin, &name, &why))?;
        quantise_all(&vectors, count)
            .map_err(|error| model_failed(plugin, &name, &error.to_string()))
    }
}

fn model_failed(plugin: &str, model: &str, why: &str) -> Error {
    let why = neutral_line(cut(why, MAX_REASON));
    tracing::warn!(plugin, "the model {model} made no vectors: {why}");
    host_error("failed", format!("the model {model} made no vectors: {why}"))
}

fn check_texts(texts: &[String]) -> Result<(), Error> {
    if texts.len() > MAX_TEXTS {
        let message = format!("the request has {} strings; the limit is {MAX_TEXTS}", texts.len());
        return Err(host_error("invalid", message));
    }
    for text in texts {
        let length = text.len();
        let is_valid_length = (1..=MAX_TEXT).contains(&length);
        if !is_valid_length {
            let message = format!("a string is {length} bytes; valid strings have 1 to {MAX_TEXT}");
            return Err(host_error("invalid", message));
        }
    }
    Ok(())
}

/// Converts the vectors of `count` texts to signed bytes.
fn quantise_all(vectors: &[Vec<f32>], count: usize) -> Result<Vec<Vec<i8>>, VectorsError> {
    if vectors.len() != count {
        return Err(VectorsError::Count { made: vectors.len(), count });
    }
    let vector_length = vectors.first().map_or(0, Vec::len);
    if vector_length > MAX_NUMBERS {
        return Err(VectorsError::ManyNumbers(vector_length));
    }
    if vectors.iter().any(|vector| vector.len() != vector_length) {
        return Err(VectorsError::Lengths);
    }
    let mut all_quantised = Vec::with_capacity(count);
    for vector in vectors {
        let Some(quantised) = quantise(vector) else { return Err(VectorsError::NoDirection) };
        all_quantised.push(quantised);
    }
    Ok(all_quantised)
}

/// Converts a vector to signed bytes. Only the direction matters, so the number with the largest
/// magnitude becomes 127 or -127. Returns `None` if the vector is empty or zero, or if a number
/// isn't finite.
fn quantise(vector: &[f32]) -> Option<Vec<i8>> {
    let largest = vector.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
    let all_finite = vector.iter().all(|number| number.is_finite());
    if largest <= 0.0 || !all_finite {
        return None;
    }
    Some(vector.iter().map(|number| signed_byte(*number, largest)).collect())
}

#[expect(clippy::cast_possible_truncation, reason = "it is at most 127 away from 0")]
fn signed_byte(number: f32, largest: f32) -> i8 {
    (number / largest * 127.0).round() as i8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_keep_their_direction() {
        assert_eq!(quantise(&[0.5, -1.0, 0.0]), Some(vec![64, -127, 0]));
        assert_eq!(quantise(&[1e-30, 0.0]), Some(vec![127, 0]));
        assert_eq!(quantise(&[f32::MAX, f32::MIN]), Some(vec![127, -127]));
    }

    #[test]
    fn vectors_without_direction_are_refused() {
        for vector in [&[][..], &[0.0, 0.0], &[1.0, f32::NAN], &[f32::NAN], &[f32::INFINITY]] {
            assert_eq!(quantise(vector), None, "{vector:?}");
        }
        let all = [vec![1.0, 2.0], vec![1.0]];
        assert!(quantise_all(&all, 2).unwrap_err().to_string().contains("different lengths"));
        assert!(quantise_all(&all[..1], 2).unwrap_err().to_string().contains("1 of 2"));
        let long = [vec![1.0; MAX_NUMBERS + 1]];
        assert!(quantise_all(&long, 1).unwrap_err().to_string().contains("the limit is 4096"));
    }

    #[test]
    fn texts_are_bounded() {
        assert!(check_texts(&vec!["a".to_owned(); MAX_TEXTS]).is_ok());
        assert!(check_texts(&vec!["a".to_owned(); MAX_TEXTS + 1]).is_err());
        assert!(check_texts(&["a".repeat(MAX_TEXT)]).is_ok());
        assert!(check_texts(&["a".repeat(MAX_TEXT + 1)]).is_err());
        assert!(check_texts(&[String::new()]).is_err());
    }
}
