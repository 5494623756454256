//! Settings with which MCP clients allow calls of Toolhold or disable their own tools, from the
//! clients' documentation.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::client_files::known::Client;

/// A setting in a client's file.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The path of the setting.
    pub keys: Vec<String>,
    /// The value. Items of a list are added to the list in the file.
    pub value: Value,
}

impl Setting {
    fn new(keys: &[&str], value: Value) -> Self {
        Self { keys: keys.iter().map(|&key| key.to_owned()).collect(), value }
    }
}

/// How a client gets into a state.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientState {
    /// The server's entry already has this effect.
    InEntry,
    /// With these settings. The text describes what the settings don't cover, and may be empty.
    Settings(Vec<Setting>, &'static str),
    /// By hand, because no file has such a setting. The sentence says how.
    ByHand(Cow<'static, str>),
}

/// The text of settings that cover everything.
const NOTHING_LEFT: &str = "";

impl Client {
    /// Returns how the client allows the calls of the server `name` without its own question.
    /// Toolhold's rules then decide.
    pub fn permission(&self, name: &str) -> ClientState {
        match self.name {
            "codex" | "gemini" | "qwen" => ClientState::InEntry,
            "claude-code" => {
                let rule = json!([format!("mcp__{name}")]);
                ClientState::Settings(
                    vec![Setting::new(&["permissions", "allow"], rule)],
                    NOTHING_LEFT,
                )
            }
            "opencode" => {
                let tools = format!("{name}_*");
                let allow = Setting::new(&["permission", &tools], json!("allow"));
                ClientState::Settings(vec![allow], NOTHING_LEFT)
            }
            "copilot" => ClientState::ByHand(
                "Copilot CLI has no such setting in a file: start it with `--allow-tool` and the \
                 name of the server."
                    .into(),
            ),
            "cursor" => ClientState::ByHand(
                format!(
                    "Cursor asks before each tool: allow it in the dialog, or add \"{name}:*\" to \
                     `mcpAllowlist` in ~/.cursor/permissions.json, which replaces the list of the \
                     app."
                )
                .into(),
            ),
            "zed" => ClientState::ByHand(
                "Zed allows single tools: choose \"Always allow\" at the first call of each."
                    .into(),
            ),
            "vscode" => ClientState::ByHand(
                "VS Code has no such setting in a file: choose \"Always Allow\" at the first call."
                    .into(),
            ),
            _ => ClientState::ByHand(
                "This client has no such setting in a file: allow the tools in its dialog.".into(),
            ),
        }
    }

    /// Returns how the client's own tools for files, commands and the web are disabled.
    pub fn own_tools_off(&self) -> ClientState {
        match self.name {
            "claude-code" => {
                let tools = json!([
                    "Bash",
                    "Edit",
                    "Glob",
                    "Grep",
                    "Monitor",
                    "NotebookEdit",
                    "Read",
                    "WebFetch",
                    "WebSearch",
                    "Write"
                ]);
                ClientState::Settings(
                    vec![Setting::new(&["permissions", "deny"], tools)],
                    NOTHING_LEFT,
                )
            }
            "codex" => ClientState::Settings(
                vec![
                    Setting::new(&["web_search"], json!("disabled")),
                    Setting::new(&["features", "shell_tool"], json!(false)),
                ],
                "Codex keeps the tool `apply_patch`. With `sandbox_mode = \"read-only\"`, Codex \
                 asks before each use.",
            ),
            "gemini" => {
                let tools = json!([
                    "glob",
                    "google_web_search",
                    "grep_search",
                    "list_directory",
                    "read_file",
                    "read_many_files",
                    "replace",
                    "run_shell_command",
                    "web_fetch",
                    "write_file"
                ]);
                ClientState::Settings(
                    vec![Setting::new(&["tools", "exclude"], tools)],
                    NOTHING_LEFT,
                )
            }
            "qwen" => {
                let tools = json!([
                    "edit",
                    "glob",
                    "grep_search",
                    "list_directory",
                    "monitor",
                    "read_file",
                    "run_shell_command",
                    "web_fetch",
                    "write_file"
                ]);
                ClientState::Settings(
                    vec![Setting::new(&["permissions", "deny"], tools)],
                    NOTHING_LEFT,
                )
            }
            "opencode" => {
                let tools =
                    ["bash", "edit", "glob", "grep", "list", "read", "webfetch", "websearch"];
                let deny = tools.map(|tool| Setting::new(&["permission", tool], json!("deny")));
                ClientState::Settings(deny.into(), NOTHING_LEFT)
            }
            "zed" => {
                let profile =
                    json!({ "name": "Toolhold", "tools": {}, "enable_all_context_servers": true });
                ClientState::Settings(
                    vec![
                        Setting::new(&["agent", "profiles", "toolhold"], profile),
                        Setting::new(&["agent", "default_profile"], json!("toolhold")),
                    ],
                    "A chat in another profile of Zed has Zed's own tools.",
                )
            }
            "claude-desktop" => ClientState::ByHand(
                "Claude Desktop has no tools for files and commands, except in its extensions."
                    .into(),
            ),
            "copilot" => ClientState::ByHand(
                "Copilot CLI has no such setting in a file: start it with `--excluded-tools`."
                    .into(),
            ),
            "vscode" => ClientState::ByHand(
                "VS Code has no such setting in a file: deselect its tools in the chat's tool \
                 picker."
                    .into(),
            ),
            _ => ClientState::ByHand(
                "This client can't switch off its own tools: no rule of Toolhold applies to them."
                    .into(),
            ),
        }
    }
}
