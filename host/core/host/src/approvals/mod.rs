//! Asks for the approval of calls, and limits the number of open questions.

pub(crate) mod always;
pub(crate) mod fingerprint;
mod links;
mod outdated;
mod posted;
pub(crate) mod preview;
mod question;
mod question_text;
pub(crate) mod started;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

pub use always::{Always, Proposal, WiderRules};
pub(crate) use fingerprint::WideFingerprints;
pub use links::LINK_PATH;
pub use posted::{PostedQuestion, PostingApprover, Questions};
pub use preview::Preview;
pub use question::{Approver, AttachmentSummary, Question, Reply};
pub use question_text::Mark;

use toolhold_config::{Config, Folders};

/// Maximum number of open questions of one host. Each question keeps the arguments of its call in
/// memory. Further questions are refused.
const MAX_OPEN: usize = 64;

/// Maximum number of open questions of one session, so that a session can't take all slots.
const MAX_OF_SESSION: usize = 16;

#[derive(Debug)]
pub(crate) struct ApprovalDesk {
    pub(crate) question_slots: Arc<QuestionSlots>,
    pub(crate) folders: Folders,
    config: RwLock<Arc<Config>>,
}

impl ApprovalDesk {
    pub(crate) fn new(folders: Folders, config: Config) -> Self {
        Self { question_slots: Arc::default(), folders, config: RwLock::new(Arc::new(config)) }
    }

    pub(crate) fn exchange(&self, config: Config) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The number of open questions of each session.
#[derive(Debug, Default)]
pub(crate) struct QuestionSlots(Mutex<HashMap<String, usize>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SlotError {
    #[error("too many calls wait for approval; the limit is {MAX_OPEN}")]
    Host,
    #[error("too many calls of this session wait for approval; the limit is {MAX_OF_SESSION}")]
    Session,
}

/// The slot of one open question. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct QuestionSlot<'p> {
    slots: &'p QuestionSlots,
    session: String,
}

impl QuestionSlots {
    /// Counts a question about a call of `session`, until the returned slot is dropped.
    ///
    /// # Errors
    ///
    /// Returns an error if too many questions are open.
    pub(crate) fn take(&self, session: &str) -> Result<QuestionSlot<'_>, SlotError> {
        let mut open = self.open();
        let open_in_all_sessions: usize = open.values().sum();
        if open_in_all_sessions >= MAX_OPEN {
            return Err(SlotError::Host);
        }
        let open_in_session = open.entry(session.to_owned()).or_default();
        if *open_in_session >= MAX_OF_SESSION {
            return Err(SlotError::Session);
        }
        *open_in_session += 1;
        Ok(QuestionSlot { slots: self, session: session.to_owned() })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for QuestionSlot<'_> {
    fn drop(&mut self) {
        let mut open = self.slots.open();
        if let Some(open_in_session) = open.get_mut(&self.session) {
            *open_in_session -= 1;
            if *open_in_session == 0 {
                open.remove(&self.session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_leaves_open_questions_to_others() {
        let places = QuestionSlots::default();
        let of = |session: &str, count: usize| {
            (0..count).map(|_| places.take(session).expect("it is free")).collect::<Vec<_>>()
        };
        let mut taken = of("a", MAX_OF_SESSION);
        let why = places.take("a").expect_err("it has as many as it may");
        assert_eq!(
            why.to_string(),
            "too many calls of this session wait for approval; the limit is 16"
        );
        taken.pop();
        taken.extend(of("a", 1));
        taken.extend(["b", "c", "d"].into_iter().flat_map(|session| of(session, MAX_OF_SESSION)));
        assert_eq!(
            places.take("e").expect_err("all are taken").to_string(),
            "too many calls wait for approval; the limit is 64"
        );
        drop(taken);
        assert!(places.open().is_empty());
    }
}
