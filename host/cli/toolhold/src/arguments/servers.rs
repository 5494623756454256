//! The arguments and help of `toolhold mcp` about upstream servers.

use clap::{Args, Subcommand};

/// The subcommands of `toolhold mcp` about servers.
#[derive(Debug, Subcommand)]
pub(crate) enum ServersCommand {
    /// Add a server to your configuration; Toolhold then offers its tools
    #[command(
        after_help = "Examples:\n  toolhold mcp add time -- uvx mcp-server-time\n  toolhold mcp add tracker --url https://mcp.example.com/mcp"
    )]
    Add {
        /// The server's name, which stands before `__` in the names of its tools
        name: String,
        /// The server's URL, if Toolhold doesn't start the server as a program
        #[arg(long, value_name = "URL", conflicts_with = "command")]
        url: Option<String>,
        /// The command that starts the server, with its arguments
        #[arg(last = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
    /// Remove a server from your configuration
    #[command(after_help = "Example:\n  toolhold mcp remove time")]
    Remove {
        /// The server's name
        name: String,
    },
    /// List the servers whose tools Toolhold offers, and their state
    #[command(after_help = "Examples:\n  toolhold mcp list\n  toolhold mcp list --json")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Add the servers from the files of your MCP clients to your configuration
    Import(ImportArguments),
    /// Log in to a server with a URL, at its authorization server
    #[command(after_help = "Example:\n  toolhold mcp login tracker")]
    Login {
        /// The server's name: NAME of `[mcp.servers.NAME]`
        name: String,
    },
    /// Delete the stored tokens of a server
    #[command(after_help = "Example:\n  toolhold mcp logout tracker")]
    Logout {
        /// The server's name: NAME of `[mcp.servers.NAME]`
        name: String,
    },
    /// Show the tools of a server in your configuration, and approve it
    #[command(after_help = "Example:\n  toolhold mcp approve time")]
    Approve {
        /// The server's name: NAME of `[mcp.servers.NAME]`
        name: String,
        /// Start and approve it without asking
        #[arg(long)]
        yes: bool,
    },
}

/// `toolhold mcp import`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  toolhold mcp import\n  toolhold mcp import cursor\n  toolhold mcp \
         import claude-code --project\n\nThe servers in the files of your MCP clients become \
         tables of your toolhold.toml. Credentials become secrets in files next to it. No server \
         starts before `toolhold mcp approve`. Afterwards, `toolhold connect CLIENT \
         --replace` replaces these servers in the client's file by Toolhold."
)]
pub(crate) struct ImportArguments {
    /// The client; without it, all known clients
    pub(crate) client: Option<String>,
    /// Read the file of the project in the working directory, instead of the user's
    #[arg(long)]
    pub(crate) project: bool,
    /// Import without asking
    #[arg(long)]
    pub(crate) yes: bool,
}
