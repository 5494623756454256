//! Records each request of a call in the call's report. The record begins before the request is
//! sent.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use toolhold_contract::text::{cut, neutral_line};
use toolhold_contract::{Report, RequestRecord};
use toolhold_redaction::{self as redaction, Keys};
use url::Url;

use super::{Error, Obstacle};

/// The most characters of a URL in a record.
const MAX_URL: usize = 2048;

/// The last obstacle that the requests of a call had.
pub(super) type LastObstacle = Mutex<Option<Obstacle>>;

/// The record of a request in the report of its call. Dropping the record writes the time and the
/// received bytes.
#[derive(Debug)]
pub(super) struct Record {
    report: Arc<Report>,
    obstacle: Arc<LastObstacle>,
    index: Option<usize>,
    started_at: Instant,
    pub(super) received: u64,
}

impl Record {
    /// Adds a request to the report of its call.
    pub(super) fn begin(report: &Arc<Report>, obstacle: &Arc<LastObstacle>, method: &str) -> Self {
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let request = RequestRecord {
            began,
            method: neutral_line(cut(method, 32)),
            url: String::new(),
            hop: 0,
            address: None,
            job: None,
            status: None,
            received: 0,
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
            received: 0,
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

    pub(super) fn add_secret(&self, name: &str) {
        self.update(|requested| requested.secrets.push(name.to_owned()));
    }

    /// Adds a notice to the answer of the call.
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

    pub(super) fn set_failure(&self, error: &Error) {
        if let Some(obstacle) = error.obstacle() {
            *self.obstacle.lock().unwrap_or_else(PoisonError::into_inner) = Some(obstacle);
        }
        let reason = neutral_line(cut(&error.record_text(), 1024));
        let refused = error.denial().is_some();
        self.update(|requested| {
            requested.failed = Some(reason);
            requested.refused = refused;
        });
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let received = self.received;
        let time = self.started_at.elapsed();
        self.update(|requested| {
            requested.received = received;
            requested.time = time;
        });
    }
}

/// Returns a URL without secrets. Removes values of the query whose names suggest a secret, and
/// text that has the form of a secret.
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
    // The query is only rewritten if it has changed, so that its spelling stays the same.
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
