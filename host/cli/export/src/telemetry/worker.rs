//! The thread that sends waiting spans and metrics, also when its host ends.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::call::Call;
use super::{Signals, State, lock};
use crate::otlp;
use crate::otlp::traces::Span;
use crate::send::{Pauses, Sent, Transport, send};

/// Spans in one request.
pub(super) const BATCH: usize = 512;

pub(super) struct Worker {
    signals: Signals,
    transport: Box<dyn Transport>,
    state: Arc<State>,
    instance: String,
    spans: Vec<Span>,
    pauses: Pauses,
    /// Nothing is sent before.
    not_before: Option<Instant>,
    /// Whether the log says that nothing can be sent.
    warned: bool,
}

impl Worker {
    pub(super) fn new(signals: Signals, transport: Box<dyn Transport>, state: Arc<State>) -> Self {
        let instance = std::process::id().to_string();
        Self {
            signals,
            transport,
            state,
            instance,
            spans: Vec::new(),
            pauses: Pauses::new(),
            not_before: None,
            warned: false,
        }
    }

    /// Ends after its host.
    pub(super) fn run(mut self) {
        let mut next = Instant::now() + self.signals.every;
        loop {
            let (calls, flushes, closed) = self.wait(next);
            let is_due = closed || !flushes.is_empty() || Instant::now() >= next;
            for call in calls {
                self.add(call);
            }
            if is_due {
                if closed || !flushes.is_empty() {
                    self.not_before = None;
                }
                self.send_all();
                next = Instant::now() + self.signals.every;
            }
            // The asker may have gone.
            for done in flushes {
                let _ = done.try_send(());
            }
            if closed {
                let mut inbox = lock(&self.state.inbox);
                inbox.ended = true;
                inbox.flushes.clear();
                return;
            }
        }
    }

    /// Waits for enough to send, for a request to send, or for the time. Takes the waiting items.
    fn wait(&self, next: Instant) -> (Vec<Call>, Vec<SyncSender<()>>, bool) {
        let left = next.saturating_duration_since(Instant::now());
        let may_send = self.may_send();
        let inbox = lock(&self.state.inbox);
        let waited = self.state.wakes.wait_timeout_while(inbox, left, |inbox| {
            let is_batch = inbox.calls.len() >= BATCH && may_send;
            !is_batch && inbox.flushes.is_empty() && !inbox.closed
        });
        let (mut inbox, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let flushes = std::mem::take(&mut inbox.flushes);
        // Calls that can't be sent yet stay as long as there is room.
        let takes_all = may_send || inbox.closed || !flushes.is_empty();
        let room = if takes_all { usize::MAX } else { BATCH - self.spans.len() };
        let count = room.min(inbox.calls.len());
        (inbox.calls.drain(..count).collect(), flushes, inbox.closed)
    }

    fn add(&mut self, call: Call) {
        if self.spans.len() >= BATCH && self.may_send() {
            self.send_spans();
        }
        let mut random = [0; 24];
        let filled = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
        if filled.is_ok_and(|length| length == random.len()) && self.spans.len() < BATCH {
            self.spans.push(call.span(&random));
        } else {
            self.state.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn may_send(&self) -> bool {
        self.not_before.is_none_or(|moment| Instant::now() >= moment)
    }

    fn send_all(&mut self) {
        if self.may_send() {
            self.send_spans();
        }
        if self.signals.metrics && self.may_send() {
            let plugins =
                lock(&self.state.plugins).as_ref().map_or_else(BTreeMap::new, |count| count());
            let dropped = self.state.dropped.load(Ordering::Relaxed);
            let metrics = lock(&self.state.counts).metrics(&plugins, dropped);
            let body = otlp::metrics::request(metrics, &self.instance).to_protobuf();
            // Metrics count from the start, so the next ones replace these.
            self.post("v1/metrics", &body);
        }
    }

    fn send_spans(&mut self) {
        if self.spans.is_empty() {
            return;
        }
        let body = otlp::traces::request(&self.spans, &self.instance).to_protobuf();
        if self.post("v1/traces", &body) {
            self.spans.clear();
        }
    }

    /// Sends a request. Returns whether nothing of it is left to send.
    fn post(&mut self, path: &'static str, body: &[u8]) -> bool {
        match send(&mut *self.transport, path, body) {
            Sent::Done(refused) => {
                if let Some(refused) = refused {
                    self.warn(&format!(
                        "{} of {path} were refused: {}",
                        refused.count, refused.why
                    ));
                } else if std::mem::take(&mut self.warned) {
                    tracing::info!("telemetry is sent again");
                }
                (self.pauses, self.not_before) = (Pauses::new(), None);
                true
            }
            Sent::Later(asked, why) => {
                let pause: Duration = self.pauses.next(asked);
                self.not_before = Some(Instant::now() + pause);
                self.warn(&why);
                false
            }
            Sent::TooLarge => self.give_up(path, "the receiver accepts only smaller requests"),
            Sent::Refused(why) => self.give_up(path, &why),
        }
    }

    fn give_up(&mut self, path: &str, why: &str) -> bool {
        if path == "v1/traces" {
            self.state.dropped.fetch_add(self.spans.len() as u64, Ordering::Relaxed);
        }
        self.warn(why);
        true
    }

    /// Logs once, until a request succeeds again.
    fn warn(&mut self, why: &str) {
        if !std::mem::replace(&mut self.warned, true) {
            tracing::warn!("telemetry can't be sent: {why}");
        }
    }
}
