//! The `Approver` that a front end implements, the question that it gets, and the reply.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolhold_answers::Scope;
use toolhold_contract::{BoxFuture, CallId, Inquiry, InquiryAnswer};
use toolhold_policy::{Decision, ResolvedSubject};

use super::always::{Always, Wider};
use super::outdated;
use super::preview::Preview;
use crate::fingerprint::Fingerprint;

/// Largest size of a question in bytes. Nobody reads more before approving, so a call that needs
/// more can't be asked about.
const MAX_SHOWN: usize = 64 * 1024;

/// Asks a person; implemented by a front end that can.
///
/// Text of a model never answers for a person: the reply comes from what the person does, and the
/// arguments are only shown.
pub trait Approver: Send + Sync + 'static {
    /// Asks and waits for the answer without a limit; the wait doesn't count as the call's time.
    /// Dropping the future takes the question back.
    fn ask(&self, question: Question) -> BoxFuture<'_, Reply>;

    /// Tells whether the approver waits for a person. If the answer was given before, or is for
    /// another call, the record names no waiting time.
    fn waits(&self) -> bool {
        true
    }

    /// Puts a question of a tool's own to the person, in the middle of its call, and waits for the
    /// answer. Dropping the future takes the question back.
    fn inquire(&self, _inquiry: Inquiry) -> BoxFuture<'_, InquiryAnswer> {
        let reason = "this front end can't ask".to_owned();
        Box::pin(std::future::ready(InquiryAnswer::Unanswered(reason)))
    }
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// ID of the call.
    pub id: CallId,
    /// The session that the call belongs to.
    pub session: String,
    /// The agent that calls, unless it is the primary one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The call that an approval applies to.
    pub fingerprint: Fingerprint,
    /// The tool's full name.
    pub tool: String,
    /// The plugin or provider that offers it.
    pub provider: String,
    /// The paths, commands and addresses that the call acts on.
    pub subjects: Vec<ResolvedSubject>,
    /// Whether the tool belongs to a component that doesn't know Toolhold: it declares nothing that
    /// it acts on, so rules about paths don't see its calls.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
    /// Names of the secrets that are put into the requests to the URLs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The complete arguments. They can hold any characters: escape what steers a terminal before
    /// they are shown.
    pub arguments: Value,
    /// The attachments of the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<AttachmentSummary>,
    /// The change of a file, if the host knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<Preview>,
    /// Why approval is needed, and by which rule.
    pub decision: Decision,
    /// The effect of `always` on the user's configuration, or why it has no effect.
    pub always: Always,
    /// The approvals of more calls than this one. `None`: only this call can be approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wider: Option<Wider>,
}

/// An attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachmentSummary {
    /// Its declared type.
    pub media_type: Option<String>,
    /// Its length in bytes.
    pub bytes: usize,
    /// Its SHA-256, in hexadecimal digits.
    pub sha256: String,
    /// Its whole text, if it is text.
    pub text: Option<String>,
}

impl Question {
    /// Returns the arguments that the preview doesn't show already.
    pub fn shown_arguments(&self) -> impl Iterator<Item = (&str, &Value)> {
        let hidden = self.preview.as_ref().map_or(&[][..], |preview| &preview.shows);
        let arguments = self.arguments.as_object().into_iter().flatten();
        arguments
            .map(|(name, value)| (name.as_str(), value))
            .filter(|(name, _)| !hidden.iter().any(|shown| shown == name))
    }

    /// Checks whether two questions look the same to a person: they differ only in the ID of the
    /// call.
    pub(super) fn shows_the_same(&self, other: &Self) -> bool {
        *self == Self { id: self.id.clone(), ..other.clone() }
    }

    /// Checks whether another question is about the same call and an older state of the file that
    /// it changes.
    pub(super) fn follows(&self, other: &Self) -> bool {
        if self.fingerprint == other.fingerprint || self.preview.is_none() {
            return false;
        }
        // These parts may differ. All others have to be equal.
        let other = Self {
            id: self.id.clone(),
            fingerprint: self.fingerprint,
            preview: self.preview.clone(),
            always: self.always.clone(),
            wider: self.wider.clone(),
            ..other.clone()
        };
        *self == other
    }

    /// Checks whether the file whose change it shows has changed since. Reads the file.
    pub(super) fn is_outdated(&self) -> bool {
        self.preview.as_ref().is_some_and(outdated::is_outdated)
    }

    /// Returns the reason why this question can't be asked if it is longer than anyone reads before
    /// approving. Returns `None` if it can be asked.
    pub fn too_large(&self) -> Option<String> {
        let arguments: usize =
            self.shown_arguments().map(|(name, value)| name.len() + value.to_string().len()).sum();
        let attachments: usize =
            self.attachments.iter().filter_map(|part| part.text.as_ref()).map(String::len).sum();
        let preview = self.preview.as_ref().map_or(0, |preview| preview.diff.len());
        let shown = arguments + attachments + preview;
        if shown <= MAX_SHOWN {
            return None;
        }
        Some(format!(
            "the action is {} KiB; the limit of a prompt is {} KiB",
            shown / 1024 + 1,
            MAX_SHOWN / 1024
        ))
    }
}

/// The answer of a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Approved.
    Yes {
        /// How long the approval holds.
        scope: Scope,
        /// The person who answered.
        by: String,
    },
    /// Denied.
    No {
        /// The person who answered.
        by: String,
        /// The reason, and what to do instead, for the agent. Empty: none was given.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// Nobody could be asked: the reason and what to do about it.
    Unasked(String),
}
