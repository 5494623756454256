//! Sends a tool's elicitation to the user of an MCP client.

use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema};
use serde_json::Value;
use toolhold_core::{Inquiry, InquiryAnswer, Wanted, state};

use crate::approver::{AskMode, CallApprover};
use crate::tasks::Task;

/// An elicitation that a task shows. A drop withdraws the elicitation.
struct OpenInTask<'a>(&'a Task);

impl Drop for OpenInTask<'_> {
    fn drop(&mut self) {
        self.0.withdraw_question();
    }
}

fn unanswered(why: &str) -> InquiryAnswer {
    InquiryAnswer::Unanswered(why.to_owned())
}

impl CallApprover {
    /// Asks the client's user a question of a tool.
    pub(crate) async fn ask_user(&self, inquiry: Inquiry) -> InquiryAnswer {
        let Ok(id) = state::random_digits() else {
            return unanswered("the system has no random bytes");
        };
        let Some(form) = self.form_of(&inquiry, &id) else {
            return unanswered("the form of the question can't be shown");
        };
        let answer = match &self.ask_mode {
            AskMode::Nobody => {
                let by = "`mcp = \"deny\"` in [approvals]".to_owned();
                return InquiryAnswer::Declined { by };
            }
            AskMode::Elsewhere => return unanswered("the client can't ask its user"),
            AskMode::Elicit(peer) => self.elicit_form(peer, form).await.ok(),
            AskMode::Return(ticket_answer) => {
                let task =
                    self.started_task.as_ref().and_then(|started| started.task_for_question());
                match task {
                    Some(task) => ask_in_task(&task, form).await,
                    None => self.asking.parked.ask(id, form, &ticket_answer.questions).await,
                }
            }
        };
        match answer {
            Some(answer) => self.answer_of(answer),
            None => unanswered("the client gave no answer"),
        }
    }

    fn answer_of(&self, result: ElicitResult) -> InquiryAnswer {
        let by = self.by();
        match (result.action, result.content) {
            (ElicitationAction::Accept, Some(Value::Object(content))) => {
                InquiryAnswer::Accepted { content, by }
            }
            (ElicitationAction::Accept, None) => {
                InquiryAnswer::Accepted { content: serde_json::Map::new(), by }
            }
            (ElicitationAction::Decline, _) => InquiryAnswer::Declined { by },
            _ => InquiryAnswer::Unanswered("the question was closed without an answer".to_owned()),
        }
    }

    /// Creates the elicitation for a tool's question. A client that can't open a URL gets a form
    /// without fields and a message with the URL. Returns `None` if the tool's form is invalid.
    fn form_of(&self, inquiry: &Inquiry, id: &str) -> Option<ElicitRequestParams> {
        let message = inquiry.to_text();
        let requested_schema = match &inquiry.wanted {
            Wanted::Visit(url) if self.can_visit => {
                return Some(ElicitRequestParams::UrlElicitationParams {
                    meta: None,
                    message,
                    url: url.clone(),
                    elicitation_id: id.to_owned(),
                });
            }
            Wanted::Visit(_) => ElicitationSchema::new([].into()),
            Wanted::Form(schema) => serde_json::from_value(schema.clone()).ok()?,
        };
        Some(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
    }
}

/// Sends the form in an MCP task. Returns `None` without a valid answer.
async fn ask_in_task(task: &Task, form: ElicitRequestParams) -> Option<ElicitResult> {
    let _open = OpenInTask(task);
    let answer = task.ask(form).await.ok()?;
    serde_json::from_value(answer).ok()
}
