//! Serves the tools of a [`Host`](toolhold_core::Host) to clients of the Model Context Protocol.
//!
//! A [`Server`] serves one or more clients, in the protocol's revisions from 2025-03-26 to
//! 2026-07-28. It only translates between the host and the protocol, and makes no decisions on
//! calls.
//!
//! [`serve_stdio`] serves the client that started this process. [`serve_http`] serves clients over
//! a port or a Unix socket.

mod admission;
mod answer;
mod approver;
mod calls;
mod envelope;
mod error;
mod extras;
#[cfg(test)]
mod fuzz_tests;
mod http;
mod inquire;
mod lines;
mod live;
mod meta;
mod metrics;
mod parked;
mod progress;
mod prompts;
mod resources;
mod server;
mod server_offers;
mod stdio;
mod tasks;
mod tools;

pub use error::ServeError;
pub use extras::Extras;
pub use http::{
    BuildHost, BuiltHost, Http, ListenAddress, ListenAddressError, LocalTokens, NewToken,
    OpenPrincipal, PrincipalError, Principals, TokenError, TokenRecord, problems, serve_http,
    webhook_problem,
};
pub use live::LiveHost;
/// The types of the protocol in [`Extras`].
pub use rmcp::{ErrorData, model};
pub use server::Server;
pub use stdio::serve_stdio;
