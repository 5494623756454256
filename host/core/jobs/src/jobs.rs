//! The jobs of a host: their limits, their list, and their ends.

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

/// Maximum number of running jobs of all sessions.
const MAX_RUNNING: usize = 64;

/// Maximum number of stored bytes of output of all jobs. At this limit, a job keeps only the end of
/// its output.
const MAX_KEPT: u64 = 1 << 30;

/// Time limit for jobs to end when the host ends.
const MAX_ENDING: Duration = Duration::from_secs(2);

/// The limits of jobs.
#[derive(Clone, Copy, Debug)]
pub struct JobBounds {
    /// Maximum number of running jobs of one session.
    pub running: usize,
    /// The time limit of one job.
    pub time: Duration,
    /// Maximum number of stored bytes of output of one job. Older output is dropped.
    pub output: u64,
}

/// The settings of jobs.
#[derive(Clone, Debug)]
pub struct JobSettings {
    /// The limits of the jobs.
    pub bounds: JobBounds,
    /// Where the number of running jobs is configured, for messages.
    pub key: String,
    /// Gets the start and the end of each job.
    pub observer: Arc<dyn JobObserver>,
}

/// Gets the start and the end of each job.
pub trait JobObserver: fmt::Debug + Send + Sync + 'static {
    /// Runs before a job starts. May block.
    ///
    /// # Errors
    ///
    /// Returns an error if the job must not start.
    fn begin(&self, id: &str, about: &JobAbout) -> Result<(), Failure>;

    /// Runs when a job has ended. `time` is its run time. May block.
    fn end(&self, id: &str, about: &JobAbout, end: &JobEnd, time: Duration);
}

/// The jobs of a host. They end with the host.
#[derive(Debug)]
pub struct Jobs(Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    settings: RwLock<JobSettings>,
    folder: PathBuf,
    budget: Arc<Budget>,
    sessions: Mutex<HashMap<Arc<str>, Weak<SessionInner>>>,
    has_ended: AtomicBool,
    /// The number of threads that wait for commands. `thread_ended` signals the end of a thread.
    threads: Mutex<usize>,
    thread_ended: Condvar,
}

/// The jobs of one session. A drop of the last clone ends them.
#[derive(Clone, Debug)]
pub struct SessionJobs(pub(crate) Arc<SessionInner>);

#[derive(Debug)]
pub(crate) struct SessionInner {
    jobs: Mutex<Vec<Arc<Job>>>,
    /// The network of the session's commands, created for the first job that needs it.
    pub(crate) network: SessionNetwork,
    pub(crate) shared: Arc<Shared>,
}

impl Jobs {
    /// Creates an empty list of jobs. `data` is Toolhold's data folder.
    pub fn new(settings: JobSettings, data: PathBuf) -> Self {
        Self(Arc::new(Shared {
            settings: RwLock::new(settings),
            folder: data.join("jobs"),
            budget: Arc::new(Budget::new(MAX_KEPT)),
            sessions: Mutex::default(),
            has_ended: AtomicBool::new(false),
            threads: Mutex::new(0),
            thread_ended: Condvar::new(),
        }))
    }

    /// Applies changed settings. Settings that allow no jobs end all jobs.
    pub fn change_settings(&self, settings: JobSettings) {
        let allows_no_jobs = settings.bounds.running == 0;
        *self.0.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
        if allows_no_jobs {
            for session in self.0.live_sessions() {
                session.end_all();
            }
        }
    }

    /// Returns the jobs of the session with this unique name. A drop of the last returned value
    /// ends the jobs.
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

    /// Returns all jobs of all sessions, the oldest first.
    pub fn list(&self) -> Vec<JobSummary> {
        let mut summaries: Vec<JobSummary> = Vec::new();
        for session in self.0.live_sessions() {
            summaries.extend(SessionJobs(session).list());
        }
        summaries.sort_by_key(|job| job.started);
        summaries
    }

    /// Returns `self` if jobs are allowed.
    pub fn may_start(&self) -> Option<&Self> {
        if self.0.settings().bounds.running > 0 { Some(self) } else { None }
    }

    /// Checks whether the job of the call with this ID is running.
    pub fn is_running(&self, call: &str) -> bool {
        for session in self.0.live_sessions() {
            let jobs = session.jobs();
            if jobs.iter().any(|job| job.about.call == call && !job.has_ended()) {
                return true;
            }
        }
        false
    }

