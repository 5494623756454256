//! The whole command line: the subcommands, their arguments and their help.

pub(crate) mod agent;
pub(crate) mod bundle;
mod caller;
pub(crate) mod connect;
pub(crate) mod filter;
mod grants;
mod groups;
pub(crate) mod install;
pub(crate) mod jobs;
mod keys;
pub(crate) mod memory;
mod mistyped;
pub(crate) mod servers;
pub(crate) mod skills;
pub(crate) mod tasks;
pub(crate) mod token;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, ArgGroup, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use toolhold_core::NAME;
use toolhold_mcp_server::ListenAddress;

use crate::options::Options;

use self::bundle::BundleCommand;
use self::caller::Caller;
use self::filter::FilterCommand;
use self::install::{InstallCommand, PublishArguments};
pub(crate) use grants::{AllowArguments, InitArguments, TrustArguments, YesOrNo};
pub(crate) use keys::{CeilingCommand, KeyCommand, SignArguments};
use toolhold_authoring::AuthorCommand;
use toolhold_export::AuditCommand;

const ABOUT: &str = "\
Runs the tools of AI agents, each call in a WebAssembly sandbox of its own that reaches only what you grant.

With no configuration, the built-in tools work on the current directory and nothing else.";

const AFTER: &str = "\
Examples:
  toolhold call read path=README.md
  toolhold call grep pattern='fn main' include='*.rs'
  toolhold tools
  toolhold demo
  toolhold doctor

Exit codes:
  0  success
  1  the tool failed
  2  the command line is wrong, or the arguments don't fit the tool
  3  a rule or a limit denied the call, or the call needs approval and nobody could be asked
  4  Toolhold itself failed: configuration, plugins, this machine, the audit log
  5  `toolhold run` reached a limit of its task
  130  Ctrl-C ended the command

Environment:
  TOOLHOLD_…            any key of the configuration, in capitals: TOOLHOLD_TOOLS_FILE_ALLOWED_PATHS=/data
  TOOLHOLD_CONFIG_DIR   the folder of toolhold.toml; default $XDG_CONFIG_HOME/toolhold or ~/.config/toolhold
  TOOLHOLD_DATA_DIR     lasting data; default $XDG_DATA_HOME/toolhold or ~/.local/share/toolhold
  TOOLHOLD_CACHE_DIR    compiled plugins; default $XDG_CACHE_HOME/toolhold or ~/.cache/toolhold
  TOOLHOLD_CEILING      a file that limits the configuration, in addition to /etc/toolhold/ceiling.toml
  TOOLHOLD_LOG          the same as --log
  NO_COLOR              no colours";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = NAME, version, about = "Runs the tools of AI agents in WebAssembly sandboxes", long_about = ABOUT, after_help = AFTER)]
#[command(propagate_version = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// Parses the words after the program's name. clap returns requests for help or for the version as
/// errors.
pub(crate) fn parse_line(mut words: Vec<OsString>) -> Result<Arguments, clap::Error> {
    // Other programs print their version with a subcommand `version`.
    if words == ["version"] {
        words = vec!["--version".into()];
    }
    let mut command = groups::with_groups(Arguments::command());
    let line = std::iter::once(NAME.into()).chain(words.iter().cloned());
    let parsed = command.try_get_matches_from_mut(line);
    let arguments = parsed.and_then(|matches| Arguments::from_arg_matches(&matches));
    arguments.map_err(|error| mistyped::with_tip(error.format(&mut command), &words))
}

