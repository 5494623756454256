//! Reads the servers in an MCP client's file.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::client_files::error::ClientFileError;
use crate::client_files::known::{Client, Format};
use crate::client_files::values::{json_values, toml_values};

/// Most servers that are read from a file. Further servers are ignored.
const MAX_SERVERS: usize = 256;

/// A server in a client's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedServer {
    /// A program.
    Program {
        /// The command line.
        words: Vec<String>,
        /// Environment variables. A value may refer to another variable.
        variables: BTreeMap<String, String>,
    },
    /// A server at a URL.
    Url {
        /// The URL.
        url: String,
        /// The headers of requests.
        headers: BTreeMap<String, String>,
        /// The environment variable with the token.
        token_variable: Option<String>,
    },
}

/// The entry of a server in a client's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerEntry {
    /// How the client reaches the server.
    pub server: NamedServer,
    /// Whether the client uses the server.
    pub is_enabled: bool,
    /// The keys of other settings.
    pub further: Vec<String>,
}

/// A server in a client's file, or the reason why only that client can use it.
pub type ReadServer = Result<ServerEntry, EntryError>;

/// The reason why only the client itself can use a server in its file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The transport is SSE, which came before streamable HTTP.
    #[error("the server uses the old SSE transport, which isn't supported")]
    OldTransport,
    /// The entry has neither a command nor an address.
    #[error("the server has neither a command nor an address")]
    Unreachable,
    /// The command is empty or has a word that isn't a string.
    #[error("the server's command isn't a list of strings")]
    Command,
    /// The command is an object without a program.
    #[error("the server's command has no path")]
    NoPath,
    /// The value of a variable or header isn't a string.
    #[error("the value of `{0}` isn't a string")]
    Value(String),
}

/// Reads the servers in a client's file, with their names.
///
/// # Errors
///
/// Returns an error if the text isn't valid in the client's format.
pub fn servers(client: &Client, text: &str) -> Result<Vec<(String, ReadServer)>, ClientFileError> {
    let all = match client.format {
        Format::Json => json_values(text)?,
        Format::Toml => toml_values(text)?,
    };
    let Some(entries) = all[client.table].as_object() else { return Ok(Vec::new()) };
    let mut servers = Vec::new();
    for (name, entry) in entries.iter().take(MAX_SERVERS) {
        let server = match client.name {
            "gemini" | "qwen" => read_gemini_server(name, entry, &all["mcp"]),
            _ => read_server(entry),
        };
        servers.push((name.clone(), server));
    }
    Ok(servers)
}

/// Reads a server of Gemini CLI or Qwen Code. `lists` contains the names of the excluded servers
/// and of the allowed servers.
fn read_gemini_server(name: &str, entry: &Value, lists: &Value) -> ReadServer {
    // Without `httpUrl` and without the type `http`, the server at `url` has the old SSE transport.
    let is_streamable = entry["httpUrl"] != Value::Null || entry["type"] == "http";
    if entry["url"].is_string() && !is_streamable {
        return Err(EntryError::OldTransport);
    }
    let mut server = read_server(entry)?;
    let is_excluded = is_listed(&lists["excluded"], name).unwrap_or(false);
    // Without a list of allowed servers, each server is allowed.
    let is_allowed = is_listed(&lists["allowed"], name).unwrap_or(true);
    server.is_enabled = server.is_enabled && is_allowed && !is_excluded;
    Ok(server)
}

/// Checks whether a list contains a name. Returns `None` if there is no list.
fn is_listed(list: &Value, name: &str) -> Option<bool> {
    let names = list.as_array()?;
    Some(names.iter().any(|listed| listed == name))
}

/// Reads an entry. The result's `further` lists the keys that Toolhold doesn't read.
fn read_server(entry: &Value) -> ReadServer {
    if entry["type"] == "sse" {
        return Err(EntryError::OldTransport);
    }
    let url_key = ["httpUrl", "serverUrl", "url"].into_iter().find(|key| entry[key].is_string());
    let (server, known_keys) = if let Some(url_key) = url_key {
        (url_server(entry, url_key)?, [url_key, "headers", "bearer_token_env_var"])
    } else if entry["command"].is_object() {
        // Extensions of Zed use `{"command": {"path", "args", "env"}}`.
        return read_nested_server(entry);
    } else {
        let has_environment = !entry["environment"].is_null();
        let variables_key = if has_environment { "environment" } else { "env" };
        (program_server(entry, variables_key)?, ["command", "args", variables_key])
    };
    Ok(ServerEntry {
        server,
        is_enabled: is_enabled(entry),
        further: other_keys(entry, &known_keys),
    })
}

fn is_enabled(entry: &Value) -> bool {
    entry["enabled"] != false && entry["disabled"] != true
}

