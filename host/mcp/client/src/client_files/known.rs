//! The known MCP clients, and the files and formats of their servers, from their documentation.

use std::io;
use std::path::PathBuf;

use serde_json::{Value, json};

/// A server that a client uses.
pub enum ServerConfig {
    /// A process that the client starts.
    Stdio {
        /// The program.
        program: String,
        /// The arguments of the program.
        arguments: Vec<String>,
    },
    /// A server at a URL. Without a token, the client logs in at an authorization server.
    Http {
        /// The URL of the server.
        url: String,
        /// The environment variable with the token.
        variable: Option<String>,
    },
}

/// An MCP client.
pub struct Client {
    /// The client's name on Toolhold's command line.
    pub name: &'static str,
    /// The client's name for people.
    pub title: &'static str,
    /// The client's program, if it is started in a shell.
    pub program: Option<&'static str>,
    user: User,
    /// The client's file in a project.
    pub project: Option<&'static str>,
    /// The format of the client's files.
    pub format: Format,
    /// The table of the servers.
    pub table: &'static str,
    entry_form: EntryForm,
}

/// The file for all projects of a user.
enum User {
    Home(&'static str),
    /// In `$XDG_CONFIG_HOME`, by default `~/.config`.
    Config(&'static str),
    /// In the folder that the variable names, by default a folder below the home folder.
    Variable(&'static str, &'static str, &'static str),
    /// In the home folder. Only the client itself writes this file.
    Command(&'static str),
}

/// The format of a client's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON with comments and trailing commas, which most clients accept.
    Json,
    /// TOML.
    Toml,
}

/// The form of a server's entry.
enum EntryForm {
    /// `command` and `args`, or `url` and `headers`. The function formats a reference to the
    /// token's variable. `None` if the client has no such references.
    Plain(Option<fn(&str) -> String>),
    /// As `Plain`, but with a `type`. For a URL, the type is `http`.
    Typed(&'static str, fn(&str) -> String),
    Windsurf,
    Gemini,
    Codex,
    OpenCode,
    Copilot,
}

fn braced_variable(variable: &str) -> String {
    format!("${{{variable}}}")
}

fn environment_reference(variable: &str) -> String {
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
        entry_form: EntryForm::Typed("stdio", braced_variable),
    },
    Client {
        name: "claude-desktop",
        title: "Claude Desktop",
        program: None,
        user: User::Config("Claude/claude_desktop_config.json"),
        project: None,
        format: Format::Json,
        table: "mcpServers",
        entry_form: EntryForm::Plain(None),
    },
    Client {
        name: "codex",
        title: "Codex",
        program: Some("codex"),
        user: User::Variable("CODEX_HOME", ".codex", "config.toml"),
        project: Some(".codex/config.toml"),
        format: Format::Toml,
        table: "mcp_servers",
        entry_form: EntryForm::Codex,
    },
    Client {
        name: "copilot",
        title: "Copilot CLI",
        program: Some("copilot"),
        user: User::Home(".copilot/mcp-config.json"),
        project: None,
        format: Format::Json,
        table: "mcpServers",
        entry_form: EntryForm::Copilot,
    },
    Client {
        name: "cursor",
        title: "Cursor",
        program: Some("cursor"),
        user: User::Home(".cursor/mcp.json"),
        project: Some(".cursor/mcp.json"),
        format: Format::Json,
        table: "mcpServers",
        entry_form: EntryForm::Plain(Some(environment_reference)),
    },
    Client {
        name: "gemini",
        title: "Gemini CLI",
        program: Some("gemini"),
        user: User::Home(".gemini/settings.json"),
        project: Some(".gemini/settings.json"),
        format: Format::Json,
        table: "mcpServers",
        entry_form: EntryForm::Gemini,
    },
    Client {
        name: "opencode",
        title: "opencode",
        program: Some("opencode"),
        user: User::Config("opencode/opencode.json"),
        project: Some("opencode.json"),
        format: Format::Json,
        table: "mcp",
        entry_form: EntryForm::OpenCode,
    },
    Client {
        name: "qwen",
        title: "Qwen Code",
        program: Some("qwen"),
        user: User::Home(".qwen/settings.json"),
        project: Some(".qwen/settings.json"),
        format: Format::Json,
        table: "mcpServers",
        entry_form: EntryForm::Gemini,
    },
    Client {
        name: "vscode",
        title: "VS Code",
        program: Some("code"),
        user: User::Config("Code/User/mcp.json"),
        project: Some(".vscode/mcp.json"),
        format: Format::Json,
        table: "servers",
        entry_form: EntryForm::Typed("stdio", environment_reference),
    },
    Client {
        name: "windsurf",
        title: "Windsurf",
        program: Some("windsurf"),
        user: User::Home(".codeium/windsurf/mcp_config.json"),
        project: None,
        format: Format::Json,
        table: "mcpServers",
        entry_form: EntryForm::Windsurf,
    },
    Client {
        name: "zed",
        title: "Zed",
        program: Some("zed"),
        user: User::Config("zed/settings.json"),
        project: None,
        format: Format::Json,
        table: "context_servers",
        entry_form: EntryForm::Plain(None),
    },
];

/// The reason why a client's file can't be found or a server can't be added.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The home folder isn't known.
    #[error("HOME isn't set to a folder, so the client's file can't be found")]
    NoHome,
    /// The client reads no file in projects.
    #[error("{0} has no file in a project")]
    NoProjectFile(&'static str),
    /// The working directory isn't known.
    #[error("the working directory can't be found: {0}")]
    WorkingDirectory(io::Error),
    /// The client can't read a token from a variable.
    #[error("{0}'s file would have to contain the server's token; let {0} start `toolhold serve`")]
    TokenInFile(&'static str),
}

impl Client {
    /// Returns the user's file. Returns `None` if only the client's own command may change the
    /// file.
    ///
    /// # Errors
    ///
    /// Returns an error if the home folder isn't known.
    pub fn user_file(&self) -> Result<Option<PathBuf>, ClientError> {
        let file = match self.user {
            User::Home(file) => home()?.join(file),
            User::Config(file) => folder_or("XDG_CONFIG_HOME", ".config")?.join(file),
            User::Variable(variable, default_folder, file) => {
                folder_or(variable, default_folder)?.join(file)
            }
            User::Command(_) => return Ok(None),
        };
        Ok(Some(file))
    }

    /// Returns the path of the user's file for reading, even if only the client's own command may
    /// change this file. For such a file, returns `None` in place of an error if the home folder
    /// isn't known.
    ///
    /// # Errors
    ///
    /// Returns an error if the home folder isn't known, and Toolhold may change the file.
    pub fn read_file(&self) -> Result<Option<PathBuf>, ClientError> {
        let User::Command(file) = self.user else { return self.user_file() };
        Ok(folder("HOME").map(|home| home.join(file)))
    }

    /// Returns the file in the project of the working directory.
    ///
    /// # Errors
    ///
    /// Returns an error if the client reads no file in projects.
    pub fn project_file(&self) -> Result<PathBuf, ClientError> {
        let file = self.project.ok_or(ClientError::NoProjectFile(self.title))?;
        let here = std::env::current_dir().map_err(ClientError::WorkingDirectory)?;
        Ok(here.join(file))
    }

    /// Checks whether the client can use HTTP servers with a token that isn't in its file.
    pub fn takes_http(&self) -> bool {
        !matches!(self.entry_form, EntryForm::Plain(None))
    }

    /// Returns the file with the client's settings, such as permissions. Most clients have the
    /// settings and the servers in the same file.
    ///
    /// # Errors
    ///
    /// Returns an error if the home folder isn't known or the client reads no file in projects.
    pub fn settings_file(&self, in_project: bool) -> Result<PathBuf, ClientError> {
        let file = if in_project { Some(self.project_file()?) } else { self.user_file()? };
        let Some(file) = file else {
            // The client without a user's file is Claude Code.
            return Ok(folder_or("CLAUDE_CONFIG_DIR", ".claude")?.join("settings.json"));
        };
        // In a project, Claude Code has a separate file for settings.
        if self.name == "claude-code" {
            return Ok(file.with_file_name(".claude").join("settings.json"));
        }
        Ok(file)
    }

    /// Returns the entry for a server, including the client's permission for its calls.
    ///
    /// # Errors
    ///
    /// Returns an error if the client can't use such a server.
    pub fn entry(&self, server: &ServerConfig) -> Result<Value, ClientError> {
        let mut entry = match server {
            ServerConfig::Stdio { program, arguments } => self.stdio_entry(program, arguments),
            ServerConfig::Http { url, variable: Some(variable) } => {
                self.http_entry(url, variable)?
            }
            ServerConfig::Http { url, variable: None } => {
                let no_variable = "";
                let mut entry = self.http_entry(url, no_variable)?;
                // The client must not send a token, so the fields with the token are removed.
                if let Some(fields) = entry.as_object_mut() {
                    fields.shift_remove("headers");
                    fields.shift_remove("bearer_token_env_var");
                }
                entry
            }
        };
        // With these fields, the client doesn't ask the user before a call, because Toolhold's
        // rules decide on calls.
        match self.entry_form {
            EntryForm::Codex => entry["default_tools_approval_mode"] = "approve".into(),
            EntryForm::Gemini => entry["trust"] = true.into(),
            _ => {}
        }
        Ok(entry)
    }

    /// Returns the entry of a server that the client starts.
    fn stdio_entry(&self, program: &str, arguments: &[String]) -> Value {
        match self.entry_form {
            EntryForm::Plain(_) | EntryForm::Windsurf | EntryForm::Gemini | EntryForm::Codex => {
                json!({ "command": program, "args": arguments })
            }
            EntryForm::Typed(kind, _) => {
                json!({ "type": kind, "command": program, "args": arguments })
            }
            EntryForm::Copilot => {
                json!({ "type": "local", "command": program, "args": arguments, "tools": ["*"] })
            }
            EntryForm::OpenCode => {
                let mut command = vec![program];
                command.extend(arguments.iter().map(String::as_str));
                json!({ "type": "local", "command": command, "enabled": true })
            }
        }
    }

    /// Returns the entry of a server at a URL. `variable` is the environment variable with the
    /// token.
    fn http_entry(&self, url: &str, variable: &str) -> Result<Value, ClientError> {
        let entry = match self.entry_form {
            EntryForm::Plain(Some(reference)) => {
                json!({ "url": url, "headers": headers(reference(variable)) })
            }
            EntryForm::Plain(None) => return Err(ClientError::TokenInFile(self.title)),
            EntryForm::Typed(_, reference) => {
                json!({ "type": "http", "url": url, "headers": headers(reference(variable)) })
            }
            EntryForm::Windsurf => {
                json!({ "serverUrl": url, "headers": headers(environment_reference(variable)) })
            }
            EntryForm::Gemini => {
                json!({ "httpUrl": url, "headers": headers(braced_variable(variable)) })
            }
            EntryForm::Codex => json!({ "url": url, "bearer_token_env_var": variable }),
            EntryForm::OpenCode => {
                let bearer = headers(format!("{{env:{variable}}}"));
                json!({ "type": "remote", "url": url, "enabled": true, "headers": bearer })
            }
            EntryForm::Copilot => {
                let bearer = headers(braced_variable(variable));
                json!({ "type": "http", "url": url, "headers": bearer, "tools": ["*"] })
            }
        };
        Ok(entry)
    }

    /// Returns the client's command that removes a server.
    pub fn remove_command(&self, name: &str) -> Vec<String> {
        owned(&["claude", "mcp", "remove", "--scope", "user", name])
    }

    /// Returns the command of Claude Code that adds a server. No other client needs a command.
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
                    let header = format!("Authorization: Bearer {}", braced_variable(variable));
                    line.extend(["--header".to_owned(), header]);
                }
                line
            }
        }
    }
}

fn headers(token: String) -> Value {
    json!({ "Authorization": format!("Bearer {token}") })
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn home() -> Result<PathBuf, ClientError> {
    folder("HOME").ok_or(ClientError::NoHome)
}

/// Returns the folder that a variable names, or the folder `below` the home folder.
fn folder_or(variable: &str, below: &str) -> Result<PathBuf, ClientError> {
    match folder(variable) {
        Some(folder) => Ok(folder),
        None => Ok(home()?.join(below)),
    }
}

/// Returns the folder that a variable names. Relative paths are ignored.
fn folder(variable: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os(variable)?);
    folder.is_absolute().then_some(folder)
}