/// The subcommand.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Call a tool
    Call(CallArguments),
    /// Give a task to an agent that uses the tools
    Run(agent::RunArguments),
    /// Chat with an agent that uses the tools
    Chat(agent::ChatArguments),
    /// List the models of your providers, or test them
    Models(agent::ModelsArguments),
    /// List, show and check skills: instructions that models load for a task
    #[command(subcommand)]
    Skills(skills::SkillsCommand),
    /// Search, show, change and delete the entries that models have saved
    #[command(subcommand)]
    Memory(memory::MemoryCommand),
    /// Serve the tools to the MCP client that starts Toolhold, or over HTTP
    Serve(ServeArguments),
    /// Make, list and revoke tokens for callers of `toolhold serve --http`
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Connect an MCP client, such as Claude Code or Cursor, to the tools
    Connect(connect::ConnectArguments),
    /// Add, import and approve upstream MCP servers, whose tools Toolhold offers
    #[command(subcommand)]
    Mcp(servers::ServersCommand),
    /// List calls that need approval, and approve or deny them
    Approvals(ApprovalsArguments),
    /// List the tools, or describe one
    Tools(ToolsArguments),
    /// Read and verify the audit log of all calls
    #[command(subcommand)]
    Audit(AuditCommand),
    /// List output filters, try them, and show how much they saved
    #[command(subcommand)]
    Filter(FilterCommand),
    /// Install, inspect, approve and write plugins
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Create your configuration and connect your MCP clients (asks a few questions)
    Init(InitArguments),
    /// Show, describe, check or convert the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Show which rule decides about a call, before or after the call
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Let tools use a directory, or reach a host, without asking
    Allow(AllowArguments),
    /// Trust a project's toolhold.toml, filters, skills and commands
    Trust(TrustArguments),
    /// Restore the files that a call changed
    Undo(UndoArguments),
    /// List the background commands of all running `toolhold serve`, or stop one
    Jobs(jobs::JobsArguments),
    /// List scheduled tasks, change them, show their results, and run them
    #[command(subcommand)]
    Tasks(TasksCommand),
    /// Show some tools at work, and attacks that the sandbox stops
    Demo(DemoArguments),
    /// Check this machine and the configuration, and say how to fix problems
    Doctor(DoctorArguments),
    /// Print shell completions and manual pages
    #[command(subcommand)]
    Generate(GenerateCommand),
}

const SERVE_AFTER: &str = "\
Examples:
  claude mcp add toolhold -- toolhold serve
  toolhold serve --allow-read ~/notes --set tools.autonomy=read-only
  toolhold serve --tools 'read,grep,git__*'
  toolhold serve --http 8000
  toolhold serve --http unix:/run/user/1000/toolhold.sock --no-auth

The client speaks the Model Context Protocol over stdin and stdout. The tools work on the \
directory in which the client starts the server, under the same rules as `toolhold call`. A call \
that needs approval asks in the client if the client can ask; otherwise it waits for `toolhold \
approvals`.

