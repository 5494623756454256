//! The audit log in the public interface of this crate.

use toolhold_config::{Config, Folders};
use toolhold_contract::HostError;

pub(crate) use toolhold_audit::Audit;
pub use toolhold_audit::{
    ChainHead, EntryOrigin, FilterStats, Finding, Follow, LogPosition, LogRecord, ReadFrom,
    RecordReader, ToolStats, Trail, User, Verification,
};

use crate::approvals::{Question, Reply};

/// Records a person's answer to a stored question immediately, because the call may never run. Does
/// nothing if nobody answered. Blocks.
///
/// # Errors
///
/// [`HostError::Io`] if the answer can't be recorded. The answer must not apply then.
pub fn record_answer(
    config: &Config,
    folders: &Folders,
    question: &Question,
    reply: &Reply,
    origin: EntryOrigin,
) -> Result<(), HostError> {
    let (by, answer, scope) = match reply {
        Reply::Yes { scope, by } => (by, "yes", Some(scope.as_str())),
        Reply::No { by, .. } => (by, "no", None),
        Reply::Unasked(_) => return Ok(()),
    };
    let record = toolhold_audit::AnswerRecord {
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
    toolhold_audit::record_answer(config, folders, &record, origin)
}
