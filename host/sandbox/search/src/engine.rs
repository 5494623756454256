//! Searches single files.

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

/// Bytes of memory for one line, or for a whole file if matches may span lines. A longer line or
/// file can't be searched.
const MAX_HEAP: usize = 16 << 20;

/// Bytes of a compiled regex, and of the tables that it builds during a search. A larger regex is
/// refused.
const MAX_REGEX: usize = 10 << 20;

/// Bytes of the largest file that is read completely before its search. In a larger file, the
/// engine looks for a NUL in this many bytes first. So a binary file of up to this size is omitted
/// completely.
const MAX_WHOLE_FILE: usize = 64 << 10;

/// From this size on, searching a file takes longer than starting a thread.
const MIN_LARGE_FILE: u64 = 1 << 20;

/// Compiles a pattern. Fails with the engine's explanation if it isn't valid.
pub(super) fn compile(pattern: &Pattern) -> Result<CompiledPattern, SearchError> {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .multi_line(true)
        .case_insensitive(!pattern.case_sensitive)
        .size_limit(MAX_REGEX)
        .dfa_size_limit(MAX_REGEX);
    // Results don't show the carriage return before a newline. So `$` also matches before such a
    // carriage return, unless the pattern itself has a carriage return, such as `\r$`.
    builder.crlf(!names_carriage_return(&pattern.regex));
    if pattern.multiline {
        builder.line_terminator(None).dot_matches_new_line(true);
    } else {
        // With this setting, no match spans lines. So the engine can search whole buffers instead
        // of single lines.
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

/// Searches files, one at a time. Each thread has its own engine, because an engine reuses its
/// buffers and caches.
pub(super) struct Engine<'e> {
    matcher: GuardedMatcher<'e>,
    searcher: Searcher,
    buffer: Vec<u8>,
    view: &'e FileView,
    budget: &'e Budget<'e>,
    pub(super) searched: u64,
}

pub(super) trait FileSink: Sink<Error = io::Error> {
    fn is_binary(&self) -> bool;
}

impl<'e> Engine<'e> {
    /// Makes an engine for `pattern`. `compiled` is `pattern` after [`compile`].
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
            // A file with a NUL byte is binary.
            .binary_detection(BinaryDetection::quit(b'\0'))
            // Reading a mapped file kills the process if another process truncates the file.
            .memory_map(MmapChoice::never())
            .heap_limit(Some(MAX_HEAP))
            .build();
        Self {
            matcher: GuardedMatcher::new(compiled, &searcher, budget),
            searcher,
            buffer: vec![0; MAX_WHOLE_FILE],
            view,
            budget,
            searched: 0,
        }
    }

    /// Searches the file of `item`, if it is still a regular file. Calls `on_slow_item` before a
    /// large file.
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
        if size >= MIN_LARGE_FILE {
            on_slow_item();
        }
        self.matcher.begin_file();
        match self.search_open(file.as_fd(), size, sink) {
            Ok(()) => self.searched += 1,
            // The read failed because the search has ended.
            Err(_) if self.budget.has_ended() => return,
            Err(_) => skipped.unreadable += 1,
        }
        if sink.is_binary() {
            skipped.binary += 1;
        }
    }

    /// Searches an open file. A small file is read at once, and a larger file in pieces.
    fn search_open(
        &mut self,
        file: BorrowedFd<'_>,
        size: u64,
        sink: &mut impl FileSink,
    ) -> io::Result<()> {
        if let Ok(size) = usize::try_from(size)
            && (1..=MAX_WHOLE_FILE).contains(&size)
        {
            let buffer = &mut self.buffer[..size];
            let filled = fill(file, buffer)?;
            return self.searcher.search_slice(&self.matcher, &buffer[..filled], sink);
        }
        // The size 0 can be wrong, for example in /proc, so such a file is read up to its end.
        let remaining = if size == 0 { u64::MAX } else { size };
        let file = BudgetedFile { file, remaining, budget: self.budget };
        self.searcher.search_reader(&self.matcher, file, sink)
    }
}

/// Reads until `buffer` is full or the file ends. The buffer is as large as the file, so no further
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

struct BudgetedFile<'w> {
    file: BorrowedFd<'w>,
    /// The remaining bytes of the file's size when it was opened. So the search ends even if the
    /// file grows faster than it is read.
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
        // A number that is too large for this machine doesn't limit the read.
        let max_length = usize::try_from(self.remaining).unwrap_or(usize::MAX);
        let length = buffer.len().min(max_length);
        let read = directory::read(self.file, &mut buffer[..length])?;
        self.remaining -= read as u64;
        Ok(read)
    }
}
