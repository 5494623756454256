//! Builds the host and starts `toolhold run`, `toolhold chat`, `toolhold models` or
//! `toolhold tools --for`.

use std::sync::Arc;

use toolhold_core::config::{self, Folders};
use toolhold_core::{Host, HostError};
use toolhold_export::Telemetry;
use toolhold_mcp_client::Servers;
use toolhold_models::choice::add_found_providers;
use toolhold_skills::{OfferedSkills, Skills};

use crate::agent::{Delegates, Surroundings};
use crate::arguments::agent::{ChatArguments, ModelsArguments, RunArguments, RunCommand};
use crate::asking::Asker;
use crate::call;
use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;
use crate::skills;

/// Runs `toolhold run`.
pub(crate) fn run(arguments: &RunArguments, options: &Options) -> Result<Exit, Error> {
    if let Some(RunCommand::Sessions(command)) = &arguments.command {
        let providers = Providers::Configured;
        return within(options, "toolhold run sessions", providers, false, async |around| {
            crate::agent::sessions(command, around).await
        });
    }
    let providers = match arguments.replay {
        Some(_) => Providers::Configured,
        None => Providers::AlsoFound,
    };
    within(options, "toolhold run", providers, arguments.yes(), async |around| {
        crate::agent::run(arguments, around, async || make(options, around).await).await
    })
}

/// Runs `toolhold chat`.
pub(crate) fn chat(arguments: &ChatArguments, options: &Options) -> Result<Exit, Error> {
    within(options, "toolhold chat", Providers::AlsoFound, arguments.yes(), async |around| {
        crate::agent::chat(arguments, around, async || make(options, around).await).await
    })
}

/// Runs `toolhold models`.
pub(crate) fn models(arguments: &ModelsArguments, options: &Options) -> Result<Exit, Error> {
    within(options, "toolhold models", Providers::AlsoFound, false, async |around| {
        crate::agent::models(arguments, around).await
    })
}

/// Runs `toolhold tools --for`.
pub(crate) fn tools_for(task: &str, as_json: bool, options: &Options) -> Result<Exit, Error> {
    within(options, "toolhold tools", Providers::Configured, false, async |around| {
        // This is the session of `toolhold call` in this directory.
        let session = call::session(None, around.folders)?;
        crate::agent::tools_for(task, &session, as_json, around, async || {
            make(options, around).await
        })
        .await
    })
}

/// The providers that a command needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Providers {
    /// The providers of the configuration.
    Configured,
    /// If the configuration has none, those that are found.
    AlsoFound,
}

/// Runs an agent's command with its [`Surroundings`].
fn within(
    options: &Options,
    front_end: &'static str,
    providers: Providers,
    yes: bool,
    work: impl AsyncFnOnce(&Surroundings<'_>) -> Result<Exit, Error>,
) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    let mut loaded = host::load(options, &folders)?;
    let directory = config::working_directory()?;
    host::block_on(async {
        let mut found = None;
        if providers == Providers::AlsoFound {
            found = add_found_providers(&mut loaded, &folders, front_end).await?;
        }
        let around = Surroundings {
            front_end,
            approver: Asker::approver(yes, &folders, &loaded),
            config: &loaded,
            found,
            folders: &folders,
            directory: &directory,
            delegates: Delegates::new(&loaded, &folders, &directory, front_end),
            skills: Arc::new(Skills::find(&loaded, &folders, &directory)?),
        };
        work(&around).await
    })
}

/// Makes the host of an agent.
pub(crate) async fn make(options: &Options, around: &Surroundings<'_>) -> Result<Host, HostError> {
    let folders = around.folders.clone();
    let loaded = around.config.clone();
    let telemetry = Telemetry::from_config(&loaded, &folders)?;
    // The agent's own text lists the skills already.
    let skills = OfferedSkills { skills: Arc::clone(&around.skills), are_listed: false };
    skills::print_notices(&skills).map_err(HostError::io("writing to stderr"))?;
    let front_end = around.front_end;
    let servers = Servers::new(front_end);
    let directory = around.directory.to_owned();
    let mut builder =
        host::builder_in(directory, options, folders, loaded, &servers, &skills, front_end, None)?
            .builtins(toolhold_builtins::all());
    if let Some(delegates) = &around.delegates {
        builder = builder.provider(Arc::clone(delegates) as _);
    }
    let host = host::observed(builder, telemetry).build().await?;
    host.ready().await;
    Ok(host)
}
