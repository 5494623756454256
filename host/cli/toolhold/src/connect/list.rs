//! Lists the known MCP clients.

use std::io::Write;

use serde_json::{Value, json};
use toolhold_core::NAME;
use toolhold_mcp_client::client_files::{CLIENTS, Client};
use toolhold_terminal::table::Table;

use super::server::find_program;
use crate::error::Error;
use crate::exit::Exit;
use crate::mcp::is_connected;
use crate::shown;
use crate::style::GOOD;

pub(crate) struct FoundClient {
    pub(crate) client: &'static Client,
    pub(crate) is_found: bool,
    pub(crate) has_settings: bool,
    /// Whether the user's or the project's settings of the client name Toolhold.
    pub(crate) is_connected: bool,
}

/// Checks for each known client whether it is installed and connected.
pub(crate) fn found_clients() -> Result<Vec<FoundClient>, Error> {
    let mut all = Vec::new();
    for client in &CLIENTS {
        let in_project = false;
        let settings = client.settings_file(in_project).map_err(Error::usage)?;
        let has_program = client.program.and_then(find_program).is_some();
        let has_settings = settings.parent().is_some_and(|folder| folder.is_dir());
        let mut client_files = Vec::new();
        if let Some(user_file) = client.read_file().map_err(Error::usage)? {
            client_files.push(user_file);
        }
        if client.project.is_some() {
            client_files.push(client.project_file().map_err(Error::usage)?);
        }
        let is_connected = client_files.iter().any(|file| is_connected(client, file, NAME));
        all.push(FoundClient {
            client,
            is_found: has_program || has_settings,
            has_settings,
            is_connected,
        });
    }
    Ok(all)
}

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

    let mut table = Table::new(["CLIENT", "NAME", "STATE", "HTTP", "PROJECT", "FILE"], &[]);
    for FoundClient { client, is_found, is_connected, .. } in &all {
        let state = match (is_connected, is_found) {
            (true, _) => "connected",
            (false, true) => "not connected",
            (false, false) => "not found",
        };
        let user = match client.user_file().map_err(Error::usage)? {
            Some(file) => shown::path(&file),
            None => format!("set by `{} mcp add`", client.program.unwrap_or(client.name)),
        };
        let http = if client.takes_http() { "yes" } else { "no" };
        table.row([
            client.name.to_owned(),
            client.title.to_owned(),
            state.to_owned(),
            http.to_owned(),
            client.project.unwrap_or("-").to_owned(),
            user,
        ]);
        if *is_connected {
            table.colour(2, GOOD);
        }
    }
    table.print(&mut anstream::stdout().lock())?;
    Ok(Exit::Success)
}
