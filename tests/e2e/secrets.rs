//! Secrets in answers, arguments with their marks, and answers that are too long.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use serde_json::{Value, json};
use toolhold_core::{Answer, Audience, Category, Host, Request, Session};

use crate::support::{Cli, Scene, failure, log_of, run};

/// An invented credential, put together so that no scanner reports it.
fn token() -> String {
    format!("gh{}_{}", 'p', "Zx8Kq2Lw9Vn4Rt7Yb1Mc6Hd3Jf5Gs0Pa2Qe8")
}

const MARK: &str = "[REDACTED:github-token ghp_…]";

#[track_caller]
fn text(answer: &Answer) -> String {
    match &answer.outcome {
        Ok(output) => output.joined_text(),
        Err(failure) => panic!("{failure:?}"),
    }
}

/// Where the host keeps long answers.
fn state_folder(scene: &Scene) -> PathBuf {
    scene.root().join("toolhold/data/overflow")
}

#[test]
fn secrets_leave_by_no_channel_of_a_plugin() {
    run(async {
        let scene = Scene::new().await;
        let token = token();
        for said in [
            token.clone(),
            format!("DB_PASSWORD={token}"),
            format!("a\u{200b}b {token}"),
            format!("{{\"api_key\": \"{token}\"}}"),
        ] {
            let (answer, heard) =
                scene.attack_heard("speak_in_control_characters", json!({ "text": said })).await;
            let whole =
                format!("{:?}{:?}", answer.outcome, heard.parts.lock().expect("nobody panicked"));
            let progress = format!("{:?}", heard.progress.lock().expect("nobody panicked"));
            let log = log_of(&answer.id).join("\n");
            for (channel, told) in [("answer", &whole), ("progress", &progress), ("log", &log)] {
                assert!(!told.contains(&token[4..]), "{channel} tells it: {told}");
                assert!(told.contains("[REDACTED:"), "{channel} says nothing: {told}");
            }
            let answer = scene.attack("fail_in_control_characters", json!({ "text": said })).await;
            let whole = format!("{:?}", answer.outcome.expect_err("it fails"));
            assert!(
                !whole.contains(&token[4..]) && whole.matches("[REDACTED:").count() >= 7,
                "{whole}"
            );
        }
        // Split by a character that is removed: a reader would see it in one piece.
        let hidden = format!("{}\u{200b}{}", &token[..20], &token[20..]);
        let answer = scene.attack("speak_in_control_characters", json!({ "text": hidden })).await;
        assert!(!format!("{:?}", answer.outcome).contains(&token), "nobody gets it in one piece");
    });
}

#[test]
fn files_are_redacted_by_their_kind() {
    run(async {
        let scene = Scene::with(&[], |root| {
            let granted = root.join("granted");
            let token = token();
            fs::write(
                granted.join("main.rs"),
                format!("let password = \"hunter2hunter2\";\nlet token = \"{token}\";\n"),
            )
            .expect("written");
            fs::write(
                granted.join("app.env"),
                format!("PASSWORD=correcthorse\nTOKEN={token}\nPORT=80\n"),
            )
            .expect("written");
        })
        .await;
        let read = |path: &'static str| scene.call("read", json!({ "path": path }));
        assert!(text(&read("main.rs").await).starts_with(&format!(
            "   1\tlet password = \"hunter2hunter2\";\n   2\tlet token = \"{MARK}\";\n"
        )));
        let settings = text(&read("app.env").await);
        assert!(
            settings.starts_with("   1\tPASSWORD=[REDACTED:password cor…]\n   2\tTOKEN=[REDACTED:"),
            "{settings}"
        );
        assert!(settings.contains("   3\tPORT=80\n"), "{settings}");
        let found = text(
            &scene.call("grep", json!({ "pattern": "(?i)password|token", "context": 1 })).await,
        );
        assert!(
            found.contains("hunter2hunter2")
                && !found.contains("correcthorse")
                && !found.contains(&token()[4..]),
            "{found}"
        );
    });
}

