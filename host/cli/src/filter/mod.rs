//! `berth filter`.

mod command;
mod examples;
mod table;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use berth_core::audit::FilterStats;
use berth_core::config::Folders;
use berth_core::text::{neutral, neutral_line, shown};
use berth_core::{
    Confidence, Content, FilterInput, FilterSummary, FilterVerdict, Host, Matcher, Pattern,
    Purpose, Trail, commands,
};
use serde_json::{Value, json};

pub(crate) use command::FilterCommand;
use command::FilterTry;

use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;
use crate::style::{FAINT, WARNING};
use table::Table;

/// Bytes of an output to try: the limit of one output of a command.
const MAX_OUTPUT: u64 = 1 << 20;

/// Characters of a filter's matcher in the list.
const SHOWN: usize = 60;

/// Runs the command.
pub(crate) fn run(command: &FilterCommand, options: &Options) -> Result<Exit, Error> {
    match command {
        FilterCommand::List { json } => host::run(options, async |host| list(&host, *json)),
        FilterCommand::Try(arguments) => try_filter(arguments, options),
        FilterCommand::Test { filters, json } => {
            host::run(options, async |host| examples::run(&host, filters, *json).await)
        }
        FilterCommand::Stats { json } => stats(*json),
    }
}

fn list(host: &Host, as_json: bool) -> Result<Exit, Error> {
    let (filters, rules) = (host.filters(), host.filter_rules());
    if as_json {
        writeln!(io::stdout().lock(), "{:#}", json!({ "filters": filters, "rules": rules }))?;
        return Ok(Exit::Success);
    }
    for problem in rules.iter().flat_map(|rules| &rules.problems) {
        writeln!(anstream::stderr(), "{WARNING}note{WARNING:#}: {}", neutral(problem))?;
    }
    let mut table = Table::new(["FILTER", "PLUGIN", "HOW", "LOOKS AT"], &[]);
    for filter in &filters {
        let meta: Value = filter
            .definition
            .meta
            .as_deref()
            .and_then(|meta| serde_json::from_str(meta).ok())
            .unwrap_or_default();
        let how = match filter.definition.purpose {
            Purpose::Security => "security",
            Purpose::Cosmetic => meta["strategy"].as_str().unwrap_or("-"),
        };
        let matches: Vec<String> =
            filter.definition.matchers.iter().map(describe_matcher).collect();
        let matches: String = matches.join(", ").chars().take(SHOWN).collect();
        table.row([&filter.name, &filter.plugin, how, &matches].map(neutral_line));
    }
    table.print()?;
    if let Some(rules) = rules {
        writeln!(
            anstream::stdout(),
            "\n{FAINT}Your own rules belong into {}.{FAINT:#}",
            neutral_line(&rules.path.display().to_string())
        )?;
    }
    Ok(Exit::Success)
}

fn describe_matcher(matcher: &Matcher) -> String {
    let subject = match &matcher.subject {
        Pattern::Any => "everything".to_owned(),
        Pattern::Exact(text) => format!("`{text}` alone"),
        Pattern::Prefix(text) => format!("`{text} …`"),
        Pattern::Regex(text) => format!("/{text}/"),
    };
    if matcher.tool == "*" { subject } else { format!("{} {subject}", matcher.tool) }
}

fn try_filter(arguments: &FilterTry, options: &Options) -> Result<Exit, Error> {
    let (filter, file) = match (&arguments.command, &arguments.filter_or_file, &arguments.file) {
        (Some(_), Some(file), None) => (None, Path::new(file)),
        (None, Some(filter), Some(file)) => (Some(filter.as_str()), file.as_path()),
        _ => {
            return Err(Error::Usage(
                "give a filter and a file, or --command and a file".to_owned(),
            ));
        }
    };
    let text = shown(output(file)?, true);
    let last = arguments.command.as_deref().and_then(commands::last_command);
    let subject = last.as_ref().map(|last| last.line.clone());
    host::run(options, async |host| {
        let names = match filter {
            Some(name) => vec![name.to_owned()],
            None => host.fitting_filters("bash", subject.as_deref()),
        };
        let mut input = FilterInput {
            tool: "bash".to_owned(),
            subject: subject.clone(),
            exit_code: Some(arguments.exit),
            among_others: last.as_ref().is_some_and(|last| !last.alone),
            content: vec![Content::text(text.clone())],
            ..FilterInput::default()
        };
        let mut by: Vec<(String, Confidence)> = Vec::new();
        let asked = match (names.as_slice(), &subject) {
            ([], Some(subject)) => format!("no filter fits `{subject}`"),
            ([], None) => {
                "the last program of the command line is unknown, so no filter fits".to_owned()
            }
            (names, _) => format!("{} leaves nothing out", names.join(", ")),
        };
        for name in names {
            let verdict = host
                .try_filter(&name, input.clone())
                .await
                .map_err(|failure| unusable(&host, &name, &failure.message))?;
            match verdict {
                FilterVerdict::Keep => {}
                FilterVerdict::Replace { content, confidence, .. } => {
                    input.content = content;
                    by.push((name, confidence));
                }
                FilterVerdict::Block(reason) => {
                    return Err(Error::Usage(format!(
                        "`{name}` withholds it: {}",
                        neutral_line(&reason)
                    )));
                }
            }
        }
        let left = input.content.iter().filter_map(Content::as_text).collect::<String>();
        show(&text, &left, by, &asked, arguments.json)
    })
}

