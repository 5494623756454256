//! Approving at the terminal, on the command line, and from another terminal with `toolhold
//! approvals`.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{Cli, Ended};

pub(crate) const WRITE: [&str; 4] = ["call", "write", "path=notes.txt", "content=new"];

pub(crate) fn notes(cli: &Cli) -> String {
    fs::read_to_string(cli.work().join("notes.txt")).expect("it is there")
}

/// The open questions.
pub(crate) fn waiting(cli: &Cli) -> Vec<Value> {
    cli.run(&["approvals", "--json"]).ends(0).json().as_array().expect("it is a list").clone()
}

/// The ID of the only open question.
#[track_caller]
pub(crate) fn only_question(cli: &Cli) -> String {
    let waiting = waiting(cli);
    let [question] = &waiting[..] else { panic!("{waiting:?}") };
    question["id"].as_str().expect("it has a name").to_owned()
}

fn questions(cli: &Cli) -> Vec<PathBuf> {
    let entries = fs::read_dir(cli.root.path().join("data/questions")).expect("it is there");
    let paths = entries.map(|entry| entry.expect("it is there").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect()
}

#[test]
fn call_without_a_terminal_says_how_to_approve_it() {
    let cli = Cli::asking();
    let refused = cli.run(&WRITE).ends(3);
    let id = only_question(&cli);
    for expected in [
        "confirmation_required",
        &format!("toolhold approvals allow {id}"),
        "--yes",
        "tools.permissions.write",
    ] {
        assert!(refused.stderr.contains(expected), "{expected} is missing in {}", refused.stderr);
    }
    assert_eq!(notes(&cli), "first\nsecond\n");
    let answer = cli.run(&[&WRITE[..], &["--json"]].concat()).ends(3).json();
    assert_eq!(answer["failure"]["category"], json!("confirmation_required"));
    assert_eq!(only_question(&cli), id, "the same call is the same question");
    assert_eq!(
        fs::metadata(&questions(&cli)[0]).expect("it is there").permissions().mode() & 0o777,
        0o600
    );
}

#[test]
fn yes_flag_approves_one_call_unless_forbidden() {
    let cli = Cli::asking();
    cli.run(&[&WRITE[..], &["--yes"]].concat()).ends(0);
    assert_eq!(notes(&cli), "new");
    let hint = "repeat the call with `--yes`";
    let unasked = cli.run(&WRITE).ends(3);
    assert!(unasked.stderr.contains(hint), "{}", unasked.stderr);
    cli.run(&["call", "write", "path=../secret.txt", "content=x", "--yes"]).ends(3);
    assert_eq!(
        fs::read_to_string(cli.root.path().join("secret.txt")).expect("it is there"),
        "the secret"
    );

    cli.configure("[approvals]\nyes_flag = false\n");
    let refused = cli.run(&["call", "write", "path=notes.txt", "content=x", "--yes"]).ends(3);
    assert!(
        refused.stderr.contains("yes_flag = false")
            && refused.stderr.contains("toolhold.toml, line 2"),
        "{}",
        refused.stderr
    );
    let unasked = cli.run(&WRITE).ends(3);
    assert!(!unasked.stderr.contains(hint), "{}", unasked.stderr);
    assert_eq!(notes(&cli), "new");
}

#[test]
fn approval_from_another_terminal_serves_one_identical_call() {
    let cli = Cli::asking();
    cli.run(&WRITE).ends(3);
    let id = only_question(&cli);
    let shown = cli.run(&["approvals"]).ends(0).stdout;
    for expected in [
        &*id,
        "write needs approval",
        "notes.txt",
        "-first",
        "+new",
        "autonomy = \"ask\"",
        "toolhold approvals allow ID",
    ] {
        assert!(shown.contains(expected), "{expected} is missing in {shown}");
    }
    cli.run(&["approvals", "allow", &id[..6]]).ends(0);
    assert!(waiting(&cli).is_empty());

    // It isn't valid for other arguments or in another session.
    cli.run(&["call", "write", "path=notes.txt", "content=other"]).ends(3);
    cli.run(&["call", "write", "path=other.txt", "content=new"]).ends(3);
    cli.run(&[&WRITE[..], &["--session", "another"]].concat()).ends(3);
    assert_eq!(notes(&cli), "first\nsecond\n");

    cli.run(&WRITE).ends(0);
    assert_eq!(notes(&cli), "new");
    cli.run(&WRITE).ends(3);
    cli.run(&["approvals", "allow", "000000000000"]).ends(2);
}

#[test]
fn approval_of_a_change_serves_no_other_change() {
    let cli = Cli::asking();
    let edit =
        ["call", "edit", "path=notes.txt", "old_string=first", "new_string=1", "replace_all=true"];
    for (scope, end) in [(&[][..], "once\n"), (&["--session"], "session\n")] {
        fs::write(cli.work().join("notes.txt"), "first\nsecond\n").expect("a file is written");
        cli.run(&edit).ends(3);
        cli.run(&[&["approvals", "allow", &only_question(&cli)], scope].concat()).ends(0);
        let more = format!("first\nsecond\nfirst\n{end}");
        fs::write(cli.work().join("notes.txt"), &more).expect("a file is written");
        cli.run(&edit).ends(3);
        assert_eq!(notes(&cli), more, "nobody saw that");
        cli.run(&["approvals", "deny", &only_question(&cli)]).ends(0);

        fs::write(cli.work().join("notes.txt"), "first\nsecond\n").expect("a file is written");
        cli.run(&edit).ends(0);
        assert_eq!(notes(&cli), "1\nsecond\n");
        // The approval for the session is used up, and it isn't valid for another change.
        fs::write(cli.work().join("notes.txt"), format!("{more}first\n"))
            .expect("a file is written");
        cli.run(&edit).ends(3);
        assert_eq!(notes(&cli), format!("{more}first\n"));
        cli.run(&["approvals", "deny", &only_question(&cli)]).ends(0);
    }
}

#[test]
fn one_of_several_concurrent_calls_takes_the_approval() {
    let cli = Cli::asking();
    cli.run(&WRITE).ends(3);
    cli.run(&["approvals", "allow", &only_question(&cli)]).ends(0);
    let call = || {
        cli.command(&WRITE)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("toolhold starts")
    };
    let calls: Vec<_> = (0..6).map(|_| call()).collect();
    let ended: Vec<i32> = calls
        .into_iter()
        .map(|call| Ended::from_output(call.wait_with_output().expect("it ends")).code)
        .collect();
    assert_eq!(ended.iter().filter(|code| **code == 0).count(), 1, "{ended:?}");
    assert!(ended.iter().all(|code| [0, 3].contains(code)), "{ended:?}");
}

#[test]
fn session_approval_serves_its_session_until_it_expires() {
    let cli = Cli::asking();
    let call = [&WRITE[..], &["--session", "mine"]].concat();
    cli.run(&call).ends(3);
    cli.run(&["approvals", "allow", &only_question(&cli), "--session"]).ends(0);
    for _ in 0..3 {
        fs::write(cli.work().join("notes.txt"), "first\nsecond\n").expect("a file is written");
        cli.run(&call).ends(0);
        assert_eq!(notes(&cli), "new");
    }
    // The change that it would make now was never shown.
    fs::write(cli.work().join("notes.txt"), "precious").expect("a file is written");
    cli.run(&call).ends(3);
    assert_eq!(notes(&cli), "precious");
    cli.run(&WRITE).ends(3);
}

#[test]
fn denial_from_another_terminal_reaches_the_next_identical_call() {
    let cli = Cli::asking();
    cli.run(&WRITE).ends(3);
    cli.run(&["approvals", "deny", &only_question(&cli)]).ends(0);
    let refused = cli.run(&[&WRITE[..], &["--json"]].concat()).ends(3).json();
    assert_eq!(
        (&refused["failure"]["category"], &refused["failure"]["code"]),
        (&json!("policy_blocked"), &json!("denied_by_user"))
    );
    assert_eq!(notes(&cli), "first\nsecond\n");
}

#[test]
fn call_can_wait_for_the_answer() {
    let cli = Cli::asking();
    cli.configure("[approvals]\nwait_secs = 600\n");
    let call = |line: &[&str]| {
        cli.command(line)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("toolhold starts")
    };
    let answered = |answer: &str| {
        let call = call(&WRITE);
        // Each check is a process of its own, which takes time.
        while waiting(&cli).is_empty() {}
        cli.run(&["approvals", answer, &only_question(&cli)]).ends(0);
        Ended::from_output(call.wait_with_output().expect("it ends"))
    };
    answered("deny").ends(3);
    assert_eq!(notes(&cli), "first\nsecond\n");
    answered("allow").ends(0);
    assert_eq!(notes(&cli), "new");
    assert!(questions(&cli).is_empty(), "what was taken is gone");

    // A call no longer waits if its question was answered by a repeated call.
    fs::write(cli.work().join("notes.txt"), "old").expect("a file is written");
    let waits = call(&WRITE);
    while waiting(&cli).is_empty() {}
    cli.run(&[&WRITE[..], &["--yes"]].concat()).ends(0);
    let ended = Ended::from_output(waits.wait_with_output().expect("it ends")).ends(3);
    assert!(
        ended.stderr.contains("no longer waits for approval: another call used the answer"),
        "{}",
        ended.stderr
    );
}

#[test]
fn question_about_a_changed_file_is_not_asked() {
    let cli = Cli::asking();
    cli.run(&WRITE).ends(3);
    let id = only_question(&cli);
    for changed in ["other", ""] {
        fs::write(cli.work().join("notes.txt"), changed).expect("a file is written");
        assert!(waiting(&cli).is_empty());
        cli.run(&["approvals", "allow", &id]).ends(2);
    }
    // In its old state, the question is about what the call would do.
    fs::write(cli.work().join("notes.txt"), "first\nsecond\n").expect("a file is written");
    assert_eq!(only_question(&cli), id);
    // The same call now asks about the file's new state.
    fs::write(cli.work().join("notes.txt"), "other").expect("a file is written");
    cli.run(&WRITE).ends(3);
    assert!(only_question(&cli) != id && questions(&cli).len() == 1);
    cli.run(&["call", "write", "path=other.txt", "content=new"]).ends(3);
    assert_eq!(waiting(&cli).len(), 2);
}

#[test]
fn questions_that_others_could_have_written_approve_nothing() {
    let cli = Cli::asking();
    cli.run(&WRITE).ends(3);
    cli.run(&["approvals", "allow", &only_question(&cli)]).ends(0);
    let [path] = &questions(&cli)[..] else { panic!("there is one") };
    let good = fs::read_to_string(path).expect("it is there");
    let refused = || {
        let refused = cli.run(&WRITE).ends(3);
        assert!(refused.stderr.contains("confirmation_required"), "{}", refused.stderr);
        assert_eq!(notes(&cli), "first\nsecond\n");
    };

    fs::set_permissions(path, Permissions::from_mode(0o622)).expect("its mode is set");
    refused();
    let noted = cli.run(&["approvals"]).ends(0);
    assert!(noted.stderr.contains("chmod"), "{}", noted.stderr);

    let outside = cli.root.path().join("planted.json");
    fs::write(&outside, &good).expect("a file is written");
    fs::remove_file(path).and_then(|()| symlink(&outside, path)).expect("a link is made");
    refused();
    fs::remove_file(path).expect("it is removed");

    // An answer to another question, under this question's name.
    let mut other: Value = serde_json::from_str(&good).expect("it is JSON");
    other["question"]["fingerprint"] = json!("0".repeat(64));
    fs::write(path, other.to_string())
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o600)))
        .expect("it is written");
    refused();
    let kept: Value =
        serde_json::from_slice(&fs::read(path).expect("it is there")).expect("it is JSON");
    assert_eq!(kept, other, "the question of another call stays");

    // An expired question.
    let mut ended: Value = serde_json::from_str(&good).expect("it is JSON");
    ended["until"] = json!(1);
    fs::write(path, ended.to_string()).expect("it is written");
    refused();

    let folder = path.parent().expect("it has a folder");
    fs::write(path, &good)
        .and_then(|()| fs::set_permissions(folder, Permissions::from_mode(0o777)))
        .expect("its mode is set");
    refused();
    fs::set_permissions(folder, Permissions::from_mode(0o700)).expect("its mode is set");
    cli.run(&WRITE).ends(0);
    assert_eq!(notes(&cli), "new");
}

