//! The `bash` tool, from the command line and over MCP.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::mcp::client::{Client, LEGACY, text};
use crate::support::{Cli, not_tried, run, soon};

/// Commands run without approval here.
pub(crate) fn unasked() -> Cli {
    let cli = Cli::new();
    cli.configure("tools.autonomy = \"full\"\n");
    cli
}

#[track_caller]
fn envelope(cli: &Cli, arguments: &Value, code: i32) -> Value {
    let said = cli.run(&["call", "--json", "bash", &arguments.to_string()]).ends(code).json();
    let of = if said["ok"] == true { &said["output"] } else { &said["failure"] };
    of["structured"].clone()
}

#[test]
fn answer_has_the_same_four_fields_for_every_result() {
    let cli = unasked();
    let fields = |stdout, stderr, code, truncated| json!({ "stdout": stdout, "stderr": stderr, "exit_code": code, "truncated": truncated });
    let of = |command: &str, code| envelope(&cli, &json!({ "command": command }), code);
    assert_eq!(of("cat notes.txt; echo no >&2", 0), fields("first\nsecond\n", "no\n", 0, false));
    assert_eq!(of("exit 7", 1), fields("", "", 7, false));
    assert_eq!(of("cat nothing-here", 1)["exit_code"], 1);
    assert_eq!(of("no-such-command-anywhere", 1)["exit_code"], 127);
    assert_eq!(of("touch x; ./x", 1)["exit_code"], 126);
    assert_eq!(of("kill -9 $$", 1)["exit_code"], 137);
    let long = of("yes | head -c 3000000", 0);
    let kept = long["stdout"].as_str().map_or(0, str::len);
    assert!(((1 << 20) - 64..=1 << 20).contains(&kept) && long["truncated"] == true, "{kept}");
    let late = envelope(&cli, &json!({ "command": "echo begun; sleep 600", "timeout": 1 }), 1);
    assert_eq!(late, fields("begun\n", "", -1, false));
}

