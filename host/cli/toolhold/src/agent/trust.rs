//! Asks the person before new or changed instructions of a project (`AGENTS.md`) apply.

use std::io::Write;

use toolhold_agent::{InstructionFile, find_instructions, remember_instructions};
use toolhold_core::HostError;
use toolhold_core::text::{neutral, neutral_line};
use toolhold_terminal::ask;
use toolhold_terminal::error::CommandError;
use toolhold_terminal::style::{STRONG, WARNING};

use crate::agent::Surroundings;

/// Returns the instructions that apply. At a terminal, the person is asked about new and changed
/// files. Without a terminal, such files apply only if `trusted` is `true`.
pub(crate) async fn instructions(
    around: &Surroundings<'_>,
    trusted: bool,
) -> Result<Vec<InstructionFile>, CommandError> {
    if !around.config.values.agent.instructions {
        return Ok(Vec::new());
    }
    let directory = around.directory.to_owned();
    let folders = around.folders.clone();
    let (files, left_out) =
        tokio::task::spawn_blocking(move || find_instructions(&directory, &folders))
            .await
            .map_err(|error| HostError::Config(error.to_string()))??;
    let mut err = anstream::stderr();
    for reason in left_out {
        writeln!(err, "{WARNING}note{WARNING:#}: {}", neutral_line(&reason))?;
    }
    let new: Vec<InstructionFile> = files.iter().filter(|file| !file.is_seen).cloned().collect();
    if new.is_empty() {
        return Ok(files);
    }
    if trusted {
        // The trust is for this run only, since no person has looked at the files.
        return Ok(files);
    }
    if !ask::is_watched() {
        for file in &new {
            let path = neutral_line(&file.path.display().to_string());
            writeln!(
                err,
                "{WARNING}note{WARNING:#}: {path} isn't used, because you haven't approved it; to \
                 use it once: --trust-instructions"
            )?;
        }
        return Ok(files.into_iter().filter(|file| file.is_seen).collect());
    }

    let accepted = ask_about(new)?;
    let folders = around.folders.clone();
    let to_remember = accepted.clone();
    tokio::task::spawn_blocking(move || remember_instructions(&to_remember, &folders))
        .await
        .map_err(|error| HostError::Config(error.to_string()))??;
    // The order of the files stays, since later files have precedence.
    Ok(files.into_iter().filter(|file| file.is_seen || accepted.contains(file)).collect())
}

/// Asks about each file. Returns the files that the person accepts.
fn ask_about(files: Vec<InstructionFile>) -> Result<Vec<InstructionFile>, CommandError> {
    let mut accepted = Vec::new();
    for file in files {
        let path = neutral_line(&file.path.display().to_string());
        let mut err = anstream::stderr();
        writeln!(err, "{STRONG}{path}{STRONG:#} contains instructions for agents:\n")?;
        writeln!(err, "{}\n", neutral(&file.text))?;
        let Some(mut dialogue) = ask::open_dialogue("the file isn't used") else { continue };
        if dialogue.yes_or_no("Use these instructions, until the file changes?", false)? {
            accepted.push(file);
        }
    }
    Ok(accepted)
}