#[test]
fn part_of_a_file_is_redacted_like_the_whole() {
    run(async {
        let body: String = (0..6)
            .map(|line| {
                format!("{line}Zx8Kq2Lw9Vn4Rt7Yb1Mc6Hd3Jf5Gs0Pa2Qe8Zx8Kq2Lw9Vn4Rt7Yb1Mc6Hd3\n")
            })
            .collect();
        let scene = Scene::with(&[], |root| {
            let granted = root.join("granted");
            fs::write(granted.join("id_ed25519"), &body).expect("written");
            fs::write(granted.join("app.env"), "PASSWORD=correcthorse\n").expect("written");
            std::os::unix::fs::symlink("app.env", granted.join("x.rs")).expect("linked");
            fs::create_dir(granted.join("config")).expect("made");
            fs::write(granted.join("config/main.rs"), "let password = \"hunter2hunter2\";\n")
                .expect("written");
        })
        .await;
        let told = [
            text(
                &scene.call("read", json!({ "path": "id_ed25519", "offset": 2, "limit": 3 })).await,
            ),
            text(&scene.call("grep", json!({ "path": "id_ed25519", "pattern": "^[^-]" })).await),
            text(&scene.call("grep", json!({ "pattern": "^[3-5]" })).await),
            text(&scene.call("grep", json!({ "path": "x.rs", "pattern": "PASS" })).await),
        ];
        for told in &told {
            assert!(
                told.contains("[REDACTED:")
                    && !told.contains("Zx8Kq2Lw9")
                    && !told.contains("horse"),
                "{told}"
            );
        }
        // A directory's name says nothing about the files in it.
        let told = text(&scene.call("grep", json!({ "path": "config", "pattern": "pass" })).await);
        assert!(told.contains("hunter2hunter2"), "{told}");
    });
}

#[test]
fn edit_redacts_like_read() {
    run(async {
        let base64 = "Zx8Kq2Lw9Vn4Rt7Yb1Mc6Hd3Jf5Gs0Pa2Qe8Zx8Kq2Lw9Vn4Rt7Yb1Mc6Hd3\n";
        let scene = Scene::with(&[], |root| {
            let body: String = (0..6).map(|line| format!("{line}{base64}")).collect();
            fs::write(root.join("granted/sym.key"), body).expect("written");
            fs::write(
                root.join("granted/s.yaml"),
                "a: 1\ntoken: correcthorse\nsession_id:\n  alphabetagamma\nb: 2\n",
            )
            .expect("written");
        })
        .await;
        let key = scene
            .call("edit", json!({ "path": "sym.key", "old_string": "2Zx8Kq2", "new_string": "xx" }))
            .await;
        let settings = scene
            .call("edit", json!({ "path": "s.yaml", "old_string": "b: 2", "new_string": "b: 3" }))
            .await;
        let failed = scene.call("edit", json!({ "path": "s.yaml", "old_string": "token: correcthorses", "new_string": "x" })).await;
        assert!(
            key.outcome.is_ok() && settings.outcome.is_ok() && failed.outcome.is_err(),
            "{key:?} {settings:?} {failed:?}"
        );
        for answer in [key, settings, failed] {
            let told = format!("{:?}", answer.outcome);
            assert!(
                !told.contains("Vn4Rt7Yb1")
                    && !told.contains("correcthorse\\n")
                    && !told.contains("alphabetagamma"),
                "{told}"
            );
            assert!(told.contains("[REDACTED:"), "{told}");
        }
    });
}

#[test]
fn cut_lines_never_show_the_beginning_of_a_secret() {
    run(async {
        let (far, near) = ("word ".repeat(394), "word ".repeat(37));
        let scene = Scene::with(&[], |root| {
            fs::write(
                root.join("granted/a.txt"),
                format!("{far}{} more\nnext\n{near}{} more\n", token(), token()),
            )
            .expect("written");
        })
        .await;
        for (tool, arguments) in [
            ("read", json!({ "path": "a.txt" })),
            ("grep", json!({ "pattern": "word" })),
            ("edit", json!({ "path": "a.txt", "old_string": "next", "new_string": "then" })),
        ] {
            let told = text(&scene.call(tool, arguments).await);
            assert!(
                told.contains("word word") && !told.contains(&token()[..8]) || told.contains(MARK),
                "{told}"
            );
            assert!(!told.contains(&token()[4..12]), "{told}");
        }
    });
}

#[test]
fn session_s_name_and_a_rule_are_recorded_without_secrets() {
    let (cli, token) = (Cli::new(), token());
    cli.configure(&format!(
        "[tools.permissions]\nread = [{{ pattern = \"**/{token}*\", action = \"deny\" }}]\n"
    ));
    cli.run(&["call", "--session", &token, "read", &format!("path={token}.txt")]).ends(3);
    let log =
        fs::read_to_string(cli.root.path().join("data/audit/audit.jsonl")).expect("it is text");
    assert!(
        log.matches(MARK).count() >= 4
            && log.contains(&format!(": {MARK}\""))
            && log.contains("\"rule\":"),
        "{log}"
    );
    assert!(!log.contains(&token[4..]), "{log}");
}

