//! Reads the servers in the file of an MCP client for `toolhold mcp import`, and says why one can't
//! be used.

use std::io::{self, ErrorKind};
use std::path::Path;

use thiserror::Error;
use toolhold_core::text::neutral_line;
use toolhold_core::{HostError, NAME};
use toolhold_mcp_client::client_files::{
    Client, ClientFileError, NamedServer, ReadServer, ServerEntry, servers,
};

use super::table::ImportError;

/// Largest file of a client, in bytes. Some keep their whole history in it.
const LONGEST: u64 = 64 << 20;

/// Servers of one file. Nobody reads more before they are imported.
const MOST: usize = 200;

/// A client's file that can't be read.
#[derive(Debug, Error)]
pub(super) enum ImportFileError {
    #[error(
        "the file is a link, which may lead to one of your own files; replace the link by a copy"
    )]
    Link,
    #[error("the file isn't UTF-8")]
    NotUtf8,
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    #[error(transparent)]
    Format(#[from] ClientFileError),
    #[error("the file names {0} servers; the limit is {MOST}")]
    TooMany(usize),
}

/// The name of a server in a client's file, and its entry.
pub(super) type FoundServer = (String, Result<ServerEntry, ImportError>);

/// The servers of a client's file by their names there: how each is reached, or why it can't be
/// used. `None`: there is no such file. `is_of_project`: others may have written it, so a link in
/// its place isn't followed.
pub(super) fn found(
    client: &Client,
    path: &Path,
    is_of_project: bool,
) -> Result<Option<Vec<FoundServer>>, ImportFileError> {
    if is_of_project && path.is_symlink() {
        return Err(ImportFileError::Link);
    }
    let Some(text) = read(path)? else { return Ok(None) };
    let all = servers(client, &text)?;
    if all.len() > MOST {
        return Err(ImportFileError::TooMany(all.len()));
    }
    let all = all.into_iter();
    Ok(Some(all.map(|(name, server)| (name, not_toolhold(server))).collect()))
}

/// The names of the files in a folder.
pub(super) fn files(folder: &Path) -> Result<Vec<String>, HostError> {
    let entries = match folder.read_dir() {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unread(folder, error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        // Toolhold gives every file a name in UTF-8.
        let entry = entry.map_err(|error| unread(folder, error))?;
        names.extend(entry.file_name().into_string());
    }
    Ok(names)
}

fn unread(folder: &Path, error: io::Error) -> HostError {
    HostError::io(format!("looking into {}", folder.display()))(error)
}

/// The files of secrets that are there, for people. `file`: the `toolhold.toml` that names them.
pub(crate) fn kept_files(file: &Path, secrets: &[String]) -> Vec<String> {
    let beside = file.parent().unwrap_or(Path::new("."));
    let paths = secrets.iter().map(|secret| match secret.strip_prefix("~/") {
        Some(below) => std::env::home_dir().unwrap_or_default().join(below),
        None => beside.join(secret),
    });
    paths
        .filter(|path| path.symlink_metadata().is_ok())
        .map(|path| neutral_line(&path.display().to_string()))
        .collect()
}

/// Refuses an entry that can't be read, and Toolhold itself, also by a package runner.
fn not_toolhold(entry: ReadServer) -> Result<ServerEntry, ImportError> {
    let entry = entry?;
    match &entry.server {
        NamedServer::Program { words, .. }
            if words.iter().take(3).any(|word| is_toolhold(word)) =>
        {
            Err(ImportError::Toolhold)
        }
        _ => Ok(entry),
    }
}

fn is_toolhold(word: &str) -> bool {
    let name = Path::new(word).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.split(['@', '=']).next() == Some(NAME)
}

/// The text of a file. `None`: it isn't there.
fn read(path: &Path) -> Result<Option<String>, ImportFileError> {
    match toolhold_data_dir::read_regular(path, LONGEST) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| ImportFileError::NotUtf8),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}
