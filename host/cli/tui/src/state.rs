//! The state of the screen, changed by the session's events and the person's input.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use toolhold_agent::{EndKind, RunEvent, Spent};
use toolhold_core::Confidence;
use toolhold_core::text::{cut, neutral_line};

use crate::call::CallBlock;
use crate::complete::Popup;
use crate::editor::Editor;
use crate::effect::ScreenEffect;
use crate::question::OpenQuestion;
use crate::theme::Theme;
use crate::transcript::{Block, Transcript};

/// Messages that wait.
pub(crate) const MAX_QUEUED: usize = 100;

/// Earlier messages that Up shows.
pub(crate) const MAX_HISTORY: usize = 1000;

/// Bytes of a reason at the end of a task.
const MAX_REASON: usize = 2000;

/// Facts for commands of the person that aren't known from events.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The limits and the rules in force.
    pub status: String,
    /// The tools that the model is offered.
    pub tools: String,
    /// The messages of earlier chats in this directory, the last one last.
    pub history: Vec<String>,
    /// Whether the terminal is told when Toolhold needs the person.
    pub notify: bool,
}

/// The agent's activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The agent waits for a message.
    Idle,
    /// A message or a command is on its way.
    Begins,
    /// The model was asked.
    Asks,
    Thinks,
    Writes,
    /// The model writes a call.
    WritesCall,
    /// Calls run.
    Runs,
}

/// A choice that the session asks the person for.
#[derive(Clone, Debug)]
pub(crate) struct Dialog {
    pub(crate) text: String,
    pub(crate) choices: Vec<String>,
    pub(crate) chosen: usize,
    /// Whether no command of the person opened it.
    pub(crate) is_sudden: bool,
    /// The time from which the person can see the dialog.
    pub(crate) since: Option<Duration>,
}

/// The state of the screen.
#[derive(Debug)]
pub struct ScreenState {
    pub(crate) theme: Theme,
    pub(crate) about: About,
    pub(crate) session: String,
    pub(crate) directory: String,
    pub(crate) model: String,
    /// Tokens that the model can read, and tokens that it read last.
    pub(crate) context: [u64; 2],
    pub(crate) phase: Phase,
    pub(crate) transcript: Transcript,
    pub(crate) questions: VecDeque<OpenQuestion>,
    pub(crate) queued: VecDeque<String>,
    pub(crate) dialog: Option<Dialog>,
    pub(crate) editor: Editor,
    pub(crate) popup: Popup,
    /// The place in the history, from its end. `None`: the typed text is new.
    pub(crate) recalled: Option<usize>,
    /// The text that was typed before an earlier message was recalled.
    pub(crate) draft: String,
    pub(crate) spent: Spent,
    /// The tokens and the cost before this task.
    before: Spent,
    /// Results by the confidence of filters: full, partial, fallback.
    pub(crate) filtered: [u64; 3],
    /// Calls that run.
    running: BTreeSet<String>,
    began: Option<Duration>,
    /// The time of the last task.
    took: Duration,
    asked_since: Option<Duration>,
    asked: Duration,
    pub(crate) last_key: Duration,
    /// When the person last wrote in the message.
    pub(crate) wrote_at: Duration,
    /// Whether the terminal is large enough for the picture.
    pub(crate) is_visible: bool,
    /// Whether the terminal's window has the focus. `None`: the terminal doesn't say.
    pub(crate) has_focus: Option<bool>,
    /// The columns and lines of the transcript, as it was drawn last.
    pub(crate) shown: (usize, usize),
}

impl ScreenState {
    /// The state before anything happened.
    pub fn new(theme: Theme, about: About) -> Self {
        Self {
            theme,
            about,
            session: String::new(),
            directory: String::new(),
            model: String::new(),
            context: [0; 2],
            phase: Phase::Idle,
            transcript: Transcript::new(theme),
            questions: VecDeque::new(),
            queued: VecDeque::new(),
            dialog: None,
            editor: Editor::default(),
            popup: Popup::default(),
            recalled: None,
            draft: String::new(),
            spent: Spent::default(),
            before: Spent::default(),
            filtered: [0; 3],
            running: BTreeSet::new(),
            began: None,
            took: Duration::ZERO,
            asked_since: None,
            asked: Duration::ZERO,
            last_key: Duration::ZERO,
            wrote_at: Duration::ZERO,
            is_visible: true,
            has_focus: None,
            shown: (80, 20),
        }
    }

