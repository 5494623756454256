//! WASI commands as tools.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use toolhold_core::{Answer, Category};

use crate::support::{Cli, Scene, failure, loot, plugin, refused, run};

/// The arguments of `lines`, as an operator would write them.
const LINES: &str = r#"plugins.lines.arguments=["--numbers", ["--max", "{max}"], ["--environment", "{environment?}"], "--", "{text}", "{files:read...}"]"#;

async fn scene() -> Scene {
    let path = format!("plugins.lines.path={:?}", plugin("lines"));
    let settings = [
        path.as_str(),
        "plugins.lines.reload=trust",
        "plugins.lines.allowed_paths=[{path=\"{granted}\", access=\"read\"}]",
        "plugins.lines.command=true",
        "plugins.lines.stdin=input",
        LINES,
    ];
    Scene::with(&settings, |root| {
        fs::write(root.join("granted/t.txt"), "one\ntwo\n-x three\n").expect("a file is written");
    })
    .await
}

async fn lines(scene: &Scene, arguments: Value) -> Answer {
    let answer = scene.call("lines__run", arguments).await;
    scene.assert_safe(&answer);
    answer
}

#[test]
fn command_gets_its_arguments_and_its_standard_input() {
    run(async {
        let scene = scene().await;
        for (arguments, output) in [
            // A relative path starts at the working directory.
            (json!({ "text": "o", "files": ["t.txt"] }), "1:one\n2:two\n"),
            (json!({ "text": "o", "max": "1", "files": [scene.granted.join("t.txt")] }), "1:one\n"),
            (json!({ "text": "-x", "files": ["t.txt"] }), "3:-x three\n"),
            (json!({ "text": "a b", "input": "x\na b; c\n" }), "2:a b; c\n"),
            (json!({ "text": "", "environment": true }), "0 variables\n"),
        ] {
            let said = loot(&lines(&scene, arguments.clone()).await);
            // Between the marks of the fence.
            let said =
                said.split_once('\n').and_then(|(_, rest)| rest.split_once("</external-data"));
            assert_eq!(said.map(|(text, _)| text), Some(output), "{arguments}");
        }
        let answer = lines(&scene, json!({ "text": "z", "input": "none" })).await;
        let said = failure(&answer, Category::PermanentFailure, Some("exit-status"));
        assert_eq!((&*said.message, said.content.len()), ("Exit code: 1", 0));
    });
}

#[test]
fn command_reaches_no_file_outside_its_grant() {
    run(async {
        let scene = scene().await;
        let outside = json!({ "text": "", "files": [scene.secret_file] });
        refused(&lines(&scene, outside).await, "allowed_paths");
        let beside = json!({ "text": "", "files": ["../outside/secret.txt"] });
        refused(&lines(&scene, beside).await, "allowed_paths");
    });
}

#[test]
fn argument_of_a_model_never_becomes_an_option() {
    run(async {
        let scene = scene().await;
        for arguments in [
            json!({ "text": "x", "max": "--crash" }),
            json!({ "text": "x", "max": "--environment" }),
        ] {
            let answer = lines(&scene, arguments).await;
            let said = failure(&answer, Category::InvalidParameters, None);
            assert!(said.message.contains("as an option"), "{}", said.message);
        }
        for arguments in [json!({}), json!({ "text": "x", "more": "y" })] {
            failure(&lines(&scene, arguments).await, Category::InvalidParameters, None);
        }
        let answer = lines(&scene, json!({ "text": ["x"] })).await;
        failure(&answer, Category::TypeMismatch, None);
    });
}

/// A command of preview 1 that writes its words to standard output, one a line, and `bye` to
/// standard error. With `code`, it ends with that exit code.
fn module(code: u32) -> String {
    format!(
        r#"(module
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 2)
  (data (i32.const 64) "bye\n")
  (func (export "_start")
    (drop (call $sizes (i32.const 0) (i32.const 4)))
    (drop (call $args (i32.const 1024) (i32.const 4096)))
    ;; All words, with the NUL after each, as one text.
    (i32.store (i32.const 16) (i32.const 4096))
    (i32.store (i32.const 20) (i32.load (i32.const 4)))
    (drop (call $write (i32.const 1) (i32.const 16) (i32.const 1) (i32.const 32)))
    (i32.store (i32.const 16) (i32.const 64))
    (i32.store (i32.const 20) (i32.const 4))
    (drop (call $write (i32.const 2) (i32.const 16) (i32.const 1) (i32.const 32)))
    (call $exit (i32.const {code}))))"#
    )
}

