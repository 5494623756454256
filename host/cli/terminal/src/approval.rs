//! The question that `toolhold approvals` lists while the terminal asks.

use toolhold_core::{Question, Questions, Reply};

/// Returns the answer from `toolhold approvals`, or the reason why the person can't be asked.
/// Returns `None` if the person must be asked. Blocks.
pub fn before_asking(questions: &Questions, question: &Question) -> Option<Reply> {
    match questions.take(question) {
        Ok(Some(reply)) => return Some(reply),
        Ok(None) => {}
        Err(error) => {
            return Some(Reply::Unasked(format!(
                "the answer of `toolhold approvals` can't be read: {error}"
            )));
        }
    }
    let reason = question.too_large()?;
    Some(Reply::Unasked(format!("{reason}; or repeat the call with `--yes`")))
}

/// Withdraws a question from `toolhold approvals` after the person has answered. A failure is only
/// logged, because the answer applies in any case. Blocks.
pub fn withdraw(questions: &Questions, question: &Question) {
    if let Err(error) = questions.withdraw(question) {
        tracing::warn!(
            "`toolhold approvals` may still list this call; an approval there still applies: \
             {error}"
        );
    }
}