With `--http`, clients connect to http://127.0.0.1:PORT/mcp and send `Authorization: Bearer \
TOKEN`. The token is in a file that only you can read; the server prints its path at the start. \
`toolhold token` makes further tokens. \
[serve] in toolhold.toml has further settings: TLS, other machines, an authorization server, \
limits.";

/// `toolhold serve`.
#[derive(Debug, Args)]
#[command(after_help = SERVE_AFTER)]
pub(crate) struct ServeArguments {
    /// Serve any number of clients over HTTP, at a port of this machine (8000, 127.0.0.1:8000; 0 is
    /// a free one) or a Unix socket (unix:/path)
    #[arg(long, value_name = "PLACE")]
    pub(crate) http: Option<ListenAddress>,

    /// Offer only these tools: names, or globs such as git__*, with commas between them. The tools
    /// that show the rest of their answers and follow their jobs are offered too
    #[arg(long, value_name = "TOOLS", value_delimiter = ',')]
    pub(crate) tools: Option<Vec<String>>,

    /// Accept all your own programs at the Unix socket without a token
    #[arg(long, requires = "http")]
    pub(crate) no_auth: bool,
}

const CALL_AFTER: &str = "\
Examples:
  toolhold call read README.md
  toolhold call bash 'cargo test' --exit-code
  toolhold call read path=src/main.rs offset=10 limit=20
  toolhold call find_path pattern='**/*.rs'
  toolhold call grep '{\"pattern\": \"unwrap\", \"case_sensitive\": false}'
  echo '{\"path\": \"notes.md\", \"content\": \"hello\"}' | toolhold call write -
  toolhold call read path=logo.png --output copy.png
  toolhold call write path=notes.md content=hello --yes

KEY=VALUE is converted to the type in the tool's schema; repeat the key for a list. JSON is used \
unchanged. A single word is the tool's main argument, or its only required one. The answer's text \
goes to stdout, everything else to stderr.";

/// `toolhold call`.
#[derive(Args, Debug)]
#[command(after_help = CALL_AFTER)]
pub(crate) struct CallArguments {
    /// The tool's name; `toolhold tools` lists all names
    pub(crate) tool: String,
    /// KEY=VALUE pairs, or one JSON object, or `-` for a JSON object on stdin
    #[arg(value_name = "ARGUMENTS")]
    pub(crate) arguments: Vec<String>,
    /// Attach a file; in the JSON, {"$attachment": 0} stands for the first file
    #[arg(long, value_name = "FILE")]
    pub(crate) attach: Vec<PathBuf>,
    /// Write the answer to this file: its binary part, or its text if it has none
    #[arg(long, short, value_name = "FILE", conflicts_with = "json")]
    pub(crate) output: Option<PathBuf>,
    /// Approve this one call if it needs approval; a denied call stays denied
    #[arg(long)]
    pub(crate) yes: bool,
    /// The session of the call [default: the session of this directory]
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Show the answer as a model gets it: a long answer is cut, untrusted text is fenced
    #[arg(long)]
    pub(crate) for_model: bool,
    /// Print one JSON object: id, tool, ok, and output or failure
    #[arg(long)]
    pub(crate) json: bool,
    /// End with the exit code of the command that the call ran
    #[arg(long)]
    pub(crate) exit_code: bool,
    /// Show the steps of the call and their times
    #[arg(long, short, action = ArgAction::SetTrue)]
    pub(crate) verbose: bool,
}

impl CallArguments {
    /// Returns the arguments of `toolhold call TOOL` without any option.
    pub(crate) fn of_tool(tool: &str, arguments: Vec<String>) -> Self {
        Self {
            tool: tool.to_owned(),
            arguments,
            attach: Vec::new(),
            output: None,
            yes: false,
            session: None,
            for_model: false,
            json: false,
            exit_code: false,
            verbose: false,
        }
    }
}

const APPROVALS_AFTER: &str = "\
Examples:
  toolhold approvals
  toolhold approvals --json
  toolhold approvals --url
  toolhold approvals allow 3f9a2c41d07b5e88
  toolhold approvals deny 3f9a2c41d07b5e88

A call that needs approval and has no terminal to ask at is listed here. Your answer applies to \
the call if it still waits (`wait_secs` in [approvals]), otherwise once to the next identical call \
of that session, until the answer expires.";

/// `toolhold approvals`.
#[derive(Args, Debug)]
#[command(after_help = APPROVALS_AFTER, args_conflicts_with_subcommands = true)]
pub(crate) struct ApprovalsArguments {
    /// Print the waiting calls as a JSON array
    #[arg(long)]
    pub(crate) json: bool,
    /// Print a one-time link to each waiting call, for a browser; earlier links become invalid
    #[arg(long, conflicts_with = "json")]
    pub(crate) url: bool,
    #[command(subcommand)]
    pub(crate) answer: Option<ApprovalsCommand>,
}

/// `toolhold approvals …`.
#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// Approve a call
    #[command(
        after_help = "Examples:\n  toolhold approvals allow 3f9a2c41d07b5e88\n  toolhold approvals allow 3f9a --session\n  toolhold approvals allow 3f9a --always --all"
    )]
    Allow(AllowCallArguments),
    /// Deny a call
    #[command(
        after_help = "Examples:\n  toolhold approvals deny 3f9a2c41d07b5e88\n  toolhold approvals deny 3f9a --because 'use the other file'"
    )]
    Deny {
        /// The call's ID in the list, or its first digits
        id: String,
        /// A message for the agent: the reason, and what to do instead
        #[arg(long, value_name = "TEXT")]
        because: Option<String>,
    },
}

/// `toolhold approvals allow`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("lasting").args(["session", "always"]))]
pub(crate) struct AllowCallArguments {
    /// The call's ID in the list, or its first digits
    pub(crate) id: String,
    /// Approve the same call for the rest of the session, until the approval expires
    #[arg(long)]
    pub(crate) session: bool,
    /// Approve such calls permanently: show the rule and write it into your toolhold.toml
    #[arg(long)]
    pub(crate) always: bool,
    /// With --session or --always: approve any call of the tool
    #[arg(long, requires = "lasting", conflicts_with = "all")]
    pub(crate) tool: bool,
    /// With --session or --always: approve every tool of the plugin or server
    #[arg(long, requires = "lasting")]
    pub(crate) all: bool,
}

const TOOLS_AFTER: &str = "\
Examples:
  toolhold tools
  toolhold tools grep
  toolhold tools --for 'open an issue about the crash'
  toolhold tools --json | jq '.[].name'";

/// `toolhold tools`.
#[derive(Args, Debug)]
#[command(after_help = TOOLS_AFTER)]
pub(crate) struct ToolsArguments {
    /// Describe this tool: its arguments, its behaviour and the grants of its plugin
    pub(crate) tool: Option<String>,
    /// List the tools that the agent's filter chooses for this task, each with the reason
    #[arg(long = "for", value_name = "TASK", conflicts_with = "tool")]
    pub(crate) task: Option<String>,
    /// Print JSON: the definitions as models get them
    #[arg(long)]
    pub(crate) json: bool,
}

/// `toolhold tasks`.
#[derive(Debug, Subcommand)]
pub(crate) enum TasksCommand {
    #[command(flatten)]
    Tasks(tasks::TasksCommand),
    /// Run tasks when they are due
    Daemon(tasks::DaemonArguments),
}

/// `toolhold plugin`.
#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    /// List plugins and their state, from running hosts or as they would load
    #[command(after_help = "Examples:\n  toolhold plugin list\n  toolhold plugin list --json")]
    List {
        /// Print a JSON array of hosts and their plugins
        #[arg(long)]
        json: bool,
    },
    /// Describe a component, its requests, and the differences from the approved version; nothing
    /// is granted
    #[command(after_help = INSPECT_AFTER)]
    Inspect {
        /// A component's file, or the name of a plugin of the configuration or the plugin folder
        #[arg(value_name = "FILE|NAME")]
        component: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Approve the new or changed component of a plugin; it gets the plugin's grants
    #[command(after_help = APPROVE_AFTER)]
    Approve {
        /// The plugin's name
        name: String,
        /// Don't ask
        #[arg(long, short)]
        yes: bool,
        /// Approve only the component whose SHA-256 begins with this (at least 8 digits), and don't
        /// ask
        #[arg(long, value_name = "SHA256")]
        digest: Option<String>,
    },
    /// Make all running hosts load their plugins again, including those that failed
    #[command(after_help = "Example:\n  toolhold plugin reload")]
    Reload {
        /// Print a JSON array of hosts and their plugins
        #[arg(long)]
        json: bool,
    },
    #[command(flatten)]
    Install(InstallCommand),
    /// Sign a component, so that others can verify that it is yours
    Sign(SignArguments),
    /// Publish a component and its signature in a folder or a registry
    Publish(PublishArguments),
    /// Make and show keys that sign plugins
    #[command(subcommand)]
    Key(KeyCommand),
    /// Carry plugins, filters and a ceiling to machines without a network, as one signed file
    #[command(subcommand)]
    Bundle(BundleCommand),
    #[command(flatten)]
    Author(AuthorCommand),
}

const INSPECT_AFTER: &str = "\
Examples:
  toolhold plugin inspect target/wasm32-wasip2/release/my_plugin.wasm
  toolhold plugin inspect my-plugin";

const APPROVE_AFTER: &str = "\
Examples:
  toolhold plugin approve my-plugin
  toolhold plugin approve my-plugin --digest 5f1d0c6a";

/// `toolhold config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the current values, and the source of each
    #[command(
        after_help = "Examples:\n  toolhold config show\n  toolhold --set tools.call=60 config show --json\n  toolhold config show --as https://login.example.com,anna,developers"
    )]
    Show {
        /// Print the values for this caller of `toolhold serve --http`, by the tables of
        /// `[principals]`; makes the caller's directory
        #[arg(long = "as", value_name = "ISSUER,SUBJECT[,GROUP]")]
        caller: Option<Caller>,
        /// Print one JSON object: the files, and every key with value and source
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of toolhold.toml and of its plugins' settings
    #[command(after_help = "Example:\n  toolhold config schema > toolhold.schema.json")]
    Schema,
    /// Show the limits that your organisation sets for your configuration, or sign such a ceiling
    #[command(subcommand)]
    Ceiling(CeilingCommand),
    /// List all errors in the configuration
    #[command(after_help = "Examples:\n  toolhold config check\n  toolhold config check team.toml")]
    Check {
        /// Check this file alone, instead of the whole configuration
        file: Option<PathBuf>,
    },
    /// Convert the configuration of another agent, Zeph or ZeroClaw, into your toolhold.toml
    #[command(after_help = MIGRATE_AFTER)]
    Migrate {
        /// The other agent's configuration; the file isn't changed
        file: PathBuf,
        /// Write without asking
        #[arg(long, visible_alias = "write")]
        yes: bool,
    },
}

