//! `toolhold policy`: what would happen to a call, and what happened to one.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Cli, Ended};

/// What each gate says, by its name.
fn gate_answer(found: &Value, gate: &str) -> Value {
    let gates = found["gates"].as_array().expect("a list");
    gates
        .iter()
        .find(|said| said["gate"] == json!(gate))
        .unwrap_or_else(|| panic!("{gate} in {found}"))["verdict"]
        .clone()
}

/// Every file below a folder, with its bytes.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().expect("it has a type").is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push((
                entry.path().display().to_string(),
                fs::read(entry.path()).expect("it is readable"),
            ));
        }
    }
    found.sort();
    found
}

#[test]
fn commands_that_a_tool_chooses_are_said_to_be_decided_on_later() {
    let cli = Cli::new();
    let check = |flag: &str| {
        let line = ["--set", flag, "policy", "check", "diagnostics"];
        cli.run(&line).ends(0).stdout.replace('\n', " ")
    };
    for (autonomy, said) in [
        (
            "ask",
            "like a call of `bash`. The command needs approval unless a permission decides, by autonomy = \"ask\" (--set",
        ),
        ("read-only", "like a call of `bash` and denied, by autonomy = \"read-only\" (--set"),
        ("sandboxed", "like a call of `bash`. "),
        ("full", "like a call of `bash`. "),
    ] {
        let text = check(&format!("tools.autonomy={autonomy}"));
        assert!(text.starts_with("allow: this call of `diagnostics` would begin."), "{text}");
        assert!(text.contains(said), "{text}");
        assert!(!text.contains("leave out"), "the autonomy isn't what allows it: {text}");
        let found = cli.run(&[
            "--set",
            &format!("tools.autonomy={autonomy}"),
            "policy",
            "check",
            "diagnostics",
            "--json",
        ]);
        assert!(found.ends(0).json()["open"].is_string());
    }
    let allow = "tools.permissions.bash=[{ pattern = \"*\", action = \"allow\" }]";
    assert!(check(allow).contains("like a call of `bash`. "));
    let off = ["--set", "tools.shell.enabled=false", "policy", "check", "diagnostics"];
    let off = cli.run(&off).ends(3).stdout;
    assert!(off.starts_with("deny: ") && !off.contains("Each command"), "{off}");
    let reads = cli.run(&["policy", "check", "search_code", "query=x"]).ends(0).stdout;
    assert!(reads.starts_with("allow: this call of `search_code` would run."), "{reads}");
}

#[test]
fn policy_check_shows_the_verdict_and_runs_nothing() {
    let cli = Cli::asking();
    let config = "[tools]\nmax_tool_calls_per_session = 5\n[[tools.permissions.write]]\npattern = \"*.lock\"\naction = \"deny\"\n";
    cli.configure(config);
    // A session with state, so that there is something to change.
    cli.run(&["call", "read", "path=notes.txt"]).ends(0);
    let before = (files(&cli.root.path().join("data")), files(&cli.work()));
    let check = |line: &[&str], code: i32| {
        let found = cli.run(&[&["policy", "check"], line, &["--json"]].concat()).ends(code);
        assert_eq!(found.stderr, "", "{line:?}");
        found.json()
    };
    let reads = check(&["read", "path=notes.txt"], 0);
    assert_eq!(
        (&reads["verdict"], &reads["runs"], &reads["tool"]),
        (&json!("allow"), &json!(true), &json!("read"))
    );
    assert_eq!(reads["subjects"][0]["text"], json!(cli.work().join("notes.txt")));
    let writes = check(&["write", "path=new.txt", "content=x"], 3);
    assert_eq!(
        (&writes["verdict"], &writes["decision"]["gate"]),
        (&json!("ask"), &json!("autonomy"))
    );
    let denied = check(&["file_write", "path=Cargo.lock", "content=x"], 3);
    assert_eq!((&denied["verdict"], &denied["tool"]), (&json!("deny"), &json!("write")));
    assert_eq!(denied["decision"]["rule"], json!("pattern = \"*.lock\", action = \"deny\""));
    let place = denied["decision"]["place"].as_str().expect("a place").to_owned();
    assert!(
        place.contains("tools.permissions.write") && place.contains("toolhold.toml, line 3"),
        "{place}"
    );
    // What can't be checked because of a refusal isn't guessed.
    let outside = check(&["read", "path=../secret.txt"], 3);
    assert_eq!(
        (
            gate_answer(&outside, "grants"),
            gate_answer(&outside, "permissions"),
            gate_answer(&outside, "switches")
        ),
        (json!("deny"), json!("unknown"), Value::Null)
    );
    assert!(!outside.to_string().contains("the secret"));
    let spent = cli
        .run(&[
            "--set",
            "tools.max_tool_calls_per_session=1",
            "policy",
            "check",
            "read",
            "path=notes.txt",
            "--json",
        ])
        .ends(3)
        .json();
    assert_eq!(spent["decision"]["gate"], json!("quota"));

    for _ in 0..5 {
        check(&["read", "path=notes.txt"], 0);
    }
    assert_eq!(
        (files(&cli.root.path().join("data")), files(&cli.work())),
        before,
        "nothing was made, counted or recorded"
    );
}

