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
async fn beside_others(settings: &[&str], command: &str) -> toolhold_core::Answer {
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
    assert!(failure.category != toolhold_core::Category::Timeout, "{failure:?}");
}

/// Root has other limits than users, so another user tries the same. `None` if that can't be tried.
pub(super) fn as_an_ordinary_user(settings: &[&str], command: &str) -> Option<(Cli, Ended)> {
    use std::os::unix::process::CommandExt;

    const NOBODY: u32 = 65_534;
    let cli = Cli::new();
    let mut line =
        vec!["call", "--yes", "--json", "--set", "tools.autonomy=full", "--set", "tools.call=20"];
    settings.iter().for_each(|setting| line.extend(["--set", setting]));
    let command = format!("command={command}");
    line.extend(["bash", &command]);
    let mut toolhold = cli.command(&line);
    toolhold.env("PATH", "/usr/bin:/bin").env("TOOLHOLD_CACHE_DIR", cli.root.path().join("cache"));
    if rustix::process::geteuid().is_root() {
        for folder in ["", "work", "config"] {
            std::os::unix::fs::chown(cli.root.path().join(folder), Some(NOBODY), Some(NOBODY))
                .expect("root gives things away");
        }
        toolhold.uid(NOBODY).gid(NOBODY);
    }
    match toolhold.output() {
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
async fn sanitizers_run_although_they_reserve_terabytes() {
    if !there_is("gcc") {
        return;
    }
    let scene = scene(&["tools.shell.limits.memory_mib=512"], |root| {
        let write = |name: &str, text: &str| {
            std::fs::write(root.join("granted").join(name), text).expect("a file is written");
        };
        // It leaks too, which can't be searched for.
        write("fine.c", "#include <stdlib.h>\nint main(int n, char **a) { return malloc(n) == 0; }\n");
        write("wrong.c", "#include <stdlib.h>\nint main(int n, char **a) { char *p = malloc(n); return p[n + n]; }\n");
        write(
            "race.c",
            "#include <pthread.h>\nint x;\nvoid *f(void *a) { x++; return a; }\nint main() { pthread_t t; pthread_create(&t, 0, f, 0); x++; return pthread_join(t, 0); }\n",
        );
    })
    .await;
    let build = |kind: &str, name: &str| {
        format!("gcc -g -fsanitize={kind} {name}.c -o {name}-{kind} && ./{name}-{kind}")
    };
    if run(&scene, "echo 'int main() {}' > e.c && gcc -fsanitize=address,undefined e.c").await.code
        != 0
    {
        return not_tried("the libraries of sanitizers");
    }
    let ran = run(&scene, &build("address", "fine")).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let ran = run(&scene, &build("address", "wrong")).await;
    assert!(ran.stderr.contains("heap-buffer-overflow"), "{ran:?}");
    if !run(&scene, "gcc -fsanitize=thread e.c").await.stderr.is_empty() {
        return not_tried("ThreadSanitizer");
    }
    let ran = run(&scene, &build("thread", "race")).await;
    assert!(ran.stderr.contains("ThreadSanitizer: data race"), "{ran:?}");
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
    assert_eq!(failure.category, toolhold_core::Category::Timeout);
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
    let line = "/usr/bin/python3 -c 'import os; os.memfd_create(\"x\")'";
    let ran = run(&scene, line).await;
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("Function not implemented"), "{}", ran.stderr);
    // What there is instead: a file without a name in memory that counts, or with one.
    for instead in [
        "import tempfile; f = tempfile.TemporaryFile(dir=\"/dev/shm\")",
        "import os; f = os.fdopen(os.open(\"/tmp\", os.O_TMPFILE | os.O_RDWR), \"r+b\")",
        "from multiprocessing import shared_memory as s; f = s.SharedMemory(create=True, size=9); f.unlink(); exit()",
    ] {
        let line = format!(
            "/usr/bin/python3 -c '{instead}; f.write(b\"x\"); f.seek(0); assert f.read() == b\"x\"'"
        );
        let ran = run(&scene, &line).await;
        assert_eq!(ran.code, 0, "{instead}: {ran:?}");
    }
    let line = "cp /usr/bin/true /tmp/program && /tmp/program && cp /usr/bin/true /dev/shm/p && /dev/shm/p";
    assert_eq!(run(&scene, line).await.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_of_processor_time_is_named_whichever_process_reaches_it() {
    if !there_is("python3") {
        return;
    }
    let scene = scene(&["tools.shell.limits.cpu_secs=1"], |_| {}).await;
    let burn = "/usr/bin/python3 -c 'while True: pass'";
    let lines = [
        burn.to_owned(),
        format!("exec {burn}"),
        format!("{burn} | cat"),
        format!("echo begun && {burn} && echo done"),
        format!("{burn} || true"),
        format!("({burn}) & wait"),
        // Each stays below the limit, and all together don't.
        format!("for i in $(seq 60); do timeout 0.5 {burn}; done"),
        // It ends with a signal of its own, and the shell with success.
        "/usr/bin/python3 -c 'import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass'; true".to_owned(),
    ];
    for line in lines {
        let answer = call(&scene.host, json!({ "command": line, "timeout": 30 })).await;
        let failure = answer.outcome.expect_err(&line);
        assert_eq!(failure.code.as_deref(), Some("processor-time"), "{line}: {failure:?}");
        let advice = failure.suggestion.unwrap_or_default();
        assert!(advice.contains("`cpu_secs` in [tools.shell.limits]"), "{line}: {advice}");
    }
    assert_eq!(run(&scene, "echo served").await.stdout, "served\n");
}
