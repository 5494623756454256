//! Runs scheduled tasks in `toolhold tasks daemon`, and in a server while its configuration enables
//! tasks. Also starts the subcommands of `toolhold tasks`.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use toolhold_core::HostError;
use toolhold_core::config::{Config, Folders};
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

/// Runs `toolhold tasks daemon`.
pub(crate) fn daemon(arguments: &DaemonArguments, options: &Options) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    let file = options.config.as_deref();
    if let Some(exit) = manage_unit(arguments, &folders, file, &options.set)? {
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
            "{other} already runs the tasks; this process waits and takes over when that process \
             ends. Ctrl-C ends this process"
        ));
    }
    let on_start = Box::new(|| {
        say("toolhold tasks daemon runs the tasks that are due; Ctrl-C ends the daemon");
    });
    let _runner = start(options, &folders, &loaded, on_start)?;
    host::block_on_this_thread(async {
        end.cancelled().await;
        Ok(())
    })?;
    Ok(Exit::Success)
}

/// Runs `toolhold tasks`.
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

/// Prints a line. The tasks run even where nobody reads stderr.
fn say(text: &str) {
    drop(writeln!(anstream::stderr(), "{text}"));
}

/// Runs tasks while a server runs, if the server's configuration enables tasks.
pub(crate) struct ServedTasks {
    options: Options,
    folders: Folders,
    runner: Mutex<Option<TaskRunner>>,
}

impl ServedTasks {
    /// Starts running tasks if they are enabled.
    pub(crate) fn start(
        options: &Options,
        folders: &Folders,
        loaded: &Config,
    ) -> Result<Arc<Self>, HostError> {
        let options = options.clone();
        let folders = folders.clone();
        let tasks = Self { options, folders, runner: Mutex::default() };
        tasks.follow(loaded)?;
        Ok(Arc::new(tasks))
    }

    /// Starts or ends running tasks, as the configuration says. Blocks while runs end.
    pub(crate) fn follow(&self, loaded: &Config) -> Result<(), HostError> {
        let mut runner = self.runner.lock().unwrap_or_else(PoisonError::into_inner);
        if !loaded.values.tools.scheduler.enabled {
            *runner = None;
        } else if runner.is_none() {
            *runner = Some(start(&self.options, &self.folders, loaded, Box::new(|| {}))?);
        }
        Ok(())
    }

    /// Ends running tasks. Blocks while runs end.
    pub(crate) fn end(&self) {
        *self.runner.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns Toolhold's folders.
    pub(crate) fn folders(&self) -> &Folders {
        &self.folders
    }
}

/// Starts running tasks in this process, unless another process runs them.
fn start(
    options: &Options,
    folders: &Folders,
    loaded: &Config,
    on_start: Box<dyn Fn() + Send + Sync>,
) -> Result<TaskRunner, HostError> {
    let max_running = usize::try_from(loaded.values.tools.scheduler.max_running.get()).unwrap_or(1);
    let schedule = Schedule::in_data(&folders.data);
    // Directories that were granted to this process are not granted to tasks.
    let options = Options { allow: Vec::new(), allow_read: Vec::new(), ..options.clone() };
    let folders = folders.clone();
    let run: RunTask = Arc::new(move |claimed, end| run_task(&options, &folders, claimed, &end));
    TaskRunner::start(schedule, max_running, run, on_start)
}
