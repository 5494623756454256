//! A call in the transcript of the screen: one line, with its output and its result below.

use ratatui::text::Line;
use serde_json::Value;
use toolhold_agent::QuestionAnswer;
use toolhold_core::FilterSummary;
use toolhold_core::text::{counted, cut, neutral, neutral_line};

use crate::layout::{Breaks, wrap};
use crate::theme::{Role, Theme};

/// Bytes of the arguments, on the call's line.
const MAX_ARGUMENTS: usize = 400;

/// Bytes of live output that are kept: the last ones.
const MAX_OUTPUT: usize = 4096;

/// Bytes of a result, a failure or a diff that are kept.
const MAX_RESULT: usize = 8192;

/// Lines of a part that are shown: short, and at length.
const LINES: [usize; 2] = [4, 60];

/// Lines of a diff that are shown.
const DIFF_LINES: [usize; 2] = [16, 200];

/// A call.
#[derive(Clone, Debug)]
pub(crate) struct CallBlock {
    pub(crate) id: String,
    tool: String,
    arguments: String,
    output: String,
    left_out: u64,
    /// The diff that a person saw before approving the call.
    diff: Option<String>,
    /// The answers to the questions of the call.
    answers: Vec<String>,
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
        let text = match arguments.as_object() {
            Some(fields) => {
                let fields: Vec<String> = fields.iter().map(|it| field(it, fields.len())).collect();
                fields.join(" ")
            }
            None => arguments.to_string(),
        };
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
            state: CallState::Running,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let state = match &self.state {
            CallState::Running => 0,
            CallState::Done { text, .. } | CallState::Failed { text, .. } => text.len(),
        };
        let shown = self.arguments.len() + self.output.len() + state;
        shown + self.diff.as_ref().map_or(0, String::len) + 100
    }

    pub(crate) fn output(&mut self, text: &str, left_out: u64) {
        self.output.push_str(&neutral(text));
        self.left_out += left_out;
        if self.output.len() > 2 * MAX_OUTPUT {
            let from = self.output.ceil_char_boundary(self.output.len() - MAX_OUTPUT);
            self.left_out += from as u64;
            self.output.drain(..from);
        }
    }

    pub(crate) fn asked(&mut self, diff: Option<&str>) {
        self.diff = diff.map(|diff| neutral(cut(diff, MAX_RESULT)).into_owned());
    }

    pub(crate) fn answered(&mut self, answer: QuestionAnswer, by: &str, reason: &str) {
        let word = match answer {
            QuestionAnswer::Once => "approved",
            QuestionAnswer::Session => "approved for the session",
            QuestionAnswer::Always => "approved for good",
            QuestionAnswer::Given => "answered",
            QuestionAnswer::No => "refused",
            QuestionAnswer::Unanswered => "not answered",
        };
        let by = if by.is_empty() { String::new() } else { format!(" ({})", neutral_line(by)) };
        let reason = if reason.is_empty() {
            String::new()
        } else {
            format!(": {}", neutral_line(cut(reason, MAX_ARGUMENTS)))
        };
        self.answers.push(format!("{word}{by}{reason}"));
    }

    pub(crate) fn done(
        &mut self,
        failed: bool,
        category: Option<&str>,
        text: &str,
        filtered: Option<&FilterSummary>,
    ) {
        let shown = neutral(cut(text, MAX_RESULT)).into_owned();
        self.state = if failed {
            CallState::Failed {
                category: category.unwrap_or_default().to_owned(),
                text: why_failed(&shown),
            }
        } else {
            CallState::Done {
                text: shown,
                lines: text.lines().count(),
                filtered: filtered.map(|summary| {
                    let [before, after] = summary.lines;
                    let confidence = summary.confidence.as_str();
                    format!("filtered {before} → {after} lines, {confidence}")
                }),
            }
        };
        // The result has the output, or its end.
        self.output = String::new();
    }

    pub(crate) fn lines(&self, width: usize, theme: Theme, is_long: bool) -> Vec<Line<'static>> {
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
                let filtered = filtered.as_ref().map_or(String::new(), |it| format!(", {it}"));
                let told = format!("  {}{filtered}", counted(*lines, "line"));
                pieces.push((told, theme.style(Role::Faint)));
            }
            CallState::Failed { category, .. } => {
                let told = format!("  failed: {}", category.replace('_', " "));
                pieces.push((told, theme.style(Role::Bad)));
            }
        }
        let first = (mark.to_owned(), theme.style(role));
        let indent = ("  ".to_owned(), theme.style(Role::Plain));
        let mut below =
            CallLines { lines: wrap(&pieces, width, &first, &indent, Breaks::Words), width, theme };
        for answer in &self.answers {
            below.put(answer, Role::Faint, Breaks::Words);
        }
        let at = usize::from(is_long);
        // While the call needs approval, the question shows the diff.
        let has_diff = !self.answers.is_empty() && !matches!(self.state, CallState::Failed { .. });
        if has_diff && let Some(diff) = &self.diff {
            for (line, role) in diff_lines(diff).take(DIFF_LINES[at]) {
                below.put(line, role, Breaks::Anywhere);
            }
        }
        match &self.state {
            CallState::Running => {
                let all: Vec<&str> = self.output.lines().collect();
                let from = all.len().saturating_sub(2 * LINES[0]);
                if self.left_out > 0 || from > 0 {
                    below.put("…", Role::Faint, Breaks::Words);
                }
                for line in &all[from..] {
                    below.put(line, Role::Faint, Breaks::Anywhere);
                }
            }
            CallState::Done { text, .. } if text.contains("\n@@ ") => {
                if self.diff.is_none() {
                    for (line, role) in diff_lines(text).take(DIFF_LINES[at]) {
                        below.put(line, role, Breaks::Anywhere);
                    }
                }
            }
            CallState::Done { text, lines, .. } => {
                // The diff above says more.
                let most = if self.diff.is_some() { 1 } else { LINES[at] };
                for line in text.lines().take(most) {
                    below.put(line, Role::Faint, Breaks::Anywhere);
                }
                if self.diff.is_none()
                    && let Some(more) = lines.checked_sub(LINES[at]).filter(|more| *more > 0)
                {
                    let how = if is_long { "" } else { "; Ctrl-T shows more" };
                    let more = format!("… {}{how}", counted(more, "more line"));
                    below.put(&more, Role::Faint, Breaks::Words);
                }
            }
            CallState::Failed { text, .. } => {
                for line in text.lines().take(3 * LINES[at]) {
                    below.put(line, Role::Plain, Breaks::Words);
                }
            }
        }
        below.lines
    }
}

/// An argument with its name, unless it is the only one.
fn field((name, value): (&String, &Value), of: usize) -> String {
    let text = match value.as_str() {
        Some(text) if of == 1 || !text.contains([' ', '\n', '"']) => text.to_owned(),
        _ => value.to_string(),
    };
    if of == 1 { text } else { format!("{name}={text}") }
}

/// The lines of a call. Further lines go below a bar.
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
}

/// The lines of a diff.
pub(crate) fn diff_lines(diff: &str) -> impl Iterator<Item = (&str, Role)> {
    diff.lines().map(|line| {
        let role = match line.as_bytes().first() {
            Some(b'+') => Role::Added,
            Some(b'-') => Role::Removed,
            Some(b'@') => Role::Faint,
            _ => Role::Plain,
        };
        (line, role)
    })
}

/// The error of a failed call, with its remedy.
fn why_failed(text: &str) -> String {
    let error = text.split_once("error: ").map_or(text, |(_, error)| error);
    let lines = error.lines().take_while(|line| {
        !["suggestion: ", "retryable: "].iter().any(|next| line.starts_with(next))
    });
    lines.collect::<Vec<_>>().join("\n")
}
