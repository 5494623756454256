//! Components that know nothing of Toolhold: their exported functions as tools, with JSON for their
//! types.
//!
//! The types of a component become JSON Schemas. Arguments are converted into component values
//! before any code of the component runs, and answers back into JSON. Nothing here
//! makes a store or links anything.

mod asynchronous;
mod docs;
mod exports;
mod outline;
mod schema;
mod signature;
mod values;

pub use asynchronous::asynchronous_functions;
pub use docs::Docs;
pub use exports::{Functions, NoFunctionsError, ToolBounds};
pub use outline::{ComponentKind, Outline, OutlineError, name_from};
