//! Access to a plugin's store or index during a call.

use std::sync::Arc;

use toolhold_contract::{Access, Denial, Report};
use toolhold_store::{Stop, StoreError};

use crate::guest::CallState;
use crate::guest::bindings::toolhold::host::types::Error;
use crate::guest::capability::CallCapabilities;
use crate::guest::convert::host_error;

/// A kind of stored data of a plugin.
pub(crate) trait StoredData: Sized {
    const NAME: &'static str;
    /// The configuration keys that limit the data.
    const KEYS: &'static str;

    /// Returns the call's access to the data. Returns `None` without a grant.
    fn access_of_call(capabilities: &CallCapabilities) -> Option<&StoredDataAccess<Self>>;
}

/// A call's access to stored data of its plugin.
pub(crate) struct StoredDataAccess<D> {
    data: Arc<D>,
    /// Whether writes to stored data are refused. Read-only directories have no effect on this.
    read_only: bool,
    report: Arc<Report>,
}

impl<D> StoredDataAccess<D> {
    pub(crate) fn new(data: &Arc<D>, read_only: bool, report: &Arc<Report>) -> Self {
        Self { data: Arc::clone(data), read_only, report: Arc::clone(report) }
    }
}

impl CallState {
    /// Runs an operation on a thread that may block. A read-only call that requests
    /// [`Access::Write`] is denied.
    pub(crate) async fn in_stored_data<D: StoredData, T>(
        &mut self,
        access: Access,
        operation: impl FnOnce(&Arc<D>, &Stop) -> Result<T, StoreError>,
    ) -> Result<T, Error> {
        let name = D::NAME;
        let Some(stored) = D::access_of_call(&self.capabilities) else {
            // The instance has no call yet, or the plugin is only inspected.
            return Err(host_error("denied", format!("no {name} is granted to this plugin")));
        };
        if access == Access::Write && stored.read_only {
            let denial = Box::new(Denial {
                capability: name.to_owned(),
                action: format!("write to the {name}"),
                rule: format!("read-only tools can't write to the {name}"),
                place: "the tool's annotations".to_owned(),
                remedy: "The tool's author has to remove `read-only`.".to_owned(),
            });
            let message = denial.to_string();
            self.files.denials().remember(denial);
            return Err(host_error("denied", message));
        }
        // The answer depends on stored data, but a report lists only files.
        stored.report.mark_incomplete();
        let data = Arc::clone(&stored.data);

        let watch = &self.call.watch;
        watch.may_block().await;
        let stop = Stop { deadline: watch.deadline(), cancel: watch.cancel.clone() };
        operation(&data, &stop).map_err(|error| self.store_error::<D>(&error))
    }

    fn store_error<D: StoredData>(&self, error: &StoreError) -> Error {
        let name = D::NAME;
        match error {
            StoreError::Invalid(message) => host_error("invalid", message),
            StoreError::Limit(reached) => {
                let table = &self.call.table.name;
                host_error("limit", format!("{reached} ({} in [{table}])", D::KEYS))
            }
            StoreError::Unavailable { .. } => {
                // The plugin must not learn the path in the reason, so the reason goes only to the
                // log.
                tracing::warn!(plugin = &*self.call.plugin, "{error}");
                let message = format!("the {name} can't be used; see the host's log");
                host_error("unavailable", message)
            }
            StoreError::Busy => host_error(
                "busy",
                format!("other processes are writing to the {name}; repeat the call"),
            ),
            other => host_error("failed", other.to_string()),
        }
    }
}
