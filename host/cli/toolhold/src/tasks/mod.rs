//! `toolhold tasks` and `toolhold tasks daemon`: runs tasks when they are due, and manages them.

pub(crate) mod command;
mod manage;
mod run;
mod runner;
mod unit;

pub(crate) use manage::tasks;
pub(crate) use runner::{RunTask, TaskRunner};
pub(crate) use unit::manage_unit;
