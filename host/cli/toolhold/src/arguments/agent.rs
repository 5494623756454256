//! The arguments and help of `toolhold run`, `toolhold chat` and `toolhold models`.

use clap::{Args, Subcommand, ValueEnum};
use toolhold_core::Phase;

const RUN_AFTER: &str = "\
Examples:
  toolhold run 'fix the failing test'
  toolhold run --model ollama/qwen3 'what does this project do?'
  git diff | toolhold run 'review this change' -
  toolhold run --phase planner 'how would you split this module?'
  toolhold run --continue 'now write a test for it'
  toolhold run --json 'list the TODOs' | jq -r 'select(.event == \"answer\").text'
  toolhold run --replay 69280a3c-5f1e9d2b7a40
  toolhold run sessions list

The agent uses the same tools under the same rules as `toolhold call`. The progress goes to \
stderr, the last answer to stdout.

Exit codes:
  0  the model finished the task
  1  the model gave up, repeated itself, or refused
  2  nothing started: no task, no model or no such session
  3  a call that the task needs was denied
  4  the model can't be asked, or Toolhold itself failed
  5  a limit of turns, time, tokens or cost was reached; `--continue` continues the task
  130  Ctrl-C ended the command";

/// `toolhold run`.
#[derive(Args, Debug)]
#[command(after_help = RUN_AFTER, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, disable_help_subcommand = true)]
pub(crate) struct RunArguments {
    /// The task; `-` adds the text on stdin
    #[arg(value_name = "TASK", required_unless_present = "replay")]
    pub(crate) task: Vec<String>,
    /// The subcommand, in place of a task.
    #[command(subcommand)]
    pub(crate) command: Option<RunCommand>,
    #[command(flatten)]
    pub(crate) session: SessionArguments,
    /// Answers of the model, at most [default: `max_turns` in [agent]]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) max_turns: Option<u64>,
    /// Print each event as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Replay a session from its file, without a model and without tools
    #[arg(long, value_name = "ID", conflicts_with_all = ["task", "model", "session", "last"])]
    pub(crate) replay: Option<String>,
}

/// A subcommand of `toolhold run`.
#[derive(Debug, Subcommand)]
pub(crate) enum RunCommand {
    /// List, show, export and delete the sessions of the agent
    #[command(subcommand)]
    Sessions(SessionsCommand),
}

/// The session and its model.
#[derive(Args, Debug)]
pub(crate) struct SessionArguments {
    /// The model: a table of [providers], a model, or PROVIDER/MODEL
    #[arg(long, short, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Continue this session
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Continue the last session of this directory
    #[arg(long = "continue", short = 'c', conflicts_with = "session")]
    pub(crate) last: bool,
    /// Approve the calls that need approval; denied calls stay denied
    #[arg(long)]
    pub(crate) yes: bool,
    /// The phase of the work, for rules with `phases` [default: executor, or autonomous with --yes]
    #[arg(long, value_name = "PHASE")]
    pub(crate) phase: Option<PhaseName>,
    /// Use the project's AGENTS.md and TOOLHOLD.md this once, although you have not approved them
    #[arg(long)]
    pub(crate) trust_instructions: bool,
}

impl SessionArguments {
    pub(crate) fn phase(&self) -> Phase {
        match self.phase {
            Some(named) => named.into(),
            None if self.yes => Phase::Autonomous,
            None => Phase::Executor,
        }
    }

    /// Returns the option `--phase`, preceded by a space, or nothing without this option.
    pub(crate) fn phase_flag(&self) -> String {
        match self.phase.as_ref().and_then(ValueEnum::to_possible_value) {
            Some(phase) => format!(" --phase={}", phase.get_name()),
            None => String::new(),
        }
    }
}

/// A phase of an agent's work, as named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PhaseName {
    /// The agent makes a plan.
    Planner,
    /// The agent carries out the plan.
    Executor,
    /// The agent checks the result.
    Verifier,
    /// The agent works without supervision.
    Autonomous,
}

impl From<PhaseName> for Phase {
    fn from(name: PhaseName) -> Self {
        match name {
            PhaseName::Planner => Self::Planner,
            PhaseName::Executor => Self::Executor,
            PhaseName::Verifier => Self::Verifier,
            PhaseName::Autonomous => Self::Autonomous,
        }
    }
}

impl From<Phase> for PhaseName {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Planner => Self::Planner,
            Phase::Executor => Self::Executor,
            Phase::Verifier => Self::Verifier,
            Phase::Autonomous => Self::Autonomous,
        }
    }
}

impl RunArguments {
    pub(crate) fn yes(&self) -> bool {
        self.session.yes
    }
}

const CHAT_AFTER: &str = "\
Examples:
  toolhold chat
  toolhold chat --model anthropic
  toolhold chat --continue
  toolhold chat --plain

At a terminal, the chat has the full screen; /help there lists its keys and commands. With --plain, TERM=dumb or without a terminal, each line is a message; Ctrl-C interrupts the agent, Ctrl-C or Ctrl-D at the prompt ends the chat, `/compact` summarises the conversation and `/exit` ends it.";

/// `toolhold chat`.
#[derive(Args, Debug)]
#[command(after_help = CHAT_AFTER)]
pub(crate) struct ChatArguments {
    #[command(flatten)]
    pub(crate) session: SessionArguments,
    /// Talk in plain lines, as without a terminal: for screen readers, and to copy text
    #[arg(long)]
    pub(crate) plain: bool,
}

impl ChatArguments {
    pub(crate) fn yes(&self) -> bool {
        self.session.yes
    }
}

/// `toolhold run sessions`.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// List the sessions of the agent, the last one first
    #[command(
        after_help = "Examples:\n  toolhold run sessions list\n  toolhold run sessions list --limit 100 --json"
    )]
    List {
        /// Sessions at most
        #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show the messages and calls of a session
    #[command(after_help = "Example:\n  toolhold run sessions show 69280a3c-5f1e9d2b7a40")]
    Show {
        /// The session's ID
        id: String,
    },
    /// Print the file of a session: a line of JSON for each entry
    #[command(
        after_help = "Example:\n  toolhold run sessions export 69280a3c-5f1e9d2b7a40 > session.jsonl"
    )]
    Export {
        /// The session's ID
        id: String,
    },
    /// Delete sessions
    #[command(after_help = "Example:\n  toolhold run sessions delete 69280a3c-5f1e9d2b7a40")]
    Delete {
        /// The sessions' IDs
        #[arg(required = true)]
        ids: Vec<String>,
    },
}

const MODELS_AFTER: &str = "\
Examples:
  toolhold models
  toolhold models --test
  toolhold models --test anthropic
  toolhold models --json

--test asks a model for a short answer and for a call of a tool, and prints the time of each. The \
test costs a few hundred tokens.";

/// `toolhold models`.
#[derive(Args, Debug)]
#[command(after_help = MODELS_AFTER)]
pub(crate) struct ModelsArguments {
    /// The model: a table of [providers], a model, or PROVIDER/MODEL; without one, all providers
    pub(crate) model: Option<String>,
    /// Send a test request
    #[arg(long)]
    pub(crate) test: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
