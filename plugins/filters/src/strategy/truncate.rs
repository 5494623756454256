//! `truncate`: cuts the middle of a long output, and long lines.

use std::borrow::Cow;
use std::collections::HashMap;

use regex::Regex;
use serde::Deserialize;
use toolhold_sdk::filter::Confidence;

use super::{Outcome, Part, Patterns, Run, compile};
use crate::text::{assemble, is_fold_mark, share};

/// The greatest length of a line, in bytes, that stays whole. Longer lines aren't written by hand.
const LONG_LINE: usize = 2000;
/// The number of bytes at the start and at the end of a long line that stay.
const LONG_LINE_ENDS: (usize, usize) = (1200, 400);

/// Parameters of `truncate`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Truncate {
    max_lines: usize,
    head: Option<usize>,
    tail: Option<usize>,
    /// Lines that match always stay.
    #[serde(default)]
    keep: Vec<String>,
    /// Lines with the same first group form a group, and groups share the lines that stay. An
    /// example is the file of a match, or the folder of a path.
    share_by: Option<String>,
    /// A line that matches starts such a group, as the name of a folder does above its entries.
    /// With `share_by`, it is used only if most lines don't match that.
    section: Option<String>,
}

impl Truncate {
    pub(super) fn step(&self) -> Result<Box<dyn Run>, String> {
        let max_lines = self.max_lines;
        if max_lines == 0 {
            return Err("`max_lines` is 0, so no line would stay: raise it".to_owned());
        }
        let [head, tail] =
            [self.head, self.tail].map(|lines| lines.unwrap_or((max_lines / 2).min(20)));
        if head.saturating_add(tail) > max_lines {
            return Err(format!(
                "`head` {head} and `tail` {tail} together are more than `max_lines` {max_lines}: lower them, or raise `max_lines`"
            ));
        }
        let keep =
            if self.keep.is_empty() { None } else { Some(Patterns::new("keep", &self.keep)?) };
        let key = self
            .share_by
            .as_deref()
            .map(compile)
            .transpose()
            .map_err(|what| format!("`share_by`: {what}"))?;
        if key.as_ref().is_some_and(|key| key.captures_len() < 2) {
            return Err(
                "`share_by` has no group: put the common part of the lines into ( )".to_owned()
            );
        }
        let start = self
            .section
            .as_deref()
            .map(compile)
            .transpose()
            .map_err(|what| format!("`section`: {what}"))?;
        Ok(Box::new(Middle { max_lines, head, tail, keep, key, start }))
    }
}

struct Middle {
    max_lines: usize,
    head: usize,
    tail: usize,
    keep: Option<Patterns>,
    key: Option<Regex>,
    start: Option<Regex>,
}

impl Run for Middle {
    fn run(&self, part: &Part<'_>) -> Outcome {
        let many = part.lines.len();
        let shortened: Vec<Cow<'_, str>> = part
            .lines
            .iter()
            .enumerate()
            .map(
                |(at, line)| if part.is_notable(at) { Cow::Borrowed(*line) } else { shorten(line) },
            )
            .collect();
        let is_shortened = shortened.iter().any(|line| matches!(line, Cow::Owned(_)));
        if many <= self.max_lines && !is_shortened {
            return Outcome::Unchanged;
        }
        let keep = if many <= self.max_lines { vec![true; many] } else { self.choose(part) };
        if !is_shortened {
            return Outcome::Lines(keep, Confidence::Partial);
        }
        let lines: Vec<&str> = shortened.iter().map(AsRef::as_ref).collect();
        Outcome::Text(assemble(&lines, &keep), Confidence::Partial)
    }
}

impl Middle {
    /// Chooses the lines that stay.
    fn choose(&self, part: &Part<'_>) -> Vec<bool> {
        let groups = self.groups(part.lines).filter(|groups| groups.len() > 1);
        let mut keep = match groups {
            Some(groups) => {
                let mut keep: Vec<bool> =
                    (0..part.lines.len()).map(|at| part.is_notable(at)).collect();
                let wanted: Vec<usize> = groups.iter().map(Vec::len).collect();
                for (group, share) in groups.iter().zip(share(self.head + self.tail, &wanted)) {
                    group[..share].iter().for_each(|at| keep[*at] = true);
                }
                // The last lines of a listing sum it up.
                keep.iter_mut().rev().take(2).for_each(|keep| *keep = true);
                keep
            }
            None => part.ends(self.head, self.tail),
        };
        // These lines say what others were.
        keep.iter_mut().zip(part.lines).for_each(|(keep, line)| *keep |= is_fold_mark(line));
        if let Some(patterns) = &self.keep {
            keep.iter_mut()
                .zip(part.lines)
                .filter(|(keep, _)| !**keep)
                .for_each(|(keep, line)| *keep = patterns.fit(line));
        }
        keep
    }
}

impl Middle {
    /// The indices of the lines of each group.
    fn groups(&self, lines: &[&str]) -> Option<Vec<Vec<usize>>> {
        let by_key = self.key.as_ref().map(|key| by_key(lines, key));
        let Some(start) = &self.start else { return by_key.map(|(groups, _)| groups) };
        match by_key {
            Some((groups, fitting)) if fitting * 2 > lines.len() => Some(groups),
            _ => Some(by_start(lines, start)),
        }
    }
}

