//! What a model sees of an output, and that the rest isn't lost.

mod command;
mod corpus;
mod hostile;
mod long_outputs;
mod rules;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};
use toolhold_core::{Answer, Audience, Body, Confidence, Content, FilterSummary, Request};

use crate::support::Scene;

/// Writes a program into the granted folder that prints a file and exits with a code.
pub(super) fn program(granted: &Path, name: &str, stdout: &str, stderr: &str, code: i32) {
    for (stream, text) in [("out", stdout), ("err", stderr)] {
        fs::write(granted.join(format!("{name}.{stream}")), text).expect("it is written");
    }
    let text = format!("#!/bin/sh\ncat {name}.out\ncat {name}.err >&2\nexit {code}\n");
    fs::write(granted.join(name), text).expect("it is written");
    fs::set_permissions(granted.join(name), Permissions::from_mode(0o755)).expect("it is ours");
}

/// A passing run of many tests.
pub(super) fn passing(count: usize) -> String {
    let lines: String = (0..count)
        .map(|number| format!("test module_{}::holds_{number} ... ok\n", number % 7))
        .collect();
    let result = format!(
        "test result: ok. {count} passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.42s"
    );
    format!("\nrunning {count} tests\n{lines}\n{result}\n\n")
}

pub(super) fn contents(answer: &Answer) -> &[Content] {
    match &answer.outcome {
        Ok(output) => &output.content,
        Err(failure) => &failure.content,
    }
}

/// The text for a model, without the fences.
pub(super) fn text(answer: &Answer) -> String {
    let text = contents(answer).iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n");
    text.split_inclusive('\n').filter(|line| !line.contains("external-data")).collect()
}

fn structured(answer: &Answer) -> &Value {
    match &answer.outcome {
        Ok(output) => output.structured.as_ref(),
        Err(failure) => failure.structured.as_ref(),
    }
    .expect("a command has one")
}

async fn bash(scene: &Scene, command: &str) -> Answer {
    scene.call("bash", json!({ "command": command })).await
}

/// The complete text that an answer refers to.
async fn rest(scene: &Scene, answer: &Answer) -> String {
    let said = text(answer);
    let id = said.split("read_overflow with id \"").nth(1).and_then(|rest| rest.split('"').next());
    let id = id.unwrap_or_else(|| panic!("it names an id: {said}"));
    let rest = scene.call("read_overflow", json!({ "id": id, "limit": 1_000_000 })).await;
    text(&rest)
}

#[tokio::test]
async fn model_sees_the_test_result_and_can_read_the_whole() {
    let scene =
        Scene::with(&[], |root| program(&root.join("granted"), "cargo", &passing(200), "", 0))
            .await;
    let answer = bash(&scene, "./cargo test --workspace 2>&1 | cat").await;
    let shown = text(&answer);
    assert!(shown.contains("200 passed") && !shown.contains("holds_7 "), "{shown}");
    let filtered = answer.filtered.as_ref().expect("it is filtered");
    assert_eq!((filtered.lines[0], filtered.confidence), (205, Confidence::Full), "{filtered:?}");
    assert!(filtered.percent() > 90.0 && filtered.tokens_saved() > 1000, "{filtered:?}");
    assert!(answer.truncated);
    // Programs and people get the same.
    let envelope = structured(&answer);
    assert!(
        envelope["stdout"]
            .as_str()
            .is_some_and(|stdout| stdout.contains("200 passed") && stdout.len() < 500),
        "{envelope}"
    );
    assert_eq!((&envelope["truncated"], &envelope["exit_code"]), (&json!(true), &json!(0)));
    let said: FilterSummary = match &answer.outcome {
        Ok(output) => serde_json::from_value(
            output.meta.as_ref().expect("it has meta")["toolhold:filtered"].clone(),
        )
        .expect("it is one"),
        Err(failure) => panic!("{failure:?}"),
    };
    assert_eq!(&said, filtered);
    // The structured value contains what the text says, for front ends that show only that.
    let bash = scene.host.tool("bash").expect("it is there");
    let seen = answer.structured_for_model(&bash).expect("there is one");
    let notice = seen["notices"][0].as_str().expect("it is said");
    let id = seen["rest"]["id"].as_str().expect("it names an id");
    assert!(
        notice.starts_with("Filtered by ") && notice.contains(id) && text(&answer).contains(notice),
        "{seen}"
    );
    assert!(rest(&scene, &answer).await.contains(passing(200).trim()));
}

#[tokio::test]
async fn output_of_other_commands_in_a_line_stays() {
    let scene =
        Scene::with(&[], |root| program(&root.join("granted"), "cargo", &passing(200), "", 0))
            .await;
    let before: String = (0..30).map(|number| format!("fn of_{number}() {{}}\n")).collect();
    std::fs::write(scene.granted.join("main.rs"), before).expect("it is written");
    let shown = text(&bash(&scene, "cat main.rs && ./cargo test").await);
    assert!(
        shown.contains("fn of_17() {}")
            && shown.contains("200 passed")
            && !shown.contains("holds_7 "),
        "{shown}"
    );
    // The last command of a pipe isn't taken for the first one.
    let answer = bash(&scene, "./cargo test | grep holds_1").await;
    assert!(text(&answer).contains("holds_17 ... ok") && answer.filtered.is_none());
}

