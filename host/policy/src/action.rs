//! What is decided on: one call, as the gates see it.

use berth_contract::{Access, Annotations, SubjectKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A call before it runs.
#[derive(Clone, Copy, Debug)]
pub struct Action<'a> {
    /// The tool's full name.
    pub tool: &'a str,
    /// Its other names.
    pub aliases: &'a [String],
    /// The plugin or provider that offers it.
    pub provider: &'a str,
    /// Whether the tool is part of the program, and no plugin of a stranger's.
    pub built_in: bool,
    /// How the tool behaves, as far as that is believed: claims that relax something count only
    /// where they are enforced or approved.
    pub annotations: Annotations,
    /// What the call acts on, paths in the form that they really have.
    pub subjects: &'a [ResolvedSubject],
    /// Whether the tool is believed in what it acts on. Otherwise rules look at the whole call as
    /// well.
    pub subjects_believed: bool,
    /// The arguments, an object; its paths are absolute.
    pub arguments: &'a Value,
    /// How far what asks for the call is trusted. What the plugin is trusted less counts too.
    pub trust: Trust,
    /// In which part of an agent's work it is asked for.
    pub phase: Option<Phase>,
    /// Who calls, where that is not the primary agent.
    pub caller: Option<&'a str>,
}

impl Action<'_> {
    /// Whether it can change something, or reach somebody.
    pub fn acts(&self) -> bool {
        !self.annotations.read_only
    }

    /// Whether it neither acts nor reaches the world.
    pub fn is_harmless(&self) -> bool {
        self.annotations.read_only && !self.annotations.open_world
    }
}

/// Something that a call acts on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedSubject {
    /// What the text names.
    pub kind: SubjectKind,
    /// What is done to it.
    pub access: Access,
    /// The real path, the URL, the command, or the text.
    pub text: String,
}

/// How far a plugin, or what asks for a call, is trusted. The later, the less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// Part of Berth, or as good as that.
    #[default]
    Trusted,
    /// Looked at and approved.
    Verified,
    /// May look, but neither act nor reach the world.
    Quarantined,
    /// May do nothing.
    Blocked,
}

impl Trust {
    /// The name in configuration, JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::Verified => "verified",
            Self::Quarantined => "quarantined",
            Self::Blocked => "blocked",
        }
    }
}

/// A part of an agent's work. The embedding program says it; nothing infers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It makes a plan.
    Planner,
    /// It carries the plan out.
    Executor,
    /// It looks at what came of it.
    Verifier,
    /// It works on its own account, without a turn of a person's.
    Autonomous,
}

impl Phase {
    /// The name in configuration, JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Planner => "planner",
            Self::Executor => "executor",
            Self::Verifier => "verifier",
            Self::Autonomous => "autonomous",
        }
    }
}
