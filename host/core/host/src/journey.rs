//! The journey of a call from top to bottom, the same for every front end and every source.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Map, Value};
use toolhold_answers::Answer;
use toolhold_answers::CacheResult;
use toolhold_answers::ShapeReport;
use toolhold_catalogue::{CallContext, Catalogue, Tool, subjects, validate};
use toolhold_contract::{
    Call, CallId, CancellationToken, Category, Content, Definition, Denial, Events, Failure,
    Inquirer, Outcome, Report,
};
use toolhold_jobs::{CallShell, JobAbout, JobStart};
use toolhold_policy::commands::ShellState;
use toolhold_policy::{Decision, Verdict};

use crate::approve::ApprovalStep;
use crate::call_inputs::{CallInputs, Steps};
use crate::caller_names::SessionCaller;
use crate::chosen_commands::{ParentCallContext, PluginCommands};
use crate::counting::QuotaReservation;
use crate::dependencies;
use crate::governor::{ReachRules, Rules};
use crate::host::{Host, ObservedCall, Request};
use crate::jobs;
use crate::record::{DropRecorder, Governance, RunReport, call_record};
use crate::session::Session;
use crate::undo::{CallChanges, CallJournal};

/// Most bytes of what a caller sends beside the arguments, as JSON text.
const MAX_META: usize = 64 * 1024;

impl Host {
    /// Runs one call. It always returns an answer: if a tool, a rule or a limit ends the call, the
    /// answer is a [`Failure`](crate::Failure).
    ///
    /// The steps, each only if the one before succeeded: the name is resolved, the arguments are
    /// checked against the tool's schema, the gates decide on what the call acts on, a model
    /// judges it and a person approves it if the rules want that, and the tool runs within its
    /// limits. The result, a refusal as well as an output, is shaped and recorded before it leaves.
    ///
    /// Cancelling [`Request::cancel`] ends the call with
    /// [`Category::Cancelled`](crate::Category::Cancelled). Dropping the future ends it too,
    /// without an answer.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with its time driver, if a plugin offers the tool.
    pub async fn call(&self, request: Request) -> Answer {
        let mut steps = Steps::begin();
        let (context, session, inputs) = self.begin(request);
        let (governance, run) = (Governance::default(), RunReport::default());
        let (audit, observer) = (&self.audit, self.observer.as_deref());
        let mut call = DropRecorder { audit, observer, context, governance, run, recorded: false };
        let cancel = inputs.cancel.clone();
        let outcome = match self.refusal.get() {
            None => self.journey(&mut call, &session, inputs, &mut steps).await,
            Some(reason) => Err(Failure::new(Category::PolicyBlocked, reason)),
        };
        let catalogue = self.plugins.catalogue();
        let spool = call.run.spool.take();
        let (outcome, shape) = self
            .shaping
            .shape(&catalogue.filters, &call.context, &call.run.report, outcome, spool, &cancel)
            .await;
        if shape.has_untrusted && (call.run.attempts > 0 || call.run.cached) {
            remember_untrusted(&session);
        }
        steps.finish_step("shape");
        // It is written before any waiting.
        call.recorded = true;
        let recorded = self.audit.outcome(&call.record(&outcome, &shape)).await;
        let outcome = recorded.and(outcome);
        steps.finish_step("record");
        let ShapeReport { filtered, truncated, untrusted, notices, rest, .. } = shape;
        let answer = Answer {
            id: call.context.id.clone(),
            tool: call.context.tool.as_ref().map(|tool| tool.definition.name.clone()),
            provider: call.context.tool.as_ref().map(|tool| tool.provider.name().to_owned()),
            outcome,
            decision: call.governance.decision.take(),
            approval: call.governance.approval.take(),
            cached: call.run.cached,
            truncated,
            untrusted,
            notices,
            rest,
            filtered,
            snapshot: call.run.snapshot,
            report: Arc::clone(&call.run.report),
            steps: steps.taken,
        };
        if let Some(observer) = &self.observer {
            observer.called(&ObservedCall {
                arguments: &call.context.arguments,
                meta: call.context.meta.as_deref(),
                session: &call.context.session,
                answer: &answer,
                started_at: call.context.started_at,
                took: call.context.started.elapsed(),
                waited: call.governance.waited,
                attempts: call.run.attempts,
            });
        }
        answer
    }

