//! The known MCP clients: where each stores its servers, and in which format. The facts come from
//! the documentation of the clients.

use std::io;
use std::path::PathBuf;

use serde_json::{Value, json};

/// The server that a client starts or connects to.
pub enum ServerConfig {
    /// A process that the client starts.
    Stdio {
        /// The program.
        program: String,
        /// The arguments of the program.
        arguments: Vec<String>,
    },
    /// A running server. The server's token is in an environment variable of the client. Without a
    /// token, the client gets one from an authorization server.
    Http {
        /// The URL of the server.
        url: String,
        /// The variable with the token.
        variable: Option<String>,
    },
}

/// A client.
pub struct Client {
    /// The client's name on Toolhold's command line.
    pub name: &'static str,
    /// The client's name for people.
    pub title: &'static str,
    /// Its program, if its users start it in a shell.
    pub program: Option<&'static str>,
    user: User,
    /// The client's file in a project.
    pub project: Option<&'static str>,
    /// The format of the client's files.
    pub format: Format,
    /// The table of the servers.
    pub table: &'static str,
    words: Words,
}

/// The place of the settings for all projects of a user.
enum User {
    Home(&'static str),
    /// In the folder of `XDG_CONFIG_HOME`, otherwise `~/.config`.
    Config(&'static str),
    /// In the folder of the variable, otherwise below the home folder.
    Variable(&'static str, &'static str, &'static str),
    /// A file in the home folder that only the client itself writes.
    Command(&'static str),
}

/// The format of a client's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON with comments and trailing commas. Most clients accept both.
    Json,
    /// TOML.
    Toml,
}

/// The form in which a client names a server.
enum Words {
    /// `command` and `args`, or `url` and `headers` over HTTP. The function formats the variable of
    /// the token.
    Plain(Option<fn(&str) -> String>),
    /// The plain fields and this `type`. Over HTTP, the type is `http`.
    Typed(&'static str, fn(&str) -> String),
    Windsurf,
    Gemini,
    Codex,
    OpenCode,
    Copilot,
}

/// Formats `${NAME}`.
fn braces(variable: &str) -> String {
    format!("${{{variable}}}")
}

/// Formats a variable as `${env:NAME}`.
fn of_environment(variable: &str) -> String {
    format!("${{env:{variable}}}")
}

/// All known clients.
pub const CLIENTS: [Client; 11] = [
    Client {
        name: "claude-code",
        title: "Claude Code",
        program: Some("claude"),
        user: User::Command(".claude.json"),
        project: Some(".mcp.json"),
        format: Format::Json,
        table: "mcpServers",
        words: Words::Typed("stdio", braces),
    },
    Client {
        name: "claude-desktop",
        title: "Claude Desktop",
        program: None,
        user: User::Config("Claude/claude_desktop_config.json"),
        project: None,
        format: Format::Json,
        table: "mcpServers",
        words: Words::Plain(None),
    },
    Client {
        name: "codex",
        title: "Codex",
        program: Some("codex"),
        user: User::Variable("CODEX_HOME", ".codex", "config.toml"),
        project: Some(".codex/config.toml"),
        format: Format::Toml,
        table: "mcp_servers",
        words: Words::Codex,
    },
    Client {
        name: "copilot",
        title: "Copilot CLI",
        program: Some("copilot"),
        user: User::Home(".copilot/mcp-config.json"),
        project: None,
        format: Format::Json,
        table: "mcpServers",
        words: Words::Copilot,
    },
    Client {
        name: "cursor",
        title: "Cursor",
        program: Some("cursor"),
        user: User::Home(".cursor/mcp.json"),
        project: Some(".cursor/mcp.json"),
        format: Format::Json,
        table: "mcpServers",
        words: Words::Plain(Some(of_environment)),
    },
    Client {
        name: "gemini",
        title: "Gemini CLI",
        program: Some("gemini"),
        user: User::Home(".gemini/settings.json"),
        project: Some(".gemini/settings.json"),
        format: Format::Json,
        table: "mcpServers",
        words: Words::Gemini,
    },
    Client {
        name: "opencode",
        title: "opencode",
        program: Some("opencode"),
        user: User::Config("opencode/opencode.json"),
        project: Some("opencode.json"),
        format: Format::Json,
        table: "mcp",
        words: Words::OpenCode,
    },
    Client {
        name: "qwen",
        title: "Qwen Code",
        program: Some("qwen"),
        user: User::Home(".qwen/settings.json"),
        project: Some(".qwen/settings.json"),
        format: Format::Json,
        table: "mcpServers",
        words: Words::Gemini,
    },
    Client {
        name: "vscode",
        title: "VS Code",
        program: Some("code"),
        user: User::Config("Code/User/mcp.json"),
        project: Some(".vscode/mcp.json"),
        format: Format::Json,
        table: "servers",
        words: Words::Typed("stdio", of_environment),
    },
    Client {
        name: "windsurf",
        title: "Windsurf",
        program: Some("windsurf"),
        user: User::Home(".codeium/windsurf/mcp_config.json"),
        project: None,
        format: Format::Json,
        table: "mcpServers",
        words: Words::Windsurf,
    },
    Client {
        name: "zed",
        title: "Zed",
        program: Some("zed"),
        user: User::Config("zed/settings.json"),
        project: None,
        format: Format::Json,
        table: "context_servers",
        words: Words::Plain(None),
    },
];

/// The reason why a client's file can't be found, or why a server can't be written into it.
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
    /// Returns the file with the user's servers. Returns `None` if only the client's own command
    /// can change the file.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder of the user's files isn't known.
    pub fn user_file(&self) -> Result<Option<PathBuf>, ClientError> {
        let file = match self.user {
            User::Home(file) => home()?.join(file),
            User::Config(file) => folder_or("XDG_CONFIG_HOME", ".config")?.join(file),
            User::Variable(variable, below, file) => folder_or(variable, below)?.join(file),
            User::Command(_) => return Ok(None),
        };
        Ok(Some(file))
    }

    /// Returns the file with the user's servers for reading. Returns `None` if there is no home
    /// folder.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder of the user's files isn't known.
    pub fn read_file(&self) -> Result<Option<PathBuf>, ClientError> {
        let User::Command(file) = self.user else { return self.user_file() };
        Ok(folder("HOME").map(|home| home.join(file)))
    }

    /// Returns the client's file in the project of the working directory.
    ///
    /// # Errors
    ///
    /// The client has no file in a project.
    pub fn project_file(&self) -> Result<PathBuf, ClientError> {
        let file = self.project.ok_or(ClientError::NoProjectFile(self.title))?;
        let here = std::env::current_dir().map_err(ClientError::WorkingDirectory)?;
        Ok(here.join(file))
    }

    /// Checks whether the client can connect to servers over HTTP with a token that isn't in its
    /// file.
    pub fn takes_http(&self) -> bool {
        !matches!(self.words, Words::Plain(None))
    }

    /// Returns the file with the client's own settings, such as permissions: of the user, or of
    /// the project. Most clients store their servers in the same file.
    ///
    /// # Errors
    ///
    /// The folder of the user's files isn't known, or the client has no file in a project.
    pub fn settings_file(&self, in_project: bool) -> Result<PathBuf, ClientError> {
        let file = if in_project { Some(self.project_file()?) } else { self.user_file()? };
        match file {
            Some(file) if self.name != "claude-code" => Ok(file),
            Some(file) => Ok(file.with_file_name(".claude").join("settings.json")),
            None => Ok(folder_or("CLAUDE_CONFIG_DIR", ".claude")?.join("settings.json")),
        }
    }

    /// Returns the entry for a server, with the client's permission for it.
    ///
    /// # Errors
    ///
    /// The client can't use such a server.
    pub fn entry(&self, server: &ServerConfig) -> Result<Value, ClientError> {
        let mut entry = match server {
            ServerConfig::Stdio { program, arguments } => self.stdio_entry(program, arguments),
            ServerConfig::Http { url, variable: Some(variable) } => {
                self.http_entry(url, variable)?
            }
            ServerConfig::Http { url, variable: None } => {
                let mut entry = self.http_entry(url, "")?;
                if let Some(fields) = entry.as_object_mut() {
                    fields.shift_remove("headers");
                    fields.shift_remove("bearer_token_env_var");
                }
                entry
            }
        };
        match self.words {
            Words::Codex => entry["default_tools_approval_mode"] = "approve".into(),
            Words::Gemini => entry["trust"] = true.into(),
            _ => {}
        }
        Ok(entry)
    }

    fn stdio_entry(&self, program: &str, arguments: &[String]) -> Value {
        match self.words {
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
                let mut command = vec![program];
                command.extend(arguments.iter().map(String::as_str));
                json!({ "type": "local", "command": command, "enabled": true })
            }
        }
    }

    /// Returns the entry for a server whose token is in a variable.
    fn http_entry(&self, url: &str, variable: &str) -> Result<Value, ClientError> {
        Ok(match self.words {
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
                let bearer = headers(format!("{{env:{variable}}}"));
                json!({ "type": "remote", "url": url, "enabled": true, "headers": bearer })
            }
            Words::Copilot => {
                let bearer = headers(braces(variable));
                json!({ "type": "http", "url": url, "headers": bearer, "tools": ["*"] })
            }
        })
    }

    /// Returns the client's command that removes a server.
    pub fn remove_command(&self, name: &str) -> Vec<String> {
        owned(&["claude", "mcp", "remove", "--scope", "user", name])
    }

    /// Returns the client's command that adds a server.
    pub fn command(&self, name: &str, server: &ServerConfig) -> Vec<String> {
        match server {
            ServerConfig::Stdio { program, arguments } => {
                let mut line =
                    owned(&["claude", "mcp", "add", "--scope", "user", name, "--", program]);
                line.extend(arguments.iter().cloned());
                line
            }
            ServerConfig::Http { url, variable } => {
                let mut line = owned(&["claude", "mcp", "add", "--scope", "user"]);
                line.extend(owned(&["--transport", "http", name, url]));
                if let Some(variable) = variable {
                    let header = format!("Authorization: Bearer {}", braces(variable));
                    line.extend(["--header".to_owned(), header]);
                }
                line
            }
        }
    }
}

/// Returns the headers with a bearer token.
fn headers(token: String) -> Value {
    json!({ "Authorization": format!("Bearer {token}") })
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn home() -> Result<PathBuf, ClientError> {
    folder("HOME").ok_or(ClientError::NoHome)
}

/// Returns the folder that a variable names. Without the variable, returns the folder `below` the
/// home folder.
fn folder_or(variable: &str, below: &str) -> Result<PathBuf, ClientError> {
    match folder(variable) {
        Some(folder) => Ok(folder),
        None => Ok(home()?.join(below)),
    }
}

/// Returns the folder that a variable names. Returns `None` if the variable isn't an absolute path.
fn folder(variable: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os(variable)?);
    folder.is_absolute().then_some(folder)
}
