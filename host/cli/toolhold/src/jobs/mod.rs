//! `toolhold jobs`: the commands in the background of running hosts.

use std::io::Write;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use toolhold_core::config::Folders;
use toolhold_core::jobs::{self, JobState};
use toolhold_core::text::{cut, neutral_line};

use crate::error::CommandError;
use crate::exit::Exit;
use crate::style::{FAINT, STRONG};

/// Bytes of a command line that are shown.
const SHOWN: usize = 200;

/// `toolhold jobs`.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  toolhold jobs\n  toolhold jobs --json\n  toolhold jobs stop job-3f9a2c41d07b5e88"
)]
pub struct JobsArguments {
    /// What to do; by default the jobs are listed.
    #[command(subcommand)]
    pub command: Option<JobsCommand>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What to do with jobs.
#[derive(Subcommand, Debug)]
pub enum JobsCommand {
    /// Stop a job, and everything that it started, at once
    #[command(after_help = "Example:\n  toolhold jobs stop job-3f9a2c41d07b5e88")]
    Stop {
        /// The job, as `toolhold jobs` lists it
        id: String,
    },
}

/// Runs the command.
///
/// # Errors
///
/// The hosts can't be asked, or no job that runs has the ID.
pub fn run(arguments: &JobsArguments) -> Result<Exit, CommandError> {
    let folders = Folders::from_environment()?;
    let mut out = anstream::stdout().lock();
    if let Some(JobsCommand::Stop { id }) = &arguments.command {
        if !jobs::stop(&folders, id)? {
            let id = neutral_line(cut(id, 64));
            return Err(CommandError::Usage(format!(
                "no job that runs has the id `{id}`; `toolhold jobs` lists those that run"
            )));
        }
        writeln!(out, "Stopped.")?;
        return Ok(Exit::Success);
    }
    let hosts = jobs::list_running(&folders)?;
    if arguments.json {
        let of_host = |(pid, jobs)| json!({ "pid": pid, "jobs": jobs });
        let hosts: Vec<Value> = hosts.into_iter().map(of_host).collect();
        writeln!(out, "{:#}", json!(hosts))?;
        return Ok(Exit::Success);
    }
    if hosts.iter().all(|(_, jobs)| jobs.is_empty()) {
        writeln!(out, "No host has jobs.")?;
    }
    for (pid, jobs) in hosts.iter().filter(|(_, jobs)| !jobs.is_empty()) {
        writeln!(out, "{STRONG}The host with process {pid}{STRONG:#}")?;
        for job in jobs {
            let session = neutral_line(cut(&job.session, SHOWN));
            let command = neutral_line(cut(&job.command, SHOWN));
            let style = if job.state == JobState::Running { STRONG } else { FAINT };
            let (id, state, seconds) = (&job.id, job.state.describe(), job.seconds);
            writeln!(out, "  {style}{id}{style:#}  {state}, {seconds} s, {session}: {command}")?;
        }
    }
    Ok(Exit::Success)
}
