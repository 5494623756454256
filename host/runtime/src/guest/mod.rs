//! What an instance sees and holds: the interfaces that it may import, the host's side of each, and
//! the state of its one call.

pub(crate) mod bindings;
pub(crate) mod convert;
mod host_functions;
pub(crate) mod http;
pub(crate) mod linking;
mod output;
mod process_functions;
mod search_functions;
pub(crate) mod state;
pub(crate) mod wasi;
