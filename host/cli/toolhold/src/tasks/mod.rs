//! Runs tasks when they are due. Also contains the commands for tasks: `toolhold tasks daemon` and
//! `toolhold tasks`.

pub(crate) mod command;
mod manage;
mod run;
mod runner;
mod unit;

pub(crate) use manage::tasks;
pub(crate) use runner::{RunTask, TaskRunner};
pub(crate) use unit::manage_unit;
