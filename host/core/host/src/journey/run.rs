//! Runs an allowed call, saves or undoes its changes, and stores data of its outcome.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use toolhold_answers::CacheKey;
use toolhold_catalogue::{CallContext, Tool, subjects};
use toolhold_contract::{
    Call, CallCommands, CallRequests, Content, Definition, Denial, Events, Failure, Outcome,
    Report, ServiceKeeper, Snapshot, TaskBook,
};
use toolhold_jobs::{JobAbout, JobStart};
use toolhold_policy::{Decision, Verdict};

use super::chosen_commands::{PluginCommands, judge_commands};
use super::host_questions::{ProgramHosts, answer_host_questions};
use super::prepare::PreparedCall;
use super::{Journey, remember_untrusted};
use crate::call_inputs::Steps;
use crate::caller_names::SessionCaller;
use crate::inquiries::CallInquirer;
use crate::outer::OuterCallEntry;
use crate::record::{Governance, RunReport};
use crate::retry::DedupedEvents;
use crate::undo::{CallChanges, CallJournal};
use crate::{dependencies, jobs};

/// A running call, with the data that all attempts share.
pub(super) struct CallRun<'a> {
    journey: Journey<'a>,
    context: &'a CallContext,
    governance: &'a mut Governance,
    run: &'a mut RunReport,
    steps: &'a mut Steps,
    tasks: Option<Arc<dyn TaskBook>>,
    /// The commands that the tool's plugin chooses. `None` means that it may not choose commands.
    commands: Option<PluginCommands>,
    /// The hosts that programs of the call connect to. `None` means that nobody is asked about
    /// hosts.
    hosts: Option<ProgramHosts>,
    /// The entry that lets inner calls find this call.
    _parent: Option<OuterCallEntry<'a>>,
    inquirer: Option<Arc<CallInquirer>>,
    events: DedupedEvents,
    /// Whether the call may run only because its changes can be undone.
    relies_on_undo: bool,
    network: bool,
    time_limit: Option<Duration>,
    /// The duration of all attempts, including waits between them.
    time: Duration,
    tool: Arc<Tool>,
    task_notice: Option<String>,
}

impl<'a> CallRun<'a> {
    /// Starts the run of a call. From here on, the call stays counted in the quota.
    pub(super) fn start(
        journey: Journey<'a>,
        prepared: PreparedCall,
        context: &'a CallContext,
        governance: &'a mut Governance,
        run: &'a mut RunReport,
        steps: &'a mut Steps,
    ) -> Self {
        let Journey { host, session, inputs } = journey;
        let PreparedCall { tool, task_notice } = prepared;
        if let Some(reservation) = governance.reservation.take() {
            reservation.used();
        }
        let time_limit = requested_time(&tool.definition, &context.arguments)
            .map(|time| time.min(host.settings.max_call));
        let events = host.retry.dedup_events(context, Arc::clone(&inputs.events));
        let network = host.governor.reaches_network(context);
        let inquirer =
            CallInquirer::for_call(host, context, &tool, inputs.approver.clone()).map(Arc::new);
        let parent = host.outer.enter(context, &tool, session, inputs.approver.as_ref());
        let commands = PluginCommands::for_tool(&tool);
        let hosts = match inputs.approver {
            Some(_) => ProgramHosts::for_tool(&tool),
            None => None,
        };
        let call_relies_on_undo = match &governance.decision {
            Some(decision) => host.governor.relies_on_undo(context, decision),
            None => false,
        };
        let commands_rely_on_undo =
            commands.is_some() && host.governor.rules().policy.is_sandboxed();
        let relies_on_undo = call_relies_on_undo || commands_rely_on_undo;
        Self {
            journey,
            context,
            governance,
            run,
            steps,
            tasks: None,
            commands,
            hosts,
            _parent: parent,
            inquirer,
            events,
            relies_on_undo,
            network,
            time_limit,
            time: Duration::ZERO,
            tool,
            task_notice,
        }
    }

