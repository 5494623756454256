//! Sessions: the state of one caller that lasts longer than a call.

mod disk;
mod state;

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use berth_contract::{HostError, JobServers};

use berth_answers::{AnswerCache, CacheSummary};
use berth_config::Folders;
use berth_jobs::{CallShell, Jobs, SessionJobs, SessionShell};
pub(crate) use disk::count;
pub(crate) use state::{SessionState, seconds};

/// The principal of whoever runs this process.
const USER: &str = "user";

/// The shared state of one caller's calls: approvals, counters, reusable answers and kept output.
///
/// A session belongs to a principal: a connection, a user in a directory, an authenticated caller.
/// Clones are the same session.
#[derive(Clone)]
pub struct Session(Arc<Inner>);

struct Inner {
    name: Arc<str>,
    principal: Arc<str>,
    state: Place,
    /// Always in memory.
    answers: AnswerCache,
    /// The commands that go on after their calls. They end with the session.
    jobs: OnceLock<SessionJobs>,
    /// What its commands hand on to each other.
    shell: SessionShell,
    /// What its commands get beside that.
    variables: Mutex<Vec<(String, String)>>,
}

enum Place {
    Memory(Mutex<SessionState>),
    Disk(disk::DiskSession),
}

impl Session {
    /// A session in memory that lasts as long as its last clone. `name` identifies it: what calls
    /// store on disk (the audit, kept output) uses it, so no two callers may have the same name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self::of_principal(USER, name)
    }

    /// The same for a principal other than the user who runs this process: a caller that was
    /// authenticated. What lasts longer than sessions, such as tasks, belongs to a principal.
    pub fn of_principal(principal: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self(Arc::new(Inner {
            name: name.into(),
            principal: principal.into(),
            state: Place::Memory(Mutex::default()),
            answers: AnswerCache::default(),
            jobs: OnceLock::new(),
            shell: SessionShell::default(),
            variables: Mutex::default(),
        }))
    }

    /// A session that is shared by all processes of the user with the same `name`: for programs
    /// that make one call and end. Its state is in the data folder and expires eight hours after
    /// its last change.
    ///
    /// Nothing is read before a call needs it, and nothing is written before there is state to
    /// store.
    pub fn on_disk(folders: &Folders, name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        let state = Place::Disk(disk::DiskSession::new(folders, &name));
        let answers = AnswerCache::default();
        let (jobs, shell) = (OnceLock::new(), SessionShell::default());
        let variables = Mutex::default();
        let principal = USER.into();
        Self(Arc::new(Inner { name, principal, state, answers, jobs, shell, variables }))
    }

    /// The name of its owner.
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// The principal that it belongs to.
    pub fn principal(&self) -> &Arc<str> {
        &self.0.principal
    }

    /// The session's reusable answers and how often one was used. `[tools.result_cache]` limits
    /// them.
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

    /// The variables that its commands get beside those that they hand on themselves.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        self.0.variables.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets these variables in place of earlier ones.
    pub(crate) fn set_variables(&self, variables: Vec<(String, String)>) {
        *self.0.variables.lock().unwrap_or_else(PoisonError::into_inner) = variables;
    }

    /// The reusable answers. `None` in a process that makes one call and ends: nobody would ask for
    /// them.
    pub(crate) fn answers(&self) -> Option<&AnswerCache> {
        matches!(self.0.state, Place::Memory(_)).then_some(&self.0.answers)
    }

    /// Its jobs in a host, which the first call that may start one makes. `None` in a process that
    /// makes one call and ends: its jobs would end with it.
    pub(crate) fn jobs(&self, jobs: &Jobs) -> Option<&SessionJobs> {
        matches!(self.0.state, Place::Memory(_))
            .then(|| self.0.jobs.get_or_init(|| jobs.session(&self.0.name)))
    }

    /// The servers among its jobs. `None`: it has had no job.
    pub(crate) fn job_servers(&self) -> Option<Arc<dyn JobServers>> {
        self.0.jobs.get().map(SessionJobs::servers)
    }

    /// What the commands of its next call begin with. `None` in a process that makes one call and
    /// ends.
    pub(crate) fn shell(&self) -> Option<CallShell> {
        matches!(self.0.state, Place::Memory(_)).then(|| self.0.shell.begin())
    }

    /// What its caller has to know of jobs that have ended, each once.
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
            Place::Memory(state) => Ok(look(&state.lock().unwrap_or_else(PoisonError::into_inner))),
            Place::Disk(kept) => kept.look(look),
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
            Place::Memory(state) => {
                Ok(change(&mut state.lock().unwrap_or_else(PoisonError::into_inner)))
            }
            Place::Disk(kept) => kept.change(change),
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Session").field(&self.0.name).finish()
    }
}
