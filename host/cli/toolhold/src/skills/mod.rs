//! `toolhold skills`: starts its subcommands.

mod commands;
mod notice;
mod trust;

use toolhold_core::config::{self, Folders};

pub(crate) use notice::print_notices;
pub(crate) use trust::trust_skill;

use crate::arguments::skills::SkillsCommand;
use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;

pub(crate) fn run(command: &SkillsCommand, options: &Options) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    let loaded = host::load(options, &folders)?;
    commands::run(command, &loaded, &folders, &config::working_directory()?)
}
