//! Redacts secrets in tasks and runs.

use toolhold_contract::{TaskAction, TaskRun};
use toolhold_redaction::{self as redaction, Keys};

use crate::tasks::Listed;

/// Redacts a task before it is shown or logged.
pub fn hide_secrets(task: &mut Listed) {
    match &mut task.state.order.action {
        TaskAction::Call { arguments, .. } => {
            *arguments = redaction::json(arguments.take(), Keys::Settings);
        }
        TaskAction::Prompt(prompt) => {
            *prompt = redaction::owned(std::mem::take(prompt), Keys::Text);
        }
    }
    if let Some(run) = &mut task.state.last {
        hide_secrets_of_run(run);
    }
}

/// Redacts a run before it is shown.
pub fn hide_secrets_of_run(run: &mut TaskRun) {
    run.output = redaction::owned(std::mem::take(&mut run.output), Keys::Text);
}
