//! The state of one caller between calls.

mod disk;
mod state;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use toolhold_contract::{HostError, JobServers, ServiceKeeper};

pub(crate) use disk::count;
pub(crate) use state::{SessionState, seconds};
use toolhold_answers::{AnswerCache, CacheSummary};
use toolhold_config::Folders;
use toolhold_jobs::services::{Services, SessionServices};
use toolhold_jobs::{CallShell, Jobs, SessionJobs, SessionShell};

/// The state that the calls of one caller share: approvals, counters, reusable answers and stored
/// output.
///
/// A session belongs to a principal: a connection, a user in a directory, or an authenticated
/// caller. Clones share the state.
#[derive(Clone)]
pub struct Session(Arc<Inner>);

struct Inner {
    name: Arc<str>,
    /// The owner. `None` means the user of this machine.
    principal: Option<Arc<str>>,
    state: SessionStore,
    /// Reusable answers. They are always in memory.
    answers: AnswerCache,
    /// The jobs of the session. They end with it.
    jobs: OnceLock<SessionJobs>,
    /// The programs that continue after a call. They end with the session.
    services: OnceLock<SessionServices>,
    /// The shell state for the session's next command.
    shell: SessionShell,
    /// Variables that a source has set for the session's commands.
    variables: Mutex<Vec<(String, String)>>,
    /// The start of the agent's current turn, in nanoseconds since 1970. 0 means that there is no
    /// turn.
    turn: AtomicU64,
}

enum SessionStore {
    Memory(Mutex<SessionState>),
    Disk(disk::DiskSession),
}

