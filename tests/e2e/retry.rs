//! Calls that are retried, and calls that aren't.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use toolhold_core::config::{self, Folders, Inputs};
use toolhold_core::{
    Annotations, Answer, BoxFuture, Call, CancellationToken, Category, Content, Definition, Events,
    Failure, Host, Outcome, Output, Request, ToolSource,
};

use crate::support::{Recorder, failure, run};

/// A provider whose tool fails as often as it is told before it succeeds.
struct Flaky {
    annotations: Annotations,
    failures: usize,
    failure: Failure,
    runs: AtomicUsize,
    /// Set at its first run.
    began: tokio::sync::Notify,
}

const READS: Annotations = Annotations {
    read_only: true,
    destructive: false,
    idempotent: false,
    open_world: false,
    cacheable: false,
};

impl Flaky {
    fn new(annotations: Annotations, failures: usize, failure: Failure) -> Arc<Self> {
        Arc::new(Self {
            annotations,
            failures,
            failure,
            runs: AtomicUsize::new(0),
            began: tokio::sync::Notify::new(),
        })
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

impl ToolSource for Flaky {
    fn name(&self) -> &str {
        "flaky"
    }

    fn tools(&self) -> Vec<Arc<Definition>> {
        let definition =
            Definition::new("flaky", "Fails a few times.", json!({ "type": "object" }));
        vec![Arc::new(Definition { annotations: self.annotations, ..definition })]
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Outcome> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst);
        call.events.emitted(&Content::text("first half"));
        self.began.notify_one();
        Box::pin(std::future::ready(if run < self.failures {
            Err(self.failure.clone())
        } else {
            call.events.emitted(&Content::text("second half"));
            Ok(Output::text(format!("after {run} failures")))
        }))
    }
}

fn unreachable() -> Failure {
    Failure::new(Category::NetworkError, "connection refused")
}

async fn host(provider: &Arc<Flaky>, settings: &[&str]) -> (Arc<Host>, TempDir) {
    let folder = TempDir::new().expect("a temporary folder is made");
    let folders = Folders::inside(&folder.path().join("toolhold"));
    let settings = ["tools.retry.base_ms=1", "tools.autonomy=full"]
        .iter()
        .chain(settings)
        .map(|&setting| setting.to_owned())
        .collect();
    let loaded = config::load(&folders, &Inputs { settings, ..Inputs::default() })
        .expect("the settings are valid");
    let builder = Host::builder()
        .config(loaded)
        .folders(folders)
        .working_directory(folder.path())
        .provider(Arc::clone(provider) as _);
    (Arc::new(builder.build().await.expect("the host starts")), folder)
}

/// The result of the call, and how often its tool ran.
async fn outcome(
    annotations: Annotations,
    failures: usize,
    failure: Failure,
    settings: &[&str],
) -> (Answer, usize) {
    let provider = Flaky::new(annotations, failures, failure);
    let (host, _folder) = host(&provider, settings).await;
    let answer = host.call(Request::new("flaky", json!({}))).await;
    (answer, provider.runs())
}

#[test]
fn read_only_call_is_retried_after_a_temporary_failure() {
    run(async {
        let (answer, runs) = outcome(READS, 2, unreachable(), &[]).await;
        assert_eq!(
            (answer.outcome.expect("the third run succeeds").joined_text().as_str(), runs),
            ("after 2 failures", 3)
        );
        let (answer, runs) = outcome(READS, 3, unreachable(), &[]).await;
        failure(&answer, Category::NetworkError, None);
        assert_eq!(runs, 3);
        for category in [Category::RateLimited, Category::ServerError, Category::Timeout] {
            let (answer, runs) = outcome(READS, 1, Failure::new(category, "not now"), &[]).await;
            assert!(answer.outcome.is_ok() && runs == 2, "{category:?}");
        }
    });
}

#[test]
fn call_that_would_fail_again_is_run_once() {
    run(async {
        for category in [
            Category::InvalidParameters,
            Category::PolicyBlocked,
            Category::PermanentFailure,
            Category::Cancelled,
        ] {
            let (answer, runs) = outcome(READS, 1, Failure::new(category, "no"), &[]).await;
            assert!(answer.outcome.is_err() && runs == 1, "{category:?}");
        }
        let busy = Failure::new(Category::RateLimited, "too many calls").with_code("busy");
        assert_eq!(outcome(READS, 1, busy, &[]).await.1, 1);
    });
}

#[test]
fn call_that_acts_is_run_once_unless_it_may_be_repeated() {
    run(async {
        let (answer, runs) = outcome(Annotations::default(), 1, unreachable(), &[]).await;
        assert!(
            answer.outcome.is_err() && runs == 1,
            "what failed may have been done all the same"
        );
        let repeatable = Annotations { idempotent: true, ..Annotations::default() };
        let (answer, runs) = outcome(repeatable, 1, unreachable(), &[]).await;
        assert!(answer.outcome.is_ok() && runs == 2);
    });
}

#[test]
fn retries_follow_the_configuration() {
    run(async {
        assert_eq!(outcome(READS, 9, unreachable(), &["tools.retry.max_attempts=0"]).await.1, 1);
        assert_eq!(outcome(READS, 9, unreachable(), &["tools.retry.max_attempts=5"]).await.1, 6);
        // The other server asks for more time than there is.
        let later = Failure { retry_after: Some(Duration::from_secs(31)), ..unreachable() };
        assert_eq!(outcome(READS, 1, later, &[]).await.1, 1);
    });
}

#[test]
fn output_of_a_failed_attempt_is_not_shown_twice() {
    run(async {
        let provider = Flaky::new(READS, 2, unreachable());
        let (host, _folder) = host(&provider, &[]).await;
        let heard = Arc::new(Recorder::default());
        let events: Arc<dyn Events> = Arc::clone(&heard) as _;
        let answer = host.call(Request { events, ..Request::new("flaky", json!({})) }).await;
        assert!(answer.outcome.is_ok() && provider.runs() == 3);
        let parts = heard.parts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert_eq!(parts, [Content::text("first half"), Content::text("second half")]);
    });
}

#[test]
fn cancelling_does_not_wait_for_the_next_attempt() {
    run(async {
        // Longer than a test may take.
        let later = Failure { retry_after: Some(Duration::from_secs(3000)), ..unreachable() };
        let provider = Flaky::new(READS, 1, later);
        let (host, _folder) = host(&provider, &["tools.retry.budget_secs=3600"]).await;
        let cancel = CancellationToken::new();
        let request = Request { cancel: cancel.clone(), ..Request::new("flaky", json!({})) };
        let call = tokio::spawn(async move { host.call(request).await });
        provider.began.notified().await;
        cancel.cancel();
        failure(&call.await.expect("nothing panics"), Category::Cancelled, None);
        assert_eq!(provider.runs(), 1);
    });
}
