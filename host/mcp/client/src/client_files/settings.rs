//! The settings with which an MCP client lets calls of our server pass, and with which it switches
//! off its own tools. From the clients' own documentation.

use serde_json::{Value, json};

use crate::client_files::known::Client;

/// A setting in a client's file.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The keys that lead to the setting.
    pub keys: Vec<String>,
    /// The value. The items of a list are added to the list in the file.
    pub value: Value,
}

impl Setting {
    fn new(keys: &[&str], value: Value) -> Self {
        Self { keys: keys.iter().map(|&key| key.to_owned()).collect(), value }
    }
}

/// The way to a state of a client.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientState {
    /// The entry of the server brings about the state.
    InEntry,
    /// These settings bring about the state. The second part says what the settings can't do, or is
    /// empty.
    Settings(Vec<Setting>, &'static str),
    /// No file of the client has such a setting. The sentence says what to do instead.
    ByHand(&'static str),
}

impl Client {
    /// Returns how the client lets the calls of the server `name` pass without a question of its
    /// own. The rules of Toolhold then decide about each call.
    pub fn permission(&self, name: &str) -> ClientState {
        match self.name {
            "codex" | "gemini" | "qwen" => ClientState::InEntry,
            "claude-code" => {
                let rule = json!([format!("mcp__{name}")]);
                ClientState::Settings(vec![Setting::new(&["permissions", "allow"], rule)], "")
            }
            "opencode" => {
                let tools = format!("{name}_*");
                let allow = Setting::new(&["permission", &tools], json!("allow"));
                ClientState::Settings(vec![allow], "")
            }
            "copilot" => ClientState::ByHand(
                "Copilot CLI has no such setting in a file: start it with `--allow-tool` and the \
                 name of the server.",
            ),
            "cursor" => ClientState::ByHand(
                "Cursor asks before each tool: allow it in the dialog, or add \"SERVER:*\" to \
                 `mcpAllowlist` in ~/.cursor/permissions.json, which replaces the list of the app.",
            ),
            "zed" => ClientState::ByHand(
                "Zed allows single tools: choose \"Always allow\" at the first call of each.",
            ),
            "vscode" => ClientState::ByHand(
                "VS Code has no such setting in a file: choose \"Always Allow\" at the first call.",
            ),
            _ => ClientState::ByHand(
                "This client has no such setting in a file: allow the tools in its dialog.",
            ),
        }
    }

    /// Returns how the client's own tools for files, commands and the web are switched off.
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
                ClientState::Settings(vec![Setting::new(&["permissions", "deny"], tools)], "")
            }
            "codex" => ClientState::Settings(
                vec![
                    Setting::new(&["web_search"], json!("disabled")),
                    Setting::new(&["features", "shell_tool"], json!(false)),
                ],
                "Codex keeps its tool `apply_patch`, which `sandbox_mode = \"read-only\"` makes ask.",
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
                ClientState::Settings(vec![Setting::new(&["tools", "exclude"], tools)], "")
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
                ClientState::Settings(vec![Setting::new(&["permissions", "deny"], tools)], "")
            }
            "opencode" => {
                let tools =
                    ["bash", "edit", "glob", "grep", "list", "read", "webfetch", "websearch"];
                let deny = tools.map(|tool| Setting::new(&["permission", tool], json!("deny")));
                ClientState::Settings(deny.into(), "")
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
                "Claude Desktop has no tools for files and commands, except in its extensions.",
            ),
            "copilot" => ClientState::ByHand(
                "Copilot CLI has no such setting in a file: start it with `--excluded-tools`.",
            ),
            "vscode" => ClientState::ByHand(
                "VS Code has no such setting in a file: deselect its tools in the chat's tool picker.",
            ),
            _ => ClientState::ByHand(
                "This client can't switch off its own tools: no rule of Toolhold applies to them.",
            ),
        }
    }
}
