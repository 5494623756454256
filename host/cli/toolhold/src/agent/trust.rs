//! Asks the person before the agent uses new or changed instructions of a project (`AGENTS.md`).

use std::io::Write;

use toolhold_agent::{InstructionFile, find_instructions, remember_instructions};
use toolhold_core::HostError;
use toolhold_core::text::{neutral, neutral_line};
use toolhold_terminal::ask;
use toolhold_terminal::error::CommandError;
use toolhold_terminal::style::{STRONG, WARNING};

use crate::agent::Surroundings;

/// Returns the instructions for the agent. The person is asked about new and changed files. If
/// there is no terminal, these files are used only if `trusted` is set.
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
    let unseen: Vec<InstructionFile> = files.iter().filter(|file| !file.is_seen).cloned().collect();
    if unseen.is_empty() {
        return Ok(files);
    }
    if trusted {
        // No person has read the files, so the trust isn't saved.
        return Ok(files);
    }
    if !ask::is_watched() {
        for file in &unseen {
            let path = neutral_line(&file.path.display().to_string());
            writeln!(
                err,
                "{WARNING}note{WARNING:#}: {path} isn't used, because you haven't approved this \
                 file; to use the file once: --trust-instructions"
            )?;
        }
        return Ok(files.into_iter().filter(|file| file.is_seen).collect());
    }

    let accepted = ask_about(unseen)?;
    let folders = around.folders.clone();
    let to_remember = accepted.clone();
    tokio::task::spawn_blocking(move || remember_instructions(&to_remember, &folders))
        .await
        .map_err(|error| HostError::Config(error.to_string()))??;
    // Later files take precedence, so the order must stay.
    Ok(files.into_iter().filter(|file| file.is_seen || accepted.contains(file)).collect())
}

/// Asks the person about each file, and returns the accepted files.
fn ask_about(files: Vec<InstructionFile>) -> Result<Vec<InstructionFile>, CommandError> {
    let mut accepted = Vec::new();
    for file in files {
        let path = neutral_line(&file.path.display().to_string());
        let mut err = anstream::stderr();
        writeln!(err, "{STRONG}{path}{STRONG:#} contains instructions for agents:\n")?;
        writeln!(err, "{}\n", neutral(&file.text))?;
        let Some(mut dialogue) = ask::open_dialogue("the file isn't used") else { continue };
        let default_answer = false;
        if dialogue.yes_or_no("Use these instructions until the file changes?", default_answer)? {
            accepted.push(file);
        }
    }
    Ok(accepted)
}
