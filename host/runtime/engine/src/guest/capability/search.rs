//! `toolhold:host/search`: finds files and lines in the granted directories.

use std::sync::LazyLock;
use std::time::Instant;

use toolhold_search::{self as search, Control, EntryKind, SearchEnding, SearchError};
use wasmtime::component::Linker;

use crate::guest::bindings::toolhold::host::types::Error;
use crate::guest::capability::bindings::toolhold::host::search as wit;
use crate::guest::convert::host_error;
use crate::guest::{CallState, HasState};

/// Threads of a search. More than four are hardly faster on one disk, and would occupy the machine.
/// The number is read only once, because reading it takes twenty system calls.
static THREADS: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from).min(4));

/// Links the functions, which belong to the grant for files.
pub(super) fn link(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    wit::add_to_linker::<CallState, HasState>(linker, |state| state)
}

impl CallState {
    /// Runs a search. `processor_time` returns the processor time in a result.
    fn search<T>(
        &mut self,
        processor_time: impl FnOnce(&T) -> std::time::Duration,
        run: impl FnOnce(&toolhold_system::files::FileView, &Control) -> Result<T, SearchError>,
    ) -> Result<T, Error> {
        let Some(view) = self.files.view() else {
            return Err(host_error("denied", "no directory is granted to this plugin"));
        };
        // The deadline also limits the processor time, because the time of search threads is
        // charged only after the search.
        let watch = &self.call.watch;
        let deadline = watch.deadline().min(Instant::now() + watch.cpu_left());
        let control = Control { deadline, cancel: watch.cancel.clone(), threads: *THREADS };
        match run(&view, &control) {
            Ok(result) => {
                watch.meter.charge(processor_time(&result));
                Ok(result)
            }
            Err(SearchError::InvalidPattern(reason)) => Err(host_error("invalid", reason)),
            Err(SearchError::NotFound(path)) => Err(host_error("not-found", path)),
            Err(SearchError::Denied(denial)) => {
                let text = denial.to_string();
                self.files.denials().remember(denial);
                Err(host_error("denied", text))
            }
            Err(SearchError::Failed(reason)) => Err(host_error("failed", reason)),
        }
    }
}

impl wit::Host for &mut CallState {
    async fn find(
        &mut self,
        scope: wit::Scope,
        limit: u32,
    ) -> wasmtime::Result<Result<wit::Entries, Error>> {
        self.call.watch.may_block().await;
        let search_scope = convert_scope(scope);
        let found = self.search(
            |found: &search::Entries| found.cpu,
            |view, control| search::find(view, &search_scope, limit, control),
        );
        Ok(found.map(|found| wit::Entries {
            items: found.items.into_iter().map(convert_entry).collect(),
            ending: convert_ending(found.ending),
            skipped: convert_skipped(found.skipped),
        }))
    }

    async fn grep(
        &mut self,
        scope: wit::Scope,
        pattern: wit::LinePattern,
        limit: u32,
    ) -> wasmtime::Result<Result<wit::Lines, Error>> {
        self.call.watch.may_block().await;
        let search_scope = convert_scope(scope);
        let line_pattern = convert_pattern(pattern);
        let found = self.search(
            |found: &search::Lines| found.cpu,
            |view, control| search::grep(view, &search_scope, &line_pattern, limit, control),
        );
        Ok(found.map(|found| wit::Lines {
            items: found.items.into_iter().map(convert_line).collect(),
            files_matched: found.files_matched,
            files_searched: found.files_searched,
            ending: convert_ending(found.ending),
            skipped: convert_skipped(found.skipped),
        }))
    }

    async fn count(
        &mut self,
        scope: wit::Scope,
        pattern: wit::LinePattern,
        limit: u32,
    ) -> wasmtime::Result<Result<wit::Counts, Error>> {
        self.call.watch.may_block().await;
        let search_scope = convert_scope(scope);
        let line_pattern = convert_pattern(pattern);
        let found = self.search(
            |found: &search::SearchCounts| found.cpu,
            |view, control| search::count(view, &search_scope, &line_pattern, limit, control),
        );
        Ok(found.map(|found| wit::Counts {
            items: found.items,
            files_searched: found.files_searched,
            ending: convert_ending(found.ending),
            skipped: convert_skipped(found.skipped),
        }))
    }
}

fn convert_scope(scope: wit::Scope) -> search::Scope {
    search::Scope {
        root: scope.root,
        globs: scope.globs,
        ignore_rules: scope.ignore_rules,
        files_only: scope.files_only,
        max_depth: scope.max_depth,
    }
}

fn convert_pattern(pattern: wit::LinePattern) -> search::Pattern {
    search::Pattern {
        regex: pattern.regex,
        case_sensitive: pattern.case_sensitive,
        multiline: pattern.multiline,
        before: pattern.before,
        after: pattern.after,
    }
}

fn convert_entry(entry: search::SearchEntry) -> wit::Entry {
    let kind = match entry.kind {
        EntryKind::File => wit::Kind::File,
        EntryKind::Directory => wit::Kind::Directory,
        EntryKind::Symlink => wit::Kind::Symlink,
        EntryKind::Other => wit::Kind::Other,
    };
    wit::Entry { path: entry.path, kind, size: entry.size, modified_ms: entry.modified_ms }
}

fn convert_line(line: search::Line) -> wit::Line {
    wit::Line {
        path: line.path.to_string(),
        number: line.number,
        text: line.text,
        is_match: line.is_match,
    }
}

fn convert_ending(ending: SearchEnding) -> String {
    let name = match ending {
        SearchEnding::Complete => "complete",
        SearchEnding::Limit => "limit",
        SearchEnding::Deadline => "deadline",
        SearchEnding::Cancelled => "cancelled",
    };
    name.to_owned()
}

fn convert_skipped(skipped: search::SkipCounts) -> wit::Skipped {
    wit::Skipped { denied: skipped.denied, unreadable: skipped.unreadable, binary: skipped.binary }
}
