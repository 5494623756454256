//! Shares the tasks of a search among its threads. The newest task is taken first. So the walk is
//! depth-first, and few directories are open at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::budget::Budget;
use super::folder::Folder;

/// Directories in the queue. Further directories count as unreadable. This limits the memory for a
/// hostile tree.
const MAX_PENDING: usize = 1 << 20;

#[derive(Debug)]
pub(super) enum Task {
    /// Enter the directory with this index in the folder.
    Enter(Arc<Folder>, usize),
    /// Help with the files of a folder that another thread visits.
    Help(Arc<Folder>),
}

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

    /// Takes the newest task. Waits if the queue is empty while other workers are busy. Returns
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
            let waiting_with_this_worker = state.waiting + 1;
            if waiting_with_this_worker == state.workers {
                // All other workers wait too, so no further task can come.
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

    /// Moves `tasks` into the queue. Returns the number of tasks that didn't fit.
    pub(super) fn push(&self, tasks: &mut Vec<Task>) -> u64 {
        let mut state = self.lock();
        let added = tasks.len().min(MAX_PENDING - state.tasks.len());
        let dropped = tasks.len() - added;
        state.tasks.extend(tasks.drain(..).take(added));
        let needed_workers = added.min(state.waiting);
        match needed_workers {
            0 => {}
            1 => self.changed.notify_one(),
            _ => self.changed.notify_all(),
        }
        dropped as u64
    }

    pub(super) fn has_idle_worker(&self) -> bool {
        self.idle.load(Ordering::Relaxed) > 0
    }

    /// Adds a worker. Only a busy worker may call this, because the queue closes when all workers
    /// wait.
    pub(super) fn add_worker(&self) {
        self.lock().workers += 1;
    }

    /// Undoes [`add_worker`](Self::add_worker) if the worker's thread can't be started.
    pub(super) fn remove_worker(&self) {
        self.lock().workers -= 1;
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Code with this lock never panics. Even after a panic, the state would be valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
