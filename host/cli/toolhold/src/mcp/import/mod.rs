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

pub(crate) use found::{clients_with_servers, is_connected, kept_files};
pub(crate) use moved::{Moved, moved};
pub(crate) use table::{check_address, check_command, is_secret};

/// The folder of imported secrets, next to `toolhold.toml`.
const SECRETS: &str = "secrets";

/// The result of an import.
#[derive(Debug, Default)]
pub(crate) struct ImportOutcome {
    /// Whether the person refused the import.
    is_declined: bool,
    /// The written files with secrets.
    pub(crate) secrets: Vec<PathBuf>,
    /// The folders that were made for secrets and for servers.
    pub(crate) folders: Vec<PathBuf>,
    /// The clients' files that can't be read, with the reasons.
    pub(crate) broken: Vec<String>,
}

impl ImportOutcome {
    /// Returns the exit code of `toolhold mcp import`.
    ///
    /// # Errors
    ///
    /// Returns an error if a client's file couldn't be read.
    pub(crate) fn into_exit(self) -> Result<Exit, CommandError> {
        if self.is_declined {
            return Ok(Exit::Denied);
        }
        if self.broken.is_empty() {
            Ok(Exit::Success)
        } else {
            Err(CommandError::Usage(self.broken.join("; ")))
        }
    }
}

pub(crate) fn import(
    arguments: &ImportArguments,
    file: &Path,
    folders: &Folders,
    config: &Config,
    confirm: impl Fn(&str) -> Result<bool, CommandError>,
) -> Result<ImportOutcome, CommandError> {
    let mut out = anstream::stdout();
    let folder = secrets_beside(file);
    let found = read_all(&mut out, arguments, folders, config, &files(&folder)?)?;
    let mut tables = found.tables;
    let mut outcome = ImportOutcome { broken: found.broken, ..ImportOutcome::default() };
    if tables.is_empty() {
        if found.read_files > 0 {
            writeln!(out, "There is no server to add.")?;
        } else if outcome.broken.is_empty() {
            writeln!(out, "These files don't exist:")?;
            for path in &found.absent {
                writeln!(out, "  {path}")?;
            }
        }
        return Ok(outcome);
    }
    let shown = neutral_line(&file.display().to_string());
    writeln!(out, "\nThese lines will be added to {shown}:")?;
    let needs = propose(&tables, folders)?;
    for (Imported { name, table, secrets, .. }, needs) in tables.iter().zip(&needs) {
        writeln!(out, "\n{}", neutral(&server_tables::shown(name, table)))?;
        for (secret, _) in secrets {
            writeln!(out, "{FAINT}# the value goes into {SECRETS}/{secret}{FAINT:#}")?;
        }
        if !needs.proposals.is_empty() {
            writeln!(out, "  The server seems to need more grants:")?;
            show_proposals(&mut out, "  ", &needs.before, &needs.granted, &needs.proposals)?;
        }
    }
    let question = format!("Add {}?", counted(tables.len() as u64, "server"));
    if !arguments.yes && !confirm(&question)? {
        writeln!(out, "Nothing was changed.")?;
        outcome.is_declined = true;
        return Ok(outcome);
    }
    let has_proposals = needs.iter().any(|needs| !needs.proposals.is_empty());
    // Other people may have written the project's file. Grants for its servers always need the
    // person's answer, even with `--yes`.
    let is_granted = if !has_proposals {
        false
    } else if arguments.yes {
        !arguments.project
    } else {
        confirm("Add the grants that the servers seem to need?")?
    };
    if is_granted {
        outcome.folders = grant(&mut tables, &needs)?;
    }
    store(file, &folder, &tables, &mut outcome)?;
    writeln!(
        out,
        "\nEach server has only the grants of its table. Add the grants that a server still needs, \
         then approve the server:"
    )?;
    for Imported { name, .. } in &tables {
        writeln!(out, "  toolhold mcp approve {name}")?;
    }
    Ok(outcome)
}

/// The grants that a server seems to need.
struct Needs {
    /// The server without proposed grants.
    before: McpServer,
    /// The server with all proposed grants.
    granted: McpServer,
    proposals: Vec<GrantProposal>,
}

/// Proposes for each new server the grants that the server seems to need.
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

/// Writes the proposed grants into the tables, and makes the folders that the servers need. Returns
/// the new folders. `needs` has one element for each table.
fn grant(tables: &mut [Imported], needs: &[Needs]) -> Result<Vec<PathBuf>, CommandError> {
    let mut made_folders = Vec::new();
    for (imported, needed) in tables.iter_mut().zip(needs) {
        server_tables::set_keys(&mut imported.table, &needed.before, &needed.granted)
            .map_err(CommandError::usage)?;
        made_folders.extend(make_folders(&needed.proposals)?);
    }
    Ok(made_folders)
}

/// The content of the clients' files.
#[derive(Default)]
struct ClientServers {
    /// The servers that can be imported.
    tables: Vec<Imported>,
    /// The number of files that could be read.
    read_files: usize,
    /// Files that don't exist.
    absent: Vec<String>,
    /// Files that can't be read, with the reasons.
    broken: Vec<String>,
}

