//! Counts calls, requests and connections for Prometheus (`/metrics`).

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use toolhold_core::FilterSummary;

pub(crate) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Histogram buckets in seconds, from a built-in tool to the longest call.
const BUCKETS: [f64; 12] =
    [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 600.0];

/// Maximum number of users in labels. Further users are counted together, because clients could
/// create any number of labels.
const MAX_USERS: usize = 1024;

/// The label of users beyond [`MAX_USERS`].
const OTHER_USERS: &str = "other";

type Labels<const COUNT: usize> = [(&'static str, String); COUNT];

pub(crate) struct Metrics {
    calls: Family<Labels<3>, Counter<u64, AtomicU64>>,
    seconds: Family<Labels<1>, Histogram, fn() -> Histogram>,
    filtered: Family<Labels<2>, Counter<u64, AtomicU64>>,
    running: Gauge<i64, AtomicI64>,
    requests: Family<Labels<1>, Counter<u64, AtomicU64>>,
    refused: Family<Labels<2>, Counter<u64, AtomicU64>>,
    users: Mutex<HashSet<String>>,
    connections: Gauge<i64, AtomicI64>,
    registry: Registry,
}

impl Metrics {
    pub(crate) fn new() -> Arc<Self> {
        let mut registry = Registry::with_prefix(toolhold_core::NAME);
        let calls = Family::default();
        let running = Gauge::default();
        let requests = Family::default();
        let refused = Family::default();
        let connections = Gauge::default();
        let filtered = Family::default();
        let seconds: Family<_, _, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(BUCKETS));
        registry.register(
            "calls",
            "Finished calls, by tool, outcome and user",
            Family::clone(&calls),
        );
        registry.register(
            "call_seconds",
            "Duration of calls, including the wait for approval",
            Family::clone(&seconds),
        );
        registry.register(
            "filtered_bytes",
            "Bytes of answers that filters shortened, before and after",
            Family::clone(&filtered),
        );
        registry.register("calls_running", "Running or waiting calls", Gauge::clone(&running));
        registry.register(
            "http_requests",
            "Answered requests, by status",
            Family::clone(&requests),
        );
        registry.register(
            "refused",
            "Requests and connections that a limit or [principals] refused, by reason and user",
            Family::clone(&refused),
        );
        registry.register("http_connections", "Open connections", Gauge::clone(&connections));
        Arc::new(Self {
            calls,
            seconds,
            filtered,
            running,
            requests,
            refused,
            users: Mutex::default(),
            connections,
            registry,
        })
    }

    /// Counts a running call until the returned value is dropped.
    pub(crate) fn count_running(&self) -> Counted {
        Counted::new(&self.running)
    }

    /// Counts a finished call of an existing `tool`. Unknown names must not be counted, because
    /// clients could create any number of labels.
    pub(crate) fn count_call(&self, tool: &str, outcome: &str, user: &str, took: Duration) {
        let user = self.user_label(user);
        let labels = [("tool", tool.to_owned()), ("outcome", outcome.to_owned()), ("user", user)];
        self.calls.get_or_create(&labels).inc();
        self.seconds.get_or_create(&[("tool", tool.to_owned())]).observe(took.as_secs_f64());
    }

    /// Counts the bytes of an answer before and after its filters.
    pub(crate) fn count_filtered(&self, summary: &FilterSummary) {
        let [bytes_before, bytes_after] = summary.bytes;
        for (state, bytes) in [("whole", bytes_before), ("shown", bytes_after)] {
            let filters = summary.filters.join(",");
            let labels = [("filters", filters), ("state", state.to_owned())];
            self.filtered.get_or_create(&labels).inc_by(bytes);
        }
    }

    /// Counts an open connection until the returned value is dropped.
    pub(crate) fn count_connection(&self) -> Counted {
        Counted::new(&self.connections)
    }

    pub(crate) fn count_answer(&self, status: http::StatusCode) {
        self.requests.get_or_create(&[("status", status.as_str().to_owned())]).inc();
    }

    /// Counts a refused request or connection.
    pub(crate) fn count_refused(&self, reason: &str, user: &str) {
        let labels = [("reason", reason.to_owned()), ("user", self.user_label(user))];
        self.refused.get_or_create(&labels).inc();
    }

    fn user_label(&self, user: &str) -> String {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if !users.contains(user) {
            if users.len() >= MAX_USERS {
                return OTHER_USERS.to_owned();
            }
            users.insert(user.to_owned());
        }
        user.to_owned()
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// Decrements the gauge when dropped.
pub(crate) struct Counted(Gauge<i64, AtomicI64>);

impl Counted {
    fn new(gauge: &Gauge<i64, AtomicI64>) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_users_are_bounded() {
        let metrics = Metrics::new();
        for number in 0..2 * MAX_USERS {
            metrics.count_refused("requests", &number.to_string());
        }
        metrics.count_refused("requests", "0");
        let text = metrics.text();
        let lines = text.lines().filter(|line| line.starts_with("toolhold_refused_total{"));
        assert_eq!(lines.count(), MAX_USERS + 1);
        for line in
            ["{reason=\"requests\",user=\"0\"} 2", "{reason=\"requests\",user=\"other\"} 1024"]
        {
            let line = format!("toolhold_refused_total{line}");
            assert!(text.lines().any(|found| found == line), "{line}");
        }
    }
}
