//! Attacks that make the host hold, copy, print or write too much.

use std::fs;

use serde_json::json;
use toolhold_core::{Answer, Category, Failure};

use crate::support::{Scene, attacks, failure, log_of, loot};

const MIB: usize = 1 << 20;

fn stopped<'a>(answer: &'a Answer, code: &str) -> &'a Failure {
    failure(answer, Category::PermanentFailure, Some(code))
}

/// A failure's content stays below the limit of an answer, 1 MiB here, and a little for notices.
#[track_caller]
fn assert_small(failure: &Failure) {
    let size = failure.joined_text().len() + failure.message.len();
    assert!(size < MIB + 16 * 1024, "{size} bytes");
}

attacks! {
    async fn flood_output() {
        let scene = Scene::new().await;
        let answer = scene.attack_beside_others("flood_output", json!({})).await;
        assert_small(answer.outcome.as_ref().expect_err("nobody takes it"));
    }

    async fn flood_stderr() {
        let scene = Scene::new().await;
        let answer = scene.attack_beside_others("flood_stderr", json!({})).await;
        assert_small(answer.outcome.as_ref().expect_err("nobody takes it"));
    }

    async fn flood_the_log() {
        let scene = Scene::with(&["tools.call=5", "tools.limits.cpu_secs=5"], |_| {}).await;
        let answer = scene.attack_beside_others("flood_the_log", json!({ "count": 3000 })).await;
        let lines = log_of(&answer.id);
        assert!((1000..=1010).contains(&lines.len()), "{} lines", lines.len());
        assert!(lines.iter().all(|line| line.len() < 8192), "lines are cut");
        assert!(lines.iter().any(|line| line.contains("dropped")), "what was dropped is said");
    }

    async fn flood_progress() {
        let scene = Scene::new().await;
        let (_, heard) = scene.attack_heard("flood_progress", json!({ "count": 3000 })).await;
        let progress = heard.progress.lock().expect("nobody panicked");
        // Ten a second, and a call has six seconds here.
        assert!((1..=70).contains(&progress.len()), "{} messages", progress.len());
        assert!(progress.iter().all(|told| told.message.chars().count() <= 200 && told.fraction.is_none()));
    }

    async fn flood_emitted_parts() {
        let scene = Scene::new().await;
        let (answer, heard) = scene.attack_heard("flood_emitted_parts", json!({ "count": 1000 })).await;
        let shown: usize = heard.parts.lock().expect("nobody panicked").iter().filter_map(|part| part.as_text()).map(str::len).sum();
        assert!((1..=MIB).contains(&shown), "{shown} bytes were shown");
        assert_small(answer.outcome.as_ref().expect_err("nobody takes it"));
    }

    async fn emit_and_loop() {
        // Enough time to use up the processor time on a busy machine.
        let scene = Scene::with(&["tools.call=30"], |_| {}).await;
        let answer = scene.attack_beside_others("emit_and_loop", json!({ "text": "so far" })).await;
        assert_eq!(stopped(&answer, "cpu_budget").joined_text(), "so far");
    }

    async fn answer_too_much() {
        let scene = Scene::new().await;
        // More than an answer may have; more than the host copies; more than the guest may have.
        for (mib, code) in [(2, "result_limit"), (20, "crash"), (200, "memory_limit")] {
            let answer = scene.attack_beside_others("answer_too_much", json!({ "count": mib })).await;
            assert_small(stopped(&answer, code));
        }
    }

    async fn answer_too_many_parts() {
        let scene = Scene::new().await;
        stopped(&scene.attack("answer_too_many_parts", json!({ "count": 100_000 })).await, "result_limit");
    }

    async fn fail_with_too_much() {
        let scene = Scene::new().await;
        assert_small(stopped(&scene.attack("fail_with_too_much", json!({ "count": 2 })).await, "result_limit"));
    }

    async fn pass_a_huge_string() {
        let scene = Scene::new().await;
        let answer = scene.attack_beside_others("pass_a_huge_string", json!({ "count": 20 })).await;
        stopped(&answer, "crash");
        assert!(!log_of(&answer.id).iter().any(|line| line.contains("sssss")), "nothing of it was logged");
    }

    async fn search_under_ignore_files() {
        // Lines that need much memory for their length, and files that store much of the names they
        // have seen.
        let long = "?\n".repeat((1 << 20) / 2);
        // Wider ones need more than a file's automaton may have, and are left out.
        let lines = |widths: std::ops::Range<usize>| -> String {
            widths.map(|wide| format!("*a{}*b\n", "?".repeat(wide))).collect()
        };
        let (deep, wide) = (lines(2..10), lines(10..18));
        for (folder, file, depth, left_out) in [("long", &long, 1, 1), ("many", &deep, 20, 0), ("wide", &wide, 20, 20)] {
            let scene = Scene::with(&["tools.call=60", "tools.limits.cpu_secs=60"], |root| {
                let mut at = root.join("granted").join(folder);
                fs::create_dir_all(at.join(".git")).expect("a repository is made");
                for _ in 0..depth {
                    fs::write(at.join(".gitignore"), file).expect("it is written");
                    at.push("dd");
                    fs::create_dir(&at).expect("a folder is made");
                }
                for number in 0_u64..1_000 {
                    // Names that each take their own way through the compiled patterns.
                    let bits = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    let name: String = (0..128).map(|bit| if bits.rotate_left(bit) & 1 == 0 { 'a' } else { 'b' }).collect();
                    fs::write(at.join(format!("{name}c{number}")), "").expect("a file is written");
                }
            })
            .await;
            let answer = scene.attack_beside_others("search_under_ignore_files", json!({ "path": scene.granted.join(folder) })).await;
            // Omissions are reported, and the search goes on.
            assert_eq!(loot(&answer), format!("{left_out} unreadable, {} entries", 1_000 + depth));
        }
    }

    async fn pass_many_globs() {
        let scene = Scene::new().await;
        let answer = scene.attack_beside_others("pass_many_globs", json!({ "path": scene.granted, "count": 100_000 })).await;
        answer.outcome.expect_err("so many globs are refused");
    }

    async fn poll_one_thing_often() {
        let scene = Scene::new().await;
        let answer = scene.attack_beside_others("poll_one_thing_often", json!({ "count": 10_000_000 })).await;
        answer.outcome.expect_err("so long a list is refused");
    }

    async fn search_with_a_regex_bomb() {
        let scene = Scene::new().await;
        let answer = scene.attack_beside_others("search_with_a_regex_bomb", json!({ "path": scene.granted })).await;
        let refused = answer.outcome.expect_err("the pattern is refused");
        assert!(refused.message.contains("code: \"invalid\""), "{}", refused.message);
        assert!(refused.message.contains("exceeds size limit"), "{}", refused.message);
    }

    async fn search_with_a_slow_regex() {
        let scene = Scene::new().await;
        fs::write(scene.granted.join("slow.txt"), "a".repeat(100_000) + "!").expect("a file is written");
        loot(&scene.attack_beside_others("search_with_a_slow_regex", json!({ "path": scene.granted })).await);
    }

    async fn ask_for_endless_random() {
        let scene = Scene::new().await;
        for kind in ["secure", "insecure"] {
            assert!(loot(&scene.attack("ask_for_endless_random", json!({ "text": kind, "count": 32 })).await).contains("32"));
            for count in [10 * MIB as u64, 1 << 40] {
                let answer = scene.attack_beside_others("ask_for_endless_random", json!({ "text": kind, "count": count })).await;
                stopped(&answer, "crash");
            }
        }
    }

    async fn read_with_huge_lengths() {
        let scene = Scene::new().await;
        let file = scene.granted.join("large.txt");
        fs::write(&file, vec![b'x'; 4 * MIB]).expect("a file is written");
        let most: usize = loot(&scene.attack("read_with_huge_lengths", json!({ "path": file })).await).parse().expect("a number");
        assert!((4096..=MIB).contains(&most), "{most} bytes at once");
    }

    async fn write_huge_zeroes() {
        let scene = Scene::new().await;
        let file = scene.granted.join("zeroes");
        stopped(&scene.attack_beside_others("write_huge_zeroes", json!({ "path": file, "count": 1_u64 << 40 })).await, "crash");
        assert!(fs::metadata(&file).expect("the file was made").len() <= MIB as u64);
    }

    async fn fill_the_disk() {
        let scene = Scene::new().await;
        let file = scene.granted.join("full");
        let answer = scene.attack_beside_others("fill_the_disk", json!({ "path": file })).await;
        let written = fs::metadata(&file).expect("the file was made").len();
        assert!((1..=MIB as u64).contains(&written), "{written} bytes were written: {answer:?}");
    }

    async fn blow_up_a_file() {
        let scene = Scene::new().await;
        let file = scene.granted.join("large");
        for size in [2 * MIB as u64, 1 << 40, u64::MAX] {
            let answer = scene.attack("blow_up_a_file", json!({ "path": file, "count": size })).await;
            answer.outcome.expect_err("growing counts as writing");
            assert_eq!(fs::metadata(&file).expect("the file was made").len(), 0);
        }
        loot(&scene.attack("blow_up_a_file", json!({ "path": file, "count": 1000 })).await);
    }
}