    pub(crate) fn begin(&self, request: Request) -> (CallContext, Session, CallInputs) {
        let Request {
            tool,
            arguments,
            attachments,
            meta,
            caller,
            session,
            phase,
            trust,
            doubtful,
            audience,
            approver,
            events,
            cancel,
        } = request;
        let session = session.unwrap_or_else(|| self.session.clone());
        let context = CallContext {
            id: next_id(),
            requested_tool: tool,
            session: Arc::clone(session.name()),
            caller,
            phase,
            trust,
            doubtful,
            audience,
            started_at: SystemTime::now(),
            started: Instant::now(),
            tool: None,
            arguments: Arc::new(arguments),
            attachments,
            meta: meta.map(without_own_keys).filter(|meta| !meta.is_empty()).map(Arc::new),
            subjects: Vec::new(),
            carried: ShellState::default(),
            carried_shown: ShellState::default(),
        };
        (context, session, CallInputs { approver, events, cancel })
    }

    /// What lets a call start a job: a command of a built-in tool, in a session that lasts.
    pub(crate) fn job_start(&self, context: &CallContext, session: &Session) -> Option<JobStart> {
        let tool = context.tool.as_deref().filter(|tool| tool.is_built_in())?;
        let command = subjects::commands(tool, &context.arguments).next()?.to_owned();
        let jobs = session.jobs(self.jobs.0.may_start()?)?;
        let about = JobAbout {
            call: context.id.to_string(),
            tool: tool.definition.name.clone(),
            session: context.session.to_string(),
            command,
        };
        Some(JobStart::new(jobs, about, self.shaping.live(context)))
    }

    /// What the commands of a call begin with, if they are those of a built-in tool. From then on,
    /// the gates read it.
    pub(crate) fn carry(&self, context: &mut CallContext, session: &Session) -> Option<CallShell> {
        let tool = context.tool.as_deref().filter(|tool| tool.is_built_in())?;
        subjects::commands(tool, &context.arguments).next()?;
        let shell = session.shell().filter(|_| self.governor.rules().carries_state)?;
        context.carried = shell.began().clone();
        context.carried_shown = shell.shown();
        let mut subjects = std::mem::take(&mut context.subjects);
        context.carry_into(&mut subjects);
        context.subjects = subjects;
        Some(shell)
    }

