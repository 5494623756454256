//! Stops a regular expression that is too slow for a text, or whose search has ended.
//!
//! The time of the regex engine is linear in the text, but proportional to the size of the pattern.
//! A hostile pattern of 10 MiB needs an hour for a text of 16 MiB, and a call into the engine can't
//! be interrupted. So the engine gets only a few lines per call.
//!
//! A text that can't be divided goes through a trial first: it is matched window by window, and the
//! clock is checked after each window. The trial takes about as long as the search of the whole
//! text, because a slow pattern is also slow within a window.

use std::cell::Cell;
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use grep_matcher::{ByteSet, LineMatchKind, LineTerminator, Match, Matcher, NoCaptures, NoError};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::Searcher;

use super::budget::{Budget, thread_cpu};

/// The most bytes of several lines that the engine gets per call.
const STRIDE: usize = 16 << 10;

/// The longest indivisible text that needs no trial. Most files are shorter. The slowest pattern
/// that compiles takes 15 seconds for a text of this size.
const MAX_WITHOUT_TRIAL: usize = 64 << 10;

/// The size of the windows of a trial.
const WINDOW: usize = 4 << 10;

/// The base CPU time of a trial. The time for the text at the slowest speed is added. Ordinary
/// patterns are ten times as fast.
const TRIAL_TIME: Duration = Duration::from_millis(100);
const SLOWEST_BYTES_PER_MICROSECOND: u64 = 16;

/// A compiled pattern, shared by the threads of a search.
#[derive(Debug)]
pub(super) struct CompiledPattern {
    builder: RegexMatcherBuilder,
    regex: String,
    matcher: RegexMatcher,
    /// The result of [`Self::trial`]. The first use compiles it.
    trial: OnceLock<Option<RegexMatcher>>,
}

/// A matcher that can be stopped. Each thread has its own.
pub(super) struct GuardedMatcher<'g> {
    compiled: &'g CompiledPattern,
    /// A clone of the matcher, so that each thread has its own caches.
    matcher: RegexMatcher,
    budget: &'g Budget<'g>,
    /// Whether the engine gets the whole text again for every match, because matches can span
    /// lines. One trial is then enough.
    repeats: bool,
    /// Whether the repeated text has passed its trial.
    passed_trial: Cell<bool>,
}

/// The error of a matcher when the search has ended, or the pattern is too slow for the text.
#[derive(Debug)]
pub(super) struct StopError;

impl fmt::Display for StopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the search has ended, or the pattern is too slow for this file")
    }
}

impl CompiledPattern {
    /// Compiles `regex`.
    ///
    /// # Errors
    ///
    /// The engine's explanation.
    pub(super) fn new(
        builder: RegexMatcherBuilder,
        regex: &str,
    ) -> Result<Self, grep_regex::Error> {
        let matcher = builder.build(regex)?;
        Ok(Self { builder, regex: regex.to_owned(), matcher, trial: OnceLock::new() })
    }

    /// Returns the matcher of trials, which matches the pattern or the empty text. The pattern
    /// alone wouldn't show its speed, since the engine skips texts that are shorter than the
    /// shortest match.
    fn trial(&self) -> Option<&RegexMatcher> {
        self.trial.get_or_init(|| self.compile_trial()).as_ref()
    }

    fn compile_trial(&self) -> Option<RegexMatcher> {
        // A pattern with `(?x)` may end in a comment, and a line end closes the comment.
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
    /// Makes a matcher for a search by `searcher`.
    pub(super) fn new(
        compiled: &'g CompiledPattern,
        searcher: &Searcher,
        budget: &'g Budget<'g>,
    ) -> Self {
        let matcher = compiled.matcher.clone();
        let repeats = searcher.multi_line_with_matcher(&matcher);
        Self { compiled, matcher, budget, repeats, passed_trial: Cell::new(false) }
    }

    /// Forgets the trial of the last file.
    pub(super) fn begin_file(&self) {
        self.passed_trial.set(false);
    }

    /// Checks that the engine is fast enough for `text`.
    fn run_trial(&self, text: &[u8]) -> Result<(), StopError> {
        if text.len() <= MAX_WITHOUT_TRIAL || self.passed_trial.get() {
            return Ok(());
        }
        let trial = self.compiled.trial().ok_or(StopError)?;
        let slowest = Duration::from_micros(text.len() as u64 / SLOWEST_BYTES_PER_MICROSECOND);
        let deadline = thread_cpu() + TRIAL_TIME + slowest;
        for window in text.chunks(WINDOW) {
            let _is_match = trial.is_match(window).map_err(from_never)?;
            if !self.budget.check() || thread_cpu() > deadline {
                return Err(StopError);
            }
        }
        self.passed_trial.set(self.repeats);
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

    /// Searches the lines in pieces. The searcher calls this only if no match spans lines.
    fn find_candidate_line(&self, text: &[u8]) -> Result<Option<LineMatchKind>, StopError> {
        let mut start = 0;
        while start < text.len() {
            let piece = &text[start..start + lines_up_to(&text[start..], STRIDE)];
            // After a match, the next piece can be one short line. Reading the clock costs too much
            // for a short piece, and little for a long piece.
            if self.budget.has_ended() || (piece.len() > WINDOW && !self.budget.check()) {
                return Err(StopError);
            }
            self.run_trial(piece)?;
            let is_last = start + piece.len() == text.len();
            match self.matcher.find_candidate_line(piece).map_err(from_never)? {
                // An empty match at the end of a piece belongs to the next line, which is in the
                // next piece.
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

/// Returns the length of the longest prefix of `text` that ends with a line and has at most `most`
/// bytes. Returns the length of the first line if that line is longer.
fn lines_up_to(text: &[u8], most: usize) -> usize {
    if text.len() <= most {
        return text.len();
    }
    if let Some(end) = text[..most].iter().rposition(|byte| *byte == b'\n') {
        return end + 1;
    }
    match text[most..].iter().position(|byte| *byte == b'\n') {
        Some(end) => most + end + 1,
        None => text.len(),
    }
}

fn from_never(_never: NoError) -> StopError {
    StopError
}
