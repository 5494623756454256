//! The state of one caller between calls. Another host can continue with this state.

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

/// The shared state of one caller's calls: approvals, counters, reusable answers and stored output.
///
/// A session belongs to a principal: a connection, a user in a directory, or an authenticated
/// caller. Clones share the state.
#[derive(Clone)]
pub struct Session(Arc<Inner>);

struct Inner {
    name: Arc<str>,
    /// The owner, if that isn't the user of this machine.
    principal: Option<Arc<str>>,
    state: SessionStore,
    /// Always in memory.
    answers: AnswerCache,
    /// The commands that continue after their calls. They end with the session.
    jobs: OnceLock<SessionJobs>,
    /// The programs of plugins that outlive a call. They end with the session.
    services: OnceLock<SessionServices>,
    /// The shell state that each command passes on to the next.
    shell: SessionShell,
    /// Further variables for the session's commands.
    variables: Mutex<Vec<(String, String)>>,
    /// The start of the agent's current turn, in nanoseconds since 1970. Zero means unknown.
    turn: AtomicU64,
}

enum SessionStore {
    Memory(Mutex<SessionState>),
    Disk(disk::DiskSession),
}

impl Session {
    /// Makes a session in memory that lasts as long as its last clone. `name` identifies the
    /// session in data on disk, such as the audit log and stored output. Two callers must not have
    /// the same name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self::in_memory(name.into(), None)
    }

    /// Makes a session like [`new`](Self::new), for one of a server's callers. Data that a plugin
    /// stores for one `principal` isn't available to other principals.
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

    /// Makes a session that the user's processes with the same `name` share. Such a session is for
    /// programs that make one call and end. Its state is in the data folder and expires eight hours
    /// after its last change.
    ///
    /// The state is read when a call first needs it, and written only if there is state to store.
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

    /// Starts a turn of an agent, in which the agent works on a message of a person. The changes by
    /// the turn's calls are undone together.
    pub fn begin_turn(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        self.0.turn.store(u64::try_from(now).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the current turn, or `None` if no agent has started a turn.
    pub(crate) fn turn(&self) -> Option<u64> {
        match self.0.turn.load(Ordering::Relaxed) {
            0 => None,
            turn => Some(turn),
        }
    }

    /// Returns the principal that owns the session. `None` means the user of this machine.
    pub(crate) fn principal(&self) -> Option<&str> {
        self.0.principal.as_deref()
    }

    /// Records that the session received untrusted text. Text that a model writes after this may
    /// follow instructions in the untrusted text.
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
        // If the state can't be read, the session may have received untrusted text.
        self.look(|state| state.untrusted).unwrap_or(true)
    }

    /// Returns the number of the session's reusable answers, and how often they were used.
    /// `[tools.result_cache]` limits them.
    pub fn cache_summary(&self) -> CacheSummary {
        self.0.answers.summary()
    }

    /// Removes all reusable answers and the counts of their uses.
    pub fn clear_cache(&self) {
        self.0.answers.clear();
    }

    /// Removes the variables that a call, such as `load_skill`, set for the session's commands. Use
    /// this function when the task of the variables has ended.
    pub fn clear_variables(&self) {
        self.set_variables(Vec::new());
    }

    /// Returns the further variables for the session's commands. Earlier commands may have set
    /// others.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        self.0.variables.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the further variables for the session's commands.
    pub(crate) fn set_variables(&self, variables: Vec<(String, String)>) {
        *self.0.variables.lock().unwrap_or_else(PoisonError::into_inner) = variables;
    }

    /// Returns the reusable answers. Returns `None` in a process that makes one call and ends,
    /// because such a process has no later call.
    pub(crate) fn answers(&self) -> Option<&AnswerCache> {
        if !self.is_in_memory() {
            return None;
        }
        Some(&self.0.answers)
    }

    /// Returns the session's jobs in a host. Returns `None` in a process that makes one call and
    /// ends, because jobs end with their process.
    pub(crate) fn jobs(&self, jobs: &Jobs) -> Option<&SessionJobs> {
        if !self.is_in_memory() {
            return None;
        }
        Some(self.0.jobs.get_or_init(|| jobs.session(&self.0.name)))
    }

    /// Returns the keeper of the session's services. In a process that makes one call and ends, the
    /// services end with the process.
    pub(crate) fn services(&self, services: &Services) -> Arc<dyn ServiceKeeper> {
        Arc::new(self.0.services.get_or_init(|| services.session(&self.0.name)).clone())
    }

    /// Returns the servers among the session's jobs, or `None` if the session has had no job.
    pub(crate) fn job_servers(&self) -> Option<Arc<dyn JobServers>> {
        self.0.jobs.get().map(SessionJobs::servers)
    }

    /// Returns the shell state with which the commands of the next call start. Returns `None` in a
    /// process that makes one call and ends.
    pub(crate) fn shell(&self) -> Option<CallShell> {
        if !self.is_in_memory() {
            return None;
        }
        Some(self.0.shell.begin())
    }

    fn is_in_memory(&self) -> bool {
        matches!(self.0.state, SessionStore::Memory(_))
    }

    /// Returns notices for the caller about jobs that have ended. Each notice is returned once.
    pub(crate) fn job_news(&self) -> Vec<String> {
        self.0.jobs.get().map(SessionJobs::news).unwrap_or_default()
    }

    /// Reads the state. The state is locked meanwhile, so `look` must be quick.
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
    /// Returns the errors of [`look`](Self::look), and an error if the state can't be written.
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
