//! Parses the findings of compilers and linters.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use crate::guard::Level;
use crate::text::{indent, is_blank, parse_mark};

/// A piece of the output.
pub(super) enum Item<'a> {
    /// Lines that stay as they are.
    Lines(Range<usize>),
    Finding(Finding<'a>),
}

impl<'a> Item<'a> {
    /// The number of lines that the marks here stand for. `None` if there are other lines.
    pub(super) fn marks(&self, lines: &[&str]) -> Option<usize> {
        let Self::Lines(range) = self else { return None };
        let mut sum = 0;
        for line in lines[range.clone()].iter().filter(|line| !is_blank(line)) {
            sum = usize::saturating_add(sum, parse_mark(line)?);
        }
        (sum > 0).then_some(sum)
    }

    pub(super) fn finding(&self) -> Option<&Finding<'a>> {
        match self {
            Self::Finding(finding) => Some(finding),
            Self::Lines(_) => None,
        }
    }
}

/// A message of a compiler or linter about one place.
pub(super) struct Finding<'a> {
    pub(super) lines: Range<usize>,
    pub(super) form: Form,
    pub(super) place: &'a str,
    /// The text before the place.
    pub(super) label: &'a str,
    /// The message, with its severity and the code of the rule.
    pub(super) message: &'a str,
    pub(super) rule: Option<Cow<'a, str>>,
    /// The advice, in one line.
    pub(super) help: Option<&'a str>,
    pub(super) is_error: bool,
    /// The section: findings are grouped within it. Rows belong to the file above them.
    pub(super) section: usize,
}

/// The form of a finding in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    /// A message, then ` --> place` and a drawing of the source, as in rustc and ruff.
    Block,
    /// `place: message`, perhaps with the source below it, as in most compilers and linters.
    Line,
    /// ` 3:5 error message rule` below the name of the file, as in ESLint.
    Row,
}