    async fn journey(
        &self,
        call: &mut DropRecorder<'_>,
        session: &Session,
        inputs: CallInputs,
        steps: &mut Steps,
    ) -> Outcome {
        let DropRecorder { context, governance, run, .. } = call;
        let catalogue = self.plugins.catalogue_for(&context.requested_tool, &inputs.cancel).await;
        let offered = || dependencies::listed(&self.governor.rules(), &catalogue);
        let tool = Arc::clone(catalogue.resolve_among(&context.requested_tool, offered)?);
        context.tool = Some(Arc::clone(&tool));
        steps.finish_step("resolve");
        self.resolve_subjects(governance, context, &tool, &inputs.cancel, steps).await?;
        run.shell = self.carry(context, session).map(Arc::new);
        self.shaping.check(context)?;
        self.shaping.redact_kept(context);
        let context = &*context;
        let planned = self.check_planned_task(governance, context, session, &inputs.cancel).await?;
        self.govern(governance, context, session, &catalogue, &inputs, steps).await?;

        if context.acts() {
            self.audit
                .intent(&call_record(
                    context,
                    governance.decision.as_ref(),
                    governance.approval.as_ref(),
                    governance.review.as_deref(),
                ))
                .await?;
            steps.finish_step("intent");
        }
        let earlier = self
            .results
            .find(context, session.answers(), || {
                governance.reached.as_ref().map(ReachRules::identity)
            })
            .await;
        run.report = Arc::new(earlier.report());
        let key = match earlier {
            CacheResult::Hit(output) => {
                run.cached = true;
                steps.finish_step("cache");
                return Ok(output);
            }
            CacheResult::Miss(key) => Some(key),
            CacheResult::Unused => None,
        };

        if let Some(place) = governance.place.take() {
            place.used();
        }
        let time = asked_time(&tool.definition, &context.arguments)
            .map(|time| time.min(self.settings.max_call));
        let watcher = Arc::clone(&inputs.events);
        let events = self.retry.dedup_events(context, Arc::clone(&inputs.events));
        let network = self.governor.reaches_network(context);
        let decision = governance.decision.as_ref();
        let inquirer = self.inquirer(context, &tool, inputs.approver.clone()).map(Arc::new);
        let _outer = self.outer.enter(context, &tool, session, inputs.approver.as_ref());
        let mut chosen = PluginCommands::for_tool(&tool);
        let mut relies = decision
            .is_some_and(|decision| self.governor.relies_on_undo(context, decision))
            || chosen.is_some() && self.governor.rules().policy.is_sandboxed();
        let mut tasks;
        let (outcome, changes, time) = loop {
            let first_run_at = Instant::now();
            run.journal =
                self.undo.as_ref().and_then(|undo| undo.journal(context, session.turn(), relies));
            let outcome = loop {
                run.attempts += 1;
                run.spool = self.shaping.spool(context);
                run.job = self.job_start(context, session).map(Arc::new);
                tasks = self.tasks.of_call(
                    context,
                    session.principal(),
                    || session.is_untrusted(),
                    &tool,
                    &self.plugins,
                    self.asking.config(),
                );
                // A call that is cancelled has no answer that marks the session.
                let reader = session.clone();
                let on_untrusted = Box::new(move || remember_untrusted(&reader));
                let provided = provider_call(
                    context,
                    governance,
                    run,
                    &tool,
                    time,
                    network,
                    self.shaping.redact_events(context, events.attempt(), on_untrusted),
                    inquirer.clone().map(|inquirer| inquirer as _),
                    &inputs.cancel,
                    session,
                    &self.settings.project,
                );
                let services = self.services(context, session);
                let provided = Call { services, tasks: tasks.clone(), ..provided };
                let outcome = match &mut chosen {
                    None => tool.provider.call(provided).await,
                    Some(chosen) => {
                        let outer = ParentCallContext { context, session, inputs: &inputs };
                        let provided = Call { judge: Some(chosen.judge()), ..provided };
                        let running = tool.provider.call(provided);
                        self.judge_commands(outer, governance, chosen, running).await
                    }
                };
                let attempts = run.attempts;
                if let ControlFlow::Break(outcome) =
                    self.retry.wait(context, attempts, first_run_at, outcome, &inputs.cancel).await
                {
                    break outcome;
                }
            };
            let time = steps.finish_step("run");
            if let Some(inquirer) = &inquirer {
                governance.waited += inquirer.take_waited();
            }
            match run.job.take() {
                Some(job) if outcome.is_ok() && job.has_started() => {
                    // What the command changes is saved until it ends.
                    let (undo, audit) = (self.undo.clone(), Arc::clone(&self.audit));
                    job.keep(jobs::finisher(undo, audit, context, run.journal.take()));
                }
                Some(job) => job.abandon(),
                None => {}
            }
            let changes = match (&self.undo, run.journal.take()) {
                (Some(undo), Some(journal)) => undo.finish(journal, &run.report).await,
                _ => CallChanges::default(),
            };
            run.snapshot = changes.snapshot();
            if let Some(snapshot) = run.snapshot {
                changes.tell(snapshot, &*watcher);
                if let Some(rollback) = changes.rollback_record(
                    &context.id.0,
                    &context.requested_tool,
                    &context.session,
                ) {
                    self.audit.rollback(&rollback).await?;
                }
                steps.finish_step("save");
            }
            let Some(what) = changes.question() else { break (outcome, changes, time) };
            let Some(decision) = self.governor.not_undoable(context, &what) else {
                break (outcome, changes, time);
            };
            run.snapshot = None;
            governance.decision = Some(decision.clone());
            let review = governance.review.as_deref();
            let step = self.approval_step(context, session, &decision, review);
            let approver = inputs.approver.as_deref();
            let approval = step.approve(approver, &mut governance.waited, &inputs.cancel).await?;
            governance.approval = Some(approval);
            governance.decision = Some(Decision { verdict: Verdict::Allow, ..decision });
            steps.finish_step("approve");
            relies = false;
        };
        tool.tally.count(outcome.is_ok(), time);
        // What others wrote sets nothing for commands.
        let variables = run.report.entries().variables.take();
        if let Some(variables) = variables.filter(|_| !tool.provider.is_third_party()) {
            session.set_variables(variables);
        }
        // The time of a retried call says nothing about one run.
        if let (Some(key), Ok(output), 1) = (key, &outcome, run.attempts) {
            self.results.keep(context, session.answers(), key, &run.report, output, time);
        }
        dependencies::record_completion(&self.governor.rules(), context, session, &outcome);
        let notices = changes.notices(self.undo.as_deref());
        let carried = run.shell.take().map(|shell| shell.take_notices());
        let notices = notices.into_iter().chain(carried.into_iter().flatten());
        let notices = notices.chain(session.job_news());
        let unsaid = std::mem::take(&mut run.report.entries().unsaid);
        let notices = notices.chain(unsaid).chain(planned.filter(|_| outcome.is_ok()));
        let notices = notices.chain(tasks.into_iter().flat_map(|tasks| tasks.take_notices()));
        match outcome {
            Ok(mut output) => {
                let notices = left_out(&run.report).into_iter().chain(notices);
                add_notices(&mut output.content, run, notices);
                Ok(output)
            }
            Err(mut failure) => {
                add_notices(&mut failure.content, run, notices);
                Err(failure)
            }
        }
    }

