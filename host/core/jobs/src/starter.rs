//! Starts the job of a call. The job ends unless the call keeps it.

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

/// Runs on the job's thread after the command has ended. Returns notices about the job.
pub type Finisher = Box<dyn FnOnce(&JobEnd) -> Vec<String> + Send>;

/// The right of a call to start one job. A drop ends the job unless [`keep`](Self::keep) was
/// called.
pub struct JobStart {
    session: Arc<SessionInner>,
    about: JobAbout,
    state: Mutex<State>,
}

enum State {
    Unused(Box<LiveOutput>),
    Started { job: Arc<Job>, sender: Sender<Finisher>, is_kept: bool },
    Failed,
}

impl fmt::Debug for JobStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobStart").field("about", &self.about).finish_non_exhaustive()
    }
}

impl JobStart {
    /// Allows a call to start a job. `live` converts the output of the command to text.
    pub fn new(session: &SessionJobs, about: JobAbout, live: LiveOutput) -> Self {
        let state = Mutex::new(State::Unused(Box::new(live)));
        Self { session: Arc::clone(&session.0), about, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether the call has started its job.
    pub fn has_started(&self) -> bool {
        matches!(*self.state(), State::Started { .. })
    }

    /// Lets the job continue after the call. `finisher` runs when the job has ended.
    pub fn keep(&self, finisher: Finisher) {
        if let State::Started { sender, is_kept, .. } = &mut *self.state() {
            *is_kept = true;
            let _ = sender.send(finisher);
        }
    }

    /// Ends the job, unless [`keep`](Self::keep) was called. A failed call must not leave a job
    /// behind, because only the answer of a successful call tells the caller the job's ID.
    pub fn abandon(&self) {
        let mut state = self.state();
        if let State::Started { job, is_kept: false, .. } = &*state {
            job.cancel.cancel();
            // This drops the sender, so the job's thread stops waiting for a finisher.
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
        // If no job can be added below, the state stays `Failed`.
        let live_output = match std::mem::replace(&mut *state, State::Failed) {
            State::Unused(live_output) => *live_output,
            used => {
                *state = used;
                return Err(JobPlaceError::Started);
            }
        };
        let max_time = self.session.bounds().time;
        let job = self.session.add(self.about.clone(), live_output)?;
        let run_time = match time {
            Some(time) => time.min(max_time),
            None => max_time,
        };
        let end = Instant::now() + run_time;
        let (sender, receiver) = channel();
        *state = State::Started { job: Arc::clone(&job), sender, is_kept: false };
        let session = Arc::clone(&self.session);
        Ok(Box::new(JobSlot { session, job, end, finisher: Some(receiver) }))
    }
}

struct JobSlot {
    session: Arc<SessionInner>,
    job: Arc<Job>,
    end: Instant,
    /// The receiver for the job's thread. `None` once the job runs.
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
        let observer = shared.settings().observer;
        observer.begin(&job.id, &job.about).map_err(|failure| io::Error::other(failure.message))?;
        // A slot runs only once, so it always has its receiver.
        let Some(receiver) = self.finisher.take() else { return Ok(()) };
        let _ = job.process.set(process);

        self.session.shared.add_thread();
        let builder = std::thread::Builder::new().name("toolhold-job".to_owned());
        let thread = builder.spawn(move || {
            let end = command();
            let notices = match receiver.recv() {
                Ok(finisher) => finisher(&end),
                // The call dropped the sender, because it didn't keep the job.
                Err(_) => Vec::new(),
            };
            shared.settings().observer.end(&job.id, &job.about, &end, job.time());
            job.finish(end, notices);
            shared.remove_thread();
        });
        if let Err(error) = thread {
            self.session.shared.remove_thread();
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