    /// Applies an event. `now`: the time on a clock that only grows. Returns the effects.
    pub fn apply(&mut self, event: RunEvent, now: Duration) -> Vec<ScreenEffect> {
        match event {
            RunEvent::Session { id, directory } => {
                (self.session, self.directory) = (neutral_line(&id), neutral_line(&directory));
            }
            RunEvent::Task { text, provider, model, context } => {
                if self.queued.front() == Some(&text) {
                    self.queued.pop_front();
                }
                self.transcript.person(&text);
                self.model = neutral_line(&format!("{provider}/{model}"));
                self.context[0] = context;
                (self.phase, self.before) = (Phase::Asks, self.spent);
                (self.began, self.asked, self.asked_since) = (Some(now), Duration::ZERO, None);
            }
            RunEvent::TextPart { text } => {
                self.phase = Phase::Writes;
                self.transcript.answer(&text);
            }
            RunEvent::ThinkingPart { text } => {
                self.phase = Phase::Thinks;
                self.transcript.thinking(&text);
            }
            RunEvent::CallPart { .. } => self.phase = Phase::WritesCall,
            RunEvent::Answer { spent, .. } => {
                self.transcript.end_answer();
                self.context[1] = spent
                    .input
                    .saturating_add(spent.cache_read)
                    .saturating_add(spent.cache_written);
                self.spent.add_all(&spent);
                self.phase = Phase::Asks;
            }
            RunEvent::Call { id, tool, arguments } => {
                self.phase = Phase::Runs;
                self.running.insert(id.clone());
                let call = CallBlock::new(id, &tool, &arguments);
                self.transcript.push(Block::Call(Box::new(call)));
            }
            RunEvent::CallOutput { id, text, left_out } => {
                self.transcript.change_call(&id, |call| call.output(&text, left_out));
            }
            RunEvent::Question { id, call, caller, text, diff, always, .. } => {
                self.transcript.change_call(&call, |call| call.asked(diff.as_deref()));
                let caller = caller.as_deref();
                return self.ask(OpenQuestion::approval(id, call, caller, &text, always), now);
            }
            RunEvent::Inquiry { id, call, text, form } => {
                return self.ask(OpenQuestion::inquiry(id, call, text, form.as_ref()), now);
            }
            RunEvent::Answered { id, answer, by, reason } => {
                if let Some(at) = self.questions.iter().position(|it| it.id == id)
                    && let Some(question) = self.questions.remove(at)
                {
                    self.transcript
                        .change_call(&question.call, |call| call.answered(answer, &by, &reason));
                }
                if self.questions.is_empty()
                    && let Some(since) = self.asked_since.take()
                {
                    self.asked += now.saturating_sub(since);
                }
            }
            RunEvent::Queued { text } => {
                if self.queued.len() < MAX_QUEUED {
                    self.queued.push_back(text);
                }
            }
            RunEvent::Result { id, failed, category, text, filtered, .. } => {
                if let Some(summary) = &filtered {
                    let at = match summary.confidence {
                        Confidence::Full => 0,
                        Confidence::Partial => 1,
                        Confidence::Fallback => 2,
                    };
                    self.filtered[at] += 1;
                }
                self.running.remove(&id);
                if self.running.is_empty() {
                    self.phase = Phase::Asks;
                }
                let category = category.as_deref();
                self.transcript.change_call(&id, |call| {
                    call.done(failed, category, &text, filtered.as_ref());
                });
            }
            RunEvent::Notice { text } => self.transcript.notice(&text),
            RunEvent::Ended { ending, spent, session } => {
                let reason = neutral_line(cut(&ending.reason, MAX_REASON));
                self.transcript.push(Block::Ended(ending.kind, reason, spent));
                (self.spent, self.took) = (session, self.time(now));
                self.began = None;
                self.questions.clear();
                self.running.clear();
                return self.end(ending.kind);
            }
        }
        Vec::new()
    }

