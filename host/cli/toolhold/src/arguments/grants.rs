//! The arguments and help of `toolhold init`, `toolhold allow` and `toolhold trust`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

const INIT_AFTER: &str = "\
Examples:
  toolhold init
  toolhold init --folder . --folder ~/notes --write no --network no
  toolhold init --presets yes --connect claude-code --connect cursor
  toolhold init --providers yes --import yes
  toolhold init --print | less
  toolhold init --undo

The command asks for each value that no option gives. Without a terminal, it needs --folder, \
--write or --network, and uses the default answers for the other values. An existing configuration \
is never overwritten. --print prints a toolhold.toml with every key, all commented out.";

/// `toolhold init`.
#[derive(Args, Debug)]
#[command(after_help = INIT_AFTER)]
pub(crate) struct InitArguments {
    /// Let tools use this folder; repeat it for more folders
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) folder: Vec<PathBuf>,
    /// Whether tools may write in these folders without asking
    #[arg(long, value_name = "yes|no")]
    pub(crate) write: Option<YesOrNo>,
    /// Whether commands may use the network without asking
    #[arg(long, value_name = "yes|no")]
    pub(crate) network: Option<YesOrNo>,
    /// Whether commands may use the toolchains in your home, such as those of rustup and uv
    #[arg(long, value_name = "yes|no")]
    pub(crate) presets: Option<YesOrNo>,
    /// Whether to add the providers of models whose keys are in your environment
    #[arg(long, value_name = "yes|no")]
    pub(crate) providers: Option<YesOrNo>,
    /// Connect this MCP client; repeat it for more clients
    #[arg(long, value_name = "CLIENT")]
    pub(crate) connect: Vec<String>,
    /// Whether to import the servers of your MCP clients, with the grants that they seem to need
    #[arg(long, value_name = "yes|no")]
    pub(crate) import: Option<YesOrNo>,
    /// Print a file with every key instead
    #[arg(long, exclusive = true)]
    pub(crate) print: bool,
    /// Remove the files that this command wrote, and take back the connections that it made
    #[arg(
        long,
        conflicts_with_all = [
            "folder", "write", "network", "presets", "providers", "connect", "import",
        ]
    )]
    pub(crate) undo: bool,
    /// With --undo, don't ask
    #[arg(long, requires = "undo")]
    pub(crate) yes: bool,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum YesOrNo {
    Yes,
    No,
}

const ALLOW_AFTER: &str = "\
Examples:
  toolhold allow ~/notes --read
  toolhold allow ../shared
  toolhold allow --host docs.rs
  toolhold allow --host '*.example.com'
  toolhold allow --host https://example.com:8443
  toolhold allow --tool 'git__*'

The line is written into your own toolhold.toml. A directory is granted to the file tools, and to \
commands unless [tools.shell] has its own `allowed_paths`. A host is granted to the web tools; \
requests to other hosts need approval. A glob such as `git__*` allows the tools of that plugin or \
server, except those that say that they may destroy something. Commands reach the hosts in \
`hosts` of [tools.shell].";

/// `toolhold allow`.
#[derive(Args, Debug)]
#[command(after_help = ALLOW_AFTER)]
pub(crate) struct AllowArguments {
    /// The directory, with everything below it
    #[arg(required_unless_present_any = ["host", "tool"], conflicts_with_all = ["host", "tool"])]
    pub(crate) directory: Option<PathBuf>,
    /// Grant reading only
    #[arg(short, long, conflicts_with_all = ["host", "tool"])]
    pub(crate) read: bool,
    /// Let the web tools reach this host: a name, `*.` and a name, or a URL with scheme and port
    #[arg(long, conflicts_with = "tool")]
    pub(crate) host: Option<String>,
    /// Let this tool of a plugin or server run without approval: a name, or a glob such as `git__*`
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: Option<String>,
}

const TRUST_AFTER: &str = "\
Examples:
  toolhold trust
  toolhold trust --list
  toolhold trust --forget

A toolhold.toml in the working directory can only restrict: grants in it are ignored, with a \
notice. This command shows these grants, asks, and then applies the file like one of your own, \
until the file changes. Your denials stay in any case. The rules in a filters.toml next to it \
apply only after you trust them.";

/// `toolhold trust`.
#[derive(Args, Debug)]
#[command(after_help = TRUST_AFTER)]
pub(crate) struct TrustArguments {
    /// The file's folder, instead of the working directory
    pub(crate) directory: Option<PathBuf>,
    /// Trust the files without asking
    #[arg(short, long, conflicts_with_all = ["list", "forget"])]
    pub(crate) yes: bool,
    /// List the trusted files
    #[arg(long, conflicts_with_all = ["forget", "directory"])]
    pub(crate) list: bool,
    /// Stop trusting the files
    #[arg(long)]
    pub(crate) forget: bool,
}