/// Reads the files of the clients, and shows their servers. `secret_files` are the names of the
/// existing secret files, which no new secret file may have.
fn read_all(
    out: &mut impl Write,
    arguments: &ImportArguments,
    folders: &Folders,
    config: &Config,
    secret_files: &[String],
) -> Result<ClientServers, CommandError> {
    let clients = match &arguments.client {
        Some(name) => vec![find_client(name)?],
        None => CLIENTS.iter().collect(),
    };
    let mut found = ClientServers::default();
    for client in clients {
        // If the person names a client that reads no file in projects, `project_file` fails. In a
        // list of all clients, such a client is skipped.
        let is_named = arguments.client.is_some();
        let path = if !arguments.project {
            client.read_file().map_err(CommandError::usage)?
        } else if is_named || client.project.is_some() {
            Some(client.project_file().map_err(CommandError::usage)?)
        } else {
            None
        };
        let Some(path) = path else { continue };
        let shown = neutral_line(&path.display().to_string());
        let servers = match read_servers(client, &path, arguments.project) {
            Ok(None) => {
                found.absent.push(shown);
                continue;
            }
            Ok(Some(servers)) => servers,
            Err(error) => {
                found.broken.push(format!("{shown}: {error}"));
                continue;
            }
        };
        found.read_files += 1;
        writeln!(out, "{STRONG}{}{STRONG:#} {FAINT}{shown}{FAINT:#}", client.title)?;
        for (name, server) in servers {
            let context = ImportContext {
                client: client.title,
                config,
                others: &found.tables,
                files: secret_files,
            };
            let result = import_checked(&name, server, &context, folders);
            let name = neutral_line(cut(&name, 128));
            match result {
                Ok(imported) => {
                    describe(out, &name, &imported)?;
                    found.tables.push(imported);
                }
                Err(error) => {
                    writeln!(out, "  {name} is left out: {}", neutral_line(&error.to_string()))?;
                }
            }
        }
    }
    Ok(found)
}

/// Makes a table from a client's entry, and checks that a configuration with the table loads.
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

fn describe(out: &mut impl Write, name: &str, imported: &Imported) -> io::Result<()> {
    // Only a server that is disabled in the client has the key `enabled`.
    let is_disabled = imported.table.contains_key("enabled");
    let state = if is_disabled { ", disabled in the client and here" } else { "" };
    writeln!(out, "  {name}{state}")?;
    if !imported.further.is_empty() {
        writeln!(out, "    not imported: {}", listed(&imported.further))?;
    }
    let url = imported.table.get("url").and_then(|url| url.as_str());
    if url.is_some_and(may_hold_credential) {
        writeln!(out, "    the address is copied unchanged, and may contain a credential")?;
    }
    Ok(())
}

fn secrets_beside(file: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new(".")).join(SECRETS)
}

/// Loads a configuration with only this `table`, and returns the server `name`. A table must be
/// checked before it is written into the user's file.
pub(crate) fn check_loads(
    name: &str,
    table: &str,
    folders: &Folders,
) -> Result<McpServer, ImportError> {
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(table.as_bytes())?;
    let inputs = Inputs { file: Some(file.path().to_owned()), ..Inputs::default() };
    let loaded = config::load(folders, &inputs).map_err(ImportError::Configuration)?;
    // The default is never used, because the table contains the server.
    Ok(loaded.values.mcp.servers.get(name).cloned().unwrap_or_default())
}

pub(crate) fn find_client(name: &str) -> Result<&'static Client, CommandError> {
    CLIENTS.iter().find(|client| client.name == name).ok_or_else(|| {
        let near = nearest(name, CLIENTS.iter().map(|client| client.name));
        let hint = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`toolhold connect` lists the known clients".to_owned(),
        };
        CommandError::Usage(format!("there is no client `{}`; {hint}", neutral_line(name)))
    })
}

/// Writes the secrets into `folder`, and then the tables into `file`. If the tables can't be
/// written, the secrets are removed again. Adds the new secrets and folders to the outcome.
fn store(
    file: &Path,
    folder: &Path,
    tables: &[Imported],
    outcome: &mut ImportOutcome,
) -> Result<(), CommandError> {
    let has_secrets = tables.iter().any(|imported| !imported.secrets.is_empty());
    if !has_secrets {
        return add_tables(file, tables);
    }
    if !folder.is_dir() {
        outcome.folders.push(folder.to_owned());
    }
    let private = PrivateFolder::make(folder).map_err(writing(folder, ""))?;
    let mut stored = Vec::new();
    let mut result = store_secrets(&private, folder, tables, &mut stored);
    if result.is_ok() {
        result = add_tables(file, tables);
    }
    if result.is_ok() {
        outcome.secrets = stored.iter().map(|name| folder.join(name)).collect();
        return Ok(());
    }
    for name in stored {
        // An error of the removal matters less than the result's error.
        let _ = private.remove(name);
    }
    result
}

/// Writes each secret into a new file. Adds the names of the files to `stored`, even if a later
/// file can't be written.
fn store_secrets<'t>(
    private: &PrivateFolder,
    folder: &Path,
    tables: &'t [Imported],
    stored: &mut Vec<&'t str>,
) -> Result<(), CommandError> {
    for (name, value) in tables.iter().flat_map(|imported| &imported.secrets) {
        let temporary = format!("{name}.new.{}", std::process::id());
        private.put(&temporary, value.as_bytes()).map_err(writing(folder, name))?;
        // `rename` fails if another process has created the file.
        if let Err(error) = private.rename(&temporary, name) {
            let _ = private.remove(&temporary);
            return Err(writing(folder, name)(error).into());
        }
        stored.push(name);
    }
    Ok(())
}

fn add_tables(file: &Path, tables: &[Imported]) -> Result<(), CommandError> {
    let in_project = false;
    changed_file::change(file, in_project, |text| {
        let tables = tables.iter().map(|imported| (imported.name.as_str(), &imported.table));
        server_tables::add_tables(text, tables)
    })?;
    Ok(())
}

fn writing(folder: &Path, name: &str) -> impl FnOnce(io::Error) -> HostError {
    HostError::io(format!("writing {}", folder.join(name).display()))
}