fn url_server(entry: &Value, url_key: &str) -> Result<NamedServer, EntryError> {
    let url = text_at(entry, url_key).unwrap_or_default();
    let headers = string_map(&entry["headers"])?;
    let token_variable = text_at(entry, "bearer_token_env_var");
    Ok(NamedServer::Url { url, headers, token_variable })
}

fn text_at(entry: &Value, key: &str) -> Option<String> {
    entry[key].as_str().map(str::to_owned)
}

/// Reads a server that is a program. The entry's `command` is the program, or a list with the
/// program and its arguments.
fn program_server(entry: &Value, variables_key: &str) -> Result<NamedServer, EntryError> {
    let mut values = Vec::new();
    match &entry["command"] {
        program @ Value::String(_) => {
            values.push(program);
            if let Some(arguments) = entry["args"].as_array() {
                values.extend(arguments);
            }
        }
        Value::Array(command_line) => values.extend(command_line),
        _ => return Err(EntryError::Unreachable),
    }
    let mut words = Vec::new();
    for value in values {
        let word = value.as_str().ok_or(EntryError::Command)?;
        words.push(word.to_owned());
    }
    if words.is_empty() {
        return Err(EntryError::Command);
    }
    Ok(NamedServer::Program { words, variables: string_map(&entry[variables_key])? })
}

/// Reads a server whose `command` is an object. The object has the fields of an ordinary
/// entry, but the key of the program is `path`.
fn read_nested_server(entry: &Value) -> ReadServer {
    let mut command = entry["command"].clone();
    command["command"] = command["path"].take();
    if !command["command"].is_string() {
        return Err(EntryError::NoPath);
    }
    let mut server = read_server(&command)?;
    server.is_enabled = server.is_enabled && is_enabled(entry);
    server.further.extend(other_keys(entry, &["command"]));
    Ok(server)
}

/// Returns the keys of the settings in `entry` that have an effect and aren't in `known`.
fn other_keys(entry: &Value, known: &[&str]) -> Vec<String> {
    let mut keys = Vec::new();
    let Some(fields) = entry.as_object() else { return keys };
    for (key, value) in fields {
        let is_common = ["type", "enabled", "disabled"].contains(&key.as_str());
        let is_known = is_common || known.contains(&key.as_str());
        if !is_known && has_effect(key, value) {
            keys.push(key.clone());
        }
    }
    keys
}

/// Returns whether a setting changes how the client uses a server.
fn has_effect(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => false,
        // The pattern `*` allows all tools, like a missing list.
        Value::Array(patterns) if key == "tools" => patterns.iter().any(|value| value != "*"),
        Value::Array(values) => !values.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => {
            // Zed adds this setting to the servers that the user added.
            let is_mark_of_zed = key == "source" && value == "custom";
            !is_mark_of_zed
        }
    }
}

/// Reads an object of strings. Numbers and booleans are converted to strings.
fn string_map(value: &Value) -> Result<BTreeMap<String, String>, EntryError> {
    let mut strings = BTreeMap::new();
    let Some(fields) = value.as_object() else { return Ok(strings) };
    for (name, value) in fields {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            _ => return Err(EntryError::Value(name.clone())),
        };
        strings.insert(name.clone(), text);
    }
    Ok(strings)
}

