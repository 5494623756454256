//! Components without Toolhold's interfaces. Their exported functions become tools.
//!
//! The types of a component become JSON Schemas. Arguments are converted to component values before
//! code of the component runs, and answers are converted to JSON. This module makes no stores and
//! links nothing.

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
