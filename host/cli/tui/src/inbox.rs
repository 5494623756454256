//! The queue of keys, events, questions and log lines that the screen takes in, in a bounded
//! amount.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use ratatui::crossterm::event::Event;
use tokio::sync::oneshot;
use toolhold_agent::{RunEvent, RunEvents};
use toolhold_core::{Approver, BoxFuture, Inquiry, InquiryAnswer, Question, Questions, Reply};
use toolhold_terminal::approval;

use crate::state::ScreenState;

/// Bytes of text parts that become one.
const MAX_PART: usize = 64 * 1024;

/// Events, and bytes of their text, that are folded before keys are looked at again.
const MAX_AT_ONCE: (usize, usize) = (64, 2 * MAX_PART);

/// Bytes of text parts that wait for a terminal which is too slow. More isn't shown.
const MAX_TEXT: usize = 16 * 1024 * 1024;

/// Lines of the log that wait. Later lines are dropped.
const MAX_LOG: usize = 100;

/// A message of a session to its screen, besides events.
#[derive(Debug)]
pub enum FromSession {
    /// A command of the person is done, with a message.
    CommandEnded(String),
    /// A command is done, with the state of another session.
    Other(Box<ScreenState>),
    /// The person is asked to choose. [`crate::ScreenEffect::Picked`] is the answer.
    Choose {
        /// The question.
        text: String,
        /// The choices. Enter alone takes the first one.
        choices: Vec<String>,
        /// Whether no command of the person led to the dialog, so that keys may be meant for the
        /// prompt.
        is_sudden: bool,
    },
    /// The text that `/status` shows next to the state of the screen, from now on.
    Status(String),
    /// The paths that begin with the text.
    Paths(String, Vec<String>),
    /// The chat ends.
    End,
}

/// Something that came.
#[derive(Debug)]
pub(crate) enum Came {
    Terminal(Event),
    Session(RunEvent),
    Told(FromSession),
    Log(String),
    /// The process was asked to end.
    Signal,
    /// The terminal is gone.
    Gone,
}

#[derive(Default)]
struct Waiting {
    keys: VecDeque<Event>,
    session: VecDeque<Came>,
    /// Bytes of the text parts in it.
    text: usize,
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
    more: Condvar,
}

impl Inbox {
    fn change(&self, change: impl FnOnce(&mut Waiting)) {
        change(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        self.more.notify_one();
    }

    pub(crate) fn terminal(&self, event: Event) {
        self.change(|waiting| waiting.keys.push_back(event));
    }

    pub(crate) fn tell(&self, told: FromSession) {
        self.change(|waiting| waiting.session.push_back(Came::Told(told)));
    }

    pub(crate) fn signal(&self) {
        self.change(|waiting| waiting.has_signal = true);
    }

    pub(crate) fn lose_terminal(&self) {
        self.change(|waiting| waiting.is_gone = true);
    }

    pub(crate) fn log(&self, line: String) {
        self.change(|waiting| {
            if waiting.log.len() < MAX_LOG {
                waiting.log.push_back(line);
            }
        });
    }

    fn event(&self, event: RunEvent) {
        self.change(|waiting| {
            let bytes = text_bytes(&event);
            if bytes > 0 && waiting.text >= MAX_TEXT {
                return;
            }
            waiting.text += bytes;
            waiting.add(event);
        });
    }

    /// Takes waiting items: keys first, and not too many at once. Waits for an item until `limit`.
    pub(crate) fn take(&self, limit: Option<Duration>) -> Vec<Came> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut waiting = match limit {
            None => self
                .more
                .wait_while(waiting, |waiting| waiting.is_empty())
                .unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                self.more
                    .wait_timeout_while(waiting, limit, |waiting| waiting.is_empty())
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
        let mut came = Vec::new();
        if std::mem::take(&mut waiting.has_signal) {
            came.push(Came::Signal);
        }
        if std::mem::take(&mut waiting.is_gone) {
            came.push(Came::Gone);
        }
        came.extend(waiting.keys.drain(..).map(Came::Terminal));
        came.extend(waiting.log.drain(..).map(Came::Log));
        let mut bytes = 0;
        for _ in 0..MAX_AT_ONCE.0 {
            let Some(next) = waiting.session.pop_front() else { break };
            if let Came::Session(event) = &next {
                bytes += text_bytes(event);
            }
            came.push(next);
            if bytes >= MAX_AT_ONCE.1 {
                break;
            }
        }
        waiting.text -= bytes;
        came
    }
}

impl Waiting {
    fn add(&mut self, event: RunEvent) {
        match (self.session.back_mut(), event) {
            // A stream that comes faster than it is shown becomes a few large parts.
            (
                Some(Came::Session(RunEvent::TextPart { text })),
                RunEvent::TextPart { text: more },
            )
            | (
                Some(Came::Session(RunEvent::ThinkingPart { text })),
                RunEvent::ThinkingPart { text: more },
            ) if text.len() < MAX_PART => text.push_str(&more),
            (_, event) => self.session.push_back(Came::Session(event)),
        }
    }
}

/// The bytes of a text part. 0: the event isn't a text part.
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
        self.0.event(event);
    }
}

