//! Searches single files: the regex, the buffers, and reading through a handle.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use grep_regex::RegexMatcherBuilder;
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink};

use super::budget::Budget;
use super::directory;
use super::guard::{CompiledPattern, GuardedMatcher};
use super::model::{MAX_CONTEXT, Pattern, SearchError, SkipCounts};
use super::walk::Item;
use toolhold_system::files::FileView;

/// The most memory for one line, or for one whole file if matches may span lines.
const MAX_HEAP: usize = 16 << 20;

/// The most memory for a compiled regex. The tables that the regex builds during a search have the
/// same limit.
const MAX_REGEX: usize = 10 << 20;

/// Files up to this size are read completely and searched in place. For larger files, the engine
/// looks for a NUL in this many bytes before it searches. So a file of this size is either text or
/// omitted completely.
const WHOLE_FILE: usize = 64 << 10;

/// The size from which searching a file takes longer than starting a thread.
const LARGE: u64 = 1 << 20;

/// Compiles a pattern.
///
/// # Errors
///
/// [`SearchError::InvalidPattern`] with the engine's explanation if the pattern isn't valid.
pub(super) fn compile(pattern: &Pattern) -> Result<CompiledPattern, SearchError> {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .multi_line(true)
        .case_insensitive(!pattern.case_sensitive)
        .size_limit(MAX_REGEX)
        .dfa_size_limit(MAX_REGEX);
    // Results don't show the carriage return of a CRLF, so `a$` also matches an `a` before it. A
    // pattern with an explicit carriage return, such as `\r$`, still matches one.
    builder.crlf(!names_carriage_return(&pattern.regex));
    if pattern.multiline {
        builder.line_terminator(None).dot_matches_new_line(true);
    } else {
        // This promises that no match spans lines, so that the engine can search whole buffers
        // instead of single lines.
        builder.line_terminator(Some(b'\n'));
    }
    CompiledPattern::new(builder, &pattern.regex)
        .map_err(|error| SearchError::InvalidPattern(error.to_string()))
}

fn names_carriage_return(regex: &str) -> bool {
    let regex = regex.to_ascii_lowercase();
    ["\r", r"\r", r"\x0d", r"\x{d}", r"\x{0d}", r"\u000d", r"\u{d}", "[:cntrl:]", r"\p{cc}"]
        .iter()
        .any(|name| regex.contains(name))
}

/// A search through files, one at a time. Each thread has its own engine, because the engine reuses
/// its buffers and caches.
pub(super) struct Engine<'e> {
    matcher: GuardedMatcher<'e>,
    searcher: Searcher,
    buffer: Vec<u8>,
    view: &'e FileView,
    budget: &'e Budget<'e>,
    /// How many files were searched.
    pub(super) searched: u64,
}

/// A receiver for the matches of one file. After the search, it knows whether the file is binary.
pub(super) trait FileSink: Sink<Error = io::Error> {
    /// Checks whether a NUL byte ended the search.
    fn is_binary(&self) -> bool;
}

impl<'e> Engine<'e> {
    /// Makes an engine for `pattern`. `compiled` is the result of [`compile`] for this pattern.
    pub(super) fn new(
        compiled: &'e CompiledPattern,
        pattern: &Pattern,
        view: &'e FileView,
        budget: &'e Budget<'e>,
    ) -> Self {
        let searcher = SearcherBuilder::new()
            .line_number(true)
            .multi_line(pattern.multiline)
            .before_context(pattern.before.min(MAX_CONTEXT) as usize)
            .after_context(pattern.after.min(MAX_CONTEXT) as usize)
            .binary_detection(BinaryDetection::quit(0))
            // Reading a mapped file kills the process if the file is truncated.
            .memory_map(MmapChoice::never())
            .heap_limit(Some(MAX_HEAP))
            .build();
        Self {
            matcher: GuardedMatcher::new(compiled, &searcher, budget),
            searcher,
            buffer: vec![0; WHOLE_FILE],
            view,
            budget,
            searched: 0,
        }
    }

    /// Searches the file of `item`, if it is still a regular file. Calls `on_slow_item` first if
    /// the file is large.
    pub(super) fn search(
        &mut self,
        item: &Item<'_>,
        sink: &mut impl FileSink,
        skipped: &mut SkipCounts,
        on_slow_item: &mut dyn FnMut(),
    ) {
        let Ok((file, stat)) = directory::open_file(item.folder.as_fd(), item.name) else {
            skipped.unreadable += 1;
            return;
        };
        self.view.record(item.path, &stat, Some(file.as_fd()));
        let size = directory::size(&stat);
        if size >= LARGE {
            on_slow_item();
        }
        self.matcher.begin_file();
        match self.search_open(file.as_fd(), size, sink) {
            Ok(()) => self.searched += 1,
            // The read failed because the search has ended.
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
        if let Ok(size) = usize::try_from(size)
            && (1..=WHOLE_FILE).contains(&size)
        {
            let buffer = &mut self.buffer[..size];
            let filled = fill(file, buffer)?;
            return self.searcher.search_slice(&self.matcher, &buffer[..filled], sink);
        }
        // Files with a size of 0 can have content, for example in /proc.
        let remaining = if size == 0 { u64::MAX } else { size };
        let file = BudgetedFile { file, remaining, budget: self.budget };
        self.searcher.search_reader(&self.matcher, file, sink)
    }
}

/// Reads until `buffer` is full or the file ends. The buffer is as large as the file, so no extra
/// read is needed to find the end.
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

/// A file whose reads fail after the search has ended.
struct BudgetedFile<'w> {
    file: BorrowedFd<'w>,
    /// The remaining bytes to read, based on the file's size at its opening. This ends the search
    /// even if the file grows faster than it is read.
    remaining: u64,
    budget: &'w Budget<'w>,
}

impl Read for BudgetedFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.remaining == 0 {
            return Ok(0);
        }
        if !self.budget.check() {
            return Err(io::Error::other("the search has ended"));
        }
        let most = usize::try_from(self.remaining).unwrap_or(usize::MAX);
        let length = buffer.len().min(most);
        let read = directory::read(self.file, &mut buffer[..length])?;
        self.remaining -= read as u64;
        Ok(read)
    }
}
