//! From the options to a host: the one way in which every command builds it.

use std::io::Write;

use berth_core::config::{self, Folders, Loaded, Project, ProjectTrust};
use berth_core::{Builtin, Host, HostBuilder, HostError};
use tokio::runtime::Builder;

use crate::builtins::BUILTINS;
use crate::error::Error;
use crate::options::Options;
use crate::style::WARNING;

/// Keys of the working directory's file that are named when they are ignored.
const MAX_NOTICES: usize = 4;

/// What holds. Of the working directory's file, what is ignored is told.
pub(crate) fn load(options: &Options, folders: &Folders) -> Result<Loaded, Error> {
    let loaded = config::load(folders, &options.inputs()?).map_err(HostError::from)?;
    for renamed in &loaded.renamed {
        writeln!(anstream::stderr(), "{WARNING}note{WARNING:#}: {renamed}")?;
    }
    if let Some(project) = &loaded.project {
        notices(project, &mut anstream::stderr())?;
    }
    Ok(loaded)
}

/// Tells what a stranger's file asked for in vain: a few lines, however much it was.
fn notices(project: &Project, out: &mut impl Write) -> std::io::Result<()> {
    let ignored = project.ignored();
    for ignored in ignored.iter().take(MAX_NOTICES) {
        writeln!(out, "{WARNING}note{WARNING:#}: {ignored}")?;
    }
    if ignored.len() > MAX_NOTICES {
        writeln!(
            out,
            "{WARNING}note{WARNING:#}: {} more keys of it are ignored",
            ignored.len() - MAX_NOTICES
        )?;
    }
    if !ignored.is_empty() {
        let since = if project.standing == ProjectTrust::Changed {
            ": the file was trusted, and has changed since"
        } else {
            ""
        };
        writeln!(out, "  `berth trust` shows what it asks for and lets it count{since}")?;
    }
    Ok(())
}

/// Builds the host that `options` ask for and does something with it.
pub(crate) fn run<T>(
    options: &Options,
    work: impl AsyncFnOnce(Host) -> Result<T, Error>,
) -> Result<T, Error> {
    let folders = Folders::from_environment()?;
    let loaded = load(options, &folders)?;
    block_on(async {
        let host = build(options, folders, loaded).await?;
        work(host).await
    })
}

/// Runs a future to its end. What it leaves behind is not waited for: it may be stuck in a system
/// call.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    block_on_reactor(Builder::new_multi_thread().worker_threads(2), work)
}

/// The same on this thread, with all that it starts, but for what may block. For one client behind
/// a pipe: what it says is read, done and answered in one place, and no other thread has to be
/// woken up for it, which would take longer than most calls.
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

/// Builds the host of what was loaded.
pub(crate) async fn build(
    options: &Options,
    folders: Folders,
    loaded: Loaded,
) -> Result<Host, HostError> {
    builder(options, folders, loaded)?.front_end("berth call").build().await
}

/// The same without what only makes answers for models shorter, which takes time to load.
pub(crate) async fn build_for_a_person(
    options: &Options,
    folders: Folders,
    loaded: Loaded,
) -> Result<Host, HostError> {
    const FILTERS: &str = "filters";
    let replaced = loaded.config.plugins.values().any(|plugin| plugin.replaces == FILTERS);
    let needed: Vec<Builtin> =
        BUILTINS.iter().filter(|builtin| builtin.name != FILTERS || replaced).copied().collect();
    with(options, folders, loaded, &needed)?.front_end("berth call").build().await
}

/// What builds it.
pub(crate) fn builder(
    options: &Options,
    folders: Folders,
    loaded: Loaded,
) -> Result<HostBuilder, HostError> {
    with(options, folders, loaded, BUILTINS)
}

fn with(
    options: &Options,
    folders: Folders,
    loaded: Loaded,
    builtins: &[Builtin],
) -> Result<HostBuilder, HostError> {
    let builder = Host::builder()
        .config(loaded)
        .folders(folders)
        .working_directory(config::working_directory()?);
    Ok(options
        .plugin
        .iter()
        .fold(builder.builtins(builtins), |builder, file| builder.plugin_file(file.clone())))
}
