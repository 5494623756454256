//! Runs one task. No person is present, so a call that needs approval isn't made: its question is
//! posted, and the run ends as denied.

use std::path::PathBuf;
use std::sync::Arc;

use toolhold_agent::EndKind;
use toolhold_core::config::{self, Config, Folders, Inputs, KnownPrincipal};
use toolhold_core::{
    CancellationToken, Category, Failure, HostError, Phase, PostingApprover, Request, Session,
    TaskAction, Trust,
};
use toolhold_export::Telemetry;
use toolhold_mcp_client::Servers;
use toolhold_mcp_server::LocalTokens;
use toolhold_schedule::{ClaimedRun, RunEnd, RunResult};
use toolhold_skills::{OfferedSkills, Skills};

use crate::agent::{Delegates, ScheduledEnd, Surroundings, run_scheduled};
use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;

/// The name of the command in the audit log.
const FRONT_END: &str = "toolhold task";

/// The remedy for a rule's denial. Existing tasks keep their old rules.
const OLD_RULES_NOTE: &str = "A task keeps the permissions from its creation, without flags. If \
                              the rule is older than the task, change the rule and create the task \
                              again.\n";

/// Runs a task until `end` is cancelled. Errors become the result of the run. Blocks.
pub(super) fn run_task(
    options: &Options,
    folders: &Folders,
    run: &ClaimedRun,
    end: &CancellationToken,
) -> RunResult {
    match try_run(options, folders, run, end) {
        Ok(result) => result,
        Err(error) => {
            let (exit, message) = error.end();
            let end = if exit == Exit::Denied { RunEnd::Denied } else { RunEnd::Failed };
            RunResult { end, output: message.unwrap_or_default() }
        }
    }
}

fn try_run(
    options: &Options,
    folders: &Folders,
    run: &ClaimedRun,
    end: &CancellationToken,
) -> Result<RunResult, Error> {
    let prepared = prepare(options, folders, run)?;
    match &run.action {
        TaskAction::Call { tool, arguments } => prepared.call(tool, arguments.clone(), end),
        TaskAction::Prompt(prompt) => prepared.prompt(prompt.clone(), end),
    }
}

struct Prepared<'a> {
    options: &'a Options,
    folders: &'a Folders,
    run: &'a ClaimedRun,
    loaded: Config,
    directory: PathBuf,
}

/// Loads the configuration of the task's directory, within the permissions of the task's creator.
fn prepare<'a>(
    options: &'a Options,
    folders: &'a Folders,
    run: &'a ClaimedRun,
) -> Result<Prepared<'a>, Error> {
    let directory = PathBuf::from(&run.owner.directory);
    // The stored path had no symbolic links, so a link in it is new, and could lead to another
    // directory.
    let is_same = directory.canonicalize().is_ok_and(|real| real == directory);
    if !is_same {
        return Err(Error::Unasked(format!(
            "the directory of the task no longer exists: {}; create the task again",
            directory.display()
        )));
    }
    let mut inputs = Inputs { bounds: run.maker.bounds.clone(), ..options.inputs()? };
    if folders.is_of_principal() {
        limit_to_principal(&mut inputs, folders)?;
    } else {
        inputs.working_directory = Some(directory.clone());
    }
    let loaded = config::load(folders, &inputs).map_err(HostError::from)?;
    if let Some(principal) = &loaded.principal
        && principal.directory != directory
    {
        return Err(Error::Unasked(format!(
            "the directory of the task isn't the principal's any more: {}; create the task again",
            directory.display()
        )));
    }
    if !loaded.values.tools.scheduler.enabled {
        return Err(Error::Unasked(format!("tasks are disabled: {}", disabled(&loaded))));
    }
    Ok(Prepared { options, folders, run, loaded, directory })
}

/// Sets the principal whose folders these are, with the rights of its last token.
fn limit_to_principal(inputs: &mut Inputs, folders: &Folders) -> Result<(), Error> {
    let Some(KnownPrincipal { who, .. }) = known_principal(folders)? else {
        return Err(Error::Unasked(
            "the task's principal hasn't used the server for a day, or its token was revoked or has \
             expired; the task runs again after the principal's next request"
                .to_owned(),
        ));
    };
    if let Some(id) = &who.token
        && let Some(record) = LocalTokens::new(folders).valid(id)?
    {
        inputs.principal_table = record.table;
    }
    inputs.who = Some(who);
    Ok(())
}

