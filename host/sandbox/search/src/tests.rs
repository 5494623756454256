//! Searches that end early, and the threads of a search.

use std::collections::HashSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use grep_searcher::{Searcher, Sink, SinkMatch};
use tempfile::TempDir;
use toolhold_contract::{Access, CancellationToken};
use toolhold_policy::files::Grant;

use super::budget::Budget;
use super::engine::{self, Engine, FileSink};
use super::model::{Control, Pattern, Scope, SearchEnding, SkipCounts};
use super::root;
use super::walk::{Item, Visitor, Walk, WalkResult};
use toolhold_system::files::{FileView, Grants};

fn tree() -> (TempDir, FileView, Scope) {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let grant =
        Grant { path: dir.path().to_owned(), access: Access::Read, place: "the test".into() };
    let grants = Grants::open(vec![grant], Vec::new(), |rules| rules).expect("the grant");
    let scope = Scope { root: dir.path().to_str().expect("UTF-8").to_owned(), ..Scope::default() };
    (dir, FileView::new(Arc::new(grants), true), scope)
}

/// A tree of `files` files, 50 in each directory.
fn wide_tree(files: usize) -> (TempDir, FileView, Scope) {
    let (dir, view, scope) = tree();
    for n in 0..files {
        let folder = dir.path().join((n / 50).to_string());
        fs::create_dir_all(&folder)
            .and_then(|()| fs::write(folder.join(n.to_string()), "needle\n"))
            .expect("a file");
    }
    (dir, view, scope)
}

fn control(threads: usize) -> Control {
    Control {
        deadline: Instant::now() + Duration::from_secs(60),
        cancel: CancellationToken::new(),
        threads,
    }
}

/// Calls a function for each item, and reports each item as slow.
struct SlowVisitor<F>(F);

impl<F: Fn() + Send> Visitor for SlowVisitor<F> {
    fn visit(
        &mut self,
        _item: &Item<'_>,
        _skipped: &mut SkipCounts,
        on_slow_item: &mut dyn FnMut(),
    ) {
        on_slow_item();
        (self.0)();
    }
}

fn walk<F: Fn() + Send + Copy + Sync>(
    view: &FileView,
    scope: &Scope,
    budget: &Budget<'_>,
    each: F,
) -> WalkResult<SlowVisitor<F>> {
    let (root, filter) = root::open(view, scope, 2).expect("the root");
    let walk =
        Walk { view, root: &root, filter: &filter, budget, files_only: true, max_depth: None };
    walk.run(|| SlowVisitor(each))
}

#[test]
fn cancelled_walk_stops_soon() {
    let (_dir, view, scope) = wide_tree(1_000);
    for threads in [1, 4] {
        let control = control(threads);
        let budget = Budget::new(&control, 10_000);
        let seen = AtomicUsize::new(0);
        walk(&view, &scope, &budget, || {
            if seen.fetch_add(1, Ordering::Relaxed) == 100 {
                control.cancel.cancel();
            }
        });
        let seen = seen.into_inner();
        assert_eq!(budget.ending(), SearchEnding::Cancelled);
        // Each thread checks the token every 16 entries.
        assert!((101..=101 + 16 * threads).contains(&seen), "{seen} with {threads} threads");
    }
}

