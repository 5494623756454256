//! Counts the matching lines in each file below a directory.

use std::io;

use grep_searcher::{Searcher, Sink, SinkFinish, SinkMatch};

use super::budget::Budget;
use super::engine::{self, Engine, FileSink};
use super::model::{Control, Pattern, Scope, SearchCounts, SearchError, SkipCounts};
use super::root::{self, Root};
use super::walk::{Item, Visitor, Walk};
use toolhold_system::files::FileView;

/// Counts the matching lines in each regular file below a root. The root may also be a single file.
///
/// Returns the full counts of at most `limit` files, and at most
/// [`MAX_RESULTS`](super::MAX_RESULTS). If there are more files, any of them may be missing. Binary
/// files are omitted. The pattern's context lines have no effect.
///
/// # Errors
///
/// Returns an error if the search can't start.
pub fn count(
    view: &FileView,
    scope: &Scope,
    pattern: &Pattern,
    limit: u32,
    control: &Control,
) -> Result<SearchCounts, SearchError> {
    let pattern = Pattern { before: 0, after: 0, ..pattern.clone() };
    let compiled = engine::compile(&pattern)?;
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
    let walked = walk.run(|| Counter {
        root: &root,
        budget: &budget,
        engine: Engine::new(&compiled, &pattern, view, &budget),
        files: Vec::new(),
    });

    budget.report_gaps(view, walked.skipped);
    let files_searched = walked.visitors.iter().map(|counter| counter.engine.searched).sum();
    let mut items: Vec<(String, u64)> =
        walked.visitors.into_iter().flat_map(|counter| counter.files).collect();
    items.sort_unstable();
    Ok(SearchCounts {
        items,
        files_searched,
        ending: budget.ending(),
        skipped: walked.skipped,
        cpu: walked.cpu,
    })
}

struct Counter<'c> {
    root: &'c Root,
    budget: &'c Budget<'c>,
    engine: Engine<'c>,
    files: Vec<(String, u64)>,
}

impl Visitor for Counter<'_> {
    fn visit(&mut self, item: &Item<'_>, skipped: &mut SkipCounts, on_slow_item: &mut dyn FnMut()) {
        let mut file = FileCount { budget: self.budget, lines: 0, binary: false };
        self.engine.search(item, &mut file, skipped, on_slow_item);
        // An incomplete count isn't returned.
        let may_be_incomplete = file.binary || self.budget.has_ended();
        if file.lines == 0 || may_be_incomplete {
            return;
        }
        if !self.budget.add_result() {
            return;
        }
        let path = self.root.result_path(item.relative_path);
        if self.budget.add_text(path.len()) {
            self.files.push((path, file.lines));
        }
    }
}

struct FileCount<'f> {
    budget: &'f Budget<'f>,
    lines: u64,
    binary: bool,
}

impl FileSink for FileCount<'_> {
    fn is_binary(&self) -> bool {
        self.binary
    }
}

impl Sink for FileCount<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        self.lines += found.lines().count() as u64;
        Ok(!self.budget.has_ended())
    }

    fn finish(&mut self, _searcher: &Searcher, finish: &SinkFinish) -> io::Result<()> {
        self.binary = finish.binary_byte_offset().is_some();
        Ok(())
    }
}
