//! Runs one task without a person, as `toolhold call` and `toolhold run` would. A call that needs
//! approval isn't made: the run ends as denied, and the question waits for a person.

use std::path::PathBuf;
use std::sync::Arc;

use toolhold_core::config::{self, Config, Folders, Inputs};
use toolhold_core::{
    CancellationToken, Category, Failure, HostError, Phase, PostingApprover, Request, Session,
    Trust,
};
use toolhold_export::Telemetry;
use toolhold_mcp_client::Servers;
use toolhold_schedule::{ClaimedRun, RunEnd, RunResult};
use toolhold_skills::{OfferedSkills, Skills};

use crate::agent::{Delegates, Surroundings, run_scheduled};
use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;

/// The command, in the records of what tasks do.
const FRONT_END: &str = "toolhold task";

/// The note on a denial whose remedy is a line of the configuration, which may not be enough.
const ANEW: &str = "A task keeps the permissions from its creation, without flags. If the rule is \
older than the task, change the rule and make the task anew.\n";

/// Makes one run. It blocks.
pub(super) fn run_task(
    options: &Options,
    folders: &Folders,
    run: &ClaimedRun,
    end: &CancellationToken,
) -> RunResult {
    let made = prepare(options, folders, run).and_then(|prepared| match &run.action {
        toolhold_core::TaskAction::Call { tool, arguments } => {
            prepared.call(tool, arguments.clone(), end)
        }
        toolhold_core::TaskAction::Prompt(prompt) => prepared.prompt(prompt.clone(), end),
    });
    made.unwrap_or_else(|error| {
        let (exit, message) = error.end();
        let end = if exit == Exit::Denied { RunEnd::Denied } else { RunEnd::Failed };
        RunResult { end, output: message.unwrap_or_default() }
    })
}

/// The inputs of a run.
struct Prepared<'a> {
    options: &'a Options,
    folders: &'a Folders,
    run: &'a ClaimedRun,
    loaded: Config,
    directory: PathBuf,
}

/// The present configuration in the task's directory, within the limits of its maker's
/// configuration.
fn prepare<'a>(
    options: &'a Options,
    folders: &'a Folders,
    run: &'a ClaimedRun,
) -> Result<Prepared<'a>, Error> {
    let directory = PathBuf::from(&run.owner.directory);
    // The maker's directory was a real path. A link in its place leads to another directory.
    if directory.canonicalize().ok().as_ref() != Some(&directory) {
        return Err(Error::Unasked(format!(
            "the directory of the task no longer exists: {}; make the task anew",
            directory.display()
        )));
    }
    let inputs = Inputs {
        working_directory: Some(directory.clone()),
        bounds: run.maker.bounds.clone(),
        ..options.inputs()?
    };
    let loaded = config::load(folders, &inputs).map_err(HostError::from)?;
    if !loaded.values.tools.scheduler.enabled {
        return Err(Error::Unasked(format!("tasks are disabled: {}", disabled(&loaded))));
    }
    Ok(Prepared { options, folders, run, loaded, directory })
}