const MIGRATE_AFTER: &str = "\
Examples:
  toolhold config migrate ~/.config/zeph/config.toml
  toolhold config migrate ~/.zeroclaw/config.toml --yes
  toolhold --config new.toml config migrate old.toml

The command shows the differences and the settings that can't be kept, with the reasons, and asks \
before it writes. Comments stay with their keys. An existing toolhold.toml isn't overwritten, \
unless it is the converted file. Without a terminal and without `--yes`, nothing is written.";

const CHECK_AFTER: &str = "\
Examples:
  toolhold policy check write path=src/main.rs content=x
  toolhold policy check grep '{\"pattern\": \"unwrap\"}' --json
  toolhold policy check registry.example.org   # a program of a command that connects there

The command shows the result of each gate, and which gate decides. Nothing runs, and nobody is \
asked. For a host, it shows the line that decides. The exit code is 0 if the call would run, 3 if \
it would be denied or need approval, and 2 if the call itself is invalid.";

/// `toolhold policy`.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Show the decision about a call, without making the call
    Check(PolicyCheck),
    /// Show the decision about an earlier call, and its rule, from the audit log
    #[command(after_help = "Example:\n  toolhold policy explain 1f0c9a37b2d4e586-1")]
    Explain {
        /// The call's id, from `toolhold call --json` or the audit log
        id: String,
        /// Print one JSON object: the decision, and the whole entry of the audit log
        #[arg(long)]
        json: bool,
    },
}

