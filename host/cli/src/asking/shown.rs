//! A question as a person reads it: all of the action, and nothing in it that steers the terminal.

use std::fmt::Write;

use anstyle::Style;
use berth_host::text::{neutral, neutral_line};
use berth_host::{Access, ActedOn, Always, Attached, Question, SubjectKind};
use serde_json::Value;

use crate::shown::toml;
use crate::style::{BAD, FAINT, GOOD, STRONG, WARNING};

/// Everything that a yes would allow, why it is asked, and what `always` would write.
pub(crate) fn question(question: &Question) -> String {
    let mut text = of_call(question);
    match &question.always {
        Always::Writes(proposal) => block(&mut text, "always writes into your berth.toml", &proposal.text(), |_| Style::new()),
        Always::Unavailable(reason) => field(&mut text, "always", &format!("can't be said: {}", neutral_line(reason))),
    }
    text
}

/// Everything that a yes would allow, and why it is asked.
pub(crate) fn of_call(question: &Question) -> String {
    let mut text = format!("{STRONG}{}{STRONG:#} needs a yes", neutral_line(&question.tool));
    if question.provider != question.tool {
        let _ = write!(text, " {FAINT}({}){FAINT:#}", neutral_line(&question.provider));
    }
    text.push('\n');
    if let Some(caller) = &question.caller {
        field(&mut text, "asked by", &neutral_line(caller));
    }
    for subject in question.subjects.iter().filter(|subject| !is_an_argument(question, subject)) {
        field(&mut text, "acts on", &format!("{} {}", deed(subject), toml(&Value::String(subject.text.clone()))));
    }
    for (name, value) in question.shown_arguments() {
        match value {
            Value::String(lines) if lines.contains('\n') => block(&mut text, &neutral_line(name), lines, |_| Style::new()),
            value => field(&mut text, &neutral_line(name), &toml(value)),
        }
    }
    for (index, part) in question.attachments.iter().enumerate() {
        attachment(&mut text, index, part);
    }
    if let Some(preview) = &question.preview {
        match preview.diff.is_empty() {
            true => field(&mut text, "change", "none: the file holds exactly this already"),
            false => block(&mut text, "change", &preview.diff, |line| match line.as_bytes().first() {
                Some(b'+') => GOOD,
                Some(b'-') => BAD,
                Some(b'@') => FAINT,
                _ => Style::new(),
            }),
        }
    }
    let decision = &question.decision;
    field(&mut text, "why", &format!("{}, {}", neutral_line(&decision.rule), neutral_line(&decision.place)));
    text
}

/// What is done, in a word or two.
pub(crate) fn deed(subject: &ActedOn) -> &'static str {
    match (subject.kind, subject.access) {
        (SubjectKind::Command, _) => "runs",
        (SubjectKind::Url, Access::Read) => "gets",
        (SubjectKind::Url, Access::Write) => "sends to",
        (_, Access::Read) => "reads",
        (_, Access::Write) => "writes",
    }
}

fn is_an_argument(question: &Question, subject: &ActedOn) -> bool {
    question.shown_arguments().any(|(_, value)| value.as_str() == Some(&subject.text))
}

fn attachment(text: &mut String, index: usize, part: &Attached) {
    let media_type = part.media_type.as_deref().unwrap_or("no type");
    let name = format!("attachment {index}");
    field(text, &name, &format!("{}, {} bytes, SHA-256 {}", neutral_line(media_type), part.bytes, neutral_line(&part.sha256)));
    if let Some(content) = &part.text {
        block(text, &name, content, |_| Style::new());
    }
}

fn field(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "  {STRONG}{name}{STRONG:#}: {value}");
}

/// Several lines, each behind a bar, so that none can be taken for one of Berth's own.
fn block(text: &mut String, name: &str, lines: &str, style: impl Fn(&str) -> Style) {
    let _ = writeln!(text, "  {STRONG}{name}{STRONG:#}:");
    for line in lines.split_inclusive('\n') {
        let style = style(line);
        let _ = writeln!(text, "  │ {style}{}{style:#}", marked(line.strip_suffix('\n').unwrap_or(line), style));
    }
}

/// A line whose characters that could steer a terminal, or hide something, are written as what they are.
fn marked(line: &str, around: Style) -> String {
    let mut text = String::new();
    for c in line.chars() {
        let mut buffer = [0; 4];
        let one: &str = c.encode_utf8(&mut buffer);
        if c == '\t' || neutral(one) == one {
            text.push(c);
        } else {
            let _ = write!(text, "{around:#}{WARNING}\\u{{{:x}}}{WARNING:#}{around}", u32::from(c));
        }
    }
    text
}
