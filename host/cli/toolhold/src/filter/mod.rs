//! `toolhold filter`: lists, tries and tests filters, and shows their statistics.

mod discover;
mod examples;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use serde_json::{Value, json};
use toolhold_core::audit::FilterStats;
use toolhold_core::config::Folders;
use toolhold_core::text::{counted, neutral, neutral_line, shown};
use toolhold_core::{
    Content, FilterInput, FilterSummary, FilterVerdict, Host, Matcher, Pattern, Purpose, Trail,
    commands,
};

use crate::arguments::filter::{FilterCommand, FilterTry};
use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;
use crate::style::{FAINT, warn};
use toolhold_terminal::table::Table;

/// The most bytes of an output. In a call, a filter gets longer output in pieces of this size.
const MAX_OUTPUT: u64 = 4 << 20;

/// The most characters of a matcher in the list.
const SHOWN: usize = 60;

pub(crate) fn run(command: &FilterCommand, options: &Options) -> Result<Exit, Error> {
    match command {
        FilterCommand::List { json } => host::run(options, async |host| list(&host, *json)),
        FilterCommand::Try(arguments) => try_filter(arguments, options),
        FilterCommand::Test { filters, json } => {
            host::run(options, async |host| examples::run(&host, filters, *json).await)
        }
        FilterCommand::Stats { json } => stats(*json),
        FilterCommand::Discover { json } => {
            host::run(options, async |host| discover::run(&host, *json))
        }
    }
}

