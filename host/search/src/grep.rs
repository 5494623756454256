use std::io;
use std::sync::Arc;

use grep_searcher::{Searcher, Sink, SinkContext, SinkContextKind, SinkFinish, SinkMatch};

use super::budget::Budget;
use super::engine::{self, Engine, FileSink};
use super::model::{Control, Line, Lines, MAX_LINE_CHARS, Pattern, Scope, SearchError, SkipCounts};
use super::root::{self, Root};
use super::walk::{Item, Visitor, Walk};
use berth_system::files::FileView;

/// Finds the lines that match in the regular files below a root, or in the one file that the root
/// names: at most `limit` of them (and at most [`MAX_RESULTS`](super::MAX_RESULTS)), context not
/// counted.
///
/// Where the limit cuts, which lines are left is not defined.
///
/// # Errors
///
/// [`SearchError`].
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

    budget.tell(view, walked.skipped);
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

/// The path that all lines of a file have.
fn path_of(file: &[Line]) -> &str {
    file.first().map_or("", |line| &line.path)
}

struct Reader<'r> {
    root: &'r Root,
    budget: &'r Budget<'r>,
    engine: Engine<'r>,
    /// The lines of each file that has any.
    files: Vec<Vec<Line>>,
}

impl Visitor for Reader<'_> {
    fn visit(&mut self, item: &Item<'_>, skipped: &mut SkipCounts, before_long: &mut dyn FnMut()) {
        let mut file = FileLines {
            root: self.root,
            rest: item.rest,
            budget: self.budget,
            path: None,
            lines: Vec::new(),
            kept: 0,
            binary: false,
        };
        self.engine.search(item, &mut file, skipped, before_long);
        // Context that came before a match for which there was no room.
        file.lines.truncate(file.kept);
        if !file.lines.is_empty() {
            self.files.push(file.lines);
        }
    }
}

/// Takes the lines of one file.
struct FileLines<'f> {
    root: &'f Root,
    rest: &'f [u8],
    budget: &'f Budget<'f>,
    /// Made for the first line.
    path: Option<Arc<str>>,
    lines: Vec<Line>,
    /// How many of the lines are matches or follow one.
    kept: usize,
    binary: bool,
}

impl FileLines<'_> {
    /// Whether there was room for a line.
    fn push(&mut self, number: u64, line: &[u8], is_match: bool) -> bool {
        let (root, rest) = (self.root, self.rest);
        let path = Arc::clone(self.path.get_or_insert_with(|| root.spell(rest).into()));
        let text = shown(line);
        let room = self.budget.charge(path.len() + text.len());
        if room {
            self.lines.push(Line { path, number, text, is_match });
        }
        room
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
        let first = found.line_number().unwrap_or(0);
        let lines =
            found.bytes().split_inclusive(|byte| *byte == searcher.line_terminator().as_byte());
        for (number, line) in (first..).zip(lines) {
            if !self.budget.take() || !self.push(number, line, true) {
                return Ok(false);
            }
            self.kept = self.lines.len();
        }
        Ok(true)
    }

    fn context(&mut self, _searcher: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        if !self.push(context.line_number().unwrap_or(0), context.bytes(), false) {
            return Ok(false);
        }
        if *context.kind() == SinkContextKind::After {
            self.kept = self.lines.len();
        }
        Ok(true)
    }

    fn finish(&mut self, _searcher: &Searcher, finish: &SinkFinish) -> io::Result<()> {
        self.binary = finish.binary_byte_offset().is_some();
        Ok(())
    }
}

/// A line as it is shown: without its end, valid, cut.
fn shown(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // No character takes more than four bytes: what is cut here would be cut below.
    let line = &line[..line.len().min(4 * MAX_LINE_CHARS)];
    let mut text = String::from_utf8_lossy(line).into_owned();
    if let Some((end, _)) = text.char_indices().nth(MAX_LINE_CHARS) {
        text.truncate(without_unfinished(&text.as_bytes()[..end], &text.as_bytes()[end..]));
    }
    text
}

/// Characters of a word that is not shown where a cut goes through it. Of a longer one, what stays
/// is enough to be told for what it is.
const MAX_WORD: usize = 128;

/// How much of `shown` is left without the word that ends behind it, in `rest`. The beginning of a
/// credential is not told for one, and is most of it all the same.
fn without_unfinished(shown: &[u8], rest: &[u8]) -> usize {
    let of_word = |byte: &&u8| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'_' | b'.' | b'+' | b'/' | b'=' | b'~')
    };
    let word = shown.iter().rev().take(MAX_WORD + 1).take_while(of_word).count();
    let ends = rest.first().is_some_and(|byte| !of_word(&byte));
    if ends || word > MAX_WORD { shown.len() } else { shown.len() - word }
}
