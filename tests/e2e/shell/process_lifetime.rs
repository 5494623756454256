//! Processes of a call end with it and with the host, whatever they do to stay.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use toolhold_core::{CancellationToken, Request};

use super::{scene, yes};
use crate::support::{Cli, Recorder};

/// Time limit for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A command that leaves processes behind in every possible way, and reports when it has. `mark` is
/// in all their command lines.
pub(crate) fn stubborn(mark: &str) -> String {
    format!(
        "trap '' TERM INT HUP; sleep {mark} & setsid sleep {mark} & (setsid nohup sh -c 'trap \"\" TERM; sleep {mark}' >/dev/null 2>&1 &) ; \
         ( ( sleep {mark} & ) & ) ; echo begun; sleep {mark}"
    )
}

/// Processes of this machine with a word among their arguments.
pub(crate) fn with_word(word: &str) -> usize {
    let entries = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes()))
        .count()
}

#[track_caller]
pub(crate) fn assert_gone(word: &str) {
    let until = Instant::now() + PATIENCE;
    while with_word(word) > 0 {
        assert!(Instant::now() < until, "{} processes of {word} are left", with_word(word));
        std::thread::yield_now();
    }
}

/// A number of seconds that no other test sleeps.
pub(crate) fn mark(kind: u32, number: u32) -> String {
    format!("{}{kind:02}{number:04}", 7_000_000 + std::process::id())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_process_outlives_a_cancelled_call() {
    let scene = scene(&[], |_| {}).await;
    for number in 0..100 {
        let mark = mark(1, number);
        let (cancel, recorder) = (CancellationToken::new(), Arc::new(Recorder::default()));
        let request = Request {
            cancel: cancel.clone(),
            events: Arc::clone(&recorder) as _,
            approver: Some(yes()),
            ..Request::new("bash", json!({ "command": stubborn(&mark) }))
        };
        let host = Arc::clone(&scene.host);
        let running = tokio::spawn(async move { host.call(request).await });
        tokio::time::timeout(PATIENCE, recorder.emitted.notified())
            .await
            .expect("it says that it has begun");
        assert!(with_word(&mark) > 0, "it runs");
        cancel.cancel();
        let answer = running.await.expect("the host does not panic");
        assert_eq!(
            answer.outcome.expect_err("it was cancelled").category,
            toolhold_core::Category::Cancelled
        );
        assert_gone(&mark);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_process_outlives_an_ended_call() {
    let scene = scene(&[], |_| {}).await;
    let mark = mark(2, 0);
    let ran =
        super::run(&scene, &format!("sleep {mark} & setsid sleep {mark} & disown -a; echo begun"))
            .await;
    assert_eq!(ran.stdout, "begun\n");
    assert_eq!(with_word(&mark), 0);
}

#[test]
fn no_process_outlives_a_killed_host() {
    let cli = Cli::new();
    for number in 0..100 {
        let mark = mark(3, number);
        let command = format!(
            "command={} ; true",
            stubborn(&mark).replace("echo begun", "echo begun > begun")
        );
        let line =
            ["call", "--yes", "bash", &command, "timeout=120", "--set", "tools.autonomy=full"];
        let mut host = cli
            .command(&line)
            .env("PATH", "/usr/bin:/bin")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("toolhold starts");
        let begun = cli.work().join("begun");
        let until = Instant::now() + PATIENCE;
        while fs::read(&begun).is_ok_and(|text| text != b"begun\n") || !begun.exists() {
            assert!(Instant::now() < until, "it begins");
            std::thread::yield_now();
        }
        while with_word(&mark) == 0 {
            assert!(Instant::now() < until, "it runs");
            std::thread::yield_now();
        }
        // SIGKILL: no code of the host runs any more.
        host.kill().expect("it can be killed");
        host.wait().expect("it ends");
        assert_gone(&mark);
        fs::remove_file(begun).expect("it is there");
        let mut rest = String::new();
        BufReader::new(host.stdout.take().expect("it has an output"))
            .read_to_string(&mut rest)
            .expect("it can be read");
        assert_eq!(rest.as_bytes().lines().count(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn program_that_leaves_its_group_ends_with_its_call() {
    let scene = scene(&[], |_| {}).await;
    let answer =
        super::call(&scene.host, json!({ "command": "timeout 20 echo over", "timeout": 30 })).await;
    assert_eq!(super::ran(&answer).map(|ran| ran.stdout), Some("over\n".to_owned()), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn process_that_is_left_behind_is_named() {
    let scene = scene(&[], |_| {}).await;
    let text = async |command: &str| {
        let answer = super::call(&scene.host, json!({ "command": command })).await;
        match answer.outcome {
            Ok(output) => output.joined_text(),
            Err(failure) => failure.suggestion.unwrap_or_default(),
        }
    };
    for command in ["sleep 60 & echo started", "(sleep 60 &); echo started", "sleep 60 & exit 3"] {
        let text = text(command).await;
        assert!(
            text.contains("were ended together with the command: `sleep`."),
            "{command}: {text}"
        );
    }
    for command in [
        "echo x",
        "sleep 0.01 & wait; echo x",
        "yes | head -n 1",
        "cat < <(echo x); echo y | tee >(cat > /dev/null)",
        "false",
    ] {
        let text = text(command).await;
        assert!(!text.contains("ended together with"), "{command}: {text}");
    }
}
