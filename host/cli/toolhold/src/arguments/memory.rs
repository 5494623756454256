//! The arguments and help of `toolhold memory`.

use clap::{Subcommand, ValueEnum};

/// `toolhold memory`.
#[derive(Debug, Subcommand)]
pub(crate) enum MemoryCommand {
    /// Search what models have saved, or list the latest
    #[command(
        after_help = "Examples:\n  toolhold memory search deploy\n  toolhold memory search --scope project --json"
    )]
    Search {
        /// What to search for [default: the latest]
        #[arg(value_name = "WORDS")]
        words: Vec<String>,
        /// Only this scope [default: all]
        #[arg(long)]
        scope: Option<EntryScope>,
        /// Entries, at most
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show an entry: its text, and where it comes from
    #[command(after_help = "Example:\n  toolhold memory show deploy-command")]
    Show {
        /// Its key, or its ID as `--json` shows it
        key: String,
        /// Only this scope [default: all]
        #[arg(long)]
        scope: Option<EntryScope>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Change the text of an entry, or vouch for it
    #[command(
        after_help = "Examples:\n  toolhold memory edit deploy-command \"Deploy with make ship\"\n  toolhold memory edit deploy-command --trusted"
    )]
    Edit {
        /// Its key, or its ID as `--json` shows it
        key: String,
        /// The new text, 1 to 4096 characters. What you write is trusted
        text: Option<String>,
        /// Let models get it as trusted text, without a fence. You are shown the text and asked,
        /// unless you give the hash that `toolhold memory show` prints: it may change meanwhile
        #[arg(long, value_name = "HASH", num_args = 0..=1, require_equals = true, default_missing_value = "")]
        trusted: Option<String>,
        /// Only this scope [default: all]
        #[arg(long)]
        scope: Option<EntryScope>,
    },
    /// Print all entries, one JSON object a line
    #[command(after_help = "Example:\n  toolhold memory export > memory.jsonl")]
    Export {
        /// Only this scope [default: all]
        #[arg(long)]
        scope: Option<EntryScope>,
    },
    /// Delete entries, and show what they were
    #[command(
        after_help = "Examples:\n  toolhold memory delete deploy-command\n  toolhold memory delete --all --scope project --yes"
    )]
    Delete {
        /// Their keys, or their IDs as `--json` shows them
        #[arg(value_name = "KEY", required_unless_present = "all", conflicts_with = "all")]
        keys: Vec<String>,
        /// Delete all of the scope
        #[arg(long)]
        all: bool,
        /// Only this scope [default: all]
        #[arg(long)]
        scope: Option<EntryScope>,
        /// Don't ask
        #[arg(long, short)]
        yes: bool,
    },
}

/// Who finds an entry again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EntryScope {
    /// You, in all projects
    User,
    /// You, in the working directory
    Project,
    /// Single sessions
    Session,
}
