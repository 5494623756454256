//! Puts questions of a tool's own to the MCP client's user.

use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema};
use serde_json::Value;
use toolhold_core::{Inquiry, InquiryAnswer, Wanted};

use crate::approver::{AskMode, CallApprover};
use crate::random;
use crate::tasks::Task;

/// A question that a task shows while this is held.
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
    /// Asks the client's user. Another person isn't asked, since an absent person can't answer in
    /// the middle of a call.
    pub(crate) async fn put(&self, inquiry: Inquiry) -> InquiryAnswer {
        let Ok(id) = random::name() else { return unanswered("the system has no random bytes") };
        let Some(form) = self.form_of(&inquiry, &id) else {
            return unanswered("its form can't be shown");
        };
        let answer = match &self.way {
            AskMode::Nobody => {
                let by = "`mcp = \"deny\"` in [approvals]".to_owned();
                return InquiryAnswer::Declined { by };
            }
            AskMode::Elsewhere => return unanswered("the client can't ask its user"),
            AskMode::Elicit(peer) => self.elicit_form(peer, form).await.ok(),
            AskMode::Return(ticket_answer) => {
                match self.started_task.as_ref().and_then(|started| started.asks()) {
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

    /// Makes the form that the client shows. If the elicitation has an address and the client can't
    /// show addresses, the form has no fields. Returns `None` if the form isn't valid.
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

/// Sends an elicitation in a task. Returns `None` if the client gives no valid answer.
async fn ask_in_task(task: &Task, form: ElicitRequestParams) -> Option<ElicitResult> {
    let _open = OpenInTask(task);
    let answer = task.ask(form).await.ok()?;
    serde_json::from_value(answer).ok()
}
