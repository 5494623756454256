//! The jobs of a host by session: how many may run, which are listed, and when they end.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use toolhold_answers::LiveOutput;
use toolhold_contract::{Failure, JobEnd, JobPlaceError, SessionNetwork};

use crate::job::{Job, JobAbout, JobSummary};
use crate::ring::{Budget, Ring};

/// Most running jobs of all sessions together.
const MAX_RUNNING: usize = 64;

/// Bytes of output that are kept of all jobs together.
const MAX_KEPT: u64 = 1 << 30;

/// How long the end of a host waits for its jobs.
const ENDING: Duration = Duration::from_secs(2);

/// The bounds of jobs.
#[derive(Clone, Copy, Debug)]
pub struct JobBounds {
    /// Running jobs of one session.
    pub running: usize,
    /// The time of one job.
    pub time: Duration,
    /// Bytes that are kept of the output of one job.
    pub output: u64,
}

/// The settings of jobs in a configuration.
#[derive(Clone, Debug)]
pub struct JobSettings {
    /// Their bounds.
    pub bounds: JobBounds,
    /// Where the number of running jobs is set, for messages.
    pub key: String,
    /// Learns of each job.
    pub observer: Arc<dyn JobObserver>,
}

/// Learns of the beginning and the end of each job.
pub trait JobObserver: fmt::Debug + Send + Sync + 'static {
    /// A job is about to begin. May block.
    ///
    /// # Errors
    ///
    /// Why it must not.
    fn begin(&self, id: &str, about: &JobAbout) -> Result<(), Failure>;

    /// A job has ended after this time. May block.
    fn end(&self, id: &str, about: &JobAbout, end: &JobEnd, time: Duration);
}

/// The jobs of a host. They end with it.
#[derive(Debug)]
pub struct Jobs(Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    settings: RwLock<JobSettings>,
    folder: PathBuf,
    budget: Arc<Budget>,
    sessions: Mutex<HashMap<Arc<str>, Weak<SessionInner>>>,
    has_ended: AtomicBool,
    /// The threads that wait for commands, and the end of each.
    running: Mutex<usize>,
    ended: Condvar,
}

/// The jobs of one session. They end when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct SessionJobs(pub(crate) Arc<SessionInner>);

#[derive(Debug)]
pub(crate) struct SessionInner {
    jobs: Mutex<Vec<Arc<Job>>>,
    /// The network of its commands, once there is a job.
    pub(crate) network: SessionNetwork,
    pub(crate) shared: Arc<Shared>,
}

impl Jobs {
    /// `data`: Toolhold's data folder.
    pub fn new(settings: JobSettings, data: PathBuf) -> Self {
        Self(Arc::new(Shared {
            settings: RwLock::new(settings),
            folder: data.join("jobs"),
            budget: Arc::new(Budget::new(MAX_KEPT)),
            sessions: Mutex::default(),
            has_ended: AtomicBool::new(false),
            running: Mutex::new(0),
            ended: Condvar::new(),
        }))
    }

    /// Takes over the settings of a changed configuration. Without jobs in it, all jobs end.
    pub fn change_settings(&self, settings: JobSettings) {
        let none = settings.bounds.running == 0;
        *self.0.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
        if none {
            self.0.live_sessions().iter().for_each(|session| session.end_all());
        }
    }

    /// The jobs of the session of this name, which no other session has. The session itself
    /// holds them.
    pub fn session(&self, name: &Arc<str>) -> SessionJobs {
        let mut sessions = self.0.sessions();
        sessions.retain(|_, session| session.strong_count() > 0);
        if let Some(session) = sessions.get(name).and_then(Weak::upgrade) {
            return SessionJobs(session);
        }
        let session = Arc::new(SessionInner {
            jobs: Mutex::default(),
            network: SessionNetwork::default(),
            shared: Arc::clone(&self.0),
        });
        sessions.insert(Arc::clone(name), Arc::downgrade(&session));
        SessionJobs(session)
    }

    /// All jobs of all sessions, the oldest first.
    pub fn list(&self) -> Vec<JobSummary> {
        let sessions = self.0.live_sessions();
        let mut all: Vec<JobSummary> =
            sessions.iter().flat_map(|session| SessionJobs(Arc::clone(session)).list()).collect();
        all.sort_by_key(|job| job.started);
        all
    }

    /// Itself, if sessions may have jobs.
    pub fn may_start(&self) -> Option<&Self> {
        (self.0.settings().bounds.running > 0).then_some(self)
    }

    /// Whether the job that a call started runs.
    pub fn is_running(&self, call: &str) -> bool {
        let sessions = self.0.live_sessions();
        sessions.iter().any(|session| {
            session.jobs().iter().any(|job| job.about.call == call && !job.has_ended())
        })
    }

    /// Stops a job of any session. `false`: no job that runs has this ID.
    pub fn stop(&self, id: &str) -> bool {
        let found = self.0.live_sessions().into_iter().find_map(|session| session.find(id));
        let running = found.filter(|job| !job.has_ended());
        running.map(|job| job.cancel.cancel()).is_some()
    }