/// Returns the variable that `${NAME}`, `${env:NAME}` or `{env:NAME}` refers to. Returns `None` for
/// a string without such a reference.
pub fn variable(text: &str) -> Option<&str> {
    let has_dollar = text.starts_with('$');
    let in_braces = text.strip_prefix('$').unwrap_or(text);
    let inner = in_braces.strip_prefix('{')?.strip_suffix('}')?;
    let name = match inner.strip_prefix("env:") {
        Some(name) => name,
        None if has_dollar => inner,
        // `{NAME}` isn't a reference.
        None => return None,
    };
    let has_name_letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if name.is_empty() || !has_name_letters {
        return None;
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_files::known::CLIENTS;

    fn client(name: &str) -> &'static Client {
        CLIENTS.iter().find(|client| client.name == name).expect("it is known")
    }

    fn program(words: &[&str], variables: &[(&str, &str)]) -> NamedServer {
        NamedServer::Program {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            variables: variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        }
    }

    #[track_caller]
    fn gives(name: &str, text: &str, expected: &[(&str, NamedServer)]) {
        let expected: Vec<(String, ReadServer)> = expected
            .iter()
            .map(|(name, server)| {
                let (server, further) = (server.clone(), Vec::new());
                ((*name).to_owned(), Ok(ServerEntry { server, is_enabled: true, further }))
            })
            .collect();
        assert_eq!(servers(client(name), text).expect("it is read"), expected);
    }

    #[test]
    fn each_form_of_a_server_is_read() {
        gives(
            "cursor",
            "{ // mine\n \"mcpServers\": { \"a\": { \"command\": \"npx\", \"args\": [\"-y\", \"x\"], \"env\": { \"K\": \"v\", \"N\": 3 } }, } }",
            &[("a", program(&["npx", "-y", "x"], &[("K", "v"), ("N", "3")]))],
        );
        gives(
            "opencode",
            r#"{ "mcp": { "a": { "type": "local", "command": ["x", "y"], "environment": { "K": "v" } } } }"#,
            &[("a", program(&["x", "y"], &[("K", "v")]))],
        );
        gives(
            "codex",
            "[mcp_servers.a]\ncommand = \"x\"\nargs = [\"y\"]\nenv = { K = \"v\" }\n",
            &[("a", program(&["x", "y"], &[("K", "v")]))],
        );
        gives(
            "zed",
            r#"{ "context_servers": { "a": { "command": { "path": "x", "args": ["y"], "env": { "K": "v" } } } } }"#,
            &[("a", program(&["x", "y"], &[("K", "v")]))],
        );
        let url = |token_variable: Option<&str>| NamedServer::Url {
            url: "https://h.example/mcp".to_owned(),
            headers: BTreeMap::new(),
            token_variable: token_variable.map(str::to_owned),
        };
        gives(
            "codex",
            "[mcp_servers.a]\nurl = \"https://h.example/mcp\"\nbearer_token_env_var = \"T\"\n",
            &[("a", url(Some("T")))],
        );
        gives(
            "windsurf",
            r#"{ "mcpServers": { "a": { "serverUrl": "https://h.example/mcp" } } }"#,
            &[("a", url(None))],
        );
        gives("cursor", "{}", &[]);
    }

    #[test]
    fn what_cant_be_used_has_a_reason() {
        let cursor = client("cursor");
        for entry in [
            "{}",
            "3",
            "{ \"command\": 3 }",
            "{ \"type\": \"sse\", \"url\": \"x\" }",
            "{ \"command\": \"x\", \"args\": [3] }",
        ] {
            let text = format!("{{ \"mcpServers\": {{ \"a\": {entry} }} }}");
            let read = servers(cursor, &text).expect("it is JSON");
            assert!(matches!(&read[..], [(_, Err(_))]), "{entry}: {read:?}");
        }
        let error = servers(cursor, "{\n \"a\": b }").expect_err("it is no JSON").to_string();
        assert!(error.starts_with("line 2"), "{error}");
        assert_eq!(servers(cursor, "[]").expect("it is JSON"), []);
    }

    #[test]
    fn settings_beside_the_server_are_named_and_what_is_off_stays_off() {
        let read = |name: &str, text: &str| {
            let all = servers(client(name), text).expect("it is read");
            let read = |(name, entry): (String, ReadServer)| match entry {
                Ok(entry) => format!("{name} {} {}", entry.is_enabled, entry.further.join(",")),
                Err(reason) => format!("{name}: {reason}"),
            };
            all.into_iter().map(read).collect::<Vec<_>>()
        };
        let gemini = r#"{ "mcp": { "excluded": ["b"] }, "mcpServers": {
            "a": { "command": "x", "cwd": "/x", "timeout": 3, "includeTools": [] },
            "b": { "httpUrl": "https://h.example/mcp", "trust": true },
            "c": { "url": "https://h.example/sse" },
            "d": { "url": "https://h.example/mcp", "type": "http" } } }"#;
        assert_eq!(
            read("gemini", gemini),
            [
                "a true cwd,timeout",
                "b false trust",
                "c: the server uses the old SSE transport, which isn't supported",
                "d true "
            ]
        );
        let codex = "[mcp_servers.a]\ncommand = 'x'\nenabled = false\n[mcp_servers.b]\ncommand = 'x'\nenabled = true\n";
        assert_eq!(read("codex", codex), ["a false ", "b true "]);
        let opencode = r#"{ "mcp": { "a": { "type": "local", "command": ["x"], "enabled": false }, "excluded": { "command": ["y"] } } }"#;
        assert_eq!(read("opencode", opencode), ["a false ", "excluded true "]);
        let windsurf = r#"{ "mcpServers": { "a": { "command": "x", "disabled": true } } }"#;
        assert_eq!(read("windsurf", windsurf), ["a false "]);
        let zed = r#"{ "context_servers": { "a": { "source": "custom", "enabled": false, "command": { "path": "x", "timeout": 3 }, "settings": { "k": 1 } } } }"#;
        assert_eq!(read("zed", zed), ["a false timeout,settings"]);
        let copilot = r#"{ "mcpServers": { "a": { "command": "x", "tools": ["*"] }, "b": { "command": "x", "tools": ["t"] } } }"#;
        assert_eq!(read("copilot", copilot), ["a true ", "b true tools"]);
    }

    #[test]
    fn variables_are_found_in_each_spelling() {
        for text in ["${A_1}", "${env:A_1}", "{env:A_1}"] {
            assert_eq!(variable(text), Some("A_1"), "{text}");
        }
        for text in ["A", "{A}", "${}", "${input:a}", "x${A}", "${A}x", "$A"] {
            assert_eq!(variable(text), None, "{text}");
        }
    }
}
