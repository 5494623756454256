//! Stops a regular expression that is too slow for a text, or whose search has ended.
//!
//! The time of the regex engine is linear in the text, but also in the size of the pattern. A
//! hostile pattern of 10 MiB needs an hour for a text of 16 MiB, and a call of the engine can't be
//! interrupted. So the engine gets only a few lines per call.
//!
//! A text that can't be divided goes through a trial first: it is matched in small windows, and the
//! clock is checked after each window. A slow pattern is also slow in a window, so the trial takes
//! about as long as the search of the whole text.

use std::cell::Cell;
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use grep_matcher::{ByteSet, LineMatchKind, LineTerminator, Match, Matcher, NoCaptures, NoError};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::Searcher;

use super::budget::{Budget, thread_cpu};

/// Bytes of several lines that the engine gets per call.
const MAX_LINES_BYTES: usize = 16 << 10;

/// Bytes of the longest indivisible text without a trial. Most files are shorter. The slowest
/// possible pattern takes 15 seconds for this text.
const MAX_WITHOUT_TRIAL: usize = 64 << 10;

const WINDOW_BYTES: usize = 4 << 10;

/// CPU time of a trial, besides the time for its text at the slowest allowed speed. A slower
/// pattern is stopped. Ordinary patterns are ten times as fast.
const TRIAL_TIME: Duration = Duration::from_millis(100);
const SLOWEST_BYTES_PER_MICROSECOND: u64 = 16;

#[derive(Debug)]
pub(super) struct CompiledPattern {
    builder: RegexMatcherBuilder,
    regex: String,
    matcher: RegexMatcher,
    /// The matcher for trials, which is compiled at the first use.
    trial: OnceLock<Option<RegexMatcher>>,
}

/// A matcher that can be stopped. Each thread has its own.
pub(super) struct GuardedMatcher<'g> {
    compiled: &'g CompiledPattern,
    /// A clone, so each thread has its own caches.
    matcher: RegexMatcher,
    budget: &'g Budget<'g>,
    /// Whether the engine gets the whole text again for every match, because matches can span
    /// lines. One trial is then enough.
    gets_text_again: bool,
    passed_trial: Cell<bool>,
}

/// The search has ended, or the pattern is too slow for the text.
#[derive(Debug)]
pub(super) struct StopError;

impl fmt::Display for StopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the search has ended, or the pattern is too slow for this file")
    }
}

impl CompiledPattern {
    pub(super) fn new(
        builder: RegexMatcherBuilder,
        regex: &str,
    ) -> Result<Self, grep_regex::Error> {
        let matcher = builder.build(regex)?;
        Ok(Self { builder, regex: regex.to_owned(), matcher, trial: OnceLock::new() })
    }

    /// Returns the matcher for trials. It also matches the empty text. Otherwise, the engine would
    /// skip windows that are shorter than the shortest match, and the trial wouldn't show the speed
    /// of the engine. Returns `None` if the matcher can't be compiled.
    fn trial(&self) -> Option<&RegexMatcher> {
        self.trial.get_or_init(|| self.compile_trial()).as_ref()
    }

    /// Compiles a variant of the pattern that also matches the empty text, for the trial.
    fn compile_trial(&self) -> Option<RegexMatcher> {
        // A pattern with `(?x)` may end in a comment, which would include the parenthesis. A line
        // end closes the comment.
        for end in ["", "\n"] {
            let regex = format!(r"(?:{}{end})|\A\z", self.regex);
            if let Ok(matcher) = self.builder.build(&regex) {
                return Some(matcher);
            }
        }
        None
    }
}

impl<'g> GuardedMatcher<'g> {
    pub(super) fn new(
        compiled: &'g CompiledPattern,
        searcher: &Searcher,
        budget: &'g Budget<'g>,
    ) -> Self {
        let matcher = compiled.matcher.clone();
        let gets_text_again = searcher.multi_line_with_matcher(&matcher);
        Self { compiled, matcher, budget, gets_text_again, passed_trial: Cell::new(false) }
    }

