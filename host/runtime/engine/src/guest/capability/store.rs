//! `toolhold:host/store` for guests: reads and writes keys and values of the plugin.

use std::sync::Arc;

use toolhold_store::{KeyValue, Store};
use wasmtime::component::Linker;

use crate::guest::bindings::toolhold::host::types::Error;
use crate::guest::capability::bindings::toolhold::host::store as wit;
use crate::guest::capability::kept::{KeptAccess, KeptData};
use crate::guest::capability::{CallCapabilities, CallCapability, CallFacts};
use crate::guest::{CallState, HasState};

/// The store of a call's plugin.
pub(crate) type StoreAccess = KeptAccess<Store>;

impl CallCapability for Option<StoreAccess> {
    type Grant = Arc<Store>;

    fn begin(grant: &Arc<Store>, facts: &CallFacts<'_>) -> Self {
        Some(KeptAccess::new(grant, facts.only_reads, &facts.call.report))
    }

    fn link(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
        wit::add_to_linker::<CallState, HasState>(linker, |state| state)
    }
}

impl KeptData for Store {
    const NAME: &'static str = "store";
    const KEYS: &'static str = "`store_mib`";

    fn of_call(capabilities: &CallCapabilities) -> Option<&KeptAccess<Self>> {
        capabilities.store.as_ref()
    }
}

impl wit::Host for &mut CallState {
    async fn get(&mut self, key: String) -> wasmtime::Result<Result<Option<Vec<u8>>, Error>> {
        Ok(self.in_kept(false, |store: &Arc<Store>, stop| store.get(&key, stop)).await)
    }

    async fn list(
        &mut self,
        prefix: String,
        cursor: Option<String>,
        limit: u32,
    ) -> wasmtime::Result<Result<wit::Page, Error>> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let page = self
            .in_kept(false, |store: &Arc<Store>, stop| {
                store.list(&prefix, cursor.as_deref(), limit, stop)
            })
            .await;
        Ok(page.map(|page| {
            let entries = page
                .entries
                .into_iter()
                .map(|entry| wit::Entry { key: entry.key, value: entry.value })
                .collect();
            wit::Page { entries, cursor: page.cursor }
        }))
    }

    async fn write(
        &mut self,
        expected: Vec<wit::Expectation>,
        changes: Vec<wit::Change>,
    ) -> wasmtime::Result<Result<bool, Error>> {
        let expected: Vec<_> = expected
            .iter()
            .map(|entry| KeyValue { key: &entry.key, value: entry.value.as_deref() })
            .collect();
        let changes: Vec<_> = changes
            .iter()
            .map(|entry| KeyValue { key: &entry.key, value: entry.value.as_deref() })
            .collect();
        Ok(self
            .in_kept(true, |store: &Arc<Store>, stop| store.write(&expected, &changes, stop))
            .await)
    }
}
