//! `toolhold run`: does a task in a new or an earlier session, or replays a session.

use std::io::{Read, Write};
use std::sync::Arc;

use toolhold_agent::{
    Agent, AgentStart, EndKind, RecordedSession, RunEvent, RunEvents, SessionStore, TaskEnd,
};
use toolhold_core::text::neutral_line;
use toolhold_core::{Approver, Host, HostError};
use toolhold_models::Part;
use toolhold_models::choice::{ChosenModel, FoundProviders};
use toolhold_terminal::error::CommandError;
use toolhold_terminal::exit::Exit;
use toolhold_terminal::interrupt::Interrupts;
use toolhold_terminal::style::{FAINT, note};

use crate::agent::lenient::offer_lenient;
use crate::agent::printer::Printer;
use crate::agent::trust::instructions;
use crate::agent::{MakeHost, Surroundings, failed};
use crate::arguments::agent::{RunArguments, SessionArguments};

/// The most bytes of a task.
const MAX_TASK: u64 = 1024 * 1024;

/// Works on a task, or replays a session. `make_host` makes the host after a model was chosen.
pub(crate) async fn run(
    arguments: &RunArguments,
    around: &Surroundings<'_>,
    make_host: impl MakeHost,
) -> Result<Exit, CommandError> {
    let interrupts = Interrupts::listen()?;
    if let Some(id) = &arguments.replay {
        return replay(arguments, around, id, &interrupts).await;
    }
    let task = read_task(&arguments.task)?;
    let Opened { mut agent, id, .. } =
        open(&arguments.session, around, Arc::clone(&around.approver), make_host).await?;
    if let Some(turns) = arguments.max_turns {
        agent.limit_turns(turns, "`--max-turns`");
    }
    let cancel = interrupts.arm();
    let can_redraw = true;
    let mut printer = Printer::new(arguments.json, can_redraw, cancel.clone());
    let directory = around.directory.display().to_string();
    printer.event(RunEvent::Session { id, directory });
    let ending = agent.run(vec![Part::Text(task)], &mut printer, &cancel).await;
    interrupts.disarm();

    let flags = arguments.session.phase_flag() + &around.options.as_flags();
    if let Some(command) = command_to_continue(&ending, &flags)
        && !arguments.json
    {
        writeln!(anstream::stderr(), "{FAINT}To go on: {command}{FAINT:#}")?;
    }
    if let Some(model) = agent.suggested_lenient_model() {
        offer_lenient(model, around).await?;
    }
    remove_old_sessions(around);
    Ok(exit(ending.kind))
}

/// Returns the command line that continues the session with the options `flags`, so that the same
/// rules apply. Returns `None` if the person must decide how to continue.
fn command_to_continue(ending: &TaskEnd, flags: &str) -> Option<String> {
    match ending.kind {
        EndKind::Budget | EndKind::Cancelled => {
            Some(format!("toolhold run{flags} --continue 'go on'"))
        }
        EndKind::Denied if ending.pending.is_empty() => None,
        EndKind::Denied => {
            let mut command = String::new();
            for id in &ending.pending {
                command += &format!("toolhold approvals allow {id}; ");
            }
            Some(format!("{command}toolhold run{flags} --continue again"))
        }
        EndKind::Done | EndKind::GaveUp | EndKind::Error => None,
    }
}

fn exit(kind: EndKind) -> Exit {
    match kind {
        EndKind::Done => Exit::Success,
        EndKind::GaveUp => Exit::ToolFailure,
        EndKind::Denied => Exit::Denied,
        EndKind::Budget => Exit::Budget,
        EndKind::Error => Exit::Host,
        EndKind::Cancelled => Exit::Interrupted,
    }
}

pub(crate) struct Opened {
    pub(crate) agent: Agent,
    pub(crate) id: String,
    pub(crate) host: Arc<Host>,
}

/// Opens the session of the command line, or a new session. `approver` answers the calls that need
/// approval.
pub(crate) async fn open(
    arguments: &SessionArguments,
    around: &Surroundings<'_>,
    approver: Arc<dyn Approver>,
    make_host: impl MakeHost,
) -> Result<Opened, CommandError> {
    let session =
        if arguments.last { Some(last_session(around).await?) } else { arguments.session.clone() };
    let model = arguments.model.as_deref();
    open_named(session.as_deref(), model, arguments, around, approver, async || {
        make_host().await.map(Arc::new)
    })
    .await
}

/// Returns the ID of the last session in this directory.
async fn last_session(around: &Surroundings<'_>) -> Result<String, CommandError> {
    let store = SessionStore::new(around.folders);
    let directory = around.directory.display().to_string();
    let last = tokio::task::spawn_blocking(move || store.last_in(&directory))
        .await
        .map_err(|error| HostError::Config(error.to_string()))?;
    match last {
        Ok(Some(id)) => Ok(id),
        Ok(None) => {
            Err(CommandError::Usage("there is no session to continue in this directory".to_owned()))
        }
        Err(error) => Err(failed(error, around)),
    }
}

