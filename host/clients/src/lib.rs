//! The clients of MCP: where each keeps its servers, and how a server is added there.

mod edit;
mod known;

pub use edit::edit;
pub use known::{CLIENTS, Client, Format, ServerConfig};
