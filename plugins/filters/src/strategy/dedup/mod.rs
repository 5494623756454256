//! `dedup`: folds lines and blocks of lines that repeat each other.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use regex::{NoExpand, Regex};
use serde::Deserialize;
use toolhold_sdk::filter::Confidence;

use super::{Outcome, Part, Run, compile};
use crate::guard::Level;
use crate::text::{is_blank, parse_mark, push_line};

mod fold;
mod template;

use fold::{Pieces, fold};
pub(super) use template::is_row;
use template::{Slot, is_entry, split};

/// The greatest number of lines of a block whose repetition is found.
const LONGEST_BLOCK: usize = 6;
/// The number of entries before a failure that stay, since they may say what led to it.
const BEFORE_FAILURE: usize = 3;

/// The shortest pause of a log that a reader has to know, in seconds.
const MIN_PAUSE: u32 = 30;
/// The number of usual pauses that are a long one.
const USUAL_PAUSES: u32 = 20;
/// The greatest number of pauses that are shown.
const MOST_PAUSES: usize = 20;

/// Parameters of `dedup`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dedup {
    /// Further parts of lines that are ignored in comparisons.
    #[serde(default)]
    normalize: Vec<Normalize>,
    /// Whether only lines that are the same in every byte are folded.
    #[serde(default)]
    exact: bool,
}

/// A part of a line, and its placeholder.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Normalize {
    pattern: String,
    replacement: String,
}

impl Dedup {
    pub(super) fn step(&self) -> Result<Box<dyn Run>, String> {
        let custom = self.normalize.iter().map(|Normalize { pattern, replacement }| {
            if replacement.contains('$') {
                return Err(format!("`replacement`: {replacement:?} has a `$`, but groups are not supported: remove the `$`"));
            }
            Ok((compile(pattern).map_err(|what| format!("`pattern`: {what}"))?, replacement.clone()))
        });
        let custom = custom.collect::<Result<_, _>>()?;
        Ok(Box::new(Deduplicator { custom, exact: self.exact }))
    }
}

struct Deduplicator {
    custom: Vec<(Regex, String)>,
    exact: bool,
}

/// A line as it is compared.
struct Compared<'a> {
    /// The line, after the operator's patterns.
    text: Cow<'a, str>,
    slots: Vec<Slot>,
    /// The same for lines that differ only in their slots.
    hash: u64,
    is_entry: bool,
}

impl Run for Deduplicator {
    fn run(&self, part: &Part<'_>) -> Outcome {
        if part.lines.len() < 3 {
            return Outcome::Unchanged;
        }
        let compared = self.compare(part);
        let mut output = Output {
            compared: &compared,
            keep: vec![true; part.lines.len()],
            marks: HashMap::new(),
        };
        let grouped = output.fold_entries(part);
        output.fold_repetitions(part, &grouped);
        if output.marks.is_empty() {
            return Outcome::Unchanged;
        }
        Outcome::Text(output.write(part.lines), Confidence::Full)
    }
}

impl Deduplicator {
    fn compare<'a>(&self, part: &Part<'a>) -> Vec<Compared<'a>> {
        // The keys are random, so that a program can't print different lines that count as equal.
        let hasher = RandomState::new();
        let mut same = Vec::new();
        part.lines
            .iter()
            .zip(&part.levels)
            .map(|(line, level)| {
                let text = self.replace(line, *level);
                if self.exact {
                    let hash = hasher.hash_one(line.as_bytes());
                    return Compared { hash, is_entry: false, slots: Vec::new(), text };
                }
                let slots = split(&text, *level, &mut same);
                let is_entry = *level == Level::Nothing && is_entry(&text, &slots);
                Compared { hash: hasher.hash_one(&same), is_entry, slots, text }
            })
            .collect()
    }

    /// The line without the texts that the operator's patterns ignore. No pattern makes two
    /// failures the same.
    fn replace<'a>(&self, line: &'a str, level: Level) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(line);
        if level == Level::Nothing {
            for (pattern, replacement) in &self.custom {
                text = pattern.replace_all(&text, NoExpand(replacement)).into_owned().into();
            }
        }
        text
    }
}

/// The lines that stay, and the marks after them.
struct Output<'a> {
    compared: &'a [Compared<'a>],
    keep: Vec<bool>,
    marks: HashMap<usize, String>,
}

