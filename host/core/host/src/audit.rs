//! The audit log for programs. Reads the log, and records the answer to a posted question when the
//! answer is given, because the call may never run.

use toolhold_config::{Config, Folders};
use toolhold_contract::HostError;

pub(crate) use toolhold_audit::Audit;
pub use toolhold_audit::{
    ChainHead, FilterStats, Finding, Follow, LogPosition, LogRecord, ReadFrom, RecordReader,
    ToolStats, Trail, Verification,
};

use crate::approvals::{Question, Reply};

/// Records the answer to a posted question when the answer is given, because the call may never
/// run. Blocks.
///
/// # Errors
///
/// [`HostError::Io`] if the answer can't be recorded and must not apply.
pub fn record_answer(
    config: &Config,
    folders: &Folders,
    question: &Question,
    reply: &Reply,
    front_end: &str,
) -> Result<(), HostError> {
    let (by, answer, scope) = match reply {
        Reply::Yes { scope, by } => (by, "yes", Some(scope.as_str())),
        Reply::No { by, .. } => (by, "no", None),
        Reply::Unasked(_) => return Ok(()),
    };
    let answer = toolhold_audit::AnswerRecord {
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
    toolhold_audit::record_answer(config, folders, &answer, front_end)
}
