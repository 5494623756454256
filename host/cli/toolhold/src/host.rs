//! Loads the configuration and builds the host of a command.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::runtime::Builder;
use toolhold_agent::review::ModelReviewer;
use toolhold_core::config::{self, Config, Folders, Project, ProjectTrust};
use toolhold_core::text::counted;
use toolhold_core::{Builtin, Host, HostBuilder, HostError};
use toolhold_export::Telemetry;
use toolhold_mcp_client::Servers;
use toolhold_models::choice::capability_providers;
use toolhold_skills::OfferedSkills;

use crate::error::Error;
use crate::options::Options;
use crate::progress;
use crate::style::{note, warn};

/// The most warnings about single keys. More keys are only counted.
const MAX_NOTICES: usize = 4;

/// Loads the configuration, and prints the warnings about it.
pub(crate) fn load(options: &Options, folders: &Folders) -> Result<Config, Error> {
    let loaded = config::load(folders, &options.inputs()?).map_err(HostError::from)?;
    for renamed in &loaded.renamed {
        note(&renamed.to_string())?;
    }
    if let Some(project) = &loaded.project {
        warn_about_ignored(project)?;
    }
    Ok(loaded)
}

/// Warns about keys of a project's file that have no effect.
fn warn_about_ignored(project: &Project) -> std::io::Result<()> {
    let ignored = project.ignored();
    if ignored.is_empty() {
        return Ok(());
    }
    for key in ignored.iter().take(MAX_NOTICES) {
        warn(&key.to_string())?;
    }
    if ignored.len() > MAX_NOTICES {
        let more = counted(ignored.len() - MAX_NOTICES, "more key");
        warn(&format!("Toolhold ignores {more} of this file, too"))?;
    }
    let change = if project.standing == ProjectTrust::Changed {
        "; the file has changed since you trusted it"
    } else {
        ""
    };
    writeln!(
        anstream::stderr(),
        "  `toolhold trust` shows these keys and asks whether to apply them{change}"
    )
}

/// Builds a host with all plugins, and runs `work` with it.
pub(crate) fn run<T>(
    options: &Options,
    work: impl AsyncFnOnce(Host) -> Result<T, Error>,
) -> Result<T, Error> {
    let folders = Folders::from_environment()?;
    let loaded = load(options, &folders)?;
    block_on(async {
        let host = build(options, folders, loaded, "toolhold call").await?;
        work(host).await
    })
}

/// Runs `work` on two threads. Other tasks are abandoned at the end, because they may be blocked in
/// a system call.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    block_on_reactor(Builder::new_multi_thread().worker_threads(2), work)
}

/// Runs `work` and its tasks on this thread. A client behind a pipe makes short calls, and waking
/// another thread would take longer than most of them.
pub(crate) fn block_on_this_thread<T>(
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    block_on_reactor(&mut Builder::new_current_thread(), work)
}

/// Runs `work` on a new reactor, and then abandons other tasks.
fn block_on_reactor<T>(
    reactor: &mut Builder,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let runtime =
        reactor.enable_all().build().map_err(HostError::io("the reactor can't be started"))?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result
}

/// Builds the host, and waits until all plugins are loaded.
pub(crate) async fn build(
    options: &Options,
    folders: Folders,
    loaded: Config,
    front_end: &'static str,
) -> Result<Host, HostError> {
    let skills = OfferedSkills::find(&loaded, &folders)?;
    let servers = Servers::new(front_end);
    let builder = builder(options, folders, loaded, &servers, &skills, front_end)?;
    let host = start(builder.load_in_background()).await?;
    progress::show(host.ready(), || progress::loading(&host.loading())).await;
    Ok(host)
}

/// Builds the host for one call of `tool`. People get unfiltered output, so the plugin with the
/// filters is only loaded if a model gets the output (`for_model`).
pub(crate) async fn build_for_call(
    options: &Options,
    folders: Folders,
    loaded: Config,
    tool: &str,
    for_model: bool,
) -> Result<Host, HostError> {
    const FILTERS: &str = "filters";
    // A plugin that replaces the filters can't be loaded into a host without the filters.
    let is_replaced = loaded.values.plugins.values().any(|plugin| plugin.replaces == FILTERS);
    let mut builtins: Vec<Builtin> = toolhold_builtins::all().to_vec();
    if !for_model && !is_replaced {
        builtins.retain(|builtin| builtin.name != FILTERS);
    }
    let telemetry = Telemetry::from_config(&loaded, &folders)?;
    let front_end = "toolhold call";
    let skills = OfferedSkills::find(&loaded, &folders)?;
    let servers = Servers::new(front_end);
    let directory = config::working_directory()?;
    let only_tool = Some(tool);
    let builder =
        builder_in(directory, options, folders, loaded, &servers, &skills, front_end, only_tool)?;
    start(observed(builder.builtins(&builtins).only_for(tool), telemetry)).await
}

pub(crate) fn observed(builder: HostBuilder, telemetry: Option<Arc<Telemetry>>) -> HostBuilder {
    match telemetry {
        Some(telemetry) => builder.observer(telemetry),
        None => builder,
    }
}

async fn start(builder: HostBuilder) -> Result<Host, HostError> {
    progress::show(builder.build(), || "loading plugins (each new plugin is compiled once)".into())
        .await
}

/// Makes the builder of a host with the built-in plugins. `servers` are this process's upstream
/// servers, which may already run. `front_end` is the command's name in the audit log.
pub(crate) fn builder(
    options: &Options,
    folders: Folders,
    loaded: Config,
    servers: &Servers,
    skills: &OfferedSkills,
    front_end: &'static str,
) -> Result<HostBuilder, HostError> {
    let directory = config::working_directory()?;
    let only_tool = None;
    let builder =
        builder_in(directory, options, folders, loaded, servers, skills, front_end, only_tool)?;
    Ok(builder.builtins(toolhold_builtins::all()))
}

/// Makes the builder of a host without the built-in plugins. If only one tool will be called,
/// `only_tool` names it.
#[expect(clippy::too_many_arguments, reason = "each is another part of the host")]
pub(crate) fn builder_in(
    directory: PathBuf,
    options: &Options,
    folders: Folders,
    loaded: Config,
    servers: &Servers,
    skills: &OfferedSkills,
    front_end: &'static str,
    only_tool: Option<&str>,
) -> Result<HostBuilder, HostError> {
    let upstream_servers = servers.providers(&loaded, &folders, &directory, only_tool)?;
    let reviewer = ModelReviewer::from_config(&loaded, &folders, &directory, front_end);
    let capability_providers = capability_providers(&loaded, &folders, &directory, front_end);
    let readable = skills.skills.readable.clone();
    let skill_loader = skills.provider(&loaded, &folders, &directory)?;

    let mut builder = Host::builder()
        .config(loaded)
        .folders(folders)
        .working_directory(directory)
        .front_end(front_end)
        .capability_providers(capability_providers)
        .readable(&readable);
    if let Some(reviewer) = reviewer {
        builder = builder.reviewer(Arc::new(reviewer));
    }
    for provider in skill_loader.into_iter().chain(upstream_servers) {
        builder = builder.provider(provider);
    }
    for file in &options.plugin {
        builder = builder.plugin_file(file.clone());
    }
    Ok(builder)
}
