//! The whole command line: the subcommands, their arguments and their help.

pub(crate) mod agent;
pub(crate) mod bundle;
pub(crate) mod filter;
mod grants;
pub(crate) mod install;
pub(crate) mod jobs;
mod keys;
pub(crate) mod memory;
pub(crate) mod servers;
pub(crate) mod skills;
pub(crate) mod tasks;

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};
use toolhold_core::NAME;
use toolhold_mcp_server::ListenAddress;

use crate::options::Options;

use self::bundle::BundleCommand;
use self::filter::FilterCommand;
use self::install::InstallCommand;
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
  0  it worked
  1  the tool failed
  2  the command line is wrong, or the arguments don't fit the tool
  3  a rule or a bound refused it, or it needs approval and nobody was asked
  4  Toolhold itself failed: configuration, plugins, this machine, the record
  5  `toolhold run` reached a limit of its task
  130  Ctrl-C ended it

Environment:
  TOOLHOLD_…            any key of the configuration, in capitals: TOOLHOLD_TOOLS_FILE_ALLOWED_PATHS=/data
  TOOLHOLD_CONFIG_DIR   where toolhold.toml is; default $XDG_CONFIG_HOME/toolhold or ~/.config/toolhold
  TOOLHOLD_DATA_DIR     what lasts; default $XDG_DATA_HOME/toolhold or ~/.local/share/toolhold
  TOOLHOLD_CACHE_DIR    compiled plugins; default $XDG_CACHE_HOME/toolhold or ~/.cache/toolhold
  TOOLHOLD_CEILING      a file that bounds what the configuration allows, beside /etc/toolhold/ceiling.toml
  TOOLHOLD_LOG          as --log
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

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Call a tool
    Call(CallArguments),
    /// Have an agent do a task with the tools
    Run(agent::RunArguments),
    /// Talk with an agent that has the tools
    Chat(agent::ChatArguments),
    /// List the models of your providers, or test them
    Models(agent::ModelsArguments),
    /// List, show and check skills: instructions that models load for certain tasks
    #[command(subcommand)]
    Skills(skills::SkillsCommand),
    /// Search, show, change and delete what models have saved to remember
    #[command(subcommand)]
    Memory(memory::MemoryCommand),
    /// Serve the tools to the MCP client that starts this, or over HTTP
    Serve(ServeArguments),
    /// Connect MCP clients to this server, and approve other servers
    #[command(subcommand)]
    Mcp(McpCommand),
    /// List calls that need approval, and approve or deny them
    Approvals(ApprovalsArguments),
    /// List the tools, or describe one
    Tools(ToolsArguments),
    /// Read and verify the record of every call
    #[command(subcommand)]
    Audit(AuditCommand),
    /// List filters of output, try them, and show what they saved
    #[command(subcommand)]
    Filter(FilterCommand),
    /// Install, inspect, approve and write plugins
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Make your configuration by three questions
    Init(InitArguments),
    /// Show, describe, check or create the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Show what would happen to a call, or what happened to one, and by which rule
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Let tools use a directory, or reach a host without asking
    Allow(AllowArguments),
    /// Let a project's toolhold.toml grant more than your own does, and its skills count
    Trust(TrustArguments),
    /// Restore what a call changed in files
    Undo(UndoArguments),
    /// List the commands that run in the background of every `toolhold serve`, or stop one
    Jobs(jobs::JobsArguments),
    /// List the tasks that run at a later time, change them, show their results, and run them
    #[command(subcommand)]
    Tasks(TasksCommand),
    /// Show tools at work, and what the sandbox stops
    Demo(DemoArguments),
    /// Check this machine and the configuration, and say how to fix what is wrong
    Doctor(DoctorArguments),
    /// Print completions of a shell and manual pages
    #[command(subcommand)]
    Generate(GenerateCommand),
}

const SERVE_AFTER: &str = "\
Examples:
  claude mcp add toolhold -- toolhold serve
  toolhold serve --allow-read ~/notes --set tools.autonomy=read-only
  toolhold serve --http 8000
  toolhold serve --http unix:/run/user/1000/toolhold.sock --no-auth

The client speaks the Model Context Protocol over stdin and stdout. It works on the directory that it starts this in, under the same \
rules as `toolhold call`; a call that needs approval asks in the client, if the client can ask, or else waits for `toolhold approvals`.