/// Opens `session`, or a new session. Without a `model`, the session keeps the model of its last
/// task.
pub(crate) async fn open_named(
    session: Option<&str>,
    model: Option<&str>,
    arguments: &SessionArguments,
    around: &Surroundings<'_>,
    approver: Arc<dyn Approver>,
    host: impl AsyncFnOnce() -> Result<Arc<Host>, HostError>,
) -> Result<Opened, CommandError> {
    let instructions = match &session {
        // A resumed session keeps its instructions.
        Some(_) => Vec::new(),
        None => instructions(around, arguments.trust_instructions).await?,
    };
    let last_model = match (model, session) {
        (None, Some(id)) => last_model(id, around).await,
        _ => None,
    };
    let skills = toolhold_skills::describe_skills(&around.skills);
    let start = AgentStart {
        config: around.config,
        folders: around.folders,
        directory: around.directory,
        front_end: around.front_end,
        model: model.or(last_model.as_deref()),
        session,
        phase: arguments.phase(),
        instructions: &instructions,
        skills: &skills,
    };
    let model = match start.choose().await {
        Ok(model) => model,
        Err(error) => return Err(failed(error, around)),
    };
    if let Some(found) = &around.found {
        note_found(found, &model, around)?;
    }
    let host = host().await?;
    if let Some(delegates) = &around.delegates {
        delegates.attach(&host);
    }
    match start.start(Arc::clone(&host), model, approver).await {
        Ok((mut agent, id)) => {
            if let Some(delegates) = &around.delegates {
                delegates.join(&mut agent);
            }
            Ok(Opened { agent, id, host })
        }
        Err(error) => Err(failed(error, around)),
    }
}

/// Returns the model of the session's last task, as `PROVIDER/MODEL`. Returns `None` if the session
/// can't be read, or if the provider is no longer configured.
async fn last_model(id: &str, around: &Surroundings<'_>) -> Option<String> {
    let store = SessionStore::new(around.folders);
    let id = id.to_owned();
    let reading = tokio::task::spawn_blocking(move || store.last_model(&id));
    // Opening the session reports the same errors, so errors are ignored here.
    let Ok(Ok(Some((provider, model)))) = reading.await else { return None };
    if around.config.values.providers.contains_key(&provider) {
        Some(format!("{provider}/{model}"))
    } else {
        None
    }
}

/// Tells which model Toolhold found, and how to choose another model.
fn note_found(
    found: &FoundProviders,
    model: &ChosenModel,
    around: &Surroundings<'_>,
) -> std::io::Result<()> {
    note(&format!(
        "no provider is configured; Toolhold uses {}, {}\nTo choose a model: `--model NAME`, or \
         `model = \"NAME\"` in [agent] of {}; `toolhold models` lists the models",
        neutral_line(&model.full_name()),
        found.origin(model.provider()),
        around.folders.config_file().display()
    ))
}

/// Prints the recorded events of a session, without a model.
async fn replay(
    arguments: &RunArguments,
    around: &Surroundings<'_>,
    id: &str,
    interrupts: &Interrupts,
) -> Result<Exit, CommandError> {
    let folders = around.folders.clone();
    let id = id.to_owned();
    let cancel = interrupts.arm();
    let can_redraw = true;
    let mut printer = Printer::new(arguments.json, can_redraw, cancel.clone());
    let replay = tokio::task::spawn_blocking(move || {
        RecordedSession::open(&folders, &id)?.replay(&mut printer, &cancel)
    });
    let replayed = replay.await.map_err(|error| HostError::Config(error.to_string()))?;
    match replayed {
        Ok(last_end) => Ok(exit(last_end)),
        Err(error) => Err(failed(error, around)),
    }
}

/// Joins the words of a task with spaces. The word `-` stands for a line end and the text of stdin.
fn read_task(words: &[String]) -> Result<String, CommandError> {
    let mut task = String::new();
    for word in words {
        if !task.is_empty() {
            task.push(if word == "-" { '\n' } else { ' ' });
        }
        if word == "-" {
            // One byte more than the limit shows that the task is too long.
            let mut limited = std::io::stdin().lock().take(MAX_TASK + 1);
            limited
                .read_to_string(&mut task)
                .map_err(|error| CommandError::Usage(format!("stdin can't be read: {error}")))?;
        } else {
            task.push_str(word);
        }
    }
    if task.trim().is_empty() {
        return Err(CommandError::Usage("the task is empty; write what to do".to_owned()));
    }
    if task.len() as u64 > MAX_TASK {
        return Err(CommandError::Usage(format!(
            "the task is too long; the limit is {MAX_TASK} bytes. Put the text into a file and \
             name the file"
        )));
    }
    Ok(task)
}

/// Removes old sessions. Call this function last, because it may be slow.
pub(crate) fn remove_old_sessions(around: &Surroundings<'_>) {
    let days = around.config.values.agent.keep_days.get();
    let age = std::time::Duration::from_secs(days * 24 * 3600);
    SessionStore::new(around.folders).remove_old(age);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(kind: EndKind, pending: &[&str]) -> TaskEnd {
        let pending = pending.iter().map(|&id| id.to_owned()).collect();
        TaskEnd { kind, reason: String::new(), pending }
    }

    #[test]
    fn task_goes_on_under_its_own_rules_after_all_approvals() {
        let flags = " --set=a=b";
        let cancelled = command_to_continue(&ending(EndKind::Cancelled, &[]), flags);
        assert_eq!(cancelled.as_deref(), Some("toolhold run --set=a=b --continue 'go on'"));
        assert_eq!(command_to_continue(&ending(EndKind::Denied, &[]), flags), None);
        let both = command_to_continue(&ending(EndKind::Denied, &["12", "34"]), flags);
        let expected = "toolhold approvals allow 12; toolhold approvals allow 34; \
                        toolhold run --set=a=b --continue again";
        assert_eq!(both.as_deref(), Some(expected));
    }
}
