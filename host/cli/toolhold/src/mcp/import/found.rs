//! Reads the servers in the file of an MCP client for `toolhold mcp import`, and says why one can't
//! be used.

use std::io::ErrorKind;
use std::path::Path;

use toolhold_core::text::neutral_line;
use toolhold_core::{HostError, NAME};
use toolhold_mcp_client::client_files::{Client, NamedServer, ReadServer, ServerEntry, servers};

/// Largest file of a client, in bytes. Some keep their whole history in it.
const LONGEST: u64 = 64 << 20;

/// Servers of one file. Nobody reads more before they are imported.
const MOST: usize = 200;

/// The servers of a client's file by their names there: how each is reached, or why it can't be
/// used. `None`: there is no such file. `is_of_project`: others may have written it, so a link in
/// its place isn't followed.
pub(super) fn found(
    client: &Client,
    path: &Path,
    is_of_project: bool,
) -> Result<Option<Vec<(String, ReadServer)>>, String> {
    if is_of_project && path.is_symlink() {
        return Err(
            "it isn't a regular file but a link, which may lead to a file of yours: copy the file"
                .to_owned(),
        );
    }
    let Some(text) = read(path)? else { return Ok(None) };
    let all = servers(client, &text)?;
    if all.len() > MOST {
        return Err(format!("it names {} servers, and the limit is {MOST}", all.len()));
    }
    let all = all.into_iter();
    Ok(Some(all.map(|(name, server)| (name, server.and_then(not_toolhold))).collect()))
}

/// The names of the files in a folder.
pub(super) fn files(folder: &Path) -> Result<Vec<String>, HostError> {
    let failed = || HostError::io(format!("looking into {}", folder.display()));
    let entries = match folder.read_dir() {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed()(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        // Toolhold gives none a name that isn't text.
        names.extend(entry.map_err(failed())?.file_name().into_string());
    }
    Ok(names)
}

/// The files of secrets that are there, for people. `file`: the `toolhold.toml` that names them.
pub(crate) fn kept_files(file: &Path, secrets: &[String]) -> Vec<String> {
    let beside = file.parent().unwrap_or(Path::new("."));
    let path = |secret: &String| match secret.strip_prefix("~/") {
        Some(below) => std::env::home_dir().unwrap_or_default().join(below),
        None => beside.join(secret),
    };
    let there = secrets.iter().map(path).filter(|path| path.symlink_metadata().is_ok());
    there.map(|path| neutral_line(&path.display().to_string())).collect()
}

/// Refuses Toolhold itself, also by a package runner.
fn not_toolhold(entry: ServerEntry) -> ReadServer {
    let is_toolhold = |word: &String| {
        let name = Path::new(word).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.split(['@', '=']).next() == Some(NAME)
    };
    match &entry.server {
        NamedServer::Program { words, .. } if words.iter().take(3).any(is_toolhold) => {
            Err("it is Toolhold itself".to_owned())
        }
        _ => Ok(entry),
    }
}

/// The text of a file. `None`: it isn't there.
fn read(path: &Path) -> Result<Option<String>, String> {
    match toolhold_data_dir::read_regular(path, LONGEST) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| "it isn't UTF-8".to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}
