//! The operator's secrets for requests to the network.
//!
//! No plugin ever sees one. The operator says in the configuration where a secret comes from and
//! where it may go, and the host puts it into the [requests](crate::http) that it is meant for. A
//! plugin can ask whether there is one, to say what is missing instead of running into a refusal of
//! the server's.

/// Whether the operator set a secret of this name for the plugin. In unit tests there are no
/// secrets.
pub fn exists(name: &str) -> bool {
    host::exists(name)
}

#[cfg(target_arch = "wasm32")]
use crate::guest::secrets as host;

#[cfg(not(target_arch = "wasm32"))]
mod host {
    pub(super) fn exists(_name: &str) -> bool {
        false
    }
}
