//! Finds the servers in an MCP client's file that Toolhold has now, so that they can be removed
//! from the file. Hides credentials in the diff that is shown.

use std::path::Path;

use toolhold_core::config::{Config, Folders, McpServer, dotted_name, fill_in_secrets};
use toolhold_core::text::neutral_line;
use toolhold_mcp_client::client_files::{NamedServer, ReadServer, ServerEntry};
use toolhold_mcp_client::is_approved;
use toolhold_net::read;
use toolhold_redaction::{Keys, text};

use super::table::{credential_in, credentials, fit_name};

/// The mark in place of a credential.
const MARK: &str = "[REDACTED:secret]";

/// The servers in a client's file that Toolhold has now.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// The names of the servers in the client's file that can be removed.
    pub(crate) names: Vec<String>,
    /// Notes for a person about the servers that stay and the settings that are lost.
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

/// Searches a client's file for the servers of the configuration. Blocks, because secrets are
/// compared.
pub(crate) fn moved(
    servers: Vec<(String, ReadServer)>,
    config: Option<(&Config, &Folders)>,
) -> Moved {
    let mut moved = Moved::default();
    for (own_name, entry) in servers {
        let Ok(entry) = entry else { continue };
        let found = credentials(&entry.server).into_iter();
        moved.credentials.extend(found.map(|(_, prefix, value)| format!("{prefix}{value}")));
        if let NamedServer::Program { words, .. } = &entry.server {
            let indices = (1..words.len()).filter(|index| credential_in(words, *index).is_some());
            moved.credentials.extend(indices.map(|index| words[index].clone()));
        }
        let Some((config, folders)) = config else { continue };
        let Ok(name) = fit_name(&own_name) else { continue };
        let Some(ours) = config.values.mcp.servers.get(&name) else { continue };
        let stored = stored_secrets(ours, &name, config, folders);
        if !is_same(ours, &entry.server, &stored) {
            continue;
        }
        let shown = neutral_line(&own_name);
        // The user would lose a server that works in the client.
        if entry.is_enabled && !is_approved(folders, &name, ours) {
            moved.notes.push(format!(
                "`{shown}` stays in the file until it works here: run `toolhold mcp approve {name}`"
            ));
            continue;
        }
        let missing = missing(ours, &entry, &stored);
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

/// Reads the stored secrets of our server, each with its name and value. A secret that a program
/// prints is left out, since nothing is run for a comparison.
fn stored_secrets(
    ours: &McpServer,
    name: &str,
    config: &Config,
    folders: &Folders,
) -> Vec<(String, String)> {
    let mut stored = Vec::new();
    for (secret, from) in &ours.secrets {
        let is_stored = from.env.is_some() || !from.file.is_empty();
        let key = format!("mcp.servers.{name}.secrets.{}", dotted_name(secret));
        if is_stored && let Ok(value) = read(&config.source_of(&key, from, folders, Path::new("/")))
        {
            stored.push((secret.clone(), value.expose().to_owned()));
        }
    }
    stored
}

fn is_same(ours: &McpServer, theirs: &NamedServer, stored: &[(String, String)]) -> bool {
    let values: Vec<(&str, &str)> =
        stored.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    match theirs {
        NamedServer::Program { words, .. } => {
            let filled = ours.args.iter().map(|argument| fill_in_secrets(argument, &values));
            std::iter::once(ours.command.clone()).chain(filled).eq(words.iter().cloned())
        }
        NamedServer::Url { url, .. } => ours.url == *url,
    }
}

/// Returns the variables and headers that would be lost with a client's server.
fn missing(ours: &McpServer, entry: &ServerEntry, stored: &[(String, String)]) -> Vec<String> {
    let credentials = credentials(&entry.server);
    let (pairs, token) = match &entry.server {
        NamedServer::Program { variables, .. } => (variables, None),
        NamedServer::Url { headers, token_variable, .. } => (headers, token_variable.as_ref()),
    };
    let mut missing = Vec::new();
    for name in pairs.keys() {
        let is_known = match credentials.iter().find(|(credential, ..)| credential == name) {
            Some((_, _, value)) => {
                let value = value.trim_end_matches(['\r', '\n']);
                stored.iter().any(|(_, known)| known == value)
            }
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
