//! `toolhold run`: does a task in a new or an earlier session, or replays a session.

use std::io::Read;
use std::sync::Arc;

use toolhold_agent::{
    Agent, AgentStart, EndKind, RecordedSession, RunEvent, RunEvents, SessionStore,
};
use toolhold_core::text::neutral_line;
use toolhold_core::{Approver, Host, HostError};
use toolhold_models::Part;
use toolhold_models::choice::{ChosenModel, FoundProvider};
use toolhold_terminal::error::CommandError;
use toolhold_terminal::exit::Exit;
use toolhold_terminal::interrupt::Interrupts;
use toolhold_terminal::style::note;

use crate::agent::lenient::offer_lenient;
use crate::agent::printer::Printer;
use crate::agent::trust::instructions;
use crate::agent::{MakeHost, Surroundings, failed};
use crate::arguments::agent::{RunArguments, SessionArguments};

/// Bytes of a task.
const MAX_TASK: u64 = 1024 * 1024;

/// Works on a task. `host` makes the host once a model is known.
///
/// # Errors
///
/// No model is configured, or the session can't be used.
pub(crate) async fn run(
    arguments: &RunArguments,
    around: &Surroundings<'_>,
    host: impl MakeHost,
) -> Result<Exit, CommandError> {
    let interrupts = Interrupts::listen()?;
    if let Some(id) = &arguments.replay {
        return replay(arguments, around, id, &interrupts).await;
    }
    let task = read_task(&arguments.task)?;
    let Opened { mut agent, id, .. } =
        open(&arguments.session, around, Arc::clone(&around.approver), host).await?;
    if let Some(turns) = arguments.max_turns {
        agent.limit_turns(turns);
    }
    let cancel = interrupts.arm();
    let mut printer = Printer::new(arguments.json, true, cancel.clone());
    let directory = around.directory.display().to_string();
    printer.event(RunEvent::Session { id, directory });
    let ending = agent.run(vec![Part::Text(task)], &mut printer, &cancel).await;
    interrupts.disarm();
    if let Some(model) = agent.wants_lenient() {
        offer_lenient(model, around).await?;
    }
    remove_old(around);
    Ok(exit(ending.kind))
}

/// Returns the exit code for an end.
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

/// An agent with its session.
pub(crate) struct Opened {
    pub(crate) agent: Agent,
    /// The session's ID.
    pub(crate) id: String,
    pub(crate) host: Arc<Host>,
}

/// Opens the session that the command line asks for. `approver` answers for calls that need
/// approval.
pub(crate) async fn open(
    arguments: &SessionArguments,
    around: &Surroundings<'_>,
    approver: Arc<dyn Approver>,
    host: impl MakeHost,
) -> Result<Opened, CommandError> {
    let session =
        if arguments.last { Some(last_session(around).await?) } else { arguments.session.clone() };
    open_named(session.as_deref(), arguments, around, approver, async || host().await.map(Arc::new))
        .await
}

/// Returns the ID of the last session in the working directory.
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

/// Opens the session of an ID, or a new session if `session` is `None`.
pub(crate) async fn open_named(
    session: Option<&str>,
    arguments: &SessionArguments,
    around: &Surroundings<'_>,
    approver: Arc<dyn Approver>,
    host: impl AsyncFnOnce() -> Result<Arc<Host>, HostError>,
) -> Result<Opened, CommandError> {
    let instructions = match &session {
        // A resumed session has the same instructions as at its start.
        Some(_) => Vec::new(),
        None => instructions(around, arguments.trust_instructions).await?,
    };
    let skills = toolhold_skills::describe_skills(&around.skills);
    let start = AgentStart {
        config: around.config,
        folders: around.folders,
        directory: around.directory,
        front_end: around.front_end,
        model: arguments.model.as_deref(),
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

/// Says which model was found, and how to choose another one.
fn note_found(
    found: &FoundProvider,
    model: &ChosenModel,
    around: &Surroundings<'_>,
) -> std::io::Result<()> {
    note(&format!(
        "no provider is configured: asks {}, {}\nTo choose a model: `--model NAME`, or `model = \
         \"NAME\"` in [agent] of {}; `toolhold models` lists the models",
        neutral_line(&model.full_name()),
        found.origin,
        around.folders.config_file().display()
    ))
}

async fn replay(
    arguments: &RunArguments,
    around: &Surroundings<'_>,
    id: &str,
    interrupts: &Interrupts,
) -> Result<Exit, CommandError> {
    let folders = around.folders.clone();
    let id = id.to_owned();
    let cancel = interrupts.arm();
    let mut printer = Printer::new(arguments.json, true, cancel.clone());
    let replay = tokio::task::spawn_blocking(move || {
        RecordedSession::open(&folders, &id)?.replay(&mut printer, &cancel)
    });
    match replay.await.map_err(|error| HostError::Config(error.to_string()))? {
        Ok(last_end) => Ok(exit(last_end)),
        Err(error) => Err(failed(error, around)),
    }
}

/// Joins the words of the task. The text on stdin replaces `-`.
fn read_task(words: &[String]) -> Result<String, CommandError> {
    let mut task = String::new();
    for word in words {
        if !task.is_empty() {
            task.push(if word == "-" { '\n' } else { ' ' });
        }
        if word == "-" {
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

/// Removes sessions that are too old. This comes after all other work.
pub(crate) fn remove_old(around: &Surroundings<'_>) {
    let days = around.config.values.agent.keep_days.get();
    let age = std::time::Duration::from_secs(days * 24 * 3600);
    SessionStore::new(around.folders).remove_old(age);
}
