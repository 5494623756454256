//! The work that the threads of a search share: a stack, so that the walk goes deep first and few
//! directories are open at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::budget::Budget;
use super::folder::Folder;

/// The most directories that wait to be entered; more are counted as unreadable. Bounds the memory
/// that a hostile tree can take.
const MAX_PENDING: usize = 1 << 20;

/// Something to do.
#[derive(Debug)]
pub(super) enum Task {
    /// Enter the directory that this entry names.
    Enter(Arc<Folder>, usize),
    /// Help with the files of a folder that another thread has begun.
    Help(Arc<Folder>),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// How many threads wait; a copy that is read without the lock.
    idle: AtomicUsize,
}

#[derive(Debug)]
struct State {
    tasks: Vec<Task>,
    workers: usize,
    waiting: usize,
    closed: bool,
}

impl Queue {
    /// An empty queue with one worker, who has the first work in hand.
    pub(super) fn new() -> Self {
        let state = State { tasks: Vec::new(), workers: 1, waiting: 0, closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), idle: AtomicUsize::new(0) }
    }

    /// Takes what was put in last, and waits for it where others still work. `None`: everything is
    /// done, or the search has ended.
    pub(super) fn next(&self, budget: &Budget<'_>) -> Option<Task> {
        let mut state = self.lock();
        loop {
            if state.closed || budget.has_ended() {
                return None;
            }
            if let Some(task) = state.tasks.pop() {
                return Some(task);
            }
            if state.waiting + 1 == state.workers {
                // Nobody is left who could put something in.
                state.closed = true;
                self.changed.notify_all();
                return None;
            }
            state.waiting += 1;
            self.idle.store(state.waiting, Ordering::Relaxed);
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
            self.idle.store(state.waiting, Ordering::Relaxed);
        }
    }

    /// Puts tasks in. Returns how many there was no room for.
    pub(super) fn put(&self, tasks: &mut Vec<Task>) -> u64 {
        let mut state = self.lock();
        let fitting = tasks.len().min(MAX_PENDING - state.tasks.len());
        let dropped = tasks.len() - fitting;
        state.tasks.extend(tasks.drain(..).take(fitting));
        match fitting.min(state.waiting) {
            0 => {}
            1 => self.changed.notify_one(),
            _ => self.changed.notify_all(),
        }
        dropped as u64
    }

    /// Whether a thread waits for work.
    pub(super) fn is_hungry(&self) -> bool {
        self.idle.load(Ordering::Relaxed) > 0
    }

    /// Counts one more worker. Called by a worker, so that the queue can't be done in between.
    pub(super) fn join(&self) {
        self.lock().workers += 1;
    }

    /// Undoes [`join`](Self::join) for a worker that could not be started.
    pub(super) fn unjoin(&self) {
        self.lock().workers -= 1;
    }

    /// Lets nobody wait any more.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock; what is behind it is whole either way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
