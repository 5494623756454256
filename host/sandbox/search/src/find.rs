//! Lists the entries below a directory that match globs.

use std::os::fd::AsFd;

use rustix::fs::FileType;

use super::budget::Budget;
use super::directory;
use super::model::{Control, Entries, EntryKind, Scope, SearchEntry, SearchError, SkipCounts};
use super::root::{self, Root};
use super::walk::{Item, Visitor, Walk};
use toolhold_system::files::FileView;

/// Lists the entries below a root.
///
/// Returns at most `limit` entries, and at most [`MAX_RESULTS`](super::MAX_RESULTS). If there are
/// more entries, any of them may be missing.
///
/// # Errors
///
/// Returns an error if the search can't start.
pub fn find(
    view: &FileView,
    scope: &Scope,
    limit: u32,
    control: &Control,
) -> Result<Entries, SearchError> {
    let (root, filter) = root::open(view, scope, control.threads)?;
    let budget = Budget::new(control, limit);
    let walk = Walk {
        view,
        root: &root,
        filter: &filter,
        budget: &budget,
        files_only: scope.files_only,
        max_depth: scope.max_depth,
    };
    let walked = walk.run(|| Lister { view, root: &root, budget: &budget, entries: Vec::new() });

    budget.report_gaps(view, walked.skipped);
    let mut items: Vec<SearchEntry> =
        walked.visitors.into_iter().flat_map(|lister| lister.entries).collect();
    items.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(Entries { items, ending: budget.ending(), skipped: walked.skipped, cpu: walked.cpu })
}

const MILLIS_PER_SECOND: i128 = 1000;
const NANOS_PER_MILLI: i128 = 1_000_000;

struct Lister<'l> {
    view: &'l FileView,
    root: &'l Root,
    budget: &'l Budget<'l>,
    entries: Vec<SearchEntry>,
}

impl Visitor for Lister<'_> {
    fn visit(
        &mut self,
        item: &Item<'_>,
        skipped: &mut SkipCounts,
        _on_slow_item: &mut dyn FnMut(),
    ) {
        // An entry without metadata was probably removed, so it isn't a result.
        let Ok(stat) = directory::stat(item.folder.as_fd(), item.name) else {
            skipped.unreadable += 1;
            return;
        };
        let handle = None;
        self.view.record(item.path, &stat, handle);
        if !self.budget.add_result() {
            return;
        }
        let path = self.root.result_path(item.relative_path);
        if !self.budget.add_text(path.len()) {
            return;
        }
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Directory,
            FileType::Symlink => EntryKind::Symlink,
            _ => EntryKind::Other,
        };
        let size = if kind == EntryKind::File { directory::size(&stat) } else { 0 };
        let milliseconds = i128::from(stat.st_mtime) * MILLIS_PER_SECOND
            + i128::from(stat.st_mtime_nsec) / NANOS_PER_MILLI;
        // A time before 1970 is reported as 1970.
        let modified_ms = u64::try_from(milliseconds).unwrap_or(0);
        self.entries.push(SearchEntry { path, kind, size, modified_ms });
    }
}
