//! Toolhold's own agent: the loop, its sessions, and the text that models write.
//!
//! [`selection`] chooses the tools that a task needs. [`review`] asks a model to judge calls before
//! they run.

mod agent;
#[cfg(test)]
mod broken_sessions;
mod budget;
mod calls;
mod chosen;
mod context;
mod conversation;
mod correct;
mod delegate;
mod desk;
mod ending;
mod environment;
mod error;
mod events;
mod instructions;
mod live;
mod parts;
mod plausible;
mod record;
mod replay;
pub mod review;
mod schemas;
pub mod selection;
mod settings;
mod start;
#[cfg(test)]
mod testing;
mod think;
mod tokens;
mod utility;
mod vectors;
mod waiting;

pub use agent::Agent;
pub use delegate::Delegates;
pub use ending::{EndKind, Spent, TaskEnd};
pub use environment::{FileFinder, MAX_FOUND};
pub use error::AgentError;
pub use events::{QuestionAnswer, RunEvent, RunEvents, WiderApproval};
pub use instructions::{InstructionFile, find_instructions, remember_instructions};
pub use record::{
    Began, Compressed, CompressionMethod, Corrected, Delegated, EarlierMessage, Ended, Recorded,
    RecordedResult, Replacement, Rewound, SessionEntry, SessionFile, SessionStore, StoredSession,
    Task, read_entries,
};
pub use replay::RecordedSession;
pub use settings::{AgentSettings, CorrectorSettings};
pub use start::AgentStart;
