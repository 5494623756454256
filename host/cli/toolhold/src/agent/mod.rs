//! The commands of Toolhold's own agent (`toolhold run`, `toolhold chat`, `toolhold models`), and
//! the values that they share.

mod chat;
pub(crate) mod command;
mod full_screen;
mod history;
mod lenient;
mod models;
mod printer;
mod run;
mod scheduled;
mod sessions;
mod tools;
mod trust;
mod undo;
mod waiting;

use std::path::Path;
use std::sync::Arc;

use toolhold_agent::AgentError;
use toolhold_core::config::{Config, Folders};
use toolhold_core::{Approver, Host, HostError};
use toolhold_models::choice::{ChoiceError, FoundProviders};
use toolhold_skills::Skills;
use toolhold_terminal::error::CommandError;

use crate::options::Options;

pub(crate) use chat::chat;
pub(crate) use models::models;
pub(crate) use run::run;
pub(crate) use scheduled::{ScheduledEnd, run_scheduled};
pub(crate) use sessions::sessions;
pub(crate) use toolhold_agent::Delegates;
pub(crate) use tools::tools_for;

/// The values that all commands of the agent need.
pub(crate) struct Surroundings<'a> {
    /// The options of the command line.
    pub(crate) options: &'a Options,
    pub(crate) config: &'a Config,
    /// The providers that Toolhold found on this machine, which aren't in a configuration file.
    pub(crate) found: Option<FoundProviders>,
    pub(crate) folders: &'a Folders,
    pub(crate) directory: &'a Path,
    /// The name of the command in the audit log.
    pub(crate) front_end: &'static str,
    pub(crate) skills: Arc<Skills>,
    pub(crate) approver: Arc<dyn Approver>,
    /// The tool for sub-agents, or `None` if the agent can't delegate.
    pub(crate) delegates: Option<Arc<Delegates>>,
}

pub(crate) trait MakeHost: AsyncFnOnce() -> Result<Host, HostError> {}

impl<F: AsyncFnOnce() -> Result<Host, HostError>> MakeHost for F {}

/// Converts an error of the agent. An error in the command line or the configuration becomes a
/// usage error.
fn failed(error: AgentError, around: &Surroundings<'_>) -> CommandError {
    match error {
        AgentError::Choice(ChoiceError::Host(HostError::Config(why))) => CommandError::Usage(why),
        AgentError::Host(error) | AgentError::Choice(ChoiceError::Host(error)) => {
            CommandError::Host(error)
        }
        AgentError::Unknown(_) | AgentError::Running(_) | AgentError::Elsewhere { .. } => {
            CommandError::Usage(error.to_string())
        }
        AgentError::Choice(ChoiceError::NoProvider) => {
            CommandError::Usage(models::how_to_begin(around))
        }
        error => CommandError::Host(HostError::Config(error.to_string())),
    }
}