    pub(super) fn begin_file(&self) {
        self.passed_trial.set(false);
    }

    /// Measures the speed of the pattern on a long text. A short text needs no trial. Fails if the
    /// pattern is too slow, or if the search has ended.
    fn run_trial(&self, text: &[u8]) -> Result<(), StopError> {
        if text.len() <= MAX_WITHOUT_TRIAL || self.passed_trial.get() {
            return Ok(());
        }
        let trial = self.compiled.trial().ok_or(StopError)?;
        let longest_time = Duration::from_micros(text.len() as u64 / SLOWEST_BYTES_PER_MICROSECOND);
        let deadline = thread_cpu() + TRIAL_TIME + longest_time;
        for window in text.chunks(WINDOW_BYTES) {
            let _is_match = trial.is_match(window).map_err(from_never)?;
            if !self.budget.check() || thread_cpu() > deadline {
                return Err(StopError);
            }
        }
        // The trial also counts for the next call if the engine gets the same text again.
        self.passed_trial.set(self.gets_text_again);
        Ok(())
    }
}

impl Matcher for GuardedMatcher<'_> {
    type Captures = NoCaptures;
    type Error = StopError;

    fn find_at(&self, text: &[u8], at: usize) -> Result<Option<Match>, StopError> {
        self.run_trial(text)?;
        self.matcher.find_at(text, at).map_err(from_never)
    }

    fn shortest_match_at(&self, text: &[u8], at: usize) -> Result<Option<usize>, StopError> {
        self.run_trial(text)?;
        self.matcher.shortest_match_at(text, at).map_err(from_never)
    }

    /// Finds the first line that matches, or may match. Searches the lines in pieces. The searcher
    /// calls this only if no match spans lines.
    fn find_candidate_line(&self, text: &[u8]) -> Result<Option<LineMatchKind>, StopError> {
        let mut start = 0;
        while start < text.len() {
            let length = lines_up_to(&text[start..], MAX_LINES_BYTES);
            let piece = &text[start..start + length];
            if self.budget.has_ended() {
                return Err(StopError);
            }
            // After a match, the next piece can be one short line, for which reading the clock
            // would take too long.
            let is_long = piece.len() > WINDOW_BYTES;
            if is_long && !self.budget.check() {
                return Err(StopError);
            }
            self.run_trial(piece)?;
            let is_last = start + piece.len() == text.len();
            match self.matcher.find_candidate_line(piece).map_err(from_never)? {
                // An empty match at the end of a piece belongs to the first line of the next piece.
                Some(LineMatchKind::Confirmed(offset) | LineMatchKind::Candidate(offset))
                    if offset == piece.len() && !is_last => {}
                Some(LineMatchKind::Confirmed(offset)) => {
                    return Ok(Some(LineMatchKind::Confirmed(start + offset)));
                }
                Some(LineMatchKind::Candidate(offset)) => {
                    return Ok(Some(LineMatchKind::Candidate(start + offset)));
                }
                None => {}
            }
            start += piece.len();
        }
        Ok(None)
    }

    fn new_captures(&self) -> Result<NoCaptures, StopError> {
        Ok(NoCaptures::new())
    }

    fn non_matching_bytes(&self) -> Option<&ByteSet> {
        self.matcher.non_matching_bytes()
    }

    fn line_terminator(&self) -> Option<LineTerminator> {
        self.matcher.line_terminator()
    }
}

/// Returns the length of the longest prefix of whole lines with at most `max_bytes`, or the length
/// of the first line if it is longer. A line includes its newline.
fn lines_up_to(text: &[u8], max_bytes: usize) -> usize {
    if text.len() <= max_bytes {
        return text.len();
    }
    let (start, rest) = text.split_at(max_bytes);
    if let Some(newline) = start.iter().rposition(|byte| *byte == b'\n') {
        return newline + 1;
    }
    match rest.iter().position(|byte| *byte == b'\n') {
        Some(newline) => max_bytes + newline + 1,
        None => text.len(),
    }
}

fn from_never(_never: NoError) -> StopError {
    StopError
}
