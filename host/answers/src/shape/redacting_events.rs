//! Redacts the events of a running call.

use std::sync::{Arc, Mutex, PoisonError};

use berth_contract::{Body, Content, Events, Progress};
use berth_redaction as redaction;

use super::sources::Source;

/// Bytes of emitted text that are remembered to find a secret that ends in a later part.
const REMEMBERED: usize = 1024;

/// Passes on events without secrets. If a secret comes in pieces, the pieces before it is
/// recognised have left already; the rest isn't passed on.
pub(super) struct RedactingEvents {
    events: Arc<dyn Events>,
    source: Source,
    /// The end of the emitted text.
    before: Mutex<String>,
}

impl RedactingEvents {
    pub(super) fn new(events: Arc<dyn Events>, source: Source) -> Self {
        Self { events, source, before: Mutex::default() }
    }
}

impl Events for RedactingEvents {
    fn progress(&self, progress: Progress) {
        let message = redaction::owned(progress.message, self.source.keys());
        self.events.progress(Progress { message, ..progress });
    }

    fn emitted(&self, part: &Content) {
        let mut redacted = self.source.part(part.clone());
        if let (Body::Text(text), Body::Text(raw)) = (&mut redacted.body, &part.body) {
            let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
            redaction::across(&mut [&mut before.clone(), text], self.source.keys());
            before.push_str(raw);
            let from = before.ceil_char_boundary(before.len().saturating_sub(REMEMBERED));
            before.drain(..from);
        }
        self.events.emitted(&redacted);
    }
}
