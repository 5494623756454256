//! What multiplies, grows or writes without an end ends inside its bounds, and others are served meanwhile.

use std::sync::Arc;

use serde_json::json;

use super::{call, run, scene, there_is};

/// Runs a command that has no end of its own, while others call.
async fn beside_others(settings: &[&str], command: &str) -> berth_host::Answer {
    let scene = scene(settings, |_| {}).await;
    let (host, arguments) = (Arc::clone(&scene.host), json!({ "command": command, "timeout": 5 }));
    let running = tokio::spawn(async move { call(&host, arguments).await });
    scene.assert_serves().await;
    let answer = running.await.expect("the host does not panic");
    scene.assert_serves().await;
    assert_eq!(run(&scene, "echo served").await.stdout, "served\n", "after {command}");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_ends() {
    let answer = beside_others(&["tools.shell.limits.processes=64"], ":(){ :|:& };: ; sleep 60").await;
    let failure = answer.outcome.expect_err("it can't come to a good end");
    assert!(failure.code.is_some(), "{failure:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_processes_than_allowed_run_at_a_time() {
    let scene = scene(&["tools.shell.limits.processes=32"], |_| {}).await;
    let ran = run(&scene, "for i in $(seq 100); do sleep 20 & done 2>/dev/null; ls -d /proc/[0-9]* | wc -l").await;
    let most: u32 = ran.stdout.trim().parse().unwrap_or(0);
    // For root, the kernel's own bound lies 300 above, and who watches comes a moment later.
    assert!(most <= 32 + 300, "{ran:?}");
    let many = call(&scene.host, json!({ "command": "for i in $(seq 100); do sleep 60 & done 2>/dev/null; wait", "timeout": 30 })).await;
    let failure = many.outcome.expect_err("they are too many");
    assert!(failure.category != berth_host::Category::Timeout, "{failure:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hog_ends() {
    if !there_is("python3") {
        return;
    }
    let one = "/usr/bin/python3 -c 'x = []\nwhile True: x.append(bytearray(b\"x\" * (1 << 20)))'";
    let answer = beside_others(&["tools.shell.limits.memory_mib=256"], one).await;
    assert!(answer.outcome.is_err(), "{answer:?}");
    // Each by itself stays inside the bound, and together they don't.
    let many =
        "for i in 1 2 3 4 5 6; do /usr/bin/python3 -c 'import time\nx = bytearray(b\"x\" * (100 << 20))\ntime.sleep(60)' & done; wait";
    let answer = beside_others(&["tools.shell.limits.memory_mib=256"], many).await;
    let failure = answer.outcome.expect_err("they need more than they have");
    assert!(format!("{failure:?}").contains("memory_mib"), "{failure:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_writer_ends() {
    let answer = beside_others(&[], "yes").await;
    let failure = answer.outcome.expect_err("it has no end");
    let kept = failure.structured.as_ref().map(|envelope| (envelope["truncated"].clone(), envelope["stdout"].as_str().map_or(0, str::len)));
    let (truncated, length) = kept.expect("there is an envelope");
    assert_eq!(truncated, true);
    assert!((1..=1 << 20).contains(&length), "{length}");
    let scene = scene(&["tools.shell.limits.file_mib=1"], |_| {}).await;
    let ran = run(&scene, "yes > large.txt").await;
    assert_ne!(ran.code, 0);
    assert!(std::fs::metadata(scene.granted.join("large.txt")).is_ok_and(|file| file.len() <= 1 << 20));
    let ran = run(&scene, "yes > /tmp/large; yes > ~/large").await;
    assert_ne!(ran.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_that_is_asked_for_is_kept() {
    let scene = scene(&[], |_| {}).await;
    let answer = call(&scene.host, json!({ "command": "echo begun; sleep 60; echo done", "timeout": 1 })).await;
    let failure = answer.outcome.expect_err("it takes longer");
    assert_eq!(failure.category, berth_host::Category::Timeout);
    assert!(failure.joined_text().contains("begun"), "{failure:?}");
}
