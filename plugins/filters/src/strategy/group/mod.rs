//! `group_by_rule`: groups the findings of compilers and linters by their rule.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use toolhold_sdk::filter::Confidence;

use super::{Outcome, Run};

mod findings;

use findings::{Finding, Form, Item};

/// Parameters of `group_by_rule`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupByRule {
    /// Whether an output of unknown form stays whole, since it may be findings only.
    #[serde(default)]
    keep_unknown: bool,
}

impl GroupByRule {
    #[expect(clippy::unnecessary_wraps, reason = "as the other strategies")]
    pub(super) fn step(&self) -> Result<Box<dyn Run>, String> {
        Ok(Box::new(RuleGrouper { keeps_unknown: self.keep_unknown }))
    }
}

/// The number of findings up to which they are shown in full.
const FEW: usize = 3;

struct RuleGrouper {
    keeps_unknown: bool,
}

impl Run for RuleGrouper {
    fn run(&self, part: &super::Part<'_>) -> Outcome {
        let mut items = findings::parse(part.lines, &part.levels);
        let many = items.iter().filter(|item| matches!(item, Item::Finding(_))).count();
        if many == 0 {
            return if self.keeps_unknown { Outcome::Unchanged } else { Outcome::Unknown };
        }
        findings::attach_rules(&mut items);
        let mut out = Writer {
            lines: part.lines,
            out: String::new(),
            is_few: many <= FEW,
            marked: sum_marks(part.lines, &items),
            numbers: numbers(&items),
            numbered: 0,
        };
        out.write(&items);
        Outcome::Text(out.out, Confidence::Full)
    }
}

struct Writer<'a> {
    lines: &'a [&'a str],
    out: String,
    is_few: bool,
    /// The number of lines that the marks between findings stand for, until one mark is written.
    marked: usize,
    /// The number of each message of rows that several files have. It is 0 until the message was
    /// written.
    numbers: HashMap<String, usize>,
    /// The greatest of these numbers.
    numbered: usize,
}

/// The number of files from which on a message has a number, so that it is written once.
const MANY_FILES: usize = 3;

/// The messages of rows that many files have, without numbers so far. None, if a message has a text
/// of the form of a number already.
fn numbers(items: &[Item<'_>]) -> HashMap<String, usize> {
    let mut files: HashMap<String, HashSet<usize>> = HashMap::new();
    let rows = items.iter().filter_map(Item::finding).filter(|finding| finding.form == Form::Row);
    for row in rows {
        if row.message.contains(" #") {
            return HashMap::new();
        }
        files.entry(squeezed(row.message)).or_default().insert(row.section);
    }
    files
        .into_iter()
        .filter_map(|(message, files)| (files.len() >= MANY_FILES).then_some((message, 0)))
        .collect()
}

/// A message without the spaces that align its columns. They depend on the other rows of the file.
fn squeezed(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The sum of the marks between findings. Grouping joins the findings that they separated.
fn sum_marks(lines: &[&str], items: &[Item<'_>]) -> usize {
    items.iter().filter_map(|item| item.marks(lines)).sum()
}

impl<'a> Writer<'a> {
    /// Writes each group where its first finding was.
    fn write(&mut self, items: &[Item<'a>]) {
        let groups = findings::groups(items);
        for (at, item) in items.iter().enumerate() {
            match item {
                Item::Lines(_) if item.marks(self.lines).is_some() => self.mark(),
                Item::Lines(range) => self.verbatim(range.clone()),
                Item::Finding(finding) => {
                    if let Some(members) = groups.get(&at) {
                        let group: Vec<&Finding<'a>> =
                            members.iter().filter_map(|at| items[*at].finding()).collect();
                        self.group(finding, &group);
                    }
                }
            }
        }
    }

    /// Writes one mark instead of all marks between findings.
    fn mark(&mut self) {
        if self.marked > 0 {
            crate::text::push_mark(&mut self.out, std::mem::take(&mut self.marked));
            self.out.push('\n');
        }
    }

    fn verbatim(&mut self, range: std::ops::Range<usize>) {
        for at in range {
            let line = self.lines[at];
            // Blank lines separate findings. After grouping, fewer are needed.
            let is_doubled =
                crate::text::is_blank(line) && (self.out.is_empty() || self.out.ends_with("\n\n"));
            if !is_doubled {
                crate::text::push_line(&mut self.out, line);
            }
        }
    }

    /// Writes rows of a file below its name: ` 3:5, 8:2  error  message  rule`. If many files have
    /// the message, its first row gives it a number, and later rows have the number only.
    fn rows(&mut self, first: &Finding<'a>, group: &[&Finding<'a>]) {
        let number = self.numbers.get_mut(&squeezed(first.message));
        if number.is_none() && group.len() == 1 {
            return self.verbatim(first.lines.clone());
        }
        self.out.push_str("  ");
        self.out.push_str(&places(group).join(", "));
        self.out.push_str("  ");
        let Some(number) = number else {
            return crate::text::push_line(&mut self.out, first.message);
        };
        let line = if *number == 0 {
            self.numbered += 1;
            *number = self.numbered;
            format!("{}  #{number}", first.message)
        } else {
            let severity = if first.is_error { "error" } else { "warning" };
            format!("{severity}  #{number}")
        };
        crate::text::push_line(&mut self.out, &line);
    }

    fn group(&mut self, first: &Finding<'a>, group: &[&Finding<'a>]) {
        if first.form == Form::Row {
            return self.rows(first, group);
        }
        if group.len() == 1 && (self.is_few || first.is_error || first.form != Form::Block) {
            return self.verbatim(first.lines.clone());
        }
        let out = &mut self.out;
        out.push_str(first.label);
        out.push_str(first.message);
        if let Some(rule) = first.rule.as_deref().filter(|rule| !first.message.contains(*rule)) {
            out.push_str(&format!(" [{rule}]"));
        }
        match places(group).as_slice() {
            [only] => {
                out.push_str(" --> ");
                crate::text::push_line(out, only);
            }
            places => {
                // All places are in one line, so that the next step keeps them with the message.
                out.push_str(&format!(" ({} places)\n  --> ", places.len()));
                crate::text::push_line(out, &places.join(", "));
            }
        }
        if let Some(help) = first.help {
            out.push_str("  ");
            crate::text::push_line(out, help);
        }
    }
}

/// The places of findings, each once. Some tools report everything twice.
fn places<'a>(group: &[&Finding<'a>]) -> Vec<&'a str> {
    let mut seen = HashSet::new();
    group.iter().map(|finding| finding.place).filter(|place| seen.insert(*place)).collect()
}

#[cfg(test)]
mod tests;
