//! `toolhold plugin`: starts its subcommands.

mod approve;
mod author;
mod bundle;
mod inspect;
mod install;
mod list;
mod publish;
mod running_hosts;

use std::io::Write;
use std::path::PathBuf;

use toolhold_core::config::{self, Config, Folders};
use toolhold_core::{
    Candidate, Difference, HostError, LockedPlugin, PluginApprovals, PluginInspection, SignerChange,
};

pub(crate) use self::install::command::{built_in_names, install_wanted, show};
pub(crate) use self::install::grants::show_granted;
use crate::arguments::PluginCommand;
use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::key;
use crate::options::Options;
use crate::style::STRONG;

pub(crate) fn run(command: &PluginCommand, options: &Options) -> Result<Exit, Error> {
    match command {
        PluginCommand::List { json } => list::list(*json, options),
        PluginCommand::Inspect { component, json } => inspect::inspect(component, *json, options),
        PluginCommand::Approve { name, yes, digest } => {
            approve::approve(name, *yes, digest.as_deref(), options)
        }
        PluginCommand::Reload { json } => list::reload(*json),
        PluginCommand::Install(command) => install::command::run(command, options),
        PluginCommand::Publish(arguments) => publish::run(arguments, options),
        PluginCommand::Sign(arguments) => key::sign(arguments),
        PluginCommand::Key(command) => key::run(command),
        PluginCommand::Bundle(command) => bundle::run(command, options),
        PluginCommand::Author(command) => author::run(command, options),
    }
}

fn list_tools(out: &mut impl Write, inspection: &PluginInspection) -> std::io::Result<()> {
    for tool in &inspection.tools {
        let summary = crate::shown::summary(tool);
        writeln!(out, "  {STRONG}{}{STRONG:#}  {summary}", tool.name)?;
    }
    Ok(())
}

pub(crate) struct Setting {
    pub(crate) folders: Folders,
    pub(crate) loaded: Config,
    directory: PathBuf,
}

impl Setting {
    pub(crate) fn from_options(options: &Options) -> Result<Self, Error> {
        let folders = Folders::from_environment()?;
        let loaded = host::load(options, &folders)?;
        let directory = config::working_directory()?;
        Ok(Self { folders, loaded, directory })
    }

    fn candidate(&self, name: &str) -> Result<Candidate, HostError> {
        toolhold_core::candidate(&self.loaded, &self.folders, &self.directory, name)
    }

    /// Lists the tools of a component without any grants.
    fn inspect(&self, candidate: Candidate) -> Result<PluginInspection, HostError> {
        let command = self.loaded.command_of_plugin(&candidate.info().manifest.name)?;
        let inspection = PluginInspection::new(candidate, &self.folders, command);
        match host::block_on(async { Ok(inspection.await) }) {
            Ok(result) => result,
            // This error only means that the reactor can't be started.
            Err(error) => {
                let (_, message) = error.end();
                Err(HostError::Engine(message.unwrap_or_default()))
            }
        }
    }

    /// Returns the signers of the installed version and of its waiting update, if they differ.
    /// Returns `None` if `new` isn't the waiting update.
    fn signer_change(&self, new: &PluginInspection) -> Result<Option<SignerChange>, HostError> {
        let locked = PluginApprovals::open(&self.folders).all()?.remove(&new.info.manifest.name);
        let Some(LockedPlugin { approved, offered: Some(offered), .. }) = locked else {
            return Ok(None);
        };
        if offered.digest != new.info.digest {
            return Ok(None);
        }
        Ok(SignerChange::between(approved.source.as_ref(), offered.source.as_ref()))
    }

    /// Compares the component `new` with the approved version. Returns `None` if there is no
    /// approved version, if its component is damaged, or if both are the same.
    fn difference(&self, new: &PluginInspection) -> Result<Option<Difference>, HostError> {
        let approvals = PluginApprovals::open(&self.folders);
        let name = &new.info.manifest.name;
        let Some(LockedPlugin { approved, .. }) = approvals.all()?.remove(name) else {
            return Ok(None);
        };
        if approved.digest == new.info.digest {
            return Ok(None);
        }
        let Some(old) = approvals.component(name, &approved)? else { return Ok(None) };
        Ok(Some(Difference::between(&self.inspect(old)?, new)))
    }
}
