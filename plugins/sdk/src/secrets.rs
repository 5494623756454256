//! Whether the operator set a secret for the plugin's requests.
//!
//! No plugin ever sees a secret. The configuration says where it comes from and where it may go.
//! The host puts it into the [requests](crate::http) that may carry it. A plugin can ask whether a
//! secret exists, and name the missing one instead of sending a request that the server refuses.

/// Whether the operator set a secret of this name for the plugin. In unit tests there are no
/// secrets.
pub fn exists(name: &str) -> bool {
    host::exists(name)
}

#[cfg(target_arch = "wasm32")]
use crate::contract::bindings::toolhold::host::secrets as host;

#[cfg(not(target_arch = "wasm32"))]
mod host {
    pub(super) fn exists(_name: &str) -> bool {
        false
    }
}
