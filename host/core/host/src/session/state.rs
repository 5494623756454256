//! The approvals of a session, and its counts of calls.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;

/// Maximum number of approvals of one session. A further approval replaces the approval that
/// expires first.
const MAX_APPROVALS: usize = 1024;

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SessionState {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    approvals: BTreeMap<Fingerprint, SessionApproval>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) calls: u64,
    /// Times of acting calls in milliseconds of Unix time, the earliest first. Times before the
    /// counted period are removed.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    pub(crate) acted: VecDeque<u64>,
    /// Full names of the tools that have succeeded.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) completed: BTreeSet<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) untrusted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SessionApproval {
    by: String,
    /// The expiry time, in seconds of Unix time.
    until: u64,
}

impl SessionState {
    /// Stores an approval until `now` + `lasting`. At the limit, the approval that expires first is
    /// removed.
    pub(crate) fn approve(
        &mut self,
        fingerprint: Fingerprint,
        by: &str,
        now: SystemTime,
        lasting: Duration,
    ) {
        let now_seconds = seconds(now);
        self.approvals.retain(|_, approval| approval.until > now_seconds);
        while self.approvals.len() >= MAX_APPROVALS {
            let first = self.approvals.iter().min_by_key(|(_, approval)| approval.until);
            let Some((&first_fingerprint, _)) = first else { break };
            self.approvals.remove(&first_fingerprint);
        }
        let until = now_seconds.saturating_add(lasting.as_secs());
        self.approvals.insert(fingerprint, SessionApproval { by: by.to_owned(), until });
    }

    /// Returns the person who approved calls with this fingerprint, or `None` for a missing or
    /// expired approval.
    pub(crate) fn approved_by(&self, fingerprint: &Fingerprint, now: SystemTime) -> Option<&str> {
        let approval = self.approvals.get(fingerprint)?;
        if approval.until <= seconds(now) {
            return None;
        }
        Some(&approval.by)
    }
}

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
    fn approval_holds_for_its_fingerprint_until_it_expires() {
        let mut state = SessionState::default();
        state.approve(fingerprint(1), "terminal", at(100), Duration::from_secs(10));
        assert_eq!(state.approved_by(&fingerprint(1), at(109)), Some("terminal"));
        assert_eq!(state.approved_by(&fingerprint(1), at(110)), None, "it has ended");
        assert_eq!(state.approved_by(&fingerprint(2), at(100)), None, "it was not for that");
        state.approve(fingerprint(2), "terminal", at(110), Duration::from_secs(10));
        assert_eq!(state.approvals.len(), 1, "what has ended is forgotten");
    }

    #[test]
    fn approvals_are_bounded_and_the_first_to_expire_is_dropped() {
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
    fn session_state_is_read_back() {
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
