//! Sessions: what outlives a call for one caller, and is nobody else's.

mod disk;
mod state;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use berth_contract::HostError;

use berth_answers::{AnswerCache, CacheSummary};
use berth_config::Folders;
pub(crate) use disk::kept_in;
pub(crate) use state::{SessionState, seconds};

/// What belongs together of one caller's calls: approvals, counters, answers that may serve again,
/// and kept output.
///
/// A session belongs to a principal: a connection, a user in a directory, an authenticated caller.
/// Clones are the same session.
#[derive(Clone)]
pub struct Session(Arc<Inner>);

struct Inner {
    name: Arc<str>,
    state: Place,
    /// Always in memory.
    answers: AnswerCache,
}

enum Place {
    Memory(Mutex<SessionState>),
    Disk(disk::DiskSession),
}

impl Session {
    /// A session that lives in memory, as long as the last clone of it. `name` says whose it is;
    /// what calls keep on disk (the audit, kept output) goes by it, so no two callers have the same
    /// one.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(Arc::new(Inner {
            name: name.into(),
            state: Place::Memory(Mutex::default()),
            answers: AnswerCache::default(),
        }))
    }

    /// A session that every process of the user who gives the same `name` shares: for programs that
    /// make a call and end. What it has to remember lies in the data folder, and is forgotten when
    /// nothing was added to it for eight hours.
    ///
    /// Nothing is read before a call asks it for something, and nothing is written before there is
    /// something to remember.
    pub fn on_disk(folders: &Folders, name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        let state = Place::Disk(disk::DiskSession::new(folders, &name));
        Self(Arc::new(Inner { name, state, answers: AnswerCache::default() }))
    }

    /// Whose it is.
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// What the session keeps of answers that may serve again, and how often one did.
    /// `[tools.result_cache]` says how many are kept.
    pub fn cache_summary(&self) -> CacheSummary {
        self.0.answers.summary()
    }

    /// Lets go all answers that may serve again, and forgets how often one did.
    pub fn clear_cache(&self) {
        self.0.answers.clear();
    }

    /// The answers that may serve again. None where the process makes a call and ends: nobody would
    /// ask for them.
    pub(crate) fn answers(&self) -> Option<&AnswerCache> {
        matches!(self.0.state, Place::Memory(_)).then_some(&self.0.answers)
    }

    /// Looks at what is remembered. Nobody changes it meanwhile, so `look` is quick.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`], where it is kept on disk and can't be read or believed.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&SessionState) -> R) -> Result<R, HostError> {
        match &self.0.state {
            Place::Memory(state) => Ok(look(&state.lock().unwrap_or_else(PoisonError::into_inner))),
            Place::Disk(kept) => kept.look(look),
        }
    }

    /// Changes what is remembered: at a stroke, for all processes that share the session. Where
    /// `change` changes nothing, nothing is written.
    ///
    /// # Errors
    ///
    /// As [`look`](Self::look), and where it can't be written.
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
