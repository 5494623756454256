//! A small client of language servers (LSP), for plugins: where something is defined and used, what
//! it is, and which symbols there are.
//!
//! The server is a program of somebody else, which reads a project of somebody else. So everything
//! that it writes is bounded, and what it asks for is refused.
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
