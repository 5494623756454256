//! Scheduled tasks, their due times and their runs.
//!
//! An SQLite database in Toolhold's own data folder has all tasks of a user. A run is claimed, then
//! started, then ended. Each step is on disk before the next step. After a crash, a claimed run is
//! started again, but a started run isn't.
//!
//! The time is always a parameter. Only [`Alarm`] waits.

mod alarm;
mod connection;
mod cron;
mod due;
mod error;
mod maker;
mod secrets;
mod tasks;
mod when;

pub use alarm::Alarm;
pub use cron::{Cron, CronError, CronFieldError};
pub use due::{ClaimedRun, RunEnd, RunResult};
pub use error::{ScheduleError, TaskLimitError, TaskOrderError, TaskQuotaError};
pub use maker::Maker;
pub use secrets::{hide_secrets, hide_secrets_of_run};
pub use tasks::{KeptTask, Listed, Owner, Quotas, RunnerProcess, Schedule};
pub use when::{Pending, When, WhenError, clock_change, find_zone, zone_name};

/// Most missed times of a task that are run or counted.
pub const MAX_MISSED: usize = 100;
/// Most tasks of a user, from all makers.
pub const MAX_TASKS: u64 = 1000;
/// Most stored runs of a task. Older runs are removed.
pub const MAX_RUNS: usize = 20;
/// Most stored bytes of a run's output. Longer output is cut.
pub const MAX_OUTPUT: usize = 2000;
/// Most characters of a task's name.
pub const MAX_NAME: usize = 64;
/// Most bytes of a prompt.
pub const MAX_PROMPT: usize = 16 * 1024;
/// Most bytes of a call's arguments as JSON.
pub const MAX_ARGUMENTS: usize = 64 * 1024;
/// The output of a run that was interrupted.
pub const INTERRUPTED: &str =
    "The process that runs tasks ended during this run. It is not repeated.";
/// The notice for people if no process runs tasks.
pub const NO_RUNNER: &str = "No process runs tasks at the moment. To run them, start `toolhold \
tasks daemon`, or install it permanently with `toolhold tasks daemon --install`. `toolhold serve` \
also runs tasks.";
