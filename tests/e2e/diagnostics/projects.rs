//! Which projects are checked and which are named, and how long their checkers may take.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;

use super::{RUST, brings, call, checkers, found, scene, state, write};
use crate::support::Scene;

/// Puts a program into a folder of the project.
fn program(folder: &Path, name: &str, script: &str) {
    fs::create_dir_all(folder).expect("it is made");
    fs::write(folder.join(name), script).expect("it is written");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.join(name), executable).expect("it is executable");
}

/// All files in a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("it is readable").flatten();
    let mut all: Vec<PathBuf> = entries
        .flat_map(|entry| match entry.path() {
            path if path.is_dir() => files(&path),
            path => vec![path],
        })
        .collect();
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn tsc_checks_what_a_configuration_refers_to_and_leaves_nothing() {
    let Some((folder, grant)) = checkers("checkers-node") else { return };
    let app =
        "{ \"compilerOptions\": { \"composite\": true, \"types\": [] }, \"include\": [\"src\"] }";
    let node =
        "{ \"compilerOptions\": { \"noEmit\": true, \"types\": [] }, \"files\": [\"vite.ts\"] }";
    let scene = scene(
        &[&grant],
        &[
            (
                "tsconfig.json",
                "{\n  // The parts of this project.\n  \"files\": [],\n  \"references\": [{ \"path\": \"./tsconfig.app.json\" }, { \"path\": \"./tsconfig.node.json\" }],\n}\n",
            ),
            ("tsconfig.app.json", app),
            ("tsconfig.node.json", node),
            ("src/a.ts", "export const n: number = 'text';\n"),
            ("vite.ts", "export const v: string = 1;\n"),
            ("packages/x/package.json", "{}"),
        ],
    )
    .await;
    brings(&scene, "node_modules/.bin", &folder.join("node_modules/.bin/tsc"));
    let before = files(&scene.granted);
    for arguments in [json!({}), json!({ "path": "packages/x" })] {
        let (text, structured) = found(&scene, arguments.clone()).await;
        assert_eq!(state(&structured, "tsc"), "ran", "{text}");
        assert_eq!(structured["errors"], 2, "{arguments}: {text}");
        assert!(text.contains("src/a.ts:1:14: error:") && text.contains("vite.ts:1:14:"), "{text}");
    }
    assert_eq!(files(&scene.granted), before, "nothing is left");
    // What can't be checked is no clean project.
    let beside = "{ \"files\": [], \"references\": [{ \"path\": \"..\" }] }";
    write(&scene.root(), &[("packages/x/tsconfig.json", beside)]);
    let failure = call(&scene, json!({ "path": "packages/x" })).await.outcome;
    let failure = failure.expect_err("nothing is checked");
    assert_eq!(failure.code.as_deref(), Some("not-checked"), "{failure:?}");
    assert!(failure.joined_text().contains("tsconfig.json has no files"), "{failure:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_build_script_says_is_shown() {
    let script = "fn main() {\n    println!(\"cargo:warning=header is old\");\n}\n";
    let scene =
        scene(&[], &[RUST[0], ("src/lib.rs", "pub fn f() {}\n"), ("build.rs", script)]).await;
    for _ in 0..2 {
        let (text, _) = found(&scene, json!({})).await;
        assert!(text.starts_with("warning: app@0.1.0: header is old\n"), "{text}");
        assert!(text.contains("0 errors, 1 warning (cargo)."), "{text}");
    }
    // Its warning doesn't hide that it fails.
    let failing = script.replace("old\");\n", "old\");\n    std::process::exit(3);\n");
    fs::write(scene.granted.join("build.rs"), failing).expect("it is written");
    let answer = call(&scene, json!({})).await.outcome;
    let text = answer.map_or_else(|failure| failure.joined_text(), |output| output.joined_text());
    assert!(text.contains("failed to run custom build command"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn project_within_another_one_is_checked_alone() {
    let mut all = RUST.to_vec();
    all.extend([("front/tsconfig.json", "{}"), ("front/src/a.ts", "")]);
    let scene = scene(&[], &all).await;
    let script = "#!/bin/sh\necho 'src/a.ts(1,1): error TS1: no'; exit 2\n";
    program(&scene.granted.join("front/node_modules/.bin"), "tsc", script);
    let (text, structured) = found(&scene, json!({ "path": "front/src" })).await;
    assert_eq!(structured["total"], 1, "{text}");
    assert!(text.starts_with("front/src/a.ts:1:1: error: no [TS1]\n"), "{text}");
    assert!(!scene.granted.join("target").exists(), "cargo didn't run");
    let (text, structured) = found(&scene, json!({})).await;
    assert_eq!(structured["unchecked"], json!([{ "path": "front", "checkers": ["tsc"] }]));
    assert!(text.contains("weren't checked: front (tsc). To check one, set `path`"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn program_above_the_working_directory_runs_where_it_is_granted() {
    let script = "#!/bin/sh\necho 'a.ts(1,1): error TS1: above'; exit 2\n";
    let prepare = |root: &Path| {
        write(root, &[("tsconfig.json", "{}")]);
        program(&root.join("node_modules/.bin"), "tsc", script);
    };
    let granted =
        "tools.shell.allowed_paths=[\".\", { path = \"{root}/node_modules\", access = \"read\" }]";
    let scene = Scene::with(&["tools.autonomy=sandboxed", granted], prepare).await;
    let (text, _) = found(&scene, json!({ "timeout": 60 })).await;
    assert!(text.starts_with("a.ts:1:1: error: above [TS1]\n"), "{text}");
    let scene = Scene::with(&["tools.autonomy=sandboxed"], prepare).await;
    let answer = call(&scene, json!({ "timeout": 60 })).await.outcome;
    let text = answer.map_or_else(|failure| failure.message, |output| output.joined_text());
    assert!(!text.contains("above [TS1]"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn interpreter_that_is_not_granted_is_no_missing_checker() {
    let scene = scene(&[], &[("a.py", "")]).await;
    program(&scene.outside, "python", "#!/bin/sh\nexit 0\n");
    let script = format!("#!{}\n", scene.outside.join("python").display());
    program(&scene.granted.join(".venv/bin"), "mypy", &script);
    let failure = call(&scene, json!({ "checkers": ["mypy"] })).await.outcome;
    let failure = failure.expect_err("it can't start");
    assert!(failure.message.contains("`presets = [\"python\"]` in [tools.shell]"), "{failure:?}");
    assert!(!failure.message.contains("installed"), "{failure:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn timeout_is_the_time_of_all_checkers() {
    // Seconds of the clock in which the checker ran.
    let ticks = "#!/bin/bash\nwhile :; do date +%s >> ticks; sleep 0.2; done\n";
    let files = [("tsconfig.json", "{}"), (".eslintrc", "{}")];
    let timed = async |settings: &[&str], timeout: u32| {
        let scene = scene(settings, &files).await;
        program(&scene.granted.join("node_modules/.bin"), "tsc", ticks);
        let other = "#!/bin/sh\necho x > began\necho '[]'\n";
        program(&scene.granted.join("node_modules/.bin"), "eslint", other);
        let began = Instant::now();
        let failure = call(&scene, json!({ "timeout": timeout })).await.outcome;
        let failure = failure.expect_err("nothing is checked");
        let took = began.elapsed();
        assert!(!scene.granted.join("began").exists(), "the time was over");
        // A busy machine may start it late.
        let text = fs::read_to_string(scene.granted.join("ticks")).unwrap_or_default();
        let seconds: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        let ran = seconds.last().zip(seconds.first()).map_or(0, |(last, first)| last - first);
        (ran, took, failure.message)
    };
    let (ran, took, said) = timed(&[], 4).await;
    assert!(ran <= 5, "{ran}");
    assert!((3_500..30_000).contains(&took.as_millis()), "{took:?}");
    assert!(
        said.contains("tsc didn't finish: it was stopped 4 s after the begin; set a"),
        "{said}"
    );
    assert!(said.contains("eslint didn't finish"), "{said}");
    let (_, took, said) = timed(&["tools.max_call=2"], 60).await;
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert!(said.contains("2 s after the begin, the longest time of a call: `max_call`"), "{said}");
}
