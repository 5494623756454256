//! Walks a tree of directories with several threads. Idle threads help with the files of a
//! directory.

use std::ffi::{CStr, OsStr};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::FileType;
use toolhold_policy::files::Kind;

use super::budget::{Budget, thread_cpu};
use super::directory::{self, Names, scratch};
use super::filter::{Filter, Verdict};
use super::folder::Folder;
use super::ignores::{IgnoreSource, Ignores};
use super::model::SkipCounts;
use super::queue::{Queue, Task};
use super::root::Root;
use toolhold_system::files::FileView;

/// Levels below the root. Deeper directories count as unreadable, because each level may need an
/// open handle.
const MAX_DEPTH: u32 = 128;

/// How long a search runs on one thread before it starts other threads. Starting a thread is faster
/// than this, so a small tree is searched without other threads.
const SINGLE_THREADED: Duration = Duration::from_micros(200);

/// Entries between two checks of the clock.
const CHECK_EVERY: u32 = 16;

#[derive(Debug)]
pub(super) struct Walk<'w> {
    pub(super) view: &'w FileView,
    pub(super) root: &'w Root,
    pub(super) filter: &'w Filter,
    pub(super) budget: &'w Budget<'w>,
    pub(super) files_only: bool,
    /// Levels below the root. 1 visits only the entries of the root itself.
    pub(super) max_depth: Option<u32>,
}

/// An entry that the filter includes and the rules allow.
#[derive(Debug)]
pub(super) struct Item<'i> {
    pub(super) folder: &'i Folder,
    pub(super) name: &'i CStr,
    pub(super) path: &'i [u8],
    /// The path below the root of the search.
    pub(super) relative_path: &'i [u8],
}

/// Receives items. Each thread has its own visitor.
pub(super) trait Visitor: Send {
    /// Visits an item. Counts an unusable item in `skipped`. Calls `on_slow_item` before slow work.
    fn visit(&mut self, item: &Item<'_>, skipped: &mut SkipCounts, on_slow_item: &mut dyn FnMut());
}

#[derive(Debug)]
pub(super) struct WalkResult<V> {
    pub(super) visitors: Vec<V>,
    pub(super) skipped: SkipCounts,
    /// CPU time of all threads except the caller's.
    pub(super) cpu: Duration,
}

impl Walk<'_> {
    /// Walks the tree. `visitor` makes a visitor for each thread. The calling thread works first,
    /// and other threads start when there is enough work.
    pub(super) fn run<V: Visitor>(&self, visitor: impl Fn() -> V + Sync) -> WalkResult<V> {
        let queue = Queue::new();
        let unreadable = u64::from(self.root.is_incomplete);
        let mut skipped = SkipCounts { unreadable, ..SkipCounts::default() };
        let mut visitors = Vec::new();
        let mut cpu = Duration::ZERO;
        thread::scope(|scope| {
            let mut others = Vec::new();
            let mut start_others = || {
                for _ in 1..self.budget.threads() {
                    queue.add_worker();
                    let builder = thread::Builder::new().name("search".to_owned());
                    let thread = builder.spawn_scoped(scope, || {
                        let worker = Worker::new(self, &queue, visitor(), None);
                        let (visitor, skipped) = worker.run(None);
                        (visitor, skipped, thread_cpu())
                    });
                    match thread {
                        Ok(thread) => others.push(thread),
                        // The system has no further thread. The search continues with the running
                        // threads.
                        Err(_) => return queue.remove_worker(),
                    }
                }
            };
            let first = Worker::new(self, &queue, visitor(), Some(&mut start_others));
            let (first_visitor, first_skipped) = first.run(Some(&self.root.folder));
            visitors.push(first_visitor);
            skipped.add(first_skipped);
            for thread in others {
                let (other_visitor, other_skipped, other_cpu) =
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                visitors.push(other_visitor);
                skipped.add(other_skipped);
                cpu += other_cpu;
            }
        });
        skipped.unreadable += self.filter.memory().map_or(0, |memory| memory.left_out());
        WalkResult { visitors, skipped, cpu }
    }
}

