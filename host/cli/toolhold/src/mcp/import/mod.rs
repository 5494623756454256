//! `toolhold mcp import`: turns the servers of MCP clients into servers of Toolhold.

mod found;
mod moved;
mod table;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use toolhold_core::HostError;
use toolhold_core::config::{self, Config, Folders, Inputs, McpServer, working_directory};
use toolhold_core::text::{counted, cut, neutral, neutral_line};
use toolhold_data_dir::PrivateFolder;
use toolhold_mcp_client::client_files::{CLIENTS, Client, ServerEntry};
use toolhold_mcp_client::{GrantProposal, ProposalContext, proposals, with_proposals};
use toolhold_terminal::error::CommandError;
use toolhold_terminal::exit::Exit;
use toolhold_terminal::style::{FAINT, STRONG};
use toolhold_terminal::{changed_file, nearest::nearest};

use found::{files, read_servers};
use moved::listed;
use table::{ImportContext, ImportError, Imported, import_server, may_hold_credential};

use crate::arguments::servers::ImportArguments;
use crate::mcp::proposed::{make_folders, show_proposals};
use crate::mcp::server_tables;

pub(crate) use found::{is_connected, kept_files};
pub(crate) use moved::{Moved, moved};
pub(crate) use table::{check_address, check_command, is_secret};

/// The folder of the imported secrets, next to `toolhold.toml`.
const SECRETS: &str = "secrets";

/// Runs the command. `file` is the user's `toolhold.toml`.
pub(crate) fn import(
    arguments: &ImportArguments,
    file: &Path,
    folders: &Folders,
    config: &Config,
    confirm: impl Fn(&str) -> Result<bool, CommandError>,
) -> Result<Exit, CommandError> {
    let mut out = anstream::stdout();
    let folder = secrets_beside(file);
    let read = read_all(&mut out, arguments, folders, config, &files(&folder)?)?;
    let mut tables = read.tables;
    let broken = match &read.broken[..] {
        [] => Ok(Exit::Success),
        broken => Err(CommandError::Usage(broken.join("; "))),
    };
    if tables.is_empty() {
        if read.looked > 0 {
            writeln!(out, "There is no server to add.")?;
        } else if broken.is_ok() {
            writeln!(out, "These files don't exist:")?;
            for path in &read.absent {
                writeln!(out, "  {path}")?;
            }
        }
        return broken;
    }
    let shown = neutral_line(&file.display().to_string());
    writeln!(out, "\nTo be added to {shown}:")?;
    let needs = propose(&tables, folders)?;
    for (Imported { name, table, secrets, .. }, needs) in tables.iter().zip(&needs) {
        writeln!(out, "\n{}", neutral(&server_tables::shown(name, table)))?;
        for (secret, _) in secrets {
            writeln!(out, "{FAINT}# the value goes into {SECRETS}/{secret}{FAINT:#}")?;
        }
        if !needs.proposals.is_empty() {
            writeln!(out, "  It seems to need more:")?;
            show_proposals(&mut out, "  ", &needs.before, &needs.granted, &needs.proposals)?;
        }
    }
    let question = format!("Add {}?", counted(tables.len() as u64, "server"));
    if !arguments.yes && !confirm(&question)? {
        writeln!(out, "Nothing was changed.")?;
        return Ok(Exit::Denied);
    }
    let has_proposals = needs.iter().any(|needs| !needs.proposals.is_empty());
    // Others may have written a project's file, so what its arguments name isn't granted unasked.
    let is_granted = has_proposals
        && if arguments.yes {
            !arguments.project
        } else {
            confirm("Grant what the servers seem to need?")?
        };
    if is_granted {
        grant(&mut tables, &needs)?;
    }
    store(file, &folder, &tables)?;
    writeln!(
        out,
        "\nThe servers have what the lines above grant. Add the grants that a server needs \
         beside them, then approve it:"
    )?;
    for Imported { name, .. } in &tables {
        writeln!(out, "  toolhold mcp approve {name}")?;
    }
    broken
}

/// The grants that an imported server seems to need.
struct Needs {
    /// The server as it is imported.
    before: McpServer,
    /// The server with all proposals.
    granted: McpServer,
    proposals: Vec<GrantProposal>,
}

/// Proposes grants for each server.
fn propose(tables: &[Imported], folders: &Folders) -> Result<Vec<Needs>, CommandError> {
    let directory = working_directory()?;
    let variables = ProposalContext::environment();
    let context = ProposalContext { folders, directory: &directory, variables: &variables };
    let mut all = Vec::new();
    for Imported { name, table, .. } in tables {
        let text = server_tables::shown(name, table);
        let before = check_loads(name, &text, folders).map_err(CommandError::usage)?;
        let proposals = proposals(name, &before, &context);
        let granted = with_proposals(&before, &proposals).map_err(CommandError::usage)?;
        all.push(Needs { before, granted, proposals });
    }
    Ok(all)
}

/// Writes what is proposed into the tables.
fn grant(tables: &mut [Imported], needs: &[Needs]) -> Result<(), CommandError> {
    for (Imported { table, .. }, Needs { before, granted, proposals }) in
        tables.iter_mut().zip(needs)
    {
        server_tables::set_keys(table, before, granted).map_err(CommandError::usage)?;
        make_folders(proposals)?;
    }
    Ok(())
}

/// The servers in the files of clients.
#[derive(Default)]
struct Read {
    tables: Vec<Imported>,
    looked: usize,
    /// The files that don't exist.
    absent: Vec<String>,
    /// The files that can't be read, each with the reason.
    broken: Vec<String>,
}

