//! Sends the events of a recorded session again.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;

use toolhold_core::config::Folders;
use toolhold_core::{CancellationToken, Definition};
use toolhold_models::TokenUsage;

use crate::AgentError;
use crate::calls::{TextForms, WantedCall};
use crate::ending::{EndKind, Spent, TaskEnd};
use crate::events::{RunEvent, RunEvents, text_of};
use crate::record::{Corrected, Ended, Rewound, SessionEntry, SessionStore, Task, read_entries};
use crate::settings::AgentSettings;
use crate::think::strip;

/// A recorded session. A replay sends its events in the same order, without a model or tools.
#[derive(Debug)]
pub struct RecordedSession {
    pub(crate) id: String,
    pub(crate) file: File,
}

impl RecordedSession {
    /// Opens a recorded session. Blocks.
    ///
    /// # Errors
    ///
    /// Fails if the session doesn't exist or its file can't be read.
    pub fn open(folders: &Folders, id: &str) -> Result<Self, AgentError> {
        let file = SessionStore::new(folders).file(id)?;
        Ok(Self { id: id.to_owned(), file })
    }

    /// Sends the events of the session, and returns the end of its last task. Blocks.
    ///
    /// # Errors
    ///
    /// Fails if the session file is damaged.
    pub fn replay(
        self,
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> Result<EndKind, AgentError> {
        let mut replay = Replay::default();
        for (number, entry) in read_entries(self.file).enumerate() {
            if cancel.is_cancelled() {
                return Ok(EndKind::Cancelled);
            }
            let entry = entry.map_err(AgentError::io(&self.id))?;
            replay.show(number, entry, events);
        }
        replay.end_if_killed(events);
        Ok(replay.last_end)
    }
}

#[derive(Default)]
struct Replay {
    settings: Option<AgentSettings>,
    forms: Option<TextForms>,
    tools: Vec<Arc<Definition>>,
    /// The calls of the last answer that haven't started yet.
    waiting: VecDeque<WantedCall>,
    spent: Spent,
    /// The tokens and costs before the running task, or `None` if no task is running.
    spent_before_task: Option<Spent>,
    last_end: EndKind,
}

impl Replay {
    fn show(&mut self, number: usize, entry: SessionEntry, events: &mut dyn RunEvents) {
        match entry {
            SessionEntry::Began(began) => {
                events.event(RunEvent::Session { id: began.id, directory: began.directory });
            }
            SessionEntry::Task(task) => {
                self.end_if_killed(events);
                self.begin_task(task, events);
            }
            SessionEntry::Answer(answer) => {
                let before = self.spent;
                if let Some(settings) = &self.settings {
                    self.spent.add(&answer.usage, &settings.prices);
                }
                let Some(forms) = &mut self.forms else { return };
                let wanted = forms.wanted(&answer, number);
                let text = wanted.text;
                let calls = wanted.calls.len();
                let spent = self.spent.since(&before);
                if !text.is_empty() {
                    events.event(RunEvent::TextPart { text: text.clone() });
                }
                events.event(RunEvent::Answer { text, calls, spent });
                self.waiting = wanted.calls.into();
            }
            SessionEntry::Result(result) => {
                self.begin_calls(&result.result.call, result.begun, events);
                if let Some(forms) = &mut self.forms {
                    forms.earlier.add(&text_of(&result.result.content));
                }
                events.event(result.event());
            }
            SessionEntry::Corrected(Corrected { call, begun, notice, usage }) => {
                self.begin_calls(&call, begun, events);
                if let Some(usage) = usage
                    && let Some(settings) = &self.settings
                    && let Some(corrector) = &settings.corrector
                {
                    self.spent.add(&usage, &corrector.prices);
                }
                events.event(RunEvent::Notice { text: notice });
            }
            SessionEntry::Notice(text) | SessionEntry::Rewound(Rewound { notice: text, .. }) => {
                events.event(RunEvent::Notice { text });
            }
            SessionEntry::Compressed(compressed) => {
                self.spend_on_summary(&compressed.usage);
                if let Some(forms) = &mut self.forms {
                    forms.earlier.add(&compressed.summary);
                }
            }
            SessionEntry::Summary(usage) => self.spend_on_summary(&usage),
            SessionEntry::Delegated(delegated) => self.spent.add_all(&delegated.spent),
            SessionEntry::Ended(Ended { ending, .. }) => self.end(ending, events),
            SessionEntry::Note(_) | SessionEntry::Pruned(_) => {}
        }
    }

    fn spend_on_summary(&mut self, usage: &TokenUsage) {
        if let Some(settings) = &self.settings {
            self.spent.add(usage, &settings.summary_prices);
        }
    }

    fn begin_task(&mut self, task: Task, events: &mut dyn RunEvents) {
        self.spent_before_task = Some(self.spent);
        let text = text_of(&task.parts);
        let forms = self.forms.get_or_insert_with(|| TextForms::new(&task.settings));
        forms.earlier.add_message(&text);
        // Tools are only recorded if they differ from those of the task before.
        if let Some(tools) = task.tools {
            self.tools = tools;
        }
        forms.offer(&task.settings, &self.tools);
        let provider = task.settings.provider.clone();
        let model = task.settings.model.clone();
        let context = task.settings.context_tokens;
        events.event(RunEvent::Task { text, provider, model, context });
        self.settings = Some(task.settings);
    }

    /// Sends the start events of the next `count` waiting calls. If the call `id` is still waiting,
    /// continues until its start.
    fn begin_calls(&mut self, id: &str, count: usize, events: &mut dyn RunEvents) {
        let mut begun = 0;
        while begun < count || self.waiting.iter().any(|call| call.id == id) {
            let Some(call) = self.waiting.pop_front() else { return };
            // Invalid arguments are shown as no arguments.
            let mut arguments = call.arguments.unwrap_or_else(|_| serde_json::json!({}));
            strip(&mut arguments);
            events.event(RunEvent::Call { id: call.id, tool: call.name, arguments });
            begun += 1;
        }
    }

    fn end(&mut self, ending: TaskEnd, events: &mut dyn RunEvents) {
        let before = self.spent_before_task.take().unwrap_or(self.spent);
        self.last_end = ending.kind;
        self.waiting = VecDeque::new();
        let spent = self.spent.since(&before);
        events.event(RunEvent::Ended { ending, spent, session: self.spent });
    }

    /// Ends a task whose end isn't recorded because Toolhold was killed.
    fn end_if_killed(&mut self, events: &mut dyn RunEvents) {
        if self.spent_before_task.is_some() {
            let why = "the record of this task ends here: Toolhold was killed";
            self.end(TaskEnd::new(EndKind::Cancelled, why), events);
        }
    }
}
