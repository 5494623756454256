//! The arguments and help of `toolhold jobs`.

use clap::{Args, Subcommand};

/// `toolhold jobs`.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  toolhold jobs\n  toolhold jobs --json\n  toolhold jobs stop job-3f9a2c41d07b5e88"
)]
pub(crate) struct JobsArguments {
    /// The subcommand. Without a subcommand, the jobs are listed.
    #[command(subcommand)]
    pub(crate) command: Option<JobsCommand>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A subcommand of `toolhold jobs`.
#[derive(Subcommand, Debug)]
pub(crate) enum JobsCommand {
    /// Stop a job and all processes that it started, at once
    #[command(after_help = "Example:\n  toolhold jobs stop job-3f9a2c41d07b5e88")]
    Stop {
        /// The job's ID, from `toolhold jobs`
        id: String,
    },
}
