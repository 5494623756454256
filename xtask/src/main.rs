//! Every chore of this repository, as `cargo xtask COMMAND`. One file a command; what they share is
//! in `cargo`, `machine` and `step`.

mod bench;
mod cargo;
mod clients;
mod demo;
mod dist;
mod host;
mod machine;
mod plugins;
mod run;
mod step;
mod test;
mod tidy;

use std::ffi::OsString;
use std::process::ExitCode;

/// What a command comes to: an exit code, or what went wrong and what to do about it.
type Done = Result<ExitCode, String>;

struct Command {
    name: &'static str,
    /// What may follow the name, as the help shows it.
    arguments: &'static str,
    about: &'static str,
    run: fn(&[OsString]) -> Done,
}

const COMMANDS: [Command; 8] = [
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
        about: "run what takes long: the tests named soak, or `cargo test ARGS`",
        run: test::soak,
    },
    Command {
        name: "run",
        arguments: "[--] ARGS",
        about: "build everything and run `berth ARGS`",
        run: run::command,
    },
    Command {
        name: "plugins",
        arguments: "",
        about: "build the plugins into target/plugins, compiled ahead",
        run: plugins::command,
    },
    Command {
        name: "bench",
        arguments: "[ROW…]",
        about: "measure against rivals or an earlier build",
        run: bench::command,
    },
    Command {
        name: "dist",
        arguments: "",
        about: "make what is handed out: a static binary, its archive",
        run: dist::command,
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

fn dispatch(arguments: &[OsString]) -> Done {
    let Some((name, rest)) = arguments.split_first() else {
        return Err(format!("which chore?\n\n{}", help()));
    };
    if name == "help" || name == "--help" || name == "-h" {
        println!("{}", help());
        return Ok(ExitCode::SUCCESS);
    }
    match COMMANDS.iter().find(|command| name == command.name) {
        Some(command) => (command.run)(rest),
        None => Err(format!("there is no chore `{}`\n\n{}", name.display(), help())),
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

/// For commands that take no arguments, so that a mistyped flag is not silently ignored.
fn no_arguments(arguments: &[OsString]) -> Result<(), String> {
    match arguments.first() {
        None => Ok(()),
        Some(argument) => {
            Err(format!("`{}` is one argument too many: this chore takes none", argument.display()))
        }
    }
}

/// What is left after the `--` that may stand before arguments for someone else.
fn passed_on(arguments: &[OsString]) -> &[OsString] {
    match arguments.split_first() {
        Some((first, rest)) if first == "--" => rest,
        _ => arguments,
    }
}
