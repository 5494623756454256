//! The question to a person, the reply, and the trait of a front end that asks.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolhold_answers::Scope;
use toolhold_contract::{BoxFuture, CallId, Inquiry, InquiryAnswer, WantedHost};
use toolhold_policy::{Decision, ResolvedSubject, source_name};

use super::always::{Always, WiderRules};
use super::outdated;
use super::preview::Preview;
use crate::fingerprint::Fingerprint;

const KIB: usize = 1024;

/// Maximum length of a question in bytes. Nobody reads more before approving, so a call with a
/// longer question is denied.
const MAX_SHOWN: usize = 64 * KIB;

/// Asks a person. A front end that can reach a person implements this trait.
///
/// A model's text must never become the reply. Arguments are only shown.
pub trait Approver: Send + Sync + 'static {
    /// Asks the person and waits for the answer without a time limit. The call's own time limit
    /// doesn't run meanwhile. Dropping the future withdraws the question.
    fn ask(&self, question: Question) -> BoxFuture<'_, Reply>;

    /// Checks whether the approver waits for a person. If the approver answers at once, the audit
    /// log contains no waiting time.
    fn waits(&self) -> bool {
        true
    }

    /// Asks the person a tool's own question, and waits for the answer. Dropping the future
    /// withdraws the question.
    fn inquire(&self, _inquiry: Inquiry) -> BoxFuture<'_, InquiryAnswer> {
        let reason = "this front end can't ask".to_owned();
        Box::pin(std::future::ready(InquiryAnswer::Unanswered(reason)))
    }
}

/// A question about the approval of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The ID of the call.
    pub id: CallId,
    /// The session of the call.
    pub session: String,
    /// The name of the agent that makes the call. `None` means the primary agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// Identifies the calls that an approval applies to.
    pub fingerprint: Fingerprint,
    /// The tool's full name.
    pub tool: String,
    /// The source of the tool.
    pub provider: String,
    /// The paths, commands and URLs of the call.
    pub subjects: Vec<ResolvedSubject>,
    /// Whether the tool belongs to a component that wasn't written for Toolhold. It doesn't declare
    /// its subjects, so path rules can't be checked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
    /// The host that a program of the running call connects to. `None` if the question is about
    /// the call itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<WantedHost>,
    /// Names of the secrets that the host inserts into requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The complete arguments. They may contain characters that control a terminal, so escape them
    /// before showing them.
    pub arguments: Value,
    /// The attachments of the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<AttachmentSummary>,
    /// The change of a file, if the host can compute it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<Preview>,
    /// The decision that requires approval.
    pub decision: Decision,
    /// The rule that a permanent approval writes, or the reason why there is none.
    pub always: Always,
    /// Rules for approvals of more calls. `None` means that only this call can be approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wider: Option<WiderRules>,
}

/// An attachment of a call.
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
    /// Returns the name of the plugin or server, as in the tool's name.
    pub fn source(&self) -> &str {
        source_name(&self.provider)
    }

    /// Returns the arguments that the preview doesn't show.
    pub fn shown_arguments(&self) -> impl Iterator<Item = (&str, &Value)> {
        let hidden: &[String] = match &self.preview {
            Some(preview) => &preview.shows,
            None => &[],
        };
        let arguments = self.arguments.as_object().into_iter().flatten();
        arguments
            .map(|(name, value)| (name.as_str(), value))
            .filter(|(name, _)| !hidden.iter().any(|hidden_name| hidden_name == name))
    }

    /// Checks whether two questions differ only in the ID of the call.
    pub(super) fn shows_the_same(&self, other: &Self) -> bool {
        *self == Self { id: self.id.clone(), ..other.clone() }
    }

    /// Checks whether `older` is about the same call with an older state of the previewed file.
    pub(super) fn is_update_of(&self, older: &Self) -> bool {
        // The fingerprint contains the state of the file, so it differs after a change of the file.
        if self.fingerprint == older.fingerprint || self.preview.is_none() {
            return false;
        }
        // Only the fields that depend on the state of the file may differ.
        let updated = Self {
            id: self.id.clone(),
            fingerprint: self.fingerprint,
            preview: self.preview.clone(),
            always: self.always.clone(),
            wider: self.wider.clone(),
            ..older.clone()
        };
        *self == updated
    }

    /// Checks whether the file in the preview has changed. Reads the file.
    pub(super) fn is_outdated(&self) -> bool {
        self.preview.as_ref().is_some_and(outdated::is_outdated)
    }

    /// Returns an error message if the question is too long for a person to read, or else `None`.
    pub fn too_large(&self) -> Option<String> {
        let mut bytes = 0;
        for (name, value) in self.shown_arguments() {
            bytes += name.len() + value.to_string().len();
        }
        for attachment in &self.attachments {
            bytes += attachment.text.as_ref().map_or(0, String::len);
        }
        bytes += self.preview.as_ref().map_or(0, |preview| preview.diff.len());
        if bytes <= MAX_SHOWN {
            return None;
        }
        // The length is rounded up, so that the message shows a length above the limit.
        let kib = bytes / KIB + 1;
        Some(format!(
            "the call is {kib} KiB, too large to show; the limit is {} KiB",
            MAX_SHOWN / KIB
        ))
    }
}

/// The answer of a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The call is approved.
    Yes {
        /// How long the approval is valid.
        scope: Scope,
        /// The person who answered.
        by: String,
    },
    /// The call is denied.
    No {
        /// The person who answered.
        by: String,
        /// The person's reason and advice for the agent. Empty if the person gave no reason.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// The reason why nobody was asked, and the remedy.
    Unasked(String),
}