#[test]
fn tool_can_be_exempt_and_redaction_off() {
    run(async {
        for settings in [["tools.redaction.exempt=[\"echo\"]"], ["tools.redaction.enabled=false"]] {
            let scene = Scene::with(&settings, |_| {}).await;
            assert_eq!(text(&scene.call("echo", json!({ "text": token() })).await), token());
        }
        let scene = Scene::with(&["tools.redaction.exempt=[\"other\"]"], |_| {}).await;
        assert_eq!(text(&scene.call("echo", json!({ "text": token() })).await), MARK);
    });
}

#[test]
fn mark_is_never_written_over_a_secret() {
    run(async {
        let scene = Scene::with(&[], |root| {
            fs::write(root.join("granted/app.env"), format!("TOKEN={}\nPORT=80\n", token()))
                .expect("written");
            fs::write(root.join("granted/about.md"), format!("It shows {MARK} then.\n"))
                .expect("written");
        })
        .await;
        let file = |name: &str| fs::read_to_string(scene.granted.join(name)).expect("it is there");
        for mark in
            [MARK, "[REDACTED:github-token ghp_...]", "[REDACTED:token …]", "[REDACTED:anything"]
        {
            let answer = scene
                .call(
                    "write",
                    json!({ "path": "app.env", "content": format!("TOKEN={mark}\nPORT=81\n") }),
                )
                .await;
            let refused = failure(&answer, Category::InvalidParameters, Some("redacted"));
            assert!(refused.message.contains("secret"), "{refused:?}");
            let answer =
                scene.call("edit", json!({ "path": "app.env", "old_string": "PORT=80", "new_string": format!("{mark} PORT=81") })).await;
            failure(&answer, Category::InvalidParameters, Some("redacted"));
        }
        assert_eq!(
            file("app.env"),
            format!("TOKEN={}\nPORT=80\n", token()),
            "the secret is still there"
        );
        // Where the mark is ordinary text, it can be written.
        text(
            &scene
                .call("edit", json!({ "path": "about.md", "old_string": format!("shows {MARK}"), "new_string": format!("has {MARK}") }))
                .await,
        );
        assert_eq!(file("about.md"), format!("It has {MARK} then.\n"));
        // The content of another file doesn't count.
        let answer = scene
            .call("write", json!({ "path": "app.env", "content": format!("{MARK} about.md") }))
            .await;
        failure(&answer, Category::InvalidParameters, Some("redacted"));
    });
}

/// Lines that all differ, with this number of characters.
fn long(lines: usize) -> String {
    (0..lines).map(|line| format!("line {line:06} größe\n")).collect()
}

/// Everything that `read_overflow` returns of an answer.
async fn rest(host: &Host, id: &str) -> String {
    let mut whole = String::new();
    loop {
        let offset = whole.chars().count();
        let answer = host
            .call(Request::new(
                "read_overflow",
                json!({ "id": id, "offset": offset, "limit": 7000 }),
            ))
            .await;
        let output = answer.outcome.expect("it is there");
        let shown = output.joined_text();
        let (part, _) = shown.rsplit_once("[Characters ").expect("it says what it shows");
        let (end, total) = (
            output.structured.as_ref().map(|shown| shown["end"].clone()),
            output.structured.map(|shown| shown["total"].clone()),
        );
        let taken: String = part
            .chars()
            .take(end.as_ref().and_then(Value::as_u64).expect("a number") as usize - offset)
            .collect();
        whole.push_str(&taken);
        if end == total {
            return whole;
        }
    }
}

#[test]
fn long_answer_is_cut_and_can_be_read_in_full() {
    run(async {
        let scene = Scene::new().await;
        let said = format!("{}{}\n{}", long(1000), token(), long(1000));
        let answer = scene.call("echo", json!({ "text": said })).await;
        assert!(answer.truncated);
        let shown = text(&answer);
        assert!(
            shown.chars().count() < 30_400
                && shown.starts_with("line 000000 größe\n")
                && shown.ends_with("line 000999 größe\n"),
            "{shown}"
        );
        let output = answer.outcome.expect("it says");
        let told = &output.meta.as_ref().expect("it tells programs")["toolhold:overflow"];
        let id = told["id"].as_str().expect("it is kept");
        let notice = format!(
            "[{} of {} characters are left out here. To see more, call read_overflow with id \"{id}\" and offset {}.]\n",
            told["left_out"], told["total"], told["offset"]
        );
        assert!(shown.contains(&notice), "{shown}");
        let whole = rest(&scene.host, id).await;
        assert_eq!(whole, said.replace(&token(), MARK), "the whole is what was redacted");
        let (head, tail) = shown.split_once(&notice).expect("it stands between");
        assert!(whole.starts_with(head) && whole.ends_with(tail) && head.ends_with('\n'));
        for entry in fs::read_dir(state_folder(&scene)).expect("it is there").flatten() {
            assert_eq!(entry.metadata().expect("it is there").mode() & 0o777, 0o600);
            assert!(
                !fs::read_to_string(entry.path()).expect("it is text").contains(&token()),
                "no secret lies on the disk"
            );
        }
        assert_eq!(
            fs::metadata(state_folder(&scene)).expect("it is there").permissions().mode() & 0o777,
            0o700
        );
        // A person gets the whole answer, without the secret.
        let person = scene
            .host
            .call(Request {
                audience: Audience::Person,
                ..Request::new("echo", json!({ "text": said }))
            })
            .await;
        assert!(!person.truncated);
        assert_eq!(text(&person), whole);
    });
}

