//! The real binary, in a fresh folder, as a person uses it.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::json;

use crate::support::{Cli, plugin};

#[test]
fn tool_takes_pairs_json_and_standard_input() {
    let cli = Cli::new();
    let pairs = cli.run(&["call", "read", "path=notes.txt", "offset=2", "limit=1"]).ends(0).stdout;
    assert!(pairs.contains("2\tsecond") && !pairs.contains("first"), "{pairs}");
    let json = cli
        .run(&["call", "read", r#"{"path": "notes.txt", "offset": 2, "limit": 1}"#])
        .ends(0)
        .stdout;
    assert_eq!(json, pairs);
    let mut child = cli
        .command(&["call", "read", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let child = child.as_mut().expect("toolhold starts");
    let input = child.stdin.take().expect("it has an input");
    { input }
        .write_all(br#"{"path": "notes.txt", "offset": 2, "limit": 1}"#)
        .expect("it reads its input");
    let mut stdout = String::new();
    std::io::Read::read_to_string(child.stdout.as_mut().expect("it has an output"), &mut stdout)
        .expect("it prints UTF-8");
    assert!(child.wait().expect("it ends").success());
    assert_eq!(stdout, pairs);
}

#[test]
fn exit_codes_name_the_kind_of_failure() {
    let cli = Cli::new();
    for (line, code) in [
        (&["call", "read", "path=notes.txt"][..], 0),
        (&["call", "read", "path=missing.txt"], 1),
        (&["call", "read", "pth=notes.txt"], 2),
        (&["call", "read", "path=notes.txt", "limit=many"], 2),
        (&["call", "read", r#"{"path": 1}"#], 2),
        (&["call", "read", "{"], 2),
        (&["call", "raed", "path=notes.txt"], 2),
        (&["call"], 2),
        (&["no-such-command"], 2),
        (&["call", "read", "path=../secret.txt"], 3),
        (&["call", "write", "path=/etc/new", "content=x"], 3),
        (&["--plugin", "missing.wasm", "tools"], 4),
        (&["--set", "tools.cal=1", "tools"], 4),
    ] {
        let ended = cli.run(line).ends(code);
        assert_eq!(ended.stderr.is_empty(), code == 0, "{line:?}: {}", ended.stderr);
        assert!(
            !ended.stdout.contains("the secret") && !ended.stderr.contains("the secret"),
            "{line:?}"
        );
    }
    assert!(!PathBuf::from("/etc/new").exists());
}

#[test]
fn refusal_names_the_rule_and_a_misspelling_the_nearest_name() {
    let cli = Cli::new();
    let refused = cli.run(&["call", "read", "path=../secret.txt"]).ends(3).stderr;
    assert!(refused.contains("policy_blocked") && refused.contains("allowed_paths"), "{refused}");
    for (line, nearest) in [
        (&["call", "raed", "path=x"][..], "read"),
        (&["call", "read", "pth=x"], "path"),
        (&["--set", "tools.cal=1", "tools"], "call"),
        (&["tool"], "tools"),
    ] {
        let ended = cli.run(line);
        assert!(ended.code != 0 && ended.stderr.contains(nearest), "{line:?}: {}", ended.stderr);
    }
}

#[test]
fn json_is_one_object_with_the_outcome() {
    let cli = Cli::new();
    let answer = cli.run(&["call", "read", "path=notes.txt", "--json"]).ends(0).json();
    assert_eq!((&answer["ok"], &answer["tool"]), (&json!(true), &json!("read")));
    assert!(
        answer["output"]["content"][0]["text"].as_str().is_some_and(|text| text.contains("first")),
        "{answer}"
    );
    let answer = cli.run(&["call", "read", "path=../secret.txt", "--json"]).ends(3).json();
    assert_eq!(answer["ok"], json!(false));
    assert_eq!(answer["failure"]["category"], json!("policy_blocked"), "{answer}");
    assert!(
        answer["failure"]["denial"]["rule"].is_string() && answer["id"].is_string(),
        "{answer}"
    );
}

#[test]
fn verbose_shows_the_steps_beside_the_answer() {
    let cli = Cli::new();
    let ended = cli.run(&["call", "read", "path=notes.txt", "--verbose"]).ends(0);
    assert!(
        ended.stdout.contains("first") && !ended.stdout.contains("validate"),
        "{}",
        ended.stdout
    );
    assert!(ended.stderr.contains("validate") && ended.stderr.contains("run"), "{}", ended.stderr);
}

#[test]
fn tools_are_listed_and_described() {
    let cli = Cli::new();
    let listed = cli.run(&["tools"]).ends(0).stdout;
    for tool in [
        "read",
        "write",
        "edit",
        "grep",
        "find_path",
        "list_directory",
        "create_directory",
        "copy_path",
        "move_path",
        "delete_path",
        "bash",
        "fetch",
        "web_scrape",
        "http_request",
        "search_code",
        "diagnostics",
    ] {
        assert!(listed.lines().any(|line| line.starts_with(tool)), "{tool} is missing: {listed}");
    }
    let told = cli.run(&["tools", "read"]).ends(0).stdout;
    assert!(told.contains("path") && told.contains("offset"), "{told}");
    let definitions = cli.run(&["tools", "--json"]).ends(0).json();
    assert!(
        definitions.as_array().is_some_and(|all| all.iter().any(|tool| tool["name"] == "read")),
        "{definitions}"
    );
}

#[test]
fn plugin_is_inspected_without_being_run() {
    let cli = Cli::new();
    let hostile = plugin("hostile");
    let told = cli.run(&["plugin", "inspect", &hostile.display().to_string()]).ends(0).stdout;
    for part in ["hostile", "read-write", "wasi:filesystem/types"] {
        assert!(told.contains(part), "{part} is missing: {told}");
    }
    let info =
        cli.run(&["plugin", "inspect", "--json", &hostile.display().to_string()]).ends(0).json();
    assert_eq!(info["name"], json!("hostile"), "{info}");
    assert!(info["digest"].as_str().is_some_and(|digest| digest.len() == 64), "{info}");
    cli.run(&["plugin", "inspect", "notes.txt"]).ends(4);
}

#[test]
fn plugin_gets_the_grants_of_its_name() {
    let cli = Cli::new();
    let hostile = plugin("hostile").display().to_string();
    let path = format!("path={}", cli.work().join("notes.txt").display());
    cli.configure("tools.autonomy = \"full\"");
    cli.run(&["--plugin", &hostile, "call", "hostile__read_outside", &path]).ends(1);
    cli.configure(&format!(
        "tools.autonomy = \"full\"\n[plugins.hostile]\npath = {hostile:?}\nreload = \"trust\"\nallowed_paths = [{:?}]\n",
        cli.work()
    ));
    let read = cli.run(&["call", "hostile__read_outside", &path]).ends(0).stdout;
    assert!(read.contains("first"), "{read}");
    let outside = format!("path={}", cli.root.path().join("secret.txt").display());
    let refused = cli.run(&["call", "hostile__read_outside", &outside]).ends(3);
    assert!(!refused.stdout.contains("the secret") && !refused.stderr.contains("the secret"));
}

#[test]
fn hostile_plugin_can_not_steer_the_terminal() {
    let cli = Cli::new();
    cli.configure("tools.autonomy = \"full\"");
    let hostile = plugin("hostile").display().to_string();
    let arguments = json!({ "text": "word\u{1b}]0;title\u{7}\u{1b}[2J\u{202e}" }).to_string();
    for attack in ["hostile__speak_in_control_characters", "hostile__fail_in_control_characters"] {
        // `run` looks for escapes in what is printed.
        let ended = cli.run(&["--plugin", &hostile, "--log", "trace", "call", attack, &arguments]);
        let printed = format!("{}{}", ended.stdout, ended.stderr);
        assert!(
            printed.contains("word") && !printed.contains('\u{202e}') && !printed.contains('\u{7}'),
            "{printed}"
        );
    }
}

#[test]
fn configuration_is_shown_with_its_sources_and_checked() {
    let cli = Cli::new();
    cli.configure("[tools]\ncall = 7\n");
    let shown = cli.run(&["--set", "tools.max_call=70", "config", "show"]).ends(0).stdout;
    let line = |key: &str| {
        shown
            .lines()
            .find(|line| line.starts_with(key))
            .unwrap_or_else(|| panic!("{key} is missing: {shown}"))
    };
    assert!(line("call = 7").contains("toolhold.toml:2"), "{shown}");
    assert!(line("max_call = 70").contains("--set"), "{shown}");
    assert!(line("max_concurrent").contains("default"), "{shown}");
    cli.run(&["config", "check"]).ends(0);

    cli.configure("[tools]\ncal = 7\nmax_call = \"long\"\n");
    let wrong = cli.run(&["config", "check"]);
    let told = format!("{}{}", wrong.stdout, wrong.stderr);
    assert!(
        wrong.code != 0 && told.contains("`call`") && told.contains(":2") && told.contains(":3"),
        "{told}"
    );
    cli.run(&["call", "read", "path=notes.txt"]).ends(4);
    let schema = cli.run(&["config", "schema"]).ends(0).json();
    assert!(schema["properties"]["tools"].is_object(), "{schema}");
}

#[test]
fn tool_that_only_the_agent_has_is_explained() {
    let cli = Cli::new();
    for (name, part) in [("delegate", "`toolhold run`"), ("load_skill", "`toolhold skills`")] {
        let told = cli.run(&["call", name, "task=x"]).ends(2).stderr;
        assert!(told.contains(part) && !told.contains("Did you mean"), "{told}");
    }
    cli.configure("[tools.scheduler]\nenabled = false\n");
    let told = cli.run(&["call", "zzz", "task=x"]).ends(2).stderr;
    assert!(told.contains("Available tools: read") && !told.contains("schedule"), "{told}");
    let told = cli.run(&["call", "schedule_periodicc", "task=x"]).ends(2).stderr;
    assert!(!told.contains("`schedule_periodic`"), "{told}");
}

#[test]
fn check_names_what_the_configuration_has_no_use_for() {
    let cli = Cli::new();
    cli.configure(
        "[tools.file]\nallowed_paths = [\".\", \"/none/at/all\"]\n[tools.adversarial_policy]\nenabled = true\n[agent.tool_filter]\nalways_on = [\"read\", \"scheduler\"]\n",
    );
    let told = cli.run(&["config", "check"]).ends(0).stdout;
    for part in ["/none/at/all doesn't exist", "has no `provider`", "no tool is named `scheduler`"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("is valid.") && !told.contains("`read`"), "{told}");
}

#[test]
fn directories_are_allowed_for_one_command() {
    let cli = Cli::new();
    let root = cli.root.path().display().to_string();
    assert!(
        cli.run(&["--allow-read", &root, "call", "read", "path=../secret.txt"])
            .ends(0)
            .stdout
            .contains("the secret")
    );
    cli.run(&["--allow-read", &root, "call", "write", "path=../secret.txt", "content=x"]).ends(3);
    assert_eq!(
        fs::read_to_string(cli.root.path().join("secret.txt")).expect("it is there"),
        "the secret"
    );
    cli.run(&[
        "--set",
        "tools.autonomy=full",
        "--allow",
        &root,
        "call",
        "write",
        "path=../secret.txt",
        "content=x",
    ])
    .ends(0);
    assert_eq!(fs::read_to_string(cli.root.path().join("secret.txt")).expect("it is there"), "x");
}

#[test]
fn closed_pipe_is_not_an_error() {
    let cli = Cli::new();
    fs::write(
        cli.work().join("long.txt"),
        "a line that is long enough to fill a pipe\n".repeat(2000),
    )
    .expect("a file is written");
    let (reader, writer) = std::io::pipe().expect("a pipe is made");
    drop(reader);
    let ended = cli
        .command(&["call", "read", "path=long.txt"])
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .expect("toolhold starts");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.code().is_some() && !said.contains("panicked"), "{said}");
}

#[test]
fn demo_succeeds() {
    let cli = Cli::new();
    let told = cli.run(&["demo", "--json"]).ends(0).json();
    assert!(told.is_object(), "{told}");
    let played = cli.run(&["demo"]).ends(0).stdout;
    assert!(played.ends_with("every attack was stopped. Next, run: toolhold init\n"), "{played}");
}
