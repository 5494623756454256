//! The arguments of `toolhold filter`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `toolhold filter`.
#[derive(Debug, Subcommand)]
pub(crate) enum FilterCommand {
    /// List the filters that answers go through, and what is wrong with your own rules
    #[command(after_help = "Examples:\n  toolhold filter list\n  toolhold filter list --json")]
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show what a filter makes of an output
    Try(FilterTry),
    /// Run the examples that rules carry
    #[command(after_help = "Examples:\n  toolhold filter test\n  toolhold filter test cargo-test")]
    Test {
        /// The filters whose examples are run [default: all]
        filters: Vec<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// List the commands whose output no rule knows, by size, from the audit
    #[command(
        after_help = "Examples:\n  toolhold filter discover\n  toolhold filter discover --json"
    )]
    Discover {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Say how much was left out so far, filter by filter, from the audit
    #[command(after_help = "Examples:\n  toolhold filter stats\n  toolhold filter stats --json")]
    Stats {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
}

const TRY_AFTER: &str = "\
Examples:
  toolhold filter try cargo-test output.txt --exit 101
  make 2>&1 | toolhold filter try make -
  toolhold filter try --command 'npm ci && npm test' output.txt

What is left goes to stdout, how much that is to stderr. Nothing is called, and nothing recorded.";

/// `toolhold filter try`.
#[derive(Args, Debug)]
#[command(after_help = TRY_AFTER)]
pub(crate) struct FilterTry {
    /// The filter, as `toolhold filter list` names it; left out with --command
    #[arg(value_name = "FILTER", required_unless_present = "command")]
    pub(crate) filter_or_file: Option<String>,
    /// The output: a file, or `-` for stdin
    #[arg(value_name = "FILE", required_unless_present = "command")]
    pub(crate) file: Option<PathBuf>,
    /// Take the filters that fit this command line
    #[arg(long, value_name = "COMMAND")]
    pub(crate) command: Option<String>,
    /// The exit code of the command
    #[arg(long, value_name = "CODE", default_value_t = 0, allow_hyphen_values = true)]
    pub(crate) exit: i32,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
