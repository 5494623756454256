//! The state of the screen, changed by the session's events and the person's input.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use toolhold_agent::{EndKind, RunEvent, Spent};
use toolhold_core::Confidence;
use toolhold_core::text::{cut, grouped, neutral_line};

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
    /// The messages of earlier chats in this directory. The newest message is the last one.
    pub history: Vec<String>,
    /// Whether the terminal shows a notification when Toolhold needs the person.
    pub notify: bool,
}

/// The agent's activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The agent waits for a message.
    Idle,
    /// A message or a command was sent but hasn't started.
    Starting,
    /// The model has the request and hasn't answered yet.
    Asking,
    Thinking,
    Writing,
    /// The model writes a call.
    WritingCall,
    /// Calls run.
    Running,
}

/// A choice that the session asks the person for.
#[derive(Clone, Debug)]
pub(crate) struct Dialog {
    pub(crate) text: String,
    pub(crate) choices: Vec<String>,
    pub(crate) chosen: usize,
    /// Whether the dialog opened without a command of the person.
    pub(crate) is_sudden: bool,
    /// The time from which the person can see the dialog.
    pub(crate) visible_since: Option<Duration>,
}

impl Dialog {
    /// Chooses the first choice that begins with a letter, such as `y` for "Yes".
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
    /// The size of the model's context in tokens. 0: the size is unknown.
    context_limit: u64,
    /// Tokens of the context that the model read last.
    context_used: u64,
    pub(crate) phase: Phase,
    /// Tokens of the request that the model reads, or read last.
    asked_tokens: u64,
    pub(crate) transcript: Transcript,
    pub(crate) questions: VecDeque<OpenQuestion>,
    pub(crate) queued: VecDeque<String>,
    pub(crate) dialog: Option<Dialog>,
    pub(crate) editor: Editor,
    pub(crate) popup: Popup,
    /// The recalled message as an index from the end of the history. `None`: the text is new.
    pub(crate) recalled: Option<usize>,
    /// The text that was typed before an earlier message was recalled.
    pub(crate) draft: String,
    pub(crate) spent: Spent,
    /// The tokens and the cost before this task.
    spent_before: Spent,
    /// The number of results for each confidence of filters: full, partial, fallback.
    pub(crate) filtered: [u64; 3],
    /// Calls that run.
    running: BTreeSet<String>,
    /// The start of the task. `None`: there is no running task.
    started_at: Option<Duration>,
    /// The duration of the last task.
    last_task_time: Duration,
    /// The time since which the task waits for the person's answers.
    waiting_since: Option<Duration>,
    /// How long the task has waited for earlier answers.
    waited: Duration,
    /// The time of the last key.
    pub(crate) last_key: Duration,
    /// When the person last changed the message.
    pub(crate) wrote_at: Duration,
    /// Whether the terminal is large enough for the picture.
    pub(crate) is_visible: bool,
    /// Whether the terminal's window has the focus. `None`: the terminal doesn't report the focus.
    pub(crate) has_focus: Option<bool>,
    /// The columns and lines of the transcript when it was last drawn.
    pub(crate) shown: (usize, usize),
}

impl ScreenState {
    /// Makes the state of a new screen.
    pub fn new(theme: Theme, about: About) -> Self {
        Self {
            theme,
            about,
            session: String::new(),
            directory: String::new(),
            model: String::new(),
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
            shown: (80, 20),
        }
    }

    /// Applies an event. `now` is the time on a clock that only grows. Returns the effects.
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

