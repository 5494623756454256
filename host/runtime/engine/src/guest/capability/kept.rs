//! Gives a guest access to its store or index. Refuses access without a grant, refuses writes of
//! read-only calls, and explains failed operations.

use std::sync::Arc;

use toolhold_contract::{Denial, Report};
use toolhold_store::{Stop, StoreError};

use crate::guest::CallState;
use crate::guest::bindings::toolhold::host::types::Error;
use crate::guest::capability::CallCapabilities;
use crate::guest::convert::host_error;

/// A kind of what plugins keep.
pub(crate) trait KeptData: Sized {
    /// The name of the capability.
    const NAME: &'static str;
    /// The configuration keys that limit this kind of data.
    const KEYS: &'static str;

    /// Returns the data of a call's plugin, or `None` if the call has no grant for this kind.
    fn of_call(capabilities: &CallCapabilities) -> Option<&KeptAccess<Self>>;
}

/// The data of one kind that a call's plugin keeps between its calls.
pub(crate) struct KeptAccess<D> {
    data: Arc<D>,
    /// Whether the call may not write. This flag is independent of read-only directories.
    read_only: bool,
    report: Arc<Report>,
}

impl<D> KeptAccess<D> {
    pub(crate) fn new(data: &Arc<D>, read_only: bool, report: &Arc<Report>) -> Self {
        Self { data: Arc::clone(data), read_only, report: Arc::clone(report) }
    }
}

impl CallState {
    /// Runs an operation on the plugin's stored data, on a thread that may block.
    pub(crate) async fn in_kept<D: KeptData, T>(
        &mut self,
        writes: bool,
        operation: impl FnOnce(&Arc<D>, &Stop) -> Result<T, StoreError>,
    ) -> Result<T, Error> {
        let name = D::NAME;
        let Some(access) = D::of_call(&self.capabilities) else {
            // The instance has no call yet, or the plugin was only loaded to be inspected.
            return Err(host_error("denied", format!("no {name} is granted to this plugin")));
        };
        if writes && access.read_only {
            let denial = Box::new(Denial {
                capability: name.to_owned(),
                action: format!("write to the {name}"),
                rule: format!("read-only tools can't write to the {name}"),
                place: "the tool's annotations".to_owned(),
                remedy: "The tool's author has to drop `read-only`.".to_owned(),
            });
            let message = denial.to_string();
            self.files.denials().remember(denial);
            return Err(host_error("denied", message));
        }
        // The host can't check whether an answer from stored data is still true.
        access.report.mark_incomplete();
        let data = Arc::clone(&access.data);
        let watch = &self.call.watch;
        watch.may_block().await;
        let stop = Stop { deadline: watch.deadline(), cancel: watch.cancel.clone() };
        operation(&data, &stop).map_err(|error| self.store_error::<D>(&error))
    }

    /// Converts an error of the plugin's data for the guest.
    fn store_error<D: KeptData>(&self, error: &StoreError) -> Error {
        let name = D::NAME;
        match error {
            StoreError::Invalid(message) => host_error("invalid", message),
            StoreError::Limit(reached) => {
                let table = &self.call.table.name;
                host_error("limit", format!("{reached} ({} in [{table}])", D::KEYS))
            }
            StoreError::Unavailable { .. } => {
                // The reason contains a path of the user. The plugin may not know this path.
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
