//! A small client of language servers (LSP), for plugins: where something is defined and used, what
//! it is, and which symbols there are.
//!
//! The server is a program of somebody else, which reads a project of somebody else. So everything
//! that it writes is bounded, and what it asks for is refused.
//!
//! A server outlives a call, and a plugin's instance doesn't: what the client knows of the server
//! is a [`ServerState`], which the plugin keeps for the next call.

mod client;
mod frames;
mod places;
mod transport;

pub use client::{Client, ServerState};
pub use places::{Place, Position, Symbol};
pub use transport::{LspError, Transport};
