//! The `ToolSource` trait, which everything implements that offers tools to the host.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{BoxFuture, Call, Definition, Failure, Offers, Output};

/// The result of a call: the tool's output or its failure.
pub type Outcome = Result<Output, Failure>;

/// A source of tools: the plugin runtime, the client of a server, code of the embedding program.
///
/// The host has resolved, validated and allowed a call before a provider sees it, and shapes its
/// result. The provider keeps the call's [`time`](Call::time), stops when the call is cancelled,
/// bounds what it collects, and passes no untrusted text to [`Events`](crate::Events) that isn't
/// [neutralised](crate::text::neutral).
pub trait ToolSource: Send + Sync + 'static {
    /// Returns the provider's name in messages.
    fn name(&self) -> &str;

    /// Returns the tools. The host asks once, when it is built. Each name is unique in the host,
    /// and has at most 64 of `[a-z0-9_-]`.
    fn tools(&self) -> Vec<Arc<Definition>>;

    /// Checks whether somebody else than the operator and the program wrote the tools, such as a
    /// server of the Model Context Protocol. Then the source's texts are untrusted, and the source
    /// promises that a person has approved its definitions and that their schemas compile.
    fn is_third_party(&self) -> bool {
        false
    }

    /// Returns the offers of the source next to its tools. The host asks once, when it is built.
    fn offers(&self) -> Offers {
        Offers::default()
    }

    /// Returns the state of the program behind the tools. Returns `None` if there is no such
    /// program.
    fn state(&self) -> Option<ToolSourceState> {
        None
    }

    /// Returns the name and version of the program that runs the tools, for the record of a call.
    fn version(&self) -> Option<String> {
        None
    }

    /// Checks whether calls of the source make other calls of the host while they run, such as the
    /// calls of an agent that a tool starts. Then the host keeps the state that the other calls
    /// need.
    fn makes_calls(&self) -> bool {
        false
    }

    /// Runs one call of one of its tools, [`Call::tool`]. Dropping the future cancels it.
    fn call(&self, call: Call) -> BoxFuture<'_, Outcome>;
}

/// The state of the program behind a provider's tools, for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSourceState {
    /// The provider's name.
    pub provider: String,
    /// The program's current state.
    pub state: ProgramState,
    /// The last fault that hasn't been followed by a success, or that needs a person.
    pub problem: Option<String>,
    /// The command that helps, if one does.
    #[serde(default)]
    pub remedy: Option<String>,
    /// The last lines of its standard error, neutralised.
    pub complaint: String,
}

/// The state of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum ProgramState {
    /// The program doesn't run. The next call starts it.
    Idle,
    /// The program is starting, or lists its tools.
    Starting,
    /// The program has run for these seconds.
    Running {
        /// The seconds.
        seconds: u64,
    },
    /// The program failed. Calls fail at once for these seconds.
    Paused {
        /// The seconds.
        seconds: u64,
    },
}
