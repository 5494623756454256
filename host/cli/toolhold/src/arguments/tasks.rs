//! The arguments and help of `toolhold tasks`.

use clap::{Args, Subcommand};

/// `toolhold tasks`.
#[derive(Debug, Subcommand)]
pub(crate) enum TasksCommand {
    /// List the tasks, each with its next time and the result of its last run
    #[command(after_help = "Examples:\n  toolhold tasks list\n  toolhold tasks list --json")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a task: its action, its creator and its last run
    #[command(after_help = "Example:\n  toolhold tasks show backup")]
    Show {
        /// The task's name or number
        task: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a task now, in addition to its schedule
    #[command(after_help = "Example:\n  toolhold tasks run backup")]
    Run {
        /// The task's name or number
        task: String,
    },
    /// Pause a task until it is resumed
    #[command(after_help = "Example:\n  toolhold tasks pause backup")]
    Pause {
        /// The task's name or number
        task: String,
    },
    /// Resume a paused task; missed runs are not made up for
    #[command(after_help = "Example:\n  toolhold tasks resume backup")]
    Resume {
        /// The task's name or number
        task: String,
    },
    /// Remove a task and the results of its runs
    #[command(after_help = "Example:\n  toolhold tasks remove backup")]
    Remove {
        /// The task's name or number
        task: String,
    },
    /// Show the last 20 runs of a task, the latest first
    #[command(
        after_help = "Examples:\n  toolhold tasks results backup\n  toolhold tasks results backup --json"
    )]
    Results {
        /// The task's name or number
        task: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// `toolhold tasks daemon`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  toolhold tasks daemon\n  toolhold tasks daemon \
         --install\n  toolhold tasks \
         daemon --print\n\nTasks run only while `toolhold tasks daemon` or \
         `toolhold serve` runs. If there are several such processes, one of them runs the tasks.")]
pub(crate) struct DaemonArguments {
    /// Write a systemd unit that runs the daemon while you are logged in, and say how to enable it
    #[arg(long, conflicts_with_all = ["uninstall", "print"])]
    pub(crate) install: bool,
    /// Remove the unit
    #[arg(long, conflicts_with = "print")]
    pub(crate) uninstall: bool,
    /// Print the unit
    #[arg(long)]
    pub(crate) print: bool,
}
