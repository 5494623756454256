use berth_contract::{BoxFuture, CallId};
use berth_policy::{ActedOn, Decision};
use serde_json::Value;

use super::Fingerprint;

/// Asks a person, for a front end that can.
///
/// Nothing that a model wrote answers for a person: the reply comes from what the person does, and the arguments are only shown.
pub trait Approver: Send + Sync + 'static {
    /// Asks, and waits for the answer as long as it takes; waiting is no part of the call's time. Dropping the future takes the question
    /// back.
    fn ask(&self, question: Question) -> BoxFuture<'_, Reply>;
}

/// What a person is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The call.
    pub id: CallId,
    /// What a yes is bound to.
    pub fingerprint: Fingerprint,
    /// The tool's full name.
    pub tool: String,
    /// The plugin or provider that offers it.
    pub provider: String,
    /// What it acts on.
    pub subjects: Vec<ActedOn>,
    /// The arguments, whole. They may hold anything: mark what steers a terminal before it is shown.
    pub arguments: Value,
    /// What would change in a file, as a unified diff, where the host knows.
    pub diff: Option<String>,
    /// Why it is asked, and by which rule.
    pub decision: Decision,
    /// What `always` would write into the user's configuration. None: `always` can't be said.
    pub always: Option<String>,
}

/// What the person said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Yes, for so long.
    Yes {
        /// How long it holds.
        scope: Scope,
        /// Who said it.
        by: String,
    },
    /// No.
    No {
        /// Who said it.
        by: String,
    },
    /// Nobody could be asked, and why.
    Unasked(String),
}

/// How long a yes holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// For this one call.
    Once,
    /// For calls with the same fingerprint, as long as the session lives.
    Session,
    /// For good: it becomes a rule of the user's configuration.
    Always,
}

impl Scope {
    /// The name in JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Session => "session",
            Self::Always => "always",
        }
    }
}
