//! `toolhold:host/embeddings` for guests: has the operator's model make vectors, within limits of
//! texts and time.

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

/// Texts of one call.
const MAX_TEXTS_OF_CALL: usize = 2048;

/// Texts at once.
const MAX_TEXTS: usize = 64;

/// Bytes of a text. A longer text has more than one meaning, and models cut it.
const MAX_TEXT: usize = 8192;

/// Numbers of a vector: as many as an index keeps.
const MAX_NUMBERS: usize = toolhold_store::index::MAX_VECTOR;

/// The time of the model for one request of a guest: so much, and more for each text.
const TIME: Duration = Duration::from_secs(10);
const TIME_OF_TEXT: Duration = Duration::from_secs(1);
const MAX_TIME: Duration = Duration::from_secs(30);

/// Bytes of what a model's server says of a failure.
const MAX_REASON: usize = 400;

/// A reason why a model's vectors are refused.
#[derive(Debug, thiserror::Error)]
enum VectorsError {
    #[error("it made {made} of {count} vectors")]
    Count { made: usize, count: usize },
    #[error("its vectors have {0} numbers; the limit is {MAX_NUMBERS} (`dimensions` in its table)")]
    ManyNumbers(usize),
    #[error("its vectors have different lengths")]
    Lengths,
    #[error("a vector is zero, or has a value that isn't a number")]
    NoDirection,
}

/// A model that makes vectors of texts.
pub trait EmbeddingModel: fmt::Debug + Send + Sync + 'static {
    /// Its name in the configuration, for people.
    fn name(&self) -> String;

    /// Distinguishes the model's vectors from those of other models, without asking the model.
    fn id(&self) -> String;

    /// The vector of each text, in the same order. The texts go where the operator said, as they
    /// are. The caller bounds the time, and drops the future when it is over.
    fn embed(&self, texts: Vec<String>) -> BoxFuture<'_, Result<Vec<Vec<f32>>, String>>;
}

/// How a plugin gets vectors of texts.
#[derive(Clone, Debug)]
pub struct EmbeddingsGrant {
    /// The model. `None`: the operator chose none, or this program can ask none.
    pub model: Option<Arc<dyn EmbeddingModel>>,
}

/// How a call's plugin gets vectors.
pub(crate) struct Embeddings {
    model: Option<Arc<dyn EmbeddingModel>>,
    /// Texts that the call may still send.
    left: usize,
    report: Arc<Report>,
}

impl CallCapability for Option<Embeddings> {
    type Grant = EmbeddingsGrant;

    fn begin(grant: &EmbeddingsGrant, facts: &CallFacts<'_>) -> Self {
        let report = Arc::clone(&facts.call.report);
        Some(Embeddings { model: grant.model.clone(), left: MAX_TEXTS_OF_CALL, report })
    }

    fn link(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
        wit::add_to_linker::<CallState, HasState>(linker, |state| state)
    }
}

impl wit::Host for &mut CallState {
    async fn model(&mut self) -> wasmtime::Result<Option<String>> {
        let access = self.capabilities.embeddings.as_ref();
        Ok(access.and_then(|access| access.model.as_ref()).map(|model| model.id()))
    }

    async fn embed(&mut self, texts: Vec<String>) -> wasmtime::Result<Result<Vec<Vec<i8>>, Error>> {
        Ok(self.vectors(texts).await)
    }
}

impl CallState {
    async fn vectors(&mut self, texts: Vec<String>) -> Result<Vec<Vec<i8>>, Error> {
        let Some(access) = &mut self.capabilities.embeddings else {
            // The instance has no call yet, or the plugin was only loaded to be inspected.
            return Err(host_error("denied", "no embeddings are granted to this plugin"));
        };
        check(&texts)?;
        let Some(model) = access.model.clone() else {
            let table = &self.call.table.name;
            return Err(host_error(
                "unavailable",
                format!("no model makes vectors; `embeddings` in [{table}] names one"),
            ));
        };
        access.left = access.left.checked_sub(texts.len()).ok_or_else(|| {
            host_error(
                "limit",
                format!("the call sends more than {MAX_TEXTS_OF_CALL} texts, the limit"),
            )
        })?;
        // An answer that was made of vectors can't be known to be still true.
        access.report.mark_incomplete();
        let watch = Arc::clone(&self.call.watch);
        watch.may_block().await;
        let count = texts.len();
        let texts = texts.into_iter().map(|text| redaction::owned(text, Keys::Text)).collect();
        let name = model.name();
        let plugin = &*self.call.plugin;
        let texts_time = TIME_OF_TEXT.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        let left = watch.deadline().saturating_duration_since(Instant::now());
        // The tool has to go on if the model doesn't answer.
        let time = (TIME + texts_time).min(MAX_TIME).min(left / 2);
        let embedding = tokio::time::timeout(time, model.embed(texts));
        let Some(in_time) = watch.cancel.run_until_cancelled(embedding).await else {
            return Err(model_failed(plugin, &name, "the call was cancelled"));
        };
        let Ok(answer) = in_time else {
            let why = format!("no answer within {:.1} s", time.as_secs_f64());
            return Err(model_failed(plugin, &name, &why));
        };
        let vectors = answer.map_err(|why| model_failed(plugin, &name, &why))?;
        quantised_all(&vectors, count)
            .map_err(|error| model_failed(plugin, &name, &error.to_string()))
    }
}

