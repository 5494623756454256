//! What the gates answer with.

use std::borrow::Cow;

use berth_contract::Denial;
use serde::{Deserialize, Serialize};

/// What is to become of a call. The later, the more severe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It may run.
    Allow,
    /// It may run if a person approves it.
    Ask,
    /// It may not run.
    Deny,
}

impl Verdict {
    /// The name in configuration, JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// A place where a call is decided on, in the order in which a call comes to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// `enabled = false` in `[tools]`, `[tools.file]` or `[plugins.NAME]`.
    Switches,
    /// Commands that never run.
    Blocklist,
    /// The directories that the plugin is granted, and the file rules.
    Grants,
    /// The organisation's rules.
    Ceiling,
    /// `[tools.policy]`.
    Policy,
    /// `[tools.authorization]`.
    Authorization,
    /// `[tools.permissions.TOOL]`.
    Permissions,
    /// `[tools] autonomy`.
    Autonomy,
    /// What a command may break.
    Risk,
    /// Whether commands reach the network.
    Network,
    /// The hosts that the web tools go to.
    Hosts,
    /// How far what asks for the call is trusted.
    Trust,
    /// `[tools.dependencies]`.
    Dependencies,
    /// Calls of one session.
    Quota,
    /// Acting calls in one hour.
    Rate,
}

impl Gate {
    /// The name in JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Switches => "switches",
            Self::Blocklist => "blocklist",
            Self::Grants => "grants",
            Self::Ceiling => "ceiling",
            Self::Policy => "policy",
            Self::Authorization => "authorization",
            Self::Permissions => "permissions",
            Self::Autonomy => "autonomy",
            Self::Risk => "risk",
            Self::Network => "network",
            Self::Hosts => "hosts",
            Self::Trust => "trust",
            Self::Dependencies => "dependencies",
            Self::Quota => "quota",
            Self::Rate => "rate",
        }
    }
}

/// What was decided, and by what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// What is to become of the call.
    pub verdict: Verdict,
    /// The gate whose rule decided.
    pub gate: Gate,
    /// The rule, as it is written: `pattern = "src/**", action = "allow"`.
    pub rule: Cow<'static, str>,
    /// Where it stands: `[tools.permissions.write] in /home/u/.config/berth/berth.toml, line 7`, or
    /// `built in`.
    pub place: Cow<'static, str>,
    /// The line that would change it, or why nothing can.
    pub remedy: Cow<'static, str>,
}

impl Decision {
    /// What the grants of a plugin refuse, which is decided where paths are resolved.
    pub fn from_grants(denial: &Denial) -> Self {
        let text = |text: &str| Cow::Owned(text.to_owned());
        Self {
            verdict: Verdict::Deny,
            gate: Gate::Grants,
            rule: text(&denial.rule),
            place: text(&denial.place),
            remedy: text(&denial.remedy),
        }
    }

    /// The decision as a refusal of `action`: what was to be done to what.
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
