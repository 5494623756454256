//! `berth run`, `berth chat`, `berth sessions` and `berth models`.

use std::sync::Arc;

use berth_core::config::{self, Folders, Loaded};
use berth_core::{Host, HostError};
use berth_export::Telemetry;
use berth_run::{
    ChatArguments, Delegates, ModelsArguments, RunArguments, SessionsCommand, Surroundings,
};
use berth_servers::Servers;
use berth_skills::{OfferedSkills, Skills};

use crate::asking::Asker;
use crate::call;
use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;

/// Runs `berth run`.
pub(crate) fn run(arguments: &RunArguments, options: &Options) -> Result<Exit, Error> {
    within(options, "berth run", arguments.yes(), async |around| {
        let make = async || make(options, around).await;
        berth_run::run(arguments, around, make).await
    })
}

/// Runs `berth chat`.
pub(crate) fn chat(arguments: &ChatArguments, options: &Options) -> Result<Exit, Error> {
    within(options, "berth chat", arguments.yes(), async |around| {
        let make = async || make(options, around).await;
        berth_run::chat(arguments, around, make).await
    })
}

/// Runs `berth sessions`.
pub(crate) fn sessions(command: &SessionsCommand, options: &Options) -> Result<Exit, Error> {
    within(options, "berth sessions", false, async |around| {
        berth_run::sessions(command, around).await
    })
}

/// Runs `berth models`.
pub(crate) fn models(arguments: &ModelsArguments, options: &Options) -> Result<Exit, Error> {
    within(options, "berth models", false, async |around| {
        berth_run::models(arguments, around).await
    })
}

/// Runs `berth tools --for`.
pub(crate) fn tools_for(task: &str, as_json: bool, options: &Options) -> Result<Exit, Error> {
    within(options, "berth tools", false, async |around| {
        // The tools for the calls of this directory.
        let session = call::session(None, around.folders)?;
        let make = async || make(options, around).await;
        berth_run::tools_for(task, &session, as_json, around, make).await
    })
}

fn within(
    options: &Options,
    front_end: &'static str,
    yes: bool,
    work: impl AsyncFnOnce(&Surroundings<'_>) -> Result<Exit, Error>,
) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    let loaded = host::load(options, &folders)?;
    let directory = config::working_directory()?;
    let around = Surroundings {
        front_end,
        approver: Asker::approver(yes, &folders, &loaded),
        config: &loaded,
        folders: &folders,
        directory: &directory,
        delegates: Delegates::new(&loaded, &folders, &directory, front_end),
        skills: Arc::new(Skills::find(&loaded, &folders, &directory)?),
    };
    host::block_on(work(&around))
}

/// The host of an agent.
pub(crate) async fn make(options: &Options, around: &Surroundings<'_>) -> Result<Host, HostError> {
    let (folders, loaded): (Folders, Loaded) = (around.folders.clone(), around.config.clone());
    let telemetry = Telemetry::from_config(&loaded, &folders)?;
    // The agent's own text lists them.
    let skills = OfferedSkills { skills: Arc::clone(&around.skills), are_listed: false };
    skills.tell().map_err(HostError::io("writing to stderr"))?;
    let front_end = around.front_end;
    let servers = Servers::new(front_end);
    let directory = around.directory.to_owned();
    let builder =
        host::builder_in(directory, options, folders, loaded, &servers, &skills, front_end, None)?;
    let builder = builder.builtins(berth_builtins::all());
    let builder =
        around.delegates.iter().fold(builder, |builder, it| builder.provider(Arc::clone(it) as _));
    let host = host::observed(builder, telemetry).build().await?;
    host.ready().await;
    Ok(host)
}
