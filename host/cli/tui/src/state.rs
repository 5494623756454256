//! The state of the screen.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use toolhold_agent::{EndKind, RunEvent, Spent};
use toolhold_core::Confidence;
use toolhold_core::text::{cut, grouped, neutral_line};
use toolhold_skills::CustomCommands;

use crate::call::CallBlock;
use crate::complete::Popup;
use crate::editor::Editor;
use crate::effect::ScreenEffect;
use crate::question::OpenQuestion;
use crate::theme::Theme;
use crate::transcript::{Block, Transcript};

/// The most messages that wait. More messages are refused.
pub(crate) const MAX_QUEUED: usize = 100;

/// The most earlier messages that Up shows.
pub(crate) const MAX_HISTORY: usize = 1000;

/// The most bytes of the reason at the end of a task.
const MAX_REASON: usize = 2000;

/// Facts that aren't in the events of a session.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The limits and the rules.
    pub status: String,
    /// The model for the first message, as `PROVIDER/MODEL`.
    pub model: String,
    /// The tools of the model.
    pub tools: String,
    /// Messages of earlier chats in this directory, the newest last.
    pub history: Vec<String>,
    /// The commands of the user and of the project.
    pub commands: CustomCommands,
    /// Whether the terminal shows a notification when Toolhold needs the person.
    pub notify: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The agent waits for a message.
    Idle,
    /// A message or command was sent, but its work hasn't started.
    Starting,
    /// The model has the request, but hasn't answered.
    Asking,
    Thinking,
    Writing,
    WritingCall,
    Running,
}

/// A choice for the person.
#[derive(Clone, Debug)]
pub(crate) struct Dialog {
    pub(crate) text: String,
    pub(crate) choices: Vec<String>,
    pub(crate) chosen: usize,
    /// Whether the person didn't ask for the dialog.
    pub(crate) is_sudden: bool,
    /// When the dialog became visible.
    pub(crate) visible_since: Option<Duration>,
}

impl Dialog {
    /// Chooses by the first letter, for example "Yes" by `y`.
    pub(crate) fn choose_by_letter(&mut self, letter: char) {
        let letter = letter.to_lowercase().to_string();
        let found = self.choices.iter().position(|it| it.to_lowercase().starts_with(&letter));
        self.chosen = found.unwrap_or(self.chosen);
    }
}

/// The state of the screen.
#[derive(Debug)]
pub struct ScreenState {
    pub(crate) theme: Theme,
    pub(crate) about: About,
    pub(crate) session: String,
    pub(crate) directory: String,
    pub(crate) model: String,
    /// The size of the model's context in tokens, or 0 if it is unknown.
    context_limit: u64,
    /// The tokens of the context in the last request.
    context_used: u64,
    pub(crate) phase: Phase,
    /// The tokens of the current or last request.
    asked_tokens: u64,
    pub(crate) transcript: Transcript,
    pub(crate) questions: VecDeque<OpenQuestion>,
    pub(crate) queued: VecDeque<String>,
    pub(crate) dialog: Option<Dialog>,
    pub(crate) editor: Editor,
    pub(crate) popup: Popup,
    /// The index of the recalled message, from the end of the history. `None` while the person
    /// writes a new message.
    pub(crate) recalled: Option<usize>,
    /// The typed text before a message was recalled.
    pub(crate) draft: String,
    pub(crate) spent: Spent,
    /// The tokens and the cost before the current task.
    spent_before: Spent,
    /// The number of filtered results with full, partial and fallback confidence.
    pub(crate) filtered: [u64; 3],
    running: BTreeSet<String>,
    /// When the running task started.
    started_at: Option<Duration>,
    last_task_time: Duration,
    /// When the task started to wait for the person.
    waiting_since: Option<Duration>,
    /// The total time of earlier waits for the person in the task.
    waited: Duration,
    /// When the last key was pressed.
    pub(crate) last_key: Duration,
    /// When the message was last changed.
    pub(crate) wrote_at: Duration,
    /// Whether the terminal is large enough for the picture.
    pub(crate) is_visible: bool,
    /// Whether the terminal has the focus, or `None` if it doesn't report this.
    pub(crate) has_focus: Option<bool>,
    /// The columns and lines of the transcript on the screen.
    pub(crate) shown: (usize, usize),
}

impl ScreenState {
    /// Makes the state of a new screen.
    pub fn new(theme: Theme, about: About) -> Self {
        let model = neutral_line(&about.model);
        Self {
            theme,
            about,
            session: String::new(),
            directory: String::new(),
            model,
            context_limit: 0,
            context_used: 0,
            phase: Phase::Idle,
            asked_tokens: 0,
            transcript: Transcript::new(theme),
            questions: VecDeque::new(),
            queued: VecDeque::new(),
            dialog: None,
            editor: Editor::default(),
            popup: Popup::default(),
            recalled: None,
            draft: String::new(),
            spent: Spent::default(),
            spent_before: Spent::default(),
            filtered: [0; 3],
            running: BTreeSet::new(),
            started_at: None,
            last_task_time: Duration::ZERO,
            waiting_since: None,
            waited: Duration::ZERO,
            last_key: Duration::ZERO,
            wrote_at: Duration::ZERO,
            is_visible: true,
            has_focus: None,
            // A guess until the first picture.
            shown: (80, 20),
        }
    }