With `--http`, clients come to http://127.0.0.1:PORT/mcp and bring `Authorization: Bearer TOKEN`; the token lies in a file that only you can \
read, which is named at the start. [serve] in toolhold.toml has the rest: TLS, other machines, an authorization server, limits.";

/// `toolhold serve`.
#[derive(Debug, Args)]
#[command(after_help = SERVE_AFTER)]
pub(crate) struct ServeArguments {
    /// Serve any number of clients over HTTP, at a port of this machine (8000, 127.0.0.1:8000; 0 is
    /// a free one) or a Unix socket (unix:/path)
    #[arg(long, value_name = "PLACE")]
    pub(crate) http: Option<ListenAddress>,

    /// Accept all programs of yours that reach the Unix socket, without a token
    #[arg(long, requires = "http")]
    pub(crate) no_auth: bool,
}

const MCP_CONFIG_AFTER: &str = "\
Examples:
  toolhold mcp config
  toolhold mcp config cursor
  toolhold mcp config vscode --project --write
  toolhold mcp config cursor --write --replace
  toolhold mcp config claude-desktop --write -- --allow /home/u/project
  toolhold mcp config codex --http http://127.0.0.1:8300/mcp

The client starts this very binary, by its path; with --project by the name `toolhold`, if PATH finds this binary by it. --write keeps everything else that its file has, shows what changes, and does nothing a \
second time. Of a server that is reached over HTTP, the file names a variable which has the token, and never the token itself.";

/// `toolhold mcp`.
#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// Print a client's configuration for this server, or write it into the client's file
    Config(McpConfig),
    /// The servers whose tools Toolhold offers
    #[command(flatten)]
    Servers(servers::ServersCommand),
}

