//! Prints the lines that have a text: an ordinary program with arguments, standard input and an
//! exit code. It knows nothing of Toolhold, and shows how such a program becomes a tool.

use std::io::{Read, Write};
use std::process::ExitCode;

/// What to search for, and how.
#[derive(Default)]
struct Options {
    numbers: bool,
    max: Option<usize>,
    environment: bool,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            eprintln!("lines: {message}");
            ExitCode::from(2)
        }
    }
}

/// Returns whether a line was found.
fn run() -> Result<bool, String> {
    let mut options = Options::default();
    let mut words = std::env::args().skip(1);
    let mut rest = Vec::new();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--numbers" => options.numbers = true,
            "--environment" => options.environment = true,
            "--max" => {
                let max = words.next().unwrap_or_default();
                options.max = Some(max.parse().map_err(|_| format!("`{max}` is no number"))?);
            }
            "--crash" => panic!("this is a crash"),
            "--" => rest.extend(words.by_ref()),
            other if other.starts_with("--") => return Err(format!("there is no option {other}")),
            _ => rest.push(word),
        }
    }
    if options.environment {
        println!("{} variables", std::env::vars().count());
        return Ok(true);
    }
    let mut rest = rest.into_iter();
    let text = rest.next().ok_or("usage: lines [--numbers] [--max N] [--] TEXT [FILE...]")?;
    let files: Vec<String> = rest.collect();
    let mut found = 0;
    if files.is_empty() {
        let mut input = String::new();
        std::io::stdin().read_to_string(&mut input).map_err(|error| error.to_string())?;
        search(&input, &text, &options, &mut found)?;
    }
    for file in files {
        let content = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
        search(&content, &text, &options, &mut found)?;
    }
    Ok(found > 0)
}

fn search(content: &str, text: &str, options: &Options, found: &mut usize) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    for (index, line) in content.lines().enumerate().filter(|(_, line)| line.contains(text)) {
        if options.max.is_some_and(|max| *found >= max) {
            break;
        }
        *found += 1;
        let written = match options.numbers {
            true => writeln!(out, "{}:{line}", index + 1),
            false => writeln!(out, "{line}"),
        };
        written.map_err(|error| error.to_string())?;
    }
    Ok(())
}
