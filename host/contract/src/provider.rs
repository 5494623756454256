//! The `ToolSource` trait, which all sources of tools implement.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{BoxFuture, Call, Definition, Failure, Offers, Output};

/// The result of a call: the tool's output or its failure.
pub type Outcome = Result<Output, Failure>;

/// A source of tools, such as the plugin runtime, an MCP client or the embedding program.
///
/// The host resolves, validates and allows a call before the source gets it, and shapes the result.
/// The source must keep within the call's [`time`](Call::time), stop when the call is cancelled,
/// and limit its output. The source must [neutralise](crate::text::neutral) untrusted text for
/// [`Events`](crate::Events).
pub trait ToolSource: Send + Sync + 'static {
    /// Returns the source's name in messages.
    fn name(&self) -> &str;

    /// Returns the tools. The host calls this function once, when the host is built. Each name is
    /// unique in the host, with at most 64 characters of `[a-z0-9_-]`.
    fn tools(&self) -> Vec<Arc<Definition>>;

    /// Checks whether a third party wrote the tools, such as the author of an MCP server.
    ///
    /// The texts of a third-party source are untrusted. The source promises that a person has
    /// approved its definitions and that their schemas compile.
    fn is_third_party(&self) -> bool {
        false
    }

    /// Returns the source's prompts and resources. The host calls this function once, when the host
    /// is built.
    fn offers(&self) -> Offers {
        Offers::default()
    }

    /// Returns the state of the program behind the tools, or `None` for sources without a program.
    fn state(&self) -> Option<ToolSourceState> {
        None
    }

    /// Returns the name and version of the program that runs the tools, for the audit log.
    fn version(&self) -> Option<String> {
        None
    }

    /// Checks whether calls of the source make other calls of the host, such as a tool that starts
    /// an agent. The host then keeps the state that the other calls need.
    fn makes_calls(&self) -> bool {
        false
    }

    /// Runs one call of the tool [`Call::tool`]. Dropping the future cancels the call.
    fn call(&self, call: Call) -> BoxFuture<'_, Outcome>;
}

/// The state of the program behind a source's tools, for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSourceState {
    /// The source's name.
    pub provider: String,
    /// The program's current state.
    pub state: ProgramState,
    /// The last fault. A success clears the fault, unless a person has to fix it.
    pub problem: Option<String>,
    /// The command that solves the problem.
    #[serde(default)]
    pub remedy: Option<String>,
    /// The last lines of the program's standard error, neutralised.
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
    /// The program has been running for this number of seconds.
    Running {
        /// The seconds.
        seconds: u64,
    },
    /// The program failed. Calls fail at once for this number of seconds.
    Paused {
        /// The seconds.
        seconds: u64,
    },
}
