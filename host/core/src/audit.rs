//! The record of every call, as it is read.

use berth_config::{Folders, Loaded};
use berth_contract::HostError;

pub(crate) use berth_audit::Audit;
pub use berth_audit::{ChainHead, FilterStats, Finding, Follow, ToolStats, Trail, Verification};

use crate::approvals::{Question, Reply};

/// Records what a person said to a question that was left for them, when it is said: the call that
/// it is for may never be made. Blocks.
///
/// # Errors
///
/// [`HostError::Io`]: it can't be recorded, and so must not count.
pub fn said(
    config: &Loaded,
    folders: &Folders,
    question: &Question,
    reply: &Reply,
    front_end: &str,
) -> Result<(), HostError> {
    let (by, answer, scope) = match reply {
        Reply::Yes { scope, by } => (by, "yes", Some(scope.as_str())),
        Reply::No { by } => (by, "no", None),
        Reply::Unasked(_) => return Ok(()),
    };
    let answer = berth_audit::AnswerRecord {
        id: &question.id,
        tool: &question.tool,
        provider: &question.provider,
        arguments: &question.arguments,
        subjects: &question.subjects,
        decision: &question.decision,
        session: &question.session,
        caller: question.caller.as_deref(),
        by,
        answer,
        scope,
    };
    berth_audit::record_answer(config, folders, &answer, front_end)
}
