//! Attacks that use up time, memory, stack and handles, or crash.

use serde_json::json;
use toolhold_core::{Answer, Category, Failure};

use crate::support::{Cli, Scene, attacks, descriptors_below, failure, log_of, loot};

#[track_caller]
fn stopped<'a>(answer: &'a Answer, code: &str) -> &'a Failure {
    let stopped = failure(answer, Category::PermanentFailure, Some(code));
    let advice = stopped.suggestion.as_deref().unwrap_or_default();
    let names = |table: &str| advice.contains(table) && advice.ends_with("toolhold.toml.");
    // These limits are the operator's.
    assert!(
        !["cpu_budget", "memory_limit"].contains(&code)
            || names("[tools.limits] of ")
            || names(".limits] of "),
        "{advice}"
    );
    stopped
}

/// Enough time to use up the processor time on a busy machine.
const BUSY: &[&str] = &["tools.call=30"];

attacks! {
    async fn loop_forever() {
        let scene = Scene::with(BUSY, |_| {}).await;
        stopped(&scene.attack_beside_others("loop_forever", json!({})).await, "cpu_budget");
    }

    async fn loop_through_host_calls() {
        let scene = Scene::with(BUSY, |_| {}).await;
        stopped(&scene.attack_beside_others("loop_through_host_calls", json!({})).await, "cpu_budget");
    }

    async fn search_forever() {
        let scene = Scene::with(&["tools.call=30"], |root| {
            for number in 0..200 {
                std::fs::write(root.join(format!("granted/{number}.txt")), "a line\n".repeat(1000)).expect("a file is written");
            }
        })
        .await;
        let answer = scene.attack_beside_others("search_forever", json!({ "path": scene.granted })).await;
        stopped(&answer, "cpu_budget");
    }

    async fn sleep_forever() {
        let scene = Scene::new().await;
        failure(&scene.attack_beside_others("sleep_forever", json!({})).await, Category::Timeout, None);
    }

    async fn memory_bomb() {
        let scene = Scene::new().await;
        stopped(&scene.attack_beside_others("memory_bomb", json!({})).await, "memory_limit");
    }

    async fn recurse_forever() {
        let scene = Scene::new().await;
        stopped(&scene.attack_beside_others("recurse_forever", json!({})).await, "crash");
    }

    async fn trap() {
        let scene = Scene::new().await;
        let answer = scene.attack_beside_others("trap", json!({})).await;
        assert!(stopped(&answer, "crash").message.contains("unreachable"), "{answer:?}");
        assert!(!log_of(&answer.id).is_empty(), "the backtrace is in the host's log");
    }

    /// The message of a panic is content of the failure, and what looks like a secret is not.
    async fn panic() {
        let scene = Scene::new().await;
        let answer = scene.attack_beside_others("panic", json!({ "text": "what-it-said with token=ghp_0123456789abcdefghijABCDEFGHIJ012345" })).await;
        let content = &stopped(&answer, "crash").content;
        let said: String = content.iter().filter_map(|part| part.as_text()).collect();
        assert!(said.contains("what-it-said"), "{answer:?}");
        assert!(!format!("{:?}", answer.outcome).contains("0123456789abcdef"), "{answer:?}");
    }

    async fn exit() {
        let scene = Scene::new().await;
        for code in [0, 1] {
            let answer = scene.attack_beside_others("exit", json!({ "count": code })).await;
            assert!(stopped(&answer, "crash").message.contains("exit code"), "{answer:?}");
        }
    }

    async fn hoard_descriptors() {
        hoards("hoard_descriptors", "public.txt").await;
    }

    async fn hoard_streams() {
        hoards("hoard_streams", "public.txt").await;
    }

    async fn hoard_listings() {
        hoards("hoard_listings", ".").await;
    }

    async fn hoard_pollables() {
        let scene = Scene::new().await;
        stopped(&scene.attack_beside_others("hoard_pollables", json!({})).await, "crash");
    }
}

/// Opens handles of something in the granted folder: 64 are allowed, and none is left open.
async fn hoards(attack: &str, name: &str) {
    let scene = Scene::new().await;
    let open_before = descriptors_below(&scene.granted);
    let answer =
        scene.attack_beside_others(attack, json!({ "path": scene.granted.join(name) })).await;
    let taken: usize = loot(&answer).parse().expect("it tells how many it got");
    assert!((30..=64).contains(&taken), "{taken} handles");
    assert_eq!(descriptors_below(&scene.granted), open_before, "handles are left open");
}

#[test]
fn limit_of_written_bytes_is_named() {
    let cli = Cli::new();
    std::fs::write(cli.work().join("large"), vec![0; 3 << 20]).expect("a file is written");
    let copy = ["call", "--yes", "copy_path", "source=large", "destination=copy"];
    let ended = cli.run(&[&["--set", "tools.limits.written_mib=1"][..], &copy].concat());
    assert_ne!(ended.code, 0, "{}", ended.stdout);
    for part in ["limit of written bytes: `written_mib`", "[tools.limits]\nwritten_mib = "] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
    cli.run(&copy).ends(0);
}
