//! `toolhold:host/index` for guests: writes, deletes and searches documents of the plugin.

use std::sync::Arc;

use toolhold_store::index::{
    Document, DocumentEntry, DocumentIndex, IndexHit, IndexQuery, PendingWrite,
};
use toolhold_store::{Stop, StoreError};

use crate::guest::access::KeptAccess;
use crate::guest::bindings::toolhold::host::index as wit;
use crate::guest::bindings::toolhold::host::types::Error;
use crate::guest::state::{CallState, RunningCall};
use crate::guest::storage::KeptData;

impl KeptData for DocumentIndex {
    const NAME: &'static str = "index";
    const KEYS: &'static str = "`index_mib`";

    fn of_call(call: &RunningCall) -> Option<&KeptAccess<Self>> {
        call.index.as_ref()
    }
}

fn document_in(document: wit::Document) -> Document {
    let wit::Document { key, text, tags, vector, data, meta: _ } = document;
    Document { key, text, tags, vector, data }
}

fn document_out(document: Document) -> wit::Document {
    let Document { key, text, tags, vector, data } = document;
    wit::Document { key, text, tags, vector, data, meta: None }
}

impl CallState {
    /// Runs an operation on the index, after the write that goes on.
    pub(crate) async fn in_index<T>(
        &mut self,
        writes: bool,
        operation: impl FnOnce(&Arc<DocumentIndex>, &Stop) -> Result<T, StoreError>,
    ) -> Result<T, Error> {
        let pending = self.call.index_write.take();
        self.in_kept(writes, |index: &Arc<DocumentIndex>, stop| {
            pending.map_or(Ok(()), PendingWrite::wait)?;
            operation(index, stop)
        })
        .await
    }
}

impl wit::Host for &mut CallState {
    async fn put(&mut self, documents: Vec<wit::Document>) -> wasmtime::Result<Result<(), Error>> {
        let documents: Vec<Document> = documents.into_iter().map(document_in).collect();
        let begun = self.in_index(true, |index, stop| index.begin_put(documents, stop)).await;
        Ok(begun.map(|write| self.call.index_write = write))
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
        let entry = |DocumentEntry { key, tags, data }| wit::Entry { key, tags, data };
        Ok(page.map(|page| wit::Page {
            entries: page.entries.into_iter().map(entry).collect(),
            cursor: page.cursor,
        }))
    }

    async fn search(
        &mut self,
        query: wit::Query,
    ) -> wasmtime::Result<Result<Vec<wit::Hit>, Error>> {
        let near = self.near_by_database(&query).await;
        let asked = IndexQuery {
            words: &query.words,
            tags: &query.tags,
            prefix: &query.prefix,
            vector: query.vector.as_deref(),
            near: near.as_deref(),
            limit: usize::try_from(query.limit).unwrap_or(usize::MAX),
        };
        let hits = self.in_index(false, |index, stop| index.search(&asked, stop)).await;
        let hit = |IndexHit { key, score, by_words, by_vector }| {
            let ways = [("words", by_words), ("vector", by_vector)].into_iter();
            let found_by = ways.filter(|(_, is_why)| *is_why).map(|(why, _)| why.to_owned());
            wit::Hit { key, score, found_by: found_by.collect(), meta: None }
        };
        Ok(hits.map(|hits| hits.into_iter().map(hit).collect()))
    }
}
