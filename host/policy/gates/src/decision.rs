//! The decision of a gate: allow, ask or deny, with the rule that made it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use toolhold_contract::Denial;

/// Whether a call may run. Later variants are more severe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The call may run.
    Allow,
    /// The call may run after a person approves it.
    Ask,
    /// The call may not run.
    Deny,
}

impl Verdict {
    /// Returns the name in configuration, JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// A gate: one step of the decision on a call. The variants are in the order of the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// `enabled = false` in `[tools]`, `[tools.file]` or `[plugins.NAME]`.
    Switches,
    /// `blocked_commands` in `[tools.shell]`, the commands that never run.
    Blocklist,
    /// The directories that a plugin is granted, and the rules for files.
    Grants,
    /// The rules of the organisation.
    Ceiling,
    /// `[tools.policy]`.
    Policy,
    /// `[tools.permissions.TOOL]`.
    Permissions,
    /// `[tools] autonomy`.
    Autonomy,
    /// The damage that a command can do.
    Risk,
    /// `[tools.shell] network`.
    Network,
    /// The hosts that the web tools may request, and that programs of commands may connect to.
    Hosts,
    /// How far the plugin and the caller are trusted.
    Trust,
    /// `[tools.dependencies]`.
    Dependencies,
    /// `[tools.adversarial_policy]`. A model judges calls.
    Review,
    /// The number of calls in one session.
    Quota,
    /// The number of acting calls in one hour.
    Rate,
}

impl Gate {
    /// Returns the name in JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Switches => "switches",
            Self::Blocklist => "blocklist",
            Self::Grants => "grants",
            Self::Ceiling => "ceiling",
            Self::Policy => "policy",
            Self::Permissions => "permissions",
            Self::Autonomy => "autonomy",
            Self::Risk => "risk",
            Self::Network => "network",
            Self::Hosts => "hosts",
            Self::Trust => "trust",
            Self::Dependencies => "dependencies",
            Self::Review => "review",
            Self::Quota => "quota",
            Self::Rate => "rate",
        }
    }
}

/// A decision, and the rule that made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Whether the call may run.
    pub verdict: Verdict,
    /// Gate of the rule that decided.
    pub gate: Gate,
    /// The rule as written: `pattern = "src/**", action = "allow"`.
    pub rule: Cow<'static, str>,
    /// Where the rule is written: `[tools.permissions.write] in
    /// /home/u/.config/toolhold/toolhold.toml, line 7`, or `built in`.
    pub place: Cow<'static, str>,
    /// The configuration line that would change the decision, or the reason why no line can.
    pub remedy: Cow<'static, str>,
}

impl Decision {
    /// Returns the denial of a path by the grants of a plugin.
    pub fn from_grants(denial: &Denial) -> Self {
        Self {
            verdict: Verdict::Deny,
            gate: Gate::Grants,
            rule: Cow::Owned(denial.rule.clone()),
            place: Cow::Owned(denial.place.clone()),
            remedy: Cow::Owned(denial.remedy.clone()),
        }
    }

    /// Returns the decision as a denial of `action`, such as `write /etc/passwd`.
    pub fn denial(&self, action: impl Into<String>) -> Denial {
        Denial {
            capability: self.gate.as_str().to_owned(),
            action: action.into(),
            rule: self.rule.clone().into_owned(),
            place: self.place.clone().into_owned(),
            remedy: self.remedy.clone().into_owned(),
        }
    }
}
