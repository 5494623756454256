//! What the operator can say about calls: permissions and policies.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

use super::PathGlob;
use super::rule::{Rule, section};

/// How much may happen without a person. What only reads is allowed within its grants, whatever
/// stands here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Autonomy {
    /// Nothing acts.
    ReadOnly,
    /// What acts asks a person, unless a permission allows it.
    #[default]
    Supervised,
    /// What acts is allowed, unless a permission asks or denies.
    Full,
}

/// How far a plugin is trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum TrustLevel {
    /// As what comes with Berth.
    Trusted,
    /// As what you have looked at.
    #[default]
    Verified,
    /// It may look, but neither act nor reach the world.
    Quarantined,
    /// It may do nothing.
    Blocked,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum PermissionAction {
    /// It runs.
    Allow,
    /// It runs if a person approves it.
    Ask,
    /// It doesn't run.
    Deny,
}

/// One rule of a tool: what it is about, and what becomes of that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline, deny_unknown_fields)]
pub struct PermissionRule {
    /// A glob over what the tool acts on.
    pub pattern: WrittenPattern,
    /// Whether the pattern is the very text that it matches: without wildcards, in the same case,
    /// and without what lies below. Only for what is allowed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub exact: bool,
    /// What becomes of it.
    pub action: PermissionAction,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// A text with wildcards: `*` stands for anything, `?` for one character.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrittenPattern(pub(super) String);

impl WrittenPattern {
    /// A pattern.
    ///
    /// # Errors
    ///
    /// Where it is empty or too long.
    pub fn new(pattern: impl Into<String>) -> Result<Self, String> {
        let pattern = pattern.into();
        berth_policy::TextGlob::new(&pattern)?;
        Ok(Self(pattern))
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for WrittenPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for WrittenPattern {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Pattern".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "maxLength": berth_policy::MAX_PATTERN })
    }
}

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