    /// Checks the tool's switch, the arguments and the blocklist, and resolves what the call acts
    /// on.
    pub(crate) async fn resolve_subjects(
        &self,
        governance: &mut Governance,
        context: &mut CallContext,
        tool: &Arc<Tool>,
        cancel: &CancellationToken,
        steps: &mut Steps,
    ) -> Result<(), Failure> {
        if let Some(off) = self.governor.rules().switches.refusal(tool.provider.name()) {
            return Err(refuse(governance, context, off.clone()));
        }
        check_meta(context.meta.as_deref())?;
        validate::rename(&tool.definition, &mut context.arguments)?;
        validate::arguments(tool, &mut context.arguments, self.settings.arguments)?;
        steps.finish_step("validate");

        if let Some(blocked) = self.governor.blocked(subjects::commands(tool, &context.arguments)) {
            return Err(refuse(governance, context, blocked));
        }
        let lookup =
            self.lookups.decide(tool, &mut context.arguments, &mut context.subjects, cancel);
        if let Err(failure) = lookup.await {
            governance.decision = failure.denial.as_ref().map(Decision::from_grants);
            return Err(failure);
        }
        Ok(())
    }

    /// Decides, has a model judge the call if the rules want that, and a person approve it if the
    /// decision needs it.
    pub(crate) async fn govern(
        &self,
        governance: &mut Governance,
        context: &CallContext,
        session: &Session,
        catalogue: &Catalogue,
        inputs: &CallInputs,
        steps: &mut Steps,
    ) -> Result<(), Failure> {
        let mut decision = self.decide(governance, context, session, catalogue, false)?;
        steps.finish_step("govern");
        let rules = self.governor.rules();
        decision =
            self.review(governance, context, session, &rules, decision, &inputs.cancel).await?;
        if rules.review.is_some() {
            steps.finish_step("review");
        }
        if decision.verdict == Verdict::Ask {
            // If the future is dropped, the record has this decision.
            governance.decision = Some(decision.clone());
            let review = governance.review.as_deref();
            let step = self.approval_step(context, session, &decision, review);
            let approval = step
                .approve(inputs.approver.as_deref(), &mut governance.waited, &inputs.cancel)
                .await?;
            governance.approval = Some(approval);
            // The rules may have changed meanwhile, and an approval skips the question and nothing
            // else.
            decision = self.decide(governance, context, session, catalogue, true)?;
            let now = self.governor.rules();
            if now.generation != rules.generation {
                let cancel = &inputs.cancel;
                decision =
                    self.review(governance, context, session, &now, decision, cancel).await?;
            }
            steps.finish_step("approve");
        }
        if decision.verdict != Verdict::Allow {
            return Err(refuse(governance, context, decision));
        }
        governance.decision = Some(decision);
        governance.place = self.reserve(governance, context, session)?;
        Ok(())
    }

