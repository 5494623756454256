//! The arguments and help of `toolhold audit`.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Args, Command, Subcommand, ValueEnum};

const AFTER: &str = "\
Examples:
  toolhold audit export > records.jsonl
  toolhold audit export --follow --to /var/log/toolhold.jsonl
  toolhold audit export --format otlp --endpoint http://localhost:4318 --follow --since 24h

Each run to a file or a collector continues after the last exported record. After a crash, it may \
repeat some records, which have the same `seq`. The export doesn't change the log. The exit code \
is 4 if a record was changed or is missing.";

/// `toolhold audit`.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Verify that no record was changed and no record is missing
    #[command(after_help = VERIFY_AFTER)]
    Verify {
        /// A hash that `toolhold audit head` printed earlier: its record must be in the log
        #[arg(long, value_name = "HASH")]
        head: Option<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print the hash of the last record, to keep elsewhere
    #[command(after_help = "Examples:\n  toolhold audit head\n  toolhold audit head --json")]
    Head {
        /// Print one JSON object: the record's number, and its hash
        #[arg(long)]
        json: bool,
    },
    /// Print the last records
    #[command(after_help = TAIL_AFTER)]
    Tail {
        /// The number of records
        #[arg(long, short = 'n', value_name = "N", default_value_t = 10)]
        lines: usize,
        /// Print new records as they are written, until Ctrl-C
        #[arg(long, short)]
        follow: bool,
        /// Print each record as its line of JSON
        #[arg(long)]
        json: bool,
    },
    /// Export the records to a file or another system, unchanged or for OpenTelemetry
    Export(ExportArguments),
    /// Print all records of a call
    #[command(after_help = "Example:\n  toolhold audit show 5f1d0c6a9b3e2d47-1")]
    Show {
        /// The call's id, from its answer or one of its records
        id: String,
        /// Print a JSON array of the records
        #[arg(long)]
        json: bool,
    },
    /// Count the calls of each tool: failures, denials, approvals, times
    #[command(
        after_help = "Examples:\n  toolhold audit stats\n  toolhold audit stats --json | jq 'max_by(.p99_ms)'"
    )]
    Stats {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
}

const VERIFY_AFTER: &str = "\
Examples:
  toolhold audit verify
  toolhold audit verify --head \"$(cat /mnt/elsewhere/toolhold-head)\"

The exit code is 4 if a record was changed, left out, put in, moved or cut off; the output names \
the line. A person who can write to the audit folder can also replace the whole log; only a hash \
that you stored elsewhere shows that.";

const TAIL_AFTER: &str = "\
Examples:
  toolhold audit tail -n 50
  toolhold audit tail --follow
  toolhold audit tail -n 1000 --json | jq 'select(.result == \"blocked\")'";

/// `toolhold audit export`.
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER)]
pub struct ExportArguments {
    /// The form of the records
    #[arg(long, value_parser = FormatParser, default_value = "jsonl")]
    pub format: ExportFormat,
    /// Continue with new records as they are written, until Ctrl-C
    #[arg(long, short)]
    pub follow: bool,
    /// The start of the first export: 2026-03-01T12:00:00Z, 2026-03-01 (UTC), or a time ago, such
    /// as 90m, 24h, 7d [default: the first record]
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// The file to append to; `-` is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub to: PathBuf,
    /// The address of a collector for OpenTelemetry, in place of a file: https, or http on this
    /// machine; with `--format otlp`
    #[arg(long, value_name = "URL", conflicts_with = "to")]
    pub endpoint: Option<String>,
    /// Start with the first record, even if it was exported before
    #[arg(long, conflicts_with = "since")]
    pub again: bool,
}

/// The form of exported records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// The unchanged lines of the log; docs/audit.md has a program that verifies them
    Jsonl,
    /// OpenTelemetry logs, to a collector or as JSON in a file
    Otlp,
}

impl ExportFormat {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Otlp => "otlp",
        }
    }
}

/// For the removed format `cef`, the error names its successors.
#[derive(Clone)]
struct FormatParser;

impl TypedValueParser for FormatParser {
    type Value = ExportFormat;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<ExportFormat, clap::Error> {
        if value == "cef" {
            let removed = "`--format cef` was removed: use otlp, or jsonl with the field mapping \
                           in docs/enterprise.md";
            return Err(command.clone().error(ErrorKind::InvalidValue, removed));
        }
        EnumValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let all = ExportFormat::value_variants().iter();
        Some(Box::new(all.filter_map(ValueEnum::to_possible_value)))
    }
}