#[test]
fn at_most_64_questions_wait() {
    let cli = Cli::asking();
    cli.run(&WRITE).ends(3);
    let [path] = &questions(&cli)[..] else { panic!("there is one") };
    let good = fs::read_to_string(path).expect("it is there");
    for number in 0..64 {
        let copy = path.with_file_name(format!("{number:012x}.json"));
        fs::write(&copy, &good)
            .and_then(|()| fs::set_permissions(&copy, Permissions::from_mode(0o600)))
            .expect("it is written");
    }
    let refused = cli.run(&["call", "write", "path=notes.txt", "content=more"]).ends(3);
    assert!(
        refused.stderr.contains("too many calls wait for approval; the limit is 64"),
        "{}",
        refused.stderr
    );
    assert_eq!(questions(&cli).len(), 65);
}

#[test]
fn answered_and_expired_questions_free_their_places() {
    let cli = Cli::asking();
    let ask = |content: &str| {
        cli.run(&["call", "write", "path=notes.txt", &format!("content={content}")]).ends(3).stderr
    };
    let fill = |letter: char| {
        (0..16).for_each(|number| {
            assert!(ask(&format!("{letter}{number}")).contains("then repeat the call"));
        });
    };
    fill('a');
    let refused = ask("more");
    assert!(
        refused.contains("too many calls of this session wait for approval; the limit is 16")
            && refused.contains("`toolhold approvals`"),
        "{refused}"
    );
    assert!(!refused.contains("configuration:"), "nothing is wrong with it: {refused}");
    for question in waiting(&cli) {
        cli.run(&["approvals", "deny", question["id"].as_str().expect("it has a name")]).ends(0);
    }
    fill('b');
    assert!(
        ask("more").contains("too many calls of this session wait for approval; the limit is 16")
    );
    // They can't be answered any more.
    fs::write(cli.work().join("notes.txt"), "other").expect("a file is written");
    assert!(waiting(&cli).is_empty());
    ask("more");
    only_question(&cli);
    // Answers are still there.
    fs::write(cli.work().join("notes.txt"), "first\nsecond\n").expect("a file is written");
    assert!(ask("a0").contains("denied_by_user"));
}