#[test]
fn failure_has_its_code_and_all_of_the_output() {
    let cli = unasked();
    let ended = cli.run(&["call", "bash", "command=echo out; echo no >&2; exit 3"]).ends(1);
    assert_eq!(ended.stdout, "stdout:\nout\n\nstderr:\nno\n");
    assert!(
        ended.stderr.starts_with("error[permanent_failure/exit-status]: Exit code: 3\n"),
        "{}",
        ended.stderr
    );
    assert_eq!(
        cli.run(&["call", "shell", "command=echo 'permission denied'"]).ends(0).stdout,
        "permission denied\n"
    );
    let late = cli
        .run(&["call", "--json", "bash", r#"{"command": "sleep 600", "timeout": 1}"#])
        .ends(1)
        .json();
    assert_eq!(late["failure"]["category"], "timeout");
}

#[test]
fn many_parallel_commands_all_succeed_and_ping_does_not_wait_for_them() {
    let cli = unasked();
    let mut client = Client::new(&cli, &["--set", "tools.call=300"], LEGACY, false);
    let slow = "until [ -e go ]; do sleep 0.1; done";
    let command =
        |number: u64| if number < 64 { slow.to_owned() } else { format!("echo no. {number}") };
    // One more than are prepared at a time.
    let mut left: HashMap<u64, u64> = (0..257)
        .map(|number| {
            (
                client.ask(
                    "tools/call",
                    json!({ "name": "bash", "arguments": { "command": command(number) } }),
                ),
                number,
            )
        })
        .collect();
    let ping = client.ask("ping", json!({}));
    assert_eq!(client.next()["id"], ping, "it does not wait behind them");
    fs::write(cli.work().join("go"), "").expect("a file is written");
    while !left.is_empty() {
        let message = client.next();
        let number =
            message["id"].as_u64().and_then(|id| left.remove(&id)).expect("each is answered once");
        assert_eq!(message["result"]["isError"], false, "{message}");
        assert!(number < 64 || message.to_string().contains(&format!("no. {number}")), "{message}");
    }
}

/// The rules see a command under each of its names.
#[test]
fn alias_of_a_command_does_not_bypass_a_rule() {
    let cli = Cli::new();
    cli.configure("tools.autonomy = \"full\"\n[[tools.permissions.bash]]\npattern = \"touch *\"\naction = \"deny\"\n");
    for name in ["command", "cmd", "script", "shell_command", "bash", "sh"] {
        let denied = cli
            .run(&["call", "--json", "bash", &json!({ name: "touch made" }).to_string()])
            .ends(3)
            .json();
        assert_eq!(denied["failure"]["category"], "policy_blocked", "{name}: {denied}");
        cli.run(&["call", "bash", &format!("{name}=touch made")]).ends(3);
        assert_eq!(envelope(&cli, &json!({ name: "echo hi" }), 0)["stdout"], "hi\n", "{name}");
    }
    for both in [
        json!({ "command": "true", "cmd": "touch made" }),
        json!({ "cmd": "true", "sh": "touch made" }),
    ] {
        let refused = cli.run(&["call", "--json", "bash", &both.to_string()]).json();
        assert_eq!(refused["failure"]["category"], "invalid_parameters", "{refused}");
    }
    assert!(!cli.work().join("made").exists());
}

/// A command that prints something, waits until it was seen, and prints something else.
const WAITS: &str = "echo first; until test -e go; do sleep 0.01; done; echo second";

#[test]
fn alias_of_git_is_the_command_that_it_stands_for() {
    let cli = Cli::new();
    cli.configure("tools.autonomy = \"full\"\n[[tools.permissions.bash]]\npattern = \"git tag *\"\naction = \"deny\"\n");
    let has_git = crate::shell::there_is("git");
    if has_git {
        let made = Command::new("git").args(["init", "-q"]).arg(cli.work()).status();
        assert!(made.expect("git runs").success());
    }
    fs::create_dir_all(cli.work().join(".git")).expect("a folder is made");
    let config = cli.work().join(".git/config");
    let aliases = "[alias]\n  mark = tag -f\n  get = \"!curl https://a.example\"\n  twice = mark one\n  make = !touch made\n";
    let before = fs::read_to_string(&config).unwrap_or_default();
    fs::write(config, before + aliases).expect("it is written");
    fs::create_dir_all(cli.work().join("other/.git")).expect("a folder is made");
    fs::write(cli.work().join("other/.git/config"), "[alias]\n  far = tag -f\n")
        .expect("it is written");
    let others = ["git -C other far one", "cd other && git far one"];
    for command in ["git mark one", "git -C . twice", "true && git get"].into_iter().chain(others) {
        let refused = cli.run(&["call", "bash", command]).ends(3).stderr;
        assert!(refused.contains("policy_blocked"), "{command}: {refused}");
    }
    // What no rule denies runs, with the alias.
    if has_git {
        cli.run(&["call", "bash", "git make"]).ends(0);
        assert!(cli.work().join("made").exists());
    }
}

/// At a terminal, output appears before the command ends, and isn't repeated at the end.
#[test]
fn terminal_shows_output_live_and_once() {
    let cli = unasked();
    let line = ["call".to_owned(), "bash".to_owned(), format!("command={WAITS}")];
    let Some((mut child, mut screen)) = at_a_terminal(&cli, &line) else { return };
    let mut shown = Vec::new();
    let mut part = [0; 4096];
    loop {
        match screen.read(&mut part).expect("it can be read") {
            0 => break,
            read => shown.extend_from_slice(&part[..read]),
        }
        if String::from_utf8_lossy(&shown).contains("first") {
            fs::write(cli.work().join("go"), "").expect("a file is made");
        }
    }
    assert!(child.wait().expect("it ends").success());
    let shown = String::from_utf8_lossy(&shown);
    assert_eq!(shown.lines().map(str::trim_end).collect::<Vec<_>>(), ["first", "second"]);
}

/// `None`, with a notice, if this machine has no `script`, which creates terminals.
pub(crate) fn at_a_terminal(cli: &Cli, line: &[String]) -> Option<(Child, impl Read)> {
    let command = cli.command(&[]);
    let words = std::iter::once(command.get_program().to_string_lossy().into_owned())
        .chain(line.iter().cloned());
    let line = words.map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).current_dir(cli.work()).env_clear();
    script
        .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env("NO_COLOR", "1");
    script.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let child = script.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = child.inspect_err(|_| not_tried("script")) else { return None };
    let screen = child.stdout.take()?;
    Some((child, screen))
}

#[test]
fn mcp_client_gets_output_live() {
    let cli = unasked();
    let mut client = Client::new(&cli, &[], LEGACY, false);
    let id = client.ask(
        "tools/call",
        json!({ "name": "bash", "arguments": { "cmd": WAITS }, "_meta": { "progressToken": "p" } }),
    );
    let told = client.notification("notifications/progress");
    assert_eq!(
        (&told["params"]["progressToken"], &told["params"]["message"]),
        (&json!("p"), &json!("first\n"))
    );
    fs::write(cli.work().join("go"), "").expect("a file is made");
    let answer = client.answer(id);
    assert!(text(&answer).contains("\nfirst\nsecond\n"), "{answer}");
}

/// A client that was promised a structured answer gets one, though not complete.
#[test]
fn long_answer_keeps_its_structure_for_a_client_of_mcp() {
    let cli = unasked();
    let mut client = Client::new(&cli, &["--set", "serve.structured=always"], LEGACY, false);
    let answer = client.call("bash", json!({ "command": "seq 100000" }));
    assert_eq!(answer["isError"], false, "{answer}");
    let structured = &answer["structuredContent"];
    assert_eq!((&structured["exit_code"], &structured["truncated"]), (&json!(0), &json!(true)));
    let stdout = structured["stdout"].as_str().expect("is a text");
    assert!(
        stdout.contains(">\n1\n2\n") && stdout.contains("\n100000\n</") && stdout.len() < 31_000,
        "{} bytes",
        stdout.len()
    );
}

/// Number of processes of this machine that follow a file.
fn following(file: &Path) -> usize {
    let file = file.display().to_string();
    let processes = fs::read_dir("/proc").expect("there is /proc").flatten();
    let lines =
        processes.filter_map(|process| fs::read_to_string(process.path().join("cmdline")).ok());
    lines.filter(|line| line.split('\0').eq(["tail", "-f", file.as_str(), ""])).count()
}

/// A command that never ends, and leaves a process in its own session.
fn endless(file: &Path) -> String {
    let file = file.display();
    format!("setsid tail -f {file} & tail -f {file}")
}

#[test]
fn taking_a_call_back_ends_all_that_it_started() {
    let cli = unasked();
    let notes = cli.work().join("notes.txt");
    let file = notes.clone();
    run(async move {
        let mut client = Client::new(&cli, &[], LEGACY, false);
        let id = client.ask(
            "tools/call",
            json!({ "name": "bash", "arguments": { "command": endless(&file), "timeout": 600 } }),
        );
        soon("the command runs", || following(&file) == 2).await;
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }));
        soon("the command is gone", || following(&file) == 0).await;
        assert!(
            text(&client.call("bash", json!({ "command": "echo still here" })))
                .contains("still here\n")
        );
    });
    assert_eq!(following(&notes), 0);
}

