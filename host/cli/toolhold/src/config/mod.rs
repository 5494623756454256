//! `toolhold config`: `show`, `schema`, `check`, `migrate` and `ceiling`.

mod ceiling;
mod migrate;
mod show;

pub(crate) use show::ceiling as ceiling_as_json;
use std::io::Write;
use std::path::Path;

use toolhold_core::config::{self, Config, Folders, Inputs};

use crate::arguments::ConfigCommand;
use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;
use crate::shown;

pub(crate) fn run(command: ConfigCommand, options: &Options) -> Result<Exit, Error> {
    match command {
        ConfigCommand::Show { caller, json } => {
            let folders = Folders::from_environment()?;
            let who = caller.map(|caller| caller.0);
            let loaded = config::load(&folders, &Inputs { who, ..options.inputs()? })
                .map_err(toolhold_core::HostError::from)?;
            if json {
                show::as_json(&loaded)?;
            } else {
                show::as_toml(&loaded, &folders)?;
            }
            Ok(Exit::Success)
        }
        ConfigCommand::Schema => {
            let folders = Folders::from_environment()?;
            let directory = config::working_directory()?;
            let schema = toolhold_core::config_schema(&folders, &options.inputs()?, &directory);
            writeln!(std::io::stdout(), "{schema:#}")?;
            Ok(Exit::Success)
        }
        ConfigCommand::Check { file } => {
            let inputs = match file {
                Some(file) => Inputs { file: Some(file), ..Inputs::default() },
                None => options.inputs()?,
            };
            check(&inputs, options)
        }
        ConfigCommand::Ceiling(command) => ceiling::run(&command, options),
        ConfigCommand::Migrate { file, yes } => migrate::run(&file, yes, options),
    }
}

fn check(inputs: &Inputs, options: &Options) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    let working_directory = toolhold_core::config::working_directory()?;
    let loaded = match config::load(&folders, inputs) {
        Ok(loaded) => loaded,
        Err(problems) => {
            writeln!(anstream::stderr(), "{problems}")?;
            return Ok(Exit::Host);
        }
    };
    let mut errors = grant_errors(&loaded, &folders, &working_directory);
    let principal_errors = loaded.principal_problems(&folders, &working_directory);
    errors.extend(principal_errors.iter().map(ToString::to_string));
    let serve_errors = toolhold_mcp_server::problems(&loaded.values.serve);
    if !serve_errors.is_empty() {
        errors.extend(serve_errors);
        errors.push(format!("The settings are in {}.", loaded.own_table("serve")));
    }
    errors.extend(toolhold_mcp_server::webhook_problem(
        &loaded.values.approvals,
        &loaded.values.serve,
    ));
    if !errors.is_empty() {
        writeln!(anstream::stderr(), "{}", errors.join("\n"))?;
        return Ok(Exit::Host);
    }

    let missing = missing_things(&loaded, &folders, &working_directory, options)?;
    let mut out = anstream::stdout();
    match &loaded.file {
        Some(file) => write!(out, "{} is valid", shown::path(file))?,
        None => write!(out, "There is no {}", shown::path(&folders.config_file()))?,
    }
    let end = match (&loaded.file, missing.is_empty()) {
        (Some(_), true) => ".",
        (Some(_), false) => ", but names directories or programs that don't exist:",
        (None, true) => ", so the defaults apply.",
        (None, false) => ", and the configuration names directories or programs that don't exist:",
    };
    writeln!(out, "{end}")?;
    for thing in missing {
        writeln!(out, "  {thing}")?;
    }
    for renamed in &loaded.renamed {
        writeln!(out, "  {renamed}")?;
    }

    let Some(project) = &loaded.project else { return Ok(Exit::Success) };
    match project.ignored() {
        [] => writeln!(out, "{} is valid.", shown::path(&project.path))?,
        ignored => {
            writeln!(out, "{} is valid, but these keys are ignored:", shown::path(&project.path))?;
            for key in ignored {
                writeln!(out, "  {key}")?;
            }
        }
    }
    Ok(Exit::Success)
}

/// Describes tools, plugins, directories and providers that the configuration names but that don't
/// exist.
fn missing_things(
    loaded: &Config,
    folders: &Folders,
    working_directory: &Path,
    options: &Options,
) -> Result<Vec<String>, Error> {
    // Only a host knows the names of all tools, so a host is built.
    let building = host::build(options, folders.clone(), loaded.clone(), "toolhold call");
    let mut missing = host::block_on(async {
        let host = building.await?;
        Ok([host.unknown_names(), host.uninstalled_plugins()].concat())
    })?;
    let directories = loaded.missing_directories(folders, working_directory);
    missing.extend(directories.iter().map(ToString::to_string));
    let review = &loaded.values.tools.adversarial_policy;
    if review.enabled && review.provider.is_empty() {
        let place = loaded.place("tools.adversarial_policy.enabled");
        missing.push(format!(
            "[tools.adversarial_policy] has no `provider`, so every call is denied ({place})"
        ));
    }
    Ok(missing)
}

fn grant_errors(loaded: &Config, folders: &Folders, working_directory: &Path) -> Vec<String> {
    let mut policies = vec![loaded.built_in_files(folders, working_directory)];
    for name in loaded.values.plugins.keys() {
        policies.push(loaded.plugin_files(name, folders, working_directory));
    }
    policies.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect()
}
