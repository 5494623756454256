//! Prints the events of a session as text or as lines of JSON.

use std::io::{IsTerminal, Write};

use anstyle::Style;
use serde_json::Value;
use toolhold_agent::{RunEvent, RunEvents, Spent};
use toolhold_core::text::{counted, cut, grouped, neutral, neutral_line};
use toolhold_core::{CancellationToken, FilterSummary};
use toolhold_terminal::shown::{error_for_person, without_marks};
use toolhold_terminal::style::{ADDED, BAD, FAINT, REMOVED, STRONG, WARNING};

use crate::agent::waiting::WaitingLine;

/// The most bytes of a call's arguments.
const MAX_LINE: usize = 160;

/// The most bytes of one of several arguments.
const MAX_ARGUMENT: usize = 40;

/// The most bytes of a failed call's error and the end of its output.
const MAX_FAILURE: usize = 4096;

const MAX_RESULT_LINES: usize = 8;

const MAX_DIFF_LINES: usize = 40;

/// The start of a hunk in a unified diff.
const DIFF_HUNK: &str = "\n@@ ";

/// The most bytes of a line of a result.
const MAX_RESULT_LINE: usize = 400;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Each event is a line of JSON on stdout.
    Json,
    /// Answers arrive in parts on stdout. All other events are on stderr.
    Live,
    /// The last answer is on stdout. All other events are on stderr.
    LastAnswer,
}

/// Prints the events of a session. Cancels the session if stdout can't be written.
pub(crate) struct Printer {
    form: Form,
    cancel: CancellationToken,
    answer: String,
    is_in_line: bool,
    /// Whether the last printed text is the model's thinking.
    is_thinking: bool,
    /// Whether a write has failed.
    is_broken: bool,
    waiting: WaitingLine,
}

impl Printer {
    /// Makes a printer that cancels `cancel` if stdout can't be written. The waiting line is only
    /// overwritten if `can_redraw` is set.
    pub(crate) fn new(as_json: bool, can_redraw: bool, cancel: CancellationToken) -> Self {
        let form = if as_json {
            Form::Json
        } else if std::io::stdout().is_terminal() {
            Form::Live
        } else {
            Form::LastAnswer
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

    /// Prints an event. Ends the waiting line first, and starts it again if a wait follows.
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

    /// Returns the reason of the wait that starts with `event`, if a wait starts.
    fn waiting_reason(&self, event: &RunEvent) -> Option<String> {
        match event {
            RunEvent::Asking { tokens, .. } => {
                Some(format!("model reads {} tokens", grouped(*tokens)))
            }
            RunEvent::CallPart { tool } => {
                Some(format!("model writes a call of {}", neutral_line(tool)))
            }
            // This form doesn't print the parts of the text, so the person still waits.
            RunEvent::TextPart { .. } if self.form == Form::LastAnswer => {
                Some("model writes its answer".to_owned())
            }
            // The same holds for parts of the thinking if stderr is no terminal.
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
                if self.form == Form::LastAnswer && !self.answer.is_empty() {
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
                writeln!(err, "{FAINT}{}{FAINT:#}", describe_spending(&spent))
            }
            RunEvent::Asking { .. }
            | RunEvent::TextPart { .. }
            | RunEvent::ThinkingPart { .. }
            | RunEvent::CallPart { .. }
            | RunEvent::Task { .. }
            // The approver shows these questions.
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

    /// Ends the line of a text that arrives in parts.
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
        // Nobody can read more output, so the session ends.
        self.cancel.cancel();
        // A reader such as `head` may close the pipe early, which isn't an error.
        if error.kind() != std::io::ErrorKind::BrokenPipe && !self.is_broken {
            self.is_broken = true;
            let _ = writeln!(anstream::stderr(), "the answer can't be written: {error}");
        }
    }
}

fn indented_error(text: &str) -> String {
    let whole = error_for_person(&without_marks(text));
    let shown = cut(&whole, MAX_FAILURE);
    let more = if shown.len() < whole.len() { " …" } else { "" };
    let indented = neutral(shown).trim_end().replace('\n', "\n    ");
    format!("{indented}{more}")
}

/// Prints the start of a call's result, with more lines for a diff. `filtered` has the numbers of
/// lines before and after the output filters.
fn print_result(text: &str, filtered: Option<&FilterSummary>) -> std::io::Result<()> {
    let unmarked = without_marks(text);
    let text = neutral(&unmarked);
    let is_diff = text.contains(DIFF_HUNK);
    let max_lines = if is_diff { MAX_DIFF_LINES } else { MAX_RESULT_LINES };
    let mut err = anstream::stderr().lock();
    for line in text.lines().take(max_lines) {
        let style = if is_diff { diff_style(line) } else { FAINT };
        let shown = cut(line, MAX_RESULT_LINE);
        let more = if shown.len() < line.len() { " …" } else { "" };
        writeln!(err, "  {FAINT}│{FAINT:#} {style}{shown}{more}{style:#}")?;
    }

    let left_out = text.lines().count().saturating_sub(max_lines);
    if left_out > 0 {
        writeln!(err, "  {FAINT}│ … {}{FAINT:#}", counted(left_out, "more line"))?;
    }
    if let Some(filtered) = filtered {
        let [before, after] = filtered.lines;
        writeln!(err, "  {FAINT}│ filtered: {before} → {after} lines{FAINT:#}")?;
    }
    Ok(())
}

fn diff_style(line: &str) -> Style {
    match line.as_bytes().first() {
        Some(b'+') => ADDED,
        Some(b'-') => REMOVED,
        _ => FAINT,
    }
}

fn arguments_line(arguments: &Value) -> String {
    let text = arguments_text(arguments);
    let line = neutral_line(cut(&text, MAX_LINE));
    if line.len() < text.len() { format!("{line} …") } else { line }
}

/// Returns arguments as `NAME=VALUE`, with long values cut. A single string argument is shown whole
/// and without its name.
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

pub(crate) fn describe_spending(spent: &Spent) -> String {
    let read_tokens = spent.tokens().saturating_sub(spent.output);
    let cached = match spent.cache_read {
        0 => String::new(),
        tokens => format!(" ({tokens} from the cache)"),
    };
    let cost = if spent.cost > 0.0 { format!(", cost {:.4}", spent.cost) } else { String::new() };
    let turns = counted(spent.turns, "answer");
    format!("{turns}, {read_tokens} tokens read{cached}, {} written{cost}", spent.output)
}