#[tokio::test]
async fn similar_lines_of_an_unknown_program_are_folded() {
    let lines: String = (0..300)
        .map(|n| format!("imported batch {n}: {} rows\n", if n == 211 { 0 } else { 500 }))
        .collect();
    let scene =
        Scene::with(&[], |root| program(&root.join("granted"), "importer", &lines, "", 0)).await;
    let answer = bash(&scene, "./importer").await;
    let shown = text(&answer);
    for line in ["imported batch 0: 500 rows", "imported batch 211: 0 rows", "batch 299: 500 rows"]
    {
        assert!(shown.contains(line), "{line} is missing of:\n{shown}");
    }
    assert!(!shown.contains("imported batch 17: "), "{shown}");
    assert_eq!(answer.filtered.as_ref().expect("it is filtered").filters, ["similar-lines"]);
    assert!(rest(&scene, &answer).await.contains("imported batch 17: 500 rows"));
    // A file is shown as it is, also beside the program.
    std::fs::write(scene.granted.join("rows.txt"), &lines).expect("it is written");
    for command in ["cat rows.txt", "cat rows.txt && ./importer"] {
        let answer = bash(&scene, command).await;
        assert!(answer.filtered.is_none() && text(&answer).contains("batch 17: "), "{command}");
    }
}

#[tokio::test]
async fn failing_run_keeps_every_failure() {
    let failed = "---- module_3::holds_3 stdout ----\n\nthread 'module_3::holds_3' panicked at src/lib.rs:31:9:\nassertion `left == right` failed\n  left: 4\n right: 5\n";
    let all = passing(200).replace("module_3::holds_3 ... ok", "module_3::holds_3 ... FAILED");
    let all = all.replace(
        "test result: ok. 200 passed; 0 failed",
        "test result: FAILED. 199 passed; 1 failed",
    );
    let stdout = all.replacen(
        "\ntest result",
        &format!("\nfailures:\n\n{failed}\n\nfailures:\n    module_3::holds_3\n\ntest result"),
        1,
    );
    let scene = Scene::with(&[], |root| {
        program(
            &root.join("granted"),
            "cargo",
            &stdout,
            "error: test failed, to rerun pass `--lib`\n",
            101,
        );
    })
    .await;
    let answer = bash(&scene, "cd . && ./cargo test").await;
    let shown = text(&answer);
    for line in failed
        .lines()
        .filter(|line| !line.is_empty())
        .chain(["199 passed; 1 failed", "error: test failed"])
    {
        assert!(shown.contains(line), "{line} is missing of:\n{shown}");
    }
    assert!(answer.outcome.is_err() && !shown.contains("holds_7 "), "{shown}");
    assert_eq!(structured(&answer)["exit_code"], 101);
    assert!(rest(&scene, &answer).await.contains("holds_7 "));
}

#[tokio::test]
async fn person_gets_the_whole_and_so_does_a_model_without_a_rule() {
    let scene =
        Scene::with(&[], |root| program(&root.join("granted"), "cargo", &passing(200), "", 0))
            .await;
    let command = "./cargo test";
    let request = Request {
        audience: Audience::Person,
        ..Request::new("bash", json!({ "command": command }))
    };
    let answer = scene.host.call(request).await;
    assert_eq!((text(&answer), answer.filtered), (passing(200).replace("\n\n\n", "\n\n"), None));
    let answer = bash(&scene, "./cargo test > x; tr a b < x").await;
    assert!(text(&answer).contains("holds_7 ") && answer.filtered.is_none());
    // A file that looks like one isn't either.
    let answer = scene.call("read", json!({ "path": "cargo.out" })).await;
    assert!(text(&answer).contains("holds_7 ") && answer.filtered.is_none());
}

#[tokio::test]
async fn unstorable_answer_is_not_filtered() {
    for setting in
        ["tools.overflow.threshold=0", "tools.filters.enabled=false", "tools.filters.chain=[]"]
    {
        let scene = Scene::with(&[setting], |root| {
            program(&root.join("granted"), "cargo", &passing(200), "", 0);
        })
        .await;
        let answer = bash(&scene, "./cargo test").await;
        assert!(text(&answer).contains("holds_7 ") && answer.filtered.is_none(), "{setting}");
    }
    let scene =
        Scene::with(&[], |root| program(&root.join("granted"), "cargo", &passing(200), "", 0))
            .await;
    let data = scene.root().join("toolhold/data");
    fs::create_dir_all(&data).expect("it is made");
    fs::write(data.join("overflow"), "in the way").expect("it is written");
    let answer = bash(&scene, "./cargo test").await;
    assert!(text(&answer).contains("holds_7 ") && answer.filtered.is_none());
}