    /// Runs the call until its outcome. Retries after failures that may be temporary.
    pub(super) async fn attempt(&mut self) -> Outcome {
        let Journey { host, session, inputs } = self.journey;
        let first_run_at = Instant::now();
        self.run.journal = match &host.undo {
            Some(undo) => undo.journal(self.context, session.turn(), self.relies_on_undo),
            None => None,
        };
        loop {
            let outcome = self.run_once().await;
            let attempts = self.run.attempts;
            let retry =
                host.retry.wait(self.context, attempts, first_run_at, outcome, &inputs.cancel);
            if let ControlFlow::Break(outcome) = retry.await {
                self.time = self.steps.finish_step("run");
                if let Some(inquirer) = &self.inquirer {
                    self.governance.waited += inquirer.take_waited();
                }
                return outcome;
            }
        }
    }

    /// Runs the tool once, and decides on the commands that the tool's plugin chooses and on the
    /// hosts that programs connect to.
    async fn run_once(&mut self) -> Outcome {
        let Journey { host, session, .. } = self.journey;
        self.run.attempts += 1;
        self.run.spool = host.shaping.spool(self.context);
        self.run.job = self.job_start().map(Arc::new);
        self.tasks = host.tasks.of_call(
            self.context,
            session.principal(),
            || session.is_untrusted(),
            &self.tool,
            &host.plugins,
            host.asking.config(),
        );
        let running = self.tool.provider.call(self.provider_call());
        // No call has both, because only the shell has hosts that a person is asked about, and the
        // shell chooses no commands.
        if let Some(commands) = &mut self.commands {
            judge_commands(self.journey, self.context, self.governance, commands, running).await
        } else if let Some(hosts) = &mut self.hosts {
            let context = self.context;
            answer_host_questions(self.journey, context, self.governance, hosts, running).await
        } else {
            running.await
        }
    }

    /// Creates the call for the source of the tool.
    fn provider_call(&self) -> Call {
        let Self { context, run, tool, .. } = self;
        let Journey { host, session, inputs } = self.journey;
        let caller_info = SessionCaller {
            session: session.clone(),
            project: Arc::clone(&host.settings.project),
            agent: context.caller.clone(),
        };
        let path_rules = self.governance.path_rules.as_ref();
        let origins =
            context.action().map(|action| toolhold_policy::origins(&action)).unwrap_or_default();
        let job_servers = if tool.is_built_in() { session.job_servers() } else { None };
        Call {
            id: context.id.clone(),
            tool: tool.definition.name.clone(),
            time: self.time_limit,
            arguments: Arc::clone(&context.arguments),
            attachments: context.attachments.clone(),
            meta: context.meta.clone(),
            caller: context.caller.clone(),
            session: Arc::clone(&context.session),
            caller_info: Some(Arc::new(caller_info)),
            read_only: tool.annotations_with(&context.arguments).read_only,
            path_rules: path_rules.map(|rules| Arc::clone(&rules.paths) as _),
            changes: run.journal.as_ref().map(CallJournal::recorder),
            commands: self.provider_commands(),
            requests: CallRequests { origins, job_servers },
            tasks: self.tasks.clone(),
            inquirer: self.inquirer.clone().map(|inquirer| inquirer as _),
            report: Arc::clone(&run.report),
            events: self.attempt_events(),
            cancel: inputs.cancel.clone(),
        }
    }

    /// Returns the data for the commands of the call.
    fn provider_commands(&self) -> CallCommands {
        let Self { context, run, tool, .. } = self;
        let session = self.journey.session;
        CallCommands {
            lines: subjects::commands(tool, &context.arguments).map(str::to_owned).collect(),
            network: self.network,
            variables: if tool.is_built_in() { session.variables() } else { Vec::new() },
            approver: self.commands.as_ref().map(PluginCommands::judge),
            host_approver: self.hosts.as_ref().map(ProgramHosts::approver),
            changes: run.journal.as_ref().and_then(CallJournal::command_recorder),
            output: run.spool.clone().map(|spool| spool as _),
            jobs: run.job.clone().map(|job| job as _),
            services: self.services(),
            shell: run.shell.clone().map(|shell| shell as _),
        }
    }

