//! The file tools on a real tree, through the host.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::{Value, json};
use toolhold_core::{Answer, Body, Category};

use crate::support::{Scene, failure, refused, run};

/// A small project with some private files.
fn project(root: &Path) {
    let granted = root.join("granted");
    for folder in ["src", "secrets", ".git", "empty"] {
        fs::create_dir_all(granted.join(folder)).expect("folders are made");
    }
    let secret = fs::read(root.join("outside/secret.txt")).expect("it was written");
    let files: [(&str, &[u8]); 8] = [
        ("src/main.rs", b"fn main() {\n    println!(\"needle\");\n}\n"),
        ("src/lib.rs", b"// no such thing\n"),
        ("windows.txt", b"first\r\nsecond\r\nthird"),
        ("ignored.log", b"needle in a log\n"),
        (".gitignore", b"*.log\n"),
        (".env", &secret),
        ("secrets/key", &secret),
        ("binary", b"needle\0needle"),
    ];
    for (name, bytes) in files {
        fs::write(granted.join(name), bytes).expect("a file is written");
    }
    symlink(root.join("outside"), granted.join("away")).expect("a link is made");
}

const DENIED: [&str; 1] = ["tools.file.deny_read=[\"**/.env\", \"secrets/**\"]"];

async fn scene() -> Scene {
    Scene::with(&DENIED, project).await
}

impl Scene {
    /// The text of a call that must succeed.
    async fn text_of(&self, tool: &str, arguments: Value) -> String {
        let answer = self.call(tool, arguments).await;
        self.assert_safe(&answer);
        answer
            .outcome
            .unwrap_or_else(|failure| panic!("{tool} works: {}", failure.message))
            .joined_text()
    }

    async fn failing(&self, tool: &str, arguments: Value) -> Answer {
        let answer = self.call(tool, arguments).await;
        self.assert_safe(&answer);
        answer
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.granted.join(name)).expect("it is there")
    }

    /// No temporary file is left in the granted folder and in `src`.
    #[track_caller]
    fn assert_tidy(&self, expected: usize) {
        let count = |folder: &Path| fs::read_dir(folder).expect("it is readable").count();
        assert_eq!(
            count(&self.granted) + count(&self.granted.join("src")),
            expected,
            "files were left behind"
        );
    }

    fn entries(&self) -> usize {
        fs::read_dir(&self.granted).expect("it is readable").count()
            + fs::read_dir(self.granted.join("src")).expect("it is readable").count()
    }
}

#[test]
fn globs_about_files_stop_no_write_by_its_temporary_name() {
    for globs in [
        "tools.file.allow_read=[\"*.txt\"]",
        "tools.file.deny_read=[\"*.tmp\"]",
        "tools.file.deny_write=[\"*.tmp\"]",
    ] {
        run(async move {
            let scene = Scene::with(&[globs], project).await;
            scene.text_of("write", json!({ "path": "d.txt", "content": "new\n" })).await;
            assert_eq!(scene.file("d.txt"), "new\n", "{globs}");
            let edit = json!({ "path": "d.txt", "old_string": "new", "new_string": "newer" });
            scene.text_of("edit", edit).await;
            assert_eq!(scene.file("d.txt"), "newer\n", "{globs}");
            let copy = json!({ "source": "d.txt", "destination": "e.txt" });
            scene.text_of("copy_path", copy).await;
            assert_eq!(scene.file("e.txt"), "newer\n", "{globs}");
        });
    }
}

#[test]
fn read_shows_numbered_lines_of_the_window_that_was_asked_for() {
    run(async {
        let scene = scene().await;
        let whole = scene.text_of("read", json!({ "path": "src/main.rs" })).await;
        assert!(whole.contains("1\tfn main() {") && whole.contains("3\t}"), "{whole}");
        let window =
            scene.text_of("read", json!({ "path": "src/main.rs", "offset": 2, "limit": 1 })).await;
        assert!(
            window.contains("2\t    println!")
                && !window.contains("fn main")
                && !window.contains("3\t}"),
            "{window}"
        );
        // A path means the same in every spelling.
        let absolute = scene
            .text_of("read", json!({ "path": scene.granted.join("src/../src/main.rs") }))
            .await;
        assert!(absolute.contains("1\tfn main() {"), "{absolute}");
        assert_eq!(
            scene.text_of("file_read", json!({ "path": "src/main.rs" })).await,
            whole,
            "the old name still works"
        );
    });
}