#[test]
fn always_ends_when_its_rule_is_removed() {
    let cli = Cli::asking();
    cli.run(&WRITE).ends(3);
    cli.run(&["approvals", "allow", &only_question(&cli), "--always"]).ends(0);
    assert!(questions(&cli).is_empty(), "the rule counts, and nobody waits for an answer");
    cli.configure("");
    cli.run(&WRITE).ends(3);
    assert_eq!(notes(&cli), "first\nsecond\n", "the rule is gone");
    cli.run(&["approvals", "deny", &only_question(&cli)]).ends(0);
    cli.run(&WRITE).ends(3);

    // The waiting call gets it.
    cli.configure("[approvals]\nwait_secs = 600\n");
    let call = cli
        .command(&WRITE)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("toolhold starts");
    while waiting(&cli).is_empty() {}
    cli.run(&["approvals", "allow", &only_question(&cli), "--always"]).ends(0);
    Ended::from_output(call.wait_with_output().expect("it ends")).ends(0);
    assert_eq!(notes(&cli), "new");
}

#[test]
fn prompt_shows_the_whole_action_and_takes_only_yes() {
    let cli = Cli::asking();
    let Some(denied) = cli.typed(&WRITE, "n\n") else { return };
    let denied = denied.ends(3);
    for expected in [
        "write needs approval",
        "notes.txt",
        "-first",
        "+new",
        "why: autonomy = \"ask\"",
        "denied_by_user",
    ] {
        assert!(denied.stdout.contains(expected), "{expected} is missing in {}", denied.stdout);
    }
    for input in ["\n", "perhaps\nn\n", "yes please\n\n"] {
        cli.typed(&WRITE, input).expect("there is `script`").ends(3);
        assert_eq!(notes(&cli), "first\nsecond\n", "{input:?}");
    }
    cli.typed(&WRITE, "y\n").expect("there is `script`").ends(0);
    assert_eq!(notes(&cli), "new");
    cli.typed(&WRITE, "n\n").expect("there is `script`").ends(3);

    cli.typed(&WRITE, "session\n").expect("there is `script`").ends(0);
    // Nobody is asked any more, with or without a terminal.
    cli.run(&WRITE).ends(0);
    let unasked = cli.typed(&WRITE, "").expect("there is `script`").ends(0);
    assert!(!unasked.stdout.contains("needs approval"), "{}", unasked.stdout);
}

