//! The arguments and help of `toolhold mcp` about upstream servers.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The subcommands of `toolhold mcp` about servers.
#[derive(Debug, Subcommand)]
pub(crate) enum ServersCommand {
    /// Add a server to your configuration; Toolhold then offers its tools
    Add(AddServerArguments),
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
    /// Show the tools of a server in your configuration, and approve the server
    #[command(
        after_help = APPROVE_AFTER
    )]
    Approve {
        /// The server's name: NAME of `[mcp.servers.NAME]`
        name: String,
        /// Start and approve the server without asking
        #[arg(long)]
        yes: bool,
        /// Show each definition as a whole, as models read it
        #[arg(long)]
        full: bool,
    },
}

const APPROVE_AFTER: &str = "\
Examples:
  toolhold mcp approve time
  toolhold mcp approve time --full

The approval is servers/NAME.json in the data folder. An administrator's copy in \
/etc/toolhold/servers approves the server for every user of the machine.";

const ADD_AFTER: &str = "\
Examples:
  toolhold mcp add time -- uvx mcp-server-time
  toolhold mcp add files --allow-read ~/notes -- npx -y server-filesystem ~/notes
  toolhold mcp add db --host db.corp:5432 --secret URL=file:~/db-url -- db-server '${secret:URL}'
  toolhold mcp add tracker --url https://mcp.example.com/mcp --secret token=env:TRACKER_TOKEN

A program runs in the sandbox, and gets what you name here and nothing else. Toolhold proposes \
what the arguments name (a directory, a database) and what a well-known server needs, and asks. \
Without a terminal, it prints the lines and grants nothing, unless --yes is given.";

/// `toolhold mcp add`.
#[derive(Args, Debug)]
#[command(after_help = ADD_AFTER)]
pub(crate) struct AddServerArguments {
    /// The server's name, which stands before `__` in the names of its tools
    pub(crate) name: String,
    /// The server's URL, if Toolhold doesn't start the server as a program
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    pub(crate) url: Option<String>,
    /// A directory that the server may read and change
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    pub(crate) allow_path: Vec<PathBuf>,
    /// A directory that the server may read
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    pub(crate) allow_read: Vec<PathBuf>,
    /// Let the server use the network, as a whole
    #[arg(long, conflicts_with = "url")]
    pub(crate) network: bool,
    /// A host that the server reaches: a name, `*.` and a name, or a name with a port
    #[arg(long, value_name = "HOST", conflicts_with_all = ["url", "network"])]
    pub(crate) host: Vec<String>,
    /// A variable of your environment that the server gets, or a variable with its value
    #[arg(long, value_name = "NAME[=VALUE]", conflicts_with = "url")]
    pub(crate) env: Vec<String>,
    /// A secret that the server gets: NAME=env:VARIABLE or NAME=file:PATH. A program gets it in the
    /// variable NAME, and in an argument in place of `${secret:NAME}`
    #[arg(long, value_name = "NAME=SOURCE")]
    pub(crate) secret: Vec<String>,
    /// Your development tools that the server uses, such as `node` or `uv`
    #[arg(long, value_name = "NAME", conflicts_with = "url")]
    pub(crate) preset: Vec<String>,
    /// Grant what is proposed, without asking
    #[arg(long, short, conflicts_with = "url")]
    pub(crate) yes: bool,
    /// The command that starts the server, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// `toolhold mcp import`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  toolhold mcp import\n  toolhold mcp import cursor\n  toolhold mcp \
         import claude-code --project\n\nThe servers in the files of your MCP clients become \
         tables of your toolhold.toml. Credentials become secrets in files next to it. Grants that \
         a server seems to need are proposed; --yes grants them, except with --project. No server \
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
