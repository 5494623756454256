//! A call in the transcript: its line, its output and its result.

use ratatui::text::Line;
use serde_json::Value;
use toolhold_agent::QuestionAnswer;
use toolhold_core::FilterSummary;
use toolhold_core::text::{counted, cut, neutral, neutral_line};
use toolhold_terminal::shown::{error_for_person, without_marks};

use crate::layout::{Breaks, wrap};
use crate::theme::{Role, Theme};

/// The most bytes of a call's arguments.
const MAX_ARGUMENTS: usize = 400;

/// The most bytes of live output. The start of longer output is dropped.
const MAX_OUTPUT: usize = 4096;

/// The most bytes of a result, a failure or a diff.
const MAX_RESULT: usize = 8192;

/// The most lines that are shown.
struct Limits {
    text: usize,
    diff: usize,
}

const SHORT: Limits = Limits { text: 4, diff: 16 };

const LONG: Limits = Limits { text: 60, diff: 200 };

/// The most lines of live output that are shown.
const MAX_LIVE_LINES: usize = 2 * SHORT.text;

#[derive(Clone, Debug)]
pub(crate) struct CallBlock {
    pub(crate) id: String,
    tool: String,
    arguments: String,
    output: String,
    left_out: u64,
    /// The diff in the question about this call.
    diff: Option<String>,
    /// Lines about the person's answers to questions about this call.
    answers: Vec<String>,
    is_refused: bool,
    state: CallState,
}

#[derive(Clone, Debug)]
enum CallState {
    Running,
    Done { text: String, lines: usize, filtered: Option<String> },
    Failed { category: String, text: String },
}

impl CallBlock {
    pub(crate) fn new(id: String, tool: &str, arguments: &Value) -> Self {
        let text = arguments_text(arguments);
        let line = neutral_line(cut(&text, MAX_ARGUMENTS));
        let more = if text.len() > MAX_ARGUMENTS { " …" } else { "" };
        Self {
            id,
            tool: neutral_line(tool),
            arguments: format!("{line}{more}"),
            output: String::new(),
            left_out: 0,
            diff: None,
            answers: Vec::new(),
            is_refused: false,
            state: CallState::Running,
        }
    }

