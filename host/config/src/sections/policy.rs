//! `[tools.policy]` and `[tools.authorization]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rule::{Rule, section};
use crate::{PathGlob, TrustLevel, WrittenPattern};

section! {
    /// Rules over all tools. A denial wins, whatever else allows; where a rule allows, nothing
    /// passes that none of those matches.
    pub struct PolicyRules {
        /// The rules, at most 256, in no order that matters. What a rule doesn't say matches
        /// anything. One with `effect = "allow"` makes the set a list of all that may run: what
        /// none of those matches is refused, all but `read_overflow`.
        pub rules: Vec<PolicyRule>, Rule::Denials("effect");
    }
}

section! {
    /// More rules over all tools, for those who keep who may do what apart from what may be done at
    /// all. They can only take away too.
    pub struct Authorization {
        /// Whether the rules count.
        pub enabled: bool, Rule::OnlyTrue;
        /// The rules, as in `[tools.policy]`.
        pub rules: Vec<PolicyRule>, Rule::Denials("effect");
    }
}

/// One rule over all tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline, deny_unknown_fields)]
pub struct PolicyRule {
    /// Whether what matches is let pass or refused.
    pub effect: PolicyEffect,
    /// Names of tools, with wildcards; where empty, every tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<WrittenPattern>,
    /// Globs over the paths that are acted on, as in `deny_read`; where empty, whatever is acted
    /// on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathGlob>,
    /// How they are acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<PolicyAccess>,
    /// What has to stand in arguments, in all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<ArgumentTest>,
    /// Of a rule that allows: what is trusted at least so far; of one that denies: what is trusted
    /// no further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<TrustLevel>,
    /// Parts of an agent's work, as the program says that calls; where empty, any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PolicyPhase>,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum PolicyEffect {
    /// Lets pass.
    Allow,
    /// Refuses.
    Deny,
}

/// How something is acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum PolicyAccess {
    /// It is looked at.
    Read,
    /// It is made, changed, moved or removed.
    Write,
}

/// A part of an agent's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum PolicyPhase {
    /// It makes a plan.
    Planner,
    /// It carries the plan out.
    Executor,
    /// It looks at what came of it.
    Verifier,
    /// It works on its own account.
    Autonomous,
}

/// What has to stand in an argument: one of both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "LooseTest")]
#[schemars(inline, deny_unknown_fields)]
pub struct ArgumentTest {
    /// An RFC 6901 pointer into the arguments: `/path`.
    pub pointer: String,
    /// A text with wildcards, compared with the whole argument.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub glob: Option<WrittenPattern>,
    /// A regular expression, looked for anywhere in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
}

/// The same before anybody has looked at it.
#[derive(Deserialize, JsonSchema)]
#[schemars(inline, deny_unknown_fields)]
struct LooseTest {
    /// An RFC 6901 pointer into the arguments: `/path`.
    pointer: String,
    /// A text with wildcards, compared with the whole argument.
    glob: Option<WrittenPattern>,
    /// A regular expression, looked for anywhere in it.
    regex: Option<String>,
}

impl TryFrom<LooseTest> for ArgumentTest {
    type Error = String;

    fn try_from(LooseTest { pointer, glob, regex }: LooseTest) -> Result<Self, String> {
        if !pointer.starts_with('/') {
            return Err(format!(
                "`{pointer}` is no pointer to an argument; it begins with `/`, as in \"/path\""
            ));
        }
        match (&glob, &regex) {
            (Some(_), None) => {}
            (None, Some(regex)) => drop(berth_policy::expression(regex)?),
            _ => return Err("an argument is compared with either a `glob` or a `regex`".to_owned()),
        }
        Ok(Self { pointer, glob, regex })
    }
}
