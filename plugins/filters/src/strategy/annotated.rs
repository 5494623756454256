//! `strip_annotated`: leaves out `note:` and `help:` of a compiler, and lines that match.

use regex::Regex;
use serde::Deserialize;
use toolhold_sdk::filter::Confidence;

use super::{Outcome, Part, Patterns, Run, compile};
use crate::text::{assemble, is_blank, push_line};

/// Parameters of `strip_annotated`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StripAnnotated {
    #[serde(default)]
    patterns: Vec<String>,
    summary: Option<String>,
    #[serde(default = "thirty")]
    long_output_threshold: usize,
    #[serde(default = "ten")]
    keep_head: usize,
    #[serde(default = "five")]
    keep_tail: usize,
}

fn thirty() -> usize {
    30
}

fn ten() -> usize {
    10
}

fn five() -> usize {
    5
}

impl StripAnnotated {
    pub(super) fn step(&self) -> Result<Box<dyn Run>, String> {
        if self.keep_head.saturating_add(self.keep_tail) > self.long_output_threshold {
            return Err(format!(
                "`keep_head` {} and `keep_tail` {} together are more than `long_output_threshold` {}: lower them, or raise `long_output_threshold`",
                self.keep_head, self.keep_tail, self.long_output_threshold
            ));
        }
        Ok(Box::new(AnnotationStripper {
            noise: Patterns::new("patterns", &self.patterns)?,
            summary: self
                .summary
                .as_deref()
                .map(compile)
                .transpose()
                .map_err(|what| format!("`summary`: {what}"))?,
            threshold: self.long_output_threshold,
            head: self.keep_head,
            tail: self.keep_tail,
        }))
    }
}

struct AnnotationStripper {
    noise: Patterns,
    summary: Option<Regex>,
    threshold: usize,
    head: usize,
    tail: usize,
}

impl AnnotationStripper {
    fn is_noise(&self, line: &str) -> bool {
        let trimmed = line.trim_start_matches([' ', '\t', '=', '|']);
        ["note:", "help:"].iter().any(|label| trimmed.starts_with(label)) || self.noise.fit(line)
    }
}

impl Run for AnnotationStripper {
    fn run(&self, part: &Part<'_>) -> Outcome {
        let mut summary = None;
        let mut keep = Vec::with_capacity(part.lines.len());
        for (at, line) in part.lines.iter().enumerate() {
            if self.summary.as_ref().is_some_and(|expression| expression.is_match(line)) {
                summary = Some(at);
            }
            keep.push(part.is_error(at) || !self.is_noise(line));
        }
        let stays =
            keep.iter().zip(part.lines).filter(|(keep, line)| **keep && !is_blank(line)).count();
        let is_noisy = keep.contains(&false);
        if !is_noisy && part.failed {
            return Outcome::Unknown;
        }
        let is_long = stays > self.threshold;
        if !is_noisy && !is_long {
            return Outcome::Unchanged;
        }
        if is_long {
            self.cut(part, &mut keep, stays);
        }
        let confidence = if is_long { Confidence::Partial } else { Confidence::Full };
        let Some(summary) = summary else { return Outcome::Lines(keep, confidence) };
        let mut out = String::new();
        push_line(&mut out, part.lines[summary].trim());
        // A summary that is an error also stays at its place.
        let mut lines = part.lines.to_vec();
        if !part.is_error(summary) {
            lines.remove(summary);
            keep.remove(summary);
        }
        out.push_str(&assemble(&lines, &keep));
        Outcome::Text(out, confidence)
    }
}

impl AnnotationStripper {
    /// Leaves out the middle of the remaining lines.
    fn cut(&self, part: &Part<'_>, keep: &mut [bool], stays: usize) {
        let mut seen = 0;
        for (at, keep) in keep.iter_mut().enumerate() {
            if *keep && !is_blank(part.lines[at]) {
                *keep = seen < self.head || seen + self.tail >= stays || part.is_notable(at);
                seen += 1;
            }
        }
    }
}