    /// Applies an event, and returns its effects. `now` is the time of a monotonic clock.
    pub fn apply(&mut self, event: RunEvent, now: Duration) -> Vec<ScreenEffect> {
        match event {
            RunEvent::Session { id, directory } => {
                self.session = neutral_line(&id);
                self.directory = neutral_line(&directory);
            }
            RunEvent::Task { text, provider, model, context } => {
                self.model = neutral_line(&format!("{provider}/{model}"));
                self.context_limit = context;
                self.start_task(&text, now);
            }
            RunEvent::Asking { tokens, .. } => {
                self.phase = Phase::Asking;
                self.asked_tokens = tokens;
            }
            RunEvent::TextPart { text } => {
                self.phase = Phase::Writing;
                self.transcript.add_answer(&text);
            }
            RunEvent::ThinkingPart { text } => {
                self.phase = Phase::Thinking;
                self.transcript.add_thinking(&text);
            }
            RunEvent::CallPart { .. } => self.phase = Phase::WritingCall,
            RunEvent::Answer { spent, .. } => {
                self.transcript.end_answer();
                self.context_used = read_tokens(&spent);
                self.spent.add_all(&spent);
                self.phase = Phase::Asking;
            }
            RunEvent::Call { id, tool, arguments } => {
                self.phase = Phase::Running;
                self.running.insert(id.clone());
                let call = CallBlock::new(id, &tool, &arguments);
                self.transcript.push(Block::Call(Box::new(call)));
            }
            RunEvent::CallOutput { id, text, left_out } => {
                self.transcript.change_call(&id, |call| call.add_output(&text, left_out));
            }
            RunEvent::Question { id, call, caller, text, diff, always, wider, .. } => {
                self.transcript.change_call(&call, |call| call.set_diff(diff.as_deref()));
                let question = OpenQuestion::approval(id, call, caller.as_deref(), &text, always)
                    .offering(wider);
                return self.ask(question, now);
            }
            RunEvent::Inquiry { id, call, text, form } => {
                let question = OpenQuestion::inquiry(id, call, text, form.as_ref());
                return self.ask(question, now);
            }
            RunEvent::Answered { id, answer, by, reason } => {
                if let Some(question) = self.close_question(&id, now) {
                    self.transcript
                        .change_call(&question.call, |call| call.add_answer(answer, &by, &reason));
                }
            }
            RunEvent::Queued { text } => {
                if self.queued.len() < MAX_QUEUED {
                    self.queued.push_back(text);
                }
            }
            RunEvent::Result { id, failed, category, text, filtered, .. } => {
                if let Some(summary) = &filtered {
                    let [full, partial, fallback] = &mut self.filtered;
                    match summary.confidence {
                        Confidence::Full => *full += 1,
                        Confidence::Partial => *partial += 1,
                        Confidence::Fallback => *fallback += 1,
                    }
                }
                self.running.remove(&id);
                if self.running.is_empty() {
                    self.phase = Phase::Asking;
                }
                let category = category.as_deref();
                self.transcript.change_call(&id, |call| {
                    call.end(failed, category, &text, filtered.as_ref());
                });
            }
            RunEvent::Notice { text } => self.transcript.push_notice(&text),
            RunEvent::Ended { ending, spent, session } => {
                let reason = neutral_line(cut(&ending.reason, MAX_REASON));
                self.transcript.push(Block::Ended(ending.kind, reason, spent));
                self.spent = session;
                return self.end_task(ending.kind, now);
            }
        }
        Vec::new()
    }

    /// Shows the model that gets the next message, as `PROVIDER/MODEL`.
    pub fn ask_model(&mut self, model: &str) {
        self.model = neutral_line(model);
    }

    /// Starts the task of a message, which no longer waits.
    fn start_task(&mut self, text: &str, now: Duration) {
        if self.queued.front().is_some_and(|queued| queued == text) {
            self.queued.pop_front();
        }
        self.transcript.push_person(text);
        self.phase = Phase::Asking;
        self.spent_before = self.spent;
        self.started_at = Some(now);
        self.waited = Duration::ZERO;
        self.waiting_since = None;
    }

    /// Ends the task, and sends the next message. After an interruption, waiting messages return to
    /// the editor.
    fn end_task(&mut self, kind: EndKind, now: Duration) -> Vec<ScreenEffect> {
        self.last_task_time = self.time(now);
        self.started_at = None;
        self.questions.clear();
        self.running.clear();
        self.phase = Phase::Idle;
        if kind != EndKind::Cancelled {
            return self.send_queued();
        }
        // The messages come before the typed text, the oldest first.
        while let Some(text) = self.queued.pop_back() {
            let typed = self.editor.take();
            let gap = if typed.is_empty() { "" } else { "\n" };
            self.editor.set(&format!("{text}{gap}{typed}"));
        }
        Vec::new()
    }

