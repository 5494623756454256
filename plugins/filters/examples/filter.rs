//! `filter (RULE | --command CMD) [--exit N] < FILE > OUT` applies a rule to an output, natively.
//! It is for comparisons and for trying rules.

use std::io::{self, Read as _, Write as _};
use std::process::ExitCode;

use filters::Engine;
use toolhold_sdk::filter::Filters as _;

#[path = "../tests/support/mod.rs"]
mod support;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let (mut rule, mut command, mut exit) = (None, None, 0);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--command" => command = arguments.next(),
            "--exit" => {
                exit = arguments
                    .next()
                    .and_then(|code| code.parse().ok())
                    .ok_or("--exit needs a number")?;
            }
            _ => rule = Some(argument),
        }
    }
    let mut engine = Engine::new(None)?;
    let subject = command.as_deref().map(support::subject).unwrap_or_default();
    let rules = match (rule, command) {
        (Some(rule), None) => vec![rule],
        (None, Some(_)) => support::Matchers::new(&engine)
            .fitting(&subject)
            .into_iter()
            .map(str::to_owned)
            .collect(),
        _ => return Err("filter (RULE | --command CMD) [--exit N] < FILE > OUT".to_owned()),
    };
    let mut bytes = Vec::new();
    io::stdin().read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    let mut text = support::clean(&String::from_utf8_lossy(&bytes));
    for rule in rules {
        text = support::apply(&mut engine, &rule, &subject, exit, &text);
    }
    io::stdout().write_all(text.as_bytes()).map_err(|error| error.to_string())
}
