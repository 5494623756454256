//! Floods of output hold up neither their own answers nor other sessions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolhold_core::{Answer, Audience, Category, Host, Request, Session};

use super::{scene, yes};

/// Seconds that a flood may take.
const TIMEOUT: u64 = 5;

/// Time for the answer behind that: it is looked through and made shorter, on a busy machine.
const LATE: Duration = Duration::from_secs(10);

/// A wait that a person doesn't notice. Four floods leave a machine with two processors no time of
/// its own, so a ratio alone would say nothing.
const UNNOTICED: Duration = Duration::from_millis(250);

async fn call(host: &Host, session: &Session, tool: &str, arguments: Value) -> Answer {
    let request = Request {
        session: Some(session.clone()),
        approver: Some(yes()),
        audience: Audience::Model,
        ..Request::new(tool, arguments)
    };
    host.call(request).await
}

/// The time of one `read`, on the threads of the reactor.
async fn read(host: &Arc<Host>) -> Duration {
    let host = Arc::clone(host);
    let read = async move {
        let (session, started_at) = (Session::new("reader"), Instant::now());
        let answer = call(&host, &session, "read", json!({ "path": "public.txt" })).await;
        assert!(answer.outcome.is_ok(), "{answer:?}");
        started_at.elapsed()
    };
    tokio::spawn(read).await.expect("the host does not panic")
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[(times.len() - 1) * 99 / 100]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_end_in_time_and_hold_up_no_other_session() {
    // The usual limits, so that filters have enough for all of the output. In a debug build, the
    // search for secrets would slow the floods down.
    let settings = [
        "tools.limits.memory_mib=256",
        "tools.limits.cpu_secs=30",
        "tools.redaction.enabled=false",
    ];
    let scene = scene(&settings, |_| {}).await;
    let mut alone = Vec::new();
    for _ in 0..300 {
        alone.push(read(&scene.host).await);
    }
    let floods = (0..4).map(|number| {
        let host = Arc::clone(&scene.host);
        tokio::spawn(async move {
            let (session, started_at) = (Session::new(format!("flood {number}")), Instant::now());
            let flood = json!({ "command": "yes >&2", "timeout": TIMEOUT });
            let answer = call(&host, &session, "bash", flood).await;
            (started_at.elapsed(), answer)
        })
    });
    let floods: Vec<_> = floods.collect();
    let mut beside = Vec::new();
    while !floods.iter().all(tokio::task::JoinHandle::is_finished) {
        beside.push(read(&scene.host).await);
    }
    for flood in floods {
        let (took, answer) = flood.await.expect("the host does not panic");
        let failure = answer.outcome.expect_err("it has no end");
        assert_eq!(failure.category, Category::Timeout, "{failure:?}");
        assert!(took < Duration::from_secs(TIMEOUT) + LATE, "{took:?}");
    }
    let (alone, beside) = (p99(alone), p99(beside));
    assert!(beside <= UNNOTICED.max(alone * 2), "{beside:?} beside floods, {alone:?} alone");
}