    /// Returns the approximate size in memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        const OTHER_FIELDS: usize = 100;
        let result = match &self.state {
            CallState::Running => 0,
            CallState::Done { text, .. } | CallState::Failed { text, .. } => text.len(),
        };
        let diff = self.diff.as_ref().map_or(0, String::len);
        self.arguments.len() + self.output.len() + result + diff + OTHER_FIELDS
    }

    /// Adds live output, and keeps only the end of all output. Before `text`, `left_out` bytes were
    /// already dropped.
    pub(crate) fn add_output(&mut self, text: &str, left_out: u64) {
        self.output.push_str(&neutral(text));
        self.left_out += left_out;
        // Cut the output only at twice the length, because this moves the text less often.
        if self.output.len() > 2 * MAX_OUTPUT {
            let start = self.output.ceil_char_boundary(self.output.len() - MAX_OUTPUT);
            self.left_out += start as u64;
            self.output.drain(..start);
        }
    }

    pub(crate) fn set_diff(&mut self, diff: Option<&str>) {
        self.diff = diff.map(|diff| neutral(cut(diff, MAX_RESULT)).into_owned());
    }

    /// Adds a line about an answer to a question.
    pub(crate) fn add_answer(&mut self, answer: QuestionAnswer, by: &str, reason: &str) {
        let outcome = match answer {
            QuestionAnswer::Once => "approved",
            QuestionAnswer::Session => "approved for the session",
            QuestionAnswer::Always => "approved for good",
            QuestionAnswer::Given => "answered",
            QuestionAnswer::No => "refused",
            QuestionAnswer::Unanswered => "not answered",
        };
        if answer == QuestionAnswer::No {
            self.is_refused = true;
        }
        let mut line = outcome.to_owned();
        if !by.is_empty() {
            line += &format!(" ({})", neutral_line(by));
        }
        if !reason.is_empty() {
            line += &format!(": {}", neutral_line(cut(reason, MAX_ARGUMENTS)));
        }
        self.answers.push(line);
    }

    /// Ends the call. `text` is the result, or the error of a failed call, which also has a
    /// `category`. `filtered` describes what a filter removed from the result.
    pub(crate) fn end(
        &mut self,
        failed: bool,
        category: Option<&str>,
        text: &str,
        filtered: Option<&FilterSummary>,
    ) {
        let text = without_marks(text);
        let shown = neutral(cut(&text, MAX_RESULT)).into_owned();
        self.state = if failed {
            let category = category.unwrap_or_default().to_owned();
            CallState::Failed { category, text: error_for_person(&shown) }
        } else {
            let filtered = filtered.map(|summary| {
                let [before, after] = summary.lines;
                let confidence = summary.confidence.as_str();
                format!("filtered {before} → {after} lines, {confidence}")
            });
            CallState::Done { text: shown, lines: text.lines().count(), filtered }
        };
        // The result already contains the end of the output.
        self.output = String::new();
    }

    pub(crate) fn lines(&self, width: usize, theme: Theme, is_long: bool) -> Vec<Line<'static>> {
        let limits = if is_long { &LONG } else { &SHORT };
        let mut lines = CallLines { lines: self.first_lines(width, theme), width, theme };
        for answer in &self.answers {
            lines.put(answer, Role::Faint, Breaks::Words);
        }
        // Before the person answers, the question shows the diff, so don't show it here as well.
        let is_failed = matches!(self.state, CallState::Failed { .. });
        let shows_diff = !self.answers.is_empty() && !is_failed;
        if shows_diff && let Some(diff) = &self.diff {
            lines.put_diff(diff, limits);
        }

        match &self.state {
            CallState::Running => self.put_live_output(&mut lines),
            CallState::Done { text, .. } if text.contains("\n@@ ") => {
                if self.diff.is_none() {
                    lines.put_diff(text, limits);
                }
            }
            // The diff above says more than the result, so only the result's first line is shown.
            CallState::Done { text, .. } if self.diff.is_some() => {
                if let Some(line) = text.lines().next() {
                    lines.put(line, Role::Faint, Breaks::Anywhere);
                }
            }
            CallState::Done { text, lines: count, .. } => {
                for line in text.lines().take(limits.text) {
                    lines.put(line, Role::Faint, Breaks::Anywhere);
                }
                if *count > limits.text {
                    let more = counted(*count - limits.text, "more line");
                    let hint = if is_long { "" } else { "; Ctrl-T shows more" };
                    lines.put(&format!("… {more}{hint}"), Role::Faint, Breaks::Words);
                }
            }
            // The answer above already shows the reason.
            CallState::Failed { .. } if self.is_refused => {}
            CallState::Failed { text, .. } => {
                for line in text.lines().take(3 * limits.text) {
                    lines.put(line, Role::Plain, Breaks::Words);
                }
            }
        }
        lines.lines
    }

    fn first_lines(&self, width: usize, theme: Theme) -> Vec<Line<'static>> {
        let (mark, role) = match &self.state {
            CallState::Running => ("● ", Role::Warning),
            CallState::Done { .. } => ("✓ ", Role::Good),
            CallState::Failed { .. } => ("✗ ", Role::Bad),
        };
        let mut pieces = vec![
            (self.tool.clone(), theme.style(Role::Tool)),
            (format!(" {}", self.arguments), theme.style(Role::Plain)),
        ];
        match &self.state {
            CallState::Running => {}
            CallState::Done { lines, filtered, .. } => {
                let mut summary = format!("  {}", counted(*lines, "line"));
                if let Some(filtered) = filtered {
                    summary += &format!(", {filtered}");
                }
                pieces.push((summary, theme.style(Role::Faint)));
            }
            CallState::Failed { category, .. } => {
                let summary = format!("  failed: {}", category.replace('_', " "));
                pieces.push((summary, theme.style(Role::Bad)));
            }
        }
        let mark = (mark.to_owned(), theme.style(role));
        let indent = ("  ".to_owned(), theme.style(Role::Plain));
        wrap(&pieces, width, &mark, &indent, Breaks::Words)
    }

    fn put_live_output(&self, lines: &mut CallLines) {
        let output: Vec<&str> = self.output.lines().collect();
        let first = output.len().saturating_sub(MAX_LIVE_LINES);
        if self.left_out > 0 || first > 0 {
            lines.put("…", Role::Faint, Breaks::Words);
        }
        for line in &output[first..] {
            lines.put(line, Role::Faint, Breaks::Anywhere);
        }
    }
}

/// Returns arguments on one line. A single argument is shown without its name. Among several
/// arguments, a string with spaces or quotes is shown as JSON.
fn arguments_text(arguments: &Value) -> String {
    let Some(fields) = arguments.as_object() else { return arguments.to_string() };
    let is_single = fields.len() == 1;
    let mut texts = Vec::new();
    for (name, value) in fields {
        let text = match value.as_str() {
            Some(text) if is_single || !text.contains([' ', '\n', '"']) => text.to_owned(),
            _ => value.to_string(),
        };
        if is_single {
            return text;
        }
        texts.push(format!("{name}={text}"));
    }
    texts.join(" ")
}

/// The lines of a call. Each line after the heading starts with a bar.
struct CallLines {
    lines: Vec<Line<'static>>,
    width: usize,
    theme: Theme,
}

impl CallLines {
    fn put(&mut self, text: &str, role: Role, breaks: Breaks) {
        let piece = [(text.to_owned(), self.theme.style(role))];
        let bar = ("  │ ".to_owned(), self.theme.style(Role::Faint));
        self.lines.extend(wrap(&piece, self.width, &bar, &bar, breaks));
    }

    fn put_diff(&mut self, diff: &str, limits: &Limits) {
        for line in diff.lines().take(limits.diff) {
            self.put(line, diff_role(line), Breaks::Anywhere);
        }
    }
}

pub(crate) fn diff_role(line: &str) -> Role {
    match line.as_bytes().first() {
        Some(b'+') => Role::Added,
        Some(b'-') => Role::Removed,
        Some(b'@') => Role::Faint,
        _ => Role::Plain,
    }
}
