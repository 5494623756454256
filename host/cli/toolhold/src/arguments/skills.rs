//! The arguments and help of `toolhold skills`.

use clap::Subcommand;

/// `toolhold skills`.
#[derive(Debug, Subcommand)]
pub(crate) enum SkillsCommand {
    /// List your skills and the skills of the project
    #[command(after_help = "Examples:\n  toolhold skills list\n  toolhold skills list --json")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a skill: its text, its files and its folder
    #[command(after_help = "Example:\n  toolhold skills show pdf-forms")]
    Show {
        /// The skill's name
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Check that skills have the documented format and keep to Toolhold's limits
    #[command(
        after_help = "Examples:\n  toolhold skills check\n  toolhold skills check pdf-forms\n  toolhold skills check ./my-skill\n\nExit code 1: a skill can't be used."
    )]
    Check {
        /// A name, or the path of a skill's folder or of a folder of skills [default: all skills]
        #[arg(value_name = "NAME|PATH")]
        skill: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}
