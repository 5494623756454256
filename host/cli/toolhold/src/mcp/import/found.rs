//! Reads the servers from an MCP client's file for `toolhold mcp import`. For an unusable server,
//! gives the reason.

use std::io::{self, ErrorKind};
use std::path::Path;

use thiserror::Error;
use toolhold_core::text::neutral_line;
use toolhold_core::{HostError, NAME};
use toolhold_mcp_client::client_files::{
    Client, ClientFileError, NamedServer, ReadServer, ServerEntry, servers,
};

use super::table::ImportError;

/// The most bytes of a client's file. Some clients store their whole history in the file.
const LONGEST: u64 = 64 << 20;

/// The most servers of one file. A person can't check more servers before an import.
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

/// Reads the servers of a client's file. Each name has an entry, or the reason why the entry can't
/// be used. Returns `None` if the file doesn't exist. If the file `is_of_project`, links aren't
/// followed, because other people may have written the project.
pub(super) fn read_servers(
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
    let checked = all.into_iter().map(|(name, server)| (name, not_toolhold(server)));
    Ok(Some(checked.collect()))
}

/// Checks whether a client's file connects the client to Toolhold. `name` is the usual name of the
/// server there.
pub(crate) fn is_connected(client: &Client, path: &Path, name: &str) -> bool {
    let Ok(Some(servers)) = read_servers(client, path, false) else { return false };
    servers
        .iter()
        .any(|(server, entry)| server == name || matches!(entry, Err(ImportError::Toolhold)))
}

/// Returns the names of the files in a folder.
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

/// Returns the paths of existing files with secrets, for people. `file` is the `toolhold.toml` that
/// names the files.
pub(crate) fn kept_files(file: &Path, secrets: &[String]) -> Vec<String> {
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

/// Refuses an entry that can't be read, and Toolhold itself, also by a package runner.
fn not_toolhold(entry: ReadServer) -> Result<ServerEntry, ImportError> {
    let entry = entry?;
    // A package runner and its option may come before the name.
    if let NamedServer::Program { words, .. } = &entry.server
        && words.iter().take(3).any(|word| is_toolhold(word))
    {
        return Err(ImportError::Toolhold);
    }
    Ok(entry)
}

fn is_toolhold(word: &str) -> bool {
    let name = Path::new(word).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.split(['@', '=']).next() == Some(NAME)
}

/// Reads the text of a file. Returns `None` if the file doesn't exist.
fn read(path: &Path) -> Result<Option<String>, ImportFileError> {
    match toolhold_data_dir::read_regular(path, LONGEST) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| ImportFileError::NotUtf8),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}