/// `toolhold policy check`.
#[derive(Args, Debug)]
#[command(after_help = CHECK_AFTER)]
pub(crate) struct PolicyCheck {
    /// The tool's name (`toolhold tools` lists all names), or a host as in `hosts` of
    /// `[tools.shell]`
    pub(crate) tool: String,
    /// KEY=VALUE pairs, or one JSON object, or `-` for a JSON object on stdin
    #[arg(value_name = "ARGUMENTS")]
    pub(crate) arguments: Vec<String>,
    /// The session of the call [default: the session of this directory]
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// The agent's phase in which the call is made [default: none, as for `toolhold call`]
    #[arg(long, value_name = "PHASE")]
    pub(crate) phase: Option<agent::PhaseName>,
    /// Print one JSON object: the decision, the gate that decides, and the result of each gate
    #[arg(long)]
    pub(crate) json: bool,
}

const UNDO_AFTER: &str = "\
Without CALL, the command undoes the newest call that changed files in this directory: a call of \
the command line, an agent, an MCP client or a scheduled task. The command shows the changes \
first. If a file was changed again later, both changes are merged where they don't overlap; \
otherwise the file stays unchanged, and the error names it. All other files are restored.

Examples:
  toolhold undo                          # the newest call that changed files here
  toolhold undo --turn                   # all calls after your last message to the agent
  toolhold undo --list
  toolhold undo 5c1d0a8e4f3b2a19-7 --yes
  toolhold undo --session                # all calls of this directory's command line";

