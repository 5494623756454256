//! The servers in the files of MCP clients.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use berth_clients::{Client, NamedServer, ReadServer, servers};
use berth_core::HostError;
use berth_core::config::Mcp;
use berth_terminal::error::CommandError;

use super::table::fitted;

/// Largest file of a client, in bytes. Some keep their whole history in it.
const LONGEST: u64 = 64 << 20;

/// A server in the file of a client.
pub(super) struct Found {
    /// Its name there.
    pub(super) name: String,
    /// How it is reached, or why it can't be used.
    pub(super) server: ReadServer,
}

/// A client's file and the servers in it. `None`: the client has no such file.
pub(super) fn found(
    client: &Client,
    in_project: bool,
) -> Result<Option<(PathBuf, Vec<Found>)>, CommandError> {
    let path = match (in_project, client.project) {
        (true, None) => return Ok(None),
        (true, Some(_)) => Some(client.project_file().map_err(CommandError::Usage)?),
        (false, _) => client.read_file().map_err(CommandError::Usage)?,
    };
    let Some(path) = path else { return Ok(None) };
    let Some(text) = read(&path)? else { return Ok(None) };
    let wrong = |reason| CommandError::Usage(format!("{}: {reason}", path.display()));
    let all = servers(client, &text).map_err(wrong)?.into_iter();
    let all = all.map(|(name, server)| Found { server: server.and_then(not_berth), name });
    Ok(Some((path.clone(), all.collect())))
}

/// The names that a client's file gives to servers that Berth has now, by their own names there.
///
/// # Errors
///
/// The text isn't in the client's format.
pub fn moved(client: &Client, text: &str, mcp: &Mcp) -> Result<Vec<String>, String> {
    let is_ours = |name: &str, server: &NamedServer| {
        let ours = fitted(name).ok().and_then(|name| mcp.servers.get(&name));
        ours.is_some_and(|ours| match server {
            NamedServer::Program { words, .. } => {
                std::iter::once(&ours.command).chain(&ours.args).eq(words)
            }
            NamedServer::Url { url, .. } => ours.url == *url,
        })
    };
    let all = servers(client, text)?.into_iter();
    let moved =
        all.filter(|(name, server)| server.as_ref().is_ok_and(|server| is_ours(name, server)));
    Ok(moved.map(|(name, _)| name).collect())
}

/// Refuses Berth itself, also by a package runner.
fn not_berth(server: NamedServer) -> ReadServer {
    let is_berth = |word: &String| {
        let name = Path::new(word).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.split(['@', '=']).next() == Some("berth")
    };
    match &server {
        NamedServer::Program { words, .. } if words.iter().take(3).any(is_berth) => {
            Err("it is Berth itself".to_owned())
        }
        _ => Ok(server),
    }
}

/// The text of a file. `None`: it isn't there.
fn read(path: &Path) -> Result<Option<String>, CommandError> {
    let failed = || HostError::io(format!("reading {}", path.display()));
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed()(error).into()),
    };
    let mut text = String::new();
    file.take(LONGEST + 1).read_to_string(&mut text).map_err(failed())?;
    if text.len() as u64 > LONGEST {
        let path = path.display();
        return Err(CommandError::Usage(format!("{path} is larger than {} MiB", LONGEST >> 20)));
    }
    Ok(Some(text))
}
