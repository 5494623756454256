//! The loop that runs tasks: one for all processes of a user.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use toolhold_core::text::counted;
use toolhold_core::{CancellationToken, HostError};
use toolhold_schedule::{ClaimedRun, INTERRUPTED, RunEnd, RunResult, Schedule, ScheduleError};

/// The longest wait for runs that were told to end.
const LAST_RUNS: Duration = Duration::from_secs(10);

/// The wait after a failure, such as a full disk, before the loop tries again.
const AGAIN: Duration = Duration::from_secs(30);

/// Makes the run of a task. It blocks until the run ends; the token tells it to end early.
pub(crate) type RunTask = Arc<dyn Fn(&ClaimedRun, CancellationToken) -> RunResult + Send + Sync>;

/// Runs the tasks of a user while it lives, unless another process does. If that process dies, this
/// one takes over.
pub(crate) struct TaskRunner {
    shared: Arc<Shared>,
}

struct Shared {
    schedule: Schedule,
    run: RunTask,
    /// Runs at the same time, at most.
    most: usize,
    end: CancellationToken,
    /// Says that this process is the one that runs the tasks from now on.
    begun: Box<dyn Fn() + Send + Sync>,
    /// The running tasks, each with the token that ends its run.
    busy: Mutex<Vec<(i64, CancellationToken)>>,
    idle: Condvar,
}

impl TaskRunner {
    /// Starts the loop on a thread of its own. `most`: how many tasks run at the same time. `begun`
    /// is called when this process runs the tasks: at once, or when the one that does has ended.
    ///
    /// # Errors
    ///
    /// The thread can't be started.
    pub(crate) fn start(
        schedule: Schedule,
        most: usize,
        run: RunTask,
        begun: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Self, HostError> {
        let shared = Arc::new(Shared {
            schedule,
            run,
            most: most.max(1),
            end: CancellationToken::new(),
            begun,
            busy: Mutex::default(),
            idle: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        thread::Builder::new()
            .name("tasks".to_owned())
            .spawn(move || of_thread.watch())
            .map_err(HostError::io("starting the thread that runs tasks"))?;
        Ok(Self { shared })
    }
}

/// Tells the runs to end, and waits some seconds for them.
impl Drop for TaskRunner {
    fn drop(&mut self) {
        self.shared.end.cancel();
        // So that the loop ends, and another process or another loop of this one can begin.
        self.shared.schedule.ring();
        let busy = self.shared.busy.lock().unwrap_or_else(PoisonError::into_inner);
        // A run that hasn't ended by then is kept as interrupted.
        drop(self.shared.idle.wait_timeout_while(busy, LAST_RUNS, |busy| !busy.is_empty()));
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
            (self.begun)();
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
            let busy = self.busy();
            // If all places are taken, the end of a run wakes it.
            let next = if is_full { None } else { self.schedule.next_due(&busy)? };
            alarm.set(next, now).map_err(ScheduleError::Alarm)?;
            alarm.wait().map_err(ScheduleError::Alarm)?;
        }
        Ok(())
    }

    /// Ends the runs of tasks that were removed.
    fn end_removed(&self) -> Result<(), ScheduleError> {
        let removed = self.schedule.removed(&self.busy())?;
        let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.iter().filter(|(task, _)| removed.contains(task)).for_each(|(_, end)| end.cancel());
        Ok(())
    }

    /// Starts the runs that are due. Returns whether all places are taken.
    fn start_due(self: &Arc<Self>, now: Timestamp) -> Result<bool, ScheduleError> {
        loop {
            let busy = self.busy();
            if busy.len() >= self.most {
                return Ok(true);
            }
            let Some(run) = self.schedule.claim(now, &busy)? else { return Ok(false) };
            if !self.schedule.start(&run, now)? {
                continue;
            }
            let end = self.end.child_token();
            let mut all = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
            all.push((run.task, end.clone()));
            drop(all);
            let shared = Arc::clone(self);
            let of_thread = run.clone();
            let started = thread::Builder::new()
                .name("task".to_owned())
                .spawn(move || shared.make(&of_thread, end));
            if let Err(error) = started {
                let output = format!("no thread can be started for the run: {error}");
                self.schedule.end(&run, &RunResult { end: RunEnd::Failed, output }, now)?;
                self.forget(run.task);
            }
        }
    }

    /// Makes a run, and keeps its result.
    fn make(&self, run: &ClaimedRun, end: CancellationToken) {
        let caught = catch_unwind(AssertUnwindSafe(|| (self.run)(run, end)));
        let mut result = caught.unwrap_or_else(|_| RunResult {
            end: RunEnd::Failed,
            output: "Toolhold itself failed during the run; see the log".to_owned(),
        });
        if result.end == RunEnd::Failed && self.end.is_cancelled() {
            // The run was told to end, and its answer is mostly about that.
            let output = format!("{INTERRUPTED}\n{}", result.output);
            result = RunResult { end: RunEnd::Interrupted, output };
        }
        if let Err(error) = self.schedule.end(run, &result, Timestamp::now()) {
            tracing::error!("the result of a run of the task {} is lost: {error}", run.name);
        }
        self.forget(run.task);
        self.schedule.ring();
    }

    fn forget(&self, task: i64) {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner).retain(|busy| busy.0 != task);
        self.idle.notify_all();
    }

    fn busy(&self) -> Vec<i64> {
        let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.iter().map(|(task, _)| *task).collect()
    }
}
