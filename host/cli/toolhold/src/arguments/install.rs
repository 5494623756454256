//! The arguments and help of the commands that install plugins, such as `toolhold plugin add`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

const ADD_AFTER: &str = "\
Examples:
  toolhold plugin add notes.wasm
  toolhold plugin add https://example.com/notes.wasm --allow-read ~/notes
  toolhold plugin add oci://registry.example.com/notes:1.2 --allow-host api.example.com

The command shows what the plugin asks for, and asks you. The plugin gets only the grants that you \
name.";

const GRANT_AFTER: &str = "\
Examples:
  toolhold plugin grant notes --allow-read ~/notes
  toolhold plugin grant notes --allow-host api.example.com --store 16

The grants are added to [plugins.NAME]. A plugin that asks only to read gets only that. Without \
options, the command lists the grants and what is missing.";

const PUBLISH_AFTER: &str = "\
Examples:
  toolhold plugin publish notes.wasm oci://registry.example.com/notes:1.2
  toolhold plugin publish notes.wasm /srv/www/plugins

The signatures in FILE.minisig are published too. `toolhold plugin add` installs from a registry, \
from a folder, and from a web server that serves the folder. Logins for registries come from \
docker.";

const UPDATE_AFTER: &str = "\
Examples:
  toolhold plugin update
  toolhold plugin update notes --check

An update needs approval if it asks for more or gives models other descriptions. Without a \
terminal, the update is held: the current version stays in use until `toolhold plugin approve \
NAME`.";

/// The commands that install plugins.
#[derive(Debug, Subcommand)]
pub(crate) enum InstallCommand {
    /// Install a plugin: show its requests, ask, write your grants, and pin it in toolhold.lock
    #[command(after_help = ADD_AFTER)]
    Add(AddArguments),
    /// Grant an installed plugin what it asks for, in your own toolhold.toml
    #[command(after_help = GRANT_AFTER)]
    Grant {
        /// The plugin's name
        name: String,
        #[command(flatten)]
        grants: GrantArguments,
    },
    /// Install the missing plugins that the configuration names by `source`
    #[command(after_help = "Examples:\n  toolhold plugin install\n  toolhold plugin install --yes")]
    Install {
        /// Don't ask
        #[arg(long, short)]
        yes: bool,
    },
    /// Remove an installed plugin and all its versions; its table in your configuration stays
    #[command(after_help = "Example:\n  toolhold plugin remove notes")]
    Remove {
        /// The plugin's name
        name: String,
    },
    /// Fetch the installed plugins from their sources again, and install what changed
    #[command(after_help = UPDATE_AFTER)]
    Update {
        /// Only this plugin
        name: Option<String>,
        /// Show the differences, and change nothing
        #[arg(long)]
        check: bool,
        /// Don't ask: approve updates that ask for more
        #[arg(long, short, conflicts_with = "check")]
        yes: bool,
        /// Also install an older version
        #[arg(long)]
        downgrade: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the installed plugins whose sources have another version
    #[command(
        after_help = "Examples:\n  toolhold plugin outdated\n  toolhold plugin outdated --json"
    )]
    Outdated {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Compare every installed component with toolhold.lock; exits with 1 if one differs
    #[command(after_help = "Examples:\n  toolhold plugin verify\n  toolhold plugin verify --json")]
    Verify {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the stored versions of an installed plugin
    #[command(
        after_help = "Examples:\n  toolhold plugin history notes\n  toolhold plugin history notes --json"
    )]
    History {
        /// The plugin's name
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Go back to the previous version of a plugin
    #[command(after_help = "Example:\n  toolhold plugin rollback notes")]
    Rollback {
        /// The plugin's name
        name: String,
    },
}

/// `toolhold plugin add`.
#[derive(Debug, Args)]
pub(crate) struct AddArguments {
    /// A file, a folder with a built plugin, https://…, or oci://REGISTRY/NAME:TAG
    pub(crate) source: String,
    #[command(flatten)]
    pub(crate) grants: GrantArguments,
    /// Don't ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Install only the component whose SHA-256 begins with this (at least 32 digits), and don't
    /// ask
    #[arg(long, value_name = "SHA256")]
    pub(crate) digest: Option<String>,
}

/// The grants that `toolhold plugin add` and `toolhold plugin grant` write.
#[derive(Debug, Args)]
pub(crate) struct GrantArguments {
    /// A directory that the plugin may read and change
    #[arg(long, value_name = "DIR")]
    pub(crate) allow_path: Vec<PathBuf>,
    /// A directory that the plugin may read
    #[arg(long, value_name = "DIR")]
    pub(crate) allow_read: Vec<PathBuf>,
    /// A host that the plugin's requests may reach
    #[arg(long, value_name = "HOST")]
    pub(crate) allow_host: Vec<String>,
    /// MiB of data that the plugin may store between calls
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) store: Option<u32>,
    /// MiB of documents that the plugin may store and search
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) index: Option<u32>,
    /// Let the plugin keep its memory between the calls of a session
    #[arg(long)]
    pub(crate) session: bool,
}

/// `toolhold plugin publish`.
#[derive(Debug, Args)]
#[command(after_help = PUBLISH_AFTER)]
pub(crate) struct PublishArguments {
    /// The component's file, or a folder with a built plugin
    #[arg(value_name = "FILE")]
    pub(crate) component: PathBuf,
    /// An existing folder, or oci://REGISTRY/NAME:TAG
    pub(crate) destination: String,
    /// Replace another component under the same tag or in the same folder
    #[arg(long)]
    pub(crate) replace: bool,
}
