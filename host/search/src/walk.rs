//! The walk: threads that share a stack of directories, and the files of a directory where others
//! have nothing to do.

use std::ffi::{CStr, OsStr};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use berth_policy::files::Kind;
use rustix::fs::FileType;

use super::budget::{Budget, thread_cpu};
use super::directory::{self, Names, scratch};
use super::filter::{Filter, Verdict};
use super::folder::Folder;
use super::ignores::{Ignores, Place};
use super::model::SkipCounts;
use super::queue::{Queue, Task};
use super::root::Root;
use berth_system::files::FileView;

/// How deep a walk goes below its root. Every level may hold a handle.
const MAX_DEPTH: u32 = 128;

/// How long a search runs before it starts threads: longer than it takes to start one, so that a
/// small tree stays cheap.
const ALONE: Duration = Duration::from_micros(200);

/// How many entries are visited between two looks at the clock.
const CHECK_EVERY: u32 = 16;

/// Everything that the threads of a walk share.
#[derive(Debug)]
pub(super) struct Walk<'w> {
    pub(super) view: &'w FileView,
    pub(super) root: &'w Root,
    pub(super) filter: &'w Filter,
    pub(super) budget: &'w Budget<'w>,
    /// Visit regular files only.
    pub(super) files_only: bool,
    /// 1: what is directly in the root.
    pub(super) max_depth: Option<u32>,
}

/// An entry that the search is after and that may be read, as far as the rules go.
#[derive(Debug)]
pub(super) struct Item<'i> {
    pub(super) folder: &'i Folder,
    pub(super) name: &'i CStr,
    /// The real path.
    pub(super) path: &'i [u8],
    /// The path below the root.
    pub(super) rest: &'i [u8],
}

/// What is done with each item. Every thread has its own.
pub(super) trait Visitor: Send {
    /// Looks at an item; what can't be used is counted in `skipped`. Calls `before_long` when it
    /// knows that this will take a while.
    fn visit(&mut self, item: &Item<'_>, skipped: &mut SkipCounts, before_long: &mut dyn FnMut());
}

/// What a walk leaves behind.
#[derive(Debug)]
pub(super) struct WalkResult<V> {
    /// One for each thread that ran.
    pub(super) visitors: Vec<V>,
    pub(super) skipped: SkipCounts,
    /// CPU time of the threads beside the caller's.
    pub(super) cpu: Duration,
}

impl Walk<'_> {
    /// Walks. `visitor` makes one visitor for each thread; the calling thread is the first, others
    /// start when there is work for them.
    pub(super) fn run<V: Visitor>(&self, visitor: impl Fn() -> V + Sync) -> WalkResult<V> {
        let queue = Queue::new();
        let mut skipped =
            SkipCounts { unreadable: u64::from(self.root.is_cut), ..SkipCounts::default() };
        let mut visitors = Vec::new();
        let mut cpu = Duration::ZERO;
        thread::scope(|scope| {
            let mut others = Vec::new();
            let mut start_others = || {
                for _ in 1..self.budget.threads() {
                    queue.join();
                    let other = || {
                        let worker = Worker::new(self, &queue, visitor(), None);
                        (worker.run(None), thread_cpu())
                    };
                    match thread::Builder::new()
                        .name("search".to_owned())
                        .spawn_scoped(scope, other)
                    {
                        Ok(other) => others.push(other),
                        // The search goes on with those that there are.
                        Err(_) => return queue.unjoin(),
                    }
                }
            };
            let (own, met) = Worker::new(self, &queue, visitor(), Some(&mut start_others))
                .run(Some(&self.root.folder));
            visitors.push(own);
            skipped.add(met);
            for other in others {
                let ((visitor, met), used) =
                    other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                visitors.push(visitor);
                skipped.add(met);
                cpu += used;
            }
        });
        skipped.unreadable += self.filter.room().map_or(0, |room| room.left_out());
        WalkResult { visitors, skipped, cpu }
    }
}

/// One thread of a walk.
struct Worker<'w, V> {
    walk: &'w Walk<'w>,
    others: PeerThreads<'w>,
    visitor: V,
    skipped: SkipCounts,
    visited: u32,
    scratch: Vec<u8>,
}

/// The other threads, as one of them sees them.
struct PeerThreads<'w> {
    queue: &'w Queue,
    /// Starts them; empty once they run.
    start: Option<&'w mut dyn FnMut()>,
    began: Instant,
}

impl<'w, V: Visitor> Worker<'w, V> {
    fn new(
        walk: &'w Walk<'w>,
        queue: &'w Queue,
        visitor: V,
        start_others: Option<&'w mut dyn FnMut()>,
    ) -> Self {
        let others = PeerThreads { queue, start: start_others, began: Instant::now() };
        Self {
            walk,
            others,
            visitor,
            skipped: SkipCounts::default(),
            visited: 0,
            scratch: Vec::new(),
        }
    }

    /// Works until there is nothing left, beginning with `first`.
    fn run(mut self, first: Option<&Arc<Folder>>) -> (V, SkipCounts) {
        // Runs in a panic too: the others would wait for ever.
        let _close = CloseOnDrop(self.others.queue);
        if let Some(first) = first
            && self.walk.budget.check()
        {
            self.work_on(first);
        }
        while let Some(task) = self.others.queue.next(self.walk.budget) {
            match task {
                Task::Enter(parent, index) => match self.enter(&parent, index) {
                    Some(folder) => {
                        drop(parent);
                        self.work_on(&folder);
                    }
                    None => self.skipped.unreadable += 1,
                },
                Task::Help(folder) => {
                    folder.offered.store(false, Ordering::Relaxed);
                    self.files(&folder);
                }
            }
        }
        (self.visitor, self.skipped)
    }

