//! Records each request of a call in the call's report, before the request is sent.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use toolhold_contract::text::{cut, neutral_line};
use toolhold_contract::{Report, RequestRecord};
use toolhold_redaction::{self as redaction, Keys};
use url::Url;

use super::{Error, Obstacle};

/// Maximum number of characters of a URL in a record. A longer URL is cut.
const MAX_URL: usize = 2048;

/// Maximum bytes of a method and of a failure in a record. A longer text is cut.
const MAX_METHOD: usize = 32;
const MAX_FAILURE: usize = 1024;

pub(super) type LastObstacle = Mutex<Option<Obstacle>>;

/// The record of a request in the report of its call. Dropping this value adds the time.
#[derive(Debug)]
pub(super) struct Record {
    report: Arc<Report>,
    obstacle: Arc<LastObstacle>,
    index: Option<usize>,
    started_at: Instant,
}

impl Record {
    /// Adds a new request to the report.
    pub(super) fn begin(report: &Arc<Report>, obstacle: &Arc<LastObstacle>, method: &str) -> Self {
        // A clock before 1970 is recorded as 1970.
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let request = RequestRecord {
            began,
            method: neutral_line(cut(method, MAX_METHOD)),
            url: String::new(),
            hop: 0,
            address: None,
            job: None,
            status: None,
            received: 0,
            sent: 0,
            program: None,
            time: Duration::ZERO,
            secrets: Vec::new(),
            failed: None,
            refused: false,
        };
        Self {
            index: report.requested(request),
            report: Arc::clone(report),
            obstacle: Arc::clone(obstacle),
            started_at: Instant::now(),
        }
    }

    fn update(&self, update: impl FnOnce(&mut RequestRecord)) {
        if let Some(index) = self.index
            && let Some(requested) = self.report.entries().requests.get_mut(index)
        {
            update(requested);
        }
    }

    pub(super) fn set_url(&self, url: &Url, hop: u32) {
        let url = redacted_url(url);
        self.update(|requested| {
            requested.url = url;
            requested.hop = hop;
        });
    }

    pub(super) fn set_invalid_url(&self, url: &str) {
        let url = redaction::owned(neutral_line(cut(url, MAX_URL)), Keys::Settings);
        self.update(|requested| requested.url = url);
    }

    pub(super) fn set_program(&self, program: &str) {
        self.update(|requested| requested.program = Some(program.to_owned()));
    }

    pub(super) fn set_address(&self, address: Option<IpAddr>) {
        self.update(|requested| requested.address = address);
    }

    pub(super) fn set_received(&self, received: u64) {
        self.update(|requested| requested.received = received);
    }

    /// Adds the bytes of a piece to the sent bytes. The time is also set, because the report may be
    /// read before the end of a connection.
    pub(super) fn add_sent(&self, length: usize) {
        let time = self.started_at.elapsed();
        self.update(|requested| {
            requested.sent = requested.sent.saturating_add(bytes(length));
            requested.time = time;
        });
    }

    /// Adds the bytes of a piece to the received bytes, and sets the time.
    pub(super) fn add_received(&self, length: usize) {
        let time = self.started_at.elapsed();
        self.update(|requested| {
            requested.received = requested.received.saturating_add(bytes(length));
            requested.time = time;
        });
    }

    /// Sets the time from the start of the request.
    pub(super) fn set_time(&self) {
        let time = self.started_at.elapsed();
        self.update(|requested| requested.time = time);
    }

    pub(super) fn add_secret(&self, name: &str) {
        self.update(|requested| requested.secrets.push(name.to_owned()));
    }

    pub(super) fn notice(&self, notice: String) {
        self.report.say(notice);
    }

    pub(super) fn set_job(&self, job: &str, address: IpAddr) {
        self.update(|requested| {
            requested.job = Some(job.to_owned());
            requested.address = Some(address);
        });
    }

    pub(super) fn set_answer(&self, status: u16, address: Option<IpAddr>) {
        self.update(|requested| {
            requested.status = Some(status);
            requested.address = address.or(requested.address);
        });
    }

    /// Records the failure of the request. Also stores an obstacle that the operator can remove.
    pub(super) fn set_failure(&self, error: &Error) {
        if let Some(obstacle) = error.obstacle() {
            *self.obstacle.lock().unwrap_or_else(PoisonError::into_inner) = Some(obstacle);
        }
        let reason = neutral_line(cut(&error.record_text(), MAX_FAILURE));
        let refused = error.denial().is_some();
        self.update(|requested| {
            requested.failed = Some(reason);
            requested.refused = refused;
        });
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.set_time();
    }
}

fn bytes(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Returns a URL without its fragment and without secrets, cut to the length of a record. A value
/// of the query is a secret if its name suggests a secret. Other text is a secret if it has the
/// form of a secret.
pub(super) fn redacted_url(url: &Url) -> String {
    let mut redacted = url.clone();
    redacted.set_fragment(None);
    let mut pairs = Vec::new();
    let mut has_changed = false;
    for (name, value) in url.query_pairs() {
        let redacted_value = redaction::field(&name, &value, Keys::Settings).into_owned();
        has_changed = has_changed || redacted_value != value;
        pairs.push((name.into_owned(), redacted_value));
    }
    // Rewriting could change the spelling of the query, so an unchanged query isn't rewritten.
    if has_changed {
        redacted.query_pairs_mut().clear().extend_pairs(pairs);
    }
    redaction::owned(neutral_line(cut(redacted.as_str(), MAX_URL)), Keys::Text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redacted_url_has_no_secret() {
        let redacted = |url: &str| redacted_url(&Url::parse(url).expect("a URL"));
        assert_eq!(redacted("https://example.com/a?b=c#d"), "https://example.com/a?b=c");
        let url =
            redacted("https://example.com/a?page=2&api_key=0123456789abcdef&token=hunter2hunter2");
        assert!(
            url.contains("page=2") && !url.contains("0123456789abcdef") && !url.contains("hunter2"),
            "{url}"
        );
    }
}
