//! Finds the servers in an MCP client's file that Toolhold's configuration has too.

use std::path::Path;

use toolhold_core::config::{Config, Folders, McpServer, dotted_name, fill_in_secrets};
use toolhold_core::text::neutral_line;
use toolhold_mcp_client::client_files::{NamedServer, ReadServer, ServerEntry};
use toolhold_mcp_client::is_approved;
use toolhold_net::read;
use toolhold_redaction::{Keys, text};

use super::table::{credential_in, credentials, fit_name};

const MARK: &str = "[REDACTED:secret]";

/// The servers of a client's file that Toolhold's configuration has too.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// The servers that can be removed from the client's file.
    pub(crate) names: Vec<String>,
    /// Notes for the user about servers that stay and settings that get lost.
    pub(crate) notes: Vec<String>,
    /// The credentials of all servers in the client's file.
    credentials: Vec<String>,
}

impl Moved {
    /// Replaces the credentials in a diff.
    pub(crate) fn hide(&self, diff: &str) -> String {
        let mut shown = diff.to_owned();
        for credential in &self.credentials {
            // In a file, a credential is a JSON string or is in single quotes.
            let json = serde_json::Value::String(credential.clone()).to_string();
            shown = shown.replace(&json, &format!("\"{MARK}\""));
            shown = shown.replace(&format!("'{credential}'"), &format!("'{MARK}'"));
        }
        // Other secrets are recognised by their form.
        text(&shown, Keys::Text).into_owned()
    }
}

/// Compares the servers of a client's file with the configuration. Blocks, because stored secrets
/// are read.
pub(crate) fn moved(
    servers: Vec<(String, ReadServer)>,
    config: Option<(&Config, &Folders)>,
) -> Moved {
    let mut moved = Moved::default();
    for (own_name, entry) in servers {
        let Ok(entry) = entry else { continue };
        for (_, prefix, value) in credentials(&entry.server) {
            moved.credentials.push(format!("{prefix}{value}"));
        }
        if let NamedServer::Program { words, .. } = &entry.server {
            for index in 1..words.len() {
                if credential_in(words, index).is_some() {
                    moved.credentials.push(words[index].clone());
                }
            }
        }
        let Some((config, folders)) = config else { continue };
        let Ok(name) = fit_name(&own_name) else { continue };
        let Some(ours) = config.values.mcp.servers.get(&name) else { continue };
        let stored = stored_secrets(ours, &name, config, folders);
        if !is_same(ours, &entry.server, &stored) {
            continue;
        }
        let shown = neutral_line(&own_name);
        // Until the approval, only the client can use the server's tools, so the server stays
        // there.
        if entry.is_enabled && !is_approved(config, folders, &name, ours) {
            moved.notes.push(format!(
                "`{shown}` stays in the file until the server is approved: run `toolhold mcp \
                 approve {name}`"
            ));
            continue;
        }
        let missing = missing(ours, &entry, &stored);
        if !missing.is_empty() {
            let missing = listed(&missing);
            moved.notes.push(format!(
                "`{shown}` stays in the file, because [mcp.servers.{name}] has another {missing}"
            ));
            continue;
        }
        if !entry.further.is_empty() {
            let further = listed(&entry.further);
            moved.notes.push(format!(
                "`{shown}` is removed, together with settings that Toolhold didn't import: \
                 {further}"
            ));
        }
        moved.names.push(own_name);
    }
    moved
}

/// Returns the names and values of the secrets of `ours`, the server `name` of the configuration.
/// Secrets that a program prints are skipped, because a comparison must not start programs.
fn stored_secrets(
    ours: &McpServer,
    name: &str,
    config: &Config,
    folders: &Folders,
) -> Vec<(String, String)> {
    let mut stored = Vec::new();
    for (secret_name, secret) in &ours.secrets {
        let is_stored = secret.env.is_some() || !secret.file.is_empty();
        if !is_stored {
            continue;
        }
        let key = format!("mcp.servers.{name}.secrets.{}", dotted_name(secret_name));
        // The working directory only matters for a path that isn't from a configuration file.
        let working_directory = Path::new("/");
        let source = config.source_of(&key, secret, folders, working_directory);
        if let Ok(value) = read(&source) {
            stored.push((secret_name.clone(), value.expose().to_owned()));
        }
    }
    stored
}

/// Checks whether Toolhold's server `ours` and the client's server `theirs` have the same program
/// and arguments, or the same URL. `stored` has the names and values of the secrets of `ours`.
fn is_same(ours: &McpServer, theirs: &NamedServer, stored: &[(String, String)]) -> bool {
    let values: Vec<(&str, &str)> =
        stored.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    match theirs {
        NamedServer::Program { words, .. } => {
            let mut our_words = vec![ours.command.clone()];
            for argument in &ours.args {
                our_words.push(fill_in_secrets(argument, &values));
            }
            our_words == *words
        }
        NamedServer::Url { url, .. } => ours.url == *url,
    }
}

/// Returns the variables and headers of a client's `entry` that `ours` lacks. `stored` has the
/// names and values of the secrets of `ours`.
fn missing(ours: &McpServer, entry: &ServerEntry, stored: &[(String, String)]) -> Vec<String> {
    let credentials = credentials(&entry.server);
    let (pairs, token) = match &entry.server {
        NamedServer::Program { variables, .. } => (variables, None),
        NamedServer::Url { headers, token_variable, .. } => (headers, token_variable.as_ref()),
    };
    let mut missing = Vec::new();
    for name in pairs.keys() {
        let credential = credentials.iter().find(|(credential_name, ..)| credential_name == name);
        let is_known = match credential {
            // The credential may be stored under another name.
            Some((_, _, value)) => {
                let value = value.trim_end_matches(['\r', '\n']);
                stored.iter().any(|(_, stored_value)| stored_value == value)
            }
            None => has_name(ours, &entry.server, name),
        };
        if !is_known {
            missing.push(name.clone());
        }
    }
    // If `ours` has secrets, one of them may be the token.
    if ours.secrets.is_empty() {
        missing.extend(token.cloned());
    }
    missing
}

fn has_name(ours: &McpServer, theirs: &NamedServer, name: &str) -> bool {
    match theirs {
        NamedServer::Program { .. } => {
            ours.variables.contains_key(name)
                || ours.secrets.contains_key(name)
                || ours.env.iter().any(|variable| variable.as_str() == name)
        }
        NamedServer::Url { .. } => {
            let has_plain = ours.headers.keys().any(|header| header.eq_ignore_ascii_case(name));
            let has_secret = ours.secrets.values().any(|secret| {
                let header = match &secret.header {
                    Some(header) => header.as_str(),
                    None => "Authorization",
                };
                header.eq_ignore_ascii_case(name)
            });
            has_plain || has_secret
        }
    }
}

pub(super) fn listed(names: &[String]) -> String {
    let names = names.iter().map(|name| format!("`{}`", neutral_line(name)));
    names.collect::<Vec<_>>().join(", ")
}
