//! The command line around calls: help, completions, manual pages, and errors.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::support::{Cli, Ended};
use crate::support::{not_tried, toolhold};

const COMMANDS: [&str; 7] = ["call", "tools", "plugin", "config", "demo", "doctor", "generate"];

#[test]
fn help_is_a_command_too() {
    let cli = Cli::new();
    for (line, words) in [
        (&["help"][..], "Exit codes:"),
        (&["help", "call"], "KEY=VALUE is converted to"),
        (&["help", "config", "show"], "config show --json"),
        (&["help", "doctor"], "toolhold doctor --json"),
        (&["help", "generate", "completions"], "toolhold generate completions bash"),
        (&["help", "generate", "man"], "toolhold generate man --all"),
    ] {
        let told = cli.run(line).ends(0).stdout;
        assert!(told.contains(words), "{line:?}: {told}");
    }
}

#[test]
fn help_has_the_commands_in_groups() {
    let cli = Cli::new();
    for line in [&["--help"][..], &["-h"], &["help"]] {
        let help = cli.run(line).ends(0).stdout;
        let places = ["Use:\n", "Connect:\n", "Extend:\n", "Rules:\n", "Look:\n", "Options for"]
            .map(|heading| help.find(&format!("\n{heading}")).expect(heading));
        assert!(places.is_sorted(), "{help}");
        assert!(
            help.contains("\n  plugin     Install, inspect, approve and write plugins\n"),
            "{help}"
        );
    }
}

#[test]
fn mistyped_commands_name_the_right_one() {
    let cli = Cli::new();
    for (line, tip) in [
        (&["install", "x.wasm"][..], "toolhold plugin add x.wasm"),
        (&["call", "bash", "ls", "-la"], "toolhold call bash 'ls -la'"),
        (&["call", "bash", "ls", "--timeout", "5"], "toolhold call bash command=ls timeout=5"),
        (&["mcp", "add", "time", "uvx", "x"], "toolhold mcp add time -- uvx x"),
        (&["help", "call", "read"], "toolhold tools read"),
    ] {
        let stderr = cli.run(line).ends(2).stderr;
        assert!(stderr.contains(tip), "{line:?}: {stderr}");
    }
    let version = cli.run(&["version"]).ends(0).stdout;
    assert_eq!(version, cli.run(&["--version"]).ends(0).stdout);
    // The tip is no guess about what else is wrong.
    cli.run(&["call", "bash", "command=ls -la", "timeout=5"]).ends(0);
}

#[test]
fn every_shell_gets_completions_that_know_every_command() {
    let cli = Cli::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = cli.run(&["generate", "completions", shell]).ends(0).stdout;
        for command in COMMANDS {
            assert!(script.contains(command), "{shell} lacks {command}");
        }
    }
    cli.run(&["generate", "completions", "tcsh"]).ends(2);
}

#[test]
fn bash_completes() {
    let cli = Cli::new();
    let script = cli.work().join("completions.bash");
    fs::write(&script, cli.run(&["generate", "completions", "bash"]).ends(0).stdout)
        .expect("the script is written");
    assert!(Command::new("bash").arg("-n").arg(&script).status().expect("bash starts").success());
    let complete = |words: &[&str]| {
        let (last, before) = (words[words.len() - 1], words[words.len() - 2]);
        let all = words.join(" ");
        let line = format!(
            "source {}; COMP_WORDS=({all}); COMP_CWORD={}; _toolhold toolhold '{last}' '{before}'; echo \"${{COMPREPLY[@]}}\"",
            script.display(),
            words.len() - 1
        );
        let output =
            Command::new("bash").args(["--norc", "-c", &line]).output().expect("bash starts");
        String::from_utf8(output.stdout).expect("it is text").trim().to_owned()
    };
    assert_eq!(complete(&["toolhold", "doc"]), "doctor");
    assert_eq!(complete(&["toolhold", "config", "sh"]), "show");
    assert_eq!(complete(&["toolhold", "call", "--verb"]), "--verbose");
    assert_eq!(complete(&["toolhold", "generate", "completions", "fi"]), "fish");
}