/// Lists the filters, and prints the problems of the user's rules.
fn list(host: &Host, as_json: bool) -> Result<Exit, Error> {
    let filters = host.filters();
    let rules = host.filter_rules();
    if as_json {
        writeln!(io::stdout().lock(), "{:#}", json!({ "filters": filters, "rules": rules }))?;
        return Ok(Exit::Success);
    }
    if let Some(rules) = &rules {
        for problem in &rules.problems {
            warn(problem)?;
        }
    }
    let mut table = Table::new(["FILTER", "PLUGIN", "HOW", "LOOKS AT"], &[]);
    for filter in &filters {
        // Missing and invalid metadata become `null`, and the strategy `-`.
        let meta_text = filter.definition.meta.as_deref().unwrap_or_default();
        let meta: Value = serde_json::from_str(meta_text).unwrap_or_default();
        let strategy = match filter.definition.purpose {
            Purpose::Security => "security",
            Purpose::Cosmetic => meta["strategy"].as_str().unwrap_or("-"),
        };
        let matchers: Vec<String> =
            filter.definition.matchers.iter().map(describe_matcher).collect();
        let matches: String = matchers.join(", ").chars().take(SHOWN).collect();
        table.row([&filter.name, &filter.plugin, strategy, &matches].map(str::to_owned));
    }
    table.print(&mut anstream::stdout().lock())?;
    if let Some(rules) = rules {
        writeln!(
            anstream::stdout(),
            "\n{FAINT}Write your own rules into {}.{FAINT:#}",
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

/// Runs a filter, or all filters for a command, on the output in a file.
fn try_filter(arguments: &FilterTry, options: &Options) -> Result<Exit, Error> {
    match (&arguments.command, &arguments.filter_or_file, &arguments.file) {
        // With `--command`, the first word is the file.
        (Some(command), Some(file), None) => {
            let text = read_output(Path::new(file))?;
            host::run(options, async |host| try_call(&host, arguments, command, text).await)
        }
        (None, Some(filter), Some(file)) => {
            // In a call, a filter gets the lines as a terminal shows them.
            let as_lines = true;
            let text = shown(read_output(file)?, as_lines);
            host::run(options, async |host| try_one(&host, arguments, filter, text).await)
        }
        _ => Err(Error::Usage("give a filter and a file, or --command and a file".to_owned())),
    }
}

/// Filters `text` like the output of `command` in a call of `bash`, and shows the result.
async fn try_call(
    host: &Host,
    arguments: &FilterTry,
    command: &str,
    text: String,
) -> Result<Exit, Error> {
    let (shortened, filtered) =
        host.preview_output(command, &text, arguments.exit).await.map_err(|failure| {
            Error::Usage(format!("a call would fail: {}", neutral_line(&failure.message)))
        })?;
    let unchanged = match commands::last_command(command) {
        None => "no filter matches, because the last program of the command line can't be resolved"
            .to_owned(),
        Some(last) => {
            let filters = host.fitting_filters("bash", Some(&last.line));
            if filters.is_empty() {
                format!("no filter matches `{}`", last.line)
            } else {
                format!("{} leaves out nothing", filters.join(", "))
            }
        }
    };
    show(&text, &shortened, filtered, &unchanged, arguments.json)
}

/// Runs the filter `filter` on `text`, and shows the result. The filter's conditions for commands
/// are ignored.
async fn try_one(
    host: &Host,
    arguments: &FilterTry,
    filter: &str,
    text: String,
) -> Result<Exit, Error> {
    let input = FilterInput {
        tool: "bash".to_owned(),
        exit_code: Some(arguments.exit),
        content: vec![Content::text(text.clone())],
        ..FilterInput::default()
    };
    let verdict = host
        .try_filter(filter, input)
        .await
        .map_err(|failure| unusable(host, filter, &failure.message))?;
    let unchanged = format!("{filter} leaves out nothing");
    match verdict {
        FilterVerdict::Keep => {
            let filtered = None;
            show(&text, &text, filtered, &unchanged, arguments.json)
        }
        FilterVerdict::Replace { content, confidence, .. } => {
            let shortened = content.iter().filter_map(Content::as_text).collect::<String>();
            let filtered = FilterSummary {
                filters: vec![filter.to_owned()],
                confidence,
                lines: [text.lines().count() as u64, shortened.lines().count() as u64],
                bytes: [text.len() as u64, shortened.len() as u64],
            };
            show(&text, &shortened, Some(filtered), &unchanged, arguments.json)
        }
        FilterVerdict::Block(reason) => {
            Err(Error::Usage(format!("`{filter}` withholds the output: {}", neutral_line(&reason))))
        }
    }
}

fn unusable(host: &Host, name: &str, message: &str) -> Error {
    let is_known = host.filters().iter().any(|filter| filter.name == name);
    let hint = if is_known { "" } else { "; `toolhold filter list` shows all filters" };
    Error::Usage(format!("the filter `{}`: {message}{hint}", neutral_line(name)))
}

/// Prints the filtered output and the effect of the filters. If the output stays the same, prints
/// the message `unchanged` instead of the effect.
fn show(
    before: &str,
    after: &str,
    filtered: Option<FilterSummary>,
    unchanged: &str,
    as_json: bool,
) -> Result<Exit, Error> {
    if as_json {
        let mut object = match &filtered {
            Some(filtered) => json!(filtered),
            None => json!({
                "filters": [],
                "confidence": null,
                "lines": [before.lines().count(), after.lines().count()],
                "bytes": [before.len(), after.len()],
            }),
        };
        object["text"] = json!(after);
        object["tokens_saved_estimated"] =
            json!(filtered.as_ref().map_or(0, FilterSummary::tokens_saved));
        writeln!(io::stdout().lock(), "{object:#}")?;
        return Ok(Exit::Success);
    }
    write!(io::stdout().lock(), "{}", neutral(after))?;
    let message = match filtered {
        None => unchanged.to_owned(),
        Some(filtered) => {
            let filters = filtered.filters.join(", ");
            let saved = counted(filtered.tokens_saved(), "token");
            let confidence = filtered.confidence.as_str();
            let note = if filtered.is_worth_it() {
                ""
            } else {
                "; in a call, this output would stay unfiltered, because the filter saves too \
                 little"
            };
            format!("{filtered} by {filters}; about {saved}; confidence: {confidence}{note}")
        }
    };
    writeln!(anstream::stderr(), "{FAINT}{}{FAINT:#}", neutral_line(&message))?;
    Ok(Exit::Success)
}

/// Reads an output from a file, or from stdin for `-`. Invalid UTF-8 is replaced.
fn read_output(path: &Path) -> Result<String, Error> {
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).map_err(|error| unreadable(path, &error))?)
    };
    let mut bytes = Vec::new();
    source
        // One byte more than the limit shows that the file is too large.
        .take(MAX_OUTPUT + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(path, &error))?;
    if bytes.len() as u64 > MAX_OUTPUT {
        return Err(Error::Usage(format!(
            "{}: the file is too large; the limit is 4 MiB. In a call, filters get longer outputs \
             in parts",
            path.display()
        )));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    Error::Usage(format!("{}: {error}", path.display()))
}

fn stats(as_json: bool) -> Result<Exit, Error> {
    const NUMBER_COLUMNS: &[usize] = &[1, 2, 3, 4, 5, 6];
    let stats = Trail::open(&Folders::from_environment()?)?.filter_stats()?;
    if as_json {
        writeln!(io::stdout().lock(), "{:#}", json!(stats))?;
        return Ok(Exit::Success);
    }
    if stats.is_empty() {
        writeln!(anstream::stdout(), "No answer has been filtered yet.")?;
        return Ok(Exit::Success);
    }
    let mut table = Table::new(
        ["FILTER", "ANSWERS", "LINES", "SHOWN", "SAVED", "TOKENS SAVED", "F/P/B"],
        NUMBER_COLUMNS,
    );
    for stats in &stats {
        let FilterStats {
            filters, answers, lines: [lines, shown], full, partial, fallback, ..
        } = stats;
        let [answers, lines, shown] = [answers, lines, shown].map(u64::to_string);
        let percent = format!("{:.1}%", stats.percent());
        let tokens = format!("~{}", stats.tokens_saved());
        table.row([
            filters.clone(),
            answers,
            lines,
            shown,
            percent,
            tokens,
            format!("{full}/{partial}/{fallback}"),
        ]);
    }
    table.print(&mut anstream::stdout().lock())?;
    writeln!(
        anstream::stdout(),
        "\n{FAINT}Tokens are estimated, at four bytes each. F/P/B: how often the filter was fully \
         sure, partly sure, or not sure.{FAINT:#}"
    )?;
    Ok(Exit::Success)
}
