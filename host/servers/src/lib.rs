//! The tools of servers of the Model Context Protocol, as providers of a host.
//!
//! A server of `[mcp.servers]` is a program that Berth starts in the sandbox of commands and talks
//! to over its standard input and output. Its definitions were pinned when a person approved them,
//! and the pinned ones are what the host lists: starting a host starts no server. A call starts
//! it, compares what it offers with the pins, and refuses tools that changed.
//!
//! Everything that a server sends is hostile: messages, their number and rate, pages, tools,
//! schemas and texts are bounded here, and the host treats its answers like those of a third-party
//! plugin.

mod approval;
mod client;
mod commands;
mod connection;
mod definitions;
mod form;
mod inquiries;
mod listing;
mod naming;
mod offers;
mod pins;
mod pipe;
mod server;
mod written;

pub use approval::{Inspection, ServerState, inspect, states};
pub use commands::{approve, check_name, list};
pub use pins::{PinnedOffers, PinnedTool, Pins, ToolDifference};
pub use server::providers;
pub use written::{add, remove};

/// Most tools of one server.
const MAX_TOOLS: usize = 256;

/// Most prompts, resources and templates of one server, each.
const MAX_OFFERS: usize = 256;

/// Most bytes of the definition of one tool, as JSON text.
const MAX_DEFINITION: usize = 64 * 1024;

/// Most bytes of all definitions of one server, as JSON text.
const MAX_DEFINITIONS: usize = 1 << 20;
