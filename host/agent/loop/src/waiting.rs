//! Announces questions to a person as events. Measures the waiting time, which isn't part of the
//! task's time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use toolhold_core::config::inline;
use toolhold_core::text::neutral_line;
use toolhold_core::{
    Always, Approver, BoxFuture, Inquiry, InquiryAnswer, Question, Reply, Scope, Wanted,
};

use crate::events::{QuestionAnswer, RunEvent, WiderApproval};
use crate::live::CallEvents;

pub(crate) struct MeasuringApprover {
    approver: Arc<dyn Approver>,
    waits: Mutex<Waits>,
    /// The IDs of the task's questions that `toolhold approvals` can still answer.
    pending: Mutex<Vec<String>>,
}

#[derive(Default)]
struct Waits {
    /// The number of questions that are open now.
    open: usize,
    /// The time since which at least one question has been open.
    since: Option<Instant>,
    /// The total time of earlier waits.
    waited: Duration,
}

impl MeasuringApprover {
    pub(crate) fn new(approver: Arc<dyn Approver>) -> Self {
        Self { approver, waits: Mutex::default(), pending: Mutex::default() }
    }

    /// Returns the total time that people have been asked.
    pub(crate) fn waited(&self) -> Duration {
        let waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.waited + waits.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Removes and returns the IDs of the questions that `toolhold approvals` can still answer.
    pub(crate) fn take_pending(&self) -> Vec<String> {
        std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note_pending(&self, reply: &Reply) {
        let Some(id) = reply.pending_id() else { return };
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if !pending.iter().any(|known| known == id) {
            pending.push(id.to_owned());
        }
    }

    fn begin(&self) -> OpenWait<'_> {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.open += 1;
        waits.since.get_or_insert_with(Instant::now);
        OpenWait(self)
    }
}

/// An open question. The wait ends when this value is dropped.
struct OpenWait<'a>(&'a MeasuringApprover);

impl Drop for OpenWait<'_> {
    fn drop(&mut self) {
        let mut waits = self.0.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.open -= 1;
        // Overlapping waits count once, from the first start to the last end.
        if waits.open == 0
            && let Some(since) = waits.since.take()
        {
            waits.waited += since.elapsed();
        }
    }
}

impl Approver for MeasuringApprover {
    fn ask(&self, question: Question) -> BoxFuture<'_, Reply> {
        Box::pin(async move {
            let _wait = self.begin();
            let reply = self.approver.ask(question).await;
            self.note_pending(&reply);
            reply
        })
    }

    fn waits(&self) -> bool {
        self.approver.waits()
    }

    fn inquire(&self, inquiry: Inquiry) -> BoxFuture<'_, InquiryAnswer> {
        Box::pin(async move {
            let _wait = self.begin();
            self.approver.inquire(inquiry).await
        })
    }
}

/// The approver of one call, which announces the call's questions as events.
pub(crate) struct AnnouncingApprover {
    approver: Arc<MeasuringApprover>,
    events: Arc<CallEvents>,
    /// The number of questions that the tool itself has asked.
    inquiries: AtomicU64,
}

impl AnnouncingApprover {
    pub(crate) fn new(approver: Arc<MeasuringApprover>, events: Arc<CallEvents>) -> Self {
        Self { approver, events, inquiries: AtomicU64::new(0) }
    }
}

/// An open question. Dropping this value without an answer announces that nobody answered.
struct OpenQuestion<'a> {
    events: &'a CallEvents,
    id: String,
    is_answered: bool,
}

impl<'a> OpenQuestion<'a> {
    fn begin(events: &'a CallEvents, id: String, question: RunEvent) -> Self {
        events.push(question);
        Self { events, id, is_answered: false }
    }

    /// Announces the answer. `by` is the person or rule that answered. It is empty if nobody did.
    fn answer(&mut self, answer: QuestionAnswer, by: &str, reason: &str) {
        self.is_answered = true;
        self.events.push(RunEvent::Answered {
            id: self.id.clone(),
            answer,
            by: by.to_owned(),
            reason: reason.to_owned(),
        });
    }
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.answer(QuestionAnswer::Unanswered, "", "nobody waits for the answer any more");
        }
    }
}