#[test]
fn impossible_change_asks_nobody() {
    let cli = Cli::asking();
    let edit = ["edit", "path=notes.txt", "old_string=third", "new_string=x"];
    let failed = cli.run(&[&["call", "--json"], &edit[..]].concat()).ends(1).json();
    assert_eq!(failed["failure"]["code"], json!("no-match"));
    assert_eq!(cli.run(&["approvals", "--json"]).ends(0).json(), json!([]), "no question was left");
    let check = |code: i32| {
        cli.run(&[&["policy", "check", "--json"], &edit[..]].concat()).ends(code).json()
    };
    let checked = check(1);
    assert_eq!(
        (&checked["failure"]["code"], &checked["runs"], &checked["verdict"]),
        (&json!("no-match"), &json!(false), &Value::Null)
    );
    // Lines that end in CRLF match as in the tool, so the person is asked.
    fs::write(cli.work().join("returns.txt"), "a\r\nb\r\n").expect("a file is written");
    let call = "{\"path\": \"returns.txt\", \"old_string\": \"a\\nb\", \"new_string\": \"x\"}";
    cli.run(&["call", "edit", call]).ends(3);
    // A caller that may not read the file doesn't learn its text.
    cli.configure("[[tools.permissions.read]]\npattern = \"*\"\naction = \"deny\"\n");
    let asked = cli.run(&[&["call", "--json"], &edit[..]].concat()).ends(3).json();
    assert_eq!(asked["failure"]["category"], json!("confirmation_required"));
    assert_eq!(check(3)["verdict"], json!("ask"));
}

#[test]
fn redaction_mark_is_refused_by_a_check_too() {
    let cli = Cli::asking();
    let secret = format!("ghp_{}", "a1B2c3D4e5F6".repeat(3));
    fs::write(cli.work().join("token.txt"), &secret).expect("a file is written");
    let shown = cli.run(&["call", "read", "path=token.txt", "--json"]).ends(0).json();
    let shown = shown["output"]["content"].to_string();
    let mark = &shown[shown.find("[REDACTED").expect(&shown)..];
    let content = format!("content={}", &mark[..=mark.find(']').expect("it ends")]);
    for command in [&["call"][..], &["policy", "check"]] {
        let ended = cli.run(&[command, &["write", "path=new.txt", &content]].concat()).ends(2);
        assert!(
            ended.stderr.contains("invalid_parameters/redacted"),
            "{command:?}: {}",
            ended.stderr
        );
    }
}

