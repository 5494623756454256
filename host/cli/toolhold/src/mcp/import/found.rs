//! Reads the servers from an MCP client's file for `toolhold mcp import`.

use std::io::{self, ErrorKind};
use std::path::Path;

use thiserror::Error;
use toolhold_core::text::neutral_line;
use toolhold_core::{HostError, NAME};
use toolhold_mcp_client::client_files::{
    CLIENTS, Client, ClientFileError, NamedServer, ReadServer, ServerEntry, servers,
};
use toolhold_terminal::error::CommandError;

use super::table::ImportError;

/// The most bytes of a client's file. Some clients keep their whole history in the file.
const MAX_FILE: u64 = 64 << 20;

/// The most servers in a file. A person can't check more.
const MAX_SERVERS: usize = 200;

#[derive(Debug, Error)]
pub(super) enum ImportFileError {
    #[error(
        "the file or its folder is a link, which may lead to one of your own files; replace the \
         link by a copy"
    )]
    Link,
    #[error("the file isn't UTF-8")]
    NotUtf8,
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    #[error(transparent)]
    Format(#[from] ClientFileError),
    #[error("the file names {0} servers; the limit is {MAX_SERVERS}")]
    TooMany(usize),
}

/// The name of a server in a client's file, and its entry or the entry's fault.
pub(super) type FoundServer = (String, Result<ServerEntry, ImportError>);

/// Reads the servers in a client's file. Returns `None` if the file doesn't exist. In a project, a
/// symbolic link in the path is refused, because the project's author could link to a file of the
/// user.
pub(super) fn read_servers(
    client: &Client,
    path: &Path,
    is_of_project: bool,
) -> Result<Option<Vec<FoundServer>>, ImportFileError> {
    // The working directory's path has no links, so every link is in the project.
    if is_of_project && path.ancestors().any(Path::is_symlink) {
        return Err(ImportFileError::Link);
    }
    let Some(text) = read(path)? else { return Ok(None) };
    let all = servers(client, &text)?;
    if all.len() > MAX_SERVERS {
        return Err(ImportFileError::TooMany(all.len()));
    }
    let mut found = Vec::new();
    for (name, server) in all {
        found.push((name, refuse_toolhold(server)));
    }
    Ok(Some(found))
}

/// Returns the titles of clients in which the user has set up servers other than Toolhold. Clients
/// with an unreadable file are skipped.
///
/// # Errors
///
/// Returns an error if the folder of the user's files isn't known.
pub(crate) fn clients_with_servers() -> Result<Vec<&'static str>, CommandError> {
    let mut titles = Vec::new();
    for client in &CLIENTS {
        let Some(path) = client.read_file().map_err(CommandError::usage)? else { continue };
        let is_of_project = false;
        let Ok(Some(servers)) = read_servers(client, &path, is_of_project) else { continue };
        // The entry of Toolhold itself is an error, so it doesn't count.
        let has_other_server = servers.iter().any(|(_, entry)| entry.is_ok());
        if has_other_server {
            titles.push(client.title);
        }
    }
    Ok(titles)
}

/// Checks whether a client's file has a server called `name`, or a server that starts Toolhold. An
/// unreadable file has no servers.
pub(crate) fn is_connected(client: &Client, path: &Path, name: &str) -> bool {
    let is_of_project = false;
    let Ok(Some(servers)) = read_servers(client, path, is_of_project) else { return false };
    for (server_name, entry) in &servers {
        if server_name == name || matches!(entry, Err(ImportError::Toolhold)) {
            return true;
        }
    }
    false
}

/// Returns the names of the files in a folder. Names that aren't UTF-8 are skipped, because
/// Toolhold's own file names are UTF-8.
pub(super) fn files(folder: &Path) -> Result<Vec<String>, HostError> {
    let entries = match folder.read_dir() {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unread(folder, error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| unread(folder, error))?;
        names.extend(entry.file_name().into_string());
    }
    Ok(names)
}

fn unread(folder: &Path, error: io::Error) -> HostError {
    HostError::io(format!("looking into {}", folder.display()))(error)
}

/// Returns the secret files that still exist. `secrets` are their paths as `file`, a
/// `toolhold.toml`, names them.
pub(crate) fn kept_files(file: &Path, secrets: &[String]) -> Vec<String> {
    // Relative paths start at the folder of `file`.
    let folder = file.parent().unwrap_or(Path::new("."));
    let mut existing = Vec::new();
    for secret in secrets {
        let path = match secret.strip_prefix("~/") {
            Some(below_home) => std::env::home_dir().unwrap_or_default().join(below_home),
            None => folder.join(secret),
        };
        if path.symlink_metadata().is_ok() {
            existing.push(neutral_line(&path.display().to_string()));
        }
    }
    existing
}

/// The number of words up to the program, with a package runner and an option, as in `npx -y
/// toolhold`.
const WORDS_UP_TO_PROGRAM: usize = 3;

/// Returns the entry of a server, unless the entry starts Toolhold.
fn refuse_toolhold(entry: ReadServer) -> Result<ServerEntry, ImportError> {
    let entry = entry?;
    if let NamedServer::Program { words, .. } = &entry.server
        && words.iter().take(WORDS_UP_TO_PROGRAM).any(|word| is_toolhold(word))
    {
        return Err(ImportError::Toolhold);
    }
    Ok(entry)
}

fn is_toolhold(word: &str) -> bool {
    let name = Path::new(word).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.split(['@', '=']).next() == Some(NAME)
}

/// Reads the text of a client's file, or returns `None` if the file doesn't exist.
fn read(path: &Path) -> Result<Option<String>, ImportFileError> {
    match toolhold_data_dir::read_regular(path, MAX_FILE) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| ImportFileError::NotUtf8),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}
