//! Decides whether a failed call is retried, and waits before the retry. A call is retried only if
//! its declaration says that a retry is safe, and if a retry is likely to help.

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

/// How often and how long calls are retried.
#[derive(Clone, Debug)]
pub(crate) struct Retry(pub(crate) Backoff);

impl Retry {
    /// Decides whether a call with `outcome` runs again. If so, waits until the retry is due or the
    /// call is cancelled. Breaks with the result of the call.
    pub(crate) async fn wait(
        &self,
        context: &CallContext,
        attempts: u32,
        first_run_at: Instant,
        outcome: Outcome,
        cancel: &CancellationToken,
    ) -> ControlFlow<Outcome> {
        let Err(failure) = &outcome else { return ControlFlow::Break(outcome) };
        let retried = attempts.saturating_sub(1);
        if !is_safe(context) || !may_succeed_later(failure) {
            return ControlFlow::Break(outcome);
        }
        let elapsed = first_run_at.elapsed();
        let Some(wait) = self.0.wait(retried, elapsed, failure.retry_after, random()) else {
            return ControlFlow::Break(outcome);
        };
        tracing::debug!(call = %context.id, "{} after {} tries; again in {wait:?}", failure.category.as_str(), attempts);
        match tokio::time::timeout(wait, cancel.cancelled()).await {
            Err(_) => ControlFlow::Continue(()),
            Ok(()) => ControlFlow::Break(Err(Failure {
                content: failure.content.clone(),
                ..Failure::new(Category::Cancelled, "the call was cancelled")
            })),
        }
    }

    /// Makes the receiver of the call's events in all of its attempts.
    pub(crate) fn dedup_events(
        &self,
        context: &CallContext,
        events: Arc<dyn Events>,
    ) -> DedupedEvents {
        let may_retry = self.0.retries > 0 && is_safe(context);
        let shown = if may_retry { Some(Arc::default()) } else { None };
        DedupedEvents { events, shown }
    }
}

/// Checks whether two runs have the same effect as one run. This applies to calls that can only
/// read, and to calls that a trusted plugin declares idempotent.
fn is_safe(context: &CallContext) -> bool {
    let Some(tool) = &context.tool else { return false };
    let annotations = tool.annotations_with(&context.arguments);
    annotations.read_only || annotations.idempotent
}

/// Checks whether another run may have another result. Host-wide overload is not retried because
/// the call has already waited for its slot. The caller decides whether to wait longer.
fn may_succeed_later(failure: &Failure) -> bool {
    failure.category.is_retryable() && failure.code.as_deref() != Some("busy")
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without random bytes the wait is zero, and zero is a valid wait.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(bytes)
}

/// Passes on each part of the output once. Parts that a failed attempt has shown aren't shown again
/// by the next attempt.
pub(crate) struct DedupedEvents {
    events: Arc<dyn Events>,
    /// The parts shown so far, in order. `None` if there is only one attempt.
    shown: Option<Arc<Mutex<Vec<u64>>>>,
}

impl DedupedEvents {
    /// Makes the receiver of the events of one attempt.
    pub(crate) fn attempt(&self) -> Arc<dyn Events> {
        match &self.shown {
            None => Arc::clone(&self.events),
            Some(shown) => Arc::new(Attempt {
                events: Arc::clone(&self.events),
                shown: Arc::clone(shown),
                emitted: AtomicUsize::new(0),
            }),
        }
    }
}

struct Attempt {
    events: Arc<dyn Events>,
    shown: Arc<Mutex<Vec<u64>>>,
    /// Parts that this attempt has emitted.
    emitted: AtomicUsize,
}

impl Events for Attempt {
    fn progress(&self, progress: Progress) {
        self.events.progress(progress);
    }

    fn emitted(&self, part: &Content) {
        let index = self.emitted.fetch_add(1, Ordering::Relaxed);
        let part_digest = digest(part);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.get(index) == Some(&part_digest) {
            return;
        }
        // This part differs from the previous attempt, so all further parts are new.
        shown.truncate(index);
        shown.push(part_digest);
        drop(shown);
        self.events.emitted(part);
    }
}

/// Computes a hash of a part. If a tool makes parts with equal hashes, it hides only its own parts.
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
