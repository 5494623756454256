//! The known MCP clients: where each stores its servers, and in which form. From their own
//! documentation.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// The server that a client starts or connects to.
pub enum ServerConfig {
    /// A process that the client starts.
    Stdio {
        /// The program.
        program: String,
        /// Its arguments.
        arguments: Vec<String>,
    },
    /// A running server. Its token is in an environment variable of the client; without one, the
    /// client gets its own from an authorization server.
    Http {
        /// Its address.
        url: String,
        /// The variable with the token.
        variable: Option<String>,
    },
}

/// A client.
pub struct Client {
    /// Its name on Toolhold's command line.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    user: User,
    /// Its file in a project.
    pub project: Option<&'static str>,
    /// The format of its files.
    pub format: Format,
    /// The table of the servers.
    pub table: &'static str,
    words: Words,
}

/// Where a client stores the settings for all projects of its user.
enum User {
    Home(&'static str),
    /// In the folder of `XDG_CONFIG_HOME`, otherwise `~/.config`.
    Config(&'static str),
    /// In the folder of the variable, otherwise below the home folder.
    Variable(&'static str, &'static str, &'static str),
    /// In this file of the home folder, which only the client itself writes.
    Command(&'static str),
}

/// The format of a client's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON, with the comments and trailing commas that most of them take.
    Json,
    /// TOML.
    Toml,
}

/// The form in which a client names a server.
enum Words {
    /// `command` and `args`; over HTTP `url` and `headers`, with the token's variable in this form.
    Plain(Option<fn(&str) -> String>),
    /// The same with a type; over HTTP `http`.
    Typed(&'static str, fn(&str) -> String),
    Windsurf,
    Gemini,
    Codex,
    OpenCode,
    Copilot,
}

/// `${NAME}`.
fn braces(variable: &str) -> String {
    format!("${{{variable}}}")
}

/// `${env:NAME}`.
fn of_environment(variable: &str) -> String {
    format!("${{env:{variable}}}")
}

/// All known clients.
pub const CLIENTS: [Client; 10] = [
    Client {
        name: "claude-code",
        title: "Claude Code",
        user: User::Command(".claude.json"),
        project: Some(".mcp.json"),
        format: Format::Json,
        table: "mcpServers",
        words: Words::Typed("stdio", braces),
    },
    Client {
        name: "claude-desktop",
        title: "Claude Desktop",
        user: User::Config("Claude/claude_desktop_config.json"),
        project: None,
        format: Format::Json,
        table: "mcpServers",
        words: Words::Plain(None),
    },
    Client {
        name: "codex",
        title: "Codex",
        user: User::Variable("CODEX_HOME", ".codex", "config.toml"),
        project: Some(".codex/config.toml"),
        format: Format::Toml,
        table: "mcp_servers",
        words: Words::Codex,
    },
    Client {
        name: "copilot",
        title: "Copilot CLI",
        user: User::Home(".copilot/mcp-config.json"),
        project: None,
        format: Format::Json,
        table: "mcpServers",
        words: Words::Copilot,
    },
    Client {
        name: "cursor",
        title: "Cursor",
        user: User::Home(".cursor/mcp.json"),
        project: Some(".cursor/mcp.json"),
        format: Format::Json,
        table: "mcpServers",
        words: Words::Plain(Some(of_environment)),
    },
    Client {
        name: "gemini",
        title: "Gemini CLI",
        user: User::Home(".gemini/settings.json"),
        project: Some(".gemini/settings.json"),
        format: Format::Json,
        table: "mcpServers",
        words: Words::Gemini,
    },
    Client {
        name: "opencode",
        title: "opencode",
        user: User::Config("opencode/opencode.json"),
        project: Some("opencode.json"),
        format: Format::Json,
        table: "mcp",
        words: Words::OpenCode,
    },
    Client {
        name: "vscode",
        title: "VS Code",
        user: User::Config("Code/User/mcp.json"),
        project: Some(".vscode/mcp.json"),
        format: Format::Json,
        table: "servers",
        words: Words::Typed("stdio", of_environment),
    },
    Client {
        name: "windsurf",
        title: "Windsurf",
        user: User::Home(".codeium/windsurf/mcp_config.json"),
        project: None,
        format: Format::Json,
        table: "mcpServers",
        words: Words::Windsurf,
    },
    Client {
        name: "zed",
        title: "Zed",
        user: User::Config("zed/settings.json"),
        project: None,
        format: Format::Json,
        table: "context_servers",
        words: Words::Plain(None),
    },
];

/// The obstacle to finding a client's file, or to writing a server into it.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The folder of the user's files isn't known.
    #[error("HOME isn't set to a folder, so the client's file can't be found")]
    NoHome,
    /// This client reads no file of a project.
    #[error("{0} has no file in a project")]
    NoProjectFile(&'static str),
    /// The project's folder can't be determined.
    #[error("finding the working directory: {0}")]
    WorkingDirectory(io::Error),
    /// This client can't take the server's token from a variable.
    #[error("{0}'s file would have to contain the server's token; let {0} start `toolhold serve`")]
    HoldsToken(&'static str),
}

impl Client {
    /// Its user's file. `None`: only its own command can change it.
    ///
    /// # Errors
    ///
    /// The folder of the user's files isn't known.
    pub fn user_file(&self) -> Result<Option<PathBuf>, ClientError> {
        Ok(match self.user {
            User::Home(file) => Some(home()?.join(file)),
            User::Config(file) => {
                let config = folder("XDG_CONFIG_HOME")
                    .map_or_else(|| home().map(|home| home.join(".config")), Ok)?;
                Some(config.join(file))
            }
            User::Variable(variable, below, file) => Some(
                folder(variable)
                    .map_or_else(|| home().map(|home| home.join(below)), Ok)?
                    .join(file),
            ),
            User::Command(_) => None,
        })
    }

    /// The file with its user's servers, to be read. `None`: there is no home folder.
    ///
    /// # Errors
    ///
    /// The folder of the user's files isn't known.
    pub fn read_file(&self) -> Result<Option<PathBuf>, ClientError> {
        let User::Command(file) = self.user else { return self.user_file() };
        Ok(folder("HOME").map(|home| home.join(file)))
    }

    /// Its file in the project of the working directory.
    ///
    /// # Errors
    ///
    /// The client has no file in a project.
    pub fn project_file(&self) -> Result<PathBuf, ClientError> {
        let file = self.project.ok_or(ClientError::NoProjectFile(self.title))?;
        let here = std::env::current_dir().map_err(ClientError::WorkingDirectory)?;
        Ok(here.join(file))
    }

    /// Whether it connects to servers over HTTP with a token that its file doesn't hold.
    pub fn takes_http(&self) -> bool {
        !matches!(self.words, Words::Plain(None))
    }

    /// The entry for a server.
    ///
    /// # Errors
    ///
    /// The client can't use such a server.
    pub fn entry(&self, server: &ServerConfig) -> Result<Value, ClientError> {
        Ok(match server {
            ServerConfig::Stdio { program, arguments } => match self.words {
                Words::Plain(_) | Words::Windsurf | Words::Gemini | Words::Codex => {
                    json!({ "command": program, "args": arguments })
                }
                Words::Typed(kind, _) => {
                    json!({ "type": kind, "command": program, "args": arguments })
                }
                Words::Copilot => {
                    json!({ "type": "local", "command": program, "args": arguments, "tools": ["*"] })
                }
                Words::OpenCode => {
                    let command: Vec<&String> = std::iter::once(program).chain(arguments).collect();
                    json!({ "type": "local", "command": command, "enabled": true })
                }
            },
            ServerConfig::Http { url, variable: token } => {
                let variable = token.as_deref().unwrap_or_default();
                let mut entry = match self.words {
                    Words::Plain(Some(token)) => {
                        json!({ "url": url, "headers": headers(token(variable)) })
                    }
                    Words::Plain(None) => return Err(ClientError::HoldsToken(self.title)),
                    Words::Typed(_, token) => {
                        json!({ "type": "http", "url": url, "headers": headers(token(variable)) })
                    }
                    Words::Windsurf => {
                        json!({ "serverUrl": url, "headers": headers(of_environment(variable)) })
                    }
                    Words::Gemini => {
                        json!({ "httpUrl": url, "headers": headers(braces(variable)) })
                    }
                    Words::Codex => json!({ "url": url, "bearer_token_env_var": variable }),
                    Words::OpenCode => {
                        json!({ "type": "remote", "url": url, "enabled": true, "headers": headers(format!("{{env:{variable}}}")) })
                    }
                    Words::Copilot => {
                        json!({ "type": "http", "url": url, "headers": headers(braces(variable)), "tools": ["*"] })
                    }
                };
                if let (None, Some(entry)) = (token, entry.as_object_mut()) {
                    entry.retain(|key, _| {
                        !matches!(key.as_str(), "headers" | "bearer_token_env_var")
                    });
                }
                entry
            }
        })
    }

    /// The client's command that adds a server.
    pub fn command(&self, name: &str, server: &ServerConfig) -> Vec<String> {
        match server {
            ServerConfig::Stdio { program, arguments } => {
                let mut line =
                    owned(&["claude", "mcp", "add", "--scope", "user", name, "--", program]);
                line.extend(arguments.iter().cloned());
                line
            }
            ServerConfig::Http { url, variable } => {
                let mut line = owned(&[
                    "claude",
                    "mcp",
                    "add",
                    "--scope",
                    "user",
                    "--transport",
                    "http",
                    name,
                    url,
                ]);
                if let Some(variable) = variable {
                    line.extend([
                        "--header".to_owned(),
                        format!("Authorization: Bearer {}", braces(variable)),
                    ]);
                }
                line
            }
        }
    }
}

/// The headers with a bearer token.
fn headers(token: String) -> Value {
    json!({ "Authorization": format!("Bearer {token}") })
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn home() -> Result<PathBuf, ClientError> {
    folder("HOME").ok_or(ClientError::NoHome)
}

/// The folder in a variable.
fn folder(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|folder| Path::is_absolute(folder))
}
