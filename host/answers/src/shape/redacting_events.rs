//! What a call tells while it runs, without secrets.

use std::sync::{Arc, Mutex, PoisonError};

use berth_contract::{Body, Content, Events, Progress};
use berth_redaction as redaction;

use super::sources::Source;

/// Bytes of what was emitted that are remembered, so that a secret is found which ends in a later
/// part.
const REMEMBERED: usize = 1024;

/// Passes on what it hears, redacted. Of a secret that comes in pieces, the pieces that came before
/// it was one have left already; the rest does not follow.
pub(super) struct RedactingEvents {
    events: Arc<dyn Events>,
    source: Source,
    /// The end of the text that was emitted.
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
