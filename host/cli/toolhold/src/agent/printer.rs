//! Prints the events of `toolhold run` and of a chat in lines, as text or as lines of JSON.

use std::io::{IsTerminal, Write};

use anstyle::Style;
use serde_json::Value;
use toolhold_agent::{RunEvent, RunEvents, Spent};
use toolhold_core::text::{counted, cut, grouped, neutral, neutral_line};
use toolhold_core::{CancellationToken, FilterSummary};
use toolhold_terminal::shown::error_for_person;
use toolhold_terminal::style::{ADDED, BAD, FAINT, REMOVED, STRONG, WARNING};

use crate::agent::waiting::WaitingLine;

/// The most characters of a call's arguments on its line.
const MAX_LINE: usize = 160;

/// Bytes of one argument, if a call has several.
const MAX_ARGUMENT: usize = 40;

/// Characters of a failure.
const MAX_FAILURE: usize = 1000;

/// Lines of a result.
const MAX_RESULT_LINES: usize = 8;

/// Lines of a diff.
const MAX_DIFF_LINES: usize = 40;

/// Bytes of a line of a result.
const MAX_RESULT_LINE: usize = 400;

/// The form of the shown events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Each event as a line of JSON on stdout.
    Json,
    /// Answers are printed on stdout while they arrive. Everything else goes to stderr.
    Live,
    /// The last answer on stdout, the rest on stderr.
    Last,
}

/// Shows the events of a session. If the reader of the output is closed, the session is cancelled.
pub(crate) struct Printer {
    form: Form,
    cancel: CancellationToken,
    /// The text of the last answer.
    answer: String,
    /// Whether the cursor is inside a line of the terminal.
    is_in_line: bool,
    /// Whether the model's thoughts were shown last.
    is_thinking: bool,
    /// Whether something couldn't be written.
    is_broken: bool,
    waiting: WaitingLine,
}

impl Printer {
    /// `can_redraw`: whether a line of the terminal may be drawn again in its place.
    pub(crate) fn new(json: bool, can_redraw: bool, cancel: CancellationToken) -> Self {
        let form = match (json, std::io::stdout().is_terminal()) {
            (true, _) => Form::Json,
            (false, true) => Form::Live,
            (false, false) => Form::Last,
        };
        Self {
            form,
            cancel,
            answer: String::new(),
            is_in_line: false,
            is_thinking: false,
            is_broken: false,
            waiting: WaitingLine::new(can_redraw),
        }
    }

    fn show(&mut self, event: RunEvent) -> std::io::Result<()> {
        if self.form == Form::Json {
            let mut out = std::io::stdout().lock();
            serde_json::to_writer(&mut out, &event)?;
            out.write_all(b"\n")?;
            return out.flush();
        }
        let reason = self.waiting_reason(&event);
        if reason.is_none() {
            self.waiting.stop();
        }
        self.print(event)?;
        if let Some(reason) = reason {
            self.end_line()?;
            self.waiting.start(&reason);
        }
        Ok(())
    }

    /// Returns what the agent waits for after an event, or `None` if the event is shown, or if the
    /// wait is another one's.
    fn waiting_reason(&self, event: &RunEvent) -> Option<String> {
        match event {
            RunEvent::Asking { tokens, .. } => {
                Some(format!("model reads {} tokens", grouped(*tokens)))
            }
            RunEvent::CallPart { tool } => {
                Some(format!("model writes a call of {}", neutral_line(tool)))
            }
            RunEvent::TextPart { .. } if self.form == Form::Last => {
                Some("model writes its answer".to_owned())
            }
            RunEvent::ThinkingPart { .. } if !std::io::stderr().is_terminal() => {
                Some("model thinks".to_owned())
            }
            _ => None,
        }
    }

    fn print(&mut self, event: RunEvent) -> std::io::Result<()> {
        match event {
            RunEvent::TextPart { text } if self.form == Form::Live => {
                self.end_thinking()?;
                let mut out = anstream::stdout().lock();
                self.is_in_line = !text.ends_with('\n');
                write!(out, "{}", neutral(&text))?;
                out.flush()
            }
            RunEvent::ThinkingPart { text } if std::io::stderr().is_terminal() => {
                let mut err = anstream::stderr().lock();
                self.is_in_line = !text.ends_with('\n');
                self.is_thinking = true;
                write!(err, "{FAINT}{}{FAINT:#}", neutral(&text))?;
                err.flush()
            }
            RunEvent::Answer { text, .. } => {
                self.end_line()?;
                if !text.trim().is_empty() {
                    self.answer = text;
                }
                Ok(())
            }
            RunEvent::Call { tool, arguments, .. } => {
                self.end_line()?;
                let mut err = anstream::stderr().lock();
                let tool = neutral_line(&tool);
                let arguments = arguments_line(&arguments);
                writeln!(err, "{STRONG}{tool}{STRONG:#} {FAINT}{arguments}{FAINT:#}")
            }
            RunEvent::Result { failed: true, tool, text, .. } => {
                self.end_line()?;
                let error = indented_error(&text);
                let tool = neutral_line(&tool);
                writeln!(anstream::stderr().lock(), "  {BAD}{tool} failed{BAD:#}: {error}")
            }
            RunEvent::Result { failed: false, text, filtered, .. } => {
                self.end_line()?;
                print_result(&text, filtered.as_ref())
            }
            RunEvent::Notice { text } => {
                self.end_line()?;
                let text = neutral_line(&text);
                writeln!(anstream::stderr().lock(), "{WARNING}note{WARNING:#}: {text}")
            }
            RunEvent::Session { id, .. } => {
                let id = neutral_line(&id);
                writeln!(anstream::stderr().lock(), "{FAINT}session {id}{FAINT:#}")
            }
            RunEvent::Ended { ending, spent, .. } => {
                self.end_line()?;
                if self.form == Form::Last && !self.answer.is_empty() {
                    let mut out = anstream::stdout().lock();
                    writeln!(out, "{}", neutral(&std::mem::take(&mut self.answer)))?;
                }
                let mut err = anstream::stderr().lock();
                let word = ending.kind.in_words();
                let reason = if ending.reason.is_empty() {
                    String::new()
                } else {
                    format!(": {}", neutral_line(&ending.reason))
                };
                writeln!(err, "{FAINT}{word}{reason}{FAINT:#}")?;
                writeln!(err, "{FAINT}{}{FAINT:#}", in_words(&spent))
            }
            RunEvent::Asking { .. }
            | RunEvent::TextPart { .. }
            | RunEvent::ThinkingPart { .. }
            | RunEvent::CallPart { .. }
            | RunEvent::Task { .. }
            // The person is asked at the terminal, or elsewhere.
            | RunEvent::Question { .. }
            | RunEvent::Inquiry { .. }
            | RunEvent::Answered { .. }
            | RunEvent::Queued { .. }
            | RunEvent::CallOutput { .. } => Ok(()),
        }
    }