/// Passes paths to the screen.
pub struct FoundPaths(pub(crate) Arc<Inbox>);

impl FoundPaths {
    /// Offers the paths for the wanted text.
    pub fn offer(&self, wanted: String, paths: Vec<String>) {
        self.0.tell(FromSession::Paths(wanted, paths));
    }
}

/// Questions that wait for an answer on the screen.
#[derive(Default)]
pub(crate) struct Desk(Mutex<Asked>);

#[derive(Default)]
struct Asked {
    questions: Vec<(String, oneshot::Sender<Reply>)>,
    /// Inquiries have no ID: two with the same text get each other's answer.
    inquiries: Vec<(String, oneshot::Sender<InquiryAnswer>)>,
}

impl Desk {
    pub(crate) fn reply(&self, id: &str, reply: Reply) {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = asked.questions.iter().position(|(known, _)| known == id) {
            // The asker may have stopped waiting.
            let _ = asked.questions.remove(at).1.send(reply);
        }
    }

    pub(crate) fn inform(&self, text: &str, answer: InquiryAnswer) {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        asked.inquiries.retain(|(_, waiting)| !waiting.is_closed());
        if let Some(at) = asked.inquiries.iter().position(|(known, _)| known == text) {
            let _ = asked.inquiries.remove(at).1.send(answer);
        }
    }
}

/// Asks the person on the screen.
pub struct ScreenApprover {
    pub(crate) desk: Arc<Desk>,
    questions: Questions,
}

impl ScreenApprover {
    /// An approver for the screen that is [opened](crate::Screen::open) with it.
    pub fn new(questions: Questions) -> Self {
        Self { desk: Arc::default(), questions }
    }
}

impl Approver for ScreenApprover {
    fn ask(&self, question: Question) -> BoxFuture<'_, Reply> {
        let (answer, answered) = oneshot::channel();
        {
            let mut asked = self.desk.0.lock().unwrap_or_else(PoisonError::into_inner);
            asked.questions.retain(|(_, waiting)| !waiting.is_closed());
            asked.questions.push((question.id.to_string(), answer));
        }
        Box::pin(async move {
            let questions = self.questions.clone();
            let asked = question.clone();
            let known =
                tokio::task::spawn_blocking(move || approval::before_asking(&questions, &asked));
            match known.await {
                Ok(None) => {}
                Ok(Some(reply)) => return reply,
                Err(error) => {
                    return Reply::Unasked(format!("the question can't be asked: {error}"));
                }
            }
            let Ok(reply) = answered.await else {
                return Reply::Unasked("the screen is gone".to_owned());
            };
            let questions = self.questions.clone();
            let _ = tokio::task::spawn_blocking(move || approval::withdraw(&questions, &question))
                .await;
            reply
        })
    }

    fn inquire(&self, inquiry: Inquiry) -> BoxFuture<'_, InquiryAnswer> {
        let (answer, answered) = oneshot::channel();
        {
            let mut asked = self.desk.0.lock().unwrap_or_else(PoisonError::into_inner);
            asked.inquiries.retain(|(_, waiting)| !waiting.is_closed());
            asked.inquiries.push((inquiry.to_text(), answer));
        }
        Box::pin(async move {
            answered
                .await
                .unwrap_or_else(|_| InquiryAnswer::Unanswered("the screen is gone".to_owned()))
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
            for came in inbox.take(Some(Duration::ZERO)) {
                let Came::Session(event) = came else { continue };
                bytes += text_bytes(&event);
                last = Some(event);
            }
            rounds += 1;
        }
        assert!(bytes < MAX_TEXT + MAX_PART && rounds > 100, "{bytes} in {rounds}");
        last = inbox.take(Some(Duration::ZERO)).pop().map_or(last, |came| match came {
            Came::Session(event) => Some(event),
            _ => None,
        });
        assert_eq!(last, Some(RunEvent::Notice { text: "after".to_owned() }));
    }
}