#[test]
fn ctrl_c_ends_all_that_a_call_started() {
    let cli = unasked();
    let file = cli.work().join("notes.txt");
    run(async move {
        let command = format!("command={}", endless(&file));
        let mut child = cli
            .command(&["call", "bash", &command, "timeout=600"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("toolhold starts");
        soon("the command runs", || following(&file) == 2).await;
        kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
        soon("the command is gone", || following(&file) == 0).await;
        assert_eq!(child.wait().expect("it ends").code(), Some(130));
    });
}

#[test]
fn relative_path_means_the_same_file_for_every_tool() {
    let cli = Cli::new();
    let other = cli.root.path().canonicalize().expect("it is there").join("other");
    fs::create_dir(&other).expect("a folder is made");
    fs::write(other.join("notes.txt"), "of another folder").expect("a file is written");
    cli.configure(&format!("[tools.file]\nallowed_paths = [{:?}]\n", other.display()));
    // The working directory isn't granted, so nothing is read elsewhere instead.
    for line in [&["call", "read", "notes.txt"][..], &["call", "bash", "cat notes.txt"]] {
        let refused = cli.run(line).ends(3);
        let shown = refused.stderr;
        assert!(shown.contains("allowed_paths") && shown.contains("work"), "{line:?}: {shown}");
        assert!(!refused.stdout.contains("of another folder"), "{line:?}: {}", refused.stdout);
    }
    cli.run(&["call", "read", &other.join("notes.txt").display().to_string()]).ends(0);
}

#[test]
fn directories_of_file_tools_hold_for_commands_too() {
    let cli = Cli::new();
    cli.configure("[tools.file]\nallowed_paths = [{ path = \".\", access = \"read\" }]\n");
    cli.run(&["call", "bash", "echo x > notes.txt"]).ends(1);
    let notes = cli.work().join("notes.txt");
    assert_eq!(fs::read_to_string(&notes).expect("it is there"), "first\nsecond\n");
    // A file of the project can't widen that, and the operator's own list for commands counts.
    let project = "[tools.shell]\nallowed_paths = [\".\"]\n";
    fs::write(cli.work().join("toolhold.toml"), project).expect("it is written");
    cli.run(&["call", "bash", "echo x > notes.txt"]).ends(1);
    cli.configure(&format!(
        "[tools.file]\nallowed_paths = [{{ path = \".\", access = \"read\" }}]\n{project}"
    ));
    cli.run(&["call", "bash", "echo x > notes.txt"]).ends(0);
    assert_eq!(fs::read_to_string(&notes).expect("it is there"), "x\n");
}

#[test]
fn single_word_is_the_command_or_the_only_required_argument() {
    let cli = Cli::new();
    assert_eq!(cli.run(&["call", "bash", "FOO=1 printenv FOO"]).ends(0).stdout, "1\n");
    let read = cli.run(&["call", "read", "notes.txt"]).ends(0).stdout;
    assert!(read.contains("second"), "{read}");
    let hint = cli.run(&["call", "read", "a b", "limit=1"]).ends(2).stderr;
    assert!(hint.contains("did you mean `path='a b'`?"), "{hint}");
}

#[test]
fn exit_code_of_the_command_is_toolhold_s_own_if_that_is_asked_for() {
    let cli = Cli::new();
    for (line, code) in [("exit 7", 7), ("true", 0), ("exit 255", 255)] {
        cli.run(&["call", "--exit-code", "bash", line]).ends(code);
    }
    cli.run(&["call", "bash", "exit 7"]).ends(1);
    // Without a command, the usual codes hold.
    cli.run(&["call", "--exit-code", "read", "none.txt"]).ends(1);
    cli.run(&["call", "--exit-code", "bash", "sudo true"]).ends(3);
}
