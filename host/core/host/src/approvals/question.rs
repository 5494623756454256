//! The `Approver` that a front end implements, the question that it gets, and the reply.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolhold_answers::Scope;
use toolhold_contract::{BoxFuture, CallId, Inquiry, InquiryAnswer};
use toolhold_policy::{Decision, ResolvedSubject, source_name};

use super::always::{Always, Wider};
use super::outdated;
use super::preview::Preview;
use crate::fingerprint::Fingerprint;

/// Maximum size of a question in bytes. A person wouldn't read more before approving, so a call
/// with a larger question is denied.
const MAX_SHOWN: usize = 64 * 1024;

/// Asks a person. A front end that can reach a person implements this trait.
///
/// Text of a model must never be used as an answer. The reply comes from what the person does, and
/// the arguments are only shown.
pub trait Approver: Send + Sync + 'static {
    /// Asks the person and waits for the answer without a time limit. The wait isn't part of the
    /// call's time. Dropping the future withdraws the question.
    fn ask(&self, question: Question) -> BoxFuture<'_, Reply>;

    /// Tells whether the approver waits for a person. If the answer was given before, or is for
    /// another call, the record names no waiting time.
    fn waits(&self) -> bool {
        true
    }

    /// Asks the person a tool's own question during its call, and waits for the answer. Dropping
    /// the future withdraws the question.
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
    /// The agent that calls. `None` means the primary agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The call that an approval applies to.
    pub fingerprint: Fingerprint,
    /// The tool's full name.
    pub tool: String,
    /// The plugin or provider that offers the tool.
    pub provider: String,
    /// The paths, commands and addresses that the call acts on.
    pub subjects: Vec<ResolvedSubject>,
    /// Whether the tool belongs to a component that doesn't know Toolhold. The component doesn't
    /// declare the subjects of its calls, so rules about paths don't apply to them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
    /// Names of the secrets that are put into the requests to the URLs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The complete arguments, which may contain any characters. Escape characters that control a
    /// terminal before the arguments are shown.
    pub arguments: Value,
    /// The attachments of the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<AttachmentSummary>,
    /// The change of a file, if the host can compute it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<Preview>,
    /// The reason why approval is needed, and the rule that requires it.
    pub decision: Decision,
    /// The change that `always` makes in the user's configuration, or the reason why `always` isn't
    /// possible.
    pub always: Always,
    /// The approvals of more calls than this one. `None`: only this call can be approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wider: Option<Wider>,
}

/// An attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachmentSummary {
    /// The declared media type.
    pub media_type: Option<String>,
    /// The length in bytes.
    pub bytes: usize,
    /// The SHA-256 in hexadecimal digits.
    pub sha256: String,
    /// The whole text, if the attachment is text.
    pub text: Option<String>,
}

impl Question {
    /// Returns the name of the plugin or server that offers the tool, as in the tool's name.
    pub fn source(&self) -> &str {
        source_name(&self.provider)
    }

    /// Returns the arguments that the preview doesn't show already.
    pub fn shown_arguments(&self) -> impl Iterator<Item = (&str, &Value)> {
        let hidden = self.preview.as_ref().map_or(&[][..], |preview| &preview.shows);
        let arguments = self.arguments.as_object().into_iter().flatten();
        arguments
            .map(|(name, value)| (name.as_str(), value))
            .filter(|(name, _)| !hidden.iter().any(|shown| shown == name))
    }

    /// Checks whether two questions look the same to a person, which means that they differ only in
    /// the ID of the call.
    pub(super) fn shows_the_same(&self, other: &Self) -> bool {
        *self == Self { id: self.id.clone(), ..other.clone() }
    }

    /// Checks whether `other` is about the same call and an older state of the file that the call
    /// changes.
    pub(super) fn follows(&self, other: &Self) -> bool {
        if self.fingerprint == other.fingerprint || self.preview.is_none() {
            return false;
        }
        // These parts may differ. All other parts must be equal.
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

    /// Checks whether the file whose change the question shows has changed since. Reads the file.
    pub(super) fn is_outdated(&self) -> bool {
        self.preview.as_ref().is_some_and(outdated::is_outdated)
    }

    /// Returns the reason why this question can't be asked if it is too long for a person to read.
    /// Returns `None` if it can be asked.
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
        /// How long the approval is valid.
        scope: Scope,
        /// The person who answered.
        by: String,
    },
    /// Denied.
    No {
        /// The person who answered.
        by: String,
        /// The reason for the denial and advice for the agent. Empty if the person gave no reason.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// Nobody could be asked. The text has the reason and the remedy.
    Unasked(String),
}
