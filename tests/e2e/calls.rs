//! Calls that end early, and many at a time.

use std::sync::Arc;

use serde_json::json;
use tokio::task::JoinHandle;
use toolhold_core::{Answer, CancellationToken, Category, Events, Host, Request};

use crate::support::{Recorder, Scene, failure, loot, plugin, run};

/// A plugin's share of the eight parallel calls of a scene's host.
const SHARE: usize = 4;

/// The maximum for a plugin while no other waits: one slot stays for the others.
const MOST: usize = 7;

/// So long that only a cancellation ends a call that loops.
const LONG: [&str; 2] = ["tools.call=60", "tools.limits.cpu_secs=60"];

/// A call that has begun, has emitted a part, and goes on until it is stopped.
struct Looping {
    cancel: CancellationToken,
    call: JoinHandle<Answer>,
}

impl Looping {
    async fn begin(host: &Arc<Host>, plugin: &str) -> Self {
        let heard = Arc::new(Recorder::default());
        let events: Arc<dyn Events> = Arc::clone(&heard) as _;
        let cancel = CancellationToken::new();
        let request = Request::new(format!("{plugin}__emit_and_loop"), json!({ "text": "so far" }));
        let (host, cancelled) = (Arc::clone(host), cancel.clone());
        let call = tokio::spawn(async move {
            host.call(Request { events, cancel: cancelled, ..request }).await
        });
        heard.emitted.notified().await;
        Self { cancel, call }
    }

    async fn begin_many(host: &Arc<Host>, plugin: &str, count: usize) -> Vec<Self> {
        let mut calls = Vec::new();
        for _ in 0..count {
            calls.push(Self::begin(host, plugin).await);
        }
        calls
    }

    async fn cancelled(self) -> Answer {
        self.cancel.cancel();
        self.call.await.expect("the host does not panic")
    }
}

#[test]
fn cancelled_call_answers_with_what_it_emitted_and_frees_its_slot() {
    run(async {
        let scene = Scene::with(&LONG, |_| {}).await;
        // Twice the limit: each round needs the slots of the round before.
        for _ in 0..2 {
            for call in Looping::begin_many(&scene.host, "hostile", SHARE).await {
                let answer = call.cancelled().await;
                assert_eq!(failure(&answer, Category::Cancelled, None).joined_text(), "so far");
            }
        }
    });
}

#[test]
fn dropped_call_is_stopped() {
    run(async {
        let scene = Scene::with(&LONG, |_| {}).await;
        for _ in 0..2 {
            for call in Looping::begin_many(&scene.host, "hostile", SHARE).await {
                call.call.abort();
                assert!(call.call.await.is_err_and(|error| error.is_cancelled()));
            }
        }
        loot(&scene.attack("tell_the_grants", json!({})).await);
    });
}

#[test]
fn call_that_sleeps_in_the_host_is_stopped_too() {
    run(async {
        let scene = Scene::with(&LONG, |_| {}).await;
        for _ in 0..SHARE + 1 {
            let cancel = CancellationToken::new();
            let request = Request {
                cancel: cancel.clone(),
                ..Request::new("hostile__sleep_forever", json!({}))
            };
            let host = Arc::clone(&scene.host);
            let call = tokio::spawn(async move { host.call(request).await });
            scene.assert_serves().await;
            cancel.cancel();
            failure(&call.await.expect("the host does not panic"), Category::Cancelled, None);
        }
    });
}

#[test]
fn cancelled_call_never_starts() {
    run(async {
        let scene = Scene::new().await;
        let cancel = CancellationToken::new();
        cancel.cancel();
        let file = scene.granted.join("new.txt");
        let request =
            Request { cancel, ..Request::new("hostile__write_outside", json!({ "path": file })) };
        failure(&scene.host.call(request).await, Category::Cancelled, None);
        assert!(!file.exists());
    });
}

#[test]
fn one_plugin_can_t_take_all_slots() {
    run(async {
        let scene = Scene::with(&LONG, |_| {}).await;
        let calls = Looping::begin_many(&scene.host, "hostile", MOST).await;
        let one_more = || {
            let host = Arc::clone(&scene.host);
            tokio::spawn(async move {
                host.call(Request::new("hostile__tell_the_grants", json!({}))).await
            })
        };
        let waiting: Vec<JoinHandle<Answer>> = (0..64).map(|_| one_more()).collect();
        scene.assert_serves().await;
        assert!(waiting.iter().all(|call| !call.is_finished()), "they wait");
        for call in calls {
            call.cancelled().await;
        }
        for waiting in waiting {
            loot(&waiting.await.expect("the host does not panic"));
        }
    });
}

#[test]
fn call_that_waits_until_its_deadline_gets_busy() {
    run(async {
        // The same plugin under another name of the same length.
        let other = |root: &std::path::Path| {
            let component = std::fs::read(plugin("hostile")).expect("it was built");
            let (name, renamed) = (&b"\"name\": \"hostile\""[..], &b"\"name\": \"another\""[..]);
            let at = component
                .windows(name.len())
                .position(|window| window == name)
                .expect("it names itself");
            let component = [&component[..at], renamed, &component[at + name.len()..]].concat();
            std::fs::write(root.join("another.wasm"), component).expect("a plugin is written");
        };
        let settings = [
            LONG[0],
            LONG[1],
            "plugins.another.path=\"{root}/another.wasm\"",
            "plugins.another.reload=trust",
        ];
        let scene = Scene::with(&settings, other).await;
        let mut calls = Looping::begin_many(&scene.host, "hostile", SHARE).await;
        calls.extend(Looping::begin_many(&scene.host, "another", SHARE).await);
        let answer = scene.call("bash", json!({ "command": "true", "timeout": 1 })).await;
        let busy = failure(&answer, Category::RateLimited, Some("busy"));
        assert!(busy.message.contains("waited 1.") && busy.retry_after.is_some(), "{busy:?}");
        for call in calls {
            call.cancelled().await;
        }
        scene.assert_serves().await;
    });
}

#[test]
fn calls_know_nothing_of_each_other() {
    run(async {
        let scene = Scene::new().await;
        let calls: Vec<_> = (0..200)
            .map(|number| {
                let host = Arc::clone(&scene.host);
                tokio::spawn(async move {
                    let text = format!("call {number}");
                    loop {
                        match host.call(Request::new("echo", json!({ "text": text }))).await.outcome
                        {
                            Ok(output) => return assert_eq!(output.joined_text(), text),
                            Err(failure) => assert_eq!(
                                failure.code.as_deref(),
                                Some("busy"),
                                "{}",
                                failure.message
                            ),
                        }
                    }
                })
            })
            .collect();
        for call in calls {
            call.await.expect("every call gets its own answer");
        }
    });
}
