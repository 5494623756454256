//! Berth's own agent: the loop, its sessions, and what models write.

mod agent;
mod calls;
mod context;
mod conversation;
mod ending;
mod error;
mod events;
mod outside;
mod record;
mod settings;
mod waiting;

pub use agent::Agent;
pub use ending::{EndKind, Ending, Spent};
pub use error::AgentError;
pub use events::{RunEvent, RunEvents};
pub use settings::AgentSettings;
