//! The `toolhold` command. The library `toolhold_core` does the work.

mod agent;
mod allow;
mod approvals;
mod arguments;
mod asking;
mod audit;
mod call;
mod config;
mod connect;
mod demo;
mod doctor;
mod filter;
mod generate;
mod granted_folder;
mod host;
mod init;
mod jobs;
mod key;
mod mcp;
mod memory;
mod options;
mod plugin;
mod policy;
mod schema;
mod serve;
mod skills;
mod tasks;
mod token;
mod tools;
mod trust;
mod undo;

mod error {
    pub(crate) use toolhold_terminal::error::{CommandError as Error, print_json};
}

pub(crate) use toolhold_terminal::{
    ask, changed_file, exit, nearest, new_file, plugin_description, progress, shown, style,
};

use std::fmt;
use std::io::Write;
use std::time::Duration;

use toolhold_authoring::AuthorCommand;
use toolhold_core::PluginApprovals;
use toolhold_core::config::Folders;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::arguments::filter::FilterCommand;
use crate::arguments::{
    Arguments, Command, ConfigCommand, GenerateCommand, PluginCommand, TasksCommand,
};
use crate::error::Error;
use crate::exit::Exit;
use crate::options::LogFormat;
use crate::style::Message;

/// The C library of the static binary, musl, has an allocator with one lock for all threads. Calls
/// would take twice as long with it, so mimalloc replaces it.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The time limit for sending the last telemetry. The rest is lost.
const LAST_SENDING: Duration = Duration::from_millis(500);

fn main() {
    // In a helper process, the hook confines the process and never returns. The hook must run
    // before a second thread starts.
    toolhold_core::helper_hook();
    allow_open_files();
    let arguments = match arguments::parse_line(std::env::args_os().skip(1).collect()) {
        Ok(arguments) => arguments,
        Err(error) => {
            // If the output is closed, the exit code still reports the result.
            let _ = print_help_or_error(&error);
            std::process::exit(error.exit_code());
        }
    };

    let mut exit = match run(arguments) {
        Ok(exit) => exit,
        Err(error) => {
            let (exit, message) = error.end();
            if let Some(message) = message {
                // If stderr is closed, the exit code still reports the error.
                let _ = print_error(exit, &message);
            }
            exit
        }
    };
    if let Err(error) = std::io::stdout().flush() {
        // Lost output is a failure.
        let (exit_of_flush, _) = Error::from(error).end();
        exit = exit.max(exit_of_flush);
    }

    toolhold_export::flush_telemetry(LAST_SENDING);
    // The process exits here, because returning from `main` could wait for a blocked thread.
    std::process::exit(exit.code());
}

/// Prints the help to stdout or an error to stderr. With `--json`, an error is a JSON object.
fn print_help_or_error(error: &clap::Error) -> std::io::Result<()> {
    if error.use_stderr() && wants_json() {
        let message = error.to_string();
        error::print_json(Exit::Usage, message.trim_end().trim_start_matches("error: "))
    } else {
        error.print()
    }
}

fn print_error(exit: Exit, message: &str) -> std::io::Result<()> {
    if wants_json() {
        error::print_json(exit, message)
    } else {
        writeln!(anstream::stderr(), "{}", Message("error", message))
    }
}

