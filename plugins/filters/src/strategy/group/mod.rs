use std::collections::HashSet;

use berth_sdk::filter::Confidence;
use serde::Deserialize;

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

    fn group(&mut self, first: &Finding<'a>, group: &[&Finding<'a>]) {
        if group.len() == 1 && (self.is_few || first.is_error || first.form != Form::Block) {
            return self.verbatim(first.lines.clone());
        }
        let out = &mut self.out;
        if first.form == Form::Row {
            // The form is ` 3:5, 8:2 error message rule` below the name of the file.
            let places = places(group);
            out.push_str("  ");
            out.push_str(&places.join(", "));
            out.push_str("  ");
            return crate::text::push_line(out, first.message);
        }
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