#[test]
fn every_file_is_visited_once() {
    let (_dir, view, scope) = wide_tree(500);
    for threads in [1, 2, 8] {
        let control = control(threads);
        let seen = AtomicUsize::new(0);
        walk(&view, &scope, &Budget::new(&control, 10_000), || {
            seen.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(seen.into_inner(), 500, "{threads} threads");
    }
}

#[test]
fn panic_in_one_thread_ends_the_others() {
    let (_dir, view, scope) = wide_tree(200);
    for threads in [1, 2, 8] {
        let control = control(threads);
        let budget = Budget::new(&control, 10_000);
        let seen = AtomicUsize::new(0);
        let each = || assert!(seen.fetch_add(1, Ordering::Relaxed) < 150, "the panic of this test");
        let outcome = catch_unwind(AssertUnwindSafe(|| walk(&view, &scope, &budget, each)));
        assert!(outcome.is_err(), "{threads} threads");
    }
}

/// Searches a tree of slow files. Returns how many threads ran, and the CPU time of all threads but
/// the caller's.
fn long_walk(view: &FileView, scope: &Scope, threads: usize) -> (usize, Duration) {
    let control = control(threads);
    let ids = Mutex::new(HashSet::new());
    let walked = walk(view, scope, &Budget::new(&control, 10_000), || {
        let add_own_id = |ids: &mut HashSet<_>| {
            ids.insert(thread::current().id());
            ids.len()
        };
        // Waits until all threads run, at most a minute.
        let waiting_since = Instant::now();
        while add_own_id(&mut ids.lock().expect("no panic")) < threads
            && waiting_since.elapsed() < Duration::from_secs(60)
        {
            thread::yield_now();
        }
    });
    let threads = ids.lock().expect("no panic").len();
    (threads, walked.cpu)
}

#[test]
fn idle_threads_help_with_files_and_directories() {
    let (flat, flat_view, flat_scope) = tree();
    for n in 0..10 {
        fs::write(flat.path().join(n.to_string()), "").expect("a file");
    }
    let (_wide, wide_view, wide_scope) = wide_tree(500);
    for (view, scope) in [(flat_view, flat_scope), (wide_view, wide_scope)] {
        let (threads, cpu) = long_walk(&view, &scope, 3);
        assert_eq!(threads, 3);
        assert!(cpu > Duration::ZERO);
        assert_eq!(long_walk(&view, &scope, 1), (1, Duration::ZERO));
    }
}

#[test]
fn few_directories_are_open_at_a_time() {
    let (dir, view, scope) = tree();
    for n in 0..1_000 {
        let folder = dir.path().join(n.to_string());
        fs::create_dir(&folder).and_then(|()| fs::write(folder.join("file"), "")).expect("a file");
    }
    let control = control(2);
    let most = AtomicUsize::new(0);
    walk(&view, &scope, &Budget::new(&control, 10_000), || {
        most.fetch_max(
            fs::read_dir("/proc/self/fd").map_or(usize::MAX, Iterator::count),
            Ordering::Relaxed,
        );
    });
    // Other tests have open files too.
    assert!(most.into_inner() < 300);
}

/// Cancels the search at the first match.
struct CancelAtMatch<'c> {
    control: &'c Control,
    matches: usize,
}

impl Sink for CancelAtMatch<'_> {
    type Error = std::io::Error;

    fn matched(&mut self, _searcher: &Searcher, _found: &SinkMatch<'_>) -> std::io::Result<bool> {
        self.control.cancel.cancel();
        self.matches += 1;
        Ok(true)
    }
}

impl FileSink for CancelAtMatch<'_> {
    fn is_binary(&self) -> bool {
        false
    }
}

#[test]
fn cancelled_search_stops_inside_a_file() {
    let (dir, view, scope) = tree();
    let lines = 200_000;
    fs::write(dir.path().join("file"), "needle\n".repeat(lines)).expect("a file");
    let control = control(1);
    let budget = Budget::new(&control, 10_000);
    let pattern =
        Pattern { regex: "needle".to_owned(), case_sensitive: true, ..Pattern::default() };
    let compiled = engine::compile(&pattern).expect("a regex");
    let mut engine = Engine::new(&compiled, &pattern, &view, &budget);
    let (root, _) = root::open(&view, &scope, 2).expect("the root");
    let mut sink = CancelAtMatch { control: &control, matches: 0 };
    let mut skipped = SkipCounts::default();
    let path = [&root.folder.prefix, &b"file"[..]].concat();
    engine.search(
        &Item { folder: &root.folder, name: c"file", path: &path, relative_path: b"file" },
        &mut sink,
        &mut skipped,
        &mut || (),
    );
    assert_eq!(budget.ending(), SearchEnding::Cancelled);
    assert_eq!((engine.searched, skipped.unreadable), (0, 0));
    // At most the matches in one buffer.
    assert!((1..=(64 << 10) / 7 + 1).contains(&sink.matches), "{}", sink.matches);
}
