//! The queue of keys, events, questions and log lines that the screen takes in, in a bounded
//! amount.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ratatui::crossterm::event::Event;
use tokio::sync::oneshot;
use toolhold_agent::{RunEvent, RunEvents};
use toolhold_core::{Approver, BoxFuture, Inquiry, InquiryAnswer, Question, Questions, Reply};
use toolhold_terminal::approval;

use crate::state::ScreenState;

/// The most bytes of text parts that are joined into one part.
const MAX_PART: usize = 64 * 1024;

/// The most events that are handled before keys are read again.
const MAX_EVENTS_AT_ONCE: usize = 64;

/// The most bytes of text parts that are handled before keys are read again.
const MAX_BYTES_AT_ONCE: usize = 2 * MAX_PART;

/// The most bytes of text parts that wait for a slow terminal. Further text isn't shown.
const MAX_TEXT: usize = 16 * 1024 * 1024;

/// Lines of the log that wait. Later lines are dropped.
const MAX_LOG: usize = 100;

/// A message of a session to its screen, in addition to events.
#[derive(Debug)]
pub enum FromSession {
    /// A command of the person is done, with a message.
    CommandEnded(String),
    /// A command is done, with the state of another session.
    Other(Box<ScreenState>),
    /// The person has to choose. The answer is [`crate::ScreenEffect::Picked`].
    Choose {
        /// The question.
        text: String,
        /// The choices. Pressing Enter alone takes the first choice.
        choices: Vec<String>,
        /// Whether the dialog opens without a command of the person. If so, keys may be meant for
        /// the prompt.
        is_sudden: bool,
    },
    /// The text that `/status` shows next to the state of the screen, from now on.
    Status(String),
    /// The paths that begin with the text.
    Paths(String, Vec<String>),
    /// The chat ends.
    End,
}

/// An item for the screen.
#[derive(Debug)]
pub(crate) enum InboxItem {
    Terminal(Event),
    Session(Box<RunEvent>),
    Message(FromSession),
    /// A line for stderr.
    Log(String),
    /// The process was asked to end.
    Signal,
    /// The terminal is gone.
    Gone,
}

#[derive(Default)]
struct Waiting {
    keys: VecDeque<Event>,
    /// Events and messages of the session.
    session: VecDeque<InboxItem>,
    /// Bytes of the text parts in `session`.
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

/// The place where items wait for the screen.
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

    /// Takes waiting items, with a limit for each time. Keys come first. If no item waits, waits
    /// for at most `timeout`.
    pub(crate) fn take(&self, timeout: Option<Duration>) -> Vec<InboxItem> {
        let mut waiting = self.wait(timeout);
        let mut items = Vec::new();
        if std::mem::take(&mut waiting.has_signal) {
            items.push(InboxItem::Signal);
        }
        if std::mem::take(&mut waiting.is_gone) {
            items.push(InboxItem::Gone);
        }
        items.extend(waiting.keys.drain(..).map(InboxItem::Terminal));
        items.extend(waiting.log.drain(..).map(InboxItem::Log));

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

    /// Waits until there is an item, but not longer than `timeout`.
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
    fn add(&mut self, event: RunEvent) {
        // If a stream arrives faster than it is shown, its parts are joined into a few large parts.
        if let Some(InboxItem::Session(last)) = self.session.back_mut() {
            match (&mut **last, &event) {
                (RunEvent::TextPart { text }, RunEvent::TextPart { text: more })
                | (RunEvent::ThinkingPart { text }, RunEvent::ThinkingPart { text: more })
                    if text.len() < MAX_PART =>
                {
                    text.push_str(more);
                    return;
                }
                _ => {}
            }
        }
        self.session.push_back(InboxItem::Session(Box::new(event)));
    }
}

/// Returns the bytes of a text part, or 0 for any other event.
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

/// Passes paths to the screen.
pub struct FoundPaths(pub(crate) Arc<Inbox>);

impl FoundPaths {
    /// Offers the paths that begin with a text.
    pub fn offer(&self, path_start: String, paths: Vec<String>) {
        self.0.add_message(FromSession::Paths(path_start, paths));
    }
}

/// Questions that wait for an answer on the screen.
#[derive(Default)]
pub(crate) struct PendingQuestions(Mutex<ReplySenders>);

#[derive(Default)]
struct ReplySenders {
    /// The sender for each question, by the ID of the question.
    questions: Vec<(String, oneshot::Sender<Reply>)>,
    /// The sender for each inquiry, by the inquiry's text. Inquiries have no ID, so the answers of
    /// two inquiries with the same text may be swapped.
    inquiries: Vec<(String, oneshot::Sender<InquiryAnswer>)>,
}

impl PendingQuestions {
    fn lock(&self) -> MutexGuard<'_, ReplySenders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn reply(&self, id: &str, reply: Reply) {
        let mut senders = self.lock();
        if let Some(index) = senders.questions.iter().position(|(other, _)| other == id) {
            let (_, sender) = senders.questions.remove(index);
            // The asker may have stopped waiting.
            let _ = sender.send(reply);
        }
    }

    pub(crate) fn inform(&self, text: &str, answer: InquiryAnswer) {
        let mut senders = self.lock();
        senders.inquiries.retain(|(_, other)| !other.is_closed());
        if let Some(index) = senders.inquiries.iter().position(|(other, _)| other == text) {
            let (_, sender) = senders.inquiries.remove(index);
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
    /// Makes an approver. The screen must be [opened](crate::Screen::open) with the same approver.
    pub fn new(questions: Questions) -> Self {
        Self { pending: Arc::default(), questions }
    }
}

impl Approver for ScreenApprover {
    fn ask(&self, question: Question) -> BoxFuture<'_, Reply> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut senders = self.pending.lock();
            senders.questions.retain(|(_, other)| !other.is_closed());
            senders.questions.push((question.id.to_string(), sender));
        }
        Box::pin(async move {
            let questions = self.questions.clone();
            let question_to_check = question.clone();
            let earlier_reply = tokio::task::spawn_blocking(move || {
                approval::before_asking(&questions, &question_to_check)
            });
            match earlier_reply.await {
                Ok(None) => {}
                Ok(Some(reply)) => return reply,
                Err(error) => {
                    return Reply::Unasked(format!("the question can't be asked: {error}"));
                }
            }

            let Ok(reply) = receiver.await else {
                return Reply::Unasked("the screen is gone".to_owned());
            };
            let questions = self.questions.clone();
            let _ = tokio::task::spawn_blocking(move || approval::withdraw(&questions, &question))
                .await;
            reply
        })
    }

    fn inquire(&self, inquiry: Inquiry) -> BoxFuture<'_, InquiryAnswer> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut senders = self.pending.lock();
            senders.inquiries.retain(|(_, other)| !other.is_closed());
            senders.inquiries.push((inquiry.to_text(), sender));
        }
        Box::pin(async move {
            match receiver.await {
                Ok(answer) => answer,
                Err(_) => InquiryAnswer::Unanswered("the screen is gone".to_owned()),
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
