//! The bounded queue of keys, events, questions and log lines for the screen.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ratatui::crossterm::event::Event;
use tokio::sync::oneshot;
use toolhold_agent::{RunEvent, RunEvents};
use toolhold_core::{Approver, BoxFuture, Inquiry, InquiryAnswer, Question, Questions, Reply};
use toolhold_terminal::approval;

use crate::state::ScreenState;

/// The bytes up to which text parts are joined.
const MAX_PART: usize = 64 * 1024;

/// The most events that are handled before keys are read again.
const MAX_EVENTS_AT_ONCE: usize = 64;

/// The most bytes of text that are handled before keys are read again.
const MAX_BYTES_AT_ONCE: usize = 2 * MAX_PART;

/// The most bytes of text that wait for a slow terminal. More text isn't shown.
const MAX_TEXT: usize = 16 * 1024 * 1024;

/// The most log lines that wait. More lines are dropped.
const MAX_LOG: usize = 100;

/// A message of a session to its screen.
#[derive(Debug)]
pub enum FromSession {
    /// A command of the person has ended, with this message.
    CommandEnded(String),
    /// A command has opened another session, with this state.
    Other(Box<ScreenState>),
    /// The person has to choose. The answer is [`crate::ScreenEffect::Picked`].
    Choose {
        /// The question.
        text: String,
        /// The choices. Enter takes the first choice.
        choices: Vec<String>,
        /// Whether the person didn't ask for the dialog, so that the next keys may be meant for a
        /// message.
        is_sudden: bool,
    },
    /// The text for `/status`, and the model for the next message.
    Status {
        /// The text.
        text: String,
        /// The model, as `PROVIDER/MODEL`.
        model: String,
    },
    /// The string, and the found paths that start with it.
    Paths(String, Vec<String>),
    /// The chat ends.
    End,
}

#[derive(Debug)]
pub(crate) enum InboxItem {
    Terminal(Event),
    Session(Box<RunEvent>),
    Message(FromSession),
    Log(String),
    Signal,
    /// The terminal is closed.
    Gone,
}

#[derive(Default)]
struct Waiting {
    keys: VecDeque<Event>,
    session: VecDeque<InboxItem>,
    /// The bytes of the text parts in `session`.
    text_bytes: usize,
    log: VecDeque<String>,
    has_signal: bool,
    is_gone: bool,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.keys.is_empty()
            && self.session.is_empty()
            && self.log.is_empty()
            && !self.has_signal
            && !self.is_gone
    }
}

#[derive(Default)]
pub(crate) struct Inbox {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Inbox {
    fn change(&self, change: impl FnOnce(&mut Waiting)) {
        change(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
    }

    pub(crate) fn add_terminal_event(&self, event: Event) {
        self.change(|waiting| waiting.keys.push_back(event));
    }

    pub(crate) fn add_message(&self, message: FromSession) {
        self.change(|waiting| waiting.session.push_back(InboxItem::Message(message)));
    }

    pub(crate) fn signal(&self) {
        self.change(|waiting| waiting.has_signal = true);
    }

    pub(crate) fn lose_terminal(&self) {
        self.change(|waiting| waiting.is_gone = true);
    }

    pub(crate) fn add_log_line(&self, line: String) {
        self.change(|waiting| {
            if waiting.log.len() < MAX_LOG {
                waiting.log.push_back(line);
            }
        });
    }

    /// Adds an event, unless too much text waits for a slow terminal.
    fn add_session_event(&self, event: RunEvent) {
        self.change(|waiting| {
            let bytes = text_bytes(&event);
            if bytes > 0 && waiting.text_bytes >= MAX_TEXT {
                return;
            }
            waiting.text_bytes += bytes;
            waiting.add(event);
        });
    }

    /// Takes waiting items: keys first, and at most [`MAX_EVENTS_AT_ONCE`] events. Waits up to
    /// `timeout` for the first item.
    pub(crate) fn take(&self, timeout: Option<Duration>) -> Vec<InboxItem> {
        let mut waiting = self.wait(timeout);
        let mut items = Vec::new();
        if waiting.has_signal {
            waiting.has_signal = false;
            items.push(InboxItem::Signal);
        }
        if waiting.is_gone {
            waiting.is_gone = false;
            items.push(InboxItem::Gone);
        }
        items.extend(waiting.keys.drain(..).map(InboxItem::Terminal));
        items.extend(waiting.log.drain(..).map(InboxItem::Log));

        // Take only some of the events, so that many events don't delay the next keys.
        let mut bytes = 0;
        for _ in 0..MAX_EVENTS_AT_ONCE {
            let Some(item) = waiting.session.pop_front() else { break };
            if let InboxItem::Session(event) = &item {
                bytes += text_bytes(event);
            }
            items.push(item);
            if bytes >= MAX_BYTES_AT_ONCE {
                break;
            }
        }
        waiting.text_bytes -= bytes;
        items
    }

    /// Waits up to `timeout` for an item.
    fn wait(&self, timeout: Option<Duration>) -> MutexGuard<'_, Waiting> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(timeout) = timeout else {
            return self
                .changed
                .wait_while(waiting, |waiting| waiting.is_empty())
                .unwrap_or_else(PoisonError::into_inner);
        };
        let (waiting, _) = self
            .changed
            .wait_timeout_while(waiting, timeout, |waiting| waiting.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        waiting
    }
}

impl Waiting {
    /// Adds an event. Text is joined with the text of the last event.
    fn add(&mut self, event: RunEvent) {
        // Join text, because a model may write faster than the screen can draw each part.
        if let Some(InboxItem::Session(last)) = self.session.back_mut() {
            match (&mut **last, &event) {
                (RunEvent::TextPart { text }, RunEvent::TextPart { text: more })
                | (RunEvent::ThinkingPart { text }, RunEvent::ThinkingPart { text: more })
                    if text.len() < MAX_PART =>
                {
                    text.push_str(more);
                    return;
                }
                // Other events aren't joined.
                _ => {}
            }
        }
        self.session.push_back(InboxItem::Session(Box::new(event)));
    }
}

/// Returns the bytes of a text part, or 0 for other events.
fn text_bytes(event: &RunEvent) -> usize {
    match event {
        RunEvent::TextPart { text } | RunEvent::ThinkingPart { text } => text.len(),
        _ => 0,
    }
}

/// Passes a session's events to the screen.
#[derive(Clone)]
pub struct SessionEvents(pub(crate) Arc<Inbox>);

impl RunEvents for SessionEvents {
    fn event(&mut self, event: RunEvent) {
        self.0.add_session_event(event);
    }
}

/// Passes found paths to the screen.
pub struct FoundPaths(pub(crate) Arc<Inbox>);

impl FoundPaths {
    /// Offers the paths that start with `path_start`.
    pub fn offer(&self, path_start: String, paths: Vec<String>) {
        self.0.add_message(FromSession::Paths(path_start, paths));
    }
}

#[derive(Default)]
pub(crate) struct PendingQuestions(Mutex<ReplySenders>);

#[derive(Default)]
struct ReplySenders {
    /// The senders by the question's ID.
    questions: Vec<(String, oneshot::Sender<Reply>)>,
    /// The senders by the question's text, because there is no ID. Questions with the same text may
    /// get each other's answers.
    inquiries: Vec<(String, oneshot::Sender<InquiryAnswer>)>,
}

impl PendingQuestions {
    fn lock(&self) -> MutexGuard<'_, ReplySenders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a reply to the asker of the question `id`.
    pub(crate) fn reply(&self, id: &str, reply: Reply) {
        let mut senders = self.lock();
        if let Some(index) = senders.questions.iter().position(|(other, _)| other == id) {
            let (_, sender) = senders.questions.remove(index);
            // The asker may no longer wait.
            let _ = sender.send(reply);
        }
    }