    fn attempt_events(&self) -> Arc<dyn Events> {
        // A cancelled call has no answer that would mark the session, so the event marks it.
        let session = self.journey.session.clone();
        let on_untrusted = Box::new(move || remember_untrusted(&session));
        let shaping = &self.journey.host.shaping;
        shaping.redact_events(self.context, self.events.attempt(), on_untrusted)
    }

    /// Returns the right to start a job, or `None` if the call may not start a job. A job needs a
    /// command of a built-in tool, and a session in memory.
    fn job_start(&self) -> Option<JobStart> {
        let Journey { host, session, .. } = self.journey;
        let context = self.context;
        let tool = context.tool.as_deref()?;
        if !tool.is_built_in() {
            return None;
        }
        let command = subjects::commands(tool, &context.arguments).next()?.to_owned();
        let host_jobs = host.jobs.jobs.may_start()?;
        let session_jobs = session.jobs(host_jobs)?;
        let about = JobAbout {
            call: context.id.to_string(),
            tool: tool.definition.name.clone(),
            session: context.session.to_string(),
            command,
        };
        Some(JobStart::new(session_jobs, about, host.shaping.live(context)))
    }

    /// Returns the keeper of programs that continue after the call. Returns `None` if the plugin
    /// may not have such programs, or if the call only reads.
    fn services(&self) -> Option<Arc<dyn ServiceKeeper>> {
        let Journey { host, session, .. } = self.journey;
        if !self.context.acts() {
            return None;
        }
        let plugin = self.context.tool.as_ref()?.plugin.as_ref()?;
        let may_keep_programs = plugin.policy().capabilities.service.is_some();
        if !may_keep_programs {
            return None;
        }
        Some(session.services(&host.jobs.services))
    }

    /// Saves or undoes the changes of the call.
    ///
    /// Returns `None` if the call must run again without undo. This happens if the call relied on
    /// undo, one of its changes couldn't be saved, and a person has approved the call.
    pub(super) async fn settle(
        &mut self,
        outcome: &Outcome,
    ) -> Result<Option<CallChanges>, Failure> {
        let host = self.journey.host;
        self.release_job(outcome);
        let changes = match (&host.undo, self.run.journal.take()) {
            (Some(undo), Some(journal)) => undo.finish(journal, &self.run.report).await,
            // No changes were saved by this call, or a job saves them.
            _ => CallChanges::default(),
        };
        self.run.snapshot = changes.snapshot();
        if let Some(snapshot) = self.run.snapshot {
            self.report_changes(&changes, snapshot).await?;
        }
        let Some(reason) = changes.reason_for_approval() else { return Ok(Some(changes)) };
        let Some(decision) = host.governor.not_undoable(self.context, &reason) else {
            return Ok(Some(changes));
        };
        // The call runs again, so the saved changes of this run no longer count.
        self.run.snapshot = None;
        self.journey.approve(self.governance, self.context, &decision).await?;
        self.governance.decision = Some(Decision { verdict: Verdict::Allow, ..decision });
        self.steps.finish_step("approve");
        self.relies_on_undo = false;
        Ok(None)
    }

    /// Lets a job of the call continue. Changes of the job are saved until the job ends. If the
    /// call failed, the job ends with the call.
    fn release_job(&mut self, outcome: &Outcome) {
        let Some(job) = self.run.job.take() else { return };
        if outcome.is_err() || !job.has_started() {
            job.abandon();
            return;
        }
        let host = self.journey.host;
        let undo = host.undo.clone();
        let audit = Arc::clone(&host.audit);
        job.keep(jobs::finisher(undo, audit, self.context, self.run.journal.take()));
    }