    /// Nothing runs any more. The next message is sent. If the person interrupted, the waiting
    /// messages come back to be changed.
    fn end(&mut self, kind: EndKind) -> Vec<ScreenEffect> {
        self.phase = Phase::Idle;
        if kind != EndKind::Cancelled {
            return self.send_queued();
        }
        while let Some(text) = self.queued.pop_back() {
            let typed = self.editor.take();
            let gap = if typed.is_empty() { "" } else { "\n" };
            self.editor.set(&format!("{text}{gap}{typed}"));
        }
        Vec::new()
    }

    fn send_queued(&mut self) -> Vec<ScreenEffect> {
        match self.queued.front() {
            Some(text) => {
                self.phase = Phase::Begins;
                vec![ScreenEffect::Send(text.clone())]
            }
            None => Vec::new(),
        }
    }

    /// A command of the person is done.
    pub(crate) fn command_ended(&mut self) -> Vec<ScreenEffect> {
        self.phase = Phase::Idle;
        self.send_queued()
    }

    fn ask(&mut self, question: OpenQuestion, now: Duration) -> Vec<ScreenEffect> {
        self.asked_since.get_or_insert(now);
        self.questions.push_back(question);
        if self.about.notify && self.has_focus != Some(true) {
            vec![ScreenEffect::Notify]
        } else {
            Vec::new()
        }
    }

    /// Notes that the picture is on the terminal, with the first question.
    pub(crate) fn was_drawn(&mut self, now: Duration) {
        if let Some(question) = self.questions.front_mut() {
            question.since = self.is_visible.then_some(question.since.unwrap_or(now));
        }
        if let Some(dialog) = &mut self.dialog {
            dialog.since = self.is_visible.then_some(dialog.since.unwrap_or(now));
        }
    }

    /// Takes over the text that the person typed in the session before.
    pub(crate) fn goes_on_from(&mut self, before: Self, now: Duration) {
        (self.editor, self.queued) = (before.editor, before.queued);
        (self.has_focus, self.last_key) = (before.has_focus, now);
        self.about.history = before.about.history;
    }

    /// Shows a choice that the session asks for.
    pub(crate) fn open_dialog(&mut self, text: &str, choices: Vec<String>, is_sudden: bool) {
        let choices = choices.iter().map(|choice| neutral_line(choice)).collect();
        let text = toolhold_core::text::neutral(text).into_owned();
        self.dialog = Some(Dialog { text, choices, chosen: 0, is_sudden, since: None });
    }

    /// Whether a task or a command runs.
    pub(crate) fn is_busy(&self) -> bool {
        self.phase != Phase::Idle
    }

    /// The time of the task, without the time in which the person was asked.
    pub(crate) fn time(&self, now: Duration) -> Duration {
        let Some(began) = self.began else { return self.took };
        let asked = self.asked_since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        now.saturating_sub(began).saturating_sub(self.asked + asked)
    }

    /// The agent's activity, in words.
    pub(crate) fn phase_in_words(&self) -> String {
        if !self.questions.is_empty() {
            return "waits for you".to_owned();
        }
        match self.phase {
            Phase::Idle => "ready".to_owned(),
            Phase::Begins => "begins".to_owned(),
            Phase::Asks => "asks the model".to_owned(),
            Phase::Thinks => "thinks".to_owned(),
            Phase::Writes => "writes".to_owned(),
            Phase::WritesCall => "writes a call".to_owned(),
            Phase::Runs => {
                let calls = self.running.len();
                format!("runs {}", toolhold_core::text::counted(calls, "call"))
            }
        }
    }

    /// The part of the model's context that the last request took, in percent.
    pub(crate) fn fill(&self) -> Option<u64> {
        let [context, read] = self.context;
        (context > 0 && read > 0).then(|| read.saturating_mul(100) / context)
    }

    /// The part of the read tokens that came from the provider's cache, in percent.
    pub(crate) fn cache_hits(&self) -> Option<u64> {
        let Spent { input, cache_read, cache_written, .. } = self.spent;
        let read = input.saturating_add(cache_read).saturating_add(cache_written);
        cache_read.saturating_mul(100).checked_div(read)
    }

    /// The answers of this task.
    pub(crate) fn turns(&self) -> u64 {
        match self.began {
            Some(_) => self.spent.turns.saturating_sub(self.before.turns),
            None => self.spent.turns,
        }
    }

    /// The whole conversation that is kept, as text.
    pub fn transcript_text(&self, width: usize) -> String {
        self.transcript.to_text(width, &self.session)
    }
}
