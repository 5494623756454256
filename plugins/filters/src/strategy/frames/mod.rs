//! `fold_frames`: folds stack frames of others: of dependencies, runtimes, standard libraries and
//! test runners. The frames of the project stay, and so does everything that isn't a frame.

use std::ops::Range;

use serde::Deserialize;
use toolhold_sdk::filter::Confidence;

use super::{Outcome, Part, Run};
use crate::guard::{self, Level};
use crate::text::{self, indent, is_blank};

mod forms;

/// Parameters of `fold_frames`. It has none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FoldFrames {}

impl FoldFrames {
    #[expect(clippy::unnecessary_wraps, reason = "as the other strategies")]
    pub(super) fn step(&self) -> Result<Box<dyn Run>, String> {
        Ok(Box::new(FrameFolder))
    }
}

/// The number of frames that stay at both ends of a stack in which no frame is the project's: then
/// nobody knows which of them matter.
const WITHOUT_OWN: usize = 3;
/// The number of frames of others from which on they are folded.
const LEAST: usize = 2;

/// A frame of a stack.
struct Frame {
    lines: Range<usize>,
    owner: Owner,
    /// Whether the stack has its innermost frame last, as in Python.
    innermost_last: bool,
}

/// Whose code a frame shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The project's, or unknown.
    Own,
    /// A dependency's, a runtime's or a standard library's.
    Other,
    /// Code that raises failures: the panic of a runtime, an assertion library, a test runner.
    Machinery,
}

struct FrameFolder;

impl Run for FrameFolder {
    fn run(&self, part: &Part<'_>) -> Outcome {
        let keep = folded(part.lines);
        if keep.iter().all(|keep| *keep) {
            Outcome::Unchanged
        } else {
            Outcome::Lines(keep, Confidence::Full)
        }
    }
}

/// A text without the frames of others. `None` if it has none.
pub(super) fn fold_text(text: &str) -> Option<String> {
    let lines = text::lines(text);
    let keep = folded(&lines);
    let folded = keep.contains(&false).then(|| text::assemble(&lines, &keep))?;
    (folded.len() < text.len()).then_some(folded)
}

/// The lines that stay.
fn folded(lines: &[&str]) -> Vec<bool> {
    let mut keep = vec![true; lines.len()];
    let mut at = 0;
    let mut stack: Vec<Frame> = Vec::new();
    while at < lines.len() {
        match forms::frame(lines, at) {
            Some(frame) => {
                at = frame.lines.end;
                stack.push(frame);
            }
            None => {
                // A line that isn't a frame ends the stack.
                fold(&stack, &mut keep);
                stack.clear();
                at += 1;
            }
        }
    }
    fold(&stack, &mut keep);
    // A line that reports a failure stays, even if it has the form of a frame.
    for (line, keep) in lines.iter().zip(&mut keep) {
        *keep |= !*keep && guard::level(line, false) == Level::Error;
    }
    fold_pytest(lines, &mut keep);
    keep
}

/// Leaves out the frames of others in one stack. The one that raised the failure stays.
fn fold(stack: &[Frame], keep: &mut [bool]) {
    let Some(first) = stack.first() else { return };
    let raised = if first.innermost_last { stack.len() - 1 } else { 0 };
    let has_own = stack.iter().any(|frame| frame.owner == Owner::Own);
    let mut at = 0;
    while at < stack.len() {
        let run = (at..stack.len())
            .take_while(|at| {
                let frame = &stack[*at];
                let end = (*at).min(stack.len() - 1 - at);
                let stays = frame.owner == Owner::Own
                    || *at == raised && frame.owner == Owner::Other
                    || !has_own && end < WITHOUT_OWN;
                !stays
            })
            .count();
        if run >= LEAST {
            let lines = stack[at].lines.start..stack[at + run - 1].lines.end;
            keep[lines].fill(false);
        }
        at += run.max(1);
    }
}

/// Folds the frames of others that pytest shows with the source of their functions. The last frame
/// before the error keeps its current line, its errors and its place.
fn fold_pytest(lines: &[&str], keep: &mut [bool]) {
    let mut start = None;
    for (at, line) in lines.iter().enumerate() {
        let begins = line.starts_with("____")
            || line.starts_with("The above exception was")
            || line.starts_with("During handling of the above");
        if begins || is_rule(line) {
            start = Some(at + 1);
            continue;
        }
        let Some(path) = forms::pytest_place(line) else { continue };
        // With the short style, the source follows its place.
        let after = lines[at + 1..].iter().take_while(|line| line.starts_with("    ")).count();
        let Some(start) = start.replace(at + 1 + after) else { continue };
        let source = start..at;
        if forms::python_owner(path) == Owner::Own || !lines[source.clone()].iter().all(is_source) {
            continue;
        }
        let has_error = lines[source.clone()].iter().any(|line| line.starts_with("E "));
        let place = line[path.len()..]
            .trim_start_matches(':')
            .trim_start_matches(|digit: char| digit.is_ascii_digit());
        let is_passed_on =
            matches!(place.trim_start_matches(':').trim(), "") || place.starts_with(": in ");
        if is_passed_on && !has_error {
            keep[source].fill(false);
            keep[at..=at + after].fill(false);
            if start > 0 && is_rule(lines[start - 1]) {
                keep[start - 1] = false;
            }
        } else {
            for within in source {
                keep[within] &= is_marked(lines[within]) || is_blank(lines[within]);
            }
        }
    }
}

fn is_rule(line: &str) -> bool {
    line.starts_with("_ _ _ ")
}

/// Whether pytest marks a line as an error or as the current line.
fn is_marked(line: &str) -> bool {
    line.starts_with("E ") || line.starts_with("> ") || line.trim_end() == "E"
}

/// Whether a line is of the source of a function, as pytest shows it: it is indented, marked, or
/// has the function's arguments.
fn is_source(line: &&str) -> bool {
    is_blank(line)
        || line.starts_with("    ")
        || is_marked(line)
        || line.split_once(" = ").is_some_and(|(name, _)| {
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        })
}

#[cfg(test)]
mod tests;