    /// Ends the task and sends the next message. If the person interrupted, the waiting messages
    /// go back into the prompt instead.
    fn end_task(&mut self, kind: EndKind, now: Duration) -> Vec<ScreenEffect> {
        self.last_task_time = self.time(now);
        self.started_at = None;
        self.questions.clear();
        self.running.clear();
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
                self.phase = Phase::Starting;
                vec![ScreenEffect::Send(text.clone())]
            }
            None => Vec::new(),
        }
    }

    /// Notes that a command of the person is done. Sends the next message.
    pub(crate) fn end_command(&mut self) -> Vec<ScreenEffect> {
        self.phase = Phase::Idle;
        self.send_queued()
    }

    /// Removes an answered question. After the last question, the task continues.
    fn close_question(&mut self, id: &str, now: Duration) -> Option<OpenQuestion> {
        let index = self.questions.iter().position(|question| question.id == id);
        let question = index.and_then(|index| self.questions.remove(index));
        if self.questions.is_empty()
            && let Some(since) = self.waiting_since.take()
        {
            self.waited += now.saturating_sub(since);
        }
        question
    }

    fn ask(&mut self, question: OpenQuestion, now: Duration) -> Vec<ScreenEffect> {
        self.waiting_since.get_or_insert(now);
        self.questions.push_back(question);
        if self.about.notify && self.has_focus != Some(true) {
            vec![ScreenEffect::Notify]
        } else {
            Vec::new()
        }
    }

    /// Notes that the picture is on the terminal, with the first question and the dialog.
    pub(crate) fn was_drawn(&mut self, now: Duration) {
        if let Some(question) = self.questions.front_mut() {
            note_visible(&mut question.visible_since, self.is_visible, now);
        }
        if let Some(dialog) = &mut self.dialog {
            note_visible(&mut dialog.visible_since, self.is_visible, now);
        }
    }

    /// Takes over the text that the person typed in the session before.
    pub(crate) fn continue_from(&mut self, before: Self, now: Duration) {
        self.editor = before.editor;
        self.queued = before.queued;
        self.has_focus = before.has_focus;
        self.last_key = now;
        self.about.history = before.about.history;
    }

    /// Shows a choice that the session asks for.
    pub(crate) fn open_dialog(&mut self, text: &str, choices: Vec<String>, is_sudden: bool) {
        let choices = choices.iter().map(|choice| neutral_line(choice)).collect();
        let text = toolhold_core::text::neutral(text).into_owned();
        self.dialog = Some(Dialog { text, choices, chosen: 0, is_sudden, visible_since: None });
    }

    /// Checks whether a task or a command runs.
    pub(crate) fn is_busy(&self) -> bool {
        self.phase != Phase::Idle
    }

    /// Returns the duration of the current or last task, without the time in which the task waited
    /// for the person.
    pub(crate) fn time(&self, now: Duration) -> Duration {
        let Some(started_at) = self.started_at else { return self.last_task_time };
        let mut waited = self.waited;
        if let Some(since) = self.waiting_since {
            waited += now.saturating_sub(since);
        }
        now.saturating_sub(started_at).saturating_sub(waited)
    }

    /// Describes the agent's activity.
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

    /// Returns the fill level of the model's context after the last request, in percent. Returns
    /// `None` if the limit is unknown, or if there was no request.
    pub(crate) fn context_fill(&self) -> Option<u64> {
        if self.context_used == 0 {
            return None;
        }
        self.context_used.saturating_mul(100).checked_div(self.context_limit)
    }

    /// Returns the part of the read tokens that came from the provider's cache, in percent.
    pub(crate) fn cache_hits(&self) -> Option<u64> {
        self.spent.cache_read.saturating_mul(100).checked_div(read_tokens(&self.spent))
    }

    /// Returns the number of answers in this task, or in the session if no task runs.
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

/// Returns the tokens that a model read, from the provider's cache or not.
fn read_tokens(spent: &Spent) -> u64 {
    spent.input.saturating_add(spent.cache_read).saturating_add(spent.cache_written)
}

/// Sets the time since which something is visible, unless it was already visible.
fn note_visible(since: &mut Option<Duration>, is_visible: bool, now: Duration) {
    if is_visible {
        since.get_or_insert(now);
    } else {
        *since = None;
    }
}
