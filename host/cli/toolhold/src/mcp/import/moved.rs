//! Finds the servers in an MCP client's file that Toolhold has now, so that they can be taken out
//! there, and hides credentials in the shown difference.

use std::path::Path;

use toolhold_core::config::{Config, Folders, McpServer, dotted_name};
use toolhold_core::text::neutral_line;
use toolhold_mcp_client::client_files::{NamedServer, ReadServer, ServerEntry};
use toolhold_net::read;
use toolhold_redaction::{Keys, text};

use super::table::{credentials, fit_name};

/// The mark in place of a credential.
const MARK: &str = "[REDACTED:secret]";

/// The servers in a client's file that Toolhold has now.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// The servers that can be taken out, by their names there.
    pub(crate) names: Vec<String>,
    /// Notes for a person: the servers that stay, and the settings that are lost.
    pub(crate) notes: Vec<String>,
    /// The credentials of all servers in the file.
    credentials: Vec<String>,
}

impl Moved {
    /// The difference between two texts of the file, without credentials.
    pub(crate) fn hide(&self, diff: &str) -> String {
        let mut shown = diff.to_owned();
        for credential in &self.credentials {
            let json = serde_json::Value::String(credential.clone()).to_string();
            shown = shown.replace(&json, &format!("\"{MARK}\""));
            shown = shown.replace(&format!("'{credential}'"), &format!("'{MARK}'"));
        }
        text(&shown, Keys::Text).into_owned()
    }
}

/// Looks for the servers of the configuration among those of a client's file. Without one, no
/// server is found. Blocks: secrets are compared.
pub(crate) fn moved(
    servers: Vec<(String, ReadServer)>,
    config: Option<(&Config, &Folders)>,
) -> Moved {
    let mut moved = Moved::default();
    for (own_name, entry) in servers {
        let Ok(entry) = entry else { continue };
        let found = credentials(&entry.server).into_iter();
        moved.credentials.extend(found.map(|(_, prefix, value)| format!("{prefix}{value}")));
        let Some((config, folders)) = config else { continue };
        let Ok(name) = fit_name(&own_name) else { continue };
        let Some(ours) = config.values.mcp.servers.get(&name) else { continue };
        if !is_same(ours, &entry.server) {
            continue;
        }
        let shown = neutral_line(&own_name);
        let missing = missing(&name, ours, &entry, config, folders);
        if !missing.is_empty() {
            let missing = listed(&missing);
            moved.notes.push(format!(
                "`{shown}` stays in the file: [mcp.servers.{name}] doesn't have the same {missing}"
            ));
            continue;
        }
        if !entry.further.is_empty() {
            let further = listed(&entry.further);
            moved.notes.push(format!(
                "`{shown}` is removed, with settings that Toolhold didn't import: {further}"
            ));
        }
        moved.names.push(own_name);
    }
    moved
}

fn is_same(ours: &McpServer, theirs: &NamedServer) -> bool {
    match theirs {
        NamedServer::Program { words, .. } => {
            std::iter::once(&ours.command).chain(&ours.args).eq(words)
        }
        NamedServer::Url { url, .. } => ours.url == *url,
    }
}

/// The variables and headers of a client's server that would be lost with it.
fn missing(
    name: &str,
    ours: &McpServer,
    entry: &ServerEntry,
    config: &Config,
    folders: &Folders,
) -> Vec<String> {
    let table = format!("mcp.servers.{name}.secrets");
    let credentials = credentials(&entry.server);
    let (pairs, token) = match &entry.server {
        NamedServer::Program { variables, .. } => (variables, None),
        NamedServer::Url { headers, token_variable, .. } => (headers, token_variable.as_ref()),
    };
    let mut missing = Vec::new();
    for name in pairs.keys() {
        let is_known = match credentials.iter().find(|(credential, ..)| credential == name) {
            Some((_, _, value)) => has_value(ours, &table, value, config, folders),
            None => has_name(ours, &entry.server, name),
        };
        if !is_known {
            missing.push(name.clone());
        }
    }
    if ours.secrets.is_empty() {
        missing.extend(token.cloned());
    }
    missing
}

/// Checks whether a secret of our server has this value. `table` is the key of all its secrets.
fn has_value(
    ours: &McpServer,
    table: &str,
    value: &str,
    config: &Config,
    folders: &Folders,
) -> bool {
    for (secret, from) in &ours.secrets {
        // Any other source is a program, which isn't run for a comparison.
        let is_stored = from.env.is_some() || !from.file.is_empty();
        let key = format!("{table}.{}", dotted_name(secret));
        if is_stored
            && let Ok(stored) = read(&config.source_of(&key, from, folders, Path::new("/")))
            && stored.expose() == value.trim_end_matches(['\r', '\n'])
        {
            return true;
        }
    }
    false
}

/// Checks whether our server gets a variable or a header with this name.
fn has_name(ours: &McpServer, theirs: &NamedServer, name: &str) -> bool {
    match theirs {
        NamedServer::Program { .. } => {
            ours.variables.contains_key(name)
                || ours.secrets.contains_key(name)
                || ours.env.iter().any(|known| known.as_str() == name)
        }
        NamedServer::Url { .. } => {
            ours.headers.keys().any(|header| header.eq_ignore_ascii_case(name))
                || ours.secrets.values().any(|secret| {
                    let header = secret.header.as_ref().map_or("Authorization", |it| it.as_str());
                    header.eq_ignore_ascii_case(name)
                })
        }
    }
}

/// Names for people.
pub(super) fn listed(names: &[String]) -> String {
    let names = names.iter().map(|name| format!("`{}`", neutral_line(name)));
    names.collect::<Vec<_>>().join(", ")
}
