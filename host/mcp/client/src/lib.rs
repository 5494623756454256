//! Offers the tools of upstream MCP servers in a host.
//!
//! A server in `[mcp.servers]` is a program or a URL. A program runs in the sandbox of commands. A
//! URL is reached with the outbound client of the host. When a person approves a server, its
//! definitions are pinned. The host lists the pinned definitions, so starting a host starts no
//! server. The first call starts the server and compares its offers with the pins. Changed tools
//! are refused.
//!
//! All data of a server is untrusted. This crate limits the size, number and rate of messages, and
//! the size of lists, schemas and texts. The host treats a server's answers like those of a
//! third-party plugin.
//!
//! [`client_files`] reads and changes the configuration files of MCP clients.

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
mod hosts;
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

const START_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

/// Most tools of a server. Further tools aren't offered.
const MAX_TOOLS: usize = 256;

/// Most prompts, most resources and most templates of a server. Further ones aren't offered.
const MAX_OFFERS: usize = 256;

/// Largest definition of a tool as JSON text, in bytes. A larger one isn't offered.
const MAX_DEFINITION_BYTES: usize = 64 * 1024;

/// Largest list of definitions as JSON text, in bytes. Further definitions aren't offered.
const MAX_LIST_BYTES: usize = 1 << 20;