#[test]
fn every_command_has_a_manual_page() {
    let cli = Cli::new();
    cli.run(&["generate", "man", "--all", "pages/man1"]).ends(0);
    let pages = cli.work().join("pages/man1");
    for command in COMMANDS {
        assert!(pages.join(format!("toolhold-{command}.1")).is_file(), "{command} has none");
    }
    let page = fs::read_to_string(pages.join("toolhold-config-show.1")).expect("there is one");
    assert_eq!(cli.run(&["generate", "man", "config", "show"]).ends(0).stdout, page);
    assert_eq!(
        cli.run(&["generate", "man"]).ends(0).stdout,
        fs::read_to_string(pages.join("toolhold.1")).expect("there is one")
    );
    assert!(cli.run(&["generate", "man", "cal"]).ends(2).stderr.contains("`call`"));
    cli.run(&["generate", "man", "call", "--all", "elsewhere"]).ends(2);
    if Command::new("groff").arg("--version").output().is_err() {
        not_tried("groff");
    } else {
        for page in fs::read_dir(&pages).expect("they are there").flatten() {
            let set = Command::new("groff")
                .args(["-man", "-Tutf8", "-ww"])
                .arg(page.path())
                .output()
                .expect("groff starts");
            assert!(
                set.status.success() && set.stderr.is_empty(),
                "{page:?}: {}",
                String::from_utf8_lossy(&set.stderr)
            );
            assert!(set.stdout.len() > 200, "{page:?}");
        }
    }
}

/// With `--json`, errors are JSON too.
#[test]
fn errors_are_json_with_the_json_flag() {
    let cli = Cli::new();
    for (line, code, kind, words) in [
        (&["cal", "--json"][..], 2, "usage", "call"),
        (&["call", "--json"], 2, "usage", "TOOL"),
        (&["call", "read", "pth=x", "--json"], 2, "usage", "`path`"),
        (&["call", "read", "--json", "--output", "x"], 2, "usage", "--output"),
        (&["tools", "raed", "--json"], 2, "usage", "`read`"),
        (&["--set", "tools.cal=1", "tools", "--json"], 4, "host", "`call`"),
        (
            &["--plugin", "missing.wasm", "call", "read", "path=x", "--json"],
            4,
            "host",
            "missing.wasm",
        ),
    ] {
        let ended = cli.run(line).ends(code);
        let said = ended.json();
        assert_eq!(
            (&said["ok"], &said["error"]["kind"]),
            (&json!(false), &json!(kind)),
            "{line:?}: {said}"
        );
        assert!(
            said["error"]["message"].as_str().is_some_and(|message| message.contains(words)),
            "{line:?}: {said}"
        );
        assert_eq!(ended.stderr, "", "{line:?}");
    }
    assert!(cli.run(&["call", "--help", "--json"]).ends(0).stdout.contains("Usage:"));
    // After `--` it is an argument of the tool.
    assert!(cli.run(&["call", "read", "--", "--json"]).ends(2).stderr.contains("--json"));
}

#[test]
fn empty_standard_input_is_named() {
    let cli = Cli::new();
    assert!(cli.run(&["call", "read", "-"]).ends(2).stderr.contains("stdin is empty"));
}

