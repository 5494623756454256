//! Searching one file after the other: regex, buffers, and reading through a handle.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use grep_regex::RegexMatcherBuilder;
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink};

use super::budget::Budget;
use super::directory;
use super::guard::{CompiledPattern, GuardedMatcher};
use super::model::{MAX_CONTEXT, Pattern, SearchError, SkipCounts};
use super::walk::Item;
use berth_system::files::FileView;

/// The most memory that a line, or a file where matches may span lines, may take.
const MAX_HEAP: usize = 16 << 20;

/// The most memory of a compiled regex, and of the tables that it builds while it matches.
const MAX_REGEX: usize = 10 << 20;

/// Files up to this size are read in one go and searched in place. It is also how far into a file
/// the engine looks for a NUL before it searches anything, so that such a file is either text or
/// left out as a whole.
const IN_ONE_GO: usize = 64 << 10;

/// A file of this size takes longer than it takes to start a thread.
const LARGE: u64 = 1 << 20;

/// Compiles a pattern.
///
/// # Errors
///
/// [`SearchError::InvalidPattern`] with the engine's explanation.
pub(super) fn compile(pattern: &Pattern) -> Result<CompiledPattern, SearchError> {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .multi_line(true)
        .case_insensitive(!pattern.case_sensitive)
        .size_limit(MAX_REGEX)
        .dfa_size_limit(MAX_REGEX);
    // `a$` finds an `a` before CRLF too, which the lines are shown without. Who names the carriage
    // return means it, and `\r$` finds it.
    builder.crlf(!names_a_return(&pattern.regex));
    if pattern.multiline {
        builder.line_terminator(None).dot_matches_new_line(true);
    } else {
        // Promises that no match spans lines, which lets the engine search whole buffers instead of
        // lines.
        builder.line_terminator(Some(b'\n'));
    }
    CompiledPattern::new(builder, &pattern.regex)
        .map_err(|error| SearchError::InvalidPattern(error.to_string()))
}

fn names_a_return(regex: &str) -> bool {
    let regex = regex.to_ascii_lowercase();
    ["\r", r"\r", r"\x0d", r"\x{d}", r"\x{0d}", r"\u000d", r"\u{d}", "[:cntrl:]", r"\p{cc}"]
        .iter()
        .any(|name| regex.contains(name))
}

/// Searches files, one at a time. Every thread has its own, since it keeps buffers and caches.
pub(super) struct Engine<'e> {
    matcher: GuardedMatcher<'e>,
    searcher: Searcher,
    buffer: Vec<u8>,
    view: &'e FileView,
    budget: &'e Budget<'e>,
    /// How many files were looked into.
    pub(super) searched: u64,
}

/// What a search of one file tells besides its matches.
pub(super) trait FileSink: Sink<Error = io::Error> {
    /// Whether a NUL byte has ended the search.
    fn is_binary(&self) -> bool;
}

impl<'e> Engine<'e> {
    /// `compiled` is what [`compile`] made of `pattern`.
    pub(super) fn new(
        compiled: &'e CompiledPattern,
        pattern: &Pattern,
        view: &'e FileView,
        budget: &'e Budget<'e>,
    ) -> Self {
        let context = |lines: u32| lines.min(MAX_CONTEXT) as usize;
        let searcher = SearcherBuilder::new()
            .line_number(true)
            .multi_line(pattern.multiline)
            .before_context(context(pattern.before))
            .after_context(context(pattern.after))
            .binary_detection(BinaryDetection::quit(0))
            // A file that someone cuts while it is mapped kills the process.
            .memory_map(MmapChoice::never())
            .heap_limit(Some(MAX_HEAP))
            .build();
        Self {
            matcher: GuardedMatcher::new(compiled, &searcher, budget),
            searcher,
            buffer: vec![0; IN_ONE_GO],
            view,
            budget,
            searched: 0,
        }
    }

    /// Searches the file that `item` names, if it still is one. Calls `before_long` if it is large.
    pub(super) fn search(
        &mut self,
        item: &Item<'_>,
        sink: &mut impl FileSink,
        skipped: &mut SkipCounts,
        before_long: &mut dyn FnMut(),
    ) {
        let Ok((file, stat)) = directory::open_file(item.folder.as_fd(), item.name) else {
            skipped.unreadable += 1;
            return;
        };
        self.view.record(item.path, &stat, Some(file.as_fd()));
        let size = directory::size(&stat);
        if size >= LARGE {
            before_long();
        }
        self.matcher.begin_file();
        match self.search_open(file.as_fd(), size, sink) {
            Ok(()) => self.searched += 1,
            // The reader gave up because the search is over.
            Err(_) if self.budget.has_ended() => return,
            Err(_) => skipped.unreadable += 1,
        }
        skipped.binary += u64::from(sink.is_binary());
    }

    fn search_open(
        &mut self,
        file: BorrowedFd<'_>,
        size: u64,
        sink: &mut impl FileSink,
    ) -> io::Result<()> {
        match usize::try_from(size) {
            Ok(size) if (1..=IN_ONE_GO).contains(&size) => {
                let buffer = &mut self.buffer[..size];
                let filled = fill(file, buffer)?;
                self.searcher.search_slice(&self.matcher, &buffer[..filled], sink)
            }
            // Files that tell no size, in /proc for one, may have content all the same.
            _ => {
                let left = if size == 0 { u64::MAX } else { size };
                self.searcher.search_reader(
                    &self.matcher,
                    BudgetedFile { file, left, budget: self.budget },
                    sink,
                )
            }
        }
    }
}

/// Reads until `buffer` is full or the file ends. The size that the file had makes the read that
/// would meet its end unnecessary.
fn fill(file: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match directory::read(file, &mut buffer[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

/// A file that ends in an error once the search is over.
struct BudgetedFile<'w> {
    file: BorrowedFd<'w>,
    /// What of the size that it had when it was opened is left: a file that grows faster than it is
    /// read has an end.
    left: u64,
    budget: &'w Budget<'w>,
}

impl Read for BudgetedFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Ok(0);
        }
        if !self.budget.check() {
            return Err(io::Error::other("the search is over"));
        }
        let wanted = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = directory::read(self.file, &mut buffer[..wanted])?;
        self.left -= read as u64;
        Ok(read)
    }
}
