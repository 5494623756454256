//! A matcher that can be stopped.
//!
//! The regex engine takes time linear in the text, but the factor is the pattern's size: a hostile
//! pattern of 10 MiB needs an hour for a text of 16 MiB, and a call into the engine can't be
//! interrupted. So no call gets a long text untried: lines are handed over a few at a time, and a
//! text that can't be divided is first tried window by window, with an eye on the clock. The
//! windows cost about what the whole costs, since what makes a pattern slow shows within a window.

use std::cell::Cell;
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use grep_matcher::{ByteSet, LineMatchKind, LineTerminator, Match, Matcher, NoCaptures, NoError};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::Searcher;

use super::budget::{Budget, thread_cpu};

/// How much of several lines the engine gets at a time.
const STRIDE: usize = 16 << 10;

/// The longest text that the engine gets untried where it can't be divided: the most common files
/// are shorter, and the worst pattern that compiles takes a quarter of a minute for it.
const UNTRIED: usize = 64 << 10;

/// The pieces in which a longer one is tried.
const WINDOW: usize = 4 << 10;

/// How long, in CPU time, a pattern may take for the windows of a text: this, and as long as the
/// slowest speed allows. Ordinary patterns are ten times as fast.
const TRIAL: Duration = Duration::from_millis(100);
const SLOWEST_BYTES_PER_MICROSECOND: u64 = 16;

/// A compiled pattern, shared by the threads of a search.
#[derive(Debug)]
pub(super) struct CompiledPattern {
    builder: RegexMatcherBuilder,
    regex: String,
    matcher: RegexMatcher,
    /// See [`Compiled::trial`]; made when it is first needed.
    trial: OnceLock<Option<RegexMatcher>>,
}

/// See the module. Every thread has its own.
pub(super) struct GuardedMatcher<'g> {
    compiled: &'g CompiledPattern,
    /// A clone has caches of its own.
    matcher: RegexMatcher,
    budget: &'g Budget<'g>,
    /// Whether the engine gets the whole text again for every match, as it does where matches can
    /// span lines. Once is enough then.
    repeats: bool,
    /// Whether the text that repeats was tried.
    tried: Cell<bool>,
}

/// The search is over, or the pattern is too slow for the text.
#[derive(Debug)]
pub(super) struct StopError;

impl fmt::Display for StopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the search is over, or the pattern is too slow for this file")
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

    /// What windows are tried with: the pattern, with the empty text as a match beside. The engine
    /// passes over every text that is shorter than the shortest match, so the pattern itself would
    /// not show how slow it is.
    fn trial(&self) -> Option<&RegexMatcher> {
        let build = || {
            // The line end closes a comment, which a pattern with `(?x)` may end in.
            let mut endings = ["", "\n"].iter();
            endings
                .find_map(|end| self.builder.build(&format!(r"(?:{}{end})|\A\z", self.regex)).ok())
        };
        self.trial.get_or_init(build).as_ref()
    }
}

impl<'g> GuardedMatcher<'g> {
    /// For a search by `searcher`.
    pub(super) fn new(
        compiled: &'g CompiledPattern,
        searcher: &Searcher,
        budget: &'g Budget<'g>,
    ) -> Self {
        let matcher = compiled.matcher.clone();
        let repeats = searcher.multi_line_with_matcher(&matcher);
        Self { compiled, matcher, budget, repeats, tried: Cell::new(false) }
    }

    /// Forgets the last file.
    pub(super) fn begin_file(&self) {
        self.tried.set(false);
    }

    /// Makes sure that the engine gets through `text` in time.
    fn try_out(&self, text: &[u8]) -> Result<(), StopError> {
        if text.len() <= UNTRIED || self.tried.get() {
            return Ok(());
        }
        let trial = self.compiled.trial().ok_or(StopError)?;
        let until = thread_cpu()
            + TRIAL
            + Duration::from_micros(text.len() as u64 / SLOWEST_BYTES_PER_MICROSECOND);
        for window in text.chunks(WINDOW) {
            let _found = trial.is_match(window).map_err(stopped)?;
            if !self.budget.check() || thread_cpu() > until {
                return Err(StopError);
            }
        }
        self.tried.set(self.repeats);
        Ok(())
    }
}

impl Matcher for GuardedMatcher<'_> {
    type Captures = NoCaptures;
    type Error = StopError;

    fn find_at(&self, text: &[u8], at: usize) -> Result<Option<Match>, StopError> {
        self.try_out(text)?;
        self.matcher.find_at(text, at).map_err(stopped)
    }

    fn shortest_match_at(&self, text: &[u8], at: usize) -> Result<Option<usize>, StopError> {
        self.try_out(text)?;
        self.matcher.shortest_match_at(text, at).map_err(stopped)
    }

    /// Called only where no match spans lines, so that lines can be looked at piece by piece.
    fn find_candidate_line(&self, text: &[u8]) -> Result<Option<LineMatchKind>, StopError> {
        let mut start = 0;
        while start < text.len() {
            let piece = &text[start..start + lines_up_to(&text[start..], STRIDE)];
            // The clock costs too much for every short line that a match leaves, and little beside
            // a piece.
            if self.budget.has_ended() || (piece.len() > WINDOW && !self.budget.check()) {
                return Err(StopError);
            }
            self.try_out(piece)?;
            let found = self.matcher.find_candidate_line(piece).map_err(stopped)?;
            let is_last = start + piece.len() == text.len();
            match found {
                // An empty match behind the last line of a piece is one only if the next line has
                // it.
                Some(LineMatchKind::Confirmed(at) | LineMatchKind::Candidate(at))
                    if at == piece.len() && !is_last => {}
                Some(LineMatchKind::Confirmed(at)) => {
                    return Ok(Some(LineMatchKind::Confirmed(start + at)));
                }
                Some(LineMatchKind::Candidate(at)) => {
                    return Ok(Some(LineMatchKind::Candidate(start + at)));
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

/// How much of `text` to take so that it ends with a line: at most `most`, or the one line that is
/// longer.
fn lines_up_to(text: &[u8], most: usize) -> usize {
    if text.len() <= most {
        return text.len();
    }
    let ends_line = |byte: &u8| *byte == b'\n';
    match text[..most].iter().rposition(ends_line) {
        Some(end) => end + 1,
        None => text[most..].iter().position(ends_line).map_or(text.len(), |end| most + end + 1),
    }
}

fn stopped(_never: NoError) -> StopError {
    StopError
}