/// `toolhold mcp config`.
#[derive(Args, Debug)]
#[command(after_help = MCP_CONFIG_AFTER)]
pub(crate) struct McpConfig {
    /// The client; without one, the known clients are listed
    pub(crate) client: Option<String>,
    /// Write it into the client's file
    #[arg(long, requires = "client")]
    pub(crate) write: bool,
    /// Take the servers out of the file that Toolhold has now, such as imported ones
    #[arg(long, requires = "write")]
    pub(crate) replace: bool,
    /// Use the file of the project in the working directory, instead of the user's
    #[arg(long, requires = "client")]
    pub(crate) project: bool,
    /// The server's name in the client
    #[arg(long, value_name = "NAME", default_value = NAME, requires = "client")]
    pub(crate) name: String,
    /// The URL of a running server, instead of one that the client starts
    #[arg(long, value_name = "URL", requires = "client")]
    pub(crate) http: Option<String>,
    /// The environment variable that holds that server's token
    #[arg(long, value_name = "NAME", default_value = "MCP_TOOLHOLD_TOKEN", requires = "http")]
    pub(crate) token_variable: String,
    /// The client gets that server's tokens from an authorization server by itself
    #[arg(long, requires = "http", conflicts_with = "token_variable")]
    pub(crate) oauth: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Options of `toolhold serve`
    #[arg(last = true, value_name = "OPTIONS", requires = "client")]
    pub(crate) serve: Vec<String>,
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

KEY=VALUE is turned into the type that the tool's schema names; a list is given by repeating the key. JSON is taken as it is. \
A single word is the argument that the tool takes without a name, or its only required one. The answer's text goes to stdout, everything else to stderr.";

/// `toolhold call`.
#[derive(Args, Debug)]
#[command(after_help = CALL_AFTER)]
pub(crate) struct CallArguments {
    /// The tool's name; `toolhold tools` lists them
    pub(crate) tool: String,
    /// KEY=VALUE pairs, or one JSON object, or `-` for a JSON object on stdin
    #[arg(value_name = "ARGUMENTS")]
    pub(crate) arguments: Vec<String>,
    /// Attach a file; the JSON names the first one {"$attachment": 0}
    #[arg(long, value_name = "FILE")]
    pub(crate) attach: Vec<PathBuf>,
    /// Write the answer to this file: its part that isn't text, or else its text
    #[arg(long, short, value_name = "FILE", conflicts_with = "json")]
    pub(crate) output: Option<PathBuf>,
    /// Approve this one call, if it needs approval; what is denied stays denied
    #[arg(long)]
    pub(crate) yes: bool,
    /// The session that the call belongs to [default: what you do in this directory]
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Show the answer as a model gets it: a long one is cut, untrusted text stands behind a fence
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

const APPROVALS_AFTER: &str = "\
Examples:
  toolhold approvals
  toolhold approvals --json
  toolhold approvals allow 3f9a2c41d07b5e88
  toolhold approvals deny 3f9a2c41d07b5e88

A call that needs approval, made where nobody can be asked, leaves its question here. The answer counts for the call if it still waits \
([approvals] wait_secs), or else for the next call of that session that is the same: once, until it expires.";

/// `toolhold approvals`.
#[derive(Args, Debug)]
#[command(after_help = APPROVALS_AFTER, args_conflicts_with_subcommands = true)]
pub(crate) struct ApprovalsArguments {
    /// Print a JSON array of the questions
    #[arg(long)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) answer: Option<ApprovalsCommand>,
}

/// `toolhold approvals …`.
#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// Approve a call
    #[command(
        after_help = "Examples:\n  toolhold approvals allow 3f9a2c41d07b5e88\n  toolhold approvals allow 3f9a --session"
    )]
    Allow {
        /// The question's ID, or its first digits
        id: String,
        /// Approve all such calls of the session, until that expires
        #[arg(long, conflicts_with = "always")]
        session: bool,
        /// Approve such calls for good, by a rule in your toolhold.toml, which is shown
        #[arg(long)]
        always: bool,
    },
    /// Deny a call
    #[command(
        after_help = "Examples:\n  toolhold approvals deny 3f9a2c41d07b5e88\n  toolhold approvals deny 3f9a --because 'use the other file'"
    )]
    Deny {
        /// The question's ID, or its first digits
        id: String,
        /// What the agent is told: why, and what to do instead
        #[arg(long, value_name = "TEXT")]
        because: Option<String>,
    },
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
    /// Describe this tool: arguments, behaviour, what its plugin may use
    pub(crate) tool: Option<String>,
    /// List the tools that the agent's filter chooses for this task, with the reason of each
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
    /// List the plugins of all running hosts, or else those of a new one
    #[command(after_help = "Examples:\n  toolhold plugin list\n  toolhold plugin list --json")]
    List {
        /// Print a JSON array of hosts and their plugins
        #[arg(long)]
        json: bool,
    },
    /// Show what a component is, what it asks for, and how it differs from the approved version;
    /// nothing is granted
    #[command(after_help = INSPECT_AFTER)]
    Inspect {
        /// A component's file, or the name of a plugin of the configuration or the plugin folder
        #[arg(value_name = "FILE|NAME")]
        component: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Let the component that is there for a name serve, with the grants of that name
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
    /// Make all running hosts load their plugins again, also those that failed before
    #[command(after_help = "Example:\n  toolhold plugin reload")]
    Reload {
        /// Print a JSON array of hosts and their plugins
        #[arg(long)]
        json: bool,
    },
    #[command(flatten)]
    Install(InstallCommand),
    /// Sign a component, so that others can see that it is yours
    Sign(SignArguments),
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
    /// Print the values in force, and where each came from
    #[command(
        after_help = "Examples:\n  toolhold config show\n  toolhold --set tools.call=60 config show --json"
    )]
    Show {
        /// Print one JSON object: the files, and every key with value and source
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of toolhold.toml and of its plugins' settings
    #[command(after_help = "Example:\n  toolhold config schema > toolhold.schema.json")]
    Schema,
    /// Write a toolhold.toml that has every key, commented out
    #[command(
        after_help = "Examples:\n  toolhold config init\n  toolhold config init --print | less"
    )]
    Init {
        /// Print it instead
        #[arg(long)]
        print: bool,
    },
    /// Show what your organisation takes away from your configuration, or sign a ceiling
    #[command(subcommand)]
    Ceiling(CeilingCommand),
    /// List everything that is wrong with the configuration
    #[command(after_help = "Examples:\n  toolhold config check\n  toolhold config check team.toml")]
    Check {
        /// Check this file alone, instead of the whole configuration
        file: Option<PathBuf>,
    },
    /// Rewrite the configuration of another agent, Zeph or ZeroClaw, as your toolhold.toml
    #[command(after_help = MIGRATE_AFTER)]
    Migrate {
        /// The other agent's configuration; it stays as it is
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

It shows the difference and what can't be kept, with the reasons, and asks before it writes. Comments stay with their keys. An existing
toolhold.toml isn't overwritten, unless it is the file that is rewritten. Without a terminal and without `--yes`, nothing is written.";

const CHECK_AFTER: &str = "\
Examples:
  toolhold policy check write path=src/main.rs content=x
  toolhold policy check grep '{\"pattern\": \"unwrap\"}' --json

It says what each gate has to say of the call, and which of them decides. Nothing runs, and nobody is asked. It ends with 0 if the call \
would run, with 3 if it would be refused or a person would have to agree, and with 2 if the call itself is wrong.";

/// `toolhold policy`.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Show what would happen to a call, without making it
    Check(PolicyCheck),
    /// Show what happened to a call, and by which rule, from the audit
    #[command(after_help = "Example:\n  toolhold policy explain 1f0c9a37b2d4e586-1")]
    Explain {
        /// The call's id, as `toolhold call --json` and the audit have it
        id: String,
        /// Print one JSON object: the decision, and everything that was recorded
        #[arg(long)]
        json: bool,
    },
}