#[derive(Args, Debug)]
#[command(after_help = UNDO_AFTER)]
pub(crate) struct UndoArguments {
    /// The call's id, from `toolhold undo --list` or the audit log
    #[arg(conflicts_with_all = ["list", "session"])]
    pub(crate) call: Option<String>,
    /// Restore only this path, and discard later changes of it
    #[arg(long, value_name = "PATH", requires = "call", conflicts_with = "turn")]
    pub(crate) path: Option<std::path::PathBuf>,
    /// Undo all calls of the agent's turn in which the call was made
    #[arg(short, long, conflicts_with_all = ["list", "session"])]
    pub(crate) turn: bool,
    /// List the calls that can be undone
    #[arg(short, long)]
    pub(crate) list: bool,
    /// Undo all calls of a session, the newest first [default: the command line's session in this
    /// directory]
    #[arg(short, long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    pub(crate) session: Option<String>,
    /// Undo without asking
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const DEMO_AFTER: &str = "\
The demo works in a temporary folder with its own configuration, removes the folder, and needs no \
network. The exit code is 4 if a tool failed or an attack was not stopped.";

/// `toolhold demo`.
#[derive(Args, Debug)]
#[command(after_help = DEMO_AFTER)]
pub(crate) struct DemoArguments {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const DOCTOR_AFTER: &str = "\
Examples:
  toolhold doctor
  toolhold doctor --json | jq '.findings[] | select(.state != \"ok\")'

The command changes nothing, except that it compiles plugins into the cache, as any command does. \
The exit code is 4 if something that Toolhold needs is broken. A warning names something that is \
missing and that you may need later.";

/// `toolhold doctor`.
#[derive(Args, Debug)]
#[command(after_help = DOCTOR_AFTER)]
pub(crate) struct DoctorArguments {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const COMPLETIONS_AFTER: &str = "\
Examples:
  toolhold generate completions bash > ~/.local/share/bash-completion/completions/toolhold
  toolhold generate completions zsh > ~/.zfunc/_toolhold        # with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc
  toolhold generate completions fish > ~/.config/fish/completions/toolhold.fish
  eval \"$(toolhold generate completions bash)\"               # only for this shell";

/// `toolhold generate`.
#[derive(Debug, Subcommand)]
pub(crate) enum GenerateCommand {
    /// Print the completion script of a shell
    Completions(CompletionsArguments),
    /// Print a manual page, or write all of them
    Man(ManArguments),
}

/// `toolhold generate completions`.
#[derive(Args, Debug)]
#[command(after_help = COMPLETIONS_AFTER)]
pub(crate) struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

const MAN_AFTER: &str = "\
Examples:
  toolhold generate man | man -l -
  toolhold generate man config show | man -l -
  toolhold generate man --all ~/.local/share/man/man1";

/// `toolhold generate man`.
#[derive(Args, Debug)]
#[command(after_help = MAN_AFTER)]
pub(crate) struct ManArguments {
    /// The page's command [default: toolhold itself]
    pub(crate) command: Vec<String>,
    /// Write the pages of all commands into this directory; a missing directory is created
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "command")]
    pub(crate) all: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &[&str]) -> Result<Arguments, clap::Error> {
        parse_line(line.iter().map(OsString::from).collect())
    }

    #[test]
    fn command_definition_is_valid() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn options_are_allowed_anywhere_among_call_arguments() {
        let arguments = parse(&[
            "call",
            "grep",
            "--allow",
            "/a",
            "pattern=-x",
            "--json",
            "include=*.rs",
            "-",
            "--allow-read=/b",
        ]);
        let arguments = arguments.expect("it is right");
        assert_eq!(arguments.options.allow, [PathBuf::from("/a")]);
        assert_eq!(arguments.options.allow_read, [PathBuf::from("/b")]);
        let Command::Call(call) = arguments.command else { panic!("it is a call") };
        assert!(call.json && !call.verbose);
        assert_eq!(
            (call.tool.as_str(), call.arguments),
            ("grep", vec!["pattern=-x".into(), "include=*.rs".into(), "-".into()])
        );
    }

    #[test]
    fn invalid_arguments_are_usage_errors() {
        for line in [
            &["cal"][..],
            &["call"],
            &[],
            &["--log", "loud", "tools"],
            &["call", "read", "--json", "--output", "x"],
            &["plugin"],
        ] {
            assert_eq!(parse(line).expect_err("it is wrong").exit_code(), 2, "{line:?}");
        }
    }

    #[test]
    fn every_command_has_help_with_an_example() {
        fn check(command: &mut clap::Command) {
            let name = command.get_name().to_owned();
            let help = command.render_help().to_string();
            let leaf = !command.has_subcommands();
            assert!(
                !leaf || ["schema", "demo", "help"].contains(&&*name) || help.contains("Example"),
                "{name}:\n{help}"
            );
            command.get_subcommands_mut().for_each(check);
        }
        check(&mut Arguments::command());
    }
}
