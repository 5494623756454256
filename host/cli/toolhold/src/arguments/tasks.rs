//! The arguments and help of `toolhold tasks`.

use clap::{Args, Subcommand};

/// `toolhold tasks`.
#[derive(Debug, Subcommand)]
pub(crate) enum TasksCommand {
    /// List the tasks: when each runs next, and how its last run ended
    #[command(after_help = "Examples:\n  toolhold tasks list\n  toolhold tasks list --json")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a task: what it does, who made it, and its last run
    #[command(after_help = "Example:\n  toolhold tasks show backup")]
    Show {
        /// Its name, or its number
        task: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a task once as soon as possible, beside its times
    #[command(after_help = "Example:\n  toolhold tasks run backup")]
    Run {
        /// Its name, or its number
        task: String,
    },
    /// Have a task wait until it is resumed
    #[command(after_help = "Example:\n  toolhold tasks pause backup")]
    Pause {
        /// Its name, or its number
        task: String,
    },
    /// Resume a task that waits; the times that passed are not made up for
    #[command(after_help = "Example:\n  toolhold tasks resume backup")]
    Resume {
        /// Its name, or its number
        task: String,
    },
    /// Remove a task and the record of its runs
    #[command(after_help = "Example:\n  toolhold tasks remove backup")]
    Remove {
        /// Its name, or its number
        task: String,
    },
    /// Show the last 20 runs of a task, the latest first
    #[command(
        after_help = "Examples:\n  toolhold tasks results backup\n  toolhold tasks results backup --json"
    )]
    Results {
        /// Its name, or its number
        task: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// `toolhold tasks daemon`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  toolhold tasks daemon\n  toolhold tasks daemon --install\n  toolhold tasks daemon --print\n\nTasks run only while this runs, or `toolhold serve` does. Of several processes, one runs them."
)]
pub(crate) struct DaemonArguments {
    /// Write a unit for systemd, so that it runs while you are logged in, and say how to enable it
    #[arg(long, conflicts_with_all = ["uninstall", "print"])]
    pub(crate) install: bool,
    /// Remove that unit
    #[arg(long, conflicts_with = "print")]
    pub(crate) uninstall: bool,
    /// Print that unit
    #[arg(long)]
    pub(crate) print: bool,
}
