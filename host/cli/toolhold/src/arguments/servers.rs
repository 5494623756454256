//! The arguments and help of `toolhold mcp` about upstream servers.

use clap::{Args, Subcommand};

/// What to do with servers: a part of `toolhold mcp`.
#[derive(Debug, Subcommand)]
pub(crate) enum ServersCommand {
    /// Add a server to your configuration, whose tools Toolhold then offers
    #[command(
        after_help = "Examples:\n  toolhold mcp add time -- uvx mcp-server-time\n  toolhold mcp add tracker --url https://mcp.example.com/mcp"
    )]
    Add {
        /// The name before `__` in the names of its tools
        name: String,
        /// Where the server runs, if it isn't a program that Toolhold starts
        #[arg(long, value_name = "URL", conflicts_with = "command")]
        url: Option<String>,
        /// The program that is the server, with its arguments
        #[arg(last = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
    /// Remove a server from your configuration
    #[command(after_help = "Example:\n  toolhold mcp remove time")]
    Remove {
        /// Its name
        name: String,
    },
    /// List the servers whose tools Toolhold offers, and what they are doing in running hosts
    #[command(after_help = "Examples:\n  toolhold mcp list\n  toolhold mcp list --json")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Add the servers that the files of your MCP clients name to your configuration
    Import(ImportArguments),
    /// Log in at the authorization server of a server at a URL
    #[command(after_help = "Example:\n  toolhold mcp login tracker")]
    Login {
        /// The name of its table: `[mcp.servers.NAME]`
        name: String,
    },
    /// Forget what a login brought
    #[command(after_help = "Example:\n  toolhold mcp logout tracker")]
    Logout {
        /// The name of its table: `[mcp.servers.NAME]`
        name: String,
    },
    /// Show what a server of your configuration offers, and approve it
    #[command(after_help = "Example:\n  toolhold mcp approve time")]
    Approve {
        /// The name of its table: `[mcp.servers.NAME]`
        name: String,
        /// Start and approve it without asking
        #[arg(long)]
        yes: bool,
    },
}

/// `toolhold mcp import`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  toolhold mcp import\n  toolhold mcp import cursor\n  toolhold mcp import claude-code --project\n\nThe servers that the files of your MCP clients name become tables of your \
                  toolhold.toml. Credentials become secrets in files beside it. Nothing starts before `toolhold mcp approve`. Afterwards `toolhold mcp config CLIENT --write --replace` \
                  puts Toolhold into the client's file, in their place."
)]
pub(crate) struct ImportArguments {
    /// The client; without one, all known clients
    pub(crate) client: Option<String>,
    /// Read the file of the project in the working directory, instead of the user's
    #[arg(long)]
    pub(crate) project: bool,
    /// Import without asking
    #[arg(long)]
    pub(crate) yes: bool,
}