/// The groups of lines with the same key, and the number of lines with a key. Lines without a key
/// form a group too.
fn by_key(lines: &[&str], key: &Regex) -> (Vec<Vec<usize>>, usize) {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    let mut fitting = 0;
    for (at, line) in lines.iter().enumerate() {
        let name =
            key.captures(line).and_then(|found| found.get(1)).map_or("", |found| found.as_str());
        fitting += usize::from(!name.is_empty());
        let group = *known.entry(name).or_insert(groups.len());
        if group == groups.len() {
            groups.push(Vec::new());
        }
        groups[group].push(at);
    }
    (groups, fitting)
}

/// The groups that start at each line that matches.
fn by_start(lines: &[&str], start: &Regex) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if groups.is_empty() || start.is_match(line) {
            groups.push(Vec::new());
        }
        groups.last_mut().into_iter().for_each(|group| group.push(at));
    }
    groups
}

/// The line, without its middle if it is long.
fn shorten(line: &str) -> Cow<'_, str> {
    if line.len() <= LONG_LINE {
        return Cow::Borrowed(line);
    }
    let head = line.floor_char_boundary(LONG_LINE_ENDS.0);
    let tail = line.ceil_char_boundary(line.len() - LONG_LINE_ENDS.1);
    Cow::Owned(format!(
        "{} ... ({} bytes left out) ... {}",
        &line[..head],
        tail - head,
        &line[tail..]
    ))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::super::testing::{check, steps};
    use super::*;

    #[test]
    fn middle_is_left_out_except_failures() {
        let text = format!(
            "first\n{}src/a.c:3:4: error: no\n{}last\n",
            "some line\n".repeat(40),
            "some line\n".repeat(40)
        );
        let expect = "first\n... (40 lines left out) ...\nsrc/a.c:3:4: error: no\n... (40 lines left out) ...\nlast\n";
        check(
            "{ type = 'truncate', max_lines = 10, head = 1, tail = 1 }",
            false,
            &text,
            expect,
            Confidence::Partial,
        );
        check(
            "{ type = 'truncate', max_lines = 83, head = 1, tail = 1 }",
            false,
            &text,
            "",
            Confidence::Partial,
        );
        let expect = "first\n... (81 lines left out) ...\nlast\n".replace("(81", "(40");
        let text = format!("first\n{}last\n", "some line\n".repeat(40));
        check(
            "{ type = 'truncate', max_lines = 10, head = 1, tail = 1, keep = ['^nothing'] }",
            false,
            &text,
            &expect,
            Confidence::Partial,
        );
    }

    #[test]
    fn groups_share_the_lines_that_stay() {
        let mut text = String::new();
        for (name, hits) in [("src/a.rs", 50), ("src/b.rs", 2), ("src/c.rs", 50)] {
            (0..hits).for_each(|hit| writeln!(text, "{name}:{hit}: found here").unwrap());
        }
        let toml =
            "{ type = 'truncate', max_lines = 20, head = 8, tail = 2, share_by = '^([^:]+):' }";
        let expect = "\
src/a.rs:0: found here
src/a.rs:1: found here
src/a.rs:2: found here
src/a.rs:3: found here
... (46 lines left out) ...
src/b.rs:0: found here
src/b.rs:1: found here
src/c.rs:0: found here
src/c.rs:1: found here
src/c.rs:2: found here
src/c.rs:3: found here
... (44 lines left out) ...
src/c.rs:48: found here
src/c.rs:49: found here
";
        check(toml, false, &text, expect, Confidence::Partial);
        let sections = "a:\nsome entry of it\nsome entry of it\nsome entry of it\nsome entry of it\nb:\nanother some entry of it\nlast\nsum\n";
        let toml = "{ type = 'truncate', max_lines = 5, head = 4, tail = 0, share_by = '^(x)', section = ':$' }";
        let expect = "a:\nsome entry of it\n... (3 lines left out) ...\nb:\nanother some entry of it\nlast\nsum\n";
        check(toml, false, sections, expect, Confidence::Partial);
    }

    #[test]
    fn marks_of_folded_lines_stay() {
        let line = "some line that is there\n";
        let mark = "... (7 more like this: 3..9 ms) ...\n";
        let text = format!("{}{mark}{}", line.repeat(40), line.repeat(40));
        let gap = "... (39 lines left out) ...\n";
        check(
            "{ type = 'truncate', max_lines = 10, head = 1, tail = 1 }",
            false,
            &text,
            &format!("{line}{gap}{mark}{gap}{line}"),
            Confidence::Partial,
        );
    }

    #[test]
    fn long_line_loses_its_middle() {
        let text = format!("{}\n", "é".repeat(2000));
        let expect =
            format!("{} ... (2400 bytes left out) ... {}\n", "é".repeat(600), "é".repeat(200));
        check("{ type = 'truncate', max_lines = 40 }", false, &text, &expect, Confidence::Partial);
        let error = format!("error: {}\n", "x".repeat(5000));
        check("{ type = 'truncate', max_lines = 40 }", false, &error, "", Confidence::Partial);
    }

    #[test]
    fn contradictory_parameters_are_refused() {
        for toml in [
            "{ type = 'truncate', max_lines = 30, head = 20, tail = 20 }",
            "{ type = 'truncate', max_lines = 0, head = 0, tail = 0 }",
            "{ type = 'truncate', max_lines = 40, share_by = 'no group' }",
            "{ type = 'truncate', max_lines = 40, keep = ['('] }",
        ] {
            assert!(steps(toml).is_err(), "{toml}");
        }
    }
}
