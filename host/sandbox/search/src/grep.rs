//! Finds the matching lines in files below a directory, with context and cut lines.

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
/// Returns at most `limit` matching lines (and at most [`MAX_RESULTS`](super::MAX_RESULTS)). The
/// limit doesn't include lines of context.
///
/// If the limit omits lines, the choice of lines is undefined.
///
/// # Errors
///
/// [`SearchError`] if the search can't start.
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

/// Returns the path of the file that contains these lines.
fn path_of(file: &[Line]) -> &str {
    file.first().map_or("", |line| &line.path)
}

struct Reader<'r> {
    root: &'r Root,
    budget: &'r Budget<'r>,
    engine: Engine<'r>,
    /// The lines of each file with at least one result.
    files: Vec<Vec<Line>>,
}

impl Visitor for Reader<'_> {
    fn visit(&mut self, item: &Item<'_>, skipped: &mut SkipCounts, on_slow_item: &mut dyn FnMut()) {
        let mut file = FileLines {
            root: self.root,
            rest: item.rest,
            budget: self.budget,
            path: None,
            lines: Vec::new(),
            finished: 0,
            binary: false,
        };
        self.engine.search(item, &mut file, skipped, on_slow_item);
        // The last lines may be the context before a match that exceeded the limit.
        file.lines.truncate(file.finished);
        if !file.lines.is_empty() {
            self.files.push(file.lines);
        }
    }
}

/// The lines of one file that a search has collected.
struct FileLines<'f> {
    root: &'f Root,
    rest: &'f [u8],
    budget: &'f Budget<'f>,
    /// The path for the results. The first line sets it.
    path: Option<Arc<str>>,
    lines: Vec<Line>,
    /// The number of lines up to the last match and the context after it.
    finished: usize,
    binary: bool,
}

impl FileLines<'_> {
    /// Adds a line. Returns false if the budget doesn't allow it.
    fn push(&mut self, number: u64, line: &[u8], is_match: bool) -> bool {
        let path = match &self.path {
            Some(path) => Arc::clone(path),
            None => Arc::clone(self.path.insert(self.root.result_path(self.rest).into())),
        };
        let text = display_line(line);
        if !self.budget.add_text(path.len() + text.len()) {
            return false;
        }
        self.lines.push(Line { path, number, text, is_match });
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
        // A match can span several lines.
        let first_number = found.line_number().unwrap_or(0);
        let line_end = searcher.line_terminator().as_byte();
        let lines = found.bytes().split_inclusive(|byte| *byte == line_end);
        for (number, line) in (first_number..).zip(lines) {
            if !self.budget.add_result() || !self.push(number, line, true) {
                return Ok(false);
            }
            self.finished = self.lines.len();
        }
        Ok(true)
    }

    fn context(&mut self, _searcher: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        if !self.push(context.line_number().unwrap_or(0), context.bytes(), false) {
            return Ok(false);
        }
        if *context.kind() == SinkContextKind::After {
            self.finished = self.lines.len();
        }
        Ok(true)
    }

    fn finish(&mut self, _searcher: &Searcher, finish: &SinkFinish) -> io::Result<()> {
        self.binary = finish.binary_byte_offset().is_some();
        Ok(())
    }
}

/// Returns the text of a line for the result: without line end, as valid UTF-8, cut at the limit.
fn display_line(line: &[u8]) -> String {
    let unterminated = line.strip_suffix(b"\n").unwrap_or(line);
    let content = unterminated.strip_suffix(b"\r").unwrap_or(unterminated);
    // A character has at most four bytes, so this removes nothing that the cut below would keep.
    let start = &content[..content.len().min(4 * MAX_LINE_CHARS)];
    let mut text = String::from_utf8_lossy(start).into_owned();
    if let Some((limit, _)) = text.char_indices().nth(MAX_LINE_CHARS) {
        let (shown, rest) = text.as_bytes().split_at(limit);
        let length = without_partial_word(shown, rest);
        text.truncate(length);
    }
    text
}

/// The longest partial word that a cut removes. The rest of a longer word is enough to recognise a
/// credential.
const MAX_WORD: usize = 128;

/// Returns the length of `text` without the word that was cut. `rest` is the text after the cut.
/// The first part of a credential isn't recognised as a credential, but may be most of it.
fn without_partial_word(text: &[u8], rest: &[u8]) -> usize {
    if rest.first().is_some_and(|byte| !is_word_byte(*byte)) {
        return text.len();
    }
    let last_bytes = text.iter().rev().take(MAX_WORD + 1);
    let word = last_bytes.take_while(|byte| is_word_byte(**byte)).count();
    if word > MAX_WORD { text.len() } else { text.len() - word }
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'+' | b'/' | b'=' | b'~')
}
