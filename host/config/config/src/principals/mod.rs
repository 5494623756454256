//! The principals: the callers of a server, each with rights of its own.

mod apply;
mod denied;
mod known;
mod problems;
mod template;

pub(crate) use apply::{Operator, Restricted, apply};
pub use denied::DeniedPrincipal;
pub use known::KnownPrincipal;