#[test]
fn overflow_belongs_to_one_session() {
    run(async {
        let scene = Scene::new().await;
        let mine = Session::new("mine");
        let in_session = |session: &Session, tool: &str, arguments: Value| {
            scene
                .host
                .call(Request { session: Some(session.clone()), ..Request::new(tool, arguments) })
        };
        let answer = in_session(&mine, "echo", json!({ "text": long(3000) })).await;
        let id =
            answer.outcome.expect("it says").meta.expect("it tells")["toolhold:overflow"]["id"]
                .as_str()
                .expect("it is kept")
                .to_owned();
        assert!(
            text(&in_session(&mine, "read_overflow", json!({ "id": id, "limit": 11 })).await)
                .starts_with("line 000000\n[Characters 0-11 of ")
        );
        let file = fs::read_dir(state_folder(&scene))
            .expect("it is there")
            .flatten()
            .next()
            .expect("one was kept")
            .file_name();
        let file = file.to_string_lossy().into_owned();
        for (session, id) in [
            (Session::new("other"), id.clone()),
            (Session::new("mine/../mine"), id.clone()),
            (mine.clone(), file.clone()),
            (mine.clone(), format!("../overflow/{file}")),
            (mine.clone(), "../../config/toolhold.toml".to_owned()),
            (mine.clone(), scene.secret_file.display().to_string()),
            (mine.clone(), format!("{id}\u{0}")),
            (mine.clone(), String::new()),
        ] {
            let answer = in_session(&session, "read_overflow", json!({ "id": id })).await;
            failure(&answer, Category::PermanentFailure, Some("not-found"));
            scene.assert_safe(&answer);
        }
        let past = text(
            &in_session(&mine, "read_overflow", json!({ "id": id, "offset": u64::MAX })).await,
        );
        assert!(past.starts_with("[There is no character "), "{past}");
    });
}

#[test]
fn kept_answers_never_fill_the_disk() {
    run(async {
        let scene =
            Scene::with(&["tools.overflow.max_mib=1", "tools.limits.result_mib=8"], |_| {}).await;
        let said = long(20_000);
        for _ in 0..10 {
            let answer = scene.call("echo", json!({ "text": said })).await;
            assert!(answer.truncated, "{:?} {:?}", answer.steps, answer.outcome.map(drop));
            let sizes = fs::read_dir(state_folder(&scene))
                .expect("it is there")
                .flatten()
                .map(|entry| entry.metadata().expect("it is there").len());
            assert!(sizes.sum::<u64>() <= 1 << 20);
        }
    });
}

#[test]
fn overflow_that_cannot_be_stored_is_cut_with_a_notice() {
    run(async {
        let scene = Scene::with(&[], |root| {
            // Others can write there, so it isn't trusted.
            fs::create_dir_all(root.join("toolhold/data/overflow")).expect("a folder is made");
            fs::set_permissions(
                root.join("toolhold/data/overflow"),
                fs::Permissions::from_mode(0o777),
            )
            .expect("its mode is set");
        })
        .await;
        let answer = scene.call("echo", json!({ "text": long(3000) })).await;
        let shown = text(&answer);
        assert!(
            answer.truncated
                && shown.contains("Storing the output failed: ")
                && shown.chars().count() < 31_000,
            "{shown}"
        );
        assert_eq!(fs::read_dir(state_folder(&scene)).expect("it is there").count(), 0);
    });
}

#[test]
fn zero_cuts_nothing() {
    run(async {
        let scene = Scene::with(&["tools.overflow.threshold=0"], |_| {}).await;
        let said = long(3000);
        assert_eq!(text(&scene.call("echo", json!({ "text": said })).await), said);
        failure(
            &scene.call("read_overflow", json!({ "id": "x" })).await,
            Category::ToolNotFound,
            None,
        );
    });
}
