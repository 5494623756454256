//! The output of a process for the caller, while the process runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_contract::text::neutral;
use berth_contract::{Content, Events};

/// Most bytes of an unfinished line before it is passed on.
const MAX_LINE: usize = 64 * 1024;

/// Shortest time between two pieces of live output.
const LIVE_INTERVAL: Duration = Duration::from_millis(100);

/// Passes output on to the caller while the process runs, if the guest wants that.
pub(crate) struct LiveOutput {
    events: Option<Arc<dyn Events>>,
    waiting: Vec<u8>,
    last_sent: Instant,
}

impl LiveOutput {
    pub(crate) fn new(events: Option<Arc<dyn Events>>) -> Self {
        Self { events, waiting: Vec::new(), last_sent: Instant::now() }
    }

    /// Adds output, which may be empty, and sends it if the interval is over.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        if self.events.is_none() || bytes.is_empty() && self.waiting.is_empty() {
            return;
        }
        self.waiting.extend_from_slice(bytes);
        if self.last_sent.elapsed() >= LIVE_INTERVAL {
            self.send(false);
        }
    }

    /// Sends whole lines. An unfinished line waits, unless `all` is set.
    pub(crate) fn send(&mut self, all: bool) {
        let Some(events) = &self.events else { return };
        // The time is set even if nothing is sent, so that an unfinished line isn't searched again
        // for each new piece.
        self.last_sent = Instant::now();
        let all = all || self.waiting.len() > MAX_LINE;
        let end = if all {
            self.waiting.len()
        } else {
            self.waiting.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
        };
        if end == 0 {
            return;
        }
        let lines: Vec<u8> = self.waiting.drain(..end).collect();
        let text = String::from_utf8_lossy(&lines);
        events.emitted(&Content::text(neutral(&text).into_owned()));
    }
}
