//! The host's side of an instance: the interfaces that it may import, their functions, and the
//! state of its call.

pub(crate) mod bindings;
pub(crate) mod contract;
pub(crate) mod convert;
pub(crate) mod embeddings_functions;
mod host_functions;
pub(crate) mod http;
mod index_functions;
pub(crate) mod kept_functions;
pub(crate) mod linking;
pub(crate) mod near;
pub(crate) mod parts_functions;
mod process_functions;
pub(crate) mod schedule_functions;
mod search_functions;
mod service_functions;
pub(crate) mod state;
mod store_functions;
