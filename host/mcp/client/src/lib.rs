//! The tools of upstream servers of the Model Context Protocol, as sources of a host.
//!
//! A server of `[mcp.servers]` is a program or a URL. Toolhold starts a program in the sandbox of
//! commands, and communicates over the program's standard input and output. Toolhold reaches a URL
//! by the door for its own requests. A server's definitions are pinned when a person approves them.
//! The host lists the pinned definitions, so starting a host starts no server. A call starts the
//! server, compares the server's offers with the pins, and refuses tools that changed.
//!
//! All data from a server is untrusted. This crate limits messages, their number and rate, pages,
//! tools, schemas and texts. The host treats a server's answers like answers of a third-party
//! plugin.
//!
//! [`client_files`] reads and changes the files of MCP clients.

mod approval;
mod client;
pub mod client_files;
mod connection;
mod definitions;
mod events;
mod findings;
mod form;
#[cfg(test)]
mod fuzz_tests;
mod gate;
mod http;
mod inquiries;
mod launch;
mod listed_tools;
mod listing;
mod login;
mod masked;
mod naming;
mod oauth;
mod offers;
mod packages;
mod pins;
mod pipe;
mod program_end;
mod proposals;
mod reason;
mod recipes;
mod registry;
mod running;
mod server;

pub use approval::{
    HostState, Inspection, PackageDifference, ServerState, inspect, is_approved, states, unpinned,
};
pub use findings::findings;
pub use login::{LoginError, LoginPage, login};
pub use oauth::forget_tokens;
pub use packages::forget as forget_packages;
pub use pins::{PinnedOffers, PinnedTool, Pins, ToolDifference};
pub use proposals::{
    GrantProposal, ProposalContext, changed_keys, missing_secrets, proposals, with_proposals,
};
pub use registry::Servers;

/// Time for a server to start and to list its tools.
const START: std::time::Duration = std::time::Duration::from_secs(60);

/// Most tools of one server.
const MAX_TOOLS: usize = 256;

/// Most prompts, resources and templates of one server, each.
const MAX_OFFERS: usize = 256;

/// Most bytes of the definition of one tool, as JSON text.
const MAX_DEFINITION: usize = 64 * 1024;

/// Most bytes of all definitions of one server, as JSON text.
const MAX_DEFINITIONS: usize = 1 << 20;
