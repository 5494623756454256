//! The clients of MCP: where each keeps its servers, and how a server is added there.

mod cached;
mod edit;
mod known;

pub use cached::runner;
pub use edit::edit;
pub use known::{CLIENTS, Client, Format, ServerConfig};
