//! The commands of Berth's own agent: `berth run`, `berth chat`, `berth sessions`, `berth models`.

mod arguments;
mod chat;
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

use std::path::Path;
use std::sync::Arc;

use berth_agent::AgentError;
use berth_choice::ChoiceError;
use berth_core::config::{Folders, Loaded};
use berth_core::{Approver, Host, HostError};
use berth_skills::Skills;
use berth_terminal::error::CommandError;

pub use arguments::{ChatArguments, ModelsArguments, PhaseName, RunArguments, SessionsCommand};
pub use berth_agent::Delegates;
pub use chat::chat;
pub use models::models;
pub use run::run;
pub use scheduled::{ScheduledEnd, run_scheduled};
pub use sessions::sessions;
pub use tools::tools_for;

/// What a command works in.
pub struct Surroundings<'a> {
    /// The configuration.
    pub config: &'a Loaded,
    /// Berth's folders.
    pub folders: &'a Folders,
    /// The working directory.
    pub directory: &'a Path,
    /// The command, in the records of its requests.
    pub front_end: &'static str,
    /// The skills that there are.
    pub skills: Arc<Skills>,
    /// Who is asked if a call needs approval.
    pub approver: Arc<dyn Approver>,
    /// What the agent hands work on with. `None`: it doesn't.
    pub delegates: Option<Arc<Delegates>>,
}

/// Makes the host, once it is needed.
pub trait MakeHost: AsyncFnOnce() -> Result<Host, HostError> {}

impl<F: AsyncFnOnce() -> Result<Host, HostError>> MakeHost for F {}

/// An error of the agent as one of a command.
async fn failed(error: AgentError, around: &Surroundings<'_>) -> CommandError {
    match error {
        // Nothing began: no model is chosen, or it can't be.
        AgentError::Choice(ChoiceError::Host(HostError::Config(why))) => CommandError::Usage(why),
        AgentError::Host(error) | AgentError::Choice(ChoiceError::Host(error)) => {
            CommandError::Host(error)
        }
        AgentError::Unknown(_) | AgentError::Running(_) | AgentError::Elsewhere { .. } => {
            CommandError::Usage(error.to_string())
        }
        AgentError::Choice(ChoiceError::NoProvider) => {
            CommandError::Usage(models::how_to_begin(around).await)
        }
        error => CommandError::Host(HostError::Config(error.to_string())),
    }
}
