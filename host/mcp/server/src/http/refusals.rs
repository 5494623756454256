//! Logs and counts the requests and connections that are refused because a limit is reached.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use toolhold_core::audit::User;

use crate::metrics::Metrics;

/// Time between two log lines about the same limit and user.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of log lines in [`LOG_INTERVAL`].
const MAX_LOG_LINES: usize = 64;

/// Time after which a client may repeat a request.
pub(super) const SHORT_RETRY: Duration = Duration::from_secs(1);

/// A limit that a request or a connection has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// Connections that haven't authenticated.
    Newcomers,
    /// Authenticated connections.
    Connections,
    /// Callers with running requests.
    Callers,
    /// Running requests of a caller.
    Requests,
    /// Requests of a caller in a minute, with the time until the next allowed request.
    Rate(Duration),
    /// Memory for the bodies of requests.
    Memory,
    /// Principals with running work.
    Principals,
}

impl Limit {
    /// Returns the name of the limit in the metrics.
    fn name(self) -> &'static str {
        match self {
            Self::Newcomers => "newcomers",
            Self::Connections => "connections",
            Self::Callers => "callers",
            Self::Requests => "requests",
            Self::Rate(_) => "rate",
            Self::Memory => "memory",
            Self::Principals => "principals",
        }
    }

    /// Explains the limit to the client, and in the log.
    pub(super) fn explanation(self) -> &'static str {
        match self {
            Self::Newcomers => "too many connections haven't sent a token",
            Self::Connections => "too many connections are open (`max_connections` in [serve])",
            Self::Callers => "too many callers have running requests",
            Self::Requests => {
                "the caller has too many running requests (`max_requests` in [serve])"
            }
            Self::Rate(_) => {
                "too many requests came within a minute (`requests_per_minute` in [serve])"
            }
            Self::Memory => {
                "the server has no memory for the request's body while other requests are running"
            }
            Self::Principals => {
                "64 principals are at work, or this one with 16 tokens; this server serves no more \
                 at a time"
            }
        }
    }

    /// Returns the time after which the client may repeat the request.
    pub(super) fn wait(self) -> Duration {
        match self {
            Self::Rate(wait) => wait,
            _ => SHORT_RETRY,
        }
    }
}

pub(super) struct Refusals {
    metrics: Arc<Metrics>,
    /// The user who runs the server.
    local_user: String,
    /// The times of the last log lines, by limit and user.
    logged: Mutex<HashMap<(&'static str, String), Instant>>,
}

impl Refusals {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, local_user: User::local().name, logged: Mutex::default() }
    }

    /// Counts and logs the refusal of a request or a connection. `caller` is empty before the
    /// authentication. `from` is the peer.
    pub(super) fn record(&self, limit: Limit, caller: &str, from: &str) {
        // `Access` gives these names to the user who runs the server.
        let is_local = matches!(caller, "socket" | "token");
        let user: &str = if is_local { &self.local_user } else { caller };
        self.metrics.count_refused(limit.name(), user);
        if !self.may_log(limit, user, Instant::now()) {
            return;
        }
        let why = limit.explanation();
        if user.is_empty() {
            tracing::warn!("a connection from {from} is closed: {why}");
        } else {
            tracing::warn!("a request of {user} from {from} is refused: {why}");
        }
    }

    /// Limits the log lines, so that clients can't fill the log.
    fn may_log(&self, limit: Limit, user: &str, now: Instant) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        logged.retain(|_, time| now.duration_since(*time) < LOG_INTERVAL);
        if logged.len() >= MAX_LOG_LINES {
            return false;
        }
        match logged.entry((limit.name(), user.to_owned())) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(now);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_are_bounded() {
        let refusals = Refusals::new(Metrics::new());
        let now = Instant::now();
        assert!(refusals.may_log(Limit::Requests, "anna", now));
        assert!(!refusals.may_log(Limit::Requests, "anna", now));
        assert!(refusals.may_log(Limit::Connections, "anna", now));
        assert!(refusals.may_log(Limit::Requests, "berta", now));
        assert!(refusals.may_log(Limit::Requests, "anna", now + LOG_INTERVAL));
        let later = now + 3 * LOG_INTERVAL;
        let lines = (0..200)
            .filter(|number| refusals.may_log(Limit::Requests, &number.to_string(), later))
            .count();
        assert_eq!(lines, MAX_LOG_LINES);
    }
}
