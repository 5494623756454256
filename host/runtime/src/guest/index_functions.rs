//! `berth:host/index` for guests.

use std::sync::Arc;

use berth_contract::{Denial, Report};
use berth_index::{Document, DocumentIndex, IndexQuery};
use berth_store::{Stop, StoreError};

use crate::guest::bindings::berth::host::index as wit;
use crate::guest::bindings::berth::host::types::Error;
use crate::guest::state::CallState;

/// The index of a call's plugin.
pub(crate) struct IndexAccess {
    pub(crate) documents: Arc<DocumentIndex>,
    /// Whether the call may not write.
    pub(crate) read_only: bool,
    pub(crate) report: Arc<Report>,
}

impl CallState {
    /// Runs an operation on the plugin's index, on a thread that may block.
    async fn in_index<T>(
        &mut self,
        writes: bool,
        operation: impl FnOnce(&DocumentIndex, &Stop) -> Result<T, StoreError>,
    ) -> Result<T, Error> {
        let Some(access) = &self.call.index else {
            // The instance has no call yet, or the plugin was only loaded to be inspected.
            return Err(error("denied", "no index is granted to this plugin".to_owned()));
        };
        if writes && access.read_only {
            let denial = Box::new(Denial {
                capability: "index".to_owned(),
                action: "write to the index".to_owned(),
                rule: "read-only tools can't write to the index".to_owned(),
                place: "the tool's annotations".to_owned(),
                remedy: "The tool's author has to drop `read-only`.".to_owned(),
            });
            let message = denial.to_string();
            self.files.denials().remember(denial);
            return Err(error("denied", message));
        }
        // An answer that was made of an index can't be known to be still true.
        access.report.mark_incomplete();
        let documents = Arc::clone(&access.documents);
        self.call.watch.may_block().await;
        let stop =
            Stop { deadline: self.call.watch.deadline(), cancel: self.call.watch.cancel.clone() };
        operation(&documents, &stop).map_err(|failed| match failed {
            StoreError::Invalid(message) => error("invalid", message),
            StoreError::Limit(reached) => error(
                "limit",
                format!(
                    "{reached} (`index_mib` and `index_documents` in [{}])",
                    self.call.table.name
                ),
            ),
            StoreError::Unavailable { .. } => {
                // The reason names a path of the user's, which a plugin may not know.
                tracing::warn!(plugin = &*self.call.plugin, "{failed}");
                error("unavailable", "it can't be used; the host's log says why".to_owned())
            }
            failed => error("failed", failed.to_string()),
        })
    }
}

fn error(code: &str, message: String) -> Error {
    Error { code: code.to_owned(), message, meta: None }
}

fn document_in(document: wit::Document) -> Document {
    let wit::Document { key, text, tags, vector, data, meta: _ } = document;
    Document { key, text, tags, vector, data }
}

fn document_out(document: Document) -> wit::Document {
    let Document { key, text, tags, vector, data } = document;
    wit::Document { key, text, tags, vector, data, meta: None }
}

impl wit::Host for &mut CallState {
    async fn put(&mut self, documents: Vec<wit::Document>) -> wasmtime::Result<Result<(), Error>> {
        let documents: Vec<Document> = documents.into_iter().map(document_in).collect();
        Ok(self.in_index(true, |index, stop| index.put(&documents, stop)).await)
    }

    async fn delete(&mut self, keys: Vec<String>) -> wasmtime::Result<Result<(), Error>> {
        Ok(self.in_index(true, |index, stop| index.delete(&keys, stop)).await)
    }

    async fn delete_prefix(&mut self, prefix: String) -> wasmtime::Result<Result<u64, Error>> {
        let deleted = self.in_index(true, |index, stop| index.delete_prefix(&prefix, stop)).await;
        Ok(deleted.map(|count| u64::try_from(count).unwrap_or(u64::MAX)))
    }

    async fn get(
        &mut self,
        keys: Vec<String>,
    ) -> wasmtime::Result<Result<Vec<Option<wit::Document>>, Error>> {
        let found = self.in_index(false, |index, stop| index.get(&keys, stop)).await;
        Ok(found.map(|found| found.into_iter().map(|one| one.map(document_out)).collect()))
    }

    async fn list(
        &mut self,
        prefix: String,
        cursor: Option<String>,
        limit: u32,
    ) -> wasmtime::Result<Result<wit::Page, Error>> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let page = self
            .in_index(false, |index, stop| index.list(&prefix, cursor.as_deref(), limit, stop))
            .await;
        let entry = |entry: berth_index::DocumentEntry| wit::Entry {
            key: entry.key,
            tags: entry.tags,
            data: entry.data,
        };
        Ok(page.map(|page| wit::Page {
            entries: page.entries.into_iter().map(entry).collect(),
            cursor: page.cursor,
        }))
    }

    async fn search(
        &mut self,
        query: wit::Query,
    ) -> wasmtime::Result<Result<Vec<wit::Hit>, Error>> {
        let asked = IndexQuery {
            words: &query.words,
            tags: &query.tags,
            prefix: &query.prefix,
            vector: query.vector.as_deref(),
            limit: usize::try_from(query.limit).unwrap_or(usize::MAX),
        };
        let hits = self.in_index(false, |index, stop| index.search(&asked, stop)).await;
        let hit = |hit: berth_index::IndexHit| wit::Hit {
            key: hit.key,
            score: hit.score,
            found_by: [("words", hit.by_words), ("vector", hit.by_vector)]
                .into_iter()
                .filter(|(_, is_why)| *is_why)
                .map(|(why, _)| why.to_owned())
                .collect(),
            meta: None,
        };
        Ok(hits.map(|hits| hits.into_iter().map(hit).collect()))
    }
}