struct Worker<'w, V> {
    walk: &'w Walk<'w>,
    peers: PeerThreads<'w>,
    visitor: V,
    skipped: SkipCounts,
    visited: u32,
    scratch: Vec<u8>,
}

/// The other threads of the walk, as one thread sees them.
struct PeerThreads<'w> {
    queue: &'w Queue,
    /// Starts the other threads. `None` after they were started.
    start: Option<&'w mut dyn FnMut()>,
    started_at: Instant,
}

impl<'w, V: Visitor> Worker<'w, V> {
    fn new(
        walk: &'w Walk<'w>,
        queue: &'w Queue,
        visitor: V,
        start_others: Option<&'w mut dyn FnMut()>,
    ) -> Self {
        let peers = PeerThreads { queue, start: start_others, started_at: Instant::now() };
        Self {
            walk,
            peers,
            visitor,
            skipped: SkipCounts::default(),
            visited: 0,
            scratch: Vec::new(),
        }
    }

    /// Works until no work remains, starting with `first`.
    fn run(mut self, first: Option<&Arc<Folder>>) -> (V, SkipCounts) {
        // The queue must close even after a panic. Otherwise, the other threads would wait forever.
        let _close = CloseOnDrop(self.peers.queue);
        if let Some(first) = first
            && self.walk.budget.check()
        {
            self.walk_folder(first);
        }
        while let Some(task) = self.peers.queue.next(self.walk.budget) {
            match task {
                Task::Enter(parent, index) => match self.enter(&parent, index) {
                    Some(folder) => {
                        // Close the parent before the walk, unless another task still needs it.
                        drop(parent);
                        self.walk_folder(&folder);
                    }
                    None => self.skipped.unreadable += 1,
                },
                Task::Help(folder) => {
                    folder.offered.store(false, Ordering::Relaxed);
                    self.visit_files(&folder);
                }
            }
        }
        (self.visitor, self.skipped)
    }

    /// Opens the directory of an entry. Returns `None` if it can't be read or was moved.
    fn enter(&mut self, parent: &Folder, index: usize) -> Option<Arc<Folder>> {
        let name = parent.names.name(index);
        let fd = directory::open_directory(parent.as_fd(), name).ok()?;
        let length_with_slash = parent.prefix.len() + name.count_bytes() + "/".len();
        let mut path = Vec::with_capacity(length_with_slash);
        path.extend_from_slice(&parent.prefix);
        path.extend_from_slice(name.to_bytes());
        // The rules allowed only this path, and not the new path of a moved directory.
        if !directory::is_at(fd.as_fd(), &path) {
            return None;
        }
        self.walk.view.record_at(&path, fd.as_fd());
        path.push(b'/');
        let (names, is_complete) = Names::read(fd.as_fd(), scratch(&mut self.scratch));
        if !is_complete {
            self.skipped.unreadable += 1;
        }
        let mut ignores = parent.ignores.clone();
        if let Some(memory) = self.walk.filter.memory() {
            let source =
                IgnoreSource { view: self.walk.view, dir: fd.as_fd(), prefix: &path, memory };
            ignores = Ignores::from_entries(source, &names, ignores);
        }
        Some(Arc::new(Folder::new(fd, path, parent.depth + 1, ignores, names)))
    }

    fn walk_folder(&mut self, folder: &Arc<Folder>) {
        if self.walk.max_depth.is_none_or(|max| folder.depth < max) {
            self.visit_directories(folder);
            self.visit_files(folder);
        }
    }

