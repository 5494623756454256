//! The grants of a plugin: from the command line, from questions, and in the configuration.

use std::io::{BufRead, Write};
use std::path::Path;

use toolhold_core::config::insert::{self, WrittenGrants};
use toolhold_core::config::{Config, Folders, PathAccess};
use toolhold_core::text::neutral_line;
use toolhold_core::{Capability, CapabilityRequest, Manifest, PluginInfo, grant_in_words};

use crate::arguments::install::GrantArguments;
use crate::error::Error;
use crate::exit::Exit;
use crate::granted_folder::{FolderError, real_folder};
use crate::options::Options;
use crate::plugin::Setting;
use crate::style::STRONG;
use crate::{allow, ask};

/// The storage in MiB that the question at the terminal offers.
const USUAL_STORE: u32 = 16;

/// Writes more grants of a plugin into the configuration. If the command line has no grants, lists
/// the existing and the missing grants.
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
    let no_grants = WrittenGrants::default();
    if grants == no_grants {
        show_granted(&mut out, manifest, &setting.loaded)?;
        write_missing(&mut out, candidate.info(), &grants, &setting.loaded)?;
        return Ok(Exit::Success);
    }
    check_requested(&grants, manifest)?;
    narrow(&mut grants, manifest);
    let folders = allow::folders_of_own_file(options)?;
    insert::plugin(&folders, name, &grants)?;
    write_granted(&mut out, name, &grants, &folders)?;
    Ok(Exit::Success)
}

pub(crate) fn from_arguments(
    arguments: &GrantArguments,
    setting: &Setting,
) -> Result<WrittenGrants, Error> {
    let mut directories = Vec::new();
    for path in &arguments.allow_read {
        let path = directory(path, setting).map_err(Error::usage)?;
        directories.push((path, PathAccess::Read));
    }
    for path in &arguments.allow_path {
        let path = directory(path, setting).map_err(Error::usage)?;
        directories.push((path, PathAccess::ReadWrite));
    }
    Ok(WrittenGrants {
        directories,
        hosts: arguments.allow_host.clone(),
        store_mib: arguments.store,
        index_mib: arguments.index,
        session: arguments.session,
    })
}

fn directory(path: &Path, setting: &Setting) -> Result<String, FolderError> {
    real_folder(path, &setting.folders, &setting.directory)
}

