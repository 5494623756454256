//! Builds a host from the options, the same way for every command.

use std::io::Write;
use std::sync::Arc;

use berth_core::config::{self, Folders, Loaded, Project, ProjectTrust};
use berth_core::text::counted;
use berth_core::{Builtin, Host, HostBuilder, HostError};
use berth_export::Telemetry;
use berth_servers::Servers;
use berth_skills::{SkillLoader, Skills};
use tokio::runtime::Builder;

use crate::error::Error;
use crate::options::Options;
use crate::progress;
use crate::style::{note, warn};

/// Ignored keys of the working directory's file that are named.
const MAX_NOTICES: usize = 4;

/// The configuration in force. Ignored keys of the working directory's file are reported.
pub(crate) fn load(options: &Options, folders: &Folders) -> Result<Loaded, Error> {
    let loaded = config::load(folders, &options.inputs()?).map_err(HostError::from)?;
    for renamed in &loaded.renamed {
        note(&renamed.to_string())?;
    }
    if let Some(project) = &loaded.project {
        warn_about_ignored(project)?;
    }
    Ok(loaded)
}

/// Tells the user, once, about a default that changed.
pub(crate) fn tell_news(loaded: &Loaded, folders: &Folders) -> Result<(), Error> {
    if let Some(news) = berth_core::news::unread(loaded, folders) {
        note(&news)?;
    }
    Ok(())
}

/// Reports which settings of an untrusted file were ignored: at most a few lines.
fn warn_about_ignored(project: &Project) -> std::io::Result<()> {
    let ignored = project.ignored();
    for ignored in ignored.iter().take(MAX_NOTICES) {
        warn(&ignored.to_string())?;
    }
    if ignored.len() > MAX_NOTICES {
        warn(&format!("{} of it ignored too", counted(ignored.len() - MAX_NOTICES, "more key")))?;
    }
    if !ignored.is_empty() {
        let since = if project.standing == ProjectTrust::Changed {
            ": the file was trusted, and has changed since"
        } else {
            ""
        };
        writeln!(
            anstream::stderr(),
            "  `berth trust` shows what it asks for and lets it count{since}"
        )?;
    }
    Ok(())
}

/// Builds the host for `options` and runs something with it.
pub(crate) fn run<T>(
    options: &Options,
    work: impl AsyncFnOnce(Host) -> Result<T, Error>,
) -> Result<T, Error> {
    let folders = Folders::from_environment()?;
    let loaded = load(options, &folders)?;
    block_on(async {
        let host = build(options, folders, loaded, "berth call").await?;
        work(host).await
    })
}

/// Runs a future to its end. Doesn't wait for tasks that it leaves behind: one may be stuck in a
/// system call.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    block_on_reactor(Builder::new_multi_thread().worker_threads(2), work)
}

/// The same on this thread with all its tasks, except for blocking ones. For one client behind a
/// pipe: its messages are read, handled and answered in one place, without waking another thread,
/// which would take longer than most calls.
pub(crate) fn block_on_this_thread<T>(
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    block_on_reactor(&mut Builder::new_current_thread(), work)
}

fn block_on_reactor<T>(
    reactor: &mut Builder,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let runtime = reactor.enable_all().build().map_err(HostError::io("starting the reactor"))?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result
}

/// Builds the host of a loaded configuration, with all plugins.
pub(crate) async fn build(
    options: &Options,
    folders: Folders,
    loaded: Loaded,
    front_end: &'static str,
) -> Result<Host, HostError> {
    let skills = OfferedSkills::find(&loaded, &folders)?;
    let builder = builder(options, folders, loaded, &Servers::new(front_end), &skills)?;
    let builder = builder.front_end(front_end).load_in_background();
    let host = start(builder).await?;
    progress::show(host.ready(), || progress::loading(&host.loading())).await;
    Ok(host)
}