fn run(Arguments { command, options }: Arguments) -> Result<Exit, Error> {
    let default_level = match command {
        // The test report already contains the component's output.
        Command::Plugin(PluginCommand::Author(AuthorCommand::Test { .. })) => LevelFilter::OFF,
        // These commands print the warnings themselves.
        Command::Config(ConfigCommand::Check { .. })
        | Command::Filter(FilterCommand::List { .. } | FilterCommand::Test { .. }) => {
            LevelFilter::ERROR
        }
        _ => LevelFilter::WARN,
    };
    start_log(options.log, default_level, options.log_format)?;

    let needs_lock =
        !matches!(command, Command::Generate(_) | Command::Demo(_) | Command::Doctor(_));
    if needs_lock && let Ok(folders) = Folders::from_environment() {
        // If the installation of a bundle was interrupted, it is completed first.
        PluginApprovals::open(&folders).finish()?;
    }

    match command {
        Command::Call(call) => call::run(&call, &options),
        Command::Run(arguments) => agent::command::run(&arguments, &options),
        Command::Chat(arguments) => agent::command::chat(&arguments, &options),
        Command::Models(arguments) => agent::command::models(&arguments, &options),
        Command::Serve(arguments) => serve::run(&options, arguments),
        Command::Token(command) => token::run(&command, &options),
        Command::Connect(arguments) => connect::run(&arguments, &options),
        Command::Mcp(command) => mcp::run(&command, &options),
        Command::Approvals(approvals) => approvals::run(&approvals, &options),
        Command::Tools(tools) => tools::run(&tools, &options),
        Command::Audit(command) => audit::run(&command, &options),
        Command::Filter(command) => filter::run(&command, &options),
        Command::Plugin(command) => plugin::run(&command, &options),
        Command::Config(command) => config::run(command, &options),
        Command::Init(init) => init::run(&init, &options),
        Command::Policy(command) => policy::run(&command, &options),
        Command::Memory(command) => memory::command::run(&command, &options),
        Command::Skills(command) => skills::run(&command, &options),
        Command::Trust(trust) => trust::run(&trust, &options),
        Command::Allow(allow) => allow::run(&allow, &options),
        Command::Undo(undo) => undo::run(&undo, &options),
        Command::Jobs(jobs) => jobs::run(&jobs),
        Command::Tasks(TasksCommand::Tasks(command)) => tasks::command::tasks(&command, &options),
        Command::Tasks(TasksCommand::Daemon(daemon)) => tasks::command::daemon(&daemon, &options),
        Command::Demo(demo) => demo::command::run(&demo),
        Command::Doctor(doctor) => doctor::run(&doctor, &options),
        Command::Generate(GenerateCommand::Completions(shell)) => {
            generate::completions::run(&shell)
        }
        Command::Generate(GenerateCommand::Man(man)) => generate::man::run(&man),
    }
}

/// Checks whether the command line has `--json`. Searches the raw words, because an invalid command
/// line can't be parsed.
fn wants_json() -> bool {
    std::env::args_os().skip(1).take_while(|word| word != "--").any(|word| word == "--json")
}

/// Raises the limit of open files to the maximum. The usual limit is 1,024, but a call can have
/// hundreds of open files.
fn allow_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // If this fails, the old limit applies.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Starts writing the log to stderr. `flag` is the level of `--log`. Without it, `TOOLHOLD_LOG`
/// sets the level, or else `default`.
fn start_log(
    flag: Option<LevelFilter>,
    default: LevelFilter,
    format: LogFormat,
) -> Result<(), Error> {
    let variable = std::env::var("TOOLHOLD_LOG").unwrap_or_default();
    let level = match flag {
        Some(level) => level,
        None if variable.is_empty() => default,
        None => variable.parse().map_err(|_| {
            Error::Usage(format!(
                "TOOLHOLD_LOG={variable}: the level must be off, error, warn, info, debug or trace"
            ))
        })?,
    };

    // `rmcp` must be quieter, because at `warn` it repeats error answers that are already in the
    // audit log, and at `info` it prints Rust values.
    let is_terse = level == LevelFilter::WARN || level == LevelFilter::INFO;
    let protocol_level = if is_terse { LevelFilter::ERROR } else { level };
    // The client is silent, because the error of a failed call already names an unreachable server.
    let client_level = if is_terse { LevelFilter::OFF } else { level };
    let levels = Targets::new()
        .with_default(level)
        .with_target("rmcp", protocol_level)
        .with_target("rmcp::transport::worker", client_level)
        .with_target("rmcp::transport::streamable_http_client", client_level);
    let lines = tracing_subscriber::fmt::layer().with_ansi(false);
    let lines = match format {
        LogFormat::Text => lines.with_writer(anstream::stderr).event_format(LogLine).boxed(),
        LogFormat::Json => lines.with_writer(std::io::stderr).json().boxed(),
    };
    tracing_subscriber::registry().with(lines.with_filter(levels)).init();
    Ok(())
}

/// Formats log lines like Toolhold's other messages.
struct LogLine;

impl<S, N> FormatEvent<S, N> for LogLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let kind = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "trace",
        };
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        writeln!(writer, "{}", Message(kind, &text))
    }
}
