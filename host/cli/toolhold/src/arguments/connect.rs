//! The arguments and help of `toolhold connect`.

use clap::Args;
use toolhold_core::NAME;

const CONNECT_AFTER: &str = "\
Examples:
  toolhold connect
  toolhold connect cursor
  toolhold connect codex --only-toolhold
  toolhold connect vscode --project --yes
  toolhold connect claude-desktop -- --allow /home/u/project
  toolhold connect codex --http http://127.0.0.1:8300/mcp
  toolhold connect cursor --undo

The command shows the change of each file, asks, and keeps the rest of the file. The client then \
starts this binary by its path; with --project, by the name `toolhold` if that name in PATH is \
this binary. The client asks nothing about the calls of this server, because the rules of Toolhold \
decide about them. For a server over HTTP, the file names a variable with the token, never the \
token itself.";

/// `toolhold connect`.
#[derive(Args, Clone, Debug)]
#[command(after_help = CONNECT_AFTER)]
pub(crate) struct ConnectArguments {
    /// The client; without one, the known clients are listed
    pub(crate) client: Option<String>,
    /// Write the change without asking
    #[arg(long, requires = "client")]
    pub(crate) yes: bool,
    /// Print the entry for the client's file, and change nothing
    #[arg(long, requires = "client", conflicts_with_all = ["yes", "undo"])]
    pub(crate) print: bool,
    /// Take back what this command changed in the client's files
    #[arg(long, requires = "client", conflicts_with_all = ["http", "serve", "only_toolhold", "replace"])]
    pub(crate) undo: bool,
    /// Switch off the client's own tools for files, commands and the web
    #[arg(long, requires = "client")]
    pub(crate) only_toolhold: bool,
    /// Remove the servers that Toolhold offers itself, such as imported ones, from the file
    #[arg(long, requires = "client")]
    pub(crate) replace: bool,
    /// Use the files of the project in the working directory, instead of the user's
    #[arg(long, requires = "client")]
    pub(crate) project: bool,
    /// The server's name in the client, by default `toolhold`; with --undo, only this server
    #[arg(long, value_name = "NAME", requires = "client")]
    pub(crate) name: Option<String>,
    /// The URL of a running server; without it, the client starts the server
    #[arg(long, value_name = "URL", requires = "client")]
    pub(crate) http: Option<String>,
    /// The environment variable with that server's token
    #[arg(long, value_name = "NAME", default_value = "MCP_TOOLHOLD_TOKEN", requires = "http")]
    pub(crate) token_variable: String,
    /// The client gets that server's tokens from an authorization server by itself
    #[arg(long, requires = "http", conflicts_with = "token_variable")]
    pub(crate) oauth: bool,
    /// Print JSON: the clients, or the change, which is written only with --yes
    #[arg(long)]
    pub(crate) json: bool,
    /// Options of `toolhold serve`
    #[arg(last = true, value_name = "OPTIONS", requires = "client")]
    pub(crate) serve: Vec<String>,
}

impl ConnectArguments {
    /// Returns the server's name in the client.
    pub(crate) fn server_name(&self) -> &str {
        self.name.as_deref().unwrap_or(NAME)
    }

    /// Returns the arguments of `toolhold connect CLIENT`, with `--yes` if `yes` is set.
    pub(crate) fn of_client(name: &str, yes: bool) -> Self {
        Self {
            client: Some(name.to_owned()),
            yes,
            print: false,
            undo: false,
            only_toolhold: false,
            replace: false,
            project: false,
            name: None,
            http: None,
            token_variable: "MCP_TOOLHOLD_TOKEN".to_owned(),
            oauth: false,
            json: false,
            serve: Vec::new(),
        }
    }
}
