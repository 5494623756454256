//! Vectors of texts, by a model of the operator's. The plugin asks for it in its manifest:
//! `embeddings = "reason"`.
//!
//! ```no_run
//! # fn main() -> Result<(), toolhold_sdk::Failure> {
//! use toolhold_sdk::embeddings;
//! use toolhold_sdk::index::{self, Document, Query};
//!
//! let texts = ["The tests need a database".to_owned()];
//! let Some(model) = embeddings::model() else { return Ok(()) };
//! let vector = embeddings::embed(&texts)?.pop();
//! index::put(vec![Document { vector, ..Document::new("notes/1", &texts[0]).tagged(model) }])?;
//! # Ok(())
//! # }
//! ```
//!
//! The host sends the texts, without what looks like a secret, and no plugin gets the key. Vectors
//! of different models can't be compared, so keep [`model`] with them. A plugin should work without
//! vectors too: a model may be missing, or not answer.
//!
//! In unit tests there is no model until [`set_embeddings`](crate::testing::set_embeddings).

use crate::HostError;

/// Texts of one [`embed`].
pub const MAX_TEXTS: usize = 64;

/// Bytes of a text.
pub const MAX_TEXT: usize = 8192;

/// A name of the operator's model, without asking it. `None`: the operator chose none.
pub fn model() -> Option<String> {
    host::model()
}

/// The vector of each text, in their order: at most [`MAX_TEXTS`] of 1 to [`MAX_TEXT`] bytes, and
/// at most 2,048 in one call.
///
/// # Errors
///
/// Invalid texts, no model, or one that doesn't answer with vectors.
pub fn embed(texts: &[String]) -> Result<Vec<Vec<i8>>, HostError> {
    host::embed(texts)
}

#[cfg(target_arch = "wasm32")]
mod host {
    use super::HostError;
    use crate::contract::bindings::toolhold::host::embeddings as wit;
    use crate::contract::bindings::toolhold::host::types::Error;

    pub(super) fn model() -> Option<String> {
        wit::model()
    }

    pub(super) fn embed(texts: &[String]) -> Result<Vec<Vec<i8>>, HostError> {
        wit::embed(texts)
            .map_err(|error: Error| HostError::new("embeddings", error.code, error.message))
    }
}

/// The stand-in for the host in unit tests.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod host {
    use std::cell::RefCell;

    use super::{HostError, MAX_TEXT, MAX_TEXTS};

    /// The stand-in for a model in unit tests.
    pub(crate) type Standin = fn(&str) -> Result<Vec<i8>, String>;

    thread_local! {
        static MODEL: RefCell<Option<(String, Standin)>> = const { RefCell::new(None) };
    }

    pub(crate) fn set(model: Option<(String, Standin)>) {
        MODEL.set(model);
    }

    pub(super) fn model() -> Option<String> {
        MODEL.with_borrow(|model| model.as_ref().map(|(name, _)| name.clone()))
    }

    pub(super) fn embed(texts: &[String]) -> Result<Vec<Vec<i8>>, HostError> {
        let Some((_, standin)) = MODEL.with_borrow(Clone::clone) else {
            return Err(error("unavailable", "no model makes vectors".to_owned()));
        };
        let are_valid = texts.iter().all(|text| (1..=MAX_TEXT).contains(&text.len()));
        if texts.len() > MAX_TEXTS || !are_valid {
            return Err(error("invalid", "the texts are too many, too long or empty".to_owned()));
        }
        let vectors = texts.iter().map(|text| standin(text));
        vectors.collect::<Result<_, _>>().map_err(|message| error("failed", message))
    }

    fn error(code: &str, message: String) -> HostError {
        HostError::new("embeddings", code, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Failure;
    use crate::testing::set_embeddings;

    #[test]
    fn vectors_are_of_the_model_that_the_operator_chose() {
        assert_eq!(model(), None);
        let missing = embed(&["a".to_owned()]).unwrap_err();
        assert_eq!(Failure::from(missing).code.as_deref(), Some("embeddings-unavailable"));
        set_embeddings(Some("m"), |text| Ok(vec![i8::try_from(text.len()).unwrap()]));
        assert_eq!(model().as_deref(), Some("m"));
        assert_eq!(embed(&["a".to_owned(), "bc".to_owned()]), Ok(vec![vec![1], vec![2]]));
        assert_eq!(embed(&[String::new()]).unwrap_err().code, "invalid");
        assert_eq!(embed(&vec!["a".to_owned(); MAX_TEXTS + 1]).unwrap_err().code, "invalid");
    }
}