    /// Passes an answer to the asker of the question with this text.
    pub(crate) fn inform(&self, text: &str, answer: InquiryAnswer) {
        let mut senders = self.lock();
        // Forgets askers that no longer wait.
        senders.inquiries.retain(|(_, sender)| !sender.is_closed());
        if let Some(index) = senders.inquiries.iter().position(|(other, _)| other == text) {
            let (_, sender) = senders.inquiries.remove(index);
            // The asker may no longer wait.
            let _ = sender.send(answer);
        }
    }
}

/// Asks the person on the screen.
pub struct ScreenApprover {
    pub(crate) pending: Arc<PendingQuestions>,
    questions: Questions,
}

impl ScreenApprover {
    /// Makes the approver for [`crate::Screen::open`].
    pub fn new(questions: Questions) -> Self {
        Self { pending: Arc::default(), questions }
    }
}

impl Approver for ScreenApprover {
    fn ask(&self, question: Question) -> BoxFuture<'_, Reply> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut senders = self.pending.lock();
            // Forgets askers that no longer wait.
            senders.questions.retain(|(_, earlier)| !earlier.is_closed());
            senders.questions.push((question.id.to_string(), sender));
        }
        Box::pin(async move {
            let questions = self.questions.clone();
            let question_to_check = question.clone();
            let check = tokio::task::spawn_blocking(move || {
                approval::before_asking(&questions, &question_to_check)
            });
            match check.await {
                Ok(Some(reply)) => return reply,
                // Nobody has answered yet.
                Ok(None) => {}
                Err(error) => {
                    return Reply::Unasked(format!("the question can't be asked: {error}"));
                }
            }

            let Ok(reply) = receiver.await else {
                return Reply::Unasked("the screen was closed".to_owned());
            };
            let questions = self.questions.clone();
            let withdraw =
                tokio::task::spawn_blocking(move || approval::withdraw(&questions, &question));
            // The reply applies even if the question can't be withdrawn.
            let _ = withdraw.await;
            reply
        })
    }

    fn inquire(&self, inquiry: Inquiry) -> BoxFuture<'_, InquiryAnswer> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut senders = self.pending.lock();
            // Forgets askers that no longer wait.
            senders.inquiries.retain(|(_, earlier)| !earlier.is_closed());
            senders.inquiries.push((inquiry.to_text(), sender));
        }
        Box::pin(async move {
            match receiver.await {
                Ok(answer) => answer,
                Err(_) => InquiryAnswer::Unanswered("the screen was closed".to_owned()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_nobody_takes_is_bounded() {
        let (inbox, part) = (Arc::<Inbox>::default(), "x".repeat(10_000));
        let mut events = SessionEvents(Arc::clone(&inbox));
        (0..3000).for_each(|_| events.event(RunEvent::TextPart { text: part.clone() }));
        events.event(RunEvent::Notice { text: "after".to_owned() });
        let (mut bytes, mut rounds, mut last) = (0, 0, None);
        while bytes < MAX_TEXT {
            for item in inbox.take(Some(Duration::ZERO)) {
                let InboxItem::Session(event) = item else { continue };
                bytes += text_bytes(&event);
                last = Some(*event);
            }
            rounds += 1;
        }
        assert!(bytes < MAX_TEXT + MAX_PART && rounds > 100, "{bytes} in {rounds}");
        last = inbox.take(Some(Duration::ZERO)).pop().map_or(last, |item| match item {
            InboxItem::Session(event) => Some(*event),
            _ => None,
        });
        assert_eq!(last, Some(RunEvent::Notice { text: "after".to_owned() }));
    }
}