/// Nobody writes into the FIFO; reading it would never end.
#[test]
fn only_files_can_be_attached() {
    let cli = Cli::new();
    assert!(
        Command::new("mkfifo")
            .arg(cli.work().join("fifo"))
            .status()
            .expect("mkfifo starts")
            .success()
    );
    for name in ["fifo", "/dev/zero", "."] {
        let call = cli.command(&["call", "read", "path=notes.txt", "--attach", name]);
        let mut bounded = Command::new("timeout");
        bounded.arg("30").arg(toolhold()).args(call.get_args()).current_dir(cli.work()).env_clear();
        bounded.envs(call.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let ended = Ended::from_output(bounded.output().expect("timeout starts")).ends(2);
        assert!(ended.stderr.contains("isn't a regular file"), "{name}: {}", ended.stderr);
    }
}

#[test]
fn unused_attachment_is_refused() {
    let cli = Cli::new();
    let line = ["call", "--yes", "write", "path=new.txt", "content=x", "--attach", "notes.txt"];
    let ended = cli.run(&line).ends(2);
    assert!(
        ended.stderr.contains("--attach notes.txt: no argument uses this file"),
        "{}",
        ended.stderr
    );
    assert!(!cli.work().join("new.txt").exists());
    // A named argument is the tool's matter, which takes a text here.
    let named = "{\"path\": \"new.txt\", \"content\": {\"$attachment\": 0}}";
    let ended = cli.run(&["call", "--yes", "write", named, "--attach", "notes.txt"]).ends(2);
    assert!(
        ended.stderr.contains("type_mismatch")
            && !ended.stderr.contains("no argument uses this file"),
        "{}",
        ended.stderr
    );
}

#[test]
fn attachment_is_suggested_only_if_the_tool_takes_one() {
    let cli = Cli::new();
    fs::write(cli.work().join("large.json"), format!("{{\"path\": \"{}\"}}", "x".repeat(5 << 20)))
        .expect("a file is written");
    let large = fs::File::open(cli.work().join("large.json")).expect("it is there");
    let ended = Ended::from_output(
        cli.command(&["call", "read", "-"]).stdin(large).output().expect("toolhold starts"),
    )
    .ends(2);
    assert!(
        ended.stderr.contains("the limit is 4 MiB") && !ended.stderr.contains("attach"),
        "{}",
        ended.stderr
    );
}

#[test]
fn empty_tool_list_names_the_key_that_disables_them() {
    let cli = Cli::new();
    for (setting, expected) in [
        (
            "tools.enabled=false",
            "`tools.enabled = false` (--set tools.enabled=false on the command line)",
        ),
        ("tools.file.enabled=false", "`tools.file.enabled = false`"),
        (
            "tools.policy.rules=[{ effect = \"allow\", tools = [\"none\"] }]",
            "the rules don't refuse",
        ),
    ] {
        let listed = cli
            .run(&[
                "--set",
                "tools.shell.enabled=false",
                "--set",
                "tools.web.enabled=false",
                "--set",
                "tools.memory.enabled=false",
                "--set",
                "index.enabled=false",
                "--set",
                setting,
                "tools",
            ])
            .ends(0);
        // The host's own tools belong to no key.
        let own = |line: &&str| {
            ["NAME ", "read_overflow ", "undo "].iter().any(|start| line.starts_with(start))
        };
        let left: Vec<&str> = listed.stdout.lines().filter(|line| !own(line)).collect();
        assert!(left.is_empty(), "{setting}: {}", listed.stdout);
        assert!(
            listed.stderr.contains(expected) || listed.stdout.contains("read_overflow"),
            "{setting}: {}",
            listed.stderr
        );
    }
}

#[test]
fn missing_working_directory_is_named() {
    let cli = Cli::new();
    let gone = cli.work().join("gone");
    fs::create_dir(&gone).expect("a folder is made");
    for command in ["tools", "config check", "call read path=x"] {
        let line = format!(
            "mkdir -p '{0}'; cd '{0}' && rmdir '{0}' && exec '{1}' {command}",
            gone.display(),
            toolhold().display()
        );
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &line])
            .envs(cli.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
        let ended = Ended::from_output(shell.output().expect("a shell starts")).ends(4);
        assert!(
            ended.stderr.contains("the working directory was deleted or moved"),
            "{command}: {}",
            ended.stderr
        );
    }
}

#[test]
fn unknown_tool_gets_the_nearest_name() {
    let cli = Cli::new();
    for (name, nearest) in [
        ("raed", "`read`"),
        ("list_dir", "`list_directory`"),
        ("Grep", "`grep`"),
        ("Bash", "`bash`"),
        ("delete_pth", "`delete_path`"),
    ] {
        let said = cli.run(&["call", name, "path=x"]).ends(2).stderr;
        assert!(said.contains(&format!("Did you mean {nearest}?")), "{name}: {said}");
    }
    // Who wants to rename a file isn't asked whether to delete it.
    let said = cli.run(&["call", "rename_path", "path=x"]).ends(2).stderr;
    assert!(!said.contains("Did you mean `delete_path`"), "{said}");
}
