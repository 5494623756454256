//! Attacks through programs: programs that weren't granted or decided on, and too many of them.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use toolhold_core::{Answer, Category};

use crate::support::{Scene, attacks, failure, loot, plugin, refused, soon};

/// The program that the plugin may start. `tail` never ends by itself, and its arguments identify
/// it.
const PROGRAMS: &str = r#"plugins.hostile-process.programs=["touch made **", "tail -f {granted}/public.txt", "yes {granted}", "wc -c", "printenv **"]"#;

async fn scene(settings: &[&str]) -> Scene {
    let path = format!("plugins.hostile-process.path={:?}", plugin("hostile-process"));
    let granted = r#"plugins.hostile-process.allowed_paths=["{granted}"]"#;
    let mut all = vec![
        path.as_str(),
        "plugins.hostile-process.reload=trust",
        granted,
        PROGRAMS,
        "tools.call=10",
    ];
    all.extend(settings);
    Scene::with(&all, |_| {}).await
}

async fn attack(scene: &Scene, tool: &str, arguments: Value) -> Answer {
    let answer = scene.call(&format!("hostile-process__{tool}"), arguments).await;
    scene.assert_safe(&answer);
    answer
}

/// The arguments of a program that never ends.
fn endless(scene: &Scene) -> Value {
    json!(["tail", "-f", scene.granted.join("public.txt")])
}

/// Number of processes of this machine whose command line has a program and the granted folder.
fn running(scene: &Scene, program: &str) -> usize {
    let granted = scene.granted.display().to_string();
    let processes = fs::read_dir("/proc").expect("there is /proc").flatten();
    let lines =
        processes.filter_map(|process| fs::read_to_string(process.path().join("cmdline")).ok());
    lines
        .filter(|line| {
            line.split('\0').next().is_some_and(|name| name.ends_with(program))
                && line.contains(&granted)
        })
        .count()
}

async fn all_are_gone(scene: &Scene, program: &str) {
    soon("what was started is gone", || running(scene, program) == 0).await;
}

#[track_caller]
fn nothing_was_made(scene: &Scene, answer: &Answer) {
    assert!(answer.outcome.is_err(), "{answer:?}");
    for folder in [&scene.granted, &scene.outside] {
        assert!(!folder.join("made").exists(), "{answer:?}");
    }
}