/// Logs the failure of a model, and returns the guest's error.
fn model_failed(plugin: &str, model: &str, why: &str) -> Error {
    let why = neutral_line(cut(why, MAX_REASON));
    tracing::warn!(plugin, "{model} made no vectors: {why}");
    host_error("failed", format!("{model} made no vectors: {why}"))
}

fn check(texts: &[String]) -> Result<(), Error> {
    if texts.len() > MAX_TEXTS {
        let message = format!("there are {} texts; the limit is {MAX_TEXTS}", texts.len());
        return Err(host_error("invalid", message));
    }
    match texts.iter().map(String::len).find(|length| !(1..=MAX_TEXT).contains(length)) {
        Some(length) => Err(host_error(
            "invalid",
            format!("a text is {length} bytes; it needs 1 to {MAX_TEXT}"),
        )),
        None => Ok(()),
    }
}

/// The vectors of so many texts, each as signed bytes.
fn quantised_all(vectors: &[Vec<f32>], count: usize) -> Result<Vec<Vec<i8>>, VectorsError> {
    if vectors.len() != count {
        return Err(VectorsError::Count { made: vectors.len(), count });
    }
    let numbers = vectors.first().map_or(0, Vec::len);
    if numbers > MAX_NUMBERS {
        return Err(VectorsError::ManyNumbers(numbers));
    }
    if vectors.iter().any(|vector| vector.len() != numbers) {
        return Err(VectorsError::Lengths);
    }
    let quantised = vectors.iter().map(|vector| quantised(vector)).collect::<Option<_>>();
    quantised.ok_or(VectorsError::NoDirection)
}

/// A vector as signed bytes. Only its direction matters, so its largest number becomes 127. `None`:
/// the vector is empty, all numbers are zero, or a number isn't finite.
fn quantised(vector: &[f32]) -> Option<Vec<i8>> {
    let largest = vector.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
    if !(largest > 0.0 && vector.iter().all(|number| number.is_finite())) {
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
        assert_eq!(quantised(&[0.5, -1.0, 0.0]), Some(vec![64, -127, 0]));
        assert_eq!(quantised(&[1e-30, 0.0]), Some(vec![127, 0]));
        assert_eq!(quantised(&[f32::MAX, f32::MIN]), Some(vec![127, -127]));
    }

    #[test]
    fn vectors_without_direction_are_refused() {
        for vector in [&[][..], &[0.0, 0.0], &[1.0, f32::NAN], &[f32::NAN], &[f32::INFINITY]] {
            assert_eq!(quantised(vector), None, "{vector:?}");
        }
        let all = [vec![1.0, 2.0], vec![1.0]];
        assert!(quantised_all(&all, 2).unwrap_err().to_string().contains("different lengths"));
        assert!(quantised_all(&all[..1], 2).unwrap_err().to_string().contains("1 of 2"));
        let long = [vec![1.0; MAX_NUMBERS + 1]];
        assert!(quantised_all(&long, 1).unwrap_err().to_string().contains("the limit is 4096"));
    }

    #[test]
    fn texts_are_bounded() {
        assert!(check(&vec!["a".to_owned(); MAX_TEXTS]).is_ok());
        assert!(check(&vec!["a".to_owned(); MAX_TEXTS + 1]).is_err());
        assert!(check(&["a".repeat(MAX_TEXT)]).is_ok());
        assert!(check(&["a".repeat(MAX_TEXT + 1)]).is_err());
        assert!(check(&[String::new()]).is_err());
    }
}