/// Refuses a grant that the plugin doesn't request, because such a grant has no effect now, but
/// could get an effect by an update of the plugin.
pub(crate) fn check_requested(grants: &WrittenGrants, manifest: &Manifest) -> Result<(), Error> {
    for capability in Capability::ALL {
        let is_requested = match capability {
            // Both capabilities use granted directories.
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

/// Narrows the granted directories to reading, unless the plugin requests to write files. A request
/// for `search` doesn't include writing.
pub(crate) fn narrow(grants: &mut WrittenGrants, manifest: &Manifest) {
    let request = manifest.asks_for(Capability::Files);
    let asks_to_write = request.is_some_and(|request| !request.is_read_only());
    if asks_to_write {
        return;
    }
    for (_, access) in &mut grants.directories {
        *access = PathAccess::Read;
    }
}

/// Asks for requested grants that are neither in `grants` nor in the configuration.
pub(crate) fn ask(
    dialogue: &mut ask::Dialogue<impl BufRead, impl Write>,
    manifest: &Manifest,
    grants: &mut WrittenGrants,
    setting: &Setting,
) -> Result<(), Error> {
    let default_answer = false;
    if let Some(request) = manifest.asks_for(Capability::Files)
        && grants.directories.is_empty()
        && !is_configured(setting, manifest, Capability::Files)
    {
        grants.directories = ask_for_directories(dialogue, request, setting)?;
    }
    if manifest.asks_for(Capability::Http).is_some()
        && grants.hosts.is_empty()
        && !is_configured(setting, manifest, Capability::Http)
    {
        let answer =
            dialogue.ask("Hosts that the plugin may reach, separated by commas [Enter: none]:")?;
        grants.hosts = items(&answer).map(str::to_owned).collect();
    }
    if manifest.asks_for(Capability::Store).is_some()
        && grants.store_mib.is_none()
        && !is_configured(setting, manifest, Capability::Store)
    {
        let question = format!("May the plugin store up to {USUAL_STORE} MiB of data?");
        if dialogue.yes_or_no(&question, default_answer)? {
            grants.store_mib = Some(USUAL_STORE);
        }
    }
    if manifest.asks_for(Capability::Index).is_some()
        && grants.index_mib.is_none()
        && !is_configured(setting, manifest, Capability::Index)
    {
        let question =
            format!("May the plugin store up to {USUAL_STORE} MiB of documents for search?");
        if dialogue.yes_or_no(&question, default_answer)? {
            grants.index_mib = Some(USUAL_STORE);
        }
    }
    if manifest.asks_for(Capability::Session).is_some()
        && !grants.session
        && !is_configured(setting, manifest, Capability::Session)
    {
        grants.session = dialogue.yes_or_no(
            "May the plugin keep its memory between the calls of a session?",
            default_answer,
        )?;
    }
    Ok(())
}

fn is_configured(setting: &Setting, manifest: &Manifest, capability: Capability) -> bool {
    grant_in_words(&setting.loaded, &manifest.name, capability.name()).is_some()
}

/// Asks for directories until all of them can be granted.
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
        match directories(&answer, access, setting) {
            Ok(directories) => return Ok(directories),
            Err(error) => dialogue.print(&format!("  {}", neutral_line(&error.to_string())))?,
        }
    }
}

fn directories(
    list: &str,
    access: PathAccess,
    setting: &Setting,
) -> Result<Vec<(String, PathAccess)>, FolderError> {
    let mut directories = Vec::new();
    for item in items(list) {
        directories.push((directory(Path::new(item), setting)?, access));
    }
    Ok(directories)
}

fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// Shows the grants that the configuration already has. An earlier plugin with the same name may
/// have got them.
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

/// Prints the grants that were just written.
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

/// Writes the requests without grants, with the command and the lines that grant them.
pub(crate) fn write_missing(
    out: &mut impl Write,
    info: &PluginInfo,
    grants: &WrittenGrants,
    loaded: &Config,
) -> Result<(), Error> {
    let manifest = &info.manifest;
    let name = &manifest.name;
    let mut missing_options: Vec<&str> = Vec::new();
    let mut missing_lines = Vec::new();
    let mut needed = Vec::new();
    for request in &manifest.capabilities {
        let is_configured = grant_in_words(loaded, name, &request.name).is_some();
        if is_configured || is_granted(grants, &request.name) {
            continue;
        }
        // `search` uses the directories of `files`.
        let is_search = request.name == Capability::Search.name();
        if is_search && manifest.asks_for(Capability::Files).is_some() {
            continue;
        }
        if is_needed_to_load(&request.name, info) {
            needed.push(format!("`{}`", request.name));
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
    if !needed.is_empty() {
        writeln!(out, "Without {}, the plugin doesn't load.", needed.join(" and "))?;
    }
    Ok(())
}

/// Checks whether the component can't be loaded without a grant of the capability, because it
/// imports interfaces that only exist with the grant.
fn is_needed_to_load(capability: &str, info: &PluginInfo) -> bool {
    let Some(capability) = Capability::named(capability) else { return false };
    // The interfaces of files and search always exist.
    if matches!(capability, Capability::Files | Capability::Search) {
        return false;
    }
    info.imports.iter().any(|import| {
        // The name may have a version, as in `NAME@1.0.0`.
        let interface = match import.split_once('@') {
            Some((name, _)) => name,
            None => import.as_str(),
        };
        capability.admits(interface)
    })
}

fn is_granted(grants: &WrittenGrants, capability: &str) -> bool {
    match capability {
        "files" | "search" => !grants.directories.is_empty(),
        "http" => !grants.hosts.is_empty(),
        "store" => grants.store_mib.is_some(),
        "index" => grants.index_mib.is_some(),
        "session" => grants.session,
        // Other capabilities have no grants on the command line.
        _ => false,
    }
}
