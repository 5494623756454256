//! Reviewers of programs that embed Toolhold: what a host does without one, and with each verdict.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use toolhold_core::config::{self, Folders, Inputs};
use toolhold_core::{
    Annotations, BoxFuture, Call, CallReviewer, CancellationToken, Category, Definition, Gate,
    Host, Outcome, Output, Reply, Request, ReviewVerdict, ReviewedCall, Scope, ToolSource,
};

use super::{POLICY, REASON, lock};
use crate::support::{failure, run};

/// A tool that acts, and counts its runs.
#[derive(Default)]
struct Acting(Mutex<usize>);

impl ToolSource for Acting {
    fn name(&self) -> &str {
        "acting"
    }

    fn tools(&self) -> Vec<Arc<Definition>> {
        let schema = json!({ "type": "object" });
        let act = Definition::new("act", "Acts", schema.clone());
        let look = Definition::new("load_skill", "Looks", schema);
        let annotations = Annotations { read_only: true, ..look.annotations };
        vec![Arc::new(act), Arc::new(Definition { annotations, ..look })]
    }

    fn call(&self, _: Call) -> BoxFuture<'_, Outcome> {
        *lock(&self.0) += 1;
        Box::pin(std::future::ready(Ok(Output::text("done"))))
    }
}

/// A reviewer of a program.
enum Scripted {
    Says(ReviewVerdict),
    /// It never answers. It counts the reviews that begin and those that are dropped.
    Hangs(Arc<Mutex<[usize; 2]>>, tokio::sync::mpsc::UnboundedSender<()>),
}

struct CountDrop(Arc<Mutex<[usize; 2]>>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        lock(&self.0)[1] += 1;
    }
}

impl CallReviewer for Scripted {
    fn review<'a>(&'a self, call: &'a ReviewedCall<'a>) -> BoxFuture<'a, ReviewVerdict> {
        assert_eq!((call.tool, call.policies), ("act", &[POLICY.to_owned()][..]));
        Box::pin(async move {
            match self {
                Self::Says(verdict) => verdict.clone(),
                Self::Hangs(counts, began) => {
                    lock(counts)[0] += 1;
                    let _counted = CountDrop(Arc::clone(counts));
                    let _ = began.send(());
                    std::future::pending().await
                }
            }
        })
    }
}

/// A host of a program, with settings besides those that switch the gate on.
async fn host(
    folder: &TempDir,
    settings: &[&str],
    reviewer: Option<Scripted>,
) -> (Host, Arc<Acting>) {
    let folders = Folders::inside(&folder.path().join("toolhold"));
    let gate = [
        "tools.autonomy=full".to_owned(),
        "tools.adversarial_policy.enabled=true".to_owned(),
        "tools.adversarial_policy.provider=judge".to_owned(),
        format!("tools.adversarial_policy.policies=[{POLICY:?}]"),
        "providers.judge.model=small".to_owned(),
    ];
    let settings = gate.into_iter().chain(settings.iter().map(|it| (*it).to_owned())).collect();
    let inputs = Inputs { settings, ..Inputs::default() };
    let loaded = config::load(&folders, &inputs).expect("the settings are valid");
    let acting = Arc::new(Acting::default());
    let builder = Host::builder()
        .config(loaded)
        .folders(folders)
        .working_directory(folder.path())
        .provider(Arc::clone(&acting) as _);
    let builder = match reviewer {
        Some(reviewer) => builder.reviewer(Arc::new(reviewer)),
        None => builder,
    };
    (builder.build().await.expect("it builds"), acting)
}

fn act() -> Request {
    Request::new("act", json!({}))
}

#[test]
fn program_without_a_reviewer_runs_nothing_that_is_not_exempt() {
    run(async {
        let folder = TempDir::new().expect("a temporary folder is made");
        let open = "tools.adversarial_policy.fail_open=true";
        let (host, acting) = host(&folder, &[open], None).await;
        let refused = host.call(act()).await;
        let denial = failure(&refused, Category::PolicyBlocked, None).denial.as_ref();
        assert!(denial.expect("it is a denial").rule.contains("this program has no reviewer"));
        assert_eq!(refused.decision.as_ref().map(|it| it.gate), Some(Gate::Review));
        assert_eq!(*lock(&acting.0), 0);
        host.call(Request::new("load_skill", json!({}))).await.outcome.expect("it is exempt");
        assert_eq!(*lock(&acting.0), 1);
    });
}

