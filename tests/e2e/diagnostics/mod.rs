//! Diagnostics of real compilers and linters: the same findings as without Toolhold.

mod command_approvals;
mod hostile;
mod projects;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use toolhold_core::{Answer, Request};

use crate::support::{Cli, Ended, Scene, fetched, go_compiler};

/// A project in Rust with an error, a warning, and a place where clippy advises.
const RUST: [(&str, &str); 2] = [
    ("Cargo.toml", "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"),
    (
        "src/lib.rs",
        "pub fn number() -> i32 {\n    let unused = 1;\n    \"text\"\n}\n\npub fn same(x: bool) -> bool {\n    if x { true } else { false }\n}\n",
    ),
];

fn write(root: &Path, files: &[(&str, &str)]) {
    for (file, text) in files {
        let path = root.join("granted").join(file);
        fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("folders are made");
        fs::write(path, text).expect("a file is written");
    }
}

/// A scene with these files, in which commands run as by default.
async fn scene(settings: &[&str], files: &[(&str, &str)]) -> Scene {
    let mut all = vec!["tools.autonomy=sandboxed", "tools.shell.presets=[\"cargo\"]"];
    all.extend(settings);
    Scene::with(&all, |root| write(root, files)).await
}

async fn call(scene: &Scene, arguments: Value) -> Answer {
    scene.host.call(Request::new("diagnostics", arguments)).await
}

/// The text, without the fence that is around what a checker says, and the structured part of an
/// answer.
async fn found(scene: &Scene, arguments: Value) -> (String, Value) {
    let answer = call(scene, arguments.clone()).await;
    let output = answer.outcome.unwrap_or_else(|failure| panic!("{arguments}: {failure:?}"));
    let text = output.joined_text();
    let is_own = |line: &&str| !line.trim_start_matches(['<', '/']).starts_with("external-data ");
    let own: String = text.split_inclusive('\n').filter(is_own).collect();
    assert_eq!(own != text, answer.untrusted, "{text}");
    (own, output.structured.unwrap_or_default())
}

/// Path, line, column and code of each diagnostic.
fn places(structured: &Value) -> Vec<[Value; 4]> {
    let all = structured["diagnostics"].as_array().expect("there is a list").iter();
    all.map(|one| ["path", "line", "column", "code"].map(|key| one[key].clone())).collect()
}

/// The state of a checker.
fn state<'v>(structured: &'v Value, checker: &str) -> &'v Value {
    let all = structured["checkers"].as_array().expect("there is a list").iter();
    let mut named = all.filter(|one| one["name"] == checker);
    &named.next().unwrap_or_else(|| panic!("{checker} is missing: {structured}"))["state"]
}

