//! `[tools.policy]` and `[tools.authorization]`: rules for all tools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_policy::ExpressionError;

use crate::narrowing::{Narrowing, section};
use crate::{PathGlob, TrustLevel, WrittenPattern};

section! {
    /// Rules for all tools. A denial overrides every rule that allows. If there are rules that
    /// allow, a call passes only if one of them matches.
    pub struct PolicyRules {
        /// The rules, at most 256, in any order. A missing field of a rule matches everything. If
        /// there is a rule with `effect = "allow"`, a call that matches none of these rules is
        /// denied, except calls of `read_overflow` and the tools for jobs.
        pub rules: Vec<PolicyRule>, Narrowing::Denials("effect");
    }
}

section! {
    /// An older place for rules of `[tools.policy]`.
    pub struct Authorization {
        // An untrusted file can't set this key, because it could enable a rule that allows.
        /// Whether the rules are appended to those of `[tools.policy]`.
        pub enabled: bool, Narrowing::Ignored;
        /// The rules, as in `[tools.policy]`.
        pub rules: Vec<PolicyRule>, Narrowing::Denials("effect");
    }
}

/// One rule for all tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline, deny_unknown_fields)]
pub struct PolicyRule {
    /// Whether a matching call passes or is denied.
    pub effect: PolicyEffect,
    /// Names of tools, with wildcards. If empty, every tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<WrittenPattern>,
    /// Globs of paths that the call acts on, as in `deny_read`. If empty, all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathGlob>,
    /// The access of the call to these paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<PolicyAccess>,
    /// Tests of arguments. All tests must match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<ArgumentTest>,
    /// The plugin's trust level. A rule that allows matches this level and higher levels. A rule
    /// that denies matches this level and lower levels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<TrustLevel>,
    /// Phases of an agent's work, which the calling program sets. If empty, the rule applies in
    /// every phase.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PolicyPhase>,
}

/// The effect of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum PolicyEffect {
    /// The call may run.
    Allow,
    /// The call is denied.
    Deny,
}

/// The access of a call to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum PolicyAccess {
    /// The call reads the path.
    Read,
    /// The call creates, changes, moves or removes the path.
    Write,
}

/// A phase of an agent's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum PolicyPhase {
    /// The agent makes a plan.
    Planner,
    /// The agent carries out the plan.
    Executor,
    /// The agent checks the result.
    Verifier,
    /// The agent works without supervision.
    Autonomous,
}

/// A test of an argument: a `glob` or a `regex`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "LooseTest")]
#[schemars(inline, deny_unknown_fields)]
pub struct ArgumentTest {
    /// An RFC 6901 pointer into the arguments: `/path`.
    pub pointer: String,
    /// A pattern with wildcards, which is compared with the whole argument.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub glob: Option<WrittenPattern>,
    /// A regular expression that is searched for in the argument.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
}

/// A test of an argument before it is checked.
#[derive(Deserialize, JsonSchema)]
#[schemars(inline, deny_unknown_fields)]
struct LooseTest {
    /// An RFC 6901 pointer into the arguments: `/path`.
    pointer: String,
    /// A pattern with wildcards, which is compared with the whole argument.
    glob: Option<WrittenPattern>,
    /// A regular expression that is searched for in the argument.
    regex: Option<String>,
}

#[derive(Debug, thiserror::Error)]
enum ArgumentTestError {
    #[error("`{0}` isn't a pointer to an argument: a pointer starts with `/`, as in \"/path\"")]
    Pointer(String),
    #[error(transparent)]
    Expression(#[from] ExpressionError),
    #[error("a condition on an argument needs either a `glob` or a `regex`")]
    Comparison,
}

impl TryFrom<LooseTest> for ArgumentTest {
    type Error = ArgumentTestError;

    fn try_from(LooseTest { pointer, glob, regex }: LooseTest) -> Result<Self, ArgumentTestError> {
        if !pointer.starts_with('/') {
            return Err(ArgumentTestError::Pointer(pointer));
        }
        match (&glob, &regex) {
            (Some(_), None) => {}
            (None, Some(regex)) => {
                // The expression is compiled only to find its errors.
                toolhold_policy::expression(regex)?;
            }
            _ => return Err(ArgumentTestError::Comparison),
        }
        Ok(Self { pointer, glob, regex })
    }
}
