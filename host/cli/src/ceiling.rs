//! `berth ceiling`.

use std::io::Write;

use berth_core::HostError;
use berth_core::config::{self, Ceiling, Folders, SYSTEM_CEILING, Source, Taken};
use berth_core::text::neutral_line;
use berth_signing::sign_ceiling;
use serde_json::Value;

use crate::arguments::CeilingCommand;
use crate::config::ceiling_as_json;
use crate::error::Error;
use crate::exit::Exit;
use crate::key::{failed, secret_key};
use crate::options::Options;
use crate::shown::{self, toml};
use crate::style::STRONG;

/// Runs the command.
pub(crate) fn run(command: &CeilingCommand, options: &Options) -> Result<Exit, Error> {
    match command {
        CeilingCommand::Show { json } => show(*json, options)?,
        CeilingCommand::Sign { file, key, password } => {
            let text = config::check_ceiling(file).map_err(HostError::from)?;
            let key = secret_key(key, password.password_from.as_ref())?;
            let written = sign_ceiling(file, &text, &key).map_err(failed)?;
            writeln!(
                anstream::stdout(),
                "{} is signed by key {}, in {}.\nMachines that are to require it need this key in {}:\n  {}",
                shown::path(file),
                key.public().id(),
                shown::path(&written),
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
    if loaded.ceilings.is_empty() {
        writeln!(
            out,
            "No ceiling bounds your configuration. One would be {SYSTEM_CEILING}, or the file that BERTH_CEILING names."
        )?;
    }
    for Ceiling { path, signed_by, taken, .. } in &loaded.ceilings {
        let signed = match signed_by {
            Some(key) => format!("signed by key {key}"),
            None => "not signed".to_owned(),
        };
        writeln!(out, "{STRONG}{}{STRONG:#}, {signed}", shown::path(path))?;
        if taken.is_empty() {
            writeln!(out, "  It takes nothing away from your configuration.")?;
        }
        for Taken { key, wanted, wanted_by, held, source } in taken {
            let by = match wanted_by {
                Source::Default => "by default".to_owned(),
                other => format!("in {}", neutral_line(&other.to_string())),
            };
            writeln!(
                out,
                "  {}: {}, instead of {} {by} ({})",
                neutral_line(key),
                toml(held),
                toml(wanted),
                neutral_line(&source.to_string())
            )?;
        }
    }
    Ok(())
}