/// Builds a host for one call. A person gets none of the filters that only shorten answers for
/// models: they take time to load.
pub(crate) async fn build_for_call(
    options: &Options,
    folders: Folders,
    loaded: Loaded,
    tool: &str,
    for_model: bool,
) -> Result<Host, HostError> {
    const FILTERS: &str = "filters";
    let replaced = loaded.config.plugins.values().any(|plugin| plugin.replaces == FILTERS);
    let is_needed = |builtin: &&Builtin| for_model || replaced || builtin.name != FILTERS;
    let needed: Vec<Builtin> = berth_builtins::all().iter().filter(is_needed).copied().collect();
    let telemetry = Telemetry::from_config(&loaded, &folders)?;
    let skills = OfferedSkills::find(&loaded, &folders)?;
    let servers = Servers::new("berth call");
    let builder = with(options, folders, loaded, &servers, &skills, Some(tool), &needed)?;
    let builder = builder.front_end("berth call").only_for(tool);
    start(observed(builder, telemetry)).await
}

/// With traces and metrics of its calls, if they are sent.
pub(crate) fn observed(builder: HostBuilder, telemetry: Option<Arc<Telemetry>>) -> HostBuilder {
    match telemetry {
        Some(telemetry) => builder.observer(telemetry),
        None => builder,
    }
}

async fn start(builder: HostBuilder) -> Result<Host, HostError> {
    progress::show(builder.build(), || "loading plugins: new ones are compiled once".into()).await
}

/// The skills of a host.
pub(crate) struct OfferedSkills {
    pub(crate) skills: Arc<Skills>,
    /// Whether the tool that loads them lists them.
    pub(crate) are_listed: bool,
}

impl OfferedSkills {
    /// Those that there are, for clients that get no other text about them.
    pub(crate) fn find(loaded: &Loaded, folders: &Folders) -> Result<Self, HostError> {
        let skills = Skills::find(loaded, folders, &config::working_directory()?)?;
        Ok(Self { skills: Arc::new(skills), are_listed: true })
    }

    /// Says which skills of the project don't count, and that others were left out.
    pub(crate) fn tell(&self) -> std::io::Result<()> {
        let names: Vec<&str> =
            self.skills.untrusted.iter().map(|skill| skill.name.as_str()).collect();
        if !names.is_empty() {
            let more = names.len().saturating_sub(MAX_NOTICES);
            let shown = names[..names.len() - more].join(", ");
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            note(&format!(
                "{} of the project {} left out, since nobody has looked at {}: {shown}{more}; `berth trust` shows {}",
                counted(names.len(), "skill"),
                if names.len() == 1 { "is" } else { "are" },
                if names.len() == 1 { "it as it is" } else { "them as they are" },
                if names.len() == 1 { "it" } else { "them" },
            ))?;
        }
        let left_out = self.skills.left_out.len();
        if left_out > 0 {
            let folders = counted(left_out, "folder");
            note(&format!("{folders} of skills left out; `berth skills list` says why"))?;
        }
        Ok(())
    }
}

/// The builder of the host. `servers`: those of this process, which may run already.
pub(crate) fn builder(
    options: &Options,
    folders: Folders,
    loaded: Loaded,
    servers: &Servers,
    skills: &OfferedSkills,
) -> Result<HostBuilder, HostError> {
    with(options, folders, loaded, servers, skills, None, berth_builtins::all())
}

fn with(
    options: &Options,
    folders: Folders,
    loaded: Loaded,
    servers: &Servers,
    OfferedSkills { skills, are_listed }: &OfferedSkills,
    tool: Option<&str>,
    builtins: &[Builtin],
) -> Result<HostBuilder, HostError> {
    let directory = config::working_directory()?;
    let servers = servers.providers(&loaded, &folders, &directory, tool)?;
    let found = Arc::clone(skills);
    let loader = SkillLoader::new(found, &loaded, &folders, &directory, *are_listed)?;
    let builder = Host::builder().config(loaded).folders(folders).working_directory(directory);
    let builder = servers.into_iter().fold(builder, HostBuilder::provider);
    let builder = match loader {
        Some(loader) => builder.provider(Arc::new(loader)).readable(&skills.readable),
        None => builder,
    };
    Ok(options
        .plugin
        .iter()
        .fold(builder.builtins(builtins), |builder, file| builder.plugin_file(file.clone())))
}
