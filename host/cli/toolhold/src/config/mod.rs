//! `toolhold config`: `init`, `show`, `schema`, `check`, `migrate` and `ceiling`.

mod ceiling;
mod migrate;
mod show;
mod template;

pub(crate) use show::ceiling as ceiling_as_json;
use std::io::Write;
use std::path::Path;

use toolhold_core::config::{self, Config, Folders, Inputs};

use crate::arguments::ConfigCommand;
use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::new_file;
use crate::options::Options;
use crate::shown;

/// Runs the command.
pub(crate) fn run(command: ConfigCommand, options: &Options) -> Result<Exit, Error> {
    match command {
        ConfigCommand::Show { json } => {
            let folders = Folders::from_environment()?;
            let loaded = config::load(&folders, &options.inputs()?)
                .map_err(toolhold_core::HostError::from)?;
            let written =
                if json { show::as_json(&loaded) } else { show::as_toml(&loaded, &folders) };
            written.map(|()| Exit::Success)
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
        ConfigCommand::Init { print: true } => {
            write!(std::io::stdout(), "{}", template::template())?;
            Ok(Exit::Success)
        }
        ConfigCommand::Init { print: false } => {
            let file = options.config_file(&Folders::from_environment()?);
            new_file::create(&file, &template::template())?;
            writeln!(
                anstream::stdout(),
                "Wrote {} with every key. All keys are commented out, so nothing changes until you \
                 edit the file.",
                shown::path(&file)
            )?;
            Ok(Exit::Success)
        }
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
    let mut refused = grants(&loaded, &folders, &working_directory);
    let serve = toolhold_mcp_server::problems(&loaded.values.serve);
    let place = format!("The settings are in {}.", loaded.own_table("serve"));
    refused
        .extend((!serve.is_empty()).then(|| [serve, vec![place]].concat()).into_iter().flatten());
    if !refused.is_empty() {
        writeln!(anstream::stderr(), "{}", refused.join("\n"))?;
        return Ok(Exit::Host);
    }
    // Only a host knows which names exist.
    let of_host = loaded.clone();
    let own = folders.clone();
    let mut unknown = host::block_on(async {
        Ok(host::build(options, own, of_host, "toolhold call").await?.unknown_names())
    })?;
    let missing = loaded.missing_directories(&folders, &working_directory);
    unknown.extend(missing.iter().map(ToString::to_string));
    let review = &loaded.values.tools.adversarial_policy;
    if review.enabled && review.provider.is_empty() {
        let place = loaded.place("tools.adversarial_policy.enabled");
        unknown.push(format!(
            "[tools.adversarial_policy] has no `provider`, so every call is denied ({place})"
        ));
    }
    let mut out = anstream::stdout();
    match (&loaded.file, unknown.is_empty()) {
        (Some(file), true) => writeln!(out, "{} is valid.", shown::path(file))?,
        (Some(file), false) => {
            writeln!(out, "{} is valid, but names things that don't exist:", shown::path(file))?;
        }
        (None, true) => writeln!(
            out,
            "There is no {}, so the defaults apply.",
            shown::path(&folders.config_file())
        )?,
        (None, false) => writeln!(
            out,
            "There is no {}, and the configuration names things that don't exist:",
            shown::path(&folders.config_file())
        )?,
    }
    unknown.iter().try_for_each(|unknown| writeln!(out, "  {unknown}"))?;
    loaded.renamed.iter().try_for_each(|renamed| writeln!(out, "  {renamed}"))?;
    let Some(project) = &loaded.project else { return Ok(Exit::Success) };
    match project.ignored() {
        [] => writeln!(out, "{} is valid.", shown::path(&project.path))?,
        ignored => {
            writeln!(out, "{} is valid, but these keys are ignored:", shown::path(&project.path))?;
            ignored.iter().try_for_each(|ignored| writeln!(out, "  {ignored}"))?;
        }
    }
    Ok(Exit::Success)
}

/// The errors of the grants, from the working directory.
fn grants(loaded: &Config, folders: &Folders, working_directory: &Path) -> Vec<String> {
    let plugins = loaded
        .values
        .plugins
        .keys()
        .map(|name| loaded.plugin_files(name, folders, working_directory));
    let all = std::iter::once(loaded.built_in_files(folders, working_directory)).chain(plugins);
    all.filter_map(|policy| policy.err().map(|error| error.to_string())).collect()
}