#[test]
fn read_names_the_kind_of_a_binary_file() {
    run(async {
        let scene = scene().await;
        let png = [&b"\x89PNG\r\n\x1a\n"[..], &[0; 64]].concat();
        fs::write(scene.granted.join("picture.png"), &png).expect("a file is written");
        let answer = scene.call("read", json!({ "path": "picture.png" })).await;
        let output = answer.outcome.expect("images are shown");
        assert!(output.content.iter().any(|part| part.body == Body::Bytes(png.clone())
            && part.media_type.as_deref() == Some("image/png")));
        let answer = scene.failing("read", json!({ "path": "src" })).await;
        assert!(
            answer
                .outcome
                .expect_err("a folder has no lines")
                .suggestion
                .is_some_and(|text| text.contains("list_directory"))
        );
        let answer = scene.failing("read", json!({ "path": "src/mian.rs" })).await;
        let missing = failure(&answer, Category::PermanentFailure, Some("not-found"));
        assert!(
            missing.suggestion.as_ref().is_some_and(|text| text.contains("main.rs")),
            "{missing:?}"
        );
    });
}

#[test]
fn denied_files_are_refused_by_their_rule_and_counted_in_searches() {
    run(async {
        let scene = scene().await;
        for path in [".env", "secrets/key", "./secrets/../.env", "secrets/not-there"] {
            refused(&scene.failing("read", json!({ "path": path })).await, "deny_read");
            refused(
                &scene.failing("write", json!({ "path": path, "content": "x" })).await,
                "deny_read",
            );
            refused(
                &scene
                    .failing(
                        "edit",
                        json!({ "path": path, "old_string": "secret", "new_string": "x" }),
                    )
                    .await,
                "deny_read",
            );
        }
        for path in ["away/secret.txt", "../outside/secret.txt", "/etc/passwd"] {
            refused(&scene.failing("read", json!({ "path": path })).await, "allowed_paths");
            refused(
                &scene.failing("write", json!({ "path": path, "content": "x" })).await,
                "allowed_paths",
            );
        }
        refused(
            &scene.failing("grep", json!({ "pattern": "x", "path": "secrets" })).await,
            "deny_read",
        );
        refused(&scene.failing("list_directory", json!({ "path": ".." })).await, "allowed_paths");
        assert_eq!(scene.file(".env"), scene.secret);
        assert_eq!(scene.file("secrets/key"), scene.secret);

        let found = scene.text_of("grep", json!({ "pattern": "secret-of|needle" })).await;
        assert!(found.contains("main.rs") && found.contains("denied"), "{found}");
        let found = scene.text_of("list_directory", json!({})).await;
        assert!(
            found.contains("src/")
                && !found.contains(".env")
                && !found.contains("secrets")
                && found.contains("denied"),
            "{found}"
        );
        let found = scene.text_of("find_path", json!({ "pattern": "**/key" })).await;
        assert!(!found.contains("secrets/key"), "{found}");
    });
}

#[test]
fn write_makes_parents_and_leaves_nothing_behind() {
    run(async {
        let scene = scene().await;
        scene
            .text_of("write", json!({ "path": "new/deep/file.txt", "content": "one\ntwo\n" }))
            .await;
        assert_eq!(scene.file("new/deep/file.txt"), "one\ntwo\n");
        assert_eq!(
            fs::read_dir(scene.granted.join("new/deep")).expect("it is readable").count(),
            1
        );
        let before = scene.entries();
        let mode = |mode| {
            fs::set_permissions(
                scene.granted.join("src/main.rs"),
                fs::Permissions::from_mode(mode),
            )
            .expect("the mode is set");
        };
        mode(0o750);
        scene.text_of("write", json!({ "path": "src/main.rs", "content": "fn main() {}\n" })).await;
        assert_eq!(scene.file("src/main.rs"), "fn main() {}\n");
        let kept = fs::metadata(scene.granted.join("src/main.rs"))
            .expect("it is there")
            .permissions()
            .mode();
        assert_eq!(kept & 0o7777, 0o750, "the mode is kept");
        // Nor if it fails.
        scene
            .failing("write", json!({ "path": "src", "content": "x" }))
            .await
            .outcome
            .expect_err("a folder is in the way");
        scene.assert_tidy(before);
    });
}