#[test]
fn reviewer_of_a_program_decides() {
    run(async {
        let folder = TempDir::new().expect("a temporary folder is made");
        let of = |verdict| Some(Scripted::Says(verdict));
        let said = REASON.to_owned();
        for (verdict, settings, runs) in [
            (ReviewVerdict::Allow, vec![], 1),
            (ReviewVerdict::Deny(said.clone()), vec![], 0),
            (ReviewVerdict::Deny(said.clone()), vec!["tools.adversarial_policy.fail_open=true"], 0),
            (ReviewVerdict::Failed(said.clone()), vec![], 0),
            (
                ReviewVerdict::Failed(said.clone()),
                vec!["tools.adversarial_policy.fail_open=true"],
                1,
            ),
        ] {
            let (host, acting) = host(&folder, &settings, of(verdict.clone())).await;
            let answer = host.call(act()).await;
            assert_eq!(*lock(&acting.0), runs, "{verdict:?}");
            assert!(!format!("{:?}", answer.outcome).contains(REASON), "{:?}", answer.outcome);
        }
    });
}

#[test]
fn review_that_hangs_ends_with_its_time_and_with_its_call() {
    run(async {
        let folder = TempDir::new().expect("a temporary folder is made");
        let (counts, (sender, mut began)) =
            (Arc::default(), tokio::sync::mpsc::unbounded_channel());
        let hanging = || Some(Scripted::Hangs(Arc::clone(&counts), sender.clone()));
        let short = "tools.adversarial_policy.timeout_ms=100";
        let (brief, acting) = host(&folder, &[short], hanging()).await;
        failure(&brief.call(act()).await, Category::PolicyBlocked, None);
        assert_eq!((*lock(&counts), *lock(&acting.0)), ([1, 1], 0));
        began.recv().await.expect("it began");
        let long = "tools.adversarial_policy.timeout_ms=60000";
        let (host, acting) = host(&folder, &[long], hanging()).await;
        let cancel = CancellationToken::new();
        let request = Request { cancel: cancel.clone(), ..act() };
        let (answer, ()) = tokio::join!(host.call(request), async {
            began.recv().await.expect("it began");
            cancel.cancel();
        });
        failure(&answer, Category::Cancelled, None);
        assert_eq!((*lock(&counts), *lock(&acting.0)), ([2, 2], 0));
        // A dropped call ends its review too.
        tokio::select! {
            answer = host.call(act()) => panic!("{answer:?}"),
            _ = began.recv() => {}
        }
        assert_eq!((*lock(&counts), *lock(&acting.0)), ([3, 3], 0));
        // Many at once wait for a place, and each has its time.
        let mut running = tokio::task::JoinSet::new();
        let brief = Arc::new(brief);
        for _ in 0..40 {
            let brief = Arc::clone(&brief);
            running.spawn(async move { brief.call(act()).await.outcome.is_err() });
        }
        let all = tokio::time::timeout(Duration::from_secs(60), running.join_all()).await;
        assert!(all.expect("they end").into_iter().all(|refused| refused));
        assert_eq!(*lock(&acting.0), 0);
    });
}

/// Approves everything for the session.
struct Approves(Mutex<Vec<String>>);

impl toolhold_core::Approver for Approves {
    fn ask(&self, question: toolhold_core::Question) -> BoxFuture<'_, Reply> {
        lock(&self.0).push(question.decision.rule.into_owned());
        Box::pin(std::future::ready(Reply::Yes { scope: Scope::Session, by: "tester".to_owned() }))
    }
}

#[test]
fn approval_for_the_session_does_not_cover_a_later_denial() {
    run(async {
        let folder = TempDir::new().expect("a temporary folder is made");
        let settings = ["tools.autonomy=ask", "tools.adversarial_policy.on_deny=ask"];
        let (allowing, acting) =
            host(&folder, &settings, Some(Scripted::Says(ReviewVerdict::Allow))).await;
        let denying = Scripted::Says(ReviewVerdict::Deny(REASON.to_owned()));
        let (denying, acting_again) = host(&folder, &settings, Some(denying)).await;
        let session = toolhold_core::Session::new("one".to_owned());
        let approver = Arc::new(Approves(Mutex::default()));
        let request = || Request {
            session: Some(session.clone()),
            approver: Some(Arc::clone(&approver) as _),
            ..act()
        };
        for _ in 0..2 {
            allowing.call(request()).await.outcome.expect("it was approved");
        }
        assert_eq!((lock(&approver.0).len(), *lock(&acting.0)), (1, 2));
        denying.call(request()).await.outcome.expect("it was approved");
        let asked = lock(&approver.0).clone();
        assert!(asked.len() == 2 && asked[1].contains(REASON), "{asked:?}");
        // Whoever knew the denial has approved this call for the session.
        denying.call(Request { approver: None, ..request() }).await.outcome.expect("approved");
        let other = Request { arguments: json!({ "more": 1 }), approver: None, ..request() };
        assert!(denying.call(other).await.outcome.is_err());
        assert_eq!(*lock(&acting_again.0), 2);
    });
}