#[test]
fn invalid_call_reaches_no_gate() {
    let cli = Cli::asking();
    let wrong = cli.run(&["policy", "check", "no_such_tool"]).ends(2);
    assert!(wrong.stderr.contains("tool_not_found") && wrong.stdout.is_empty(), "{}", wrong.stderr);
    let wrong = cli.run(&["policy", "check", "read", "{}", "--json"]).ends(2).json();
    assert_eq!(
        (&wrong["verdict"], &wrong["failure"]["category"]),
        (&Value::Null, &json!("invalid_parameters"))
    );
}

#[test]
fn policy_check_output_cannot_steer_the_terminal() {
    let cli = Cli::asking();
    // `run` looks for escapes in what is printed.
    let arguments = "{\"path\": \"\\u001b[2J\\n\\u202e.txt\", \"content\": \"\\u001b[31m\"}";
    let shown = cli.run(&["policy", "check", "write", arguments]).ends(3);
    assert!(
        !shown.stdout.contains('\u{202e}') && shown.stdout.contains("autonomy"),
        "{:?}",
        shown.stdout
    );
    let huge = format!("path={}", "x/".repeat(1500));
    let shown = cli.run(&["policy", "check", "write", &huge, "content=x"]);
    assert!(shown.stdout.len() < 10_000, "{}", shown.stdout.len());
}

#[test]
fn policy_check_shows_a_session_approval() {
    let cli = Cli::asking();
    let line = ["write", "path=new.txt", "content=x"];
    let refused = cli.run(&[&["call"], &line[..], &["--json"]].concat()).ends(3).json();
    assert_eq!(refused["failure"]["category"], json!("confirmation_required"));
    let waiting = cli.run(&["approvals", "--json"]).ends(0).json();
    let id = waiting[0]["id"].as_str().expect("a question waits").to_owned();
    cli.run(&["approvals", "allow", &id, "--session"]).ends(0);
    cli.run(&[&["call"], &line[..]].concat()).ends(0);
    let found = cli.run(&[&["policy", "check"], &line[..], &["--json"]].concat()).ends(0).json();
    assert_eq!(
        (&found["verdict"], &found["runs"], &found["approved_by"]),
        (&json!("ask"), &json!(true), &json!("toolhold approvals"))
    );
    // Other arguments are another call.
    cli.run(&["policy", "check", "write", "path=new.txt", "content=y"]).ends(3);
}

#[test]
fn past_decision_is_explained_from_the_record() {
    let cli = Cli::asking();
    cli.configure("[[tools.permissions.write]]\npattern = \"*.lock\"\naction = \"deny\"\n");
    let id = |line: &[&str], code| {
        cli.run(line).ends(code).json()["id"].as_str().expect("an id").to_owned()
    };
    let denied = id(&["call", "write", "path=Cargo.lock", "content=x", "--json"], 3);
    let explained = cli.run(&["policy", "explain", &denied]).ends(0).stdout;
    for part in [
        "the call of `write` was denied at the gate `permissions`",
        "pattern = \"*.lock\", action = \"deny\"",
        "toolhold.toml, line 1",
    ] {
        assert!(explained.contains(part), "{part}: {explained}");
    }
    // The deciding rule is named although it is gone by now.
    cli.configure("");
    let explained = cli.run(&["policy", "explain", &denied, "--json"]).ends(0).json();
    assert_eq!(
        (&explained["decision"]["verdict"], &explained["decision"]["gate"]),
        (&json!("deny"), &json!("permissions"))
    );
    let yes = id(&["call", "--yes", "write", "path=new.txt", "content=x", "--json"], 0);
    let explained = cli.run(&["policy", "explain", &yes]).ends(0).stdout;
    assert!(
        explained.contains("was allowed at the gate `autonomy`") && explained.contains("--yes"),
        "{explained}"
    );
    let read = id(&["call", "read", "path=notes.txt", "--json"], 0);
    assert!(cli.run(&["policy", "explain", &read]).ends(0).stdout.contains("result: success"));
    let unknown = cli.run(&["policy", "explain", "ffff-1\u{1b}[2J"]).ends(2);
    assert!(unknown.stderr.contains("the audit log has no call"), "{}", unknown.stderr);
}

