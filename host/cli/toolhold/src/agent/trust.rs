//! Asks the person before new or changed instructions of a project (`AGENTS.md`) apply.

use std::io::Write;

use toolhold_agent::{InstructionFile, find_instructions, remember_instructions};
use toolhold_core::HostError;
use toolhold_core::text::{neutral, neutral_line};
use toolhold_terminal::ask;
use toolhold_terminal::error::CommandError;
use toolhold_terminal::style::{STRONG, WARNING};

use crate::agent::Surroundings;

/// The instructions that count. At a terminal, new and changed ones are shown and asked about;
/// elsewhere they are left out, unless `trusted`.
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
    if !trusted && !ask::is_watched() {
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
    if trusted {
        // For this run only, since no person has looked at the files.
        return Ok(files);
    }
    let accepted = asked(new)?;
    let folders = around.folders.clone();
    let remembered = accepted.clone();
    let written =
        tokio::task::spawn_blocking(move || remember_instructions(&remembered, &folders)).await;
    written.map_err(|error| HostError::Config(error.to_string()))??;
    // In the order of the files, since later files count more.
    Ok(files.into_iter().filter(|file| file.is_seen || accepted.contains(file)).collect())
}

/// Returns the files that the person wants to count.
fn asked(files: Vec<InstructionFile>) -> Result<Vec<InstructionFile>, CommandError> {
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
