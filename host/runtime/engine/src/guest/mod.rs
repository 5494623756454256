//! The host's side of an instance: the WASI base and the functions that every plugin may import,
//! the conversions of the contract, and the state of the instance's call.

pub(crate) mod bindings;
pub(crate) mod contract;
pub(crate) mod convert;
mod host_functions;
pub(crate) mod linking;
pub(crate) mod state;