    /// Sends the first waiting message, which stays in the queue until its task starts.
    fn send_queued(&mut self) -> Vec<ScreenEffect> {
        match self.queued.front() {
            Some(text) => {
                self.phase = Phase::Starting;
                vec![ScreenEffect::Send(text.clone())]
            }
            None => Vec::new(),
        }
    }

    /// Ends a command and sends the next message.
    pub(crate) fn end_command(&mut self) -> Vec<ScreenEffect> {
        self.phase = Phase::Idle;
        self.send_queued()
    }

    /// Removes an answered question, and returns the question if it was open. After the last
    /// question, the task's clock continues.
    fn close_question(&mut self, id: &str, now: Duration) -> Option<OpenQuestion> {
        let mut question = None;
        if let Some(index) = self.questions.iter().position(|question| question.id == id) {
            question = self.questions.remove(index);
        }
        if self.questions.is_empty()
            && let Some(since) = self.waiting_since.take()
        {
            self.waited += now.saturating_sub(since);
        }
        question
    }

    /// Adds a question, and notifies the person unless the terminal has the focus.
    fn ask(&mut self, question: OpenQuestion, now: Duration) -> Vec<ScreenEffect> {
        self.waiting_since.get_or_insert(now);
        self.questions.push_back(question);
        if self.about.notify && self.has_focus != Some(true) {
            vec![ScreenEffect::Notify]
        } else {
            Vec::new()
        }
    }

    /// Notes that the first question and the dialog are visible.
    pub(crate) fn was_drawn(&mut self, now: Duration) {
        if let Some(question) = self.questions.front_mut() {
            note_visible(&mut question.visible_since, self.is_visible, now);
        }
        if let Some(dialog) = &mut self.dialog {
            note_visible(&mut dialog.visible_since, self.is_visible, now);
        }
    }

    /// Takes over the typed text, the waiting messages and the history of the earlier session.
    pub(crate) fn continue_from(&mut self, previous: Self, now: Duration) {
        self.editor = previous.editor;
        self.queued = previous.queued;
        self.has_focus = previous.has_focus;
        self.last_key = now;
        self.about.history = previous.about.history;
    }

    pub(crate) fn open_dialog(&mut self, text: &str, choices: Vec<String>, is_sudden: bool) {
        let choices = choices.iter().map(|choice| neutral_line(choice)).collect();
        let text = toolhold_core::text::neutral(text).into_owned();
        self.dialog = Some(Dialog { text, choices, chosen: 0, is_sudden, visible_since: None });
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.phase != Phase::Idle
    }

    /// Returns the time of the current or last task, without waits for the person.
    pub(crate) fn time(&self, now: Duration) -> Duration {
        let Some(started_at) = self.started_at else { return self.last_task_time };
        let mut waited = self.waited;
        if let Some(since) = self.waiting_since {
            waited += now.saturating_sub(since);
        }
        now.saturating_sub(started_at).saturating_sub(waited)
    }

    pub(crate) fn phase_in_words(&self) -> String {
        if !self.questions.is_empty() {
            return "waits for you".to_owned();
        }
        match self.phase {
            Phase::Idle => "ready".to_owned(),
            Phase::Starting => "begins".to_owned(),
            Phase::Asking if self.asked_tokens > 0 => {
                format!("model reads {} tokens", grouped(self.asked_tokens))
            }
            Phase::Asking => "asks the model".to_owned(),
            Phase::Thinking => "thinks".to_owned(),
            Phase::Writing => "writes".to_owned(),
            Phase::WritingCall => "writes a call".to_owned(),
            Phase::Running => {
                let calls = self.running.len();
                format!("runs {}", toolhold_core::text::counted(calls, "call"))
            }
        }
    }

    /// Returns the used percentage of the model's context, or `None` if its size is unknown.
    pub(crate) fn context_fill(&self) -> Option<u64> {
        if self.context_used == 0 {
            return None;
        }
        self.context_used.saturating_mul(100).checked_div(self.context_limit)
    }

    /// Returns the percentage of read tokens that came from the provider's cache.
    pub(crate) fn cache_hits(&self) -> Option<u64> {
        self.spent.cache_read.saturating_mul(100).checked_div(read_tokens(&self.spent))
    }

    /// Returns the number of answers in the running task, or else in the session.
    pub(crate) fn turns(&self) -> u64 {
        match self.started_at {
            Some(_) => self.spent.turns.saturating_sub(self.spent_before.turns),
            None => self.spent.turns,
        }
    }

    /// Returns the conversation as text, without dropped parts.
    pub fn transcript_text(&self, width: usize) -> String {
        self.transcript.to_text(width, &self.session)
    }
}

fn read_tokens(spent: &Spent) -> u64 {
    spent.input.saturating_add(spent.cache_read).saturating_add(spent.cache_written)
}

fn note_visible(since: &mut Option<Duration>, is_visible: bool, now: Duration) {
    if is_visible {
        since.get_or_insert(now);
    } else {
        *since = None;
    }
}