/// Reads a principal, if its rights are known at present.
fn known_principal(folders: &Folders) -> Result<Option<KnownPrincipal>, HostError> {
    let Some(known) = KnownPrincipal::load(folders)? else { return Ok(None) };
    let is_valid = match &known.who.token {
        Some(id) => LocalTokens::new(folders).valid(id)?.is_some(),
        None => known.is_recent(),
    };
    Ok(if is_valid { Some(known) } else { None })
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
        // A model created the task, perhaps because untrusted text asked for it, so the session is
        // untrusted.
        session.mark_untrusted()?;
        let telemetry = Telemetry::from_config(&loaded, folders)?;
        let who = loaded.principal.as_ref().map(|principal| principal.who.clone());
        host::block_on_this_thread(async {
            let skills = if folders.is_of_principal() {
                // The folders of skills are the operator's.
                Skills::default()
            } else {
                Skills::find(&loaded, folders, &directory)?
            };
            let skills = OfferedSkills { skills: Arc::new(skills), are_listed: false };
            let servers = Servers::new(FRONT_END);
            let only_tool = Some(tool);
            let mut builder = host::builder_in(
                directory,
                options,
                folders.clone(),
                loaded,
                &servers,
                &skills,
                FRONT_END,
                only_tool,
            )?
            .builtins(toolhold_builtins::all())
            .only_for(tool);
            if let Some(who) = who {
                builder = builder.principal(who);
            }
            let host = host::observed(builder, telemetry).build().await?;
            let request = Request {
                session: Some(session),
                phase,
                trust,
                approver: Some(Arc::new(approver)),
                cancel: end.clone(),
                ..Request::new(tool, arguments)
            };
            Ok(run_result(host.call(request).await.outcome))
        })
    }

    fn prompt(self, prompt: String, end: &CancellationToken) -> Result<RunResult, Error> {
        let Self { options, folders, run, loaded, directory } = self;
        let is_of_client = run.owner.served().is_some();
        if is_of_client {
            // The agent has the rights of this machine's user. A server's client must not get these
            // rights.
            return Err(Error::Unasked(
                "a client of a server can't create a task for the agent".into(),
            ));
        }
        let phase = phase(run)?.unwrap_or(Phase::Autonomous);
        let around = Surroundings {
            front_end: FRONT_END,
            options,
            approver: Arc::new(PostingApprover::new(folders, &loaded.values.approvals)),
            config: &loaded,
            // Scheduled tasks use only configured providers.
            found: None,
            folders,
            directory: &directory,
            delegates: Delegates::new(&loaded, folders, &directory, FRONT_END),
            skills: Arc::new(Skills::find(&loaded, folders, &directory)?),
        };
        let work = run_scheduled(prompt, run.maker.untrusted, phase, &around, end, async || {
            crate::agent::command::make_host(options, &around).await
        });
        let ScheduledEnd { end, session, answer } = host::block_on_this_thread(work)?;
        let run_end = match end.kind {
            EndKind::Done => RunEnd::Done,
            EndKind::Denied => RunEnd::Denied,
            EndKind::GaveUp | EndKind::Budget | EndKind::Error | EndKind::Cancelled => {
                RunEnd::Failed
            }
        };
        let has_answer = run_end == RunEnd::Done || end.reason.is_empty();
        let text = if has_answer { &answer } else { &end.reason };
        Ok(RunResult { end: run_end, output: format!("session {session}\n{text}") })
    }
}

/// All runs of a task have the same session, so an approval also applies to later runs.
fn session(folders: &Folders, run: &ClaimedRun) -> Session {
    let name = format!("task {} of {} for {}", run.task, run.owner.plugin, run.owner.principal);
    Session::on_disk_of(folders, name, run.owner.served())
}

/// Returns the phase of the agent that created the task, whose rules apply to the task. Returns
/// `None` if no agent created the task.
fn phase(run: &ClaimedRun) -> Result<Option<Phase>, Error> {
    let Some(name) = run.maker.phase.as_deref() else { return Ok(None) };
    let phases = [Phase::Planner, Phase::Executor, Phase::Verifier, Phase::Autonomous];
    match phases.into_iter().find(|phase| phase.as_str() == name) {
        Some(phase) => Ok(Some(phase)),
        None => Err(Error::Unasked(format!("the task's phase `{name}` is unknown"))),
    }
}

/// Returns the trust of the task's creator.
fn trust(run: &ClaimedRun) -> Result<Trust, Error> {
    let name = &run.maker.trust;
    let all = [Trust::Trusted, Trust::Verified, Trust::Quarantined, Trust::Blocked];
    let trust = all.into_iter().find(|trust| trust.as_str() == name);
    trust.ok_or_else(|| Error::Unasked(format!("the task's trust `{name}` is unknown")))
}

fn run_result(outcome: Result<toolhold_core::Output, Failure>) -> RunResult {
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
            let is_blocked = failure.category == Category::PolicyBlocked;
            let already_has_note = failure.message.contains("create the task again");
            let note = if is_blocked && !already_has_note { OLD_RULES_NOTE } else { "" };
            RunResult { end, output: format!("{}\n{note}{suggestion}\n{text}", failure.message) }
        }
    }
}

/// Names the key that disables tasks, and the remedy.
pub(super) fn disabled(loaded: &Config) -> String {
    let off = loaded.disabled("tools.scheduler.enabled");
    format!("{} ({}). {}", off.rule, off.place, off.remedy)
}
