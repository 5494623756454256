//! `toolhold config ceiling`: shows the ceilings of this machine, and signs a ceiling.

use std::io::Write;

use serde_json::Value;
use toolhold_core::HostError;
use toolhold_core::config::{self, Folders, SYSTEM_CEILING};
use toolhold_signing::sign_ceiling;

use crate::arguments::CeilingCommand;
use crate::config::ceiling_as_json;
use crate::error::Error;
use crate::exit::Exit;
use crate::key::{failed, secret_key};
use crate::options::Options;
use crate::shown;

pub(crate) fn run(command: &CeilingCommand, options: &Options) -> Result<Exit, Error> {
    match command {
        CeilingCommand::Show { json } => show(*json, options)?,
        CeilingCommand::Sign { file, key, password } => {
            let text = config::check_ceiling(file).map_err(HostError::from)?;
            let key = secret_key(key, password.password_from.as_ref())?;
            sign_ceiling(file, &text, &key).map_err(failed)?;
            writeln!(
                anstream::stdout(),
                "{} is signed by key {}; the signature is in its first lines.\nTo make a machine \
                 require a signature, put this key into {} there:\n  {}",
                shown::path(file),
                key.public().id(),
                config::ceiling_keys_path(SYSTEM_CEILING.as_ref()).display(),
                key.public()
            )?;
        }
    }
    Ok(Exit::Success)
}

fn show(as_json: bool, options: &Options) -> Result<(), Error> {
    let folders = Folders::from_environment()?;
    let loaded = config::load(&folders, &options.inputs()?).map_err(HostError::from)?;
    let mut out = anstream::stdout().lock();
    if as_json {
        let all: Value = loaded.ceilings.iter().map(ceiling_as_json).collect();
        writeln!(out, "{all:#}")?;
        return Ok(());
    }
    write!(out, "{}", loaded.describe_ceilings())?;
    Ok(())
}