impl Prepared<'_> {
    fn call(
        self,
        tool: &str,
        arguments: serde_json::Value,
        end: &CancellationToken,
    ) -> Result<RunResult, Error> {
        let Self { options, folders, run, loaded, directory } = self;
        let phase = phase(run)?;
        let trust = trust(run)?;
        let approver = PostingApprover::new(folders, &loaded.values.approvals);
        let session = session(folders, run);
        // A model made the task, perhaps because of what it had read.
        session.mark_untrusted()?;
        let telemetry = Telemetry::from_config(&loaded, folders)?;
        host::block_on_this_thread(async {
            let skills = Skills::find(&loaded, folders, &directory)?;
            let skills = OfferedSkills { skills: Arc::new(skills), are_listed: false };
            let servers = Servers::new(FRONT_END);
            let builder = host::builder_in(
                directory,
                options,
                folders.clone(),
                loaded,
                &servers,
                &skills,
                FRONT_END,
                Some(tool),
            )?
            .builtins(toolhold_builtins::all())
            .only_for(tool);
            let host = host::observed(builder, telemetry).build().await?;
            let request = Request {
                session: Some(session),
                phase,
                trust,
                approver: Some(Arc::new(approver)),
                cancel: end.clone(),
                ..Request::new(tool, arguments)
            };
            Ok(result(host.call(request).await.outcome))
        })
    }

    fn prompt(self, prompt: String, end: &CancellationToken) -> Result<RunResult, Error> {
        let Self { options, folders, run, loaded, directory } = self;
        if run.owner.served().is_some() {
            // The agent works as the user of this machine.
            return Err(Error::Unasked("a caller of a server can't give the agent a task".into()));
        }
        let phase = phase(run)?.unwrap_or(Phase::Autonomous);
        let around = Surroundings {
            front_end: FRONT_END,
            approver: Arc::new(PostingApprover::new(folders, &loaded.values.approvals)),
            config: &loaded,
            folders,
            directory: &directory,
            delegates: Delegates::new(&loaded, folders, &directory, FRONT_END),
            skills: Arc::new(Skills::find(&loaded, folders, &directory)?),
        };
        let work = run_scheduled(prompt, run.maker.untrusted, phase, &around, end, async || {
            crate::agent::command::make(options, &around).await
        });
        let done = host::block_on_this_thread(work)?;
        let kind = match (done.is_done(), done.is_denied()) {
            (true, _) => RunEnd::Done,
            (false, true) => RunEnd::Denied,
            (false, false) => RunEnd::Failed,
        };
        let reason = if done.end.reason.is_empty() { &done.answer } else { &done.end.reason };
        let text = if done.is_done() { &done.answer } else { reason };
        Ok(RunResult { end: kind, output: format!("session {}\n{text}", done.session) })
    }
}

/// The session of a task, which lasts from run to run: its approvals apply to all its runs.
fn session(folders: &Folders, run: &ClaimedRun) -> Session {
    let name = format!("task {} of {} for {}", run.task, run.owner.plugin, run.owner.principal);
    Session::on_disk_of(folders, name, run.owner.served())
}

/// The part of an agent's work that made the task: rules for that part apply to the task too.
fn phase(run: &ClaimedRun) -> Result<Option<Phase>, Error> {
    let Some(name) = run.maker.phase.as_deref() else { return Ok(None) };
    let all = [Phase::Planner, Phase::Executor, Phase::Verifier, Phase::Autonomous];
    let phase = all.into_iter().find(|phase| phase.as_str() == name);
    phase.map(Some).ok_or_else(|| Error::Unasked(format!("the task's phase `{name}` is unknown")))
}

fn trust(run: &ClaimedRun) -> Result<Trust, Error> {
    let name = &run.maker.trust;
    let all = [Trust::Trusted, Trust::Verified, Trust::Quarantined, Trust::Blocked];
    let trust = all.into_iter().find(|trust| trust.as_str() == name);
    trust.ok_or_else(|| Error::Unasked(format!("the task's trust `{name}` is unknown")))
}

fn result(outcome: Result<toolhold_core::Output, Failure>) -> RunResult {
    match outcome {
        Ok(output) => RunResult { end: RunEnd::Done, output: output.joined_text() },
        Err(failure) => {
            let is_denied = matches!(
                failure.category,
                Category::PolicyBlocked | Category::ConfirmationRequired
            );
            let end = if is_denied { RunEnd::Denied } else { RunEnd::Failed };
            let suggestion = failure.suggestion.as_deref().unwrap_or_default();
            let text = failure.joined_text();
            let is_enough = failure.category != Category::PolicyBlocked
                || failure.message.contains("make the task anew");
            let anew = if is_enough { "" } else { ANEW };
            RunResult { end, output: format!("{}\n{anew}{suggestion}\n{text}", failure.message) }
        }
    }
}

/// The key that disables tasks, and how to enable them.
pub(super) fn disabled(loaded: &Config) -> String {
    let off = loaded.disabled("tools.scheduler.enabled");
    format!("{} ({}). {}", off.rule, off.place, off.remedy)
}