    /// Reserves the call's place in the quota and rate of its session.
    fn reserve(
        &self,
        governance: &mut Governance,
        context: &CallContext,
        session: &Session,
    ) -> Result<Option<QuotaReservation>, Failure> {
        self.governor.count(context, session).map_err(|refused| {
            governance.decision = refused.decision.or_else(|| governance.decision.take());
            refused.failure
        })
    }

    /// The decision after a model has judged the call, if the rules want that. A call that is
    /// refused anyway is sent to no model.
    async fn review(
        &self,
        governance: &mut Governance,
        context: &CallContext,
        session: &Session,
        rules: &Rules,
        decision: Decision,
        cancel: &CancellationToken,
    ) -> Result<Decision, Failure> {
        let review = rules.review.as_ref().filter(|review| !review.exempts(context));
        let Some(review) = review.filter(|_| decision.verdict != Verdict::Deny) else {
            return Ok(decision);
        };
        // If the future is dropped, the record has this decision.
        governance.decision = Some(decision.clone());
        // Looks whether there is a place. The call takes it when it is about to run.
        drop(self.reserve(governance, context, session)?);
        let reviewed = self.reviews.judge(review, context, cancel).await?;
        governance.review = Some(reviewed.record);
        Ok(reviewed.decision.unwrap_or(decision))
    }

    /// The decision of the gates. If the dependency state can't be read, the decision of the
    /// earlier gates is kept for the record.
    fn decide(
        &self,
        governance: &mut Governance,
        context: &CallContext,
        session: &Session,
        catalogue: &Catalogue,
        confirmed: bool,
    ) -> Result<Decision, Failure> {
        let (mut decision, reached) = self.governor.decide(context, confirmed);
        governance.reached = reached;
        if decision.verdict == Verdict::Deny {
            if session.job_servers().is_some() {
                self.governor.add_remedy_by_jobs(context, &mut decision);
            }
            return Ok(decision);
        }
        match dependencies::check(&self.governor.rules(), catalogue, context, session) {
            Ok(blocked) => Ok(blocked.unwrap_or(decision)),
            Err(error) => {
                governance.decision = Some(decision);
                Err(dependencies::unknown(&error))
            }
        }
    }

    pub(crate) fn approval_step<'a>(
        &'a self,
        context: &'a CallContext,
        session: &'a Session,
        decision: &'a Decision,
        review: Option<&'a str>,
    ) -> ApprovalStep<'a> {
        let Self { asking, audit, governor, lookups, .. } = self;
        ApprovalStep { asking, audit, governor, lookups, context, session, decision, review }
    }
}

fn add_notices(
    content: &mut Vec<Content>,
    run: &RunReport,
    notices: impl IntoIterator<Item = String>,
) {
    for notice in notices {
        content.push(Content::text(format!("[{notice}]\n")));
        run.report.entries().notices.push(notice);
    }
}

/// Notice about what was left out of the answer because it needs approval.
fn left_out(report: &Report) -> Option<String> {
    let (denial, count) = report.entries().left_out.asked.take()?;
    let Denial { action, rule, place, remedy, .. } = denial;
    let entries =
        if count == 1 { "1 entry was".to_owned() } else { format!("{count} entries were") };
    Some(format!(
        "Needs approval: {entries} left out, the first to {action}. The rule: {rule} ({place}). {remedy}"
    ))
}

/// The refusal of a decision.
fn refuse(governance: &mut Governance, context: &CallContext, decision: Decision) -> Failure {
    let failure = Failure::denied(decision.denial(format!("call {}", context.requested_tool)));
    governance.decision = Some(decision);
    failure
}

