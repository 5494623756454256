//! What is told of each request, from its beginning on.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use berth_contract::text::{cut, neutral_line};
use berth_contract::{Report, RequestRecord};
use berth_redaction::{self as redaction, Keys};
use url::Url;

use super::{Error, Obstacle};

/// Characters of a URL that are told.
const MAX_URL: usize = 2048;

/// What the last request of a call that failed for such a reason met with.
pub(super) type Met = Mutex<Option<Obstacle>>;

/// A request in its call's report. What is known when it is dropped is what stands there.
#[derive(Debug)]
pub(super) struct Record {
    report: Arc<Report>,
    met: Arc<Met>,
    index: Option<usize>,
    began: Instant,
    pub(super) received: u64,
}

impl Record {
    pub(super) fn begin(report: &Arc<Report>, met: &Arc<Met>, method: &str) -> Self {
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let requested = RequestRecord {
            began,
            method: neutral_line(cut(method, 32)),
            url: String::new(),
            hop: 0,
            address: None,
            status: None,
            received: 0,
            time: Duration::ZERO,
            secrets: Vec::new(),
            failed: None,
            refused: false,
        };
        let (index, report, met) =
            (report.requested(requested), Arc::clone(report), Arc::clone(met));
        Self { report, met, index, began: Instant::now(), received: 0 }
    }

    fn update(&self, update: impl FnOnce(&mut RequestRecord)) {
        if let Some(index) = self.index
            && let Some(requested) = self.report.entries().requests.get_mut(index)
        {
            update(requested);
        }
    }

    pub(super) fn url(&self, url: &Url, hop: u32) {
        let shown = shown(url);
        self.update(|requested| {
            requested.url = shown;
            requested.hop = hop;
        });
    }

    pub(super) fn unreadable_url(&self, url: &str) {
        let shown = redaction::owned(neutral_line(cut(url, MAX_URL)), Keys::Settings);
        self.update(|requested| requested.url = shown);
    }

    pub(super) fn secret(&self, name: &str) {
        self.update(|requested| requested.secrets.push(name.to_owned()));
    }

    pub(super) fn answered(&self, status: u16, address: Option<IpAddr>) {
        self.update(|requested| {
            requested.status = Some(status);
            requested.address = address;
        });
    }

    pub(super) fn failed(&self, error: &Error) {
        if let Some(obstacle) = error.obstacle() {
            *self.met.lock().unwrap_or_else(PoisonError::into_inner) = Some(obstacle);
        }
        let (reason, refused) =
            (neutral_line(cut(&error.recorded(), 1024)), error.denial().is_some());
        self.update(|requested| {
            requested.failed = Some(reason);
            requested.refused = refused;
        });
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let (received, time) = (self.received, self.began.elapsed());
        self.update(|requested| {
            requested.received = received;
            requested.time = time;
        });
    }
}

/// A URL without what secrets may stand in: values of its query by their names, and whatever has
/// the form of one.
pub(super) fn shown(url: &Url) -> String {
    let mut shown = url.clone();
    shown.set_fragment(None);
    if url.query().is_some() {
        let pairs: Vec<(String, String)> = url
            .query_pairs()
            .map(|(name, value)| {
                (name.to_string(), redaction::field(&name, &value, Keys::Settings).into_owned())
            })
            .collect();
        let changed =
            url.query_pairs().zip(&pairs).any(|((_, before), (_, after))| before != *after);
        if changed {
            shown.query_pairs_mut().clear().extend_pairs(pairs);
        }
    }
    redaction::owned(neutral_line(cut(shown.as_str(), MAX_URL)), Keys::Text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_a_url_has_no_secret() {
        let shown = |url: &str| shown(&Url::parse(url).expect("it is one"));
        assert_eq!(shown("https://example.com/a?b=c#d"), "https://example.com/a?b=c");
        let url =
            shown("https://example.com/a?page=2&api_key=0123456789abcdef&token=hunter2hunter2");
        assert!(
            url.contains("page=2") && !url.contains("0123456789abcdef") && !url.contains("hunter2"),
            "{url}"
        );
    }
}
