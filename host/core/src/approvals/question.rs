use berth_answers::Scope;
use berth_contract::{BoxFuture, CallId};
use berth_policy::{Decision, ResolvedSubject};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Proposal, outdated};
use crate::fingerprint::Fingerprint;

/// The most that a person is shown of one question, in bytes. Nobody reads more before saying yes,
/// so a call that would take more is not asked about.
const MAX_SHOWN: usize = 64 * 1024;

/// Asks a person, for a front end that can.
///
/// Nothing that a model wrote answers for a person: the reply comes from what the person does, and
/// the arguments are only shown.
pub trait Approver: Send + Sync + 'static {
    /// Asks, and waits for the answer as long as it takes; waiting is no part of the call's time.
    /// Dropping the future takes the question back.
    fn ask(&self, question: Question) -> BoxFuture<'_, Reply>;

    /// Whether it waits for a person. Where it doesn't, since the answer was given beforehand or
    /// counts for another call, the record tells of no time that a person took.
    fn waits(&self) -> bool {
        true
    }
}

/// What a person is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The call.
    pub id: CallId,
    /// The session that the call belongs to.
    pub session: String,
    /// Who calls, where that is not the primary agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// What a yes is bound to.
    pub fingerprint: Fingerprint,
    /// The tool's full name.
    pub tool: String,
    /// The plugin or provider that offers it.
    pub provider: String,
    /// What it acts on.
    pub subjects: Vec<ResolvedSubject>,
    /// Names of the secrets that are put into the requests to the URLs it acts on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The arguments, whole. They may hold anything: mark what steers a terminal before it is
    /// shown.
    pub arguments: Value,
    /// What is handed over beside the arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<AttachmentSummary>,
    /// What would change in a file, where the host knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<Preview>,
    /// Why it is asked, and by which rule.
    pub decision: Decision,
    /// What `always` would write into the user's configuration, or why it can't be said.
    pub always: Always,
}

/// What a yes for good would write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Always {
    /// This rule.
    Writes(Proposal),
    /// Nothing: it can't be said, and why.
    Unavailable(String),
}

/// Something that is handed over beside the arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachmentSummary {
    /// What it says of itself.
    pub media_type: Option<String>,
    /// How long it is.
    pub bytes: usize,
    /// Its SHA-256, in hexadecimal digits.
    pub sha256: String,
    /// The whole of it, where it is text.
    pub text: Option<String>,
}

/// What a call would change in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preview {
    /// The file's real path.
    pub file: String,
    /// The SHA-256 of what it holds, in hexadecimal digits; where it isn't there, that of nothing.
    pub sha256: String,
    /// A unified diff. It may hold anything that a file can.
    pub diff: String,
    /// The arguments that the diff shows whole, by their names, so that they need not be shown
    /// again.
    pub shows: Vec<String>,
}

impl Question {
    /// The arguments that are to be shown: those that the preview does not show already.
    pub fn shown_arguments(&self) -> impl Iterator<Item = (&str, &Value)> {
        let hidden = self.preview.as_ref().map_or(&[][..], |preview| &preview.shows);
        let arguments = self.arguments.as_object().into_iter().flatten();
        arguments
            .map(|(name, value)| (name.as_str(), value))
            .filter(|(name, _)| !hidden.iter().any(|shown| shown == name))
    }

    /// Whether a person who has seen one question has seen the other: they differ in nothing but
    /// the call that asks.
    pub(super) fn shows_the_same(&self, other: &Self) -> bool {
        *self == Self { id: self.id.clone(), ..other.clone() }
    }

    /// Whether it is of the same call as another, which asked when the file that it changes held
    /// something else.
    pub(super) fn follows(&self, other: &Self) -> bool {
        let call = |question: &Self| Self {
            id: self.id.clone(),
            fingerprint: self.fingerprint,
            preview: None,
            always: Always::Unavailable(String::new()),
            ..question.clone()
        };
        self.fingerprint != other.fingerprint && self.preview.is_some() && call(self) == call(other)
    }

    /// Whether the file whose change it shows holds something else by now. It reads the file.
    pub(super) fn is_outdated(&self) -> bool {
        self.preview.as_ref().is_some_and(outdated::is_outdated)
    }

    /// Why a person can't be asked this: it takes more than anybody reads before saying yes.
    pub fn too_large(&self) -> Option<String> {
        let arguments: usize =
            self.shown_arguments().map(|(name, value)| name.len() + value.to_string().len()).sum();
        let attached: usize =
            self.attachments.iter().filter_map(|part| part.text.as_ref()).map(String::len).sum();
        let shown =
            arguments + attached + self.preview.as_ref().map_or(0, |preview| preview.diff.len());
        (shown > MAX_SHOWN).then(|| {
            format!(
                "the action takes {} KiB to show, and a prompt shows at most {}",
                shown / 1024 + 1,
                MAX_SHOWN / 1024
            )
        })
    }
}

/// What the person said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Yes, for so long.
    Yes {
        /// How long it holds.
        scope: Scope,
        /// Who said it.
        by: String,
    },
    /// No.
    No {
        /// Who said it.
        by: String,
    },
    /// Nobody could be asked: why, and what to do about it.
    Unasked(String),
}