/// The call in the form that its provider gets.
#[expect(clippy::too_many_arguments, reason = "each is another fact of the one call")]
fn provider_call(
    context: &CallContext,
    governance: &Governance,
    run: &RunReport,
    tool: &Tool,
    time: Option<Duration>,
    network: bool,
    events: Arc<dyn Events>,
    inquirer: Option<Arc<dyn Inquirer>>,
    cancel: &CancellationToken,
    session: &Session,
    project: &Arc<str>,
) -> Call {
    Call {
        id: context.id.clone(),
        tool: tool.definition.name.clone(),
        time,
        arguments: Arc::clone(&context.arguments),
        attachments: context.attachments.clone(),
        meta: context.meta.clone(),
        caller: context.caller.clone(),
        session: Arc::clone(&context.session),
        caller_info: Some(Arc::new(SessionCaller {
            session: session.clone(),
            project: Arc::clone(project),
            agent: context.caller.clone(),
        })),
        commands: subjects::commands(tool, &context.arguments).map(str::to_owned).collect(),
        network,
        origins: context
            .action()
            .map(|action| toolhold_policy::origins(&action))
            .unwrap_or_default(),
        read_only: tool.annotations_with(&context.arguments).read_only,
        path_rules: governance.reached.as_ref().map(|reached| Arc::clone(&reached.paths) as _),
        changes: run.journal.as_ref().map(CallJournal::recorder),
        output: run.spool.clone().map(|spool| spool as _),
        judge: None,
        services: None,
        jobs: run.job.clone().map(|job| job as _),
        job_servers: session.job_servers().filter(|_| tool.is_built_in()),
        shell: run.shell.clone().map(|shell| shell as _),
        variables: if tool.is_built_in() { session.variables() } else { Vec::new() },
        command_changes: run.journal.as_ref().and_then(CallJournal::command_recorder),
        tasks: None,
        inquirer,
        report: Arc::clone(&run.report),
        events,
        cancel: cancel.clone(),
    }
}

/// The time limit that a call asks for, if the tool has an argument for it.
fn asked_time(tool: &Definition, arguments: &Value) -> Option<Duration> {
    tool.requested_seconds(arguments).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

/// Marks a session that is given untrusted text.
fn remember_untrusted(session: &Session) {
    if let Err(error) = session.mark_untrusted() {
        // Whoever can't read the state later assumes the worst.
        tracing::warn!("the session's state can't be written: {error}");
    }
}

/// What the caller sent without keys that only the host may write.
fn without_own_keys(mut meta: Map<String, Value>) -> Map<String, Value> {
    meta.retain(|key, _| !key.starts_with("toolhold:"));
    meta
}

/// Checks the size of what the caller sent beside the arguments.
fn check_meta(meta: Option<&Map<String, Value>>) -> Result<(), Failure> {
    let size = meta.map_or(0, |meta| serde_json::to_string(meta).map_or(0, |text| text.len()));
    if size <= MAX_META {
        return Ok(());
    }
    let message = format!("the meta of the call is {size} bytes; the limit is {MAX_META}");
    Err(Failure::new(Category::InvalidParameters, message)
        .with_suggestion("Send larger content as an attachment."))
}

/// A unique ID: random bytes of this process and a number.
fn next_id() -> CallId {
    static PROCESS: LazyLock<String> = LazyLock::new(|| {
        let mut bytes = [0; 8];
        // Without random bytes, IDs are still unique in this process.
        let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        format!("{:016x}-", u64::from_ne_bytes(bytes))
    });
    static NEXT: AtomicU64 = AtomicU64::new(1);
    CallId((PROCESS.clone() + &NEXT.fetch_add(1, Ordering::Relaxed).to_string()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolhold_contract::{Role, ToolArgument};

    #[test]
    fn timeout_counts_only_if_the_tool_has_one() {
        let schema = json!({ "type": "object", "properties": { "timeout": { "type": "number" } } });
        let without = Definition::new("sleep", "sleeps", schema);
        let arguments = vec![ToolArgument::with_role("timeout", Role::Timeout)];
        let with = Definition { arguments, ..without.clone() };
        let arguments = json!({ "timeout": 2.5 });
        assert_eq!(asked_time(&with, &arguments), Some(Duration::from_millis(2500)));
        assert_eq!(asked_time(&without, &arguments), None);
        assert_eq!(asked_time(&with, &json!({ "timeout": -1 })), None);
        assert_eq!(asked_time(&with, &json!({ "timeout": 1e300 })), None);
    }

    #[test]
    fn ids_are_unique() {
        assert_ne!(next_id(), next_id());
    }
}