/// The pieces of an output, in order.
pub(super) fn parse<'a>(lines: &'a [&'a str], levels: &[Level]) -> Vec<Item<'a>> {
    let mut items = Vec::new();
    let mut at = 0;
    let mut plain = 0;
    let mut section = 0;
    while at < lines.len() {
        if !lines[at].starts_with([' ', '\t']) {
            section = at;
        }
        let Some(finding) = block(lines, levels, at)
            .or_else(|| row(lines, at, section))
            .or_else(|| line(lines, levels, at))
        else {
            at += 1;
            continue;
        };
        if plain < at {
            items.push(Item::Lines(plain..at));
        }
        at = finding.lines.end;
        plain = at;
        items.push(Item::Finding(finding));
    }
    if plain < lines.len() {
        items.push(Item::Lines(plain..lines.len()));
    }
    items
}

/// Parses a message with its place in the next line.
fn block<'a>(lines: &'a [&'a str], levels: &[Level], at: usize) -> Option<Finding<'a>> {
    let message = lines[at];
    let place = lines.get(at + 1)?.trim_start().strip_prefix("--> ")?;
    if message.is_empty() || message.starts_with([' ', '\t']) {
        return None;
    }
    let mut end = at + 2;
    let mut rule = None;
    let mut help = None;
    while end < lines.len() && is_of_block(lines[end], levels[end]) {
        let said = lines[end].trim_start_matches([' ', '=', '|']);
        rule = rule.or_else(|| rule_in(said));
        if help.is_none()
            && said.starts_with("help: ")
            && !said.contains("for further information")
            && !said.contains("to override `")
        {
            help = Some(said);
        }
        if help.is_none()
            && let Some(at) = lines[end].find("^ help: ")
        {
            help = Some(&lines[end][at + 2..]);
        }
        end += 1;
    }
    // An error of the compiler itself has no rule, and its drawing is needed.
    let is_error = message.starts_with("error");
    if is_error && rule.is_none() && message.starts_with("error[") {
        return None;
    }
    // The blank line after it belongs to it.
    if lines.get(end).is_some_and(|line| is_blank(line)) {
        end += 1;
    }
    Some(Finding {
        lines: at..end,
        form: Form::Block,
        place: place.trim_end(),
        label: "",
        message,
        rule,
        help,
        is_error,
        section: 0,
    })
}

/// Whether a line belongs to the block above it.
fn is_of_block(line: &str, level: Level) -> bool {
    let trimmed = line.trim_start();
    let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
    let drawn = match trimmed.as_bytes().get(digits) {
        Some(b'|') => true,
        Some(b' ') if digits > 0 => matches!(
            trimmed[digits..].trim_start().as_bytes().first(),
            Some(b'|' | b'+' | b'-' | b'~')
        ),
        _ => false,
    };
    let said = ["= ", "-->", "...", ":::", "note: ", "help: "]
        .iter()
        .any(|start| trimmed.starts_with(start));
    drawn
        || said && level < Level::Error
        || said && indent(line) > 0
        || level < Level::Error && !is_blank(line) && indent(line) > 0
}

/// The name of the rule in `#[warn(unused_mut)]`, in `-D clippy::ptr-arg`, or in the address of
/// clippy's page.
fn rule_in(said: &str) -> Option<Cow<'_, str>> {
    for attribute in ["`#[warn(", "`#[deny(", "`#[forbid("] {
        if let Some((_, rest)) = said.split_once(attribute) {
            return rest.split_once(')').map(|(rule, _)| Cow::Borrowed(rule));
        }
    }
    if let Some((_, rest)) = said.split_once("/index.html#") {
        return Some(Cow::Owned(format!("clippy::{}", rest.trim_end())));
    }
    let (_, rest) = said.split_once("note: `-D ").or_else(|| said.split_once("note: `-W "))?;
    rest.split_once('`').map(|(rule, _)| Cow::Owned(rule.replace('-', "_")))
}

/// Parses `place: message`.
fn line<'a>(lines: &'a [&'a str], levels: &[Level], at: usize) -> Option<Finding<'a>> {
    // gcc names the function first.
    let leads = usize::from(
        lines[at].ends_with(':') && lines[at].contains(": In ") && at + 1 < lines.len(),
    );
    let start = at;
    let at = at + leads;
    let (label, text) = label(lines[at]);
    let (place, message) = place_and_message(text)?;
    let is_error =
        label == "[ERROR] " || message.starts_with("error") || message.starts_with("fatal");
    let mut end = at + 1;
    while end < lines.len() && levels[end] < Level::Error && is_drawing(lines[end]) {
        end += 1;
    }
    // An error with a drawing stays unchanged.
    if is_error && end > at + 1 {
        return None;
    }
    // The line with the function stays above its error, and doesn't start a group.
    if leads > 0 && is_error {
        return None;
    }
    Some(Finding {
        lines: start..end,
        form: Form::Line,
        place,
        label,
        message,
        rule: None,
        help: None,
        is_error,
        section: 0,
    })
}

/// Splits off the severity that Maven prints first.
fn label(line: &str) -> (&str, &str) {
    let length = ["[WARNING] ", "[ERROR] "]
        .iter()
        .find(|label| line.starts_with(**label))
        .map_or(0, |label| label.len());
    line.split_at(length)
}

/// Whether a line is part of a drawing of the source: ` 12 | source`, ` | ^~~~`, or clang's two
/// lines without a bar.
fn is_drawing(line: &str) -> bool {
    let trimmed = line.trim_start();
    if trimmed.len() == line.len() {
        return false;
    }
    let rest = trimmed.trim_start_matches(|first: char| first.is_ascii_digit()).trim_start();
    rest.starts_with('|') || trimmed.starts_with(['^', '~'])
}

/// Splits `src/a.c:3:4: warning: unused`, `src/a.ts(3,4): error TS2304: …`, `a.py:3: note`.
fn place_and_message(line: &str) -> Option<(&str, &str)> {
    let bytes = line.as_bytes();
    // A path here has no white space, but a dot or a slash.
    let length = bytes.iter().take_while(|byte| !byte.is_ascii_whitespace()).count();
    let head = &line[..length];
    let path_end = head.find([':', '(']).filter(|end| *end > 0)?;
    // A Windows path, as in `C:\a.cs(3,4)`.
    let path_end = if path_end == 1 && bytes.get(2) == Some(&b'\\') {
        2 + head[2..].find([':', '('])?
    } else {
        path_end
    };
    let path = &head[..path_end];
    if !path.contains(['.', '/']) || path.contains("//") || path.starts_with(['-', '[', '<', '"']) {
        return None;
    }
    let rest = &line[path_end..];
    let mut place = path_end;
    let message = if let Some(inside) = rest.strip_prefix('(') {
        let close = inside.find(')')?;
        if count_digits(inside) == 0
            || !inside[..close].bytes().all(|byte| byte.is_ascii_digit() || byte == b',')
        {
            return None;
        }
        place += close + 2;
        line[place..].strip_prefix(": ").or_else(|| line[place..].strip_prefix(" : "))?
    } else if let Some(inside) = rest.strip_prefix(":[") {
        // Maven's form is `A.java:[4,20] message`.
        let close = inside.find("] ")?;
        if !inside[..close].bytes().all(|byte| byte.is_ascii_digit() || byte == b',') {
            return None;
        }
        place += 2 + close + 1;
        line[place..].strip_prefix(' ')?
    } else {
        let mut numbers = 0;
        while let Some(number) =
            line[place..].strip_prefix(':').map(count_digits).filter(|digits| *digits > 0)
        {
            place += 1 + number;
            numbers += 1;
        }
        if !(1..=3).contains(&numbers) {
            return None;
        }
        let message = &line[place..];
        // tsc --pretty and some others use ` - `.
        message
            .strip_prefix(": ")
            .or_else(|| message.strip_prefix(" - "))
            .or_else(|| message.strip_prefix(' '))
            .filter(|message| !message.is_empty())?
    };
    (!message.trim().is_empty()).then_some((&line[..place], message))
}

/// The number of digits at the start of a text.
fn count_digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// Parses ` 3:5 error message rule`.
fn row<'a>(lines: &'a [&'a str], at: usize, section: usize) -> Option<Finding<'a>> {
    let line = lines[at];
    if !line.starts_with("  ") {
        return None;
    }
    let trimmed = line.trim_start();
    let length = trimmed.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b':').count();
    let place = &trimmed[..length];
    let message = trimmed[length..].strip_prefix("  ")?.trim_start();
    let fits = place.split(':').count() == 2 && !place.starts_with(':') && !place.ends_with(':');
    let is_error = message.starts_with("error ");
    (fits && (is_error || message.starts_with("warning "))).then_some(Finding {
        lines: at..at + 1,
        form: Form::Row,
        place,
        label: "",
        message,
        rule: None,
        help: None,
        is_error,
        section,
    })
}

/// Gives each finding without a rule the rule of a finding whose message differs only in names.
/// Clippy names a rule only the first time.
pub(super) fn attach_rules(items: &mut [Item<'_>]) {
    let mut known: HashMap<String, String> = HashMap::new();
    for finding in items.iter().filter_map(Item::finding) {
        if let Some(rule) = &finding.rule {
            known.entry(template(finding.message)).or_insert_with(|| rule.clone().into_owned());
        }
    }
    for item in items {
        if let Item::Finding(finding) = item
            && finding.rule.is_none()
            && finding.form == Form::Block
        {
            finding.rule =
                known.get(&template(finding.message)).map(|rule| Cow::Owned(rule.clone()));
        }
    }
}

/// A message without the texts between backticks.
fn template(message: &str) -> String {
    message.split('`').step_by(2).collect()
}

/// The findings of each message. The key is the index of the first of them among the items.
pub(super) fn groups(items: &[Item<'_>]) -> HashMap<usize, Vec<usize>> {
    let mut first: HashMap<(Form, usize, &str, &str), usize> = HashMap::new();
    let mut groups: HashMap<usize, Vec<usize>> = HashMap::new();
    for (at, item) in items.iter().enumerate() {
        let Some(finding) = item.finding() else { continue };
        // An error without a rule is a group of its own.
        let stands_alone =
            finding.form == Form::Block && finding.is_error && finding.rule.is_none();
        let leader = if stands_alone {
            at
        } else {
            *first
                .entry((finding.form, finding.section, finding.label, finding.message))
                .or_insert(at)
        };
        groups.entry(leader).or_default().push(at);
    }
    groups
}
