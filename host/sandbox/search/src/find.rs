//! Lists the entries below a directory that match globs.

use std::os::fd::AsFd;

use rustix::fs::FileType;

use super::budget::Budget;
use super::directory;
use super::model::{Control, Entries, EntryKind, Scope, SearchEntry, SearchError, SkipCounts};
use super::root::{self, Root};
use super::walk::{Item, Visitor, Walk};
use toolhold_system::files::FileView;

/// Lists the entries below a root, at most `limit` entries (and at most
/// [`MAX_RESULTS`](super::MAX_RESULTS)).
///
/// If the limit omits entries, the choice of entries is undefined.
///
/// # Errors
///
/// [`SearchError`] if the search can't start.
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
        // The metadata is read before the entry is counted, so that a removed entry isn't counted.
        let Ok(stat) = directory::stat(item.folder.as_fd(), item.name) else {
            skipped.unreadable += 1;
            return;
        };
        self.view.record(item.path, &stat, None);
        if !self.budget.add_result() {
            return;
        }
        let path = self.root.result_path(item.rest);
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
        let milliseconds =
            i128::from(stat.st_mtime) * 1000 + i128::from(stat.st_mtime_nsec) / 1_000_000;
        let modified_ms = u64::try_from(milliseconds).unwrap_or(0);
        self.entries.push(SearchEntry { path, kind, size, modified_ms });
    }
}
