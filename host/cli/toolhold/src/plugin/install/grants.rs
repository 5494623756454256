//! The grants of a plugin: those of the command line, those that a person gives at the terminal,
//! and those that are missing. `toolhold plugin grant` writes more of them.

use std::io::{BufRead, Write};

use toolhold_core::config::insert::{self, WrittenGrants};
use toolhold_core::config::{Config, Folders, PathAccess};
use toolhold_core::text::neutral_line;
use toolhold_core::{Capability, CapabilityRequest, Manifest, grant_in_words};

use crate::arguments::install::GrantArguments;
use crate::error::Error;
use crate::exit::Exit;
use crate::granted_folder::{FolderError, folder};
use crate::options::Options;
use crate::plugin::Setting;
use crate::style::STRONG;
use crate::{allow, ask};

/// MiB that a plugin may store if a person agrees at the terminal.
const USUAL_STORE: u32 = 16;

/// Writes more grants of a plugin. Without any, lists those that the plugin has and those that are
/// missing.
pub(crate) fn grant(
    name: &str,
    arguments: &GrantArguments,
    setting: &Setting,
    options: &Options,
) -> Result<Exit, Error> {
    let candidate = setting.candidate(name)?;
    let manifest = &candidate.info().manifest;
    let mut grants = from_arguments(arguments, setting)?;
    let mut out = anstream::stdout().lock();
    if grants == WrittenGrants::default() {
        show_granted(&mut out, manifest, &setting.loaded)?;
        write_missing(&mut out, manifest, &grants, &setting.loaded)?;
        return Ok(Exit::Success);
    }
    check_requested(&grants, manifest)?;
    narrow(&mut grants, manifest);
    let folders = allow::folders_of_own_file(options)?;
    insert::plugin(&folders, name, &grants)?;
    write_granted(&mut out, name, &grants, &folders)?;
    Ok(Exit::Success)
}

/// Returns the grants of the command line.
pub(crate) fn from_arguments(
    arguments: &GrantArguments,
    setting: &Setting,
) -> Result<WrittenGrants, Error> {
    let read = arguments.allow_read.iter().map(|path| (path, PathAccess::Read));
    let write = arguments.allow_path.iter().map(|path| (path, PathAccess::ReadWrite));
    let mut directories = Vec::new();
    for (path, access) in read.chain(write) {
        let written = path
            .to_str()
            .ok_or_else(|| Error::Usage("a directory's name is not UTF-8".to_owned()))?;
        directories.push((directory(written, setting).map_err(Error::usage)?, access));
    }
    Ok(WrittenGrants {
        directories,
        hosts: arguments.allow_host.clone(),
        store_mib: arguments.store,
        index_mib: arguments.index,
        session: arguments.session,
    })
}

/// Returns the real path of a directory to grant.
fn directory(written: &str, setting: &Setting) -> Result<String, FolderError> {
    let here = &setting.directory;
    let path = if written == "." { here.display().to_string() } else { written.to_owned() };
    folder(&path, &setting.folders, here)
}

/// Refuses a grant that the plugin doesn't ask for: it would have no effect now, and could have one
/// after an update.
fn check_requested(grants: &WrittenGrants, manifest: &Manifest) -> Result<(), Error> {
    for capability in Capability::ALL {
        let is_requested = match capability {
            // The directories are the grant of both.
            Capability::Files | Capability::Search => {
                manifest.asks_for(Capability::Files).is_some()
                    || manifest.asks_for(Capability::Search).is_some()
            }
            _ => manifest.asks_for(capability).is_some(),
        };
        if is_granted(grants, capability.name()) && !is_requested {
            return Err(Error::Usage(format!(
                "`{}` doesn't ask for {}; nothing is granted",
                manifest.name,
                capability.facts().noun
            )));
        }
    }
    Ok(())
}

/// Narrows the grants to what the plugin asks for: a plugin that only reads gets no more.
pub(crate) fn narrow(grants: &mut WrittenGrants, manifest: &Manifest) {
    let request = manifest.asks_for(Capability::Files);
    if !request.is_some_and(CapabilityRequest::is_read_only) {
        return;
    }
    for (_, access) in &mut grants.directories {
        *access = PathAccess::Read;
    }
}

