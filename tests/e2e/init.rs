//! Starting the user's configuration: by a few questions, or from the template of every key.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::approvals_command::only_question;
use crate::support::{Cli, Ended};

/// A user who has no folder of Toolhold's own yet.
struct Newcomer(Cli);

impl Newcomer {
    fn new() -> Self {
        let cli = Cli::new();
        fs::remove_dir(cli.root.path().join("config")).expect("it is empty");
        Self(cli)
    }

    fn file(&self) -> PathBuf {
        self.0.root.path().join("config/toolhold.toml")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.file()).expect("it is there")
    }

    #[track_caller]
    fn run(&self, line: &[&str]) -> Ended {
        self.0.run(line)
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[test]
fn options_answer_the_questions() {
    let user = Newcomer::new();
    let notes = user.0.root.path().canonicalize().expect("it is there").join("my notes");
    fs::create_dir(&notes).expect("a folder is made");
    let told = user
        .run(&[
            "init",
            "--folder",
            ".",
            "--folder",
            "~/my notes",
            "--write",
            "yes",
            "--network",
            "no",
        ])
        .ends(0)
        .stdout;
    assert!(told.contains("toolhold call list_directory\n") && !told.contains("network"), "{told}");
    assert_eq!((mode(&user.file()), mode(user.file().parent().expect("a folder"))), (0o600, 0o700));
    assert_eq!(mode(&user.0.root.path().join("data/plugins")), 0o700);
    assert!(user.text().contains(&format!("{notes:?}")), "{}", user.text());
    user.run(&["config", "check"]).ends(0);
    user.run(&["tools"]).ends(0);
    user.run(&["call", "list_directory"]).ends(0);
    user.run(&["call", "write", &format!("path={}", notes.join("a").display()), "content=x"])
        .ends(0);
    assert_eq!(fs::read_to_string(notes.join("a")).expect("it is there"), "x");
    assert_eq!(
        fs::read_dir(user.file().parent().expect("a folder")).expect("it is there").count(),
        1,
        "nothing is left behind"
    );
}

#[test]
fn always_rule_fits_into_the_file_that_init_wrote() {
    let user = Newcomer::new();
    user.run(&["init", "--write", "no"]).ends(0);
    let call = ["call", "write", "path=notes.txt", "content=x"];
    user.run(&call).ends(3);
    user.run(&["approvals", "allow", &only_question(&user.0), "--always"]).ends(0);
    user.run(&call).ends(0);
    user.run(&call).ends(0);
    user.run(&["call", "write", "path=other.txt", "content=x"]).ends(3);
}

#[test]
fn declining_writes_in_init_makes_them_ask() {
    let user = Newcomer::new();
    let told = user.run(&["init", "--write", "no"]).ends(0).stdout;
    assert!(told.contains("asks you first"), "{told}");
    user.run(&["call", "read", "path=notes.txt"]).ends(0);
    let refused = user.run(&["call", "write", "path=notes.txt", "content=x"]).ends(3).stderr;
    assert!(refused.contains("confirmation_required"), "{refused}");
    assert_eq!(
        fs::read_to_string(user.0.work().join("notes.txt")).expect("it is there"),
        "first\nsecond\n"
    );
}

#[test]
fn allowing_the_network_in_init_holds_for_commands() {
    let user = Newcomer::new();
    let told = user.run(&["init", "--network", "yes"]).ends(0).stdout;
    assert!(told.contains("Commands may use the network without asking"), "{told}");
    assert!(user.text().contains("network = \"allow\""), "{}", user.text());
    let shown = user.run(&["config", "show", "--json"]).ends(0).stdout;
    assert!(shown.contains("tools.shell.network"), "{shown}");
}

#[test]
fn init_takes_toolchains_and_clients_and_gives_them_back() {
    let user = Newcomer::new();
    let home = user.0.root.path();
    for folder in [".cargo/registry", ".rustup", ".cursor"] {
        fs::create_dir_all(home.join(folder)).expect("a folder is made");
    }
    let init = ["init", "--write", "yes"];
    let told = user.run(&init).ends(0).stdout;
    assert!(told.contains("notes.txt"), "a test call is shown: {told}");
    assert!(!user.text().contains("presets"), "nothing is granted unasked: {}", user.text());
    user.run(&["init", "--undo", "--yes"]).ends(0);

    let more = ["--presets", "yes", "--connect", "cursor"];
    user.run(&[&init[..], &more].concat()).ends(0);
    assert!(user.text().contains("presets = [\"cargo\"]"), "{}", user.text());
    user.run(&["config", "check"]).ends(0);
    let client = home.join(".cursor/mcp.json");
    assert!(fs::read_to_string(&client).expect("it is written").contains("serve"));

    // Without a terminal or --yes, and after an edit, everything stays.
    user.run(&["init", "--undo"]).ends(3);
    let text = user.text();
    fs::write(user.file(), format!("{text}# mine\n")).expect("a file is written");
    let refused = user.run(&["init", "--undo", "--yes"]).ends(2).stderr;
    assert!(refused.contains(&user.file().display().to_string()), "{refused}");
    assert!(user.file().exists() && client.exists());

    fs::write(user.file(), text).expect("a file is written");
    user.run(&["init", "--undo", "--yes"]).ends(0);
    assert!(!user.file().exists() && !client.exists() && home.join(".cursor").exists());
    let again = user.run(&["init", "--undo", "--yes"]).ends(0).stderr;
    assert!(again.contains("nothing to take back"), "{again}");
}

#[test]
fn init_asks_about_toolchains_and_clients_at_a_terminal() {
    let user = Newcomer::new();
    let home = user.0.root.path();
    for folder in [".pyenv", ".gemini"] {
        fs::create_dir_all(home.join(folder)).expect("a folder is made");
    }
    let Some(ended) = user.0.typed(&["init"], "\n\n\n\n\ny\nn\ny\n") else { return };
    let shown = ended.ends(0).stdout;
    for part in ["of: python", "May commands use them? [Y/n]", "Connect Gemini CLI", "own tools"] {
        assert!(shown.contains(part), "{part} is missing: {shown}");
    }
    assert!(user.text().contains("presets = [\"python\"]"), "{}", user.text());
    assert!(home.join(".gemini/settings.json").exists(), "{shown}");
}

#[test]
fn init_without_a_terminal_guesses_nothing() {
    let user = Newcomer::new();
    let told = user.run(&["init"]).ends(2).stderr;
    assert!(told.contains("--folder") && told.contains("--write"), "{told}");
    for (folder, reason) in [
        ("/", "the whole machine"),
        ("none", "can't be used"),
        ("notes.txt", "isn't a folder"),
        ("/proc", "the system"),
    ] {
        let told = user.run(&["init", "--folder", folder]).ends(2).stderr;
        assert!(told.contains(reason), "{folder}: {told}");
    }
    user.run(&["init", "--write", "perhaps"]).ends(2);
    assert!(!user.file().exists() && !user.0.root.path().join("data").exists());
}

#[test]
fn existing_configuration_is_never_overwritten() {
    let user = Newcomer::new();
    let line = ["init", "--write", "yes"];
    fs::create_dir_all(user.file().parent().expect("a folder")).expect("it is made");
    fs::write(user.file(), "mine").expect("a file is written");
    let told = user.run(&line).ends(2).stderr;
    assert!(told.contains("toolhold config show"), "{told}");
    assert_eq!(user.text(), "mine");
    // Nor a link, whether it leads anywhere or not.
    fs::remove_file(user.file()).expect("it goes");
    let elsewhere = user.0.root.path().join("elsewhere.toml");
    symlink(&elsewhere, user.file()).expect("a link is made");
    user.run(&line).ends(2);
    assert!(!elsewhere.exists() && user.file().is_symlink());
}

#[test]
fn init_questions_are_asked_at_a_terminal() {
    let user = Newcomer::new();
    let Some(ended) = user.0.typed(&["init"], "/\n..\n\nn\ny\n") else { return };
    let shown = ended.ends(0).stdout;
    for part in [
        "the whole machine",
        "Path of another folder",
        "change files there without asking? [Y/n]",
        "network without asking? [y/N]",
        "asks you first",
        "Commands may use the network",
    ] {
        assert!(shown.contains(part), "{part} is missing: {shown}");
    }
    user.run(&["call", "read", "path=../secret.txt"]).ends(0);
    user.run(&["call", "write", "path=../secret.txt", "content=x"]).ends(3);
}

#[test]
fn init_does_not_take_no_for_a_folder() {
    for no in ["no", "n", "No"] {
        let user = Newcomer::new();
        fs::create_dir(user.0.work().join(no)).expect("a folder is made");
        let Some(ended) = user.0.typed(&["init"], &format!("..\n{no}\n\n\n")) else { return };
        ended.ends(0);
        assert!(!user.text().contains(&format!("work/{no}\"")), "{}", user.text());
    }
}

#[test]
fn template_is_valid_with_and_without_its_comments() {
    let user = Newcomer::new();
    let printed = user.run(&["init", "--print"]).ends(0).stdout;
    assert!(!user.file().exists());
    let before = user.run(&["config", "show", "--json"]).ends(0).json();
    fs::create_dir_all(user.file().parent().expect("a folder")).expect("it is made");
    fs::write(user.file(), &printed).expect("a file is written");
    user.run(&["config", "check"]).ends(0);
    assert_eq!(user.run(&["config", "show", "--json"]).ends(0).json()["values"], before["values"]);

    let is_key = |line: &str| line.starts_with('#') && !line.starts_with("# ") && line != "#";
    // A secret has one source and one destination: the keys exclude each other and stay comments.
    let mut of_secret = false;
    let uncommented = |line| {
        if str::starts_with(line, "#[") {
            of_secret = line.contains(".secrets.");
        }
        if is_key(line) && !of_secret { &line[1..] } else { line }
    };
    let keys: Vec<&str> = printed.lines().map(uncommented).collect();
    fs::write(user.file(), keys.join("\n")).expect("a file is written");
    user.run(&["config", "check"]).ends(0);
    let after = user.run(&["config", "show", "--json"]).ends(0).json();
    for value in before["values"].as_array().expect("there are values") {
        // The older form of `[tools.policy]` is accepted, but nobody is told to write it.
        if value["key"].as_str().is_some_and(|key| key.starts_with("tools.authorization.")) {
            continue;
        }
        let same = after["values"]
            .as_array()
            .expect("there are values")
            .iter()
            .find(|other| other["key"] == value["key"]);
        let same = same.unwrap_or_else(|| panic!("{value} is missing"));
        assert_eq!(same["value"], value["value"]);
        assert_ne!(same["source"], value["source"], "{value} is not in the template");
    }
}
