//! The state of one caller from call to call, also when another host takes over.

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

/// The shared state of one caller's calls: approvals, counters, reusable answers and kept output.
///
/// A session belongs to a principal: a connection, a user in a directory, an authenticated caller.
/// Clones are the same session.
#[derive(Clone)]
pub struct Session(Arc<Inner>);

struct Inner {
    name: Arc<str>,
    /// The owner, if that isn't the user of this machine.
    principal: Option<Arc<str>>,
    state: SessionStore,
    /// Always in memory.
    answers: AnswerCache,
    /// The commands that go on after their calls. They end with the session.
    jobs: OnceLock<SessionJobs>,
    /// The programs of plugins that outlive a call. They end with the session too.
    services: OnceLock<SessionServices>,
    /// The state that its commands hand on to each other.
    shell: SessionShell,
    /// The variables that its commands get too.
    variables: Mutex<Vec<(String, String)>>,
    /// When the turn of its agent started, in nanoseconds since 1970. Zero: unknown.
    turn: AtomicU64,
}

enum SessionStore {
    Memory(Mutex<SessionState>),
    Disk(disk::DiskSession),
}

impl Session {
    /// Makes a session in memory that lasts as long as its last clone. `name` identifies the
    /// session in the data that calls store on disk (the audit, kept output), so no two callers may
    /// have the same name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self::in_memory(name.into(), None)
    }

    /// Makes a session like [`new`](Self::new), for one of the callers of a server. The data that a
    /// plugin stores for one `principal` isn't available to another.
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

    /// Makes a session that is shared by all processes of the user with the same `name`: for
    /// programs that make one call and end. Its state is in the data folder and expires eight hours
    /// after its last change.
    ///
    /// Nothing is read before a call needs it, and nothing is written before there is state to
    /// store.
    pub fn on_disk(folders: &Folders, name: impl Into<Arc<str>>) -> Self {
        Self::on_disk_of(folders, name, None)
    }

    /// Makes a session like [`on_disk`](Self::on_disk), for a principal. `None` means the user of
    /// this machine.
    pub fn on_disk_of(
        folders: &Folders,
        name: impl Into<Arc<str>>,
        principal: Option<&str>,
    ) -> Self {
        let name = name.into();
        let state = SessionStore::Disk(disk::DiskSession::new(folders, &name));
        let answers = AnswerCache::default();
        let jobs = OnceLock::new();
        let services = OnceLock::new();
        let shell = SessionShell::default();
        let variables = Mutex::default();
        let principal = principal.map(Into::into);
        let turn = AtomicU64::default();
        let inner =
            Inner { name, principal, state, answers, jobs, services, shell, variables, turn };
        Self(Arc::new(inner))
    }

    /// Returns the name of the session.
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// Begins a turn of an agent, which works on a message of a person. The changes that its calls
    /// make from now on are undone together.
    pub fn begin_turn(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        self.0.turn.store(u64::try_from(now).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the current turn, or `None` if no agent has begun a turn.
    pub(crate) fn turn(&self) -> Option<u64> {
        match self.0.turn.load(Ordering::Relaxed) {
            0 => None,
            turn => Some(turn),
        }
    }

    /// Returns the owner. `None` means the user of this machine.
    pub(crate) fn principal(&self) -> Option<&str> {
        self.0.principal.as_deref()
    }

    /// Remembers that the session was given untrusted text. What a model writes from now on may
    /// follow from it.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the session is on disk and can't be written.
    pub fn mark_untrusted(&self) -> Result<(), HostError> {
        if self.look(|state| state.untrusted)? {
            return Ok(());
        }
        self.change(|state| state.untrusted = true)
    }

    /// Checks whether the session was given untrusted text.
    pub(crate) fn is_untrusted(&self) -> bool {
        // If the state can't be read, the session may have been given untrusted text.
        self.look(|state| state.untrusted).unwrap_or(true)
    }

    /// Returns the number of the session's reusable answers and of their uses.
    /// `[tools.result_cache]` limits them.
    pub fn cache_summary(&self) -> CacheSummary {
        self.0.answers.summary()
    }

    /// Forgets all reusable answers and how often one was used.
    pub fn clear_cache(&self) {
        self.0.answers.clear();
    }

    /// Removes the variables that a call, such as one of `load_skill`, set for the commands of the
    /// session: the task that it was for has ended.
    pub fn clear_variables(&self) {
        self.set_variables(Vec::new());
    }

    /// Returns the variables that its commands get in addition to those of earlier commands.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        self.0.variables.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets these variables in place of earlier ones.
    pub(crate) fn set_variables(&self, variables: Vec<(String, String)>) {
        *self.0.variables.lock().unwrap_or_else(PoisonError::into_inner) = variables;
    }

    /// Returns the reusable answers. Returns `None` in a process that makes one call and ends,
    /// since no later call would use them.
    pub(crate) fn answers(&self) -> Option<&AnswerCache> {
        if !self.is_in_memory() {
            return None;
        }
        Some(&self.0.answers)
    }

    /// Returns its jobs in a host. Returns `None` in a process that makes one call and ends, since
    /// its jobs would end with it.
    pub(crate) fn jobs(&self, jobs: &Jobs) -> Option<&SessionJobs> {
        if !self.is_in_memory() {
            return None;
        }
        Some(self.0.jobs.get_or_init(|| jobs.session(&self.0.name)))
    }

    /// Returns the keeper of its services. In a process that makes one call and ends, the services
    /// end with it.
    pub(crate) fn services(&self, services: &Services) -> Arc<dyn ServiceKeeper> {
        Arc::new(self.0.services.get_or_init(|| services.session(&self.0.name)).clone())
    }

    /// Returns the servers among its jobs, or `None` if it has had no job.
    pub(crate) fn job_servers(&self) -> Option<Arc<dyn JobServers>> {
        self.0.jobs.get().map(SessionJobs::servers)
    }

    /// Returns the state that the commands of its next call start with. Returns `None` in a process
    /// that makes one call and ends.
    pub(crate) fn shell(&self) -> Option<CallShell> {
        if !self.is_in_memory() {
            return None;
        }
        Some(self.0.shell.begin())
    }

    fn is_in_memory(&self) -> bool {
        matches!(self.0.state, SessionStore::Memory(_))
    }

    /// Returns notices for its caller about jobs that have ended, each once.
    pub(crate) fn job_news(&self) -> Vec<String> {
        self.0.jobs.get().map(SessionJobs::news).unwrap_or_default()
    }

    /// Reads the state. Nobody changes it meanwhile, so `look` must be quick.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the state is on disk and can't be read or trusted.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&SessionState) -> R) -> Result<R, HostError> {
        match &self.0.state {
            SessionStore::Memory(state) => {
                Ok(look(&state.lock().unwrap_or_else(PoisonError::into_inner)))
            }
            SessionStore::Disk(kept) => kept.look(look),
        }
    }

    /// Changes the state in one step, for all processes that share the session. Writes nothing if
    /// `change` changes nothing.
    ///
    /// # Errors
    ///
    /// As [`look`](Self::look), or the state can't be written.
    pub(crate) fn change<R>(
        &self,
        change: impl FnOnce(&mut SessionState) -> R,
    ) -> Result<R, HostError> {
        match &self.0.state {
            SessionStore::Memory(state) => {
                Ok(change(&mut state.lock().unwrap_or_else(PoisonError::into_inner)))
            }
            SessionStore::Disk(kept) => kept.change(change),
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Session").field(&self.0.name).finish()
    }
}
