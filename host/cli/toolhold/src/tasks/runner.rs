//! The loop that runs tasks. A user has one such loop for all processes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use toolhold_core::text::counted;
use toolhold_core::{CancellationToken, HostError};
use toolhold_schedule::{ClaimedRun, INTERRUPTED, RunEnd, RunResult, Schedule, ScheduleError};

/// The longest wait for runs that are being ended.
const LAST_RUNS: Duration = Duration::from_secs(10);

/// The delay before the loop tries again after a failure, such as a full disk.
const AGAIN: Duration = Duration::from_secs(30);

/// Makes the run of a task. Blocks until the run ends. The token ends the run early.
pub(crate) type RunTask = Arc<dyn Fn(&ClaimedRun, CancellationToken) -> RunResult + Send + Sync>;

/// Runs the tasks of a user, unless another process runs them. If the other process dies, this
/// process takes over. Dropping the runner ends the runs, and waits some seconds for them.
pub(crate) struct TaskRunner {
    shared: Arc<Shared>,
}

struct Shared {
    schedule: Schedule,
    run: RunTask,
    /// The most tasks that run at the same time.
    max_running: usize,
    end: CancellationToken,
    /// Called when this process starts to run the tasks.
    on_start: Box<dyn Fn() + Send + Sync>,
    running: Mutex<Vec<RunningTask>>,
    run_ended: Condvar,
}

struct RunningTask {
    /// The number of the task.
    id: i64,
    /// Ends the run.
    end: CancellationToken,
}

impl TaskRunner {
    /// Starts the loop on a separate thread. At most `max_running` tasks run at the same time.
    /// `on_start` is called when this process starts to run tasks. It may have to wait until
    /// another process stops running them.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread can't be started.
    pub(crate) fn start(
        schedule: Schedule,
        max_running: usize,
        run: RunTask,
        on_start: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Self, HostError> {
        let shared = Arc::new(Shared {
            schedule,
            run,
            max_running: max_running.max(1),
            end: CancellationToken::new(),
            on_start,
            running: Mutex::default(),
            run_ended: Condvar::new(),
        });
        let for_thread = Arc::clone(&shared);
        thread::Builder::new()
            .name("tasks".to_owned())
            .spawn(move || for_thread.watch())
            .map_err(HostError::io("starting the thread that runs tasks"))?;
        Ok(Self { shared })
    }
}

impl Drop for TaskRunner {
    fn drop(&mut self) {
        self.shared.end.cancel();
        // The alarm wakes the loop, which ends. Then another process can run the tasks.
        self.shared.schedule.ring();
        let running = self.shared.running();
        // A run that is still running after this wait is recorded as interrupted.
        drop(self.shared.run_ended.wait_timeout_while(running, LAST_RUNS, |runs| !runs.is_empty()));
    }
}

impl Shared {
    fn watch(self: &Arc<Self>) {
        while !self.end.is_cancelled() {
            if let Err(error) = self.run_all() {
                tracing::error!("tasks don't run: {error}; the next attempt is in {AGAIN:?}");
                thread::sleep(AGAIN);
            }
        }
    }

    /// Runs tasks until the end. Only one process gets past the first line.
    fn run_all(self: &Arc<Self>) -> Result<(), ScheduleError> {
        let _lock = self.schedule.become_runner()?;
        let alarm = self.schedule.alarm()?;
        if !self.end.is_cancelled() {
            (self.on_start)();
        }
        let interrupted = self.schedule.take_over(Timestamp::now())?;
        if interrupted > 0 {
            let runs = counted(interrupted, "interrupted run");
            tracing::warn!("{runs} of tasks; interrupted runs aren't repeated");
        }
        while !self.end.is_cancelled() {
            let now = Timestamp::now();
            self.end_removed()?;
            let is_full = self.start_due(now)?;
            // If no more tasks may run, the end of a run wakes the loop.
            let next = if is_full { None } else { self.schedule.next_due(&self.running_ids())? };
            alarm.set(next, now).map_err(ScheduleError::Alarm)?;
            alarm.wait().map_err(ScheduleError::Alarm)?;
        }
        Ok(())
    }

    /// Ends the runs of tasks that were removed.
    fn end_removed(&self) -> Result<(), ScheduleError> {
        let removed = self.schedule.removed(&self.running_ids())?;
        for task in &*self.running() {
            if removed.contains(&task.id) {
                task.end.cancel();
            }
        }
        Ok(())
    }

    /// Starts the runs that are due. Returns `true` if no more tasks may run now.
    fn start_due(self: &Arc<Self>, now: Timestamp) -> Result<bool, ScheduleError> {
        loop {
            let running = self.running_ids();
            if running.len() >= self.max_running {
                return Ok(true);
            }
            let Some(run) = self.schedule.claim(now, &running)? else { return Ok(false) };
            if self.schedule.start(&run, now)? {
                self.start_thread(&run, now)?;
            }
        }
    }

    /// Starts a thread that makes a run.
    fn start_thread(
        self: &Arc<Self>,
        run: &ClaimedRun,
        now: Timestamp,
    ) -> Result<(), ScheduleError> {
        let end = self.end.child_token();
        self.running().push(RunningTask { id: run.task, end: end.clone() });
        let shared = Arc::clone(self);
        let thread_run = run.clone();
        let thread = thread::Builder::new()
            .name("task".to_owned())
            .spawn(move || shared.make(&thread_run, end));
        if let Err(error) = thread {
            let output = format!("no thread can be started for the run: {error}");
            self.schedule.end(run, &RunResult { end: RunEnd::Failed, output }, now)?;
            self.remove_running(run.task);
        }
        Ok(())
    }

    /// Makes a run and records its result.
    fn make(&self, run: &ClaimedRun, end: CancellationToken) {
        let caught = catch_unwind(AssertUnwindSafe(|| (self.run)(run, end)));
        let mut result = caught.unwrap_or_else(|_| RunResult {
            end: RunEnd::Failed,
            output: "Toolhold itself failed during the run; see the log".to_owned(),
        });
        if result.end == RunEnd::Failed && self.end.is_cancelled() {
            // The runner ended the run, and the output is mostly about that.
            result.end = RunEnd::Interrupted;
            result.output = format!("{INTERRUPTED}\n{}", result.output);
        }
        if let Err(error) = self.schedule.end(run, &result, Timestamp::now()) {
            tracing::error!("the result of a run of the task {} is lost: {error}", run.name);
        }
        self.remove_running(run.task);
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