    /// Stops all jobs of all sessions, and starts no more: the host ends. Waits a moment, so that
    /// their ends are recorded.
    pub fn end(&self) {
        self.0.has_ended.store(true, Ordering::SeqCst);
        for session in self.0.live_sessions() {
            session.end_all();
        }
        let running = self.0.running.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.0.ended.wait_timeout_while(running, ENDING, |running| *running > 0));
    }

    pub(crate) fn find(&self, session: &str, id: &str) -> Option<Arc<Job>> {
        self.find_session(session)?.find(id)
    }

    /// The jobs of a session that has any.
    pub(crate) fn find_session(&self, session: &str) -> Option<Arc<SessionInner>> {
        self.0.sessions().get(session).and_then(Weak::upgrade)
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    pub(crate) fn settings(&self) -> JobSettings {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts one more thread that waits for a command, or one less.
    pub(crate) fn count_thread(&self, begins: bool) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        *running = if begins { *running + 1 } else { *running - 1 };
        self.ended.notify_all();
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<Arc<str>, Weak<SessionInner>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live_sessions(&self) -> Vec<Arc<SessionInner>> {
        self.sessions().values().filter_map(Weak::upgrade).collect()
    }
}

impl SessionJobs {
    /// The session's jobs, the oldest first.
    pub fn list(&self) -> Vec<JobSummary> {
        self.0.jobs().iter().map(|job| job.summary()).collect()
    }

    /// Notices for the session about jobs that have ended since the last time, each once.
    pub fn news(&self) -> Vec<String> {
        let ended: Vec<Arc<Job>> = self.0.jobs().iter().filter(|job| job.tell()).cloned().collect();
        ended
            .iter()
            .map(|job| {
                let id = &job.id;
                let state = job.state().describe();
                let time = job.time().as_secs();
                let mut text = format!(
                    "Job {id} has {state} after {time} s. To see its output, call job_output with id \"{id}\"."
                );
                if !state.starts_with("ended") {
                    text = text.replacen(" has ", " was ", 1);
                }
                for notice in job.notices() {
                    text.push(' ');
                    text.push_str(notice);
                }
                text
            })
            .collect()
    }
}

impl SessionInner {
    pub(crate) fn jobs(&self) -> MutexGuard<'_, Vec<Arc<Job>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<Job>> {
        self.jobs().iter().find(|job| job.id == id).cloned()
    }

    pub(crate) fn bounds(&self) -> JobBounds {
        self.shared.settings().bounds
    }

    /// Adds a job. The oldest that has ended makes room.
    ///
    /// # Errors
    ///
    /// The limit that is reached, and what to do.
    pub(crate) fn add(&self, about: JobAbout, live: LiveOutput) -> Result<Arc<Job>, JobPlaceError> {
        let id = new_id().map_err(JobPlaceError::Id)?;
        let shared = &self.shared;
        let JobSettings { bounds, key, .. } = shared.settings();
        let sessions = shared.live_sessions();
        let others = sessions.iter().filter(|other| !std::ptr::eq(&raw const ***other, self));
        let elsewhere: usize = others.map(|other| other.running()).sum();
        let mut jobs = self.jobs();
        let running = jobs.iter().filter(|job| !job.has_ended()).count();
        if running >= bounds.running {
            return Err(JobPlaceError::Session { running, limit: bounds.running, key });
        }
        if running + elsewhere >= MAX_RUNNING {
            return Err(JobPlaceError::Host(MAX_RUNNING));
        }
        let ended = jobs.len() - running;
        if ended >= bounds.running.max(1)
            && let Some(oldest) = jobs.iter().position(|job| job.has_ended())
        {
            jobs.remove(oldest);
        }
        let kept = Ring::new(shared.folder.clone(), Arc::clone(&shared.budget), bounds.output);
        let job = Arc::new(Job::new(id, about, live, kept));
        jobs.push(Arc::clone(&job));
        // The host sets this before it ends what is in the list.
        if shared.has_ended.load(Ordering::SeqCst) {
            jobs.pop();
            return Err(JobPlaceError::Ended);
        }
        Ok(job)
    }

    /// Takes back a job that never ran.
    pub(crate) fn remove(&self, id: &str) {
        self.jobs().retain(|job| job.id != id);
    }

    fn running(&self) -> usize {
        self.jobs().iter().filter(|job| !job.has_ended()).count()
    }

    fn end_all(&self) {
        self.jobs().iter().for_each(|job| job.cancel.cancel());
    }
}

impl Drop for SessionInner {
    fn drop(&mut self) {
        self.end_all();
    }
}

/// An ID that nobody can guess.
fn new_id() -> std::io::Result<String> {
    let mut bytes = [0; 8];
    let taken = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if taken < bytes.len() {
        return Err(std::io::Error::other("too few bytes"));
    }
    Ok(format!("job-{:016x}", u64::from_ne_bytes(bytes)))
}