/// Asks for the grants that the plugin wants and the command line doesn't give.
pub(crate) fn ask(
    dialogue: &mut ask::Dialogue<impl BufRead, impl Write>,
    manifest: &Manifest,
    grants: &mut WrittenGrants,
    setting: &Setting,
) -> Result<(), Error> {
    if let Some(request) = manifest.asks_for(Capability::Files)
        && grants.directories.is_empty()
    {
        grants.directories = ask_for_directories(dialogue, request, setting)?;
    }
    if manifest.asks_for(Capability::Http).is_some() && grants.hosts.is_empty() {
        let answer =
            dialogue.ask("Hosts that the plugin may reach, separated by commas [Enter: none]:")?;
        grants.hosts = items(&answer).map(str::to_owned).collect();
    }
    if manifest.asks_for(Capability::Store).is_some() && grants.store_mib.is_none() {
        let question = format!("May the plugin store up to {USUAL_STORE} MiB of data?");
        if dialogue.yes_or_no(&question, false)? {
            grants.store_mib = Some(USUAL_STORE);
        }
    }
    if manifest.asks_for(Capability::Index).is_some() && grants.index_mib.is_none() {
        let question =
            format!("May the plugin store up to {USUAL_STORE} MiB of documents for search?");
        if dialogue.yes_or_no(&question, false)? {
            grants.index_mib = Some(USUAL_STORE);
        }
    }
    if manifest.asks_for(Capability::Session).is_some() && !grants.session {
        grants.session = dialogue
            .yes_or_no("May the plugin keep its memory between the calls of a session?", false)?;
    }
    Ok(())
}

/// Asks until the answer is a list of directories that can be granted.
fn ask_for_directories(
    dialogue: &mut ask::Dialogue<impl BufRead, impl Write>,
    request: &CapabilityRequest,
    setting: &Setting,
) -> Result<Vec<(String, PathAccess)>, Error> {
    let (access, verbs) = if request.is_read_only() {
        (PathAccess::Read, "read")
    } else {
        (PathAccess::ReadWrite, "read and change")
    };
    let question =
        format!("Directories that the plugin may {verbs}, separated by commas [Enter: none]:");
    loop {
        let answer = dialogue.ask(&question)?;
        let directories: Result<Vec<_>, FolderError> =
            items(&answer).map(|item| Ok((directory(item, setting)?, access))).collect();
        match directories {
            Ok(directories) => return Ok(directories),
            Err(error) => dialogue.print(&format!("  {}", neutral_line(&error.to_string())))?,
        }
    }
}

fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// Shows the grants that the configuration has for the name already, perhaps for another plugin.
pub(crate) fn show_granted(
    out: &mut impl Write,
    manifest: &Manifest,
    loaded: &Config,
) -> Result<(), Error> {
    let mut lines = Vec::new();
    for request in &manifest.capabilities {
        if let Some(grant) = grant_in_words(loaded, &manifest.name, &request.name) {
            lines.push(format!("  {}: {}", neutral_line(&request.name), neutral_line(&grant)));
        }
    }
    if !lines.is_empty() {
        let table = neutral_line(&manifest.name);
        writeln!(out, "\n{STRONG}Granted already, by [plugins.{table}]{STRONG:#}")?;
    }
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Writes the grants that were written.
pub(crate) fn write_granted(
    out: &mut impl Write,
    name: &str,
    grants: &WrittenGrants,
    folders: &Folders,
) -> Result<(), Error> {
    let lines = grants.lines();
    if lines.is_empty() {
        return Ok(());
    }
    let file = crate::shown::path(&folders.config_file());
    writeln!(out, "Granted in {file}:\n  [plugins.{name}]")?;
    for line in &lines {
        writeln!(out, "  {}", neutral_line(line))?;
    }
    Ok(())
}

/// Writes the requests that neither the configuration nor `grants` grants, with the command and the
/// lines that grant them.
pub(crate) fn write_missing(
    out: &mut impl Write,
    manifest: &Manifest,
    grants: &WrittenGrants,
    loaded: &Config,
) -> Result<(), Error> {
    let name = &manifest.name;
    let mut missing_options: Vec<&str> = Vec::new();
    let mut missing_lines = Vec::new();
    for request in &manifest.capabilities {
        let is_configured = grant_in_words(loaded, name, &request.name).is_some();
        if is_configured || is_granted(grants, &request.name) {
            continue;
        }
        // The directories of `files` are the grant of `search` too.
        let is_search = request.name == Capability::Search.name();
        if is_search && manifest.asks_for(Capability::Files).is_some() {
            continue;
        }
        match request.grant_option() {
            Some(option) => missing_options.push(option),
            None => missing_lines.extend(request.grant_line()),
        }
    }
    if missing_options.is_empty() && missing_lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "Some requests are not granted. To grant them, for example:")?;
    if !missing_options.is_empty() {
        writeln!(out, "  toolhold plugin grant {name} {}", missing_options.join(" "))?;
    }
    if !missing_lines.is_empty() {
        let file = neutral_line(&loaded.own_file().to_string());
        writeln!(out, "  and in {file}:\n  [plugins.{name}]")?;
    }
    for line in missing_lines {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

fn is_granted(grants: &WrittenGrants, capability: &str) -> bool {
    match capability {
        "files" | "search" => !grants.directories.is_empty(),
        "http" => !grants.hosts.is_empty(),
        "store" => grants.store_mib.is_some(),
        "index" => grants.index_mib.is_some(),
        "session" => grants.session,
        _ => false,
    }
}
