//! Shares the tasks of a search among its threads. The tasks are a stack, so that the walk is
//! depth-first and few directories are open at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::budget::Budget;
use super::folder::Folder;

/// The most directories in the queue. Further directories are counted as unreadable. This limits
/// the memory that a hostile tree can use.
const MAX_PENDING: usize = 1 << 20;

/// A unit of work.
#[derive(Debug)]
pub(super) enum Task {
    /// Enter the directory that this entry names.
    Enter(Arc<Folder>, usize),
    /// Help with the files of a folder that another thread works on.
    Help(Arc<Folder>),
}

/// The shared stack of tasks.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// A copy of `waiting` that is read without the lock.
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
    /// Makes an empty queue with one worker, which already has its first folder.
    pub(super) fn new() -> Self {
        let state = State { tasks: Vec::new(), workers: 1, waiting: 0, closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), idle: AtomicUsize::new(0) }
    }

    /// Takes the newest task. If the queue is empty, waits while other workers are busy. Returns
    /// `None` if all work is done or the search has ended.
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
                // All other workers wait too, so there will be no further task.
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

    /// Adds tasks, and empties the list. Returns the number of tasks that didn't fit.
    pub(super) fn push(&self, tasks: &mut Vec<Task>) -> u64 {
        let mut state = self.lock();
        let added = tasks.len().min(MAX_PENDING - state.tasks.len());
        let dropped = tasks.len() - added;
        state.tasks.extend(tasks.drain(..).take(added));
        match added.min(state.waiting) {
            0 => {}
            1 => self.changed.notify_one(),
            _ => self.changed.notify_all(),
        }
        dropped as u64
    }

    /// Checks whether a worker waits for a task.
    pub(super) fn has_idle_worker(&self) -> bool {
        self.idle.load(Ordering::Relaxed) > 0
    }

    /// Adds a worker. Only a busy worker calls this, so the queue can't close at the same time.
    pub(super) fn add_worker(&self) {
        self.lock().workers += 1;
    }

    /// Undoes [`add_worker`](Self::add_worker) for a worker whose thread couldn't be started.
    pub(super) fn remove_worker(&self) {
        self.lock().workers -= 1;
    }

    /// Closes the queue, so that waiting workers return.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Code that has the lock never panics. Even after a panic, the state would be consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
