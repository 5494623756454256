//! Runs scheduled tasks in `toolhold tasks daemon` and in servers.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolhold_core::HostError;
use toolhold_core::config::{Config, Folders, KnownPrincipal};
use toolhold_schedule::Schedule;
use toolhold_terminal::interrupt;

use crate::arguments::tasks::{DaemonArguments, TasksCommand};
use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;
use crate::style::note;
use crate::tasks::run::{disabled, run_task};
use crate::tasks::{RunTask, TaskRunner, manage_unit};

/// Runs tasks when they are due, until Ctrl-C. If the arguments are about the systemd unit, changes
/// or prints the unit instead.
pub(crate) fn daemon(arguments: &DaemonArguments, options: &Options) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    let config_file = options.config.as_deref();
    if let Some(exit) = manage_unit(arguments, &folders, config_file, &options.set)? {
        return Ok(exit);
    }
    let end = interrupt::cancellation()?;
    let loaded = host::load(options, &folders)?;
    if !loaded.values.tools.scheduler.enabled {
        return Err(Error::Usage(format!("tasks are disabled: {}", disabled(&loaded))));
    }
    let schedule = Schedule::in_data(&folders.data);
    if let Some(other) = schedule.runner().map_err(|error| HostError::Config(error.to_string()))? {
        say(&format!(
            "{other} already runs the tasks; this process waits, and takes over when the other \
             process ends. Ctrl-C ends this process"
        ));
    }
    let on_start = Box::new(|| {
        say("this process runs tasks when they are due; Ctrl-C ends this process");
    });
    // Dropping the runner stops the tasks.
    let _runner = start(options, &folders, &loaded, on_start)?;
    host::block_on_this_thread(async {
        end.cancelled().await;
        Ok(())
    })?;
    Ok(Exit::Success)
}

/// Runs a subcommand about tasks. Prints a note if tasks are disabled.
pub(crate) fn tasks(command: &TasksCommand, options: &Options) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    let loaded = host::load(options, &folders)?;
    let enabled = loaded.values.tools.scheduler.enabled;
    let exit = crate::tasks::tasks(command, &folders, enabled)?;
    if !enabled {
        note(&format!("tasks are disabled, so no task runs: {}", disabled(&loaded)))?;
    }
    Ok(exit)
}

/// Prints a line on stderr. Errors are ignored, because tasks must also run if nobody reads stderr.
fn say(text: &str) {
    drop(writeln!(anstream::stderr(), "{text}"));
}

/// Maximum number of principals whose tasks a server runs. Each has a thread and a watched folder.
const MAX_PRINCIPALS: usize = 64;

/// Runs a server's tasks, if the configuration enables tasks.
pub(crate) struct ServedTasks {
    options: Options,
    folders: Folders,
    runners: Mutex<Runners>,
}

#[derive(Default)]
struct Runners {
    operator: Option<TaskRunner>,
    /// The runners of principals by their data folder.
    principals: BTreeMap<PathBuf, TaskRunner>,
}

impl ServedTasks {
    pub(crate) fn start(
        options: &Options,
        folders: &Folders,
        loaded: &Config,
    ) -> Result<Arc<Self>, HostError> {
        let options = options.clone();
        let folders = folders.clone();
        let tasks = Self { options, folders, runners: Mutex::default() };
        tasks.start_or_stop(loaded)?;
        Ok(Arc::new(tasks))
    }

    /// Starts or stops the tasks, as the configuration requires. Blocks until all runs of stopped
    /// tasks have ended.
    pub(crate) fn start_or_stop(&self, loaded: &Config) -> Result<(), HostError> {
        let mut runners = self.runners();
        let is_enabled = loaded.values.tools.scheduler.enabled;
        if !is_enabled {
            *runners = Runners::default();
        } else if runners.operator.is_none() {
            let on_start = Box::new(|| {});
            runners.operator = Some(start(&self.options, &self.folders, loaded, on_start)?);
        }
        Ok(())
    }

    /// Starts the tasks of the principals that have made tasks before. Blocks.
    pub(crate) fn start_principals(&self, loaded: &Config) -> Result<(), HostError> {
        if !loaded.has_principals() {
            return Ok(());
        }
        for (_, folders) in KnownPrincipal::all(&self.folders)? {
            if Schedule::in_data(&folders.data).is_there() {
                self.add_principal(&folders, loaded)?;
            }
        }
        Ok(())
    }

    /// Starts the tasks of a principal, if the configuration enables tasks. The tasks go on after
    /// the principal's host has ended. `folders` are the principal's.
    pub(crate) fn add_principal(
        &self,
        folders: &Folders,
        loaded: &Config,
    ) -> Result<(), HostError> {
        let mut runners = self.runners();
        let is_enabled = loaded.values.tools.scheduler.enabled && runners.operator.is_some();
        if !is_enabled || runners.principals.contains_key(&folders.data) {
            return Ok(());
        }
        if runners.principals.len() >= MAX_PRINCIPALS {
            // Principals without tasks make room.
            runners.principals.retain(|data, _| Schedule::in_data(data).is_there());
        }
        if runners.principals.len() >= MAX_PRINCIPALS {
            tracing::warn!(
                "the tasks of a principal don't run: {MAX_PRINCIPALS} other principals have \
                 tasks, the limit"
            );
            return Ok(());
        }
        let on_start = Box::new(|| {});
        let runner = start(&self.options, folders, loaded, on_start)?;
        runners.principals.insert(folders.data.clone(), runner);
        Ok(())
    }

    /// Ends the tasks of a principal. Blocks until all of their runs have ended. `folders` are the
    /// principal's.
    pub(crate) fn end_principal(&self, folders: &Folders) {
        let runner = self.runners().principals.remove(&folders.data);
        drop(runner);
    }

    /// Blocks until all runs have ended.
    pub(crate) fn end(&self) {
        *self.runners() = Runners::default();
    }

    fn runners(&self) -> MutexGuard<'_, Runners> {
        self.runners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn folders(&self) -> &Folders {
        &self.folders
    }
}

/// Starts running tasks. If another process runs the tasks, waits for its end. `on_start` is called
/// when this process takes over the tasks.
fn start(
    options: &Options,
    folders: &Folders,
    loaded: &Config,
    on_start: Box<dyn Fn() + Send + Sync>,
) -> Result<TaskRunner, HostError> {
    // The limit is at most 16, so the conversion can't fail.
    let max_running = usize::try_from(loaded.values.tools.scheduler.max_running.get()).unwrap_or(1);
    let schedule = Schedule::in_data(&folders.data);
    // Grants of directories on the command line apply to this process, but not to tasks.
    let mut options = Options { allow: Vec::new(), allow_read: Vec::new(), ..options.clone() };
    if folders.is_of_principal() {
        // A plugin of the command line has no table, so no principal may use it.
        options.plugin = Vec::new();
    }
    let folders = folders.clone();
    let run: RunTask = Arc::new(move |claimed, end| run_task(&options, &folders, claimed, &end));
    TaskRunner::start(schedule, max_running, run, on_start)
}
