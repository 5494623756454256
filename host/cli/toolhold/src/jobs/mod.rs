//! `toolhold jobs`: lists and stops the background commands of running hosts.

use std::io::Write;

use serde_json::{Value, json};
use toolhold_core::config::Folders;
use toolhold_core::jobs::{self, JobState};
use toolhold_core::text::{cut, neutral_line};

use toolhold_terminal::error::CommandError;
use toolhold_terminal::exit::Exit;
use toolhold_terminal::style::GOOD;
use toolhold_terminal::table::Table;

use crate::arguments::jobs::{JobsArguments, JobsCommand};

/// The most bytes of a shown command line.
const SHOWN: usize = 200;

pub(crate) fn run(arguments: &JobsArguments) -> Result<Exit, CommandError> {
    let folders = Folders::from_environment()?;
    let mut out = anstream::stdout().lock();
    if let Some(JobsCommand::Stop { id }) = &arguments.command {
        if !jobs::stop(&folders, id)? {
            let id = neutral_line(cut(id, 64));
            return Err(CommandError::Usage(format!(
                "no running job has the id `{id}`; `toolhold jobs` lists the running jobs"
            )));
        }
        writeln!(out, "Stopped.")?;
        return Ok(Exit::Success);
    }
    let hosts = jobs::list_running(&folders)?;
    if arguments.json {
        let hosts: Vec<Value> =
            hosts.into_iter().map(|(pid, jobs)| json!({ "pid": pid, "jobs": jobs })).collect();
        writeln!(out, "{:#}", json!(hosts))?;
        return Ok(Exit::Success);
    }

    if hosts.iter().all(|(_, jobs)| jobs.is_empty()) {
        writeln!(out, "There are no jobs.")?;
        return Ok(Exit::Success);
    }
    let mut table =
        Table::new(["ID", "STATE", "SECONDS", "PROCESS", "SESSION", "COMMAND"], &[2, 3]);
    for (pid, jobs) in &hosts {
        for job in jobs {
            let jobs::JobSummary { id, seconds, .. } = job;
            table.row([
                id.clone(),
                job.state.describe(),
                seconds.to_string(),
                pid.to_string(),
                cut(&job.session, SHOWN).to_owned(),
                cut(&job.command, SHOWN).to_owned(),
            ]);
            if job.state == JobState::Running {
                table.colour(1, GOOD);
            }
        }
    }
    table.print(&mut out)?;
    Ok(Exit::Success)
}
