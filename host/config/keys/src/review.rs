//! `[tools.adversarial_policy]`: the policies that a model uses to judge calls before they run.

use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::narrowing::{Narrowing, section};
use crate::string_types::{as_written, inline_schema};

/// The most policies. Each policy is sent with every call.
pub const MAX_POLICIES: usize = 32;

/// Most bytes of a policy. Longer policies are refused.
const MAX_POLICY: usize = 500;

section! {
    /// A model that judges each call by rules in plain sentences before the call runs. The model
    /// gets only calls that passed all other rules, and can only deny them.
    pub struct AdversarialPolicy {
        /// Whether calls are judged. Without a provider or policies, every call that isn't exempt
        /// is denied.
        pub enabled: bool, Narrowing::InCeiling(&Narrowing::OnlyTrue);
        /// The table of `[providers]` whose model judges. Use a different model than the agent.
        pub provider: String, Narrowing::Ignored;
        /// The rules for calls: at most 32 sentences of 500 bytes each.
        #[schemars(extend("examples" = [["No call may delete data of customers."]]))]
        pub policies: Vec<PolicySentence>, Narrowing::InCeiling(&Narrowing::Adds);
        /// The treatment of a call that the model denies.
        pub on_deny: OnReviewDenial, Narrowing::Stricter(&["deny", "ask"]);
        /// Milliseconds for the model's whole answer.
        pub timeout_ms: Bounded<100, 60_000> = Bounded::clamped(3000), Narrowing::Ignored;
        /// Whether a call runs if the model can't be asked or doesn't answer in time. An attacker
        /// who can delay or break the connection can then pass every call.
        pub fail_open: bool, Narrowing::OnlyFalse;
        /// Tools whose calls aren't judged, by name.
        pub exempt_tools: Vec<String> = EXEMPT.iter().map(|name| (*name).to_owned()).collect(), Narrowing::Subset;
    }
}

/// Tools whose calls aren't judged by default, because they only save, find or load data of the
/// agent itself.
const EXEMPT: [&str; 5] =
    ["memory_save", "memory_search", "read_overflow", "load_skill", "schedule_deferred"];

/// The treatment of a call that the model denies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum OnReviewDenial {
    /// The call is denied.
    #[default]
    Deny,
    /// The call needs approval. The question shows the model's reason.
    Ask,
}

/// A rule for a model, as a plain sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct PolicySentence(String);

as_written!(PolicySentence);
inline_schema!(
    PolicySentence,
    "PolicySentence",
    json_schema!({ "type": "string", "minLength": 1, "maxLength": MAX_POLICY })
);

/// The reason why a sentence can't be a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicySentenceError {
    /// The policy has no words.
    #[error("the policy is empty; remove it")]
    Empty,
    /// The policy is too long.
    #[error("the policy is {0} bytes; the limit is {MAX_POLICY}")]
    Length(usize),
    /// The policy has a line end or another control character.
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
