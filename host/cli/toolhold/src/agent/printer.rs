//! Prints the events of `toolhold run` and of a chat in lines, as text or as lines of JSON.

use std::io::{IsTerminal, Write};

use serde_json::Value;
use toolhold_agent::{RunEvent, RunEvents, Spent};
use toolhold_core::CancellationToken;
use toolhold_core::text::{counted, cut, neutral, neutral_line};
use toolhold_terminal::shown::error_for_person;
use toolhold_terminal::style::{BAD, FAINT, STRONG, WARNING};

/// Characters of a call's arguments, on its line.
const MAX_LINE: usize = 160;

/// Characters of a failure.
const MAX_FAILURE: usize = 1000;

/// The form of the shown events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Each event as a line of JSON on stdout.
    Json,
    /// The text of answers on stdout while it comes, the rest on stderr.
    Live,
    /// The last answer on stdout, the rest on stderr.
    Last,
}

/// Shows the events of a session. If nobody reads them any more, the session is cancelled.
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
}

impl Printer {
    pub(crate) fn new(json: bool, cancel: CancellationToken) -> Self {
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
        }
    }

    fn show(&mut self, event: RunEvent) -> std::io::Result<()> {
        if self.form == Form::Json {
            let mut out = std::io::stdout().lock();
            serde_json::to_writer(&mut out, &event)?;
            out.write_all(b"\n")?;
            return out.flush();
        }
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
            RunEvent::TextPart { .. }
            | RunEvent::ThinkingPart { .. }
            | RunEvent::CallPart { .. }
            | RunEvent::Task { .. }
            // The person is asked at the terminal, or elsewhere.
            | RunEvent::Question { .. }
            | RunEvent::Inquiry { .. }
            | RunEvent::Answered { .. }
            | RunEvent::Queued { .. }
            | RunEvent::CallOutput { .. }
            | RunEvent::Result { .. } => Ok(()),
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
        // A reader that is gone, such as `head`, needs no more.
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

/// Formats the arguments of a call on one line: a single text without its name.
fn arguments_line(arguments: &Value) -> String {
    let mut text = arguments.to_string();
    if let Some(fields) = arguments.as_object()
        && fields.len() == 1
        && let Some(Value::String(value)) = fields.values().next()
    {
        text.clone_from(value);
    }
    let line = neutral_line(cut(&text, MAX_LINE));
    if line.len() < text.len() { format!("{line} …") } else { line }
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
