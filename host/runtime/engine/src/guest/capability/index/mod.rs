//! `toolhold:host/index`: writes, deletes and searches documents of the plugin.

mod vector_database;
mod vector_search;

use std::sync::Arc;

use toolhold_contract::Access;
use toolhold_store::index::{
    Document, DocumentEntry, DocumentIndex, IndexHit, IndexQuery, PendingWrite,
};
use toolhold_store::{Stop, StoreError};
use wasmtime::component::Linker;

use crate::guest::bindings::toolhold::host::types::Error;
use crate::guest::capability::bindings::toolhold::host::index as wit;
use crate::guest::capability::kept::{StoredData, StoredDataAccess};
use crate::guest::capability::{CallCapabilities, CallCapability, CallFacts};
use crate::guest::{CallState, HasState};

use vector_search::Vectors;

pub use vector_database::{VectorDatabase, VectorPoint, VectorSet};

/// The grant for an index.
#[derive(Clone, Debug)]
pub struct IndexGrant {
    /// The documents.
    pub documents: Arc<DocumentIndex>,
    /// Whether the documents are derived from files that the plugin may read. Read-only calls may
    /// write such documents. Only built-in plugins have such documents.
    pub is_derived: bool,
    /// The database that finds near vectors. Without a database, the index compares all vectors
    /// itself.
    pub vectors: Option<Arc<dyn VectorDatabase>>,
}

/// The state of this capability in a call.
pub(crate) struct Index {
    kept: StoredDataAccess<DocumentIndex>,
    /// A write that hasn't ended yet.
    write: Option<PendingWrite>,
    /// `None` if the index compares vectors itself.
    vectors: Option<Vectors>,
}

impl CallCapability for Option<Index> {
    type Grant = IndexGrant;

    fn begin(grant: &IndexGrant, facts: &CallFacts<'_>) -> Self {
        let report = &facts.call.report;
        let read_only = facts.only_reads && !grant.is_derived;
        let kept = StoredDataAccess::new(&grant.documents, read_only, report);
        let vectors = grant.vectors.clone().map(|database| Vectors::new(database, report));
        Some(Index { kept, write: None, vectors })
    }

    fn link(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
        wit::add_to_linker::<CallState, HasState>(linker, |state| state)
    }
}

impl StoredData for DocumentIndex {
    const NAME: &'static str = "index";
    const KEYS: &'static str = "`index_mib`";

    fn access_of_call(capabilities: &CallCapabilities) -> Option<&StoredDataAccess<Self>> {
        capabilities.index.as_ref().map(|index| &index.kept)
    }
}

fn convert_document(document: wit::Document) -> Document {
    let wit::Document { key, text, tags, vector, data, meta: _ } = document;
    Document { key, text, tags, vector, data }
}

fn document_for_guest(document: Document) -> wit::Document {
    let Document { key, text, tags, vector, data } = document;
    wit::Document { key, text, tags, vector, data, meta: None }
}

impl CallState {
    /// Runs an operation of the index after the call's pending write. A read-only call that
    /// requests [`Access::Write`] is denied.
    pub(crate) async fn in_index<T>(
        &mut self,
        access: Access,
        operation: impl FnOnce(&Arc<DocumentIndex>, &Stop) -> Result<T, StoreError>,
    ) -> Result<T, Error> {
        let pending_write = self.capabilities.index.as_mut().and_then(|index| index.write.take());
        self.in_stored_data(access, |index: &Arc<DocumentIndex>, stop| {
            if let Some(write) = pending_write {
                write.wait()?;
            }
            operation(index, stop)
        })
        .await
    }
}

impl wit::Host for &mut CallState {
    async fn put(&mut self, documents: Vec<wit::Document>) -> wasmtime::Result<Result<(), Error>> {
        let converted: Vec<Document> = documents.into_iter().map(convert_document).collect();
        let started =
            self.in_index(Access::Write, |index, stop| index.begin_put(converted, stop)).await;
        let pending_write = match started {
            Ok(pending_write) => pending_write,
            Err(error) => return Ok(Err(error)),
        };
        // The write continues in the background, and the next operation waits for its end.
        if let Some(index) = &mut self.capabilities.index {
            index.write = pending_write;
        }
        Ok(Ok(()))
    }

    async fn delete(&mut self, keys: Vec<String>) -> wasmtime::Result<Result<(), Error>> {
        Ok(self.in_index(Access::Write, |index, stop| index.delete(&keys, stop)).await)
    }

    async fn delete_prefix(&mut self, prefix: String) -> wasmtime::Result<Result<u64, Error>> {
        let deleted =
            self.in_index(Access::Write, |index, stop| index.delete_prefix(&prefix, stop)).await;
        Ok(deleted.map(|count| u64::try_from(count).unwrap_or(u64::MAX)))
    }

    async fn get(
        &mut self,
        keys: Vec<String>,
    ) -> wasmtime::Result<Result<Vec<Option<wit::Document>>, Error>> {
        let found = self.in_index(Access::Read, |index, stop| index.get(&keys, stop)).await;
        let documents = match found {
            Ok(documents) => documents,
            Err(error) => return Ok(Err(error)),
        };
        // A key without a document gets `None`.
        let answers = documents.into_iter().map(|document| document.map(document_for_guest));
        Ok(Ok(answers.collect()))
    }

    async fn list(
        &mut self,
        prefix: String,
        cursor: Option<String>,
        limit: u32,
    ) -> wasmtime::Result<Result<wit::Page, Error>> {
        let listed = self
            .in_index(Access::Read, |index, stop| {
                index.list(&prefix, cursor.as_deref(), limit as usize, stop)
            })
            .await;
        let page = match listed {
            Ok(page) => page,
            Err(error) => return Ok(Err(error)),
        };
        let entries = page.entries.into_iter().map(convert_entry).collect();
        Ok(Ok(wit::Page { entries, cursor: page.cursor }))
    }

    async fn search(
        &mut self,
        query: wit::Query,
    ) -> wasmtime::Result<Result<Vec<wit::Hit>, Error>> {
        let near_documents = self.find_near_documents(&query).await;
        let index_query = IndexQuery {
            words: &query.words,
            tags: &query.tags,
            prefix: &query.prefix,
            vector: query.vector.as_deref(),
            near: near_documents.as_deref(),
            limit: query.limit as usize,
        };
        let hits =
            self.in_index(Access::Read, |index, stop| index.search(&index_query, stop)).await;
        Ok(hits.map(|hits| hits.into_iter().map(convert_hit).collect()))
    }
}

fn convert_entry(entry: DocumentEntry) -> wit::Entry {
    let DocumentEntry { key, tags, data } = entry;
    wit::Entry { key, tags, data }
}

fn convert_hit(hit: IndexHit) -> wit::Hit {
    let IndexHit { key, score, by_words, by_vector } = hit;
    let mut found_by = Vec::new();
    if by_words {
        found_by.push("words".to_owned());
    }
    if by_vector {
        found_by.push("vector".to_owned());
    }
    wit::Hit { key, score, found_by, meta: None }
}