    /// Visits the directories in a folder, and queues each directory for a thread to enter.
    fn visit_directories(&mut self, folder: &Arc<Folder>) {
        let mut tasks = Vec::new();
        let mut path = folder.prefix.clone();
        for index in 0..folder.names.len() {
            let kind = folder.names.kind(index);
            if kind != FileType::Directory {
                continue;
            }
            if !self.should_continue() {
                return;
            }
            let name = folder.names.name(index);
            path.truncate(folder.prefix.len());
            path.extend_from_slice(name.to_bytes());
            let may_enter = self.visit_entry(folder, name, kind, &path);
            let depth = folder.depth + 1;
            let is_at_limit = self.walk.max_depth.is_some_and(|max| depth >= max);
            if !may_enter || is_at_limit {
                continue;
            }
            if depth >= MAX_DEPTH {
                self.skipped.unreadable += 1;
            } else {
                tasks.push(Task::Enter(Arc::clone(folder), index));
            }
        }
        if !tasks.is_empty() {
            self.skipped.unreadable += self.peers.queue.push(&mut tasks);
            self.peers.start_if_due();
        }
    }

    /// Visits the entries of a folder that aren't directories. Each is visited once, even if other
    /// threads help.
    fn visit_files(&mut self, folder: &Arc<Folder>) {
        let mut path = folder.prefix.clone();
        while let Some(index) = folder.take_file() {
            if !self.should_continue() {
                return;
            }
            let kind = folder.names.kind(index);
            if self.walk.files_only && kind != FileType::RegularFile {
                continue;
            }
            if folder.has_more() {
                self.peers.offer(folder);
            }
            let name = folder.names.name(index);
            path.truncate(folder.prefix.len());
            path.extend_from_slice(name.to_bytes());
            self.visit_entry(folder, name, kind, &path);
        }
    }

    /// Visits an entry if the filter includes it and the rules allow it. `path` is the real path of
    /// the entry. Returns whether the content of a directory may be visited.
    fn visit_entry(
        &mut self,
        folder: &Arc<Folder>,
        name: &CStr,
        kind: FileType,
        path: &[u8],
    ) -> bool {
        let relative_path = &path[self.walk.root.folder.prefix.len()..];
        let verdict = self.walk.filter.decide(folder, name.to_bytes(), relative_path, path, kind);
        if verdict == Verdict::Exclude {
            return false;
        }
        let rule_kind = if kind == FileType::Directory { Kind::Directory } else { Kind::Other };
        if self.walk.view.leaves_out(Path::new(OsStr::from_bytes(path)), rule_kind) {
            self.skipped.denied += 1;
            return false;
        }
        let is_unwanted_directory = self.walk.files_only && kind == FileType::Directory;
        if verdict == Verdict::Include && !is_unwanted_directory {
            let item = Item { folder, name, path, relative_path };
            let peers = &mut self.peers;
            self.visitor.visit(&item, &mut self.skipped, &mut || peers.offer_now(folder));
        }
        true
    }

    /// Checks whether the search may continue. Only some calls check the time, which is slow.
    fn should_continue(&mut self) -> bool {
        self.visited = self.visited.wrapping_add(1);
        if self.visited.is_multiple_of(CHECK_EVERY) {
            self.walk.budget.check()
        } else {
            !self.walk.budget.has_ended()
        }
    }
}

impl PeerThreads<'_> {
    /// Asks for help with the files of `folder` if a thread is idle.
    fn offer(&mut self, folder: &Arc<Folder>) {
        self.start_if_due();
        if self.queue.has_idle_worker() {
            self.queue_help(folder);
        }
    }

    /// Asks other threads for help at once, because this thread will be busy for a long time.
    fn offer_now(&mut self, folder: &Arc<Folder>) {
        if let Some(start) = self.start.take() {
            start();
        }
        if folder.has_more() {
            self.queue_help(folder);
        }
    }

    /// Starts the other threads if the search takes long.
    fn start_if_due(&mut self) {
        let is_due = self.start.is_some() && self.started_at.elapsed() >= SINGLE_THREADED;
        if is_due && let Some(start) = self.start.take() {
            start();
        }
    }

    fn queue_help(&self, folder: &Arc<Folder>) {
        if !folder.offered.swap(true, Ordering::Relaxed) {
            self.queue.push(&mut vec![Task::Help(Arc::clone(folder))]);
        }
    }
}

struct CloseOnDrop<'q>(&'q Queue);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}