fn unusable(host: &Host, name: &str, message: &str) -> Error {
    let is_known = host.filters().iter().any(|filter| filter.name == name);
    let hint = if is_known { "" } else { "; `berth filter list` shows them" };
    Error::Usage(format!("the filter `{}`: {message}{hint}", neutral_line(name)))
}

fn show(
    before: &str,
    after: &str,
    by: Vec<(String, Confidence)>,
    asked: &str,
    as_json: bool,
) -> Result<Exit, Error> {
    let lines = |text: &str| text.lines().count() as u64;
    let confidence = by.iter().map(|(_, confidence)| *confidence).max();
    let filtered = FilterSummary {
        filters: by.into_iter().map(|(name, _)| name).collect(),
        confidence: confidence.unwrap_or(Confidence::Fallback),
        lines: [lines(before), lines(after)],
        bytes: [before.len() as u64, after.len() as u64],
    };
    if as_json {
        let mut object = json!(filtered);
        object["text"] = json!(after);
        object["tokens_saved_estimated"] = json!(filtered.tokens_saved());
        if confidence.is_none() {
            object["confidence"] = Value::Null;
        }
        writeln!(io::stdout().lock(), "{object:#}")?;
        return Ok(Exit::Success);
    }
    write!(io::stdout().lock(), "{}", neutral(after))?;
    let said = match confidence {
        None => asked.to_owned(),
        Some(confidence) => {
            let saved = filtered.tokens_saved();
            let small = if filtered.is_worth_it() {
                ""
            } else {
                "; a call would leave it as it is, since that saves too little"
            };
            format!(
                "{filtered} by {}; about {saved} tokens; confidence: {}{small}",
                filtered.filters.join(", "),
                confidence.as_str()
            )
        }
    };
    writeln!(anstream::stderr(), "{FAINT}{}{FAINT:#}", neutral_line(&said))?;
    Ok(Exit::Success)
}

fn output(path: &Path) -> Result<String, Error> {
    let failed = |error: io::Error| Error::Usage(format!("{}: {error}", path.display()));
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).map_err(failed)?)
    };
    let mut bytes = Vec::new();
    source.take(MAX_OUTPUT + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_OUTPUT {
        return Err(Error::Usage(format!(
            "{}: more than 1 MiB, which no command's output has",
            path.display()
        )));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn stats(as_json: bool) -> Result<Exit, Error> {
    let stats = Trail::open(&Folders::from_environment()?)?.filter_stats()?;
    if as_json {
        writeln!(io::stdout().lock(), "{:#}", json!(stats))?;
        return Ok(Exit::Success);
    }
    if stats.is_empty() {
        writeln!(anstream::stdout(), "No answer was filtered yet.")?;
        return Ok(Exit::Success);
    }
    let mut table = Table::new(
        ["FILTER", "ANSWERS", "LINES", "SHOWN", "SAVED", "TOKENS SAVED", "F/P/B"],
        &[1, 2, 3, 4, 5, 6],
    );
    for stats in &stats {
        let FilterStats {
            filters, answers, lines: [lines, shown], full, partial, fallback, ..
        } = stats;
        let [answers, lines, shown] = [answers, lines, shown].map(u64::to_string);
        let (percent, tokens) =
            (format!("{:.1}%", stats.percent()), format!("~{}", stats.tokens_saved()));
        table.row([
            neutral_line(filters),
            answers,
            lines,
            shown,
            percent,
            tokens,
            format!("{full}/{partial}/{fallback}"),
        ]);
    }
    table.print()?;
    writeln!(
        anstream::stdout(),
        "\n{FAINT}Tokens are estimated: four bytes are taken for one. F/P/B: how often it was sure, partly, or not.{FAINT:#}"
    )?;
    Ok(Exit::Success)
}