attacks! {
    async fn run_program() {
        let scene = scene(&[]).await;
        let made = scene.granted.join("made");
        loot(&attack(&scene, "run_program", json!({ "words": ["touch", "made"] })).await);
        fs::remove_file(&made).expect("it was made");
        for words in [
            json!(["touch", "./made"]),
            json!(["touch", "--", "made"]),
            json!(["/usr/bin/touch", "made"]),
            json!(["sh", "-c", "touch made"]),
            json!(["env", "touch", "made"]),
            json!(["touch made"]),
            json!(["TOUCH", "made"]),
        ] {
            let answer = attack(&scene, "run_program", json!({ "words": words })).await;
            refused(&answer, "programs");
            nothing_was_made(&scene, &answer);
        }
        for words in [json!([]), json!([""]), json!(["touch", "made", "x\0y"]), json!(["touch\0", "made"])] {
            nothing_was_made(&scene, &attack(&scene, "run_program", json!({ "words": words })).await);
        }
        for directory in [scene.outside.clone(), scene.root(), scene.granted.join("../outside"), Path::new("/tmp").into(), "..".into(), "".into()] {
            let arguments = json!({ "words": ["touch", "made"], "directory": directory });
            nothing_was_made(&scene, &attack(&scene, "run_program", arguments).await);
        }
        for (name, value) in [
            ("LD_PRELOAD", "/tmp/x.so"),
            ("LD_LIBRARY_PATH", "."),
            ("BASH_ENV", "x"),
            ("BASH_FUNC_touch%%", "() { :; }"),
            ("PATH", "."),
            ("GIT_SSH_COMMAND", "x"),
            ("API_TOKEN", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"),
            ("HARMLESS", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"),
            ("", "x"),
            ("A=B", "x"),
            ("A", "x\0y"),
        ] {
            let arguments = json!({ "words": ["touch", "made"], "environment": { name: value } });
            nothing_was_made(&scene, &attack(&scene, "run_program", arguments).await);
        }
        let arguments = json!({ "words": ["printenv", "WORD"], "environment": { "WORD": "passed on" } });
        assert!(loot(&attack(&scene, "run_program", arguments).await).contains("passed on"));
    }

    async fn run_shell() {
        let decided = |script: &str| json!({ "command": "touch made", "script": script });
        let without = scene(&[]).await;
        let answer = attack(&without, "run_shell", decided("touch made")).await;
        refused(&answer, "shell = false");
        nothing_was_made(&without, &answer);

        let scene = scene(&["plugins.hostile-process.shell=true"]).await;
        for script in ["touch made ", "touch  made", "touch made\0", "true; touch made", ""] {
            nothing_was_made(&scene, &attack(&scene, "run_shell", decided(script)).await);
        }
        nothing_was_made(&scene, &attack(&scene, "run_shell", json!({ "script": "touch made" })).await);
        loot(&attack(&scene, "run_shell", decided("touch made")).await);
        assert!(scene.granted.join("made").exists());
    }

    async fn lie_about_starting() {
        let scene = scene(&[]).await;
        let answer = attack(&scene, "lie_about_starting", json!({ "words": ["touch", "made"] })).await;
        refused(&answer, "read-only tools");
        nothing_was_made(&scene, &answer);
    }

    async fn run_huge_command() {
        let scene = scene(&[]).await;
        for (count, bytes) in [(5000, 1), (1, 200_000), (100, 2000)] {
            let arguments = json!({ "words": ["touch", "made"], "count": count, "bytes": bytes });
            nothing_was_made(&scene, &attack(&scene, "run_huge_command", arguments).await);
        }
        loot(&attack(&scene, "run_huge_command", json!({ "words": ["touch", "made"], "count": 100, "bytes": 10 })).await);
        assert!(scene.granted.join("made").exists());
    }

    async fn add_many_variables() {
        let scene = scene(&[]).await;
        for (count, bytes) in [(65, 1), (1, 40_000)] {
            let arguments = json!({ "words": ["touch", "made"], "count": count, "bytes": bytes });
            nothing_was_made(&scene, &attack(&scene, "add_many_variables", arguments).await);
        }
        loot(&attack(&scene, "add_many_variables", json!({ "words": ["touch", "made"], "count": 64, "bytes": 10 })).await);
        assert!(scene.granted.join("made").exists());
    }

    async fn give_much_input() {
        let scene = scene(&[]).await;
        let give = |bytes: usize| json!({ "words": ["wc", "-c"], "bytes": bytes });
        assert!(loot(&attack(&scene, "give_much_input", give(1 << 20)).await).contains("1048576"));
        let answer = attack(&scene, "give_much_input", give((1 << 20) + 1)).await;
        failure(&answer, Category::PermanentFailure, None);
    }

    async fn start_many() {
        let scene = scene(&[]).await;
        let answer = attack(&scene, "start_many", json!({ "words": endless(&scene), "count": 9 })).await;
        assert!(loot(&answer).starts_with("8 run; then: "), "{answer:?}");
        all_are_gone(&scene, "tail").await;
    }

    async fn leave_running() {
        let scene = scene(&[]).await;
        let answer = attack(&scene, "leave_running", json!({ "words": endless(&scene) })).await;
        assert_eq!(loot(&answer), "public");
        all_are_gone(&scene, "tail").await;
    }

    async fn crash_beside() {
        let scene = scene(&[]).await;
        let answer = attack(&scene, "crash_beside", json!({ "words": endless(&scene) })).await;
        failure(&answer, Category::PermanentFailure, Some("crash"));
        all_are_gone(&scene, "tail").await;
    }

    async fn never_read() {
        let scene = scene(&[]).await;
        let words = json!(["yes", scene.granted]);
        let answer = attack(&scene, "never_read", json!({ "words": words, "timeout_ms": 2000 })).await;
        let kept = loot(&answer);
        let bytes = kept.split(' ').filter_map(|word| word.parse::<usize>().ok()).max().unwrap_or_default();
        assert!(kept.contains("truncated: true") && (1 << 19..=1 << 20).contains(&bytes), "{answer:?}");
        scene.assert_serves().await;
        all_are_gone(&scene, "yes").await;
    }

    async fn write_forever() {
        let scene = scene(&[]).await;
        let answer = attack(&scene, "write_forever", json!({ "words": endless(&scene), "timeout_ms": 500 })).await;
        assert!(loot(&answer).contains("timeout"), "{answer:?}");
        all_are_gone(&scene, "tail").await;
    }

    async fn start_and_stop() {
        let scene = scene(&["tools.call=60"]).await;
        loot(&attack(&scene, "start_and_stop", json!({ "words": endless(&scene), "count": 20 })).await);
        all_are_gone(&scene, "tail").await;
    }

    async fn use_after_the_end() {
        let scene = scene(&[]).await;
        let answer = attack(&scene, "use_after_the_end", json!({ "words": endless(&scene) })).await;
        assert!(loot(&answer).starts_with("0 bytes taken"), "{answer:?}");
        assert!(loot(&answer).ends_with("cancelled"), "{answer:?}");
    }

    async fn wait_for_several() {
        let scene = scene(&[]).await;
        // The first never ends by itself and is the first to have output.
        let arguments = json!({ "words": endless(&scene), "others": ["printenv", "LANG"], "timeout_ms": 1500 });
        let answer = attack(&scene, "wait_for_several", arguments).await;
        let said = loot(&answer);
        assert!(said.contains("words: public"), "{said}");
        let (first, second) = (said.find("others exited"), said.find("words timeout"));
        assert!(first.is_some() && first < second, "{said}");
        all_are_gone(&scene, "tail").await;
    }

    async fn wait_forever() {
        let scene = scene(&["tools.call=2"]).await;
        let words = json!({ "words": endless(&scene) });
        let began = std::time::Instant::now();
        let answer = attack(&scene, "wait_forever", words).await;
        // The process ends with its call, so what waits for it ends too.
        let ended = answer.outcome.is_err() || loot(&answer) == "timeout";
        assert!(ended && began.elapsed().as_secs() < 30, "{answer:?}");
        scene.assert_serves().await;
        all_are_gone(&scene, "tail").await;
    }

    async fn drop_before_its_pollable() {
        let scene = scene(&[]).await;
        let answer = attack(&scene, "drop_before_its_pollable", json!({ "words": endless(&scene) })).await;
        failure(&answer, Category::PermanentFailure, Some("crash"));
        scene.assert_serves().await;
        all_are_gone(&scene, "tail").await;
    }
}

#[test]
fn every_attack_on_processes_has_a_test() {
    crate::support::run(async {
        let scene = scene(&[]).await;
        let tools = scene.host.tools();
        let attacks: Vec<&str> =
            tools.iter().filter_map(|tool| tool.name.strip_prefix("hostile-process__")).collect();
        assert!(
            attacks.iter().all(|attack| TESTED.contains(attack)) && attacks.len() == TESTED.len(),
            "{attacks:?}"
        );
    });
}
