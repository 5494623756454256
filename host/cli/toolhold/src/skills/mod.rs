//! `toolhold skills`.

use toolhold_core::config::{self, Folders};
use toolhold_skills::SkillsCommand;

use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;

/// Runs the command.
pub(crate) fn run(command: &SkillsCommand, options: &Options) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    let loaded = host::load(options, &folders)?;
    toolhold_skills::run(command, &loaded, &folders, &config::working_directory()?)
}
