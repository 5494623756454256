//! Starts the one job that a call may start, and ends it unless the call keeps it.

use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use toolhold_answers::LiveOutput;
use toolhold_contract::{
    CancellationToken, JobCommand, JobEnd, JobPlace, JobPlaceError, JobStarter, OutputRecorder,
    SessionNetwork,
};

use crate::job::{Job, JobAbout, JobOutput};
use crate::jobs::{SessionInner, SessionJobs};

/// Runs on the job's thread when its command has ended. Returns what a reader of the output has to
/// know.
pub type Finisher = Box<dyn FnOnce(&JobEnd) -> Vec<String> + Send>;

/// Lets one call start one job. If it is dropped before [`keep`](Self::keep), the job ends.
pub struct JobStart {
    session: Arc<SessionInner>,
    about: JobAbout,
    state: Mutex<State>,
}

enum State {
    Unused(Box<LiveOutput>),
    Started { job: Arc<Job>, finisher: Sender<Finisher>, is_kept: bool },
    Failed,
}

impl fmt::Debug for JobStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobStart").field("about", &self.about).finish_non_exhaustive()
    }
}

impl JobStart {
    /// `live`: makes text of what the command writes.
    pub fn new(session: &SessionJobs, about: JobAbout, live: LiveOutput) -> Self {
        let state = Mutex::new(State::Unused(Box::new(live)));
        Self { session: Arc::clone(&session.0), about, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the call has started its job.
    pub fn has_started(&self) -> bool {
        matches!(*self.state(), State::Started { .. })
    }

    /// Lets the job go on after the call. `finisher` runs when it has ended.
    pub fn keep(&self, finish: Finisher) {
        if let State::Started { finisher, is_kept, .. } = &mut *self.state() {
            *is_kept = true;
            // The job's thread waits for it.
            let _ = finisher.send(finish);
        }
    }

    /// Ends the job unless it was kept: nobody has its ID.
    pub fn abandon(&self) {
        let mut state = self.state();
        if let State::Started { job, is_kept: false, .. } = &*state {
            job.cancel.cancel();
            // Its thread no longer waits for a finisher.
            *state = State::Failed;
        }
    }
}

impl Drop for JobStart {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl JobStarter for JobStart {
    fn network(&self) -> &SessionNetwork {
        &self.session.network
    }

    fn reserve(&self, time: Option<Duration>) -> Result<Box<dyn JobPlace>, JobPlaceError> {
        let mut state = self.state();
        let live = match std::mem::replace(&mut *state, State::Failed) {
            State::Unused(live) => *live,
            used => {
                *state = used;
                return Err(JobPlaceError::Started);
            }
        };
        let bounds = self.session.bounds();
        let job = self.session.add(self.about.clone(), live)?;
        let end = Instant::now() + time.unwrap_or(bounds.time).min(bounds.time);
        let (sender, finisher) = channel();
        *state = State::Started { job: Arc::clone(&job), finisher: sender, is_kept: false };
        let session = Arc::clone(&self.session);
        Ok(Box::new(JobSlot { session, job, end, finisher: Some(finisher) }))
    }
}

struct JobSlot {
    session: Arc<SessionInner>,
    job: Arc<Job>,
    end: Instant,
    /// `None`: it runs.
    finisher: Option<Receiver<Finisher>>,
}

impl JobPlace for JobSlot {
    fn id(&self) -> &str {
        &self.job.id
    }

    fn end(&self) -> Instant {
        self.end
    }

    fn cancel(&self) -> CancellationToken {
        self.job.cancel.clone()
    }

    fn output(&self) -> Arc<dyn OutputRecorder> {
        Arc::new(JobOutput(Arc::clone(&self.job)))
    }

    fn run(mut self: Box<Self>, process: i32, command: JobCommand) -> io::Result<()> {
        let job = Arc::clone(&self.job);
        let shared = Arc::clone(&self.session.shared);
        let begun = shared.settings().observer.begin(&job.id, &job.about);
        begun.map_err(|failure| io::Error::other(failure.message))?;
        let Some(finisher) = self.finisher.take() else { return Ok(()) };
        let _ = job.process.set(process);
        self.session.shared.count_thread(true);
        let builder = std::thread::Builder::new().name("toolhold-job".to_owned());
        let started = builder.spawn(move || {
            let end = command();
            let finish: Option<Finisher> = finisher.recv().ok();
            let notices = finish.map(|finish| finish(&end)).unwrap_or_default();
            shared.settings().observer.end(&job.id, &job.about, &end, job.time());
            job.finish(end, notices);
            shared.count_thread(false);
        });
        if let Err(error) = started {
            self.session.shared.count_thread(false);
            self.session.remove(&self.job.id);
            return Err(error);
        }
        Ok(())
    }
}

impl Drop for JobSlot {
    fn drop(&mut self) {
        if self.finisher.is_some() {
            self.session.remove(&self.job.id);
        }
    }
}
