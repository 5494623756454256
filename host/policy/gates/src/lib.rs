//! Pure decisions: data in, a decision with its reason out. No I/O, no clock, no WebAssembly.

pub mod egress;
pub mod files;
pub mod planted;
pub mod rules;
pub mod spelling;

mod action;
mod autonomy;
mod backoff;
mod canonical;
mod command_template;
mod counts;
mod decision;
mod dependencies;
mod injection;
mod network;
mod origin;
mod path_globs;
mod path_rules;
mod pattern;
mod permissions;
mod policy;
mod programs;
mod repetition;
mod suggestion;
mod switches;
mod tool_glob;
mod trust;
mod warnings;
mod web;

pub use action::{Action, Phase, ResolvedSubject, Trust};
pub use autonomy::{Autonomy, Containment};
pub use backoff::Backoff;
pub use canonical::canonical;
pub use command_template::{
    CommandArgumentError, CommandLine, CommandTemplate, CommandTemplateError, WrittenPart,
};
/// The commands that never run, with their places in the configuration.
pub type Blocklist = toolhold_shell_commands::Blocklist<Origin>;

pub use counts::{QuotaBounds, QuotaCounts, QuotaLimit, QuotaPlace};
pub use decision::{Decision, Gate, Verdict};
pub use dependencies::{Dependencies, Needs};
pub use injection::injections;
pub use network::Network;
pub use origin::{ConfigFile, Origin, OriginKind, OwnTable, Placed, TablePlace};
pub use path_globs::{GlobError, MAX_GLOB};
pub use path_rules::ReachedPaths;
pub use pattern::{
    ExpressionError, MAX_PATTERN, Pattern, PatternLengthError, TextGlob, expression, literal,
};
pub use permissions::{Permission, Permissions};
pub use policy::{BUILT_IN_COMMANDS, Definition, GATES, Policy, undecided};
pub use programs::{Programs, ProgramsError};
pub use repetition::{Levels, Reaction, Repeated, Repetition, RepetitionKind, RepetitionLimits};
pub use suggestion::wide_pattern;
pub use switches::{OnlyTools, Switches};
pub use tool_glob::{ToolGlob, ToolGlobError, source_name};
pub use toolhold_shell_commands as commands;
pub use toolhold_shell_commands::{DEFAULT_BLOCKED, command_line, last_command};
pub use trust::ProviderTrust;
pub use warnings::{SecurityLines, SecurityLinesError};
pub use web::{Web, origins};