/// Reads the files of clients, and shows their servers. `files`: the existing secret files.
fn read_all(
    out: &mut impl Write,
    arguments: &ImportArguments,
    folders: &Folders,
    config: &Config,
    files: &[String],
) -> Result<Read, CommandError> {
    let clients = match &arguments.client {
        Some(name) => vec![find_client(name)?],
        None => CLIENTS.iter().collect(),
    };
    let mut read = Read::default();
    for client in clients {
        let path = if !arguments.project {
            client.read_file().map_err(CommandError::usage)?
        } else if arguments.client.is_none() && client.project.is_none() {
            None
        } else {
            Some(client.project_file().map_err(CommandError::usage)?)
        };
        let Some(path) = path else { continue };
        let shown = neutral_line(&path.display().to_string());
        let servers = match read_servers(client, &path, arguments.project) {
            Ok(None) => {
                read.absent.push(shown);
                continue;
            }
            Ok(Some(servers)) => servers,
            Err(error) => {
                read.broken.push(format!("{shown}: {error}"));
                continue;
            }
        };
        read.looked += 1;
        writeln!(out, "{STRONG}{}{STRONG:#} {FAINT}{shown}{FAINT:#}", client.title)?;
        for (name, server) in servers {
            let others = &read.tables;
            let context = ImportContext { client: client.title, config, others, files };
            let result = import_checked(&name, server, &context, folders);
            let name = neutral_line(cut(&name, 128));
            match result {
                Ok(imported) => {
                    describe(out, &name, &imported)?;
                    read.tables.push(imported);
                }
                Err(error) => {
                    writeln!(out, "  {name} is left out: {}", neutral_line(&error.to_string()))?;
                }
            }
        }
    }
    Ok(read)
}

/// Makes the table of a client's server, and checks that the configuration loads with it.
fn import_checked(
    name: &str,
    entry: Result<ServerEntry, ImportError>,
    context: &ImportContext<'_>,
    folders: &Folders,
) -> Result<Imported, ImportError> {
    let imported = import_server(name, entry?, context)?;
    let table = server_tables::shown(&imported.name, &imported.table);
    check_loads(&imported.name, &table, folders)?;
    Ok(imported)
}

/// Describes a server that can be imported.
fn describe(out: &mut impl Write, name: &str, imported: &Imported) -> io::Result<()> {
    let is_off = imported.table.contains_key("enabled");
    let state = if is_off { ", disabled there and here" } else { "" };
    writeln!(out, "  {name}{state}")?;
    if !imported.further.is_empty() {
        writeln!(out, "    not imported: {}", listed(&imported.further))?;
    }
    let url = imported.table.get("url").and_then(|url| url.as_str());
    if url.is_some_and(may_hold_credential) {
        writeln!(out, "    the address may contain a credential, and is written unchanged")?;
    }
    Ok(())
}

/// Returns the folder of the secrets of the user's `toolhold.toml`.
fn secrets_beside(file: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new(".")).join(SECRETS)
}

/// Loads a configuration with only this `table` of a server, and returns the server. Otherwise, a
/// variable with an invalid name would make the whole file invalid.
pub(crate) fn check_loads(
    name: &str,
    table: &str,
    folders: &Folders,
) -> Result<McpServer, ImportError> {
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(table.as_bytes())?;
    let inputs = Inputs { file: Some(file.path().to_owned()), ..Inputs::default() };
    let loaded = config::load(folders, &inputs).map_err(ImportError::Configuration)?;
    Ok(loaded.values.mcp.servers.get(name).cloned().unwrap_or_default())
}

/// Finds the client with a name.
pub(crate) fn find_client(name: &str) -> Result<&'static Client, CommandError> {
    CLIENTS.iter().find(|client| client.name == name).ok_or_else(|| {
        let near = nearest(name, CLIENTS.iter().map(|client| client.name));
        let hint = near.map_or_else(
            || "`toolhold connect` lists the known clients".to_owned(),
            |near| format!("did you mean `{near}`?"),
        );
        CommandError::Usage(format!("there is no client `{}`; {hint}", neutral_line(name)))
    })
}

/// Writes the secrets, and then the tables that name them. Existing files aren't replaced. If the
/// tables can't be written, the secrets are removed again.
fn store(file: &Path, folder: &Path, tables: &[Imported]) -> Result<(), CommandError> {
    if tables.iter().all(|imported| imported.secrets.is_empty()) {
        return add_tables(file, tables);
    }
    let private = PrivateFolder::make(folder).map_err(writing(folder, ""))?;
    let mut stored = Vec::new();
    let result = store_secrets(&private, folder, tables, &mut stored)
        .and_then(|()| add_tables(file, tables));
    if result.is_err() {
        for name in stored {
            let _ = private.remove(name);
        }
    }
    result
}

/// Stores the secrets of the tables. `stored`: the names of the created files.
fn store_secrets<'t>(
    private: &PrivateFolder,
    folder: &Path,
    tables: &'t [Imported],
    stored: &mut Vec<&'t str>,
) -> Result<(), CommandError> {
    for (name, value) in tables.iter().flat_map(|imported| &imported.secrets) {
        let new = format!("{name}.new.{}", std::process::id());
        private.put(&new, value.as_bytes()).map_err(writing(folder, name))?;
        // This refuses a name that was taken meanwhile.
        if let Err(error) = private.rename(&new, name) {
            let _ = private.remove(&new);
            return Err(writing(folder, name)(error).into());
        }
        stored.push(name);
    }
    Ok(())
}

fn add_tables(file: &Path, tables: &[Imported]) -> Result<(), CommandError> {
    changed_file::change(file, false, |text| {
        let tables = tables.iter().map(|imported| (imported.name.as_str(), &imported.table));
        server_tables::add_tables(text, tables)
    })
    .map(drop)
}

fn writing(folder: &Path, name: &str) -> impl FnOnce(io::Error) -> HostError {
    HostError::io(format!("writing {}", folder.join(name).display()))
}