#[tokio::test]
async fn secrets_are_removed_from_shown_and_stored_output() {
    let secret = "ghp_k3JqT8vXw2LmZr9BnYd5Hs7Gf1Ec4Pa6Uo0i";
    let noisy = format!("{}\nerror: token={secret}\n", passing(200));
    let scene =
        Scene::with(&[], |root| program(&root.join("granted"), "cargo", &noisy, "", 1)).await;
    let answer = bash(&scene, "./cargo test").await;
    let (shown, whole) = (text(&answer), rest(&scene, &answer).await);
    assert!(shown.contains("[REDACTED") && whole.contains("[REDACTED"), "{shown}");
    assert!(!format!("{shown}{whole}{}", structured(&answer)).contains(secret));
}

#[tokio::test]
async fn lines_that_matter_for_security_come_back_without_secrets() {
    let secret = "ghp_k3JqT8vXw2LmZr9BnYd5Hs7Gf1Ec4Pa6Uo0i";
    let noisy: String = (0..100).map(|number| format!("noise {number}\n")).collect();
    let noisy = format!(
        "{noisy}hint: fixes RUSTSEC-2024-0001 with {secret}\n{noisy}license trouble in x\nthe end\n"
    );
    let rule = "[[rules]]\nname = \"mine\"\nmatch = { exact = \"tool\" }\nstrategy = { type = \"strip_noise\", patterns = ['^noise', '^hint', '^license'] }\n";
    let extra = "tools.filters.security.extra_patterns=[\"license TROUBLE\"]";
    let scene = Scene::with(&["tools.filters.filters_path=\"{root}/mine.toml\"", extra], |root| {
        fs::write(root.join("mine.toml"), rule).expect("it is written");
        program(&root.join("granted"), "tool", &noisy, "", 0);
    })
    .await;
    let answer = bash(&scene, "./tool").await;
    let shown = text(&answer);
    assert!(
        shown.contains("fixes RUSTSEC-2024-0001 with [REDACTED")
            && shown.contains("license trouble in x"),
        "{shown}"
    );
    assert!(
        shown.contains("the end") && !shown.contains("noise 7") && !shown.contains(secret),
        "{shown}"
    );
}

#[tokio::test]
async fn invisible_output_is_removed_for_every_command() {
    let steered =
        "\u{1b}]0;title\u{7}\u{1b}[31merror\u{1b}[0m: x\n 1%\r 50%\r100%\n\n\n\nend\u{8}D\n";
    let scene =
        Scene::with(&[], |root| fs::write(root.join("granted/x"), steered).expect("it is written"))
            .await;
    let answer = bash(&scene, "tr -d '\\000' < x").await;
    assert_eq!(text(&answer), "error: x\n100%\n\nenD\n");
    assert_eq!(structured(&answer)["stdout"], "error: x\n100%\n\nenD\n");
    // In a file, empty lines count; a program that prints files keeps everything.
    let shown = text(&bash(&scene, "cat x").await);
    assert!(
        shown.starts_with("error: x\n")
            && shown.contains(" 50%")
            && shown.contains("100%\n\n\n\nend"),
        "{shown}"
    );
    let read = text(&scene.call("read", json!({ "path": "x" })).await);
    assert!(read.contains("[31merror") && read.contains(" 1%"), "{read}");
    let echoed = scene.call("echo", json!({ "text": "a\u{1b}[1mb\n\n\nc" })).await;
    assert!(text(&echoed).contains("ab\n\n\nc"), "{echoed:?}");
}

#[tokio::test]
async fn record_counts_what_was_left_out() {
    let scene =
        Scene::with(&[], |root| program(&root.join("granted"), "cargo", &passing(200), "", 0))
            .await;
    bash(&scene, "./cargo test").await;
    let records = fs::read_to_string(scene.root().join("toolhold/data/audit/audit.jsonl"))
        .expect("it is there");
    let record: Value =
        serde_json::from_str(records.lines().last().expect("there is one")).expect("it is JSON");
    assert_eq!(
        (&record["filtered_by"], &record["filter_confidence"]),
        (&json!("cargo-test"), &json!("full")),
        "{record}"
    );
    assert_eq!(record["whole_lines"], 205);
    assert!(record["shown_bytes"].as_u64() < record["whole_bytes"].as_u64(), "{record}");
    let state = scene
        .host
        .filters()
        .into_iter()
        .find(|filter| filter.name == "cargo-test")
        .expect("it is there");
    assert_eq!((state.counts.runs, state.counts.changed, state.counts.full), (1, 1, 1));
}

#[tokio::test]
async fn other_parts_of_an_answer_keep_their_place() {
    let scene = Scene::new().await;
    let answer = bash(&scene, "printf 'a\\n'; printf 'b\\n' >&2").await;
    assert_eq!(text(&answer), "stdout:\na\n\nstderr:\nb\n");
    assert!(contents(&answer).iter().all(|part| matches!(part.body, Body::Text(_))));
}