impl Approver for AnnouncingApprover {
    fn ask(&self, question: Question) -> BoxFuture<'_, Reply> {
        Box::pin(async move {
            // An approver that doesn't wait for a person has no question to announce.
            if !self.approver.waits() {
                return self.approver.ask(question).await;
            }
            let event = question_event(&question, &self.events);
            let mut open = OpenQuestion::begin(&self.events, question.id.to_string(), event);
            let reply = self.approver.ask(question).await;
            match &reply {
                Reply::Yes { scope, by } => {
                    let answer = match scope {
                        Scope::Once => QuestionAnswer::Once,
                        Scope::Session | Scope::SessionTool | Scope::SessionSource => {
                            QuestionAnswer::Session
                        }
                        Scope::Always | Scope::AlwaysTool | Scope::AlwaysSource => {
                            QuestionAnswer::Always
                        }
                    };
                    open.answer(answer, by, "");
                }
                Reply::No { by, reason } => open.answer(QuestionAnswer::No, by, reason),
                Reply::Unasked(why) => open.answer(QuestionAnswer::Unanswered, "", why),
            }
            reply
        })
    }

    fn waits(&self) -> bool {
        self.approver.waits()
    }

    fn inquire(&self, inquiry: Inquiry) -> BoxFuture<'_, InquiryAnswer> {
        Box::pin(async move {
            let earlier_inquiries = self.inquiries.fetch_add(1, Ordering::Relaxed);
            let id = format!("{}/{}", self.events.call(), earlier_inquiries + 1);
            let form = match &inquiry.wanted {
                Wanted::Form(schema) => Some(schema.clone()),
                Wanted::Visit(_) => None,
            };
            let call = self.events.call().to_owned();
            let event = RunEvent::Inquiry { id: id.clone(), call, text: inquiry.to_text(), form };
            let mut open = OpenQuestion::begin(&self.events, id, event);
            let answer = self.approver.inquire(inquiry).await;
            match &answer {
                InquiryAnswer::Accepted { by, .. } => open.answer(QuestionAnswer::Given, by, ""),
                InquiryAnswer::Declined { by } => open.answer(QuestionAnswer::No, by, ""),
                InquiryAnswer::Unanswered(why) => open.answer(QuestionAnswer::Unanswered, "", why),
            }
            answer
        })
    }
}

fn question_event(question: &Question, events: &CallEvents) -> RunEvent {
    let subjects = question.subjects.iter();
    let acts_on = subjects.map(|subject| inline(&Value::String(subject.text.clone()))).collect();
    let always = match &question.always {
        // The text gets no colours.
        Always::Writes(_) => Some(question.always_to_text_with(&|_, text| text.to_owned())),
        Always::Unavailable(_) => None,
    };
    RunEvent::Question {
        id: question.id.to_string(),
        call: events.call().to_owned(),
        caller: question.caller.clone(),
        tool: question.tool.clone(),
        acts_on,
        rule: question.decision.rule.clone().into_owned(),
        place: question.decision.place.clone().into_owned(),
        text: question.to_text(),
        diff: question.preview.as_ref().map(|preview| preview.diff.clone()),
        always,
        wider: wider_approvals(question),
    }
}

/// Returns the wider approvals that a question offers: all calls of the tool or of its source, in
/// this session or always.
fn wider_approvals(question: &Question) -> Vec<WiderApproval> {
    let Some(wider_rules) = &question.wider else { return Vec::new() };
    let tool = neutral_line(&question.tool);
    let source = neutral_line(question.source());
    let mut approvals = vec![
        WiderApproval {
            scope: Scope::SessionTool,
            text: format!("any call of {tool} in this session"),
        },
        WiderApproval {
            scope: Scope::SessionSource,
            text: format!(
                "every tool of {source} in this session, except tools that say that they may \
                 destroy something"
            ),
        },
    ];
    for (scope, rule) in
        [(Scope::AlwaysTool, wider_rules.tool()), (Scope::AlwaysSource, wider_rules.all())]
    {
        // The question itself already offers the rule that it proposes.
        if let Some(rule) = rule
            && question.always.proposal() != Some(rule)
        {
            approvals.push(WiderApproval { scope, text: rule.text() });
        }
    }
    approvals
}
