//! `berth:host/store` for guests.

use std::sync::Arc;

use berth_contract::{Denial, Report};
use berth_store::{KeyValue, Stop, Store, StoreError};

use crate::guest::bindings::berth::host::store as wit;
use crate::guest::bindings::berth::host::types::Error;
use crate::guest::state::CallState;

/// The store of a call's plugin.
pub(crate) struct StoreAccess {
    pub(crate) store: Arc<Store>,
    /// Whether the call only reads.
    pub(crate) read_only: bool,
    pub(crate) report: Arc<Report>,
}

impl CallState {
    /// Runs an operation on the plugin's store, on a thread that may block.
    async fn in_store<T>(
        &mut self,
        writes: bool,
        operation: impl FnOnce(&Store, &Stop) -> Result<T, StoreError>,
    ) -> Result<T, Error> {
        let Some(access) = &self.call.store else {
            // The instance has no call yet, or the plugin was only loaded to be inspected.
            return Err(error("denied", "no store is granted to this plugin".to_owned()));
        };
        if writes && access.read_only {
            let denial = Box::new(Denial {
                capability: "store".to_owned(),
                action: "write to the store".to_owned(),
                rule: "read-only tools can't write to the store".to_owned(),
                place: "the tool's annotations".to_owned(),
                remedy: "The tool's author has to drop `read-only`.".to_owned(),
            });
            let message = denial.to_string();
            self.files.denials().remember(denial);
            return Err(error("denied", message));
        }
        // An answer that was made of a store can't be known to be still true.
        access.report.mark_incomplete();
        let store = Arc::clone(&access.store);
        self.call.watch.may_block().await;
        let stop =
            Stop { deadline: self.call.watch.deadline(), cancel: self.call.watch.cancel.clone() };
        operation(&store, &stop).map_err(|failed| match failed {
            StoreError::Invalid(message) => error("invalid", message),
            StoreError::Limit(reached) => error(
                "limit",
                format!("{reached} (`store_mib` and `store_keys` in [{}])", self.call.table.name),
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

impl wit::Host for &mut CallState {
    async fn get(&mut self, key: String) -> wasmtime::Result<Result<Option<Vec<u8>>, Error>> {
        Ok(self.in_store(false, |store, stop| store.get(&key, stop)).await)
    }

    async fn list(
        &mut self,
        prefix: String,
        cursor: Option<String>,
        limit: u32,
    ) -> wasmtime::Result<Result<wit::Page, Error>> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let page = self
            .in_store(false, |store, stop| store.list(&prefix, cursor.as_deref(), limit, stop))
            .await;
        let entry = |entry: berth_store::Entry| wit::Entry { key: entry.key, value: entry.value };
        Ok(page.map(|page| wit::Page {
            entries: page.entries.into_iter().map(entry).collect(),
            cursor: page.cursor,
        }))
    }

    async fn write(
        &mut self,
        expected: Vec<wit::Expectation>,
        changes: Vec<wit::Change>,
    ) -> wasmtime::Result<Result<bool, Error>> {
        let expected: Vec<_> = expected
            .iter()
            .map(|one| KeyValue { key: &one.key, value: one.value.as_deref() })
            .collect();
        let changes: Vec<_> = changes
            .iter()
            .map(|one| KeyValue { key: &one.key, value: one.value.as_deref() })
            .collect();
        Ok(self.in_store(true, |store, stop| store.write(&expected, &changes, stop)).await)
    }
}
