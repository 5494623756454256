//! The arguments of `toolhold filter`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `toolhold filter`.
#[derive(Debug, Subcommand)]
pub(crate) enum FilterCommand {
    /// List the filters that answers go through, and the errors in your own rules
    #[command(after_help = "Examples:\n  toolhold filter list\n  toolhold filter list --json")]
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show the result of a filter on an output
    Try(FilterTry),
    /// Run the examples in the rules
    #[command(after_help = "Examples:\n  toolhold filter test\n  toolhold filter test cargo-test")]
    Test {
        /// The filters whose examples are run [default: all]
        filters: Vec<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// List the commands whose output no rule matches, by size, from the audit log
    #[command(
        after_help = "Examples:\n  toolhold filter discover\n  toolhold filter discover --json"
    )]
    Discover {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show how much each filter has left out, from the audit log
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

The filtered output goes to stdout, its size to stderr. No tool is called, and nothing is \
recorded.";

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
    /// Use the filters that match this command line
    #[arg(long, value_name = "COMMAND")]
    pub(crate) command: Option<String>,
    /// The exit code of the command
    #[arg(long, value_name = "CODE", default_value_t = 0, allow_hyphen_values = true)]
    pub(crate) exit: i32,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
