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

/// Starts `toolhold run` or `toolhold run sessions`.
pub(crate) fn run(arguments: &RunArguments, options: &Options) -> Result<Exit, Error> {
    if let Some(RunCommand::Sessions(command)) = &arguments.command {
        let providers = Providers::Configured;
        let has_yes = false;
        return run_work(options, "toolhold run sessions", providers, has_yes, async |around| {
            crate::agent::sessions(command, around).await
        });
    }
    let providers = match arguments.replay {
        Some(_) => Providers::Configured,
        None => Providers::AlsoFound,
    };
    run_work(options, "toolhold run", providers, arguments.yes(), async |around| {
        crate::agent::run(arguments, around, async || make_host(options, around).await).await
    })
}

pub(crate) fn chat(arguments: &ChatArguments, options: &Options) -> Result<Exit, Error> {
    run_work(options, "toolhold chat", Providers::AlsoFound, arguments.yes(), async |around| {
        crate::agent::chat(arguments, around, async || make_host(options, around).await).await
    })
}

pub(crate) fn models(arguments: &ModelsArguments, options: &Options) -> Result<Exit, Error> {
    let has_yes = false;
    run_work(options, "toolhold models", Providers::AlsoFound, has_yes, async |around| {
        crate::agent::models(arguments, around).await
    })
}

/// Starts `toolhold tools --for TASK`.
pub(crate) fn tools_for(task: &str, as_json: bool, options: &Options) -> Result<Exit, Error> {
    let has_yes = false;
    run_work(options, "toolhold tools", Providers::Configured, has_yes, async |around| {
        // The same session as for `toolhold call` in this directory.
        let named_session = None;
        let session = call::session(named_session, around.folders)?;
        crate::agent::tools_for(task, &session, as_json, around, async || {
            make_host(options, around).await
        })
        .await
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Providers {
    Configured,
    /// If the configuration has no provider, also a provider that Toolhold finds on this machine.
    AlsoFound,
}

/// Runs `work` with the values that all commands of the agent need. `has_yes` says whether `--yes`
/// is set.
fn run_work(
    options: &Options,
    front_end: &'static str,
    providers: Providers,
    has_yes: bool,
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
            options,
            approver: Asker::agent_approver(has_yes, &folders, &loaded),
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

/// Makes the host for the tools of the agent.
pub(crate) async fn make_host(
    options: &Options,
    around: &Surroundings<'_>,
) -> Result<Host, HostError> {
    let folders = around.folders.clone();
    let loaded = around.config.clone();
    let telemetry = Telemetry::from_config(&loaded, &folders)?;
    // The agent's system prompt already lists the skills, so the description of the tool that loads
    // skills doesn't list them again.
    let skills = OfferedSkills { skills: Arc::clone(&around.skills), are_listed: false };
    skills::print_notices(&skills).map_err(HostError::io("writing to stderr"))?;
    let front_end = around.front_end;
    let servers = Servers::new(front_end);
    let directory = around.directory.to_owned();
    let only_tool = None;
    let builder = host::builder_in(
        directory, options, folders, loaded, &servers, &skills, front_end, only_tool,
    )?;
    let mut builder = builder.builtins(toolhold_builtins::all());
    if let Some(delegates) = &around.delegates {
        let delegates: Arc<Delegates> = Arc::clone(delegates);
        builder = builder.provider(delegates);
    }
    let host = host::observed(builder, telemetry).build().await?;
    host.ready().await;
    Ok(host)
}
