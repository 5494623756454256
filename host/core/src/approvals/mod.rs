//! Questions to a person: what is shown, who asks, and where a question waits.

pub(crate) mod always;
pub(crate) mod fingerprint;
mod outdated;
mod posted;
pub(crate) mod preview;
mod question;
mod words;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

pub use always::Proposal;
pub use posted::{PostedQuestion, PostingApprover, Questions};
pub use question::{Always, Approver, AttachmentSummary, Preview, Question, Reply};
pub use words::Mark;

use berth_config::{Folders, Loaded};

/// Questions of one host that wait at a time. Each holds its call's arguments, and nobody answers
/// more.
const MAX_OPEN: usize = 64;

/// How many of them one session may have, so that none takes the places of all others.
const MAX_OF_SESSION: usize = 16;

/// Asks for a host.
#[derive(Debug)]
pub(crate) struct ApprovalDesk {
    pub(crate) places: QuestionPlaces,
    /// Berth's own folders.
    pub(crate) folders: Folders,
    /// What the rules are made of at the moment.
    config: RwLock<Arc<Loaded>>,
}

impl ApprovalDesk {
    pub(crate) fn new(folders: Folders, config: Loaded) -> Self {
        Self { places: QuestionPlaces::default(), folders, config: RwLock::new(Arc::new(config)) }
    }

    /// Tells that the rules are made of something else from now on.
    pub(crate) fn exchange(&self, config: Loaded) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    pub(crate) fn config(&self) -> Arc<Loaded> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The questions that wait: how many of each session.
#[derive(Debug, Default)]
pub(crate) struct QuestionPlaces(Mutex<HashMap<String, usize>>);

/// A question's place, as long as it lives.
#[derive(Debug)]
pub(crate) struct Place<'p> {
    places: &'p QuestionPlaces,
    session: String,
}

impl QuestionPlaces {
    /// A place for a question of a session, or why there is none.
    pub(crate) fn take(&self, session: &str) -> Result<Place<'_>, String> {
        let mut open = self.open();
        if open.values().sum::<usize>() >= MAX_OPEN {
            return Err(format!("{MAX_OPEN} questions wait for an answer already"));
        }
        let of_session = open.entry(session.to_owned()).or_default();
        if *of_session >= MAX_OF_SESSION {
            return Err(format!(
                "{MAX_OF_SESSION} questions of this session wait for an answer already"
            ));
        }
        *of_session += 1;
        Ok(Place { places: self, session: session.to_owned() })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut open = self.places.open();
        if let Some(of_session) = open.get_mut(&self.session) {
            *of_session -= 1;
            if *of_session == 0 {
                open.remove(&self.session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_session_takes_the_places_of_the_others() {
        let places = QuestionPlaces::default();
        let of = |session: &str, count: usize| {
            (0..count).map(|_| places.take(session).expect("it is free")).collect::<Vec<_>>()
        };
        let mut taken = of("a", MAX_OF_SESSION);
        let why = places.take("a").expect_err("it has as many as it may");
        assert_eq!(why, "16 questions of this session wait for an answer already");
        taken.pop();
        taken.extend(of("a", 1));
        taken.extend(["b", "c", "d"].into_iter().flat_map(|session| of(session, MAX_OF_SESSION)));
        assert_eq!(
            places.take("e").expect_err("all are taken"),
            "64 questions wait for an answer already"
        );
        drop(taken);
        assert!(places.open().is_empty());
    }
}
