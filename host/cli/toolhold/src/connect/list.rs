//! Lists the known MCP clients: which are on this machine, and which are connected.

use std::io::Write;

use serde_json::{Value, json};
use toolhold_core::NAME;
use toolhold_mcp_client::client_files::{CLIENTS, Client};

use super::server::find_program;
use crate::error::Error;
use crate::exit::Exit;
use crate::mcp::is_connected;
use crate::shown;
use crate::style::{FAINT, STRONG};

/// The state of a client.
pub(crate) struct FoundClient {
    pub(crate) client: &'static Client,
    /// Whether the client is on this machine.
    pub(crate) is_found: bool,
    /// Whether the folder of the client's settings exists.
    pub(crate) has_settings: bool,
    /// Whether the user's file, or that of the project, names Toolhold.
    pub(crate) is_connected: bool,
}

/// Returns the state of each known client.
///
/// # Errors
///
/// The folder of the user's files isn't known.
pub(crate) fn found_clients() -> Result<Vec<FoundClient>, Error> {
    let mut all = Vec::new();
    for client in &CLIENTS {
        let settings = client.settings_file(false).map_err(Error::usage)?;
        let has_program = client.program.and_then(find_program).is_some();
        let has_settings = settings.parent().is_some_and(|folder| folder.is_dir());
        let user = client.read_file().map_err(Error::usage)?;
        let mut files: Vec<_> = user.into_iter().collect();
        if client.project.is_some() {
            files.push(client.project_file().map_err(Error::usage)?);
        }
        let is_connected = files.iter().any(|file| is_connected(client, file, NAME));
        all.push(FoundClient {
            client,
            is_found: has_program || has_settings,
            has_settings,
            is_connected,
        });
    }
    Ok(all)
}

/// Prints the clients and their files.
pub(super) fn list(as_json: bool) -> Result<Exit, Error> {
    let all = found_clients()?;
    if as_json {
        let mut clients = Vec::new();
        for FoundClient { client, is_found, is_connected, .. } in &all {
            let user = client.user_file().map_err(Error::usage)?;
            clients.push(json!({
                "client": client.name,
                "title": client.title,
                "found": is_found,
                "connected": is_connected,
                "user": user,
                "project": client.project,
                "http": client.takes_http(),
            }));
        }
        writeln!(std::io::stdout().lock(), "{:#}", Value::Array(clients))?;
        return Ok(Exit::Success);
    }

    let mut out = anstream::stdout().lock();
    writeln!(out, "{FAINT}{:15} {:15} {:13} file{FAINT:#}", "client", "name", "state")?;
    for FoundClient { client, is_found, is_connected, .. } in &all {
        let state = match (is_connected, is_found) {
            (true, _) => "connected",
            (false, true) => "not connected",
            (false, false) => "not found",
        };
        let user = match client.user_file().map_err(Error::usage)? {
            Some(file) => shown::path(&file),
            None => "by its own command".to_owned(),
        };
        let project = match client.project {
            Some(file) => format!("; --project: {file}"),
            None => String::new(),
        };
        let http = if client.takes_http() { "" } else { "; no --http" };
        writeln!(
            out,
            "{STRONG}{:15}{STRONG:#} {:15} {state:13} {FAINT}{user}{project}{http}{FAINT:#}",
            client.name, client.title
        )?;
    }
    Ok(Exit::Success)
}
