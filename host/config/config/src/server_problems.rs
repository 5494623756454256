//! Finds errors in a table of `[mcp.servers]`.

use std::collections::BTreeSet;

use toolhold_contract::text::neutral_line;
use toolhold_policy::egress::Target;

use super::loaded::is_provider_name;
use super::{Config, McpOauth, McpServer, Problem, dotted_name, referenced_secrets};

impl Config {
    /// Finds problems of servers that can't be found in a single value.
    pub(super) fn server_problems(&self) -> Vec<Problem> {
        let servers = &self.values.mcp.servers;
        let problems = servers.iter().filter_map(|(name, server)| {
            let message = if !is_provider_name(name) {
                format!(
                    "`{}` isn't a valid server name: 1 to 24 of a-z, 0-9 and `-`, starting with a letter",
                    neutral_line(name)
                )
            } else if self.values.plugins.contains_key(name) {
                format!("`{name}` is a plugin as well; give the server another name")
            } else {
                format!("[mcp.servers.{name}] {}", problem(server)?)
            };
            let table = format!("mcp.servers.{}", dotted_name(name));
            Some(Problem::new(self.source_below(&table), message))
        });
        problems.collect()
    }
}

/// Finds an error in the keys of one server. Returns a phrase after the name of its table.
fn problem(server: &McpServer) -> Option<String> {
    let has_command = !server.command.is_empty();
    let has_url = !server.url.is_empty();
    if has_command && has_url {
        return Some("has both `command` and `url`; remove one of them".to_owned());
    }
    // Another file can set the other keys. `toolhold mcp approve` reports missing keys.
    if !has_command && !has_url {
        return None;
    }
    let keys_of_other_kind = if has_url {
        vec![
            ("args", server.args.is_empty()),
            ("allowed_paths", server.allowed_paths.is_empty()),
            ("network", !server.network),
            ("presets", server.presets.is_empty()),
            ("env", server.env.is_empty()),
            ("variables", server.variables.is_empty()),
        ]
    } else {
        vec![("headers", server.headers.is_empty()), ("oauth", server.oauth == McpOauth::default())]
    };
    if let Some((key, _)) = keys_of_other_kind.iter().find(|(_, is_absent)| !is_absent) {
        let (has, needs) = if has_url { ("url", "command") } else { ("command", "url") };
        return Some(format!("has `{has}`, and `{key}` is for servers with `{needs}`; remove it"));
    }
    if has_url { url_problem(server) } else { variable_problem(server) }
}

fn url_problem(server: &McpServer) -> Option<String> {
    if let Err(why) = Target::with_url(&server.url) {
        return Some(format!("has a `url` that can't be used: {why}"));
    }
    if let Some(why) = oauth_problem(&server.oauth) {
        return Some(why);
    }
    let mut used: BTreeSet<String> = BTreeSet::new();
    let secrets = server.secrets.values().map(|secret| secret.placement().0);
    let written = server.headers.keys().map(|name| name.to_ascii_lowercase());
    let duplicate = secrets.chain(written).find(|name| !used.insert(name.clone()))?;
    Some(format!("sets the header `{}` twice", neutral_line(&duplicate)))
}

fn oauth_problem(oauth: &McpOauth) -> Option<String> {
    let name = neutral_line(oauth.secrets.keys().next()?);
    if oauth.secrets.len() > 1 {
        Some("has more than one secret in `oauth.secrets`; keep only one".to_owned())
    } else if oauth.client_id.is_empty() {
        Some(format!(
            "has the secret `{name}` in `oauth.secrets`, but no `oauth.client_id` that it belongs to"
        ))
    } else if oauth
        .secrets
        .values()
        .any(|secret| secret.header.is_some() || secret.prefix.is_some())
    {
        Some(format!(
            "puts the secret `{name}` into a header, but the authorization server decides where a \
             secret of `oauth.secrets` goes; remove `header` and `prefix`"
        ))
    } else {
        None
    }
}

fn variable_problem(server: &McpServer) -> Option<String> {
    let mut references = server.args.iter().flat_map(|argument| referenced_secrets(argument));
    if let Some(missing) = references.find(|name| !server.secrets.contains_key(*name)) {
        let shown = neutral_line(missing);
        return Some(format!(
            "has `${{secret:{shown}}}` in `args`, but no secret `{shown}`; write `secrets = {{ \
             {shown} = {{ env = \"{shown}\" }} }}`"
        ));
    }
    server.secrets.iter().find_map(|(name, secret)| {
        let shown = neutral_line(name);
        if !is_variable(name) {
            Some(format!(
                "has a secret `{shown}`, which isn't a variable's name: letters, digits and `_`"
            ))
        } else if server.variables.contains_key(name) {
            Some(format!("sets the variable `{shown}` twice"))
        } else if secret.header.is_some() || secret.prefix.is_some() {
            Some(format!(
                "puts the secret `{shown}` into a header, but a server with `command` gets a variable"
            ))
        } else {
            None
        }
    })
}

fn is_variable(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}
