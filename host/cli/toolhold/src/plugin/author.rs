//! `toolhold plugin new`, `build`, `dev`, `test`, `pack` and `wit`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use toolhold_authoring::conformance::{self as conformance, Report};
use toolhold_authoring::dev::Dev;
use toolhold_authoring::{
    AuthorCommand, Language, build, create, find_built, pack_file, write_wit,
};
use toolhold_core::config::Folders;
use toolhold_core::text::neutral;

use toolhold_terminal::interrupt;

use crate::asking::Asker;
use crate::call::arguments;
use crate::error::Error;
use crate::exit::Exit;
use crate::options::Options;
use crate::{host, shown};

pub(super) fn run(command: &AuthorCommand, options: &Options) -> Result<Exit, Error> {
    let result = match command {
        AuthorCommand::New { name, lang, dir } => {
            let folder = dir.as_deref().unwrap_or(Path::new(name));
            Language::from_name(lang).and_then(|language| create(name, language, folder))
        }
        AuthorCommand::Build { dir } => build(dir).map(|built| built.to_string()),
        AuthorCommand::Test { plugin, seed, time, json } => {
            let options = conformance::Options { seed: *seed, time: Duration::from_secs(*time) };
            return test(plugin, options, *json);
        }
        AuthorCommand::Dev { dir, call, yes, http, json } => {
            let yes = *yes;
            let dev = Dev {
                folder: dir.clone(),
                folders: Folders::from_environment()?,
                inputs: options.inputs()?,
                builtins: toolhold_builtins::all(),
                http: http.as_deref().map(str::parse).transpose().map_err(Error::usage)?,
                call: call.clone(),
                read: |words, tool, host| {
                    arguments(words, tool, host).map_err(|error| error.to_string())
                },
                approver: Arc::new(move |folders, loaded| Asker::approver(yes, folders, loaded)),
                json: *json,
            };
            // Only an interruption ends `dev::run`.
            let interrupted = interrupt::cancellation()?;
            host::block_on(async { Ok(toolhold_authoring::dev::run(dev, interrupted).await?) })?;
            return Ok(Exit::Interrupted);
        }
        AuthorCommand::Pack { file, manifest, output } => {
            pack_file(file, manifest, output.as_deref()).map(|built| built.to_string())
        }
        AuthorCommand::Wit { dir, force } => write_wit(dir, *force),
    };
    let text = result.map_err(Error::usage)?;
    writeln!(anstream::stdout().lock(), "{}", neutral(&text))?;
    Ok(Exit::Success)
}

/// Builds the plugin in a folder, and returns the path of the component. A component that is newer
/// than the sources isn't built again, because a new build may differ, so that the component's
/// signature would be wrong.
fn built_file(folder: &Path) -> Result<PathBuf, Error> {
    let Some(file) = find_built(folder).map_err(Error::usage)? else {
        return Ok(build(folder).map_err(Error::usage)?.file);
    };
    writeln!(
        anstream::stderr(),
        "note: {} is newer than its sources, so it is not built again",
        shown::path(&file)
    )?;
    Ok(file)
}

/// Tests `plugin`, which is a component or the folder of a plugin.
fn test(plugin: &Path, options: conformance::Options, as_json: bool) -> Result<Exit, Error> {
    let file = if plugin.is_dir() { built_file(plugin)? } else { plugin.to_owned() };
    let interrupted = interrupt::cancellation()?;
    let report: Option<Report> = host::block_on(async {
        tokio::select! {
            report = conformance::test(&file, options) => Ok(Some(report?)),
            () = interrupted.cancelled() => Ok(None),
        }
    })?;
    let Some(report) = report else { return Ok(Exit::Interrupted) };
    let mut out = anstream::stdout().lock();
    if as_json {
        writeln!(out, "{}", report.to_json())?;
    } else {
        writeln!(out, "{report}")?;
    }
    Ok(if report.is_passed() { Exit::Success } else { Exit::ToolFailure })
}
