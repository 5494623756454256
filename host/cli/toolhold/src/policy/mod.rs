//! `toolhold policy`: starts its subcommands.

mod check;
mod explain;

use crate::arguments::PolicyCommand;
use crate::error::Error;
use crate::exit::Exit;
use crate::options::Options;

pub(crate) fn run(command: &PolicyCommand, options: &Options) -> Result<Exit, Error> {
    match command {
        PolicyCommand::Check(check) => check::run(check, options),
        PolicyCommand::Explain { id, json } => explain::run(id, *json),
    }
}
