//! The agent's loop: asks the model, makes the calls in its answer, and asks again. The loop ends
//! when the model answers without calls, a limit is reached or the person cancels.

mod results;
mod room;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use toolhold_core::config::Prices;
use toolhold_core::{
    CancellationToken, Category, Definition, HostError, Reaction, Repetition, RepetitionLimits,
};
use toolhold_models::{FinishReason, ModelAnswer, Part, TokenUsage, Turn, TurnMessage};

use results::begins;
use toolhold_text_calls::{CallSplitter, FindOptions};

use crate::AgentError;
use crate::budget::{AskedModel, TaskBudget, TaskClock};
use crate::calls::{self, ArgumentsError, TextForms, Wanted};
use crate::chosen::{self, FIND, FIND_TOOLS};
use crate::context::{self, COMPRESS};
use crate::conversation::Conversation;
use crate::desk::{DelegateRegistry, ParentAgent, RegistryEntry};
use crate::ending::{EndKind, Spent, TaskEnd};
use crate::environment::{AgentEnvironment, AskError, AskedModels, FileFinder, ReadyCall};
use crate::events::{RunEvent, RunEvents, text_of};
use crate::parts::{show, show_event};
use crate::record::{CompressionMethod, Ended, RecordedResult, SessionEntry, SessionFile, Task};
use crate::selection::IncludedTool;
use crate::settings::AgentSettings;
use crate::think::{ONLY_THOUGHTS, Stripped, strip};
use crate::tokens::TokenMeter;
use crate::utility::UtilityGate;

/// Most calls that run at once. Only calls that read do.
const AT_ONCE: usize = 8;

/// The number of truncated or empty answers in a row after which the task ends.
const MAX_BROKEN: usize = 3;

/// The result of a call whose process was killed.
const LOST: &str = "[The call was interrupted: Toolhold ended before it had the result. It may have had effects. Look before you repeat it.]";

/// An agent in one session.
pub struct Agent {
    settings: AgentSettings,
    environment: Arc<AgentEnvironment>,
    file: SessionFile,
    conversation: Conversation,
    tools: Vec<Arc<Definition>>,
    /// The tools that were chosen for the session. `None`: all tools are offered.
    chosen: Option<Vec<IncludedTool>>,
    utility: UtilityGate,
    /// The tools of the last task in the session's file.
    recorded_tools: Option<Vec<Arc<Definition>>>,
    forms: TextForms,
    repetition: Repetition,
    meter: TokenMeter,
    spent: Spent,
    /// The limits of the task, and the amounts that are used so far.
    budget: Arc<TaskBudget>,
    clock: TaskClock,
    /// The registry in which sub-agents find this agent. `None`: the agent can't delegate.
    registry: Option<Arc<DelegateRegistry>>,
    delegator: Option<Arc<ParentAgent>>,
    /// The number of last answers that were truncated or empty.
    broken: usize,
    /// Whether all calls of the last answer were denied.
    denied: bool,
    /// Whether the person knows that fewer tools would make the model faster.
    is_advised: bool,
}

/// The decision after a step.
enum Next {
    /// The model is asked again.
    Ask,
    End(TaskEnd),
}

impl Agent {
    pub(crate) fn new(
        settings: AgentSettings,
        environment: Arc<AgentEnvironment>,
        file: SessionFile,
        conversation: Conversation,
        spent: Spent,
    ) -> Self {
        let mut forms = TextForms::new(&settings);
        if let Some(head) = conversation.head() {
            context::texts(&head).for_each(|text| forms.earlier.add_message(text));
        }
        for message in conversation.context_messages() {
            let texts = context::texts(&message.message);
            match &message.message {
                TurnMessage::User(_) => texts.for_each(|text| forms.earlier.add_message(text)),
                TurnMessage::Results(_) => texts.for_each(|text| forms.earlier.add(text)),
                TurnMessage::Model(answer) => {
                    if answer.calls().next().is_some() {
                        forms.used_native = true;
                    }
                }
            }
        }
        let budget = Arc::new(TaskBudget::new(&settings));
        let clock = TaskClock::start(settings.max_time, environment.waited());
        Self {
            settings,
            environment,
            file,
            conversation,
            tools: Vec::new(),
            chosen: None,
            utility: UtilityGate::default(),
            recorded_tools: None,
            forms,
            repetition: Repetition::new(RepetitionLimits::default()),
            meter: TokenMeter::new(),
            spent,
            budget,
            clock,
            registry: None,
            delegator: None,
            broken: 0,
            denied: false,
            is_advised: false,
        }
    }

