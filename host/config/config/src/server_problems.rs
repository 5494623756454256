//! Finds problems in the tables of `[mcp.servers]`.

use toolhold_contract::text::neutral_line;
use toolhold_policy::egress::Target;

use super::loaded::is_provider_name;
use super::provider_problems::first_duplicate;
use super::{Config, McpOauth, McpServer, Problem, dotted_name, referenced_secrets};

impl Config {
    /// Finds problems of servers that concern several values.
    pub(super) fn server_problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (name, server) in &self.values.mcp.servers {
            let message = if !is_provider_name(name) {
                format!(
                    "`{}` isn't a valid server name: use 1 to 24 of a-z, 0-9 and `-`, the first a \
                     letter",
                    neutral_line(name)
                )
            } else if self.values.plugins.contains_key(name) {
                format!("a plugin already has the name `{name}`; give the server another name")
            } else {
                let Some(why) = problem(server) else { continue };
                format!("[mcp.servers.{name}] {why}")
            };
            let table = format!("mcp.servers.{}", dotted_name(name));
            problems.push(Problem::new(self.source_below(&table), message));
        }
        problems
    }
}

/// Finds a problem in the table of one server. Returns a phrase that follows the table's name.
fn problem(server: &McpServer) -> Option<String> {
    let has_command = !server.command.is_empty();
    let has_url = !server.url.is_empty();
    if has_command && has_url {
        return Some("has both `command` and `url`; keep only one".to_owned());
    }
    // Missing keys aren't a problem here, because another file may set them. `toolhold mcp approve`
    // reports them.
    if !has_command && !has_url {
        return None;
    }
    let keys_of_other_kind = if has_url {
        vec![
            ("args", server.args.is_empty()),
            ("allowed_paths", server.allowed_paths.is_empty()),
            ("network", !server.network),
            ("hosts", server.hosts.is_empty()),
            ("presets", server.presets.is_empty()),
            ("env", server.env.is_empty()),
            ("variables", server.variables.is_empty()),
        ]
    } else {
        vec![("headers", server.headers.is_empty()), ("oauth", server.oauth == McpOauth::default())]
    };
    if let Some((key, _)) = keys_of_other_kind.iter().find(|(_, is_absent)| !is_absent) {
        let (has, needs) = if has_url { ("url", "command") } else { ("command", "url") };
        return Some(format!(
            "has `{has}`, but `{key}` is for servers with `{needs}`; remove `{key}`"
        ));
    }
    if server.network && !server.hosts.is_empty() {
        let why = "has both `network = true`, the whole network, and `hosts`, which are single \
                   hosts; keep only one";
        return Some(why.to_owned());
    }
    if has_url { url_problem(server) } else { variable_problem(server) }
}

/// Finds a problem of a server with `url`.
fn url_problem(server: &McpServer) -> Option<String> {
    if let Err(why) = Target::with_url(&server.url) {
        return Some(format!("has an invalid `url`: {why}"));
    }
    if let Some(why) = oauth_problem(&server.oauth) {
        return Some(why);
    }
    let mut headers = Vec::new();
    for secret in server.secrets.values() {
        let (header, _) = secret.placement();
        headers.push(header);
    }
    headers.extend(server.headers.keys().map(|name| name.to_ascii_lowercase()));
    let duplicate = first_duplicate(headers)?;
    Some(format!("sets the header `{}` twice", neutral_line(&duplicate)))
}

/// Finds a problem of the secret in `oauth.secrets`.
fn oauth_problem(oauth: &McpOauth) -> Option<String> {
    let first_secret = oauth.secrets.keys().next()?;
    let name = neutral_line(first_secret);
    let sets_header =
        oauth.secrets.values().any(|secret| secret.header.is_some() || secret.prefix.is_some());
    if oauth.secrets.len() > 1 {
        Some("has more than one secret in `oauth.secrets`; keep only one".to_owned())
    } else if oauth.client_id.is_empty() {
        Some(format!(
            "has the secret `{name}` in `oauth.secrets`, but no `oauth.client_id` for the secret"
        ))
    } else if sets_header {
        Some(format!(
            "puts the secret `{name}` into a header, but the authorization server decides where a \
             secret of `oauth.secrets` goes; remove `header` and `prefix`"
        ))
    } else {
        None
    }
}

/// Finds a problem of the secrets that a server with `command` gets as variables.
fn variable_problem(server: &McpServer) -> Option<String> {
    let mut references = server.args.iter().flat_map(|argument| referenced_secrets(argument));
    if let Some(missing) = references.find(|name| !server.secrets.contains_key(*name)) {
        let shown = neutral_line(missing);
        return Some(format!(
            "has `${{secret:{shown}}}` in `args`, but no secret `{shown}`; write `secrets = {{ \
             {shown} = {{ env = \"{shown}\" }} }}`"
        ));
    }
    for (name, secret) in &server.secrets {
        let shown = neutral_line(name);
        if !is_variable(name) {
            return Some(format!(
                "has a secret `{shown}`, which isn't a variable's name: letters, digits and `_`"
            ));
        }
        if server.variables.contains_key(name) {
            return Some(format!("sets the variable `{shown}` twice"));
        }
        if secret.header.is_some() || secret.prefix.is_some() {
            return Some(format!(
                "puts the secret `{shown}` into a header, but a server with `command` gets a variable"
            ));
        }
    }
    None
}

fn is_variable(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}
