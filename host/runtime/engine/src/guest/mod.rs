//! The host's side of an instance: the interfaces that it may import, their functions, and the
//! state of its call.

pub(crate) mod access;
pub(crate) mod bindings;
mod child;
mod connection;
pub(crate) mod contract;
pub(crate) mod convert;
mod embeddings_functions;
mod host_functions;
pub(crate) mod http;
mod http_functions;
mod index_functions;
pub(crate) mod linking;
mod parts_functions;
mod process_functions;
mod schedule_functions;
mod search_functions;
mod service_functions;
pub(crate) mod state;
mod storage;
mod store_functions;
mod vector_search;