    /// Asks other models from the next task on.
    pub(crate) fn set_models(&mut self, models: AskedModels, settings: AgentSettings) {
        let before = &self.environment;
        self.environment = Arc::new(AgentEnvironment {
            host: Arc::clone(&before.host),
            session: before.session.clone(),
            caller: before.caller.clone(),
            depth: before.depth,
            phase: before.phase,
            trust: before.trust,
            allowed: before.allowed.clone(),
            models,
            approver: Arc::clone(&before.approver),
        });
        self.settings = settings;
    }

    /// Lets the agent delegate work.
    pub(crate) fn enable_delegation(&mut self, registry: Arc<DelegateRegistry>) {
        self.registry = Some(registry);
    }

    /// Notes that some texts that the model has read aren't known any more.
    pub(crate) fn lose_earlier_texts(&mut self) {
        self.forms.earlier.lose();
    }

    /// Goes on with the tools that were chosen before.
    pub(crate) fn keep_tools(&mut self, chosen: Option<Vec<IncludedTool>>) {
        self.chosen = chosen;
    }

    /// Returns the settings of the session and the chosen tools, one per line.
    pub fn status(&self) -> Vec<String> {
        let AgentSettings { provider, model, context_tokens, .. } = &self.settings;
        let read = self.meter.tokens();
        let context = format!("Context: about {read} of {context_tokens} tokens");
        let mut lines = vec![format!("Model: {provider}/{model}"), context];
        lines.extend(self.filter_status());
        lines
    }

    /// Returns the settings of the tool filter and the chosen tools, one per line. There are no
    /// lines if all tools are offered.
    pub fn filter_status(&self) -> Vec<String> {
        chosen::status(&self.settings, self.chosen.as_deref())
    }

    /// Returns the text of the last answer. Empty: there is no such text.
    pub fn last_answer(&self) -> String {
        self.conversation.last_text()
    }

    /// Returns the tokens and costs of the whole session so far.
    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// Returns the settings of the agent.
    pub fn settings(&self) -> &AgentSettings {
        &self.settings
    }

    /// Returns the tools that the model may call.
    ///
    /// # Errors
    ///
    /// Returns an error if the state of the tools can't be read.
    pub fn tools(&self) -> Result<Vec<Arc<Definition>>, AgentError> {
        Ok(self.environment.offered()?.into_iter().map(|tool| tool.definition).collect())
    }

    /// Returns a file finder for the person. The finder also works while a task runs.
    pub fn finder(&self) -> FileFinder {
        FileFinder::new(&self.environment)
    }

    /// Returns the model as `PROVIDER/MODEL` if `lenient_models` in `[agent]` would help it: the
    /// model wrote calls as JSON without any other text.
    pub fn wants_lenient(&self) -> Option<String> {
        if !self.forms.lenient_helps {
            return None;
        }
        let AgentSettings { provider, model, .. } = &self.settings;
        Some(format!("{provider}/{model}"))
    }

    /// Accepts calls as JSON alone from the next task on.
    pub fn be_lenient(&mut self) {
        self.settings.lenient_text = true;
        self.forms.lenient_helps = false;
    }

    /// Limits the number of the model's answers in one task.
    pub fn limit_turns(&mut self, turns: u64) {
        self.settings.max_turns = self.settings.max_turns.min(turns);
    }

    /// Remembers that the task may follow from untrusted text.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Session::mark_untrusted`](toolhold_core::Session::mark_untrusted).
    pub fn mark_untrusted(&self) -> Result<(), HostError> {
        self.environment.session.mark_untrusted()
    }