    /// Reports the saved changes to the receiver of events, and records an automatic undo.
    async fn report_changes(
        &mut self,
        changes: &CallChanges,
        snapshot: Snapshot,
    ) -> Result<(), Failure> {
        let Journey { host, inputs, .. } = self.journey;
        let CallContext { id, requested_tool, session, .. } = self.context;
        changes.send_events(snapshot, &*inputs.events);
        if let Some(rollback) = changes.rollback_record(&id.0, requested_tool, session) {
            host.audit.rollback(&rollback).await?;
        }
        self.steps.finish_step("save");
        Ok(())
    }

    /// Stores data of the outcome for later calls, and adds the notices to the answer.
    pub(super) fn finish(
        mut self,
        mut outcome: Outcome,
        changes: &CallChanges,
        key: Option<CacheKey>,
    ) -> Outcome {
        let Journey { host, session, .. } = self.journey;
        let Self { context, tool, time, .. } = &self;
        tool.tally.count(outcome.is_ok(), *time);
        let variables = self.run.report.entries().variables.take();
        // A third-party source may not set variables for commands.
        if let Some(variables) = variables
            && !tool.provider.is_third_party()
        {
            session.set_variables(variables);
        }
        // The duration of a retried call isn't the duration of one run, so its answer isn't cached.
        let was_retried = self.run.attempts != 1;
        if !was_retried
            && let Some(key) = key
            && let Ok(output) = &outcome
        {
            host.results.keep(context, session.answers(), key, &self.run.report, output, *time);
        }
        dependencies::record_completion(&host.governor.rules(), context, session, &outcome);
        let notices = self.take_notices(outcome.is_ok(), changes);
        let content = match &mut outcome {
            Ok(output) => &mut output.content,
            Err(failure) => &mut failure.content,
        };
        for notice in notices {
            content.push(Content::text(format!("[{notice}]\n")));
            self.run.report.entries().notices.push(notice);
        }
        outcome
    }

    /// Takes the notices for the caller. `is_ok` means that the call succeeded.
    fn take_notices(&mut self, is_ok: bool, changes: &CallChanges) -> Vec<String> {
        let Journey { host, session, .. } = self.journey;
        let mut notices = Vec::new();
        if is_ok {
            notices.extend(omitted_entries_notice(&self.run.report));
        }
        notices.extend(changes.notices(host.undo.as_deref()));
        if let Some(shell) = self.run.shell.take() {
            notices.extend(shell.take_notices());
        }
        notices.extend(session.job_news());
        notices.append(&mut self.run.report.entries().unsaid);
        if is_ok {
            notices.extend(self.task_notice.take());
        }
        if let Some(tasks) = self.tasks.take() {
            notices.extend(tasks.take_notices());
        }
        notices
    }
}

/// Returns a notice about entries that a listing omitted because access to them needs approval.
/// Returns `None` if the listing omitted no entry.
fn omitted_entries_notice(report: &Report) -> Option<String> {
    let (denial, count) = report.entries().left_out.asked.take()?;
    let Denial { action, rule, place, remedy, .. } = denial;
    let entries =
        if count == 1 { "1 entry was".to_owned() } else { format!("{count} entries were") };
    Some(format!(
        "{entries} left out, because access needs approval. The first: {action}. The rule: {rule} \
         ({place}). {remedy}"
    ))
}

fn requested_time(tool: &Definition, arguments: &Value) -> Option<Duration> {
    tool.requested_seconds(arguments).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
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
        assert_eq!(requested_time(&with, &arguments), Some(Duration::from_millis(2500)));
        assert_eq!(requested_time(&without, &arguments), None);
        assert_eq!(requested_time(&with, &json!({ "timeout": -1 })), None);
        assert_eq!(requested_time(&with, &json!({ "timeout": 1e300 })), None);
    }
}
