//! The agent's loop: asks the model, makes the calls in its answer, and asks again. The loop ends
//! when the model answers without calls, a limit is reached or the person cancels.

mod results;
mod rewind;
mod room;

use std::sync::Arc;
use std::time::{Duration, Instant};

use toolhold_core::config::Prices;
use toolhold_core::{
    CancellationToken, Category, Definition, HostError, Reaction, Repetition, RepetitionLimits,
};
use toolhold_models::{FinishReason, ModelAnswer, Part, TokenUsage, Turn, TurnMessage};

use results::announce_call;
use toolhold_text_calls::{CallSplitter, FindOptions};

use crate::AgentError;
use crate::budget::{CONFIGURED_TURNS, ReservedAnswer, TaskBudget, TaskClock};
use crate::calls::{self, ArgumentsError, TextForms, Wanted};
use crate::chosen::{self, FIND_DEFINITION, FIND_TOOLS};
use crate::context::{self, COMPRESS_TOOL};
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

/// Most calls that run at the same time. A call that changes something runs alone.
const AT_ONCE: usize = 8;

/// The number of truncated or empty answers in a row after which the task ends.
const MAX_UNUSABLE_ANSWERS: usize = 3;

const LOST_CALL_RESULT: &str = "[The call was interrupted: Toolhold ended before the result \
                                arrived. The call may have had effects. Check before you repeat \
                                the call.]";

/// An agent in one session.
pub struct Agent {
    settings: AgentSettings,
    environment: Arc<AgentEnvironment>,
    file: SessionFile,
    conversation: Conversation,
    tools: Vec<Arc<Definition>>,
    /// The tools that were chosen for the session, or `None` if all tools are offered.
    chosen: Option<Vec<IncludedTool>>,
    utility: UtilityGate,
    /// The tools in the last task of the session file.
    recorded_tools: Option<Vec<Arc<Definition>>>,
    forms: TextForms,
    repetition: Repetition,
    meter: TokenMeter,
    spent: Spent,
    budget: Arc<TaskBudget>,
    /// The key or the option that sets `max_turns`, for people.
    turns_setting: &'static str,
    clock: TaskClock,
    /// The registry in which sub-agents find this agent, or `None` if the agent can't delegate.
    registry: Option<Arc<DelegateRegistry>>,
    delegator: Option<Arc<ParentAgent>>,
    /// The number of truncated or empty answers since the last complete answer.
    unusable_answers: usize,
    all_calls_denied: bool,
    /// Whether the person already got the advice to offer fewer tools.
    is_advised: bool,
}