impl Session {
    /// Creates a session in memory, which ends with its last clone. `name` identifies the session
    /// in data on disk, such as the audit log, so two callers must not have the same name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self::in_memory(name.into(), None)
    }

    /// Creates a session for a caller of a server. Data that a plugin stores for `principal` isn't
    /// available to other principals.
    pub fn of_principal(name: impl Into<Arc<str>>, principal: impl Into<Arc<str>>) -> Self {
        Self::in_memory(name.into(), Some(principal.into()))
    }

    fn in_memory(name: Arc<str>, principal: Option<Arc<str>>) -> Self {
        Self(Arc::new(Inner {
            name,
            principal,
            state: SessionStore::Memory(Mutex::default()),
            answers: AnswerCache::default(),
            jobs: OnceLock::new(),
            services: OnceLock::new(),
            shell: SessionShell::default(),
            variables: Mutex::default(),
            turn: AtomicU64::default(),
        }))
    }

    /// Creates a session with its state in the data folder, for programs that make one call. All
    /// processes of the user share the session by its `name`. The state expires eight hours after
    /// the last change.
    ///
    /// The first call that needs the state reads it. An empty state isn't written.
    pub fn on_disk(folders: &Folders, name: impl Into<Arc<str>>) -> Self {
        Self::on_disk_of(folders, name, None)
    }

    /// Like [`on_disk`](Self::on_disk), but for a principal. `None` means the user of this machine.
    pub fn on_disk_of(
        folders: &Folders,
        name: impl Into<Arc<str>>,
        principal: Option<&str>,
    ) -> Self {
        let name = name.into();
        let state = SessionStore::Disk(disk::DiskSession::new(folders, &name));
        Self(Arc::new(Inner {
            name,
            principal: principal.map(Into::into),
            state,
            answers: AnswerCache::default(),
            jobs: OnceLock::new(),
            services: OnceLock::new(),
            shell: SessionShell::default(),
            variables: Mutex::default(),
            turn: AtomicU64::default(),
        }))
    }

    /// Returns the name of the session.
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// Starts a turn of an agent: the agent's work on one message of a person. The changes of a
    /// turn can be undone together.
    pub fn begin_turn(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        self.0.turn.store(u64::try_from(now).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the start of the current turn, in nanoseconds since 1970, or `None` without a turn.
    pub fn turn(&self) -> Option<u64> {
        match self.0.turn.load(Ordering::Relaxed) {
            0 => None,
            start => Some(start),
        }
    }

    /// Returns the owner. `None` means the user of this machine.
    pub(crate) fn principal(&self) -> Option<&str> {
        self.0.principal.as_deref()
    }

    /// Records that the session has received untrusted text, whose instructions a model may follow.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the state is on disk and can't be written.
    pub fn mark_untrusted(&self) -> Result<(), HostError> {
        if self.read(|state| state.untrusted)? {
            return Ok(());
        }
        self.change(|state| state.untrusted = true)
    }

    pub(crate) fn is_untrusted(&self) -> bool {
        // An unreadable state may say that the session has received untrusted text.
        self.read(|state| state.untrusted).unwrap_or(true)
    }

    /// Returns the number of reusable answers, and how often they were used. `[tools.result_cache]`
    /// limits them.
    pub fn cache_summary(&self) -> CacheSummary {
        self.0.answers.summary()
    }

    /// Removes all reusable answers, and resets their counts.
    pub fn clear_cache(&self) {
        self.0.answers.clear();
    }

    /// Removes the variables that a call, such as `load_skill`, has set for the session's commands.
    pub fn clear_variables(&self) {
        self.set_variables(Vec::new());
    }

    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        self.0.variables.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_variables(&self, variables: Vec<(String, String)>) {
        *self.0.variables.lock().unwrap_or_else(PoisonError::into_inner) = variables;
    }

    /// Returns the reusable answers, or `None` for a session on disk, because its process makes
    /// only one call.
    pub(crate) fn answers(&self) -> Option<&AnswerCache> {
        if !self.is_in_memory() {
            return None;
        }
        Some(&self.0.answers)
    }

    /// Returns the session's jobs, or `None` for a session on disk, because its process makes only
    /// one call, and jobs end with the process.
    pub(crate) fn jobs(&self, jobs: &Jobs) -> Option<&SessionJobs> {
        if !self.is_in_memory() {
            return None;
        }
        Some(self.0.jobs.get_or_init(|| jobs.session(&self.0.name)))
    }

    pub(crate) fn services(&self, services: &Services) -> Arc<dyn ServiceKeeper> {
        Arc::new(self.0.services.get_or_init(|| services.session(&self.0.name)).clone())
    }

    /// Returns the servers among the session's jobs, or `None` if the session never had a job.
    pub(crate) fn job_servers(&self) -> Option<Arc<dyn JobServers>> {
        self.0.jobs.get().map(SessionJobs::servers)
    }

    /// Returns the shell state for the next call, or `None` for a session on disk.
    pub(crate) fn shell(&self) -> Option<CallShell> {
        if !self.is_in_memory() {
            return None;
        }
        Some(self.0.shell.begin())
    }

    fn is_in_memory(&self) -> bool {
        matches!(self.0.state, SessionStore::Memory(_))
    }

    /// Returns notices about jobs that have ended. Each notice is returned once.
    pub(crate) fn job_news(&self) -> Vec<String> {
        self.0.jobs.get().map(SessionJobs::news).unwrap_or_default()
    }

    /// Reads the state. The state is locked meanwhile, so `read` must be quick.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the state is on disk and can't be read.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&SessionState) -> R) -> Result<R, HostError> {
        match &self.0.state {
            SessionStore::Memory(state) => {
                Ok(read(&state.lock().unwrap_or_else(PoisonError::into_inner)))
            }
            SessionStore::Disk(disk) => disk.read(read),
        }
    }

    /// Changes the state atomically. An unchanged state isn't written.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`read`](Self::read), and an error if the state can't be written.
    pub(crate) fn change<R>(
        &self,
        change: impl FnOnce(&mut SessionState) -> R,
    ) -> Result<R, HostError> {
        match &self.0.state {
            SessionStore::Memory(state) => {
                Ok(change(&mut state.lock().unwrap_or_else(PoisonError::into_inner)))
            }
            SessionStore::Disk(disk) => disk.change(change),
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Session").field(&self.0.name).finish()
    }
}
