//! Which tools there are: the plugins by name and version, how one version takes the place of
//! another while calls run, and whether a call of a tool is valid: its name, its arguments, and the
//! paths that it acts on.

mod catalogue;
mod coerce;
mod context;
mod filter_chain;
pub mod plugins;
pub mod schema;
pub mod subjects;
mod tally;
pub mod validate;

pub use catalogue::{Catalogue, Tool};
pub use context::{Audience, CallContext};
pub use filter_chain::{Chain, Link};
pub use plugins::{CommandGate, Plugins, Policies};
pub use tally::Tally;