/// `toolhold policy check`.
#[derive(Args, Debug)]
#[command(after_help = CHECK_AFTER)]
pub(crate) struct PolicyCheck {
    /// The tool's name; `toolhold tools` lists them
    pub(crate) tool: String,
    /// KEY=VALUE pairs, or one JSON object, or `-` for a JSON object on stdin
    #[arg(value_name = "ARGUMENTS")]
    pub(crate) arguments: Vec<String>,
    /// The session that the call would belong to [default: what you do in this directory]
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// The phase of an agent's work that would make it [default: none, as for `toolhold call`]
    #[arg(long, value_name = "PHASE")]
    pub(crate) phase: Option<agent::PhaseName>,
    /// Print one JSON object: the verdict, what decides, and what each gate says
    #[arg(long)]
    pub(crate) json: bool,
}

const UNDO_AFTER: &str = "\
Without a call, it is the newest one that changed files in this directory, whoever made it: the \
command line, an agent, a client of MCP, or a scheduled task. What would change is shown first. A \
file that was changed since is merged if the changes don't touch; otherwise it is left, and the \
error names it. All other files are restored.

Examples:
  toolhold undo                          # the last call that changed files here
  toolhold undo --turn                   # all that the agent did with your last message
  toolhold undo --list
  toolhold undo 5c1d0a8e4f3b2a19-7 --yes
  toolhold undo --session                # all calls of this directory's command line";

#[derive(Args, Debug)]
#[command(after_help = UNDO_AFTER)]
pub(crate) struct UndoArguments {
    /// The call, as `toolhold undo --list` and the audit name it
    #[arg(conflicts_with_all = ["list", "session"])]
    pub(crate) call: Option<String>,
    /// Restore this path alone, without what was changed in it since the call
    #[arg(long, value_name = "PATH", requires = "call", conflicts_with = "turn")]
    pub(crate) path: Option<std::path::PathBuf>,
    /// Undo the whole turn of the agent that the call belongs to
    #[arg(short, long, conflicts_with_all = ["list", "session"])]
    pub(crate) turn: bool,
    /// List the calls that can be undone
    #[arg(short, long)]
    pub(crate) list: bool,
    /// Undo all calls of a session, the newest first: of this directory's command line, or of the
    /// one that is named
    #[arg(short, long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    pub(crate) session: Option<String>,
    /// Undo without a question
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const DEMO_AFTER: &str = "\
The demo works in a scratch folder that it removes, with a configuration of its own, and needs no network. It ends with 4 if a tool \
did not work or an attack was not stopped.";

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

It changes nothing, but that plugins are compiled into the cache, as by any command. It ends with 4 if something is wrong that Toolhold needs; a warning is something that will be missed sooner or later.";

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
  eval \"$(toolhold generate completions bash)\"               # for this shell alone";

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
    /// Write the pages of all commands into this directory, which is made if it is missing
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "command")]
    pub(crate) all: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &[&str]) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(std::iter::once("toolhold").chain(line.iter().copied()))
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
