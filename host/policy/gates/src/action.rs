//! The input of a decision: one call with its resolved subjects, its trust and its phase.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolhold_contract::{Access, Annotations, SubjectKind};

/// A call before it runs.
#[derive(Clone, Copy, Debug)]
pub struct Action<'a> {
    /// Full name of the tool.
    pub tool: &'a str,
    /// The aliases of the tool.
    pub aliases: &'a [String],
    /// The plugin or provider that offers the tool.
    pub provider: &'a str,
    /// Whether the tool is part of Toolhold, and not of a third-party plugin.
    pub built_in: bool,
    /// The behaviour of the tool. A promise that relaxes a rule is included only if the host
    /// enforces it or the operator approved it.
    pub annotations: Annotations,
    /// Whether the tool itself declares that it may destroy something.
    pub says_destructive: bool,
    /// The paths, commands and URLs that the call acts on. Paths are real paths.
    pub subjects: &'a [ResolvedSubject],
    /// Whether the tool is trusted to name all its subjects. If not, rules also check the whole
    /// call.
    pub subjects_trusted: bool,
    /// The arguments as a JSON object. Paths in it are absolute.
    pub arguments: &'a Value,
    /// Whether the arguments ask for the network.
    pub network: bool,
    /// The trust in the caller. If the trust in the plugin is lower, the lower trust applies.
    pub trust: Trust,
    /// Whether the caller doubts that a person intended the call. A doubtful call that acts or
    /// reaches the network needs approval.
    pub doubtful: bool,
    /// The part of the agent's work in which the call is made.
    pub phase: Option<Phase>,
    /// The name of the caller. `None` for the primary agent.
    pub caller: Option<&'a str>,
}

impl Action<'_> {
    /// Checks whether the call can change something.
    pub fn acts(&self) -> bool {
        !self.annotations.read_only
    }

    /// Checks whether the call neither acts nor reaches the network.
    pub fn is_harmless(&self) -> bool {
        self.annotations.read_only && !self.annotations.open_world
    }
}

/// Something that a call acts on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedSubject {
    /// Kind of `text`.
    pub kind: SubjectKind,
    /// The access to the subject that the call needs.
    pub access: Access,
    /// Real path, URL, command or text.
    pub text: String,
}

/// How far a plugin or a caller is trusted. Later variants are trusted less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// Part of Toolhold, or trusted like Toolhold.
    #[default]
    Trusted,
    /// Checked and approved.
    Verified,
    /// May read, but neither act nor reach the network.
    Quarantined,
    /// May not run at all.
    Blocked,
}

impl Trust {
    /// Returns the name in configuration, JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::Verified => "verified",
            Self::Quarantined => "quarantined",
            Self::Blocked => "blocked",
        }
    }
}

/// A part of an agent's work. The embedding program sets the phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The agent makes a plan.
    Planner,
    /// The agent carries the plan out.
    Executor,
    /// The agent checks the result.
    Verifier,
    /// The agent works without a message of a person.
    Autonomous,
}

impl Phase {
    /// Returns the name in configuration, JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Planner => "planner",
            Self::Executor => "executor",
            Self::Verifier => "verifier",
            Self::Autonomous => "autonomous",
        }
    }
}
