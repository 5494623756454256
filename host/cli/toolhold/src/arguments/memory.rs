//! The arguments and help of `toolhold memory`.

use clap::{Subcommand, ValueEnum};

/// `toolhold memory`.
#[derive(Debug, Subcommand)]
pub(crate) enum MemoryCommand {
    /// Search the entries that models have saved, or list the latest
    #[command(
        after_help = "Examples:\n  toolhold memory search deploy\n  toolhold memory search --scope project --json"
    )]
    Search {
        /// The words to search for [default: list the latest entries]
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
        /// The entry's key, or its ID from `--json`
        key: String,
        /// Only this scope [default: all]
        #[arg(long)]
        scope: Option<EntryScope>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Change the text of an entry, or mark it as trusted
    #[command(
        after_help = "Examples:\n  toolhold memory edit deploy-command \"Deploy with make ship\"\n  toolhold memory edit deploy-command --trusted"
    )]
    Edit {
        /// The entry's key, or its ID from `--json`
        key: String,
        /// The new text, 1 to 4096 characters. What you write is trusted
        text: Option<String>,
        /// Mark the entry as trusted, so that models get it without a fence. The command shows the
        /// text and asks, unless you give the hash that `toolhold memory show` prints
        #[arg(long, value_name = "HASH", num_args = 0..=1, require_equals = true, default_missing_value = "")]
        trusted: Option<String>,
        /// Only this scope [default: all]
        #[arg(long)]
        scope: Option<EntryScope>,
    },
    /// Print all entries, one JSON object per line
    #[command(after_help = "Example:\n  toolhold memory export > memory.jsonl")]
    Export {
        /// Only this scope [default: all]
        #[arg(long)]
        scope: Option<EntryScope>,
    },
    /// Delete entries, and show the deleted texts
    #[command(
        after_help = "Examples:\n  toolhold memory delete deploy-command\n  toolhold memory delete --all --scope project --yes"
    )]
    Delete {
        /// The entries' keys, or their IDs from `--json`
        #[arg(value_name = "KEY", required_unless_present = "all", conflicts_with = "all")]
        keys: Vec<String>,
        /// Delete all entries of the scope
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

/// The scope of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EntryScope {
    /// You, in all projects
    User,
    /// You, in the working directory
    Project,
    /// Single sessions
    Session,
}