    /// Stops a job of any session. Returns `false` if no running job has this ID.
    pub fn stop(&self, id: &str) -> bool {
        for session in self.0.live_sessions() {
            if let Some(job) = session.find(id) {
                let is_running = !job.has_ended();
                if is_running {
                    job.cancel.cancel();
                }
                return is_running;
            }
        }
        false
    }

    /// Stops all jobs because the host ends, and prevents new jobs. Waits briefly, so that the ends
    /// of the jobs are still recorded.
    pub fn end(&self) {
        self.0.has_ended.store(true, Ordering::SeqCst);
        for session in self.0.live_sessions() {
            session.end_all();
        }
        let threads = self.0.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting =
            self.0.thread_ended.wait_timeout_while(threads, MAX_ENDING, |threads| *threads > 0);
        drop(waiting);
    }

    pub(crate) fn find(&self, session: &str, id: &str) -> Option<Arc<Job>> {
        self.find_session(session)?.find(id)
    }

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

    pub(crate) fn add_thread(&self) {
        *self.threads.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    pub(crate) fn remove_thread(&self) {
        *self.threads.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.thread_ended.notify_all();
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<Arc<str>, Weak<SessionInner>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live_sessions(&self) -> Vec<Arc<SessionInner>> {
        self.sessions().values().filter_map(Weak::upgrade).collect()
    }
}

impl SessionJobs {
    /// Returns the session's jobs, the oldest first.
    pub fn list(&self) -> Vec<JobSummary> {
        self.0.jobs().iter().map(|job| job.summary()).collect()
    }

    /// Returns notices about jobs that have ended. Each notice is returned once.
    pub fn news(&self) -> Vec<String> {
        let ended: Vec<Arc<Job>> =
            self.0.jobs().iter().filter(|job| job.mark_reported()).cloned().collect();
        ended.iter().map(|job| end_notice(job)).collect()
    }
}

fn end_notice(job: &Job) -> String {
    let id = &job.id;
    let state = job.state().describe();
    let time = job.time().as_secs();
    let verb = if state.starts_with("ended") { "has" } else { "was" };
    let mut text = format!(
        "Job {id} {verb} {state} after {time} s. To see its output, call job_output with id \"{id}\"."
    );
    for notice in job.notices() {
        text.push(' ');
        text.push_str(notice);
    }
    text
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

    /// Adds a job. The list keeps at most as many ended jobs as may run at the same time, so the
    /// oldest ended job may be removed.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is reached.
    pub(crate) fn add(&self, about: JobAbout, live: LiveOutput) -> Result<Arc<Job>, JobPlaceError> {
        let id = new_id().map_err(JobPlaceError::Id)?;
        let shared = &self.shared;
        let JobSettings { bounds, key, .. } = shared.settings();
        let mut running_elsewhere = 0;
        for session in shared.live_sessions() {
            if !std::ptr::eq(&raw const *session, self) {
                running_elsewhere += session.running();
            }
        }

        let mut jobs = self.jobs();
        let running = jobs.iter().filter(|job| !job.has_ended()).count();
        if running >= bounds.running {
            return Err(JobPlaceError::Session { running, limit: bounds.running, key });
        }
        if running + running_elsewhere >= MAX_RUNNING {
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
        // `Jobs::end` first sets `has_ended` and then ends the listed jobs. If it didn't see this
        // job in the list, `has_ended` is already set here.
        if shared.has_ended.load(Ordering::SeqCst) {
            jobs.pop();
            return Err(JobPlaceError::Ended);
        }
        Ok(job)
    }

    pub(crate) fn remove(&self, id: &str) {
        self.jobs().retain(|job| job.id != id);
    }

    fn running(&self) -> usize {
        self.jobs().iter().filter(|job| !job.has_ended()).count()
    }

    fn end_all(&self) {
        for job in self.jobs().iter() {
            job.cancel.cancel();
        }
    }
}

impl Drop for SessionInner {
    fn drop(&mut self) {
        self.end_all();
    }
}

/// Returns a random ID that nobody can guess.
fn new_id() -> std::io::Result<String> {
    let mut bytes = [0; 8];
    let filled_bytes = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if filled_bytes < bytes.len() {
        return Err(std::io::Error::other("too few bytes"));
    }
    Ok(format!("job-{:016x}", u64::from_ne_bytes(bytes)))
}