/// What the program itself prints, in the same folder.
fn printed(program: &Path, arguments: &[&str], folder: &Path) -> String {
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    let output = output.expect("it is started");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn cargo_finds_what_it_finds_without_toolhold() {
    let scene = scene(&[], &RUST).await;
    let (text, structured) = found(&scene, json!({})).await;
    assert_eq!(state(&structured, "cargo"), "ran", "{text}");
    let alone = scene.root().join("target");
    let target = format!("--target-dir={}", alone.display());
    let arguments = ["check", "--offline", "--message-format=json", &target];
    let lines = printed(Path::new("cargo"), &arguments, &scene.granted);
    let messages = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let messages = messages.filter(|line| !line["message"]["spans"][0].is_null());
    let mut own: Vec<[Value; 4]> = messages
        .map(|line| {
            let message = &line["message"];
            let spans = message["spans"].as_array().expect("there are spans").iter();
            let span = spans.clone().find(|span| span["is_primary"] == true).expect("one is");
            let (line, column) = (&span["line_start"], &span["column_start"]);
            [&span["file_name"], line, column, &message["code"]["code"]].map(Value::clone)
        })
        .collect();
    let mut ours = places(&structured);
    own.sort_by_key(|place| format!("{place:?}"));
    ours.sort_by_key(|place| format!("{place:?}"));
    assert!(!own.is_empty() && own == ours, "{own:?} {ours:?}");
    assert!(text.starts_with("src/lib.rs:3:5: error: mismatched types [E0308]\n"), "{text}");
    assert!(text.ends_with("1 error, 0 warnings (cargo).\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn clippy_lints_and_only_new_shows_what_changed() {
    let scene = scene(&[], &RUST).await;
    let fixed = RUST[1].1.replace("    \"text\"\n", "    2\n");
    fs::write(scene.granted.join("src/lib.rs"), &fixed).expect("it is written");
    let (text, _) = found(&scene, json!({ "level": "clippy" })).await;
    assert!(text.contains("[clippy::needless_bool]") && !text.contains("error:"), "{text}");
    assert!(text.contains(":2:9: warning: unused variable: `unused` [unused_variables]"), "{text}");
    assert!(text.contains("`_unused`"), "the suggestion is missing: {text}");
    let only_new = json!({ "level": "clippy", "only_new": true });
    let (text, structured) = found(&scene, only_new.clone()).await;
    assert_eq!(text, "No new diagnostics (cargo).\n", "{structured}");
    // Lines above move the others, which stay the same.
    let more = format!(
        "\n\n{}\npub fn more() {{ let other = 1; }}\n",
        fixed.replace("let unused", "let _used")
    );
    fs::write(scene.granted.join("src/lib.rs"), more).expect("it is written");
    let (text, structured) = found(&scene, only_new.clone()).await;
    assert!(text.contains("`other`") && !text.contains("needless_bool"), "{text}");
    assert_eq!(structured["gone"], 1, "{text}");
    let (text, _) = found(&scene, only_new).await;
    assert!(text.starts_with("No new diagnostics"), "{text}");
    // Without it, all are shown.
    let (text, _) = found(&scene, json!({ "level": "clippy" })).await;
    assert!(text.contains("needless_bool") && text.contains("`other`"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_below_is_checked_with_its_project_and_clean_code_has_no_diagnostics() {
    let clean = [
        ("one/Cargo.toml", "[package]\nname = \"one\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"),
        ("one/src/lib.rs", "pub fn one() -> i32 {\n    1\n}\n"),
        ("one/src/deep/notes.txt", ""),
    ];
    let scene = scene(&[], &clean).await;
    for path in ["one", "one/src/deep", "one/src/lib.rs"] {
        let (text, structured) = found(&scene, json!({ "path": path })).await;
        assert_eq!(text, "No diagnostics (cargo).\n", "{path}: {structured}");
    }
    fs::write(scene.granted.join("one/src/lib.rs"), "pub fn one() -> i32 {}\n").expect("written");
    let (text, _) = found(&scene, json!({ "path": "one/src" })).await;
    assert!(text.starts_with("one/src/lib.rs:1:17: error: mismatched types"), "{text}");
    let answer = call(&scene, json!({})).await;
    let failure = answer.outcome.expect_err("there is no project here");
    assert_eq!(failure.code.as_deref(), Some("nothing-fits"));
    assert!(failure.message.contains("Cargo.toml (cargo)"), "{failure:?}");
}

/// Has the project bring a program along, which starts the fetched one.
fn brings(scene: &Scene, folder: &str, program: &Path) {
    let folder = scene.granted.join(folder);
    fs::create_dir_all(&folder).expect("it is made");
    let own = folder.join(program.file_name().expect("it has a name"));
    fs::write(&own, format!("#!/bin/sh\nexec {} \"$@\"\n", program.display())).expect("written");
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).expect("it is executable");
}

/// The programs of a language in a folder that commands may read.
fn checkers(name: &str) -> Option<(PathBuf, String)> {
    let folder = fetched(name)?.canonicalize().expect("it is there");
    let grant =
        format!("tools.shell.allowed_paths=[\".\", {{ path = {folder:?}, access = \"read\" }}]");
    Some((folder, grant))
}

#[tokio::test(flavor = "multi_thread")]
async fn tsc_and_eslint_find_what_they_find_without_toolhold() {
    let Some((folder, grant)) = checkers("checkers-node") else { return };
    let files = [
        (
            "tsconfig.json",
            "{ \"compilerOptions\": { \"strict\": true, \"types\": [] }, \"include\": [\"src\"] }\n",
        ),
        ("src/a.ts", "const n: number = 'text';\nexport function f(x) { return x; }\n"),
        ("package.json", "{ \"type\": \"module\" }\n"),
        (
            "eslint.config.js",
            "export default [{ rules: { 'no-undef': 'error', 'no-var': 'warn' } }];\n",
        ),
        ("b.js", "var a = unknown;\n"),
    ];
    let scene = scene(&[&grant], &files).await;
    let modules = folder.join("node_modules");
    for name in ["tsc", "eslint"] {
        brings(&scene, "node_modules/.bin", &modules.join(".bin").join(name));
    }
    let (text, structured) = found(&scene, json!({})).await;
    for checker in ["tsc", "eslint"] {
        assert_eq!(state(&structured, checker), "ran", "{text}");
    }
    let own =
        printed(&modules.join(".bin/tsc"), &["--noEmit", "--pretty", "false"], &scene.granted);
    assert_eq!(own.lines().count(), 2, "{own}");
    for line in own.lines() {
        let (place, message) = line.split_once("): error ").expect("it has a place");
        let (code, message) = message.split_once(": ").expect("it has a code");
        let place = place.replace(['(', ','], ":");
        assert!(text.contains(&format!("{place}: error: {message} [{code}]\n")), "{line}: {text}");
    }
    let own = printed(&modules.join(".bin/eslint"), &["--format", "json", "."], &scene.granted);
    let own: Value = serde_json::from_str(&own).expect("it is JSON");
    let messages = own.as_array().expect("a list").iter();
    let messages: Vec<&Value> =
        messages.filter_map(|file| file["messages"].as_array()).flatten().collect();
    assert_eq!(messages.len(), 2, "{own}");
    for message in messages {
        let wanted = ["line", "column"].map(|key| message[key].clone());
        let is_it = |place: &[Value; 4]| {
            place[0] == "b.js" && place[1..3] == wanted && place[3] == message["ruleId"]
        };
        assert!(places(&structured).iter().any(is_it), "{message}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mypy_and_ruff_find_what_they_find_without_toolhold() {
    let Some((folder, grant)) = checkers("checkers-python") else { return };
    let files = [("a.py", "import os\n\nnumber: int = \"text\"\n")];
    // The interpreter of the environment may lie anywhere.
    let python = folder.join("bin/python3").canonicalize().expect("it is there");
    let home = python.ancestors().nth(2).expect("it lies in bin").to_owned();
    let more = format!(", {{ path = {home:?}, access = \"read\" }}]");
    let grant = if home.starts_with("/usr") { grant } else { grant.replace(']', &more) };
    let scene = scene(&[&grant], &files).await;
    for name in ["mypy", "ruff"] {
        brings(&scene, ".venv/bin", &folder.join("bin").join(name));
    }
    let (text, structured) = found(&scene, json!({})).await;
    for checker in ["mypy", "ruff"] {
        assert_eq!(state(&structured, checker), "ran", "{text}");
    }
    let own = printed(&folder.join("bin/mypy"), &["--show-column-numbers", "a.py"], &scene.granted);
    let line = own.lines().next().expect("it finds something").replace("  [", " [");
    assert!(line.contains("assignment") && text.contains(&line), "{line}: {text}");
    let arguments = ["check", "--output-format", "json", "--no-cache", "a.py"];
    let own = printed(&folder.join("bin/ruff"), &arguments, &scene.granted);
    let own: Value = serde_json::from_str(&own).expect("it is JSON");
    let (one, place) = (&own[0], &own[0]["location"]);
    let wanted =
        [json!("a.py"), place["row"].clone(), place["column"].clone(), one["code"].clone()];
    assert!(one["code"].is_string() && places(&structured).contains(&wanted), "{own}: {text}");
}

/// The folder of Go among the packages of its client.
fn go_of_client() -> Option<PathBuf> {
    let libraries = fetched("plugins-go")?.join("lib").canonicalize().expect("it is there");
    let python = fs::read_dir(libraries).expect("it is readable").flatten().next();
    Some(python.expect("it has a folder of Python").path().join("site-packages/go"))
}

#[test]
fn go_vet_finds_what_it_finds_without_toolhold() {
    let Some(go) = go_of_client() else { return };
    let _alone = go_compiler();
    let cli = Cli::new();
    for (file, text) in [
        ("go.mod", "module example.com/a\n\ngo 1.21\n"),
        ("a.go", "package a\n\nimport \"fmt\"\n\nfunc F() { fmt.Printf(\"%d\", \"text\") }\n"),
    ] {
        fs::write(cli.work().join(file), text).expect("a file is written");
    }
    cli.configure(&format!(
        "[tools.shell]\npresets = [\"go\"]\nallowed_paths = [\".\", {{ path = {go:?}, access = \"read\" }}]\n"
    ));
    // Commands search the path of whoever started Toolhold.
    let path = format!("{}:/usr/bin:/bin", go.join("bin").display());
    let mut toolhold = cli.command(&["call", "--yes", "diagnostics", "{}"]);
    let found = Ended::from_output(toolhold.env("PATH", &path).output().expect("toolhold starts"));
    let found = found.ends(0).stdout;
    let mut own = Command::new(go.join("bin/go"));
    let own = own.arg("vet").current_dir(cli.work()).env("HOME", cli.root.path());
    let own = own.env("GOTOOLCHAIN", "local").output().expect("go starts");
    let own = String::from_utf8(own.stderr).expect("it prints UTF-8");
    let (place, message) = own
        .lines()
        .find_map(|line| line.trim_start_matches("./").split_once(": "))
        .unwrap_or_else(|| panic!("it finds nothing: {own}"));
    assert!(place.starts_with("a.go:5:"), "{own}");
    assert!(found.contains(&format!("{place}: warning: {message} [printf]")), "{own}{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_checker_is_named_and_does_not_stop_the_others() {
    let mut files = RUST.to_vec();
    files.push(("tsconfig.json", "{}"));
    let scene = scene(&["tools.diagnostics.checkers=[\"cargo\", \"tsc\"]"], &files).await;
    let (text, structured) = found(&scene, json!({})).await;
    assert!(text.contains("E0308"), "{text}");
    if structured["checkers"][1]["state"] == "missing" {
        assert!(
            text.contains("[tsc isn't installed: Install it in the project: `npm install"),
            "{text}"
        );
    }
    let answer = call(&scene, json!({ "checkers": ["go"] })).await;
    let failure = answer.outcome.expect_err("it is off");
    assert_eq!(failure.code.as_deref(), Some("off"), "{failure:?}");
}
