use std::borrow::Cow;

use berth_sdk::filter::Confidence;
use serde::Deserialize;

use super::{Outcome, Part, Patterns, Run};
use crate::text::{assemble, push_line};

/// A line that is longer than this is no text that anyone wrote by hand.
const LONG_LINE: usize = 2000;
/// What of it stays, in bytes: its beginning and its end.
const STAYS: (usize, usize) = (1200, 400);

/// Parameters of `truncate`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Truncate {
    max_lines: usize,
    #[serde(default = "twenty")]
    head: usize,
    #[serde(default = "twenty")]
    tail: usize,
    /// What stays wherever it is.
    #[serde(default)]
    keep: Vec<String>,
}

fn twenty() -> usize {
    20
}

impl Truncate {
    pub(super) fn step(&self) -> Result<Box<dyn Run>, String> {
        let Self { max_lines, head, tail, .. } = *self;
        if max_lines == 0 || head.saturating_add(tail) > max_lines {
            return Err(format!("`head` {head} and `tail` {tail} are more than `max_lines` {max_lines}: lower them or raise it"));
        }
        let keep = if self.keep.is_empty() { None } else { Some(Patterns::new("keep", &self.keep)?) };
        Ok(Box::new(Middle { max_lines, head, tail, keep }))
    }
}

struct Middle {
    max_lines: usize,
    head: usize,
    tail: usize,
    keep: Option<Patterns>,
}

impl Run for Middle {
    fn run(&self, part: &Part<'_>) -> Outcome {
        let many = part.lines.len();
        let shortened: Vec<Cow<'_, str>> = part
            .lines
            .iter()
            .enumerate()
            .map(|(at, line)| if part.is_notable(at) { Cow::Borrowed(*line) } else { shorten(line) })
            .collect();
        let is_shortened = shortened.iter().any(|line| matches!(line, Cow::Owned(_)));
        if many <= self.max_lines && !is_shortened {
            return Outcome::Unchanged;
        }
        let mut keep = if many <= self.max_lines { vec![true; many] } else { part.ends(self.head, self.tail) };
        if let Some(patterns) = &self.keep {
            keep.iter_mut().zip(part.lines).filter(|(keep, _)| !**keep).for_each(|(keep, line)| *keep = patterns.fit(line));
        }
        if !is_shortened {
            return Outcome::Lines(keep, Confidence::Partial);
        }
        let lines: Vec<&str> = shortened.iter().map(AsRef::as_ref).collect();
        Outcome::Text(assemble(&lines, &keep), Confidence::Partial)
    }
}

/// The line without its middle, where it is long.
fn shorten(line: &str) -> Cow<'_, str> {
    if line.len() <= LONG_LINE {
        return Cow::Borrowed(line);
    }
    let head = line.floor_char_boundary(STAYS.0);
    let tail = line.ceil_char_boundary(line.len() - STAYS.1);
    let mut shorter = String::with_capacity(STAYS.0 + STAYS.1 + 40);
    shorter.push_str(&line[..head]);
    shorter.push_str(&format!(" ... ({} bytes left out) ... ", tail - head));
    push_line(&mut shorter, &line[tail..]);
    shorter.pop();
    Cow::Owned(shorter)
}
