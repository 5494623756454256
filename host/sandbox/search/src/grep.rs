//! Finds the matching lines in files below a directory.

use std::io;
use std::sync::Arc;

use grep_searcher::{Searcher, Sink, SinkContext, SinkContextKind, SinkFinish, SinkMatch};

use super::budget::Budget;
use super::engine::{self, Engine, FileSink};
use super::model::{Control, Line, Lines, MAX_LINE_CHARS, Pattern, Scope, SearchError, SkipCounts};
use super::root::{self, Root};
use super::walk::{Item, Visitor, Walk};
use toolhold_system::files::FileView;

/// Finds the matching lines in the regular files below a root. The root may also be a single file.
///
/// Returns at most `limit` matching lines, and at most [`MAX_RESULTS`](super::MAX_RESULTS). Lines
/// of context don't count. If there are more matching lines, any of them may be missing.
///
/// # Errors
///
/// Returns an error if the search can't start.
pub fn grep(
    view: &FileView,
    scope: &Scope,
    pattern: &Pattern,
    limit: u32,
    control: &Control,
) -> Result<Lines, SearchError> {
    let compiled = engine::compile(pattern)?;
    let (root, filter) = root::open(view, scope, control.threads)?;
    let budget = Budget::new(control, limit);
    let walk = Walk {
        view,
        root: &root,
        filter: &filter,
        budget: &budget,
        files_only: true,
        max_depth: scope.max_depth,
    };
    let walked = walk.run(|| Reader {
        root: &root,
        budget: &budget,
        engine: Engine::new(&compiled, pattern, view, &budget),
        files: Vec::new(),
    });

    budget.report_gaps(view, walked.skipped);
    let files_searched = walked.visitors.iter().map(|reader| reader.engine.searched).sum();
    let mut files: Vec<Vec<Line>> =
        walked.visitors.into_iter().flat_map(|reader| reader.files).collect();
    files.sort_unstable_by(|a, b| path_of(a).cmp(path_of(b)));
    Ok(Lines {
        files_matched: files.len() as u64,
        items: files.into_iter().flatten().collect(),
        files_searched,
        ending: budget.ending(),
        skipped: walked.skipped,
        cpu: walked.cpu,
    })
}

fn path_of(file: &[Line]) -> &str {
    file.first().map_or("", |line| &line.path)
}

struct Reader<'r> {
    root: &'r Root,
    budget: &'r Budget<'r>,
    engine: Engine<'r>,
    files: Vec<Vec<Line>>,
}

impl Visitor for Reader<'_> {
    fn visit(&mut self, item: &Item<'_>, skipped: &mut SkipCounts, on_slow_item: &mut dyn FnMut()) {
        let mut file = FileLines {
            root: self.root,
            relative_path: item.relative_path,
            budget: self.budget,
            path: None,
            lines: Vec::new(),
            complete_lines: 0,
            binary: false,
        };
        self.engine.search(item, &mut file, skipped, on_slow_item);
        // The last lines may be the context before a match that exceeded the limit.
        file.lines.truncate(file.complete_lines);
        if !file.lines.is_empty() {
            self.files.push(file.lines);
        }
    }
}

struct FileLines<'f> {
    root: &'f Root,
    relative_path: &'f [u8],
    budget: &'f Budget<'f>,
    /// The path for the results. The first line sets it.
    path: Option<Arc<str>>,
    lines: Vec<Line>,
    /// The number of lines up to the last match, with the context after it.
    complete_lines: usize,
    binary: bool,
}

impl FileLines<'_> {
    /// Adds a line. Returns whether the text is within the limit. If not, the line isn't added.
    fn push(&mut self, number: u64, line: &[u8], is_match: bool) -> bool {
        let path =
            self.path.get_or_insert_with(|| self.root.result_path(self.relative_path).into());
        let text = display_line(line);
        if !self.budget.add_text(path.len() + text.len()) {
            return false;
        }
        self.lines.push(Line { path: Arc::clone(path), number, text, is_match });
        true
    }
}

impl FileSink for FileLines<'_> {
    fn is_binary(&self) -> bool {
        self.binary
    }
}

impl Sink for FileLines<'_> {
    type Error = io::Error;

    fn matched(&mut self, searcher: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        if self.budget.has_ended() {
            return Ok(false);
        }
        // The searcher counts lines, so the number is never missing.
        let first_number = found.line_number().unwrap_or(0);
        let line_end = searcher.line_terminator().as_byte();
        // A match can span several lines.
        let lines = found.bytes().split_inclusive(|byte| *byte == line_end);
        for (number, line) in (first_number..).zip(lines) {
            if !self.budget.add_result() {
                return Ok(false);
            }
            let is_match = true;
            if !self.push(number, line, is_match) {
                return Ok(false);
            }
            self.complete_lines = self.lines.len();
        }
        Ok(true)
    }

    fn context(&mut self, _searcher: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        // The searcher counts lines, so the number is never missing.
        let number = context.line_number().unwrap_or(0);
        let is_match = false;
        if !self.push(number, context.bytes(), is_match) {
            return Ok(false);
        }
        // The lines after a match belong to the match.
        if *context.kind() == SinkContextKind::After {
            self.complete_lines = self.lines.len();
        }
        Ok(true)
    }

    fn finish(&mut self, _searcher: &Searcher, finish: &SinkFinish) -> io::Result<()> {
        self.binary = finish.binary_byte_offset().is_some();
        Ok(())
    }
}

/// Bytes of the longest character in UTF-8.
const MAX_CHAR_BYTES: usize = 4;

/// Returns a line for the result: without its line end, as valid UTF-8, cut at the limit.
fn display_line(line: &[u8]) -> String {
    let unterminated = line.strip_suffix(b"\n").unwrap_or(line);
    let content = unterminated.strip_suffix(b"\r").unwrap_or(unterminated);
    // Each character has at most four bytes, so these bytes contain all characters up to the limit.
    let max_bytes = MAX_CHAR_BYTES * MAX_LINE_CHARS;
    let start = &content[..content.len().min(max_bytes)];
    let mut text = String::from_utf8_lossy(start).into_owned();
    let first_after_limit = text.char_indices().nth(MAX_LINE_CHARS);
    if let Some((limit, _)) = first_after_limit {
        let (before_cut, after_cut) = text.as_bytes().split_at(limit);
        let length = without_partial_word(before_cut, after_cut);
        text.truncate(length);
    }
    text
}

/// Bytes of the longest partial word that a cut removes. This many bytes of a word are enough to
/// recognise a credential.
const MAX_WORD: usize = 128;

/// Returns the length of `text` without a word that was cut, because redaction doesn't recognise a
/// short part of a credential. A part of more than [`MAX_WORD`] bytes stays, because redaction
/// recognises it.
fn without_partial_word(text: &[u8], after_cut: &[u8]) -> usize {
    let is_between_words = after_cut.first().is_some_and(|byte| !is_word_byte(*byte));
    if is_between_words {
        return text.len();
    }
    // The additional byte shows that the word is longer than the limit.
    let last_bytes = text.iter().rev().take(MAX_WORD + 1);
    let word_length = last_bytes.take_while(|byte| is_word_byte(**byte)).count();
    if word_length > MAX_WORD { text.len() } else { text.len() - word_length }
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'+' | b'/' | b'=' | b'~')
}