    /// Opens the directory that an entry names. `None`: it can't be read, or is not where it was.
    fn enter(&mut self, parent: &Folder, index: usize) -> Option<Arc<Folder>> {
        let name = parent.names.name(index);
        let fd = directory::open_directory(parent.as_fd(), name).ok()?;
        let mut path = Vec::with_capacity(parent.prefix.len() + name.count_bytes() + 1);
        path.extend_from_slice(&parent.prefix);
        path.extend_from_slice(name.to_bytes());
        // The rules have allowed this path; a directory that was moved meanwhile lies at one that
        // they were not asked about.
        if !directory::lies_at(fd.as_fd(), &path) {
            return None;
        }
        self.walk.view.record_at(&path, fd.as_fd());
        path.push(b'/');
        let (names, whole) = Names::read(fd.as_fd(), scratch(&mut self.scratch));
        self.skipped.unreadable += u64::from(!whole);
        let mut ignores = parent.ignores.clone();
        if let Some(room) = self.walk.filter.room() {
            let place = Place { view: self.walk.view, dir: fd.as_fd(), prefix: &path, room };
            ignores = Ignores::from_entries(place, &names, ignores);
        }
        Some(Arc::new(Folder::new(fd, path, parent.depth + 1, ignores, names)))
    }

    fn work_on(&mut self, folder: &Arc<Folder>) {
        if self.walk.max_depth.is_none_or(|max| folder.depth < max) {
            self.directories(folder);
            self.files(folder);
        }
    }

    /// Puts the directories of a folder up for everyone.
    fn directories(&mut self, folder: &Arc<Folder>) {
        let mut tasks = Vec::new();
        let mut path = folder.prefix.clone();
        for index in 0..folder.names.len() {
            let kind = folder.names.kind(index);
            if kind != FileType::Directory {
                continue;
            }
            if !self.goes_on() {
                return;
            }
            let name = folder.names.name(index);
            path.truncate(folder.prefix.len());
            path.extend_from_slice(name.to_bytes());
            if !self.consider(folder, name, kind, &path) {
                continue;
            }
            match folder.depth + 1 {
                depth if self.walk.max_depth.is_some_and(|max| depth >= max) => {}
                depth if depth >= MAX_DEPTH => self.skipped.unreadable += 1,
                _ => tasks.push(Task::Enter(Arc::clone(folder), index)),
            }
        }
        if !tasks.is_empty() {
            self.skipped.unreadable += self.others.queue.put(&mut tasks);
            self.others.start_in_time();
        }
    }

    /// Visits what else is in a folder, each entry once, whoever helps.
    fn files(&mut self, folder: &Arc<Folder>) {
        let mut path = folder.prefix.clone();
        while let Some(index) = folder.take_file() {
            if !self.goes_on() {
                return;
            }
            let kind = folder.names.kind(index);
            if self.walk.files_only && kind != FileType::RegularFile {
                continue;
            }
            if folder.has_more() {
                self.others.offer(folder);
            }
            let name = folder.names.name(index);
            path.truncate(folder.prefix.len());
            path.extend_from_slice(name.to_bytes());
            self.consider(folder, name, kind, &path);
        }
    }

    /// Visits an entry that is wanted and allowed. False: neither it nor what may be in it is for
    /// this search.
    fn consider(&mut self, folder: &Arc<Folder>, name: &CStr, kind: FileType, path: &[u8]) -> bool {
        let rest = &path[self.walk.root.folder.prefix.len()..];
        let verdict = self.walk.filter.decide(folder, name.to_bytes(), rest, path, kind);
        if verdict == Verdict::Out {
            return false;
        }
        let rule_kind = if kind == FileType::Directory { Kind::Directory } else { Kind::Other };
        if self.walk.view.leaves_out(Path::new(OsStr::from_bytes(path)), rule_kind) {
            self.skipped.denied += 1;
            return false;
        }
        if verdict == Verdict::In && !(self.walk.files_only && kind == FileType::Directory) {
            let others = &mut self.others;
            self.visitor.visit(&Item { folder, name, path, rest }, &mut self.skipped, &mut || {
                others.offer_now(folder);
            });
        }
        true
    }

    /// Whether the search goes on; every few entries the clock is asked.
    fn goes_on(&mut self) -> bool {
        self.visited = self.visited.wrapping_add(1);
        if self.visited.is_multiple_of(CHECK_EVERY) {
            self.walk.budget.check()
        } else {
            !self.walk.budget.has_ended()
        }
    }
}

impl PeerThreads<'_> {
    /// Asks for help with the files of `folder` where someone has nothing to do.
    fn offer(&mut self, folder: &Arc<Folder>) {
        self.start_in_time();
        if self.queue.is_hungry() {
            self.put_up(folder);
        }
    }

    /// The same, where this thread is about to be busy for long.
    fn offer_now(&mut self, folder: &Arc<Folder>) {
        if let Some(start) = self.start.take() {
            start();
        }
        if folder.has_more() {
            self.put_up(folder);
        }
    }

    /// Starts the other threads once the search has run for a while.
    fn start_in_time(&mut self) {
        if self.start.is_some()
            && self.began.elapsed() >= ALONE
            && let Some(start) = self.start.take()
        {
            start();
        }
    }

    fn put_up(&self, folder: &Arc<Folder>) {
        if !folder.offered.swap(true, Ordering::Relaxed) {
            self.queue.put(&mut vec![Task::Help(Arc::clone(folder))]);
        }
    }
}

struct CloseOnDrop<'q>(&'q Queue);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}