#[test]
fn keys_typed_before_the_prompt_are_dropped() {
    let cli = Cli::asking();
    let pasted = "y\n".repeat(10_000);
    for ahead in ["y\n", "session\n", "always\n", "y\ny\ny\n", "y", &pasted] {
        let Some(denied) = cli.typed_ahead(&WRITE, ahead, "n\n") else { return };
        denied.ends(3);
        assert_eq!(notes(&cli), "first\nsecond\n", "{ahead:?}");
    }
    cli.typed_ahead(&WRITE, "n\n", "y\n").expect("there is `script`").ends(0);
    assert_eq!(notes(&cli), "new");
}

#[test]
fn question_about_a_file_behind_a_link_is_asked_like_any_other() {
    let cli = Cli::asking();
    std::os::unix::fs::symlink("notes.txt", cli.work().join("link.txt")).expect("a link is made");
    let write = ["call", "write", "path=link.txt", "content=new"];
    cli.run(&write).ends(3);
    cli.run(&["approvals", "allow", &only_question(&cli)]).ends(0);
    cli.run(&write).ends(0);
    assert_eq!(notes(&cli), "new");
}

#[test]
fn question_answered_at_the_prompt_leaves_the_queue() {
    let cli = Cli::asking();
    let left = |call: &[&str]| {
        cli.run(call).ends(3);
        only_question(&cli)
    };
    left(&WRITE);
    cli.run(&[&WRITE[..], &["--yes"]].concat()).ends(0);
    assert!(questions(&cli).is_empty());

    // A stored approval is used up too.
    fs::write(cli.work().join("notes.txt"), "old").expect("a file is written");
    cli.run(&["approvals", "allow", &left(&WRITE)]).ends(0);
    cli.run(&[&WRITE[..], &["--yes"]].concat()).ends(0);
    fs::write(cli.work().join("notes.txt"), "old").expect("a file is written");
    let id = left(&WRITE);
    assert_eq!(notes(&cli), "old");

    // Another call's stays.
    cli.run(&["call", "write", "path=other.txt", "content=x", "--yes"]).ends(0);
    assert_eq!(only_question(&cli), id);

    for (answer, code) in [("n\n", 3), ("y\n", 0), ("session\n", 0)] {
        let id = left(&WRITE);
        let Some(ended) = cli.typed(&WRITE, answer) else { return };
        ended.ends(code);
        assert!(questions(&cli).is_empty(), "{answer:?}");
        cli.run(&["approvals", "allow", &id]).ends(2);
    }
}

