//! `toolhold generate completions`: prints the completions for a shell.

use std::io::Write;

use clap::CommandFactory;
use toolhold_core::NAME;

use crate::arguments::{Arguments, CompletionsArguments};
use crate::error::Error;
use crate::exit::Exit;

pub(crate) fn run(arguments: &CompletionsArguments) -> Result<Exit, Error> {
    // The generator panics if stdout is closed, so it writes into memory.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), NAME, &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(Exit::Success)
}