async fn with_module(text: &str, settings: &[&str]) -> Scene {
    let bytes = wat::parse_str(text).expect("the text is a module");
    let all: Vec<&str> = [
        "plugins.old.path={root}/old.wasm",
        "plugins.old.reload=trust",
        "plugins.old.command=true",
        r#"plugins.old.arguments=["-a", "{word}"]"#,
    ]
    .iter()
    .chain(settings)
    .copied()
    .collect();
    Scene::with(&all, |root: &Path| {
        fs::write(root.join("old.wasm"), bytes).expect("the module is written");
    })
    .await
}

#[test]
fn module_of_preview_1_runs_as_a_command() {
    run(async {
        let scene = with_module(&module(0), &[]).await;
        let answer = scene.call("old__run", json!({ "word": "b c" })).await;
        let text = loot(&answer);
        assert!(text.contains("old") && text.contains("-a") && text.contains("b c"), "{text:?}");
        assert!(text.contains("Standard error:\nbye"), "{text:?}");
        let scene = with_module(&module(3), &[]).await;
        let answer = scene.call("old__run", json!({ "word": "x" })).await;
        let said = failure(&answer, Category::PermanentFailure, Some("exit-status"));
        // WASI 0.2 tells success from failure, and no more.
        assert_eq!(said.message, "Exit code: 1");
        let parts: Vec<_> = said.content.iter().filter_map(|part| part.as_text()).collect();
        assert!(parts.len() == 2 && parts[1].contains("Standard error:\nbye\n"), "{parts:?}");
    });
}

#[test]
fn output_of_a_command_is_bounded() {
    run(async {
        // It writes 64 KiB again and again.
        let text = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 64))
    (i32.store (i32.const 4) (i32.const 65536))
    (loop $again
      (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 32)))
      (br $again))))"#;
        let scene = with_module(text, &[]).await;
        let answer = scene.call("old__run", json!({ "word": "x" })).await;
        let ended = answer.outcome.expect_err("it never ends");
        assert!(
            ended.category == Category::Timeout || ended.code.as_deref() == Some("cpu_budget"),
            "{ended:?}"
        );
        scene.assert_serves().await;
    });
}

#[test]
fn command_and_its_table_have_to_fit() {
    let cli = Cli::new();
    let (lines, every) = (plugin("lines"), plugin("every-type"));
    let why = |table: &str| {
        cli.configure(&format!("{table}\nreload = \"trust\"\n"));
        let ended = cli.run(&["call", "some__run"]).ends(2);
        ended.stderr
    };
    let text = why(&format!("[plugins.some]\npath = {lines:?}"));
    assert!(text.contains("set `command = true`"), "{text}");
    let text = why(&format!("[plugins.some]\npath = {every:?}\ncommand = true"));
    assert!(text.contains("isn't a command"), "{text}");
    let text = why(&format!("[plugins.some]\npath = {lines:?}\narguments = [\"x\"]"));
    assert!(text.contains("also set `command = true`"), "{text}");
    let text =
        why(&format!("[plugins.some]\npath = {lines:?}\ncommand = true\narguments = [\"{{x\"]"));
    assert!(text.contains("single `{`"), "{text}");
}

#[test]
fn module_that_is_no_command_is_refused() {
    let cli = Cli::new();
    let file = cli.work().join("module.wasm");
    let file = file.to_str().expect("the path is UTF-8");
    for (text, reason) in [
        ("(module)", "exports no `_start`"),
        (r#"(module (import "env" "f" (func)) (func (export "_start")))"#, "imports `env`"),
    ] {
        fs::write(file, wat::parse_str(text).expect("a module")).expect("it is written");
        let ended = cli.run(&["plugin", "inspect", file]);
        assert!(ended.code != 0 && ended.stderr.contains(reason), "{}", ended.stderr);
    }
}
