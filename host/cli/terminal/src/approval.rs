//! Looks whether a question about a call was answered elsewhere before a person is asked, and
//! withdraws a posted question afterwards.

use toolhold_core::{Question, Questions, Reply};

/// Returns the reply to a question without asking the person: the question was answered elsewhere,
/// or can't be asked. Returns `None` if the person must be asked. Blocks.
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

/// Withdraws the posted question of the same call after the question was answered. If this fails,
/// the answer still applies, and a warning names the remaining question. Blocks.
pub fn withdraw(questions: &Questions, question: &Question) {
    if let Err(error) = questions.withdraw(question) {
        tracing::warn!(
            "`toolhold approvals` may still list this call; an approval there still applies: \
             {error}"
        );
    }
}
