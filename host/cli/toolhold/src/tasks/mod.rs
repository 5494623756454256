//! Runs tasks when they are due, and the commands for them: `toolhold tasks daemon` and `toolhold tasks`.

mod commands;
mod runner;
mod unit;

pub use commands::{TasksCommand, tasks};
pub use runner::{RunTask, TaskRunner};
pub use unit::{DaemonArguments, manage_unit};
