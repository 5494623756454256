//! `toolhold:host/store`: reads and writes keys and values of the plugin.

use std::sync::Arc;

use toolhold_contract::Access;
use toolhold_store::{KeyValue, Store};
use wasmtime::component::Linker;

use crate::guest::bindings::toolhold::host::types::Error;
use crate::guest::capability::bindings::toolhold::host::store as wit;
use crate::guest::capability::kept::{StoredData, StoredDataAccess};
use crate::guest::capability::{CallCapabilities, CallCapability, CallFacts};
use crate::guest::{CallState, HasState};

pub(crate) type StoreAccess = StoredDataAccess<Store>;

impl CallCapability for Option<StoreAccess> {
    type Grant = Arc<Store>;

    fn begin(grant: &Arc<Store>, facts: &CallFacts<'_>) -> Self {
        Some(StoredDataAccess::new(grant, facts.only_reads, &facts.call.report))
    }

    fn link(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
        wit::add_to_linker::<CallState, HasState>(linker, |state| state)
    }
}

impl StoredData for Store {
    const NAME: &'static str = "store";
    const KEYS: &'static str = "`store_mib`";

    fn access_of_call(capabilities: &CallCapabilities) -> Option<&StoredDataAccess<Self>> {
        capabilities.store.as_ref()
    }
}

impl wit::Host for &mut CallState {
    async fn get(&mut self, key: String) -> wasmtime::Result<Result<Option<Vec<u8>>, Error>> {
        Ok(self
            .in_stored_data(Access::Read, |store: &Arc<Store>, stop| store.get(&key, stop))
            .await)
    }

    async fn list(
        &mut self,
        prefix: String,
        cursor: Option<String>,
        limit: u32,
    ) -> wasmtime::Result<Result<wit::Page, Error>> {
        let listed = self
            .in_stored_data(Access::Read, |store: &Arc<Store>, stop| {
                store.list(&prefix, cursor.as_deref(), limit as usize, stop)
            })
            .await;
        let page = match listed {
            Ok(page) => page,
            Err(error) => return Ok(Err(error)),
        };
        let mut entries = Vec::with_capacity(page.entries.len());
        for entry in page.entries {
            entries.push(wit::Entry { key: entry.key, value: entry.value });
        }
        Ok(Ok(wit::Page { entries, cursor: page.cursor }))
    }

    // All changes are made if all expected values are present. If not, no change is made.
    async fn write(
        &mut self,
        expected: Vec<wit::Expectation>,
        changes: Vec<wit::Change>,
    ) -> wasmtime::Result<Result<bool, Error>> {
        let mut expected_values = Vec::with_capacity(expected.len());
        for entry in &expected {
            expected_values.push(KeyValue { key: &entry.key, value: entry.value.as_deref() });
        }
        let mut new_values = Vec::with_capacity(changes.len());
        for entry in &changes {
            new_values.push(KeyValue { key: &entry.key, value: entry.value.as_deref() });
        }
        Ok(self
            .in_stored_data(Access::Write, |store: &Arc<Store>, stop| {
                store.write(&expected_values, &new_values, stop)
            })
            .await)
    }
}