#[test]
fn arguments_cannot_steer_or_hide_the_prompt() {
    let cli = Cli::asking();
    let hostile = "one\n\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}gnp.exe\rAllow it? y\n\u{9b}31m\u{200b}end\u{e0041}";
    let arguments = json!({ "path": "notes.txt", "content": hostile }).to_string();
    // Through a file: `typed` passes its line to a shell.
    fs::write(cli.work().join("arguments.json"), &arguments).expect("a file is written");
    let line = ["call", "write", arguments.as_str()];
    if let Some(shown) = cli.typed(&line, "n\n") {
        // `typed` checks the output for escapes.
        let shown = shown.ends(3).stdout;
        for marked in [
            "\\u{1b}[2J",
            "\\u{7}",
            "\\u{202e}gnp.exe",
            "\\u{d}+Allow it? y",
            "\\u{9b}31m",
            "\\u{200b}end\\u{e0041}",
        ] {
            assert!(shown.contains(marked), "{marked} is missing in {shown}");
        }
        assert!(shown.lines().all(|line| !line.starts_with("Allow it? y")), "{shown}");
    }
    cli.run(&line).ends(3);
    let listed = cli.run(&["approvals"]).ends(0).stdout;
    assert!(
        listed.contains("\\u{1b}[2J") && !listed.contains(['\u{202e}', '\u{9b}', '\u{200b}']),
        "{listed}"
    );
    assert_eq!(notes(&cli), "first\nsecond\n");
}

#[test]
fn action_too_long_for_a_prompt_is_refused() {
    let cli = Cli::asking();
    let long: String = (0..20_000).map(|line| format!("line {line}\n")).collect();
    fs::write(cli.work().join("long.txt"), &long).expect("a file is written");
    let arguments = json!({ "path": "notes.txt", "content": long }).to_string();
    fs::write(cli.work().join("arguments.json"), &arguments).expect("a file is written");
    let call = |more: &[&str]| {
        let stdin = fs::File::open(cli.work().join("arguments.json")).expect("it is there");
        Ended::from_output(
            cli.command(&[&["call", "write", "-"], more].concat())
                .stdin(stdin)
                .output()
                .expect("toolhold starts"),
        )
    };
    let refused = call(&[]).ends(3);
    assert!(
        refused.stderr.contains("the limit is 64 KiB") && refused.stderr.contains("--yes"),
        "{}",
        refused.stderr
    );
    assert!(waiting(&cli).is_empty());
    call(&["--yes"]).ends(0);
    assert_eq!(notes(&cli), long);

    // A small change of a long file is a short question.
    let arguments =
        json!({ "path": "notes.txt", "content": long.replace("line 777\n", "line sevens\n") })
            .to_string();
    fs::write(cli.work().join("arguments.json"), &arguments).expect("a file is written");
    call(&[]).ends(3);
    let listed = cli.run(&["approvals"]).ends(0).stdout;
    assert!(
        listed.contains("-line 777\n") && listed.contains("+line sevens\n") && listed.len() < 2000,
        "{listed}"
    );
}
