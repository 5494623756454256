//! The chores of this repository, as `cargo xtask COMMAND`. Each command has a file. `cargo`,
//! `machine` and `step` are shared.

mod bench;
mod cargo;
mod clients;
mod ctags;
mod demo;
mod dist;
mod grammars;
mod guests;
mod host;
mod languages;
mod machine;
mod plugins;
mod recording;
mod release;
mod run;
mod step;
mod test;
mod tidy;

use std::ffi::OsString;
use std::process::ExitCode;

/// The result of a command: an exit code, or an error that says what to do.
type CommandResult = Result<ExitCode, String>;

struct Command {
    name: &'static str,
    /// The arguments after the name, as the help shows them.
    arguments: &'static str,
    about: &'static str,
    run: fn(&[OsString]) -> CommandResult,
}

const COMMANDS: [Command; 12] = [
    Command {
        name: "demo",
        arguments: "",
        about: "build everything and show tools at work in the sandbox",
        run: demo::command,
    },
    Command {
        name: "test",
        arguments: "[-- ARGS]",
        about: "run every check and test, or only `cargo test ARGS`",
        run: test::command,
    },
    Command {
        name: "soak",
        arguments: "[-- ARGS]",
        about: "run the long tests: those named soak, or `cargo test ARGS`",
        run: test::soak,
    },
    Command {
        name: "run",
        arguments: "[--] ARGS",
        about: "build everything and run `toolhold ARGS`",
        run: run::command,
    },
    Command {
        name: "plugins",
        arguments: "",
        about: "build the plugins into target/plugins, and compile them",
        run: plugins::command,
    },
    Command {
        name: "bench",
        arguments: "[ROW…]",
        about: "measure against rivals or an earlier build",
        run: bench::command,
    },
    Command {
        name: "ctags",
        arguments: "",
        about: "compare the parsers of code with Universal Ctags on real sources",
        run: ctags::command,
    },
    Command {
        name: "recording",
        arguments: "",
        about: "make the picture of toolhold chat in docs/agent.md again",
        run: recording::command,
    },
    Command {
        name: "install",
        arguments: "[--prefix DIR]",
        about: "build an optimised toolhold and install it below ~/.local",
        run: dist::install,
    },
    Command {
        name: "dist",
        arguments: "",
        about: "make the release: a static binary and its archive",
        run: dist::command,
    },
    Command {
        name: "release",
        arguments: "KEY INPUT OUTPUT",
        about: "bring the files of `dist` for each kind of machine together",
        run: release::command,
    },
    Command {
        name: "tidy",
        arguments: "",
        about: "check the rules that a program can check",
        run: tidy::command,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    dispatch(&arguments).unwrap_or_else(|message| {
        eprintln!("error: {message}");
        ExitCode::FAILURE
    })
}

fn dispatch(arguments: &[OsString]) -> CommandResult {
    let Some((name, rest)) = arguments.split_first() else {
        return Err(format!("the command is missing\n\n{}", help()));
    };
    if name == "help" || name == "--help" || name == "-h" {
        println!("{}", help());
        return Ok(ExitCode::SUCCESS);
    }
    match COMMANDS.iter().find(|command| name == command.name) {
        Some(command) => (command.run)(rest),
        None => Err(format!("there is no command `{}`\n\n{}", name.display(), help())),
    }
}

fn help() -> String {
    let lines: Vec<String> = COMMANDS
        .iter()
        .map(|command| {
            format!("  {:<29} {}", format!("{} {}", command.name, command.arguments), command.about)
        })
        .collect();
    format!("cargo xtask COMMAND\n\n{}", lines.join("\n"))
}

/// Fails if there are arguments, so that a command without arguments doesn't ignore a mistyped
/// flag.
fn no_arguments(arguments: &[OsString]) -> Result<(), String> {
    match arguments.first() {
        None => Ok(()),
        Some(argument) => Err(format!(
            "unexpected argument `{}`: this command takes no arguments",
            argument.display()
        )),
    }
}

/// The arguments for another program: all of them, without a `--` in first place.
fn forwarded(arguments: &[OsString]) -> &[OsString] {
    match arguments.split_first() {
        Some((first, rest)) if first == "--" => rest,
        _ => arguments,
    }
}
