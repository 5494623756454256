//! The tools of a host. This crate replaces versions of plugins while calls run. It also checks the
//! tool name, the arguments and the paths of each call.

mod catalogue;
mod coerce;
mod context;
mod filter_chain;
#[cfg(test)]
mod fuzz_tests;
mod git_aliases;
pub mod plugins;
pub mod schema;
pub mod subjects;
mod tally;
mod tasks;
pub mod validate;

pub use catalogue::{Catalogue, Tool};
pub use context::{Audience, CallContext};
pub use filter_chain::{Chain, Link};
pub use plugins::{CommandGate, GrantResolver, Plugins};
pub use tally::Tally;
pub use tasks::Tasks;
