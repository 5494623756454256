//! Commands that multiply, grow or write without an end stay within their limits, and others are
//! served meanwhile.

use std::sync::Arc;

use serde_json::json;

use super::{call, run, scene, there_is};
use crate::support::{Cli, Ended, not_tried};

/// Leaves a line, then starts a hundred processes, each of which leaves one too. All stay until the
/// call ends: one that ended would make room for another, so none needs a process of its own.
const CROWD: &str = "echo x >> started; for i in $(seq 100); do { echo x >> started; exec sleep 60; } & done 2>/dev/null; wait";

/// Runs a command without an end while others call.
async fn beside_others(settings: &[&str], command: &str) -> berth_core::Answer {
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
async fn fork_bomb_ends() {
    let answer =
        beside_others(&["tools.shell.limits.processes=64"], ":(){ :|:& };: ; sleep 60").await;
    let failure = answer.outcome.expect_err("it can't come to a good end");
    assert!(failure.code.is_some(), "{failure:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn number_of_processes_is_bounded() {
    let scene = scene(&["tools.shell.limits.processes=32"], |_| {}).await;
    call(&scene.host, json!({ "command": CROWD, "timeout": 20 })).await;
    let most =
        std::fs::read_to_string(scene.granted.join("started")).expect("some start").lines().count();
    // For root, the kernel's own limit is 300 higher, and the watching process comes a moment
    // later.
    assert!((1..=32 + 300).contains(&most), "{most}");
    let many = call(&scene.host, json!({ "command": "for i in $(seq 100); do sleep 60 & done 2>/dev/null; wait", "timeout": 30 })).await;
    let failure = many.outcome.expect_err("they are too many");
    assert!(failure.category != berth_core::Category::Timeout, "{failure:?}");
}

/// Root has other limits than users, so another user tries the same. `None` if that can't be tried.
fn as_an_ordinary_user(settings: &[&str], command: &str) -> Option<(Cli, Ended)> {
    use std::os::unix::process::CommandExt;

    const NOBODY: u32 = 65_534;
    let cli = Cli::new();
    let mut line =
        vec!["call", "--yes", "--json", "--set", "tools.autonomy=full", "--set", "tools.call=20"];
    settings.iter().for_each(|setting| line.extend(["--set", setting]));
    let command = format!("command={command}");
    line.extend(["bash", &command]);
    let mut berth = cli.command(&line);
    berth.env("PATH", "/usr/bin:/bin").env("BERTH_CACHE_DIR", cli.root.path().join("cache"));
    if rustix::process::geteuid().is_root() {
        for folder in ["", "work", "config"] {
            std::os::unix::fs::chown(cli.root.path().join(folder), Some(NOBODY), Some(NOBODY))
                .expect("root gives things away");
        }
        berth.uid(NOBODY).gid(NOBODY);
    }
    match berth.output() {
        Ok(output) => Some((cli, Ended::from_output(output))),
        Err(_) => {
            not_tried("a target folder that every user may read");
            None
        }
    }
}

#[test]
fn number_of_processes_is_bounded_for_an_ordinary_user() {
    let settings = &["tools.shell.limits.processes=32"];
    let Some((cli, _)) = as_an_ordinary_user(settings, CROWD) else { return };
    let most =
        std::fs::read_to_string(cli.work().join("started")).expect("some start").lines().count();
    assert!((1..=32).contains(&most), "{most}");
    let Some((_, ended)) =
        as_an_ordinary_user(&["tools.shell.limits.processes=64"], ":(){ :|:& };: ; sleep 60")
    else {
        return;
    };
    assert_ne!(ended.code, 0, "{}", ended.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_hog_ends() {
    if !there_is("python3") {
        return;
    }
    let one = "/usr/bin/python3 -c 'x = []\nwhile True: x.append(bytearray(b\"x\" * (1 << 20)))'";
    let answer = beside_others(&["tools.shell.limits.memory_mib=256"], one).await;
    assert!(answer.outcome.is_err(), "{answer:?}");
    // Each stays within the limit, and all together don't.
    let many = "for i in 1 2 3 4 5 6; do /usr/bin/python3 -c 'import time\nx = bytearray(b\"x\" * (100 << 20))\ntime.sleep(60)' & done; wait";
    let answer = beside_others(&["tools.shell.limits.memory_mib=256"], many).await;
    let failure = answer.outcome.expect_err("they need more than they have");
    assert!(format!("{failure:?}").contains("memory_mib"), "{failure:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_writer_ends() {
    let answer = beside_others(&[], "yes").await;
    let failure = answer.outcome.expect_err("it has no end");
    let kept = failure.structured.as_ref().map(|envelope| {
        (envelope["truncated"].clone(), envelope["stdout"].as_str().map_or(0, str::len))
    });
    let (truncated, length) = kept.expect("there is an envelope");
    assert_eq!(truncated, true);
    assert!((1..=1 << 20).contains(&length), "{length}");
    let scene = scene(&["tools.shell.limits.file_mib=1"], |_| {}).await;
    let ran = run(&scene, "yes > large.txt").await;
    assert_ne!(ran.code, 0);
    assert!(
        std::fs::metadata(scene.granted.join("large.txt")).is_ok_and(|file| file.len() <= 1 << 20)
    );
    let ran = run(&scene, "yes > /tmp/large; yes > ~/large").await;
    assert_ne!(ran.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn requested_time_limit_is_kept() {
    let scene = scene(&[], |_| {}).await;
    let answer =
        call(&scene.host, json!({ "command": "echo begun; sleep 60; echo done", "timeout": 1 }))
            .await;
    let failure = answer.outcome.expect_err("it takes longer");
    assert_eq!(failure.category, berth_core::Category::Timeout);
    assert!(failure.joined_text().contains("begun"), "{failure:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn end_of_a_long_output_is_kept_too() {
    let scene = scene(&["tools.overflow.threshold=0"], |_| {}).await;
    let ran =
        run(&scene, "echo the-beginning; yes 'a warning' | head -n 400000; echo the-end").await;
    assert!(
        ran.stdout.starts_with("the-beginning\n") && ran.stdout.ends_with("the-end\n"),
        "{}",
        ran.stdout.len()
    );
    assert!(ran.stdout.contains("bytes are left out here") && ran.stdout.len() <= 1 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn memfd_is_refused() {
    if !there_is("python3") {
        return;
    }
    let scene = scene(&[], |_| {}).await;
    let ran = run(&scene, "/usr/bin/python3 -c 'import os; os.memfd_create(\"x\")'").await;
    assert_ne!(ran.code, 0, "{ran:?}");
}
