//! The thread that sends spans and metrics.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::call::{Call, RANDOM_BYTES};
use super::{Signals, State, lock};
use crate::otlp;
use crate::otlp::traces::Span;
use crate::send::{Pauses, Sent, Transport, send};

/// The number of spans in one request.
pub(super) const BATCH: usize = 512;

/// The path of traces below the receiver's address.
const TRACES: &str = "v1/traces";

struct Waiting {
    calls: Vec<Call>,
    /// Waiting callers of `flush_telemetry`.
    flushes: Vec<SyncSender<()>>,
    /// Whether the host has ended.
    closed: bool,
}

pub(super) struct Worker {
    signals: Signals,
    transport: Box<dyn Transport>,
    state: Arc<State>,
    instance: String,
    spans: Vec<Span>,
    pauses: Pauses,
    /// After a failure, nothing is sent before this time.
    not_before: Option<Instant>,
    /// Whether the failure has been logged.
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

    /// Sends telemetry until the host ends.
    pub(super) fn run(mut self) {
        let mut next_send = Instant::now() + self.signals.every;
        loop {
            let Waiting { calls, flushes, closed } = self.wait(next_send);
            let sends_at_once = closed || !flushes.is_empty();
            let is_due = sends_at_once || Instant::now() >= next_send;
            for call in calls {
                self.add(call);
            }
            if sends_at_once {
                // The program or its host is about to end, so don't wait until the pause after a
                // failure is over.
                self.not_before = None;
            }
            if is_due {
                self.send_all();
                next_send = Instant::now() + self.signals.every;
            }

            for done in flushes {
                // An error means that the caller no longer waits.
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

    /// Waits for a full batch, a flush, the host's end or `deadline`, and takes the waiting items.
    fn wait(&self, deadline: Instant) -> Waiting {
        let timeout = deadline.saturating_duration_since(Instant::now());
        let may_send = self.may_send();
        let inbox = lock(&self.state.inbox);
        let wait_result = self.state.wakes.wait_timeout_while(inbox, timeout, |inbox| {
            let is_batch = inbox.calls.len() >= BATCH && may_send;
            !is_batch && inbox.flushes.is_empty() && !inbox.closed
        });
        let (mut inbox, _) = wait_result.unwrap_or_else(PoisonError::into_inner);

        let flushes = std::mem::take(&mut inbox.flushes);
        let mut count = inbox.calls.len();
        // If no request may be sent now, take only the calls whose spans still fit into the batch.
        // The other calls stay in the queue, which drops new calls when it is full.
        let takes_all = may_send || inbox.closed || !flushes.is_empty();
        if !takes_all {
            let free_places = BATCH - self.spans.len();
            count = count.min(free_places);
        }
        let calls = inbox.calls.drain(..count).collect();
        Waiting { calls, flushes, closed: inbox.closed }
    }

    /// Adds the span of a call. The span is dropped if there is no room, or if there are no random
    /// bytes for its ID.
    fn add(&mut self, call: Call) {
        if self.spans.len() >= BATCH && self.may_send() {
            self.send_spans();
        }
        let mut random = [0; RANDOM_BYTES];
        let length = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
        let is_random = length == Ok(random.len());
        if is_random && self.spans.len() < BATCH {
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
            let plugins = match &*lock(&self.state.plugins) {
                Some(count_plugins) => count_plugins(),
                None => BTreeMap::new(),
            };
            let dropped = self.state.dropped.load(Ordering::Relaxed);
            let metrics = lock(&self.state.counts).metrics(&plugins, dropped);
            let body = otlp::metrics::request(metrics, &self.instance).to_protobuf();
            // Metrics are sums since the start, so the next request contains the counts of a failed
            // request.
            self.post("v1/metrics", &body);
        }
    }

    fn send_spans(&mut self) {
        if self.spans.is_empty() {
            return;
        }
        let body = otlp::traces::request(&self.spans, &self.instance).to_protobuf();
        if self.post(TRACES, &body) {
            self.spans.clear();
        }
    }

    /// Sends a request, logs a failure, and sets the pause after it. Returns `false` if the request
    /// must be sent again.
    fn post(&mut self, path: &'static str, body: &[u8]) -> bool {
        match send(&mut *self.transport, path, body) {
            Sent::Done(refused) => {
                if let Some(refused) = refused {
                    self.warn(&format!(
                        "{} of {path} were refused: {}",
                        refused.count, refused.why
                    ));
                } else if self.warned {
                    self.warned = false;
                    tracing::info!("sending telemetry works again");
                }
                self.pauses = Pauses::new();
                self.not_before = None;
                true
            }
            Sent::Later(requested_pause, why) => {
                let pause: Duration = self.pauses.next_pause(requested_pause);
                self.not_before = Some(Instant::now() + pause);
                self.warn(&why);
                false
            }
            Sent::TooLarge => self.give_up(path, "the receiver accepts only smaller requests"),
            Sent::Refused(why) => self.give_up(path, &why),
        }
    }

    /// Gives up a request that will never be accepted, and counts its spans as dropped. Returns
    /// `true`, because nothing remains to be sent.
    fn give_up(&mut self, path: &str, why: &str) -> bool {
        if path == TRACES {
            self.state.dropped.fetch_add(self.spans.len() as u64, Ordering::Relaxed);
        }
        self.warn(why);
        true
    }

    /// Logs a warning, but only the first warning after a successful request.
    fn warn(&mut self, why: &str) {
        if !self.warned {
            tracing::warn!("telemetry can't be sent: {why}");
        }
        self.warned = true;
    }
}
