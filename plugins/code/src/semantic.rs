//! Vectors of the chunks of files, for searches by meaning.

use berth_sdk::index::{Document, IndexError};

/// Makes vectors, where the operator has configured it.
#[derive(Debug, Default)]
pub(crate) struct Vectors {}

impl Vectors {
    /// Whether vectors are made: they are configured, and nothing failed in this call.
    pub(crate) fn are_wanted(&self) -> bool {
        false
    }

    /// Adds vectors to the chunks of a file. False: they couldn't be made.
    pub(crate) fn add(&mut self, _path: &str, _lines: &[&str], _documents: &mut [Document]) -> bool {
        true
    }

    /// The keys of the chunks that are nearest to the query.
    pub(crate) fn nearest(
        &self,
        _prefix: &str,
        _query: &str,
        _limit: u32,
    ) -> Result<Vec<String>, IndexError> {
        Ok(Vec::new())
    }
}