/// The old file stays complete if a write fails: a call may write 1 MiB here.
#[test]
fn write_that_is_stopped_leaves_the_old_file() {
    run(async {
        let scene = scene().await;
        let text = "a needle\n".to_owned() + &"hay\n".repeat(500_000);
        fs::write(scene.granted.join("large.txt"), &text).expect("a file is written");
        let before = scene.entries();
        let answer = scene
            .failing(
                "edit",
                json!({ "path": "large.txt", "old_string": "a needle", "new_string": "a pin" }),
            )
            .await;
        answer.outcome.expect_err("it is more than may be written");
        assert!(scene.file("large.txt") == text, "the file is as it was");
        scene.assert_tidy(before);
    });
}

#[test]
fn edit_changes_one_place_and_nothing_else() {
    run(async {
        let scene = scene().await;
        let before = scene.entries();
        let file = scene.granted.join("windows.txt");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("the mode is set");
        scene.text_of("edit", json!({ "path": "windows.txt", "old_string": "first\nsecond", "new_string": "1st\n2nd" })).await;
        assert_eq!(scene.file("windows.txt"), "1st\r\n2nd\r\nthird");
        assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o7777, 0o640);

        fs::write(scene.granted.join("twice.txt"), "same\nsame\n").expect("a file is written");
        let before = before + 1;
        let answer = scene
            .failing(
                "edit",
                json!({ "path": "twice.txt", "old_string": "same", "new_string": "x" }),
            )
            .await;
        let told = answer.outcome.expect_err("it is not clear which");
        assert!(
            format!("{} {:?} {}", told.message, told.suggestion, told.joined_text()).contains('2'),
            "{told:?}"
        );
        scene
            .failing(
                "edit",
                json!({ "path": "twice.txt", "old_string": "none", "new_string": "x" }),
            )
            .await
            .outcome
            .expect_err("it is not there");
        assert_eq!(scene.file("twice.txt"), "same\nsame\n");
        scene.text_of("edit", json!({ "path": "twice.txt", "old_string": "same", "new_string": "x", "replace_all": true })).await;
        assert_eq!(scene.file("twice.txt"), "x\nx\n");
        scene.assert_tidy(before);
    });
}

#[test]
fn grep_and_find_path_honour_ignore_files_and_report_their_limit() {
    run(async {
        let scene = scene().await;
        let found = scene.text_of("grep", json!({ "pattern": "needle" })).await;
        assert!(found.contains("src/main.rs:2:") && !found.contains("ignored.log"), "{found}");
        assert_eq!(
            scene.text_of("content_search", json!({ "pattern": "needle" })).await,
            found,
            "the old name still works"
        );
        let insensitive = scene
            .text_of(
                "grep",
                json!({ "pattern": "NEEDLE", "case_sensitive": false, "mode": "files" }),
            )
            .await;
        assert!(insensitive.contains("main.rs"), "{insensitive}");
        let cut = scene.text_of("grep", json!({ "pattern": ".", "limit": 1 })).await;
        assert!(cut.to_lowercase().contains("limit") || cut.contains("more"), "{cut}");
        let answer = scene.failing("grep", json!({ "pattern": "(" })).await;
        assert!(
            failure(&answer, Category::InvalidParameters, Some("invalid-pattern"))
                .message
                .contains("unclosed")
        );
        let found = scene.text_of("find_path", json!({ "pattern": "*.rs" })).await;
        assert!(found.contains("src/lib.rs") && found.contains("src/main.rs"), "{found}");
        let listed = scene.text_of("list_directory", json!({})).await;
        assert!(
            listed.contains("[dir] src/")
                && listed.contains("[symlink] away")
                && listed.contains("[file] binary"),
            "{listed}"
        );
    });
}

