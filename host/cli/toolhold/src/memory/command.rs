//! Starts `toolhold memory` from the command line.

use toolhold_core::config::{self, Folders};

use crate::arguments::memory::MemoryCommand;
use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;

pub(crate) fn run(command: &MemoryCommand, options: &Options) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    let loaded = host::load(options, &folders)?;
    crate::memory::run(command, &loaded, &folders, &config::working_directory()?)
}