    fn end_thinking(&mut self) -> std::io::Result<()> {
        if self.is_thinking {
            self.end_line()?;
        }
        Ok(())
    }

    fn end_line(&mut self) -> std::io::Result<()> {
        if self.is_in_line {
            writeln!(anstream::stderr().lock())?;
        }
        self.is_in_line = false;
        self.is_thinking = false;
        Ok(())
    }
}

impl RunEvents for Printer {
    fn event(&mut self, event: RunEvent) {
        let Err(error) = self.show(event) else { return };
        self.cancel.cancel();
        // A closed reader, such as `head`, needs no more output.
        if error.kind() != std::io::ErrorKind::BrokenPipe && !self.is_broken {
            self.is_broken = true;
            let _ = writeln!(anstream::stderr(), "the answer can't be written: {error}");
        }
    }
}

/// Returns the error of a failed call, shortened and indented.
fn indented_error(text: &str) -> String {
    let whole = error_for_person(text);
    let shown = cut(&whole, MAX_FAILURE);
    let more = if shown.len() < whole.len() { " …" } else { "" };
    let indented = neutral(shown).trim_end().replace('\n', "\n    ");
    format!("{indented}{more}")
}

/// Prints the first lines of a result, or the diff in it.
fn print_result(text: &str, filtered: Option<&FilterSummary>) -> std::io::Result<()> {
    let text = neutral(text);
    let is_diff = text.contains("\n@@ ");
    let most = if is_diff { MAX_DIFF_LINES } else { MAX_RESULT_LINES };
    let mut err = anstream::stderr().lock();
    for line in text.lines().take(most) {
        let style = if is_diff { diff_style(line) } else { FAINT };
        let shown = cut(line, MAX_RESULT_LINE);
        let more = if shown.len() < line.len() { " …" } else { "" };
        writeln!(err, "  {FAINT}│{FAINT:#} {style}{shown}{more}{style:#}")?;
    }

    let left_out = text.lines().count().saturating_sub(most);
    if left_out > 0 {
        writeln!(err, "  {FAINT}│ … {}{FAINT:#}", counted(left_out, "more line"))?;
    }
    if let Some(filtered) = filtered {
        let [before, after] = filtered.lines;
        writeln!(err, "  {FAINT}│ filtered: {before} → {after} lines{FAINT:#}")?;
    }
    Ok(())
}

/// Returns the look of a line of a diff.
fn diff_style(line: &str) -> Style {
    match line.as_bytes().first() {
        Some(b'+') => ADDED,
        Some(b'-') => REMOVED,
        _ => FAINT,
    }
}

/// Formats the arguments of a call on one line. A single string argument has no name.
fn arguments_line(arguments: &Value) -> String {
    let text = arguments_text(arguments);
    let line = neutral_line(cut(&text, MAX_LINE));
    if line.len() < text.len() { format!("{line} …") } else { line }
}

fn arguments_text(arguments: &Value) -> String {
    let Some(fields) = arguments.as_object() else { return arguments.to_string() };
    if fields.len() == 1
        && let Some(Value::String(value)) = fields.values().next()
    {
        return value.clone();
    }
    let mut texts = Vec::new();
    for (name, value) in fields {
        let value = value.to_string();
        let shown = cut(&value, MAX_ARGUMENT);
        let more = if shown.len() < value.len() { "…" } else { "" };
        texts.push(format!("{name}={shown}{more}"));
    }
    texts.join(" ")
}

/// Formats the turns, tokens and cost on one line.
pub(crate) fn in_words(spent: &Spent) -> String {
    let read = spent.tokens().saturating_sub(spent.output);
    let cached = match spent.cache_read {
        0 => String::new(),
        tokens => format!(" ({tokens} from the cache)"),
    };
    let cost = if spent.cost > 0.0 { format!(", cost {:.4}", spent.cost) } else { String::new() };
    let turns = counted(spent.turns, "answer");
    format!("{turns}, {read} tokens read{cached}, {} written{cost}", spent.output)
}