enum Next {
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
        let budget = Arc::new(TaskBudget::new(&settings, CONFIGURED_TURNS));
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
            turns_setting: CONFIGURED_TURNS,
            clock,
            registry: None,
            delegator: None,
            unusable_answers: 0,
            all_calls_denied: false,
            is_advised: false,
        }
    }

    pub(crate) fn set_models(&mut self, models: AskedModels, settings: AgentSettings) {
        let old = &self.environment;
        self.environment = Arc::new(AgentEnvironment {
            host: Arc::clone(&old.host),
            session: old.session.clone(),
            caller: old.caller.clone(),
            depth: old.depth,
            phase: old.phase,
            trust: old.trust,
            allowed: old.allowed.clone(),
            models,
            approver: Arc::clone(&old.approver),
        });
        self.settings = settings;
    }

    pub(crate) fn enable_delegation(&mut self, registry: Arc<DelegateRegistry>) {
        self.registry = Some(registry);
    }

    /// Notes that the session no longer has every text that the model has read.
    pub(crate) fn lose_earlier_texts(&mut self) {
        self.forms.earlier.lose();
    }

    /// Restores the tools that were chosen before the session was resumed.
    pub(crate) fn keep_tools(&mut self, chosen: Option<Vec<IncludedTool>>) {
        self.chosen = chosen;
    }

    /// Returns lines for the person: the model, the size of the context and the chosen tools.
    pub fn status(&self) -> Vec<String> {
        let AgentSettings { provider, model, context_tokens, .. } = &self.settings;
        let used_tokens = self.meter.tokens();
        let context = format!("Context: about {used_tokens} of {context_tokens} tokens");
        let mut lines = vec![format!("Model: {provider}/{model}"), context];
        lines.extend(self.filter_status());
        lines
    }

    /// Returns the settings of the tool filter and the chosen tools, one per line. Returns no lines
    /// if all tools are offered.
    pub fn filter_status(&self) -> Vec<String> {
        chosen::status(&self.settings, self.chosen.as_deref())
    }

    /// Returns the text of the last answer with a text, or an empty string.
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
    /// Fails if the state of the tools can't be read.
    pub fn tools(&self) -> Result<Vec<Arc<Definition>>, AgentError> {
        Ok(self.environment.offered()?.into_iter().map(|tool| tool.definition).collect())
    }

    /// Returns a file finder, which also works while a task runs.
    pub fn finder(&self) -> FileFinder {
        FileFinder::new(&self.environment)
    }

    /// Returns `PROVIDER/MODEL` if the model wrote a call as plain JSON. Such calls are ignored
    /// until the user adds the model to `lenient_models` in `[agent]`.
    pub fn suggested_lenient_model(&self) -> Option<String> {
        if !self.forms.lenient_helps {
            return None;
        }
        let AgentSettings { provider, model, .. } = &self.settings;
        Some(format!("{provider}/{model}"))
    }

    /// Accepts answers that are only JSON as calls, from the next task on.
    pub fn be_lenient(&mut self) {
        self.settings.lenient_text = true;
        self.forms.lenient_helps = false;
    }

    /// Lowers the number of answers that the model may give in one task to `turns`, but never
    /// raises it. Messages about the limit name `option`, the command-line option that sets it.
    pub fn limit_turns(&mut self, turns: u64, option: &'static str) {
        if turns <= self.settings.max_turns {
            self.settings.max_turns = turns;
            self.turns_setting = option;
        }
    }

    /// Marks the session as untrusted, because the task may contain text from other people.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Session::mark_untrusted`](toolhold_core::Session::mark_untrusted).
    pub fn mark_untrusted(&self) -> Result<(), HostError> {
        self.environment.session.mark_untrusted()
    }

    /// Summarises the older part of the conversation at the person's request.
    pub async fn compact(&mut self, events: &mut dyn RunEvents, cancel: &CancellationToken) {
        let parent_budget = None;
        self.reset_limits(parent_budget);
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
    /// Fails if the note can't be recorded.
    pub async fn note(&mut self, text: String) -> Result<(), AgentError> {
        self.append(&SessionEntry::Note(text)).await.map(drop)
    }

    async fn notice(&mut self, text: String, events: &mut dyn RunEvents) -> Result<(), AgentError> {
        self.append(&SessionEntry::Notice(text.clone())).await?;
        events.event(RunEvent::Notice { text });
        Ok(())
    }

    /// Works on a task until the task ends. Another task can follow, even after an error.
    pub async fn run(
        &mut self,
        task: Vec<Part>,
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> TaskEnd {
        let parent_budget = None;
        self.run_within(parent_budget, task, events, cancel).await
    }

    /// Works on a task within the `budget` of a parent, or within the limits of the settings.
    pub(crate) async fn run_within(
        &mut self,
        budget: Option<Arc<TaskBudget>>,
        task: Vec<Part>,
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> TaskEnd {
        self.reset_limits(budget);
        // A sub-agent works in the session of its parent, whose task is still running.
        let is_sub_agent = self.is_sub_agent();
        if !is_sub_agent {
            self.environment.session.begin_turn();
        }
        let spent_before = self.spent;
        // Drop the approvals that an earlier task left open, so that the end of this task doesn't
        // list them.
        self.environment.approver.take_pending();

        let mut ending = match self.work(task, events, cancel).await {
            Ok(ending) => ending,
            Err(error) => TaskEnd::new(EndKind::Error, error.to_string()),
        };
        if ending.kind == EndKind::Denied {
            ending.pending = self.environment.approver.take_pending();
        }
        // A skill's variables apply only to the task that loaded the skill.
        if !is_sub_agent {
            self.environment.session.clear_variables();
        }

        let entry = SessionEntry::Ended(Ended { ending: ending.clone(), spent: self.spent });
        // If the task ended with an error, don't add a notice about this entry, because it would
        // hide the cause.
        if let Err(error) = self.append(&entry).await
            && ending.kind != EndKind::Error
        {
            events.event(RunEvent::Notice { text: error.to_string() });
        }
        let spent = self.spent.since(&spent_before);
        events.event(RunEvent::Ended { ending: ending.clone(), spent, session: self.spent });
        ending
    }

    async fn work(
        &mut self,
        task: Vec<Part>,
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> Result<TaskEnd, AgentError> {
        let _registry_entry = self.start_task(task, events).await?;
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
            // If `fit` used up the time, the check of the limits above ends the task.
            let Some(time) = self.time_left() else { continue };
            let budget = Arc::clone(&self.budget);
            let Some(reserved_answer) = budget.reserve_answer() else {
                return Ok(TaskEnd::new(EndKind::Budget, budget.turns_message()));
            };

            let answer = match self.ask_model(reserved_answer, time, events, cancel).await? {
                Some(Ok(answer)) => answer,
                // The time ran out. The loop checks the limits again and ends the task.
                None => continue,
                Some(Err(AskError::Cancelled)) => {
                    return Ok(TaskEnd::new(EndKind::Cancelled, ""));
                }
                Some(Err(error)) => {
                    // The provider's limit may be lower than `context_tokens` in the configuration,
                    // so make room and ask again.
                    let is_full = matches!(error, AskError::ContextFull(_));
                    if is_full && self.make_room(events, cancel).await? {
                        continue;
                    }
                    return Ok(TaskEnd::new(EndKind::Error, error.to_string()));
                }
            };
            if let Next::End(ending) = self.handle_answer(answer, events, cancel).await? {
                return Ok(ending);
            }
        }
    }

    /// Chooses the tools of a task, records results for lost calls, and records the task. Returns
    /// this agent's entry in the registry of parents, or `None` if the agent can't delegate.
    async fn start_task(
        &mut self,
        task: Vec<Part>,
        events: &mut dyn RunEvents,
    ) -> Result<Option<RegistryEntry>, AgentError> {
        // Repetitions are counted within a task.
        self.repetition.clear();
        self.unusable_answers = 0;
        self.all_calls_denied = false;
        let settings = self.settings.clone();
        events.event(RunEvent::Task {
            text: text_of(&task),
            provider: settings.provider.clone(),
            model: settings.model.clone(),
            context: settings.context_tokens,
        });

        self.utility = UtilityGate::new(&text_of(&task));
        let notices = self.choose_tools(&task).await?;
        let registry_entry = self.register_as_parent()?;
        let tools = self.offer_in_text();
        self.record_lost_calls().await?;

        let chosen = self.chosen.clone();
        let turn = self.environment.session.turn();
        let task = Task { parts: task, settings, tools, chosen, turn };
        self.append(&SessionEntry::Task(task)).await?;
        for text in notices {
            self.notice(text, events).await?;
        }
        self.measure();
        Ok(registry_entry)
    }

    /// Sets the tools that the model may call in its text. Returns these tools if they differ from
    /// the tools in the session file.
    fn offer_in_text(&mut self) -> Option<Vec<Arc<Definition>>> {
        let mut offered = Vec::new();
        // A local model often writes calls in its text, even if it has native calls.
        if self.settings.is_local || !self.settings.native_tools {
            offered.clone_from(&self.tools);
            if self.chosen.is_some() {
                offered.push(Arc::clone(&FIND_DEFINITION));
            }
        }
        self.forms.offer(&self.settings, &offered);
        if self.recorded_tools.as_ref() == Some(&offered) {
            return None;
        }
        self.recorded_tools = Some(offered.clone());
        Some(offered)
    }

    /// Asks the model, and shows the answer while it arrives. Returns `None` if the task runs out
    /// of time.
    async fn ask_model(
        &mut self,
        reserved_answer: ReservedAnswer<'_>,
        time: Duration,
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> Result<Option<Result<ModelAnswer, AskError>>, AgentError> {
        let turn = self.next_turn();
        let offered = self.forms.offered.as_ref();
        let mut splitter = offered.map(|offered| CallSplitter::new(offered, self.forms.is_lenient));
        let mut notices = Vec::new();
        let tools = self.tool_tokens();
        events.event(RunEvent::Asking { tokens: self.meter.tokens(), tools });
        let started_at = Instant::now();
        let mut time_to_first_event = None;
        let answer = tokio::time::timeout(
            time,
            self.environment.ask(
                &turn,
                &mut |event| {
                    time_to_first_event.get_or_insert_with(|| started_at.elapsed());
                    notices.extend(show_event(event, splitter.as_mut(), &mut *events));
                },
                cancel,
            ),
        )
        .await;
        drop(reserved_answer);

        if let Some(splitter) = splitter {
            let (shown, _) = splitter.finish(&FindOptions::default());
            show(shown, events);
        }
        for text in notices {
            self.append(&SessionEntry::Notice(text)).await?;
        }
        let reading_time = time_to_first_event.unwrap_or_else(|| started_at.elapsed());
        self.advise_fewer_tools(reading_time, tools, events).await?;
        Ok(answer.ok())
    }

    /// Makes room in the context: leaves out old results, or summarises the conversation if there
    /// are no old results. Returns `false` if neither is possible.
    async fn make_room(
        &mut self,
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> Result<bool, AgentError> {
        if self.prune(context::UNREAD_MESSAGES, events).await? {
            return Ok(true);
        }
        let result = self.compress(CompressionMethod::Triggered, events, cancel).await?;
        Ok(result.is_ok())
    }

    fn reset_limits(&mut self, budget: Option<Arc<TaskBudget>>) {
        self.budget =
            budget.unwrap_or_else(|| Arc::new(TaskBudget::new(&self.settings, self.turns_setting)));
        self.clock = TaskClock::start(self.settings.max_time, self.environment.waited());
    }

    /// Registers this agent as a parent of sub-agents until the returned entry is dropped. Returns
    /// `None` if the agent can't delegate.
    fn register_as_parent(&mut self) -> Result<Option<RegistryEntry>, AgentError> {
        let Some(registry) = &self.registry else { return Ok(None) };
        let offered = self.environment.offered()?;
        let tool_names = offered.iter().map(|tool| tool.definition.name.clone()).collect();
        let delegator = Arc::new(ParentAgent::new(
            Arc::clone(&self.environment),
            self.settings.clone(),
            tool_names,
            Arc::clone(&self.budget),
            self.clock,
            registry.permits(),
        ));
        let entry = registry.register(&delegator);
        self.delegator = Some(delegator);
        Ok(Some(entry))
    }

    /// Sets the tools for a task, and returns notices for the person.
    ///
    /// If the host offers too many tools, the model gets a selection. The selection stays the same
    /// for the whole session, because the provider caches the start of each request.
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

    async fn record_lost_calls(&mut self) -> Result<(), AgentError> {
        for call in self.lost_calls() {
            let content = vec![Part::Text(LOST_CALL_RESULT.to_owned())];
            let lost = RecordedResult::new(&call, content, Some(Category::Cancelled));
            self.append(&SessionEntry::Result(lost)).await?;
        }
        Ok(())
    }

    /// Returns the calls of the last answer that have no result, because the process was killed
    /// while they ran.
    fn lost_calls(&mut self) -> Vec<ReadyCall> {
        let Some((number, answer, results)) = self.conversation.last_answer() else {
            return Vec::new();
        };
        let calls = self.forms.wanted(&answer, number).calls;
        let mut lost = Vec::new();
        for call in calls {
            if !results.contains(&call.id) {
                lost.push(ReadyCall::without_arguments(&call.id, &call.name));
            }
        }
        lost
    }

    async fn handle_answer(
        &mut self,
        answer: ModelAnswer,
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> Result<Next, AgentError> {
        let spent_before = self.spent;
        let prices = self.settings.prices;
        self.spend(&answer.usage, &prices);
        if let Some(request_tokens) = answer.usage.request() {
            self.meter.correct(request_tokens);
        }

        let number = self.append(&SessionEntry::Answer(answer.clone())).await?;
        let wanted = self.forms.wanted(&answer, number);
        events.event(RunEvent::Answer {
            text: wanted.text.clone(),
            calls: wanted.calls.len(),
            spent: self.spent.since(&spent_before),
        });
        if let Some(text) = &wanted.notice {
            self.notice(text.clone(), events).await?;
        }

        // This check finds a whole answer that is repeated. `make_calls` compares each single call
        // with earlier calls.
        if !wanted.text.trim().is_empty()
            && let Some(repeated) = self.repetition.check_output(&answer_without_ids(&wanted))
        {
            return Ok(Next::End(TaskEnd::new(EndKind::GaveUp, repeated.to_string())));
        }
        if wanted.calls.is_empty() {
            return self.handle_answer_without_calls(&answer, &wanted, events).await;
        }
        self.unusable_answers = 0;
        let is_cut = answer.stop == FinishReason::Length;
        self.make_calls(wanted, is_cut, events, cancel).await
    }

    /// Decides how the task continues after an answer without calls.
    async fn handle_answer_without_calls(
        &mut self,
        answer: &ModelAnswer,
        wanted: &Wanted,
        events: &mut dyn RunEvents,
    ) -> Result<Next, AgentError> {
        if let FinishReason::Refused(why) = &answer.stop {
            let why = if why.is_empty() { "the model refused to answer" } else { why };
            return Ok(Next::End(TaskEnd::new(EndKind::GaveUp, why)));
        }
        if answer.stop == FinishReason::Paused {
            return Ok(Next::Ask);
        }
        let Some(note) = note_on_answer(&answer.stop, wanted) else {
            self.warn_of_made_up_paths(&wanted.text, events).await?;
            let kind = if self.all_calls_denied { EndKind::Denied } else { EndKind::Done };
            return Ok(Next::End(TaskEnd::new(kind, "")));
        };
        self.unusable_answers += 1;
        if self.unusable_answers >= MAX_UNUSABLE_ANSWERS {
            let reason =
                format!("the model gave no usable answer {MAX_UNUSABLE_ANSWERS} times in a row");
            return Ok(Next::End(TaskEnd::new(EndKind::GaveUp, reason)));
        }
        self.append(&SessionEntry::Note(note)).await?;
        Ok(Next::Ask)
    }

    /// Makes the calls of an answer. Consecutive calls that only read run at the same time. Every
    /// other call runs alone. If the answer is truncated (`is_cut`), its last call may be
    /// incomplete.
    async fn make_calls(
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
        for (index, call) in wanted.calls.into_iter().enumerate() {
            let mut arguments = match call.arguments {
                Ok(arguments) => arguments,
                Err(error) => {
                    let ready = ReadyCall::without_arguments(&call.id, &call.name);
                    self.flush(&mut queue, &mut all_denied, events, cancel).await?;
                    let is_last = index + 1 == count;
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
            if ready.name == COMPRESS_TOOL {
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
        self.all_calls_denied = all_denied;
        Ok(ending.map_or(Next::Ask, Next::End))
    }

    /// Summarises the conversation after a model's call of `compress_context`.
    async fn answer_compress(
        &mut self,
        call: &ReadyCall,
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> Result<(), AgentError> {
        announce_call(call, events);
        let compressed = self.compress(CompressionMethod::Autonomous, events, cancel).await?;
        let (text, category) = match compressed {
            Ok(()) => ("The older part of the conversation is summarised.".to_owned(), None),
            Err(error) => (error.to_string(), Some(Category::PermanentFailure)),
        };
        let read_only = false;
        self.repetition.after(&call.name, &call.arguments, read_only, Some(&text));
        let result = RecordedResult::new(call, vec![Part::Text(text)], category);
        self.finish(result, events).await
    }

    /// Returns the next request to the model.
    fn next_turn(&self) -> Turn {
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

    /// Records an entry, and adds it to the conversation. Returns the entry's number.
    async fn append(&mut self, entry: &SessionEntry) -> Result<usize, AgentError> {
        let number = self.file.append(entry).await?;
        self.conversation.add(number, entry);
        match entry {
            SessionEntry::Task(task) => {
                let text = text_of(&task.parts);
                self.meter.add(text.len());
                // A person who writes a call in a message may want the model to make it. But a
                // sub-agent's task comes from the parent agent, which may have copied a call from a
                // web page.
                if self.is_sub_agent() {
                    self.forms.earlier.add(&text);
                } else {
                    self.forms.earlier.add_message(&text);
                }
            }
            SessionEntry::Note(text) => self.meter.add(text.len()),
            // The summarised text may contain a web page that made the summarising model write a
            // call.
            SessionEntry::Compressed(compressed) => self.forms.earlier.add(&compressed.summary),
            SessionEntry::Answer(answer) => self.meter.add(context::size_of_answer(answer)),
            SessionEntry::Result(result) => {
                self.meter.add(context::size_of_result(&result.result));
                self.forms.earlier.add(&text_of(&result.result.content));
            }
            // Other entries don't change the size of the context.
            _ => {}
        }
        Ok(number)
    }
}

impl Agent {
    fn time_left(&self) -> Option<Duration> {
        self.clock.left(self.environment.waited())
    }

    fn is_sub_agent(&self) -> bool {
        self.environment.depth > 0
    }

    /// Returns a message about a reached limit of the budget or of the time.
    fn reached_limit(&self) -> Option<String> {
        if let Some(reason) = self.budget.reached_limit() {
            return Some(reason);
        }
        let has_time_left = self.time_left().is_some();
        if has_time_left {
            return None;
        }
        let secs = self.settings.max_time.as_secs();
        let limit = if self.is_sub_agent() {
            "`timeout` of the delegating call, or the rest of `max_secs` in [agent]"
        } else {
            "`max_secs` in [agent]"
        };
        Some(format!("the task took {secs} s, the limit ({limit})"))
    }

    fn spend(&mut self, usage: &TokenUsage, prices: &Prices) {
        self.spent.add(usage, prices);
        self.budget.spend(usage, prices);
    }

    /// Records the finished work of sub-agents, and adds their tokens and costs.
    async fn count_delegated(&mut self) -> Result<(), AgentError> {
        let Some(delegator) = &self.delegator else { return Ok(()) };
        for delegated in delegator.take_finished() {
            self.spent.add_all(&delegated.spent);
            self.append(&SessionEntry::Delegated(delegated)).await?;
        }
        Ok(())
    }
}

/// Returns a note for the model if the task must continue after an answer without calls.
fn note_on_answer(stop: &FinishReason, wanted: &Wanted) -> Option<String> {
    if *stop == FinishReason::Length {
        return Some("Your answer reached the token limit and was cut. Continue.".to_owned());
    }
    if wanted.text.trim().is_empty() {
        return Some("Your answer was empty. Call a tool, or write your answer.".to_owned());
    }
    wanted.hint.clone()
}

/// Returns the text and the calls of an answer for comparison. The IDs of calls are left out,
/// because they differ in each answer.
fn answer_without_ids(wanted: &Wanted) -> String {
    let mut lines = vec![wanted.text.clone()];
    for call in &wanted.calls {
        let arguments = match &call.arguments {
            Ok(arguments) => arguments.to_string(),
            // Calls with invalid arguments are compared only by name.
            Err(_) => String::new(),
        };
        lines.push(format!("{}({arguments})", call.name));
    }
    lines.join("\n")
}