impl Output<'_> {
    /// Folds similar entries of a log, wherever they are. Returns the lines that belong to them.
    fn fold_entries(&mut self, part: &Part<'_>) -> Vec<bool> {
        let many = part.lines.len();
        let mut forced = vec![false; many];
        self.after_pauses(&mut forced);
        let mut groups: HashMap<u64, Vec<usize>> = HashMap::new();
        let mut order = Vec::new();
        for at in 0..many {
            if part.levels[at] == Level::Error {
                forced[at.saturating_sub(BEFORE_FAILURE)..at].fill(true);
            }
            // Lines that continue an entry need it.
            let continues = part.lines.get(at + 1).is_some_and(|line| {
                part.levels[at + 1] == Level::Nothing
                    && !is_blank(line)
                    && !self.compared[at + 1].is_entry
            });
            if self.compared[at].is_entry && !continues {
                let group = groups.entry(self.compared[at].hash).or_default();
                if group.is_empty() {
                    order.push(self.compared[at].hash);
                }
                group.push(at);
            }
        }
        let mut grouped = vec![false; many];
        for group in order.iter().filter_map(|hash| groups.get(hash)) {
            if group.len() >= 3 && self.fold(part, group, 1, &forced) {
                group.iter().for_each(|at| grouped[*at] = true);
            }
        }
        grouped
    }

    /// Keeps entries before which the log paused for much longer than usual.
    fn after_pauses(&self, forced: &mut [bool]) {
        let times: Vec<(usize, u32)> = (0..self.compared.len())
            .filter(|at| self.compared[*at].is_entry)
            .filter_map(|at| Some((at, seconds(&self.compared[at])?)))
            .collect();
        let mut pauses: Vec<(u32, usize)> = times
            .windows(2)
            // A clock that goes back is one of another day, or of another program.
            .map(|two| (two[1].1.saturating_sub(two[0].1), two[1].0))
            .collect();
        pauses.sort_unstable();
        let Some((usual, _)) = pauses.get(pauses.len() / 2).copied() else { return };
        let least = MIN_PAUSE.max(usual.saturating_mul(USUAL_PAUSES));
        let long = pauses.iter().rev().take_while(|(pause, _)| *pause >= least);
        long.take(MOST_PAUSES).for_each(|(_, at)| forced[*at] = true);
    }

    /// Folds similar lines, or blocks of lines, that follow each other.
    fn fold_repetitions(&mut self, part: &Part<'_>, grouped: &[bool]) {
        let forced = vec![false; part.lines.len()];
        let mut at = 0;
        while at < part.lines.len() {
            let end = at + grouped[at..].iter().take_while(|grouped| !**grouped).count();
            if end == at {
                at += 1;
                continue;
            }
            while at < end {
                let (length, times) = repetition(&self.compared[at..end]);
                let is_empty = part.lines[at..at + length].iter().all(|line| is_blank(line));
                if times >= 2 && !is_empty {
                    let starts: Vec<usize> = (0..times).map(|piece| at + piece * length).collect();
                    self.fold(part, &starts, length, &forced);
                }
                at += length * times;
            }
        }
    }

    /// Folds the pieces of `length` lines that start there. False if all stay.
    fn fold(&mut self, part: &Part<'_>, starts: &[usize], length: usize, forced: &[bool]) -> bool {
        let pieces = Pieces {
            lines: starts
                .iter()
                .map(|at| &self.compared[*at..at + length])
                .map(|block| block.iter().map(|line| line.text.as_ref()).collect())
                .collect(),
            slots: starts
                .iter()
                .map(|at| &self.compared[*at..at + length])
                .map(|block| block.iter().map(|line| line.slots.as_slice()).collect())
                .collect(),
            stays: starts
                .iter()
                .map(|at| forced[*at] || parse_mark(part.lines[*at]).is_some())
                .collect(),
            are_entries: starts.iter().any(|at| self.compared[*at].is_entry),
        };
        let Some(folded) = fold(pieces) else { return false };
        for (start, _) in starts.iter().zip(folded.stays).filter(|(_, stays)| !*stays) {
            self.keep[*start..start + length].fill(false);
        }
        self.marks.insert(starts[0] + length - 1, folded.mark);
        true
    }

    fn write(&self, lines: &[&str]) -> String {
        let mut out = String::new();
        for (at, line) in lines.iter().enumerate() {
            if self.keep[at] {
                push_line(&mut out, line);
            }
            if let Some(mark) = self.marks.get(&at) {
                push_line(&mut out, mark);
            }
        }
        out
    }
}

/// The time of day of an entry, in seconds.
fn seconds(line: &Compared<'_>) -> Option<u32> {
    let slot = line.slots.iter().find(|slot| slot.is_time)?;
    let time = line.text.get(slot.place.clone())?.as_bytes();
    time.windows(8).find_map(|clock| {
        let is_clock = clock[2] == b':' && clock[5] == b':';
        let hours = two_digits(&clock[..2])?;
        let minutes = two_digits(&clock[3..5])?;
        let seconds = two_digits(&clock[6..])?;
        is_clock.then_some(hours * 3600 + minutes * 60 + seconds)
    })
}

fn two_digits(digits: &[u8]) -> Option<u32> {
    match digits {
        [a @ b'0'..=b'9', b @ b'0'..=b'9'] => Some(u32::from(a - b'0') * 10 + u32::from(b - b'0')),
        _ => None,
    }
}

/// The length of the repeated block at the start of `lines`, and the number of repetitions. It is
/// the shortest block that saves a line.
fn repetition(lines: &[Compared<'_>]) -> (usize, usize) {
    for length in 1..=LONGEST_BLOCK.min(lines.len() / 2) {
        if lines[length].hash != lines[0].hash {
            continue;
        }
        let times = lines
            .chunks_exact(length)
            .take_while(|chunk| {
                chunk.iter().zip(lines).all(|(line, first)| line.hash == first.hash)
            })
            .count();
        // The mark needs a line too.
        if times >= 2 && (length == 1 || length * (times - 1) > 2) {
            return (length, times);
        }
    }
    (1, 1)
}

#[cfg(test)]
mod tests;
