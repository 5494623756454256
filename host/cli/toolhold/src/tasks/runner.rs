//! Runs a user's tasks, in one process at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use toolhold_core::text::counted;
use toolhold_core::{CancellationToken, HostError};
use toolhold_schedule::{ClaimedRun, INTERRUPTED, RunEnd, RunResult, Schedule, ScheduleError};

/// The longest wait for runs to stop. Runs that haven't stopped are recorded as interrupted.
const MAX_WAIT_FOR_RUNS: Duration = Duration::from_secs(10);

/// The delay after a failure, for example of a full disk.
const RETRY_DELAY: Duration = Duration::from_secs(30);

/// Runs a task, and blocks until the run ends. The token ends the run early.
pub(crate) type RunTask = Arc<dyn Fn(&ClaimedRun, CancellationToken) -> RunResult + Send + Sync>;

/// Runs a user's tasks. If another process runs the tasks, waits until that process ends. Dropping
/// the runner ends the runs, and waits up to [`MAX_WAIT_FOR_RUNS`] for them.
pub(crate) struct TaskRunner {
    shared: Arc<Shared>,
}

struct Shared {
    schedule: Schedule,
    run: RunTask,
    max_running: usize,
    shutdown: CancellationToken,
    /// Called when this process takes over the tasks.
    on_start: Box<dyn Fn() + Send + Sync>,
    running: Mutex<Vec<RunningTask>>,
    run_ended: Condvar,
}

struct RunningTask {
    id: i64,
    cancel: CancellationToken,
}

impl TaskRunner {
    /// Starts a thread that runs at most `max_running` tasks at the same time. `on_start` is called
    /// when this process takes over the tasks.
    pub(crate) fn start(
        schedule: Schedule,
        max_running: usize,
        run: RunTask,
        on_start: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Self, HostError> {
        let shared = Arc::new(Shared {
            schedule,
            run,
            // With a limit of 0, no task would run.
            max_running: max_running.max(1),
            shutdown: CancellationToken::new(),
            on_start,
            running: Mutex::default(),
            run_ended: Condvar::new(),
        });
        let for_thread = Arc::clone(&shared);
        thread::Builder::new()
            .name("tasks".to_owned())
            .spawn(move || for_thread.watch())
            .map_err(HostError::io("the thread that runs tasks can't be started"))?;
        Ok(Self { shared })
    }
}

impl Drop for TaskRunner {
    fn drop(&mut self) {
        self.shared.shutdown.cancel();
        // The alarm wakes `run_all`, which then ends and releases its lock.
        self.shared.schedule.ring();
        let running = self.shared.running();
        // Runs that haven't stopped are recorded as interrupted.
        let run_ended = &self.shared.run_ended;
        drop(run_ended.wait_timeout_while(running, MAX_WAIT_FOR_RUNS, |runs| !runs.is_empty()));
    }
}

impl Shared {
    /// Runs tasks until `self.shutdown` is cancelled. After an error, tries again later.
    fn watch(self: &Arc<Self>) {
        while !self.shutdown.is_cancelled() {
            if let Err(error) = self.run_all() {
                tracing::error!("tasks don't run: {error}; the next attempt is in {RETRY_DELAY:?}");
                thread::sleep(RETRY_DELAY);
            }
        }
    }

    /// Runs tasks when they are due, after waiting for the lock that only one process can have.
    fn run_all(self: &Arc<Self>) -> Result<(), ScheduleError> {
        let _lock = self.schedule.become_runner()?;
        let alarm = self.schedule.alarm()?;
        if !self.shutdown.is_cancelled() {
            (self.on_start)();
        }
        let interrupted = self.schedule.take_over(Timestamp::now())?;
        if interrupted > 0 {
            let runs = counted(interrupted, "interrupted run");
            tracing::warn!(
                "an earlier process left {runs} of tasks; interrupted runs aren't repeated"
            );
        }
        while !self.shutdown.is_cancelled() {
            let now = Timestamp::now();
            self.end_removed()?;
            let is_at_limit = self.start_due(now)?;
            // At the limit, the alarm needs no time, because the end of a run wakes the loop.
            let wake_at =
                if is_at_limit { None } else { self.schedule.next_due(&self.running_ids())? };
            alarm.set(wake_at, now).map_err(ScheduleError::Alarm)?;
            alarm.wait().map_err(ScheduleError::Alarm)?;
        }
        Ok(())
    }

    fn end_removed(&self) -> Result<(), ScheduleError> {
        let removed = self.schedule.removed(&self.running_ids())?;
        for task in &*self.running() {
            if removed.contains(&task.id) {
                task.cancel.cancel();
            }
        }
        Ok(())
    }

    /// Starts the due tasks. Returns whether `max_running` is reached.
    fn start_due(self: &Arc<Self>, now: Timestamp) -> Result<bool, ScheduleError> {
        loop {
            let running = self.running_ids();
            if running.len() >= self.max_running {
                return Ok(true);
            }
            let Some(run) = self.schedule.claim(now, &running)? else { return Ok(false) };
            let is_started = self.schedule.start(&run, now)?;
            // The task may have been removed in the meantime, so it doesn't run.
            if is_started {
                self.start_thread(&run, now)?;
            }
        }
    }

    /// Starts a run in a thread. The run fails if no thread can be started.
    fn start_thread(
        self: &Arc<Self>,
        run: &ClaimedRun,
        now: Timestamp,
    ) -> Result<(), ScheduleError> {
        let cancel = self.shutdown.child_token();
        self.running().push(RunningTask { id: run.task, cancel: cancel.clone() });
        let shared = Arc::clone(self);
        let thread_run = run.clone();
        let thread = thread::Builder::new()
            .name("task".to_owned())
            .spawn(move || shared.carry_out(&thread_run, cancel));
        if let Err(error) = thread {
            let output = format!("no thread can be started for the run: {error}");
            self.schedule.end(run, &RunResult { end: RunEnd::Failed, output }, now)?;
            self.remove_running(run.task);
        }
        Ok(())
    }

    /// Makes a run, and records its result. A panic is recorded as a failure.
    fn carry_out(&self, run: &ClaimedRun, cancel: CancellationToken) {
        let caught = catch_unwind(AssertUnwindSafe(|| (self.run)(run, cancel)));
        let mut result = caught.unwrap_or_else(|_| RunResult {
            end: RunEnd::Failed,
            output: "Toolhold itself failed during the run; see the log".to_owned(),
        });
        if result.end == RunEnd::Failed && self.shutdown.is_cancelled() {
            // The end of this process made the run fail.
            result.end = RunEnd::Interrupted;
            result.output = format!("{INTERRUPTED}\n{}", result.output);
        }
        if let Err(error) = self.schedule.end(run, &result, Timestamp::now()) {
            tracing::error!("the result of a run of the task {} is lost: {error}", run.name);
        }
        self.remove_running(run.task);
        // The alarm wakes `run_all`, which can now start another task.
        self.schedule.ring();
    }

    fn remove_running(&self, id: i64) {
        self.running().retain(|task| task.id != id);
        self.run_ended.notify_all();
    }

    fn running_ids(&self) -> Vec<i64> {
        self.running().iter().map(|task| task.id).collect()
    }

    fn running(&self) -> MutexGuard<'_, Vec<RunningTask>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