#[test]
fn arguments_are_checked_before_anything_runs() {
    run(async {
        let scene = scene().await;
        failure(&scene.call("reed", json!({})).await, Category::ToolNotFound, None);
        failure(&scene.call("read", json!({})).await, Category::InvalidParameters, None);
        failure(&scene.call("read", json!({ "path": 1 })).await, Category::TypeMismatch, None);
        failure(&scene.call("read", json!(["src/main.rs"])).await, Category::TypeMismatch, None);
        let answer = scene.call("write", json!({ "path": "x", "contents": "y" })).await;
        assert!(failure(&answer, Category::InvalidParameters, None).message.contains("content"));
        let answer =
            scene.call("write", json!({ "path": "x", "content": "y".repeat(2 << 20) })).await;
        failure(&answer, Category::InvalidParameters, None);
        assert!(!scene.granted.join("x").exists());
    });
}

#[test]
fn arguments_in_another_form_mean_the_same() {
    run(async {
        let scene = scene().await;
        let first = scene.text_of("read", json!({ "path": "src/main.rs", "limit": 1 })).await;
        for arguments in [
            json!({ "path": "src/main.rs", "limit": 1.0 }),
            json!({ "path": "src/main.rs", "limit": "1" }),
            json!({ "path": "src/main.rs", "limit": "1", "offset": null }),
        ] {
            assert_eq!(scene.text_of("read", arguments.clone()).await, first, "{arguments}");
        }
        for limit in [
            json!(1.5),
            json!("1.5"),
            json!(" 1"),
            json!("one"),
            json!(true),
            json!([1]),
            json!(1e300),
            json!(0.0),
            json!("-1"),
        ] {
            let answer = scene.call("read", json!({ "path": "src/main.rs", "limit": limit })).await;
            let failure = answer.outcome.expect_err("it is no number of lines");
            assert!(
                matches!(failure.category, Category::TypeMismatch | Category::InvalidParameters),
                "{limit}: {failure:?}"
            );
        }
        // A text is a text.
        scene.text_of("write", json!({ "path": "5.0", "content": "7" })).await;
        assert_eq!(std::fs::read_to_string(scene.granted.join("5.0")).expect("it is there"), "7");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn hidden_files_are_searched_if_the_call_asks_for_it() {
    let scene = Scene::with(&[], |root| {
        let granted = root.join("granted");
        for (path, text) in [
            (".github/workflows/ci.yml", "needle: 1\n"),
            (".travis.yml", "needle: 2\n"),
            (".git/config", "needle: 3\n"),
            ("src/a.yml", "needle: 4\n"),
            ("src/b.rs", "needle\n"),
            ("built/c.yml", "needle: 5\n"),
            (".ignore", "built\n"),
        ] {
            let path = granted.join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("folders are made");
            fs::write(path, text).expect("a file is written");
        }
    })
    .await;
    let found = async |tool: &str, arguments: Value| {
        let answer = scene.call(tool, arguments).await;
        let output = answer.outcome.expect("it searches");
        let text: String = output.content.iter().filter_map(|part| part.as_text()).collect();
        let names = ["ci.yml", ".travis.yml", "config", "a.yml", "b.rs", "c.yml"];
        names.into_iter().filter(|name| text.contains(name)).collect::<Vec<_>>()
    };
    let grep = |include: Option<&str>, hidden: bool| {
        let mut arguments = json!({ "pattern": "needle", "mode": "files", "hidden": hidden });
        if let Some(include) = include {
            arguments["include"] = json!(include);
        }
        arguments
    };
    assert_eq!(found("grep", grep(None, false)).await, ["a.yml", "b.rs"]);
    assert_eq!(found("grep", grep(None, true)).await, ["ci.yml", ".travis.yml", "a.yml", "b.rs"]);
    let yml = ["ci.yml", ".travis.yml", "a.yml"];
    assert_eq!(found("grep", grep(Some("*.yml"), true)).await, yml);
    assert_eq!(found("grep", grep(Some("!*.rs"), true)).await, yml);
    let find = json!({ "pattern": "*.yml", "hidden": true });
    assert_eq!(found("find_path", find).await, yml);
    let find = json!({ "pattern": ".github/**", "hidden": true });
    assert_eq!(found("find_path", find).await, ["ci.yml"]);
    let nothing = scene.call("grep", json!({ "pattern": "no such text" })).await;
    let text = format!("{:?}", nothing.outcome);
    assert!(text.contains("hidden=true"), "{text}");
}
