//! A small client of language servers (LSP), for plugins: where something is defined and used, what
//! it is, and which symbols there are.
//!
//! The server is untrusted, and reads an untrusted project. So its output is bounded, and its
//! requests are refused.
//!
//! A server outlives a call, and a plugin's instance doesn't: a client leaves no file open, so that
//! the next call needs to know nothing but that the server was [initialized](Client::initialize).

mod client;
mod frames;
mod places;
mod transport;

pub use client::Client;
pub use places::{Place, Position, Symbol};
pub use transport::{LspError, Transport};
