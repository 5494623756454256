//! What a session remembers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;

/// Approvals that one session holds at a time; the one that ends first makes room. Each took a
/// person, so there are never many.
const MAX_APPROVALS: usize = 1024;

/// What a session remembers of its calls, as its file has it.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SessionState {
    /// What a person agreed to for the session.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    approvals: BTreeMap<Fingerprint, SessionApproval>,
    /// Calls that were counted so far.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) calls: u64,
    /// When calls ran that act, in milliseconds of Unix time, the earliest first. Whoever adds to
    /// it drops what no longer counts.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    pub(crate) acted: VecDeque<u64>,
    /// Tools that have come to an output, by their full names.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) completed: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SessionApproval {
    by: String,
    /// The second of Unix time from which on it no longer counts.
    until: u64,
}

impl SessionState {
    /// Remembers that somebody agreed to all calls of this fingerprint.
    pub(crate) fn approve(
        &mut self,
        fingerprint: Fingerprint,
        by: &str,
        now: SystemTime,
        lasting: Duration,
    ) {
        let now = seconds(now);
        self.approvals.retain(|_, approval| approval.until > now);
        while self.approvals.len() >= MAX_APPROVALS {
            let Some(first) = self
                .approvals
                .iter()
                .min_by_key(|(_, approval)| approval.until)
                .map(|(key, _)| *key)
            else {
                break;
            };
            self.approvals.remove(&first);
        }
        self.approvals.insert(
            fingerprint,
            SessionApproval { by: by.to_owned(), until: now.saturating_add(lasting.as_secs()) },
        );
    }

    /// Who agreed to calls of this fingerprint, where that still counts.
    pub(crate) fn approved_by(&self, fingerprint: &Fingerprint, now: SystemTime) -> Option<&str> {
        let approval = self.approvals.get(fingerprint)?;
        (approval.until > seconds(now)).then_some(&approval.by)
    }
}

/// Seconds of Unix time.
pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(number: u16) -> Fingerprint {
        let mut bytes = [0; 32];
        bytes[..2].copy_from_slice(&number.to_be_bytes());
        Fingerprint(bytes)
    }

    fn at(second: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(second)
    }

    #[test]
    fn an_approval_counts_for_its_fingerprint_until_it_ends() {
        let mut state = SessionState::default();
        state.approve(fingerprint(1), "terminal", at(100), Duration::from_secs(10));
        assert_eq!(state.approved_by(&fingerprint(1), at(109)), Some("terminal"));
        assert_eq!(state.approved_by(&fingerprint(1), at(110)), None, "it has ended");
        assert_eq!(state.approved_by(&fingerprint(2), at(100)), None, "it was not for that");
        state.approve(fingerprint(2), "terminal", at(110), Duration::from_secs(10));
        assert_eq!(state.approvals.len(), 1, "what has ended is forgotten");
    }

    #[test]
    fn approvals_are_bounded_and_the_one_that_ends_first_goes() {
        let mut state = SessionState::default();
        for number in 0..=u16::try_from(MAX_APPROVALS).expect("it fits") {
            state.approve(
                fingerprint(number),
                "terminal",
                at(u64::from(number)),
                Duration::from_secs(10_000),
            );
        }
        assert_eq!(state.approvals.len(), MAX_APPROVALS);
        assert_eq!(state.approved_by(&fingerprint(0), at(0)), None);
        assert_eq!(state.approved_by(&fingerprint(1), at(1)), Some("terminal"));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut state = SessionState {
            calls: 3,
            acted: [1, 2].into(),
            completed: ["read".to_owned()].into(),
            ..SessionState::default()
        };
        state.approve(fingerprint(1), "terminal", at(100), Duration::from_secs(10));
        let text = serde_json::to_string(&state).expect("it has a JSON form");
        assert_eq!(serde_json::from_str::<SessionState>(&text).expect("it is one"), state);
        assert_eq!(
            serde_json::to_string(&SessionState::default()).expect("it has a JSON form"),
            "{}"
        );
    }
}
