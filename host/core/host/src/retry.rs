//! Decides whether a failed call is retried, and waits before the retry. A retry must be safe by
//! the tool's promises, and likely to help.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use toolhold_contract::{
    Body, CancellationToken, Category, Content, Events, Failure, Outcome, Progress,
};
use toolhold_policy::Backoff;

use toolhold_catalogue::CallContext;

#[derive(Clone, Debug)]
pub(crate) struct Retry {
    pub(crate) backoff: Backoff,
}

impl Retry {
    /// Decides whether a call with `outcome` runs again. Waits until a retry is due, and returns
    /// `Continue`. Otherwise returns `Break` with the result of the call.
    pub(crate) async fn wait(
        &self,
        context: &CallContext,
        attempts: u32,
        first_run_at: Instant,
        outcome: Outcome,
        cancel: &CancellationToken,
    ) -> ControlFlow<Outcome> {
        let Err(failure) = &outcome else { return ControlFlow::Break(outcome) };
        let retries = attempts.saturating_sub(1);
        if !is_safe(context) || !may_succeed_later(failure) {
            return ControlFlow::Break(outcome);
        }
        let elapsed = first_run_at.elapsed();
        let next_wait = self.backoff.wait(retries, elapsed, failure.retry_after, random());
        let Some(wait) = next_wait else { return ControlFlow::Break(outcome) };
        tracing::debug!(call = %context.id, "{} after {} tries; again in {wait:?}", failure.category.as_str(), attempts);
        let is_cancelled = tokio::time::timeout(wait, cancel.cancelled()).await.is_ok();
        if is_cancelled {
            return ControlFlow::Break(Err(Failure {
                content: failure.content.clone(),
                ..Failure::new(Category::Cancelled, "the call was cancelled")
            }));
        }
        ControlFlow::Continue(())
    }

    /// Returns a receiver of events. The receiver drops the repeated events of a retry.
    pub(crate) fn dedup_events(
        &self,
        context: &CallContext,
        events: Arc<dyn Events>,
    ) -> DedupedEvents {
        let may_retry = self.backoff.retries > 0 && is_safe(context);
        let shown = if may_retry { Some(Arc::default()) } else { None };
        DedupedEvents { events, shown }
    }
}

/// Checks whether two runs have the same effect as one run. This is true for read-only calls, and
/// for tools with a trusted promise to be idempotent.
fn is_safe(context: &CallContext) -> bool {
    let Some(tool) = &context.tool else { return false };
    let annotations = tool.annotations_with(&context.arguments);
    annotations.read_only || annotations.idempotent
}

/// Checks whether another run may succeed. A busy host is no reason for a retry, because the call
/// has already waited for its slot.
fn may_succeed_later(failure: &Failure) -> bool {
    failure.category.is_retryable() && failure.code.as_deref() != Some("busy")
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without random bytes, the wait is zero, which is valid.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(bytes)
}

/// Passes each part of the output on once. A new attempt doesn't repeat the parts of a failed
/// attempt.
pub(crate) struct DedupedEvents {
    events: Arc<dyn Events>,
    /// The hashes of the passed parts in order. `None` if there is only one attempt.
    shown: Option<Arc<Mutex<Vec<u64>>>>,
}

impl DedupedEvents {
    /// Returns the receiver of events for the next attempt.
    pub(crate) fn attempt(&self) -> Arc<dyn Events> {
        match &self.shown {
            None => Arc::clone(&self.events),
            Some(shown) => Arc::new(Attempt {
                events: Arc::clone(&self.events),
                shown: Arc::clone(shown),
                next_index: AtomicUsize::new(0),
            }),
        }
    }
}

struct Attempt {
    events: Arc<dyn Events>,
    shown: Arc<Mutex<Vec<u64>>>,
    /// The index of this attempt's next part.
    next_index: AtomicUsize,
}

impl Events for Attempt {
    fn progress(&self, progress: Progress) {
        self.events.progress(progress);
    }

    fn emitted(&self, part: &Content) {
        let index = self.next_index.fetch_add(1, Ordering::Relaxed);
        let part_digest = digest(part);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let is_repeated = shown.get(index) == Some(&part_digest);
        if is_repeated {
            return;
        }
        // After the first difference, all parts are new.
        shown.truncate(index);
        shown.push(part_digest);
        drop(shown);
        self.events.emitted(part);
    }
}

/// Computes a hash of a part. A tool that causes a collision only hides its own parts.
fn digest(part: &Content) -> u64 {
    let mut hasher = DefaultHasher::new();
    match &part.body {
        Body::Text(text) => (0_u8, text).hash(&mut hasher),
        Body::Bytes(bytes) => (1_u8, bytes).hash(&mut hasher),
        Body::Link(uri) => (2_u8, uri).hash(&mut hasher),
    }
    part.media_type.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Collected(Mutex<Vec<String>>);

    impl Events for Collected {
        fn progress(&self, _progress: Progress) {}

        fn emitted(&self, part: &Content) {
            self.0
                .lock()
                .expect("nobody panics")
                .push(part.as_text().unwrap_or("bytes").to_owned());
        }
    }

    #[track_caller]
    fn check(attempts: &[&[&str]], expected: &[&str]) {
        let kept = Arc::new(Collected::default());
        let deduped = DedupedEvents { events: Arc::clone(&kept) as _, shown: Some(Arc::default()) };
        for parts in attempts {
            let attempt = deduped.attempt();
            parts.iter().for_each(|part| attempt.emitted(&Content::text(*part)));
        }
        assert_eq!(*kept.0.lock().expect("nobody panics"), expected, "{attempts:?}");
    }

    #[test]
    fn repeated_parts_are_shown_once() {
        check(&[&["a", "b"], &["a", "b", "c"]], &["a", "b", "c"]);
        check(&[&["a", "b"], &["a"], &["a", "b", "c"]], &["a", "b", "c"]);
        check(&[&["a", "a"], &["a", "a", "a"]], &["a", "a", "a"]);
        check(&[&[], &["a"]], &["a"]);
        check(&[&["a", "b"], &["a", "x", "b"], &["a", "x", "c"]], &["a", "b", "x", "b", "c"]);
    }

    #[test]
    fn parts_of_different_kinds_are_distinct() {
        let text = Content::text("a");
        let bytes = Content { body: Body::Bytes(b"a".to_vec()), ..text.clone() };
        let typed = Content { media_type: Some("text/html".to_owned()), ..text.clone() };
        assert!(digest(&text) != digest(&bytes) && digest(&text) != digest(&typed));
    }
}