    /// Summarises the older part of the conversation because the person asked for a summary.
    pub async fn compact(&mut self, events: &mut dyn RunEvents, cancel: &CancellationToken) {
        self.begin(None);
        let text = match self.compress(CompressionMethod::Manual, events, cancel).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        if let Err(error) = self.notice(text, events).await {
            events.event(RunEvent::Notice { text: error.to_string() });
        }
    }

    /// Adds a note for the model to the conversation.
    ///
    /// # Errors
    ///
    /// The note can't be recorded.
    pub async fn note(&mut self, text: String) -> Result<(), AgentError> {
        self.append(&SessionEntry::Note(text)).await.map(drop)
    }

    /// Shows a notice to the person, and records it.
    async fn notice(&mut self, text: String, events: &mut dyn RunEvents) -> Result<(), AgentError> {
        self.append(&SessionEntry::Notice(text.clone())).await?;
        events.event(RunEvent::Notice { text });
        Ok(())
    }

    /// Works on a task until the task ends. However the task ends, the session can then start
    /// another task.
    pub async fn run(
        &mut self,
        task: Vec<Part>,
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> TaskEnd {
        self.run_within(None, task, events, cancel).await
    }

    /// Works on a task within the remaining `budget`. Without a `budget`, the limits of the
    /// settings apply.
    pub(crate) async fn run_within(
        &mut self,
        budget: Option<Arc<TaskBudget>>,
        task: Vec<Part>,
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> TaskEnd {
        self.begin(budget);
        if self.environment.depth == 0 {
            self.environment.session.begin_turn();
        }
        let before = self.spent;
        let ending = match self.work(task, events, cancel).await {
            Ok(ending) => ending,
            Err(error) => TaskEnd::new(EndKind::Error, error.to_string()),
        };
        // A skill's variables are for one task. A sub-agent shares its parent's session, and the
        // parent's task is still running.
        if self.environment.depth == 0 {
            self.environment.session.clear_variables();
        }
        let ended = Ended { ending: ending.clone(), spent: self.spent };
        if let Err(error) = self.append(&SessionEntry::Ended(ended)).await
            && ending.kind != EndKind::Error
        {
            events.event(RunEvent::Notice { text: error.to_string() });
        }
        let spent = self.spent.since(&before);
        events.event(RunEvent::Ended { ending: ending.clone(), spent, session: self.spent });
        ending
    }

    async fn work(
        &mut self,
        task: Vec<Part>,
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> Result<TaskEnd, AgentError> {
        let _entry = self.start_task(task, events).await?;
        loop {
            if cancel.is_cancelled() {
                return Ok(TaskEnd::new(EndKind::Cancelled, ""));
            }
            if let Some(reason) = self.reached_limit() {
                return Ok(TaskEnd::new(EndKind::Budget, reason));
            }
            if let Next::End(ending) = self.fit(events, cancel).await? {
                return Ok(ending);
            }
            let Some(time) = self.time_left() else { continue };
            let budget = Arc::clone(&self.budget);
            let Some(asked_model) = budget.ask() else {
                return Ok(TaskEnd::new(EndKind::Budget, budget.all_turns()));
            };

            let answer = match self.ask_model(asked_model, time, events, cancel).await? {
                Some(Ok(answer)) => answer,
                // The next check of the limits ends the task.
                None => continue,
                Some(Err(AskError::Cancelled)) => {
                    return Ok(TaskEnd::new(EndKind::Cancelled, ""));
                }
                Some(Err(error)) => {
                    // The model's context may be smaller than the configuration says.
                    let is_full = matches!(error, AskError::ContextFull(_));
                    if is_full && self.make_room(events, cancel).await? {
                        continue;
                    }
                    return Ok(TaskEnd::new(EndKind::Error, error.to_string()));
                }
            };
            if let Next::End(ending) = self.take(answer, events, cancel).await? {
                return Ok(ending);
            }
        }
    }

    /// Offers the tools for a task, and records the task. The agent's sub-agents find the agent
    /// until the returned entry is dropped.
    async fn start_task(
        &mut self,
        task: Vec<Part>,
        events: &mut dyn RunEvents,
    ) -> Result<Option<RegistryEntry>, AgentError> {
        // Repetitions in an earlier task don't matter in this task.
        self.repetition.clear();
        self.broken = 0;
        self.denied = false;
        let settings = self.settings.clone();
        events.event(RunEvent::Task {
            text: text_of(&task),
            provider: settings.provider.clone(),
            model: settings.model.clone(),
            context: settings.context_tokens,
        });

        self.utility = UtilityGate::new(&text_of(&task));
        let notices = self.choose_tools(&task).await?;
        let entry = self.register()?;
        let tools = self.offer_in_text();
        for call in self.lost_calls() {
            let content = vec![Part::Text(LOST.to_owned())];
            let lost = RecordedResult::new(&call, content, Some(Category::Cancelled));
            self.append(&SessionEntry::Result(lost)).await?;
        }

        let chosen = self.chosen.clone();
        self.append(&SessionEntry::Task(Task { parts: task, settings, tools, chosen })).await?;
        for text in notices {
            self.notice(text, events).await?;
        }
        self.measure();
        Ok(entry)
    }

    /// Offers the tools that the model may call in its text. Returns these tools, or `None` if the
    /// session file already has them.
    fn offer_in_text(&mut self) -> Option<Vec<Arc<Definition>>> {
        let mut offered = Vec::new();
        if self.settings.is_local || !self.settings.native_tools {
            offered.clone_from(&self.tools);
            if self.chosen.is_some() {
                offered.push(Arc::clone(&FIND));
            }
        }
        self.forms.offer(&self.settings, &offered);
        if self.recorded_tools.as_ref() == Some(&offered) {
            return None;
        }
        self.recorded_tools = Some(offered.clone());
        Some(offered)
    }

    /// Asks the model, and shows the answer while it arrives. Returns `None` if the task's time
    /// ends before the answer is complete.
    async fn ask_model(
        &mut self,
        asked_model: AskedModel<'_>,
        time: Duration,
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> Result<Option<Result<ModelAnswer, AskError>>, AgentError> {
        let turn = self.turn();
        let offered = self.forms.offered.as_ref();
        let mut splitter = offered.map(|offered| CallSplitter::new(offered, self.forms.is_lenient));
        let mut notices = Vec::new();
        let tools = self.tool_tokens();
        events.event(RunEvent::Asking { tokens: self.meter.tokens(), tools });
        let started_at = Instant::now();
        let mut first = None;
        let answer = tokio::time::timeout(
            time,
            self.environment.ask(
                &turn,
                &mut |event| {
                    first.get_or_insert_with(|| started_at.elapsed());
                    notices.extend(show_event(event, splitter.as_mut(), &mut *events));
                },
                cancel,
            ),
        )
        .await;
        drop(asked_model);

        if let Some(splitter) = splitter {
            let (shown, _) = splitter.finish(&FindOptions::default());
            show(shown, events);
        }
        for text in notices {
            self.append(&SessionEntry::Notice(text)).await?;
        }
        let reading_time = first.unwrap_or_else(|| started_at.elapsed());
        self.advise_fewer_tools(reading_time, tools, events).await?;
        Ok(answer.ok())
    }

    /// Makes the context smaller. Returns `false` if nothing can be left out or summarised.
    async fn make_room(
        &mut self,
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> Result<bool, AgentError> {
        if self.prune(context::LAST, events).await? {
            return Ok(true);
        }
        let result = self.compress(CompressionMethod::Triggered, events, cancel).await?;
        Ok(result.is_ok())
    }

    /// Starts the budget and the clock of a task.
    fn begin(&mut self, budget: Option<Arc<TaskBudget>>) {
        self.budget = budget.unwrap_or_else(|| Arc::new(TaskBudget::new(&self.settings)));
        self.clock = TaskClock::start(self.settings.max_time, self.environment.waited());
    }

    /// Registers the agent so that its sub-agents find it. Dropping the entry ends the
    /// registration.
    fn register(&mut self) -> Result<Option<RegistryEntry>, AgentError> {
        let Some(registry) = &self.registry else { return Ok(None) };
        let offered = self.environment.offered()?;
        let tools = offered.iter().map(|tool| tool.definition.name.clone()).collect();
        let delegator = Arc::new(ParentAgent::new(
            Arc::clone(&self.environment),
            self.settings.clone(),
            tools,
            Arc::clone(&self.budget),
            self.clock,
            registry.places(),
        ));
        let entry = registry.register(&delegator);
        self.delegator = Some(delegator);
        Ok(Some(entry))
    }

    /// Sets the tools for a task, and returns notices for the person.
    ///
    /// The model gets all tools that the host offers now. If there are too many, the model gets a
    /// selection. The selection is the same for the whole session, so the provider reads the same
    /// text each time.
    async fn choose_tools(&mut self, task: &[Part]) -> Result<Vec<String>, AgentError> {
        let offered = self.environment.offered()?;
        let mut notices = Vec::new();
        if self.chosen.is_none() {
            let choice =
                chosen::choose(&self.environment, &offered, &text_of(task), &self.settings).await;
            self.chosen = choice.tools;
            notices = choice.notices;
        }
        let all = offered.into_iter().map(|tool| tool.definition).collect();
        self.tools = match &self.chosen {
            Some(chosen) => chosen::keep_chosen(all, chosen),
            None => all,
        };
        Ok(notices)
    }

    /// Returns the calls of the last answer that have no result, because Toolhold was killed.
    fn lost_calls(&mut self) -> Vec<ReadyCall> {
        let Some((number, answer, results)) = self.conversation.last_answer() else {
            return Vec::new();
        };
        let calls = self.forms.wanted(&answer, number).calls;
        let lost = calls.iter().filter(|call| !results.contains(&call.id));
        lost.map(|call| ReadyCall::without_arguments(&call.id, &call.name)).collect()
    }

    /// Takes an answer of the model, and makes its calls.
    async fn take(
        &mut self,
        answer: ModelAnswer,
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> Result<Next, AgentError> {
        let before = self.spent;
        let prices = self.settings.prices;
        self.spend(&answer.usage, &prices);
        if let Some(request) = answer.usage.request() {
            self.meter.correct(request);
        }
        let number = self.append(&SessionEntry::Answer(answer.clone())).await?;
        let wanted = self.forms.wanted(&answer, number);
        events.event(RunEvent::Answer {
            text: wanted.text.clone(),
            calls: wanted.calls.len(),
            spent: self.spent.since(&before),
        });
        if let Some(text) = &wanted.notice {
            self.notice(text.clone(), events).await?;
        }

        // Answers that consist of calls alone are checked call by call.
        if !wanted.text.trim().is_empty()
            && let Some(repeated) = self.repetition.check_output(&answer_digest(&wanted))
        {
            return Ok(Next::End(TaskEnd::new(EndKind::GaveUp, repeated.to_string())));
        }
        if wanted.calls.is_empty() {
            return self.without_calls(&answer, &wanted, events).await;
        }
        self.broken = 0;
        let is_cut = answer.stop == FinishReason::Length;
        self.make(wanted, is_cut, events, cancel).await
    }

    /// Decides after an answer without calls.
    async fn without_calls(
        &mut self,
        answer: &ModelAnswer,
        wanted: &Wanted,
        events: &mut dyn RunEvents,
    ) -> Result<Next, AgentError> {
        let complaint = match &answer.stop {
            FinishReason::Refused(why) => {
                let why = if why.is_empty() { "the model refused" } else { why };
                return Ok(Next::End(TaskEnd::new(EndKind::GaveUp, why)));
            }
            FinishReason::Paused => return Ok(Next::Ask),
            FinishReason::Length => Some("Your answer was cut at the limit of tokens. Go on."),
            _ if wanted.text.trim().is_empty() => {
                Some("Your answer was empty. Call a tool, or say what you found.")
            }
            _ => None,
        };
        let note = complaint.map(str::to_owned).or_else(|| wanted.hint.clone());
        let Some(note) = note else {
            self.doubt_answer(&wanted.text, events).await?;
            let kind = if self.denied { EndKind::Denied } else { EndKind::Done };
            return Ok(Next::End(TaskEnd::new(kind, "")));
        };
        self.broken += 1;
        if self.broken >= MAX_BROKEN {
            let reason = format!("the model gave no usable answer {MAX_BROKEN} times in a row");
            return Ok(Next::End(TaskEnd::new(EndKind::GaveUp, reason)));
        }
        self.append(&SessionEntry::Note(note)).await?;
        Ok(Next::Ask)
    }

    /// Makes the calls of an answer. Consecutive calls that only read run at the same time, and
    /// other calls run one after another. `is_cut`: whether the answer is truncated.
    async fn make(
        &mut self,
        wanted: Wanted,
        is_cut: bool,
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> Result<Next, AgentError> {
        let count = wanted.calls.len();
        let mut all_denied = true;
        let mut ending = None;
        let mut queue: Vec<ReadyCall> = Vec::new();
        for (at, call) in wanted.calls.into_iter().enumerate() {
            let mut arguments = match call.arguments {
                Ok(arguments) => arguments,
                Err(error) => {
                    let ready = ReadyCall::without_arguments(&call.id, &call.name);
                    self.flush(&mut queue, &mut all_denied, events, cancel).await?;
                    let is_last = at + 1 == count;
                    let error = if is_cut && is_last { ArgumentsError::Cut } else { error };
                    let text = calls::invalid(error);
                    self.refuse(&ready, &text, Category::InvalidParameters, events).await?;
                    all_denied = false;
                    continue;
                }
            };
            let stripped = strip(&mut arguments);
            let read_only = self.environment.reads(&call.name, &arguments);
            let mut ready = ReadyCall {
                id: call.id,
                name: call.name,
                arguments,
                read_only,
                is_doubtful: call.is_doubtful,
                warning: None,
            };

            let repeated = self.repetition.before(&ready.name, &ready.arguments, read_only);
            let mut refusal = None;
            if stripped == Stripped::Everything {
                refusal = Some((ONLY_THOUGHTS.to_owned(), Category::InvalidParameters));
            }
            if let Some(repeated) = &repeated
                && repeated.reaction != Reaction::Warn
            {
                refusal = Some((repeated.to_string(), Category::PolicyBlocked));
                if repeated.reaction == Reaction::Break {
                    ending = Some(TaskEnd::new(EndKind::GaveUp, repeated.to_string()));
                }
            }
            if let Some((text, category)) = refusal {
                self.flush(&mut queue, &mut all_denied, events, cancel).await?;
                self.repetition.after(&ready.name, &ready.arguments, read_only, None);
                self.refuse(&ready, &text, category, events).await?;
                all_denied = false;
                continue;
            }
            if ready.name == COMPRESS {
                self.flush(&mut queue, &mut all_denied, events, cancel).await?;
                all_denied = false;
                self.answer_compress(&ready, events, cancel).await?;
                continue;
            }
            if ready.name == FIND_TOOLS && self.chosen.is_some() {
                self.flush(&mut queue, &mut all_denied, events, cancel).await?;
                all_denied = false;
                self.find_tools(&ready, events).await?;
                continue;
            }
            let used = self.budget.used();
            if let Some(text) = self.utility.refusal(&self.settings.utility, &ready, used) {
                self.flush(&mut queue, &mut all_denied, events, cancel).await?;
                self.repetition.after(&ready.name, &ready.arguments, read_only, None);
                self.refuse(&ready, &text, Category::PolicyBlocked, events).await?;
                self.notice(format!("`{}` is postponed: {text}", ready.name), events).await?;
                all_denied = false;
                continue;
            }

            ready.warning = repeated.map(|repeated| repeated.to_string());
            if !read_only || queue.len() >= AT_ONCE {
                self.flush(&mut queue, &mut all_denied, events, cancel).await?;
            }
            queue.push(ready);
            if !read_only {
                self.flush(&mut queue, &mut all_denied, events, cancel).await?;
            }
        }
        self.flush(&mut queue, &mut all_denied, events, cancel).await?;
        self.denied = all_denied;
        Ok(ending.map_or(Next::Ask, Next::End))
    }

    /// Answers a call of `compress_context`.
    async fn answer_compress(
        &mut self,
        call: &ReadyCall,
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> Result<(), AgentError> {
        begins(call, events);
        let compressed = self.compress(CompressionMethod::Autonomous, events, cancel).await?;
        let (text, category) = match compressed {
            Ok(()) => ("The older part is summarised.".to_owned(), None),
            Err(error) => (error.to_string(), Some(Category::PermanentFailure)),
        };
        self.repetition.after(&call.name, &call.arguments, false, Some(&text));
        let result = RecordedResult::new(call, vec![Part::Text(text)], category);
        self.finish(result, events).await
    }

    fn turn(&self) -> Turn {
        let settings = &self.settings;
        Turn {
            model: settings.model.clone(),
            system: calls::system_text(settings, &self.forms),
            tools: calls::offered(settings, &self.tools, self.chosen.is_some()),
            forbid_calls: false,
            messages: calls::messages(&self.conversation),
            max_output: Some(settings.max_output),
            thinking: settings.thinking.clone(),
            output_schema: None,
        }
    }

    /// Records an entry, and adds its content to the conversation. Returns the entry's number.
    async fn append(&mut self, entry: &SessionEntry) -> Result<usize, AgentError> {
        let number = self.file.append(entry).await?;
        self.conversation.add(number, entry);
        match entry {
            SessionEntry::Task(task) => {
                let text = text_of(&task.parts);
                self.meter.add(text.len());
                // The task of a sub-agent may repeat a text that a page gave to its parent.
                match self.environment.depth {
                    0 => self.forms.earlier.add_message(&text),
                    _ => self.forms.earlier.add(&text),
                }
            }
            SessionEntry::Note(text) => self.meter.add(text.len()),
            // The summarising model may have written a call in its summary.
            SessionEntry::Compressed(compressed) => self.forms.earlier.add(&compressed.summary),
            SessionEntry::Answer(answer) => self.meter.add(context::size_of_answer(answer)),
            SessionEntry::Result(result) => {
                self.meter.add(context::size_of_result(&result.result));
                self.forms.earlier.add(&text_of(&result.result.content));
            }
            _ => {}
        }
        Ok(number)
    }
}

impl Agent {
    /// Returns the time that is left for the task, or `None` if no time is left.
    fn time_left(&self) -> Option<Duration> {
        self.clock.left(self.environment.waited())
    }

    /// Returns a message about the limit that is reached, or `None` if no limit is reached.
    fn reached_limit(&self) -> Option<String> {
        if let Some(reason) = self.budget.reached() {
            return Some(reason);
        }
        if self.time_left().is_some() {
            return None;
        }
        let secs = self.settings.max_time.as_secs();
        let limit = match self.environment.depth {
            0 => "`max_secs` in [agent]",
            _ => "`timeout` of its call, or what was left of `max_secs` in [agent]",
        };
        Some(format!("the task took {secs} s, the limit: {limit}"))
    }

    /// Adds the tokens and the cost of an answer.
    fn spend(&mut self, usage: &TokenUsage, prices: &Prices) {
        self.spent.add(usage, prices);
        self.budget.take(usage, prices);
    }

    /// Counts the tokens and costs of finished sub-agents.
    async fn count_delegated(&mut self) -> Result<(), AgentError> {
        let Some(delegator) = &self.delegator else { return Ok(()) };
        for delegated in delegator.take_finished() {
            self.spent.add_all(&delegated.spent);
            self.append(&SessionEntry::Delegated(delegated)).await?;
        }
        Ok(())
    }
}

/// Returns the text and the calls of an answer, without IDs, to find repeated answers.
fn answer_digest(wanted: &Wanted) -> String {
    let calls = wanted.calls.iter().map(|call| {
        let arguments = call.arguments.as_ref().map(Value::to_string).unwrap_or_default();
        format!("{}({arguments})", call.name)
    });
    std::iter::once(wanted.text.clone()).chain(calls).collect::<Vec<_>>().join("\n")
}