#[test]
fn policy_check_reports_unknown_names() {
    let cli = Cli::asking();
    cli.configure(
        "[tools.redaction]\nexempt = [\"raed\", \"file_read\"]\n[tools.dependencies]\nenabled = true\nalways_on = [\"nope\"]\n\
         [tools.dependencies.rules.edti]\nrequires = [\"read\"]\n[plugins.gone]\ntrust = \"blocked\"\n\
         [[tools.policy.rules]]\neffect = \"deny\"\ntools = [\"wriet\", \"{copy,move}_path\", \"file_write\", \"list_*\"]\n",
    );
    let ceiling = cli.root.path().join("ceiling.toml");
    fs::write(&ceiling, "[[tools.policy.rules]]\neffect = \"deny\"\ntools = [\"file__write\"]\n")
        .expect("a file is written");
    let run = |line: &[&str]| {
        Ended::from_output(
            cli.command(line).env("TOOLHOLD_CEILING", &ceiling).output().expect("toolhold starts"),
        )
    };
    let wrong = ["`raed`", "`nope`", "`edti`", "`gone`", "`wriet`", "`{copy,move}_path`"];
    let checked = run(&["config", "check"]).ends(0).stdout;
    assert!(!checked.contains("is valid."), "{checked}");
    let called = run(&["call", "read", "path=notes.txt"]).ends(0).stderr;
    let report = run(&["doctor", "--json"]).json();
    let findings = report["findings"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|finding| finding["name"] == json!("names"));
    let found = findings
        .map(|finding| finding["found"].as_str().expect("a text"))
        .collect::<Vec<_>>()
        .join("\n");
    for told in [&checked, &called, &found] {
        for name in wrong {
            assert!(told.contains(name), "{name}: {told}");
        }
        assert!(
            told.contains("did you mean `write`?") && told.contains("toolhold.toml, line"),
            "{told}"
        );
        for right in ["`file_read`", "`file_write`", "`list_*`"] {
            assert!(!told.contains(right), "{right}: {told}");
        }
    }
    // A rule that the user can't change is shown where it is looked for, not at every call.
    assert!(
        checked.contains("`file__write`")
            && found.contains("`file__write`")
            && !called.contains("`file__write`"),
        "{called}"
    );
}

#[test]
fn alias_is_exempt_from_redaction_too() {
    let cli = Cli::asking();
    let secret = format!("ghp_{}", "a1B2c3D4e5F6".repeat(3));
    fs::write(cli.work().join("token.txt"), &secret).expect("a file is written");
    assert!(!cli.run(&["call", "read", "path=token.txt"]).ends(0).stdout.contains(&secret));
    cli.configure("[tools.redaction]\nexempt = [\"file_read\"]\n");
    assert!(cli.run(&["call", "read", "path=token.txt"]).ends(0).stdout.contains(&secret));
}

#[test]
fn pattern_that_can_match_no_path_is_refused() {
    let cli = Cli::asking();
    for action in ["deny", "ask", "allow"] {
        for pattern in ["../other/**", "!src/**", "{src/**", "x[", "~you/x"] {
            cli.configure(&format!(
                "tools.autonomy = \"full\"\n[[tools.permissions.file_write]]\npattern = \"{pattern}\"\naction = \"{action}\"\n"
            ));
            let check =
                cli.run(&["policy", "check", "write", "path=src/a.rs", "content=x"]).ends(4);
            assert!(
                check.stderr.contains("toolhold.toml:2: tools.permissions.file_write")
                    && check.stderr.contains(pattern),
                "{}",
                check.stderr
            );
            cli.run(&["config", "check"]).ends(4);
        }
    }
    // A command may hold any of that.
    cli.configure("[[tools.permissions.bash]]\npattern = \"test [ -f ../x\"\naction = \"allow\"\n");
    cli.run(&["config", "check"]).ends(0);
}
