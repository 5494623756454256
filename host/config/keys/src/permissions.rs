//! `[tools.permissions]`: the rules of single tools that allow, ask or deny.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use toolhold_policy::{PatternLengthError, TextGlob};

/// One rule of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline, deny_unknown_fields)]
pub struct PermissionRule {
    /// A glob that is compared with the subject of the call.
    pub pattern: WrittenPattern,
    /// Whether the pattern is compared literally: without wildcards, case-sensitive, and without
    /// files below a directory. This field is only for rules that allow.
    #[serde(default, skip_serializing_if = "is_false")]
    pub exact: bool,
    /// The decision about the call.
    pub action: PermissionAction,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// The decision about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum PermissionAction {
    /// The call runs.
    Allow,
    /// The call needs approval.
    Ask,
    /// The call is denied.
    Deny,
}

/// A pattern with wildcards: `*` matches any text, and `?` matches one character.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrittenPattern(pub(crate) String);

impl WrittenPattern {
    /// Creates a pattern.
    ///
    /// # Errors
    ///
    /// Fails if the pattern is empty or too long.
    pub fn new(pattern: impl Into<String>) -> Result<Self, PatternLengthError> {
        let pattern = pattern.into();
        TextGlob::new(&pattern)?;
        Ok(Self(pattern))
    }

    /// Returns the text as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Checks whether the pattern matches the whole text. Case is ignored.
    pub fn matches(&self, text: &str) -> bool {
        TextGlob::new(&self.0).is_ok_and(|glob| glob.matches(text))
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
        json_schema!({ "type": "string", "minLength": 1, "maxLength": toolhold_policy::MAX_PATTERN })
    }
}
