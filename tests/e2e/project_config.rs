//! A `toolhold.toml` in the working directory, which may be untrusted: it can only narrow until its
//! owner has seen it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use serde_json::json;

use crate::support::{Cli, Ended};

/// The whole machine for the built-in tools, and a plugin of the untrusted file.
const WIDE: &str = "\
[tools.file]
allowed_paths = [\"/\"]
deny_write = []

[plugins.evil]
path = \"evil.wasm\"
reload = \"trust\"
replaces = \"file\"
";

fn place(cli: &Cli, text: &str) {
    fs::write(cli.work().join("toolhold.toml"), text).expect("a file is written");
}

#[test]
fn untrusted_file_grants_nothing_and_is_named() {
    let cli = Cli::new();
    place(&cli, WIDE);
    let refused = cli.run(&["call", "read", "path=../secret.txt"]).ends(3);
    assert!(!refused.stdout.contains("the secret") && !refused.stderr.contains("the secret"));
    let file = cli.work().join("toolhold.toml").display().to_string();
    for named in ["2: `tools.file.allowed_paths` is ignored: ", "5: `plugins.evil` is ignored: "] {
        assert!(refused.stderr.contains(&format!("warning: {file}:{named}")), "{}", refused.stderr);
    }
    assert!(refused.stderr.contains("`toolhold trust`"), "{}", refused.stderr);
    fs::create_dir(cli.work().join(".git")).expect("a folder is made");
    cli.run(&["call", "write", "path=.git/hook", "content=x"]).ends(3);
    assert!(!cli.work().join(".git/hook").exists());

    // The output for programs doesn't change.
    let answer = cli.run(&["call", "read", "path=notes.txt", "--json"]).ends(0).json();
    assert_eq!(answer["ok"], json!(true));
    let shown = cli.run(&["config", "show", "--json"]).ends(0).json();
    assert_eq!(shown["project"]["standing"], json!("narrows"), "{shown}");
    let ignored: Vec<_> = shown["project"]["ignored"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|ignored| &ignored["key"])
        .collect();
    assert_eq!(ignored, [&json!("tools.file.allowed_paths"), &json!("plugins.evil")]);
    let text = cli.run(&["config", "show"]).ends(0).stdout;
    assert!(
        text.contains("toolhold.toml can only restrict your configuration.")
            && text.contains("the ignored value: [\"/\"]"),
        "{text}"
    );
    let checked = cli.run(&["config", "check"]).ends(0).stdout;
    assert!(
        checked.contains("these keys are ignored") && checked.contains("`plugins.evil` is ignored"),
        "{checked}"
    );
}

#[test]
fn untrusted_text_cannot_flood_or_steer_the_terminal() {
    let cli = Cli::new();
    let plugins: String =
        (0..200).map(|number| format!("[plugins.p{number}]\npath = \"\\u001b[2J\"\n")).collect();
    place(&cli, &plugins);
    // `run` looks for escapes in what is printed.
    let ended = cli.run(&["call", "read", "path=notes.txt"]).ends(0);
    assert!(
        ended.stderr.lines().count() <= 6 && ended.stderr.contains("196 more keys"),
        "{}",
        ended.stderr
    );
    cli.run(&["config", "show"]).ends(0);
    cli.run(&["trust"]).ends(3);
    place(&cli, "\"\\u001b[31m\" = 1\n");
    assert!(cli.run(&["tools"]).ends(4).stderr.contains("toolhold.toml:1"));
    place(&cli, &"x".repeat(2 << 20));
    assert!(cli.run(&["tools"]).ends(4).stderr.len() < 1000);
}

#[test]
fn deeply_nested_values_take_little_memory() {
    let cli = Cli::new();
    let keys: String = (0..100_000).map(|number| format!("k{number}=1\n")).collect();
    place(&cli, &format!("[{}]\n{keys}", ["a"; 70].join(".")));
    let toolhold = cli.command(&["tools"]);
    let mut bounded = Command::new("sh");
    bounded
        .args(["-c", "ulimit -v 400000; exec \"$@\"", "sh"])
        .arg(toolhold.get_program())
        .args(toolhold.get_args());
    bounded
        .current_dir(cli.work())
        .envs(toolhold.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ended = Ended::from_output(bounded.output().expect("it runs")).ends(4);
    assert!(ended.stderr.contains("has 100000 values"), "{}", ended.stderr);
}

#[test]
fn denial_of_a_project_file_names_its_line() {
    let cli = Cli::new();
    place(
        &cli,
        "[tools.file]\nallowed_paths = [{ path = \".\", access = \"read\" }]\ndeny_read = [\n  \"*.key\"]\n",
    );
    fs::write(cli.work().join("a.key"), "the key").expect("a file is written");
    let refused = cli.run(&["call", "read", "path=a.key"]).ends(3).stderr;
    assert!(
        refused.contains(&format!("{}, line 4", cli.work().join("toolhold.toml").display())),
        "{refused}"
    );
    let refused = cli.run(&["call", "write", "path=notes.txt", "content=x"]).ends(3).stderr;
    assert!(refused.contains("toolhold.toml, line 2") && !refused.contains("note:"), "{refused}");
    assert_eq!(
        fs::read_to_string(cli.work().join("notes.txt")).expect("it is there"),
        "first\nsecond\n"
    );
    let shown = cli.run(&["config", "show"]).ends(0).stdout;
    let denied =
        shown.lines().find(|line| line.starts_with("deny_read")).unwrap_or_default().to_owned();
    assert!(
        denied.contains("toolhold.toml:")
            || shown.contains("\"*.key\",") && shown.contains("toolhold.toml:4"),
        "{shown}"
    );
}

#[test]
fn project_file_is_closed_to_every_tool() {
    let cli = Cli::new();
    let text = "tools.call = 5\n";
    place(&cli, text);
    symlink("toolhold.toml", cli.work().join("innocent.txt")).expect("a link is made");
    for path in
        ["toolhold.toml", "./toolhold.toml", "innocent.txt", "TOOLHOLD.TOML", "sub/toolhold.toml"]
    {
        cli.run(&["call", "write", &format!("path={path}"), "content=tools.call = 600"]).ends(3);
    }
    for path in ["toolhold.toml", "innocent.txt"] {
        cli.run(&["call", "edit", &format!("path={path}"), "old_string=5", "new_string=600"]);
    }
    assert_eq!(fs::read_to_string(cli.work().join("toolhold.toml")).expect("it is there"), text);
    assert!(
        !cli.work().join("TOOLHOLD.TOML").exists()
            && !cli.work().join("sub").join("toolhold.toml").exists()
    );
}

#[test]
fn toolhold_s_folders_stay_closed_under_a_granted_home() {
    let cli = Cli::new();
    cli.configure("tools.file.allowed_paths = [\"~\"]\n");
    place(&cli, "tools.call = 60\n");
    cli.run(&["trust", "--yes"]).ends(0);
    let (config, data) =
        (cli.root.path().join("config/toolhold.toml"), cli.root.path().join("data/trusted.json"));
    symlink(cli.root.path().join("config"), cli.work().join("to-config")).expect("a link is made");
    symlink(cli.root.path().join("data"), cli.work().join("to-data")).expect("a link is made");
    symlink(&data, cli.work().join("to-list")).expect("a link is made");
    let before = (fs::read(&config).expect("it is there"), fs::read(&data).expect("it is there"));
    for path in [
        "../config/toolhold.toml",
        "to-config/toolhold.toml",
        "../data/trusted.json",
        "to-data/trusted.json",
        "to-list",
        "../data/new",
    ] {
        cli.run(&["call", "write", &format!("path={path}"), "content={}"]).ends(3);
    }
    let digest = cli.run(&["config", "show", "--json"]).ends(0).json()["project"]["digest"]
        .as_str()
        .expect("a digest")
        .to_owned();
    for path in ["../data/trusted.json", "to-data/trusted.json", "to-list"] {
        let read = cli.run(&["call", "read", &format!("path={path}")]).ends(3);
        assert!(!read.stdout.contains(&digest) && !read.stderr.contains(&digest), "{path}");
    }
    let found = cli.run(&["call", "grep", &format!("pattern={digest}"), "path=.."]).stdout;
    assert!(!found.contains("trusted.json"), "{found}");
    assert_eq!(
        (fs::read(&config).expect("it is there"), fs::read(&data).expect("it is there")),
        before
    );
}

#[test]
fn trust_holds_until_the_file_changes() {
    let cli = Cli::new();
    let wide = "tools.file.allowed_paths = [\"..\"]\n";
    place(&cli, wide);
    let secret = ["call", "read", "path=../secret.txt"];

    // Nobody can approve.
    let refused = cli.run(&["trust"]).ends(3);
    assert!(
        refused.stdout.contains("now:      [\".\"]\n    asks for: [\"..\"]")
            && refused.stderr.contains("--yes"),
        "{}",
        refused.stdout
    );
    cli.run(&secret).ends(3);
    assert_eq!(cli.run(&["trust", "--list"]).ends(0).stdout, "No file is trusted.\n");

    cli.run(&["trust", "-y"]).ends(0);
    let read = cli.run(&secret).ends(0);
    assert!(read.stdout.contains("the secret") && read.stderr.is_empty(), "{}", read.stderr);
    let list = cli.run(&["trust", "--list"]).ends(0).stdout;
    assert!(list.contains(&cli.work().join("toolhold.toml").display().to_string()), "{list}");
    assert!(cli.run(&["trust"]).ends(0).stdout.contains("already"));
    assert!(cli.run(&["config", "show"]).ends(0).stdout.contains("is trusted"));
    let kept = cli.root.path().join("data/trusted.json");
    assert_eq!(fs::metadata(&kept).expect("it is kept").permissions().mode() & 0o777, 0o600);

    place(&cli, &format!("{wide}tools.call = 5\n"));
    let changed = cli.run(&secret).ends(3).stderr;
    assert!(changed.contains("has changed since"), "{changed}");
    assert!(cli.run(&["trust"]).ends(3).stdout.contains("has changed since"));
    place(&cli, wide);
    cli.run(&secret).ends(0);

    cli.run(&["trust", "--forget"]).ends(0);
    cli.run(&secret).ends(3);
    cli.run(&["trust", "--forget"]).ends(2);
    fs::remove_file(cli.work().join("toolhold.toml")).expect("it goes");
    cli.run(&["trust", "--yes"]).ends(2);
    place(&cli, "tools.call = 5\n");
    assert!(cli.run(&["trust"]).ends(0).stdout.contains("only restricts"));
}

#[test]
fn trust_ignores_settings_of_one_command() {
    let cli = Cli::new();
    place(&cli, "tools.call = 60\n");
    let shown = cli.run(&["--set", "tools.call=600", "trust"]).ends(3).stdout;
    assert!(shown.contains("now:      30\n    asks for: 60"), "{shown}");
}

#[test]
fn trust_at_a_terminal_takes_yes() {
    let cli = Cli::new();
    place(&cli, "tools.file.allowed_paths = [\"..\"]\n");
    let Some(refused) = cli.typed(&["trust"], "\n") else { return };
    assert!(refused.ends(3).stdout.contains("[y/N]"));
    cli.run(&["call", "read", "path=../secret.txt"]).ends(3);
    cli.typed(&["trust"], "y\n").expect("there is a terminal").ends(0);
    cli.run(&["call", "read", "path=../secret.txt"]).ends(0);
}

#[test]
fn damaged_trust_list_is_reported() {
    let cli = Cli::new();
    place(&cli, "tools.file.allowed_paths = [\"..\"]\n");
    cli.run(&["trust", "--yes"]).ends(0);
    let data = cli.root.path().join("data");
    fs::write(data.join("trusted.json"), "{").expect("it is damaged");
    let told = cli.run(&["tools"]).ends(4).stderr;
    assert!(told.contains("trusted.json") && told.contains("damaged"), "{told}");
    fs::remove_file(data.join("trusted.json")).expect("it goes");
    cli.run(&["trust", "--yes"]).ends(0);
    fs::set_permissions(&data, fs::Permissions::from_mode(0o775)).expect("its mode is set");
    assert!(cli.run(&["tools"]).ends(4).stderr.contains("chmod go-rwx"));
}
