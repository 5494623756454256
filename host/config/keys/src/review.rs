//! `[tools.adversarial_policy]`: the policies by which a model judges calls before they run.

use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::narrowing::{Narrowing, section};
use crate::string_types::{as_written, inline_schema};

/// Most policies: each is sent with every call.
pub const MAX_POLICIES: usize = 32;

/// Largest policy, in bytes.
const MAX_POLICY: usize = 500;

section! {
    /// A model that judges each call by rules in plain sentences, before it runs. It comes after
    /// all other rules: it sees only calls that they let pass, and it can only take away.
    pub struct AdversarialPolicy {
        /// Whether calls are judged. If they can't be, because no provider or no policy is
        /// written, each call that isn't exempt is refused.
        pub enabled: bool, Narrowing::InCeiling(&Narrowing::OnlyTrue);
        /// The table of `[providers]` whose model judges. Take another model than the one that
        /// acts.
        pub provider: String, Narrowing::Ignored;
        /// What calls must keep to, at most 32 sentences of 500 bytes each.
        #[schemars(extend("examples" = [["No call may delete data of customers."]]))]
        pub policies: Vec<PolicySentence>, Narrowing::InCeiling(&Narrowing::Adds);
        /// What happens to a call that the model denies.
        pub on_deny: OnReviewDenial, Narrowing::Stricter(&["deny", "ask"]);
        /// Milliseconds for the model's whole answer.
        pub timeout_ms: Bounded<100, 60_000> = Bounded::clamped(3000), Narrowing::Ignored;
        /// Whether a call runs if the model can't be asked or doesn't answer in time. Whoever can
        /// delay or break the connection can then have every call pass.
        pub fail_open: bool, Narrowing::OnlyFalse;
        /// Names of tools whose calls aren't judged.
        pub exempt_tools: Vec<String> = EXEMPT.iter().map(|name| (*name).to_owned()).collect(), Narrowing::Subset;
    }
}

/// Tools that only keep, find or load what belongs to the agent itself.
const EXEMPT: [&str; 5] =
    ["memory_save", "memory_search", "read_overflow", "load_skill", "schedule_deferred"];

/// What happens to a call that the model denies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum OnReviewDenial {
    /// It is refused.
    #[default]
    Deny,
    /// It needs approval. The person sees the model's reason.
    Ask,
}

/// A rule for a model, in a plain sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct PolicySentence(String);

as_written!(PolicySentence);
inline_schema!(
    PolicySentence,
    "PolicySentence",
    json_schema!({ "type": "string", "minLength": 1, "maxLength": MAX_POLICY })
);

/// A sentence that can't be a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicySentenceError {
    /// The policy has no words.
    #[error("the policy is empty; remove it")]
    Empty,
    /// The policy is too long.
    #[error("the policy is {0} bytes; the limit is {MAX_POLICY}")]
    Length(usize),
    /// The policy is more than a line.
    #[error("the policy has a line end or another control character")]
    Control,
}

impl TryFrom<String> for PolicySentence {
    type Error = PolicySentenceError;

    fn try_from(text: String) -> Result<Self, PolicySentenceError> {
        let bytes = text.len();
        if text.trim().is_empty() {
            Err(PolicySentenceError::Empty)
        } else if bytes > MAX_POLICY {
            Err(PolicySentenceError::Length(bytes))
        } else if text.contains(char::is_control) {
            Err(PolicySentenceError::Control)
        } else {
            Ok(Self(text))
        }
    }
}
