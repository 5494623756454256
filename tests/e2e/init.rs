//! Starting the user's configuration: by a few questions, or from the template of every key.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::approvals_command::only_question;
use crate::support::{Cli, Ended};

/// A key of a provider, and a credential of a server.
const KEY: &str = "hunter2hunter";

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

    #[track_caller]
    fn run_with(&self, variables: &[(&str, &str)], line: &[&str]) -> Ended {
        let mut command = self.0.command(line);
        command.envs(variables.iter().copied());
        Ended::from_output(command.output().expect("toolhold starts"))
    }

    /// Writes a file of Cursor with a server that has a credential, and with Toolhold.
    fn use_cursor(&self) -> (PathBuf, String) {
        let file = self.0.root.path().join(".cursor/mcp.json");
        fs::create_dir(file.parent().expect("a folder")).expect("a folder is made");
        let servers = json!({
            "small": { "command": "/usr/bin/true", "env": { "API_KEY": KEY } },
            "toolhold": { "command": "/usr/bin/toolhold", "args": ["serve"] },
        });
        let text = json!({ "mcpServers": servers }).to_string();
        fs::write(&file, &text).expect("a file is written");
        (file, text)
    }

    #[track_caller]
    fn assert_nothing_is_left(&self) {
        let folder = self.0.root.path().join("config");
        assert_eq!(fs::read_dir(folder).expect("it is there").count(), 0);
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
    assert!(told.contains("need your approval"), "{told}");
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
    // Toolhold's own installation makes `.local/lib`, so this folder is no sign of Python.
    for folder in [".cargo/registry", ".rustup", ".cursor", ".local/lib"] {
        fs::create_dir_all(home.join(folder)).expect("a folder is made");
    }
    let init = ["init", "--write", "yes"];
    let told = user.run(&init).ends(0).stdout;
    assert!(told.contains("notes.txt"), "a test call is shown: {told}");
    assert!(
        told.contains("Cursor is not connected. To connect it: `toolhold connect cursor`"),
        "{told}"
    );
    assert!(!user.text().contains("presets"), "nothing is granted unasked: {}", user.text());
    user.run(&["init", "--undo", "--yes"]).ends(0);

    let more = ["--presets", "yes", "--connect", "cursor"];
    let told = user.run(&[&init[..], &more].concat()).ends(0).stdout;
    let (_, end) = told.split_once("A test call").expect("it is the last step");
    assert!(
        end.contains("Try next:")
            && end.contains("\nCursor is connected, from its next start on.\n"),
        "{told}"
    );
    assert!(user.text().contains("presets = [\"cargo\"]"), "{}", user.text());
    user.run(&["config", "check"]).ends(0);
    let client = home.join(".cursor/mcp.json");
    assert!(fs::read_to_string(&client).expect("it is written").contains("serve"));

    // Without a terminal or --yes, everything stays.
    user.run(&["init", "--undo"]).ends(3);
    assert!(user.file().exists() && client.exists());
    user.run(&["init", "--undo", "--yes"]).ends(0);
    assert!(!user.file().exists() && !client.exists() && home.join(".cursor").exists());

    // An edited file stays, and the connection is taken back.
    user.run(&[&init[..], &more].concat()).ends(0);
    let edited = format!("{}# mine\n", user.text());
    fs::write(user.file(), &edited).expect("a file is written");
    let told = user.run(&["init", "--undo", "--yes"]).ends(2).stderr;
    assert!(told.contains(&user.file().display().to_string()), "{told}");
    assert!(user.text() == edited && !client.exists());
    let again = user.run(&["init", "--undo", "--yes"]).ends(0).stderr;
    assert!(again.contains("nothing to undo"), "{again}");
}

#[test]
fn init_asks_about_toolchains_and_clients_at_a_terminal() {
    let user = Newcomer::new();
    let home = user.0.root.path();
    for folder in [".local/lib/python3.12", ".gemini"] {
        fs::create_dir_all(home.join(folder)).expect("a folder is made");
    }
    let Some(ended) = user.0.typed(&["init"], "\n\n\n\n\ny\nn\ny\n") else { return };
    let shown = ended.ends(0).stdout;
    for part in [
        "of: python",
        "May commands use these toolchains? [Y/n]",
        "Connect Gemini CLI",
        "own tools",
    ] {
        assert!(shown.contains(part), "{part} is missing: {shown}");
    }
    assert!(user.text().contains("presets = [\"python\"]"), "{}", user.text());
    assert!(home.join(".gemini/settings.json").exists(), "{shown}");
}

#[test]
fn init_writes_providers_without_their_keys_and_takes_them_back() {
    let user = Newcomer::new();
    let address = "https://models.example/v1";
    let variables =
        [("OPENAI_API_KEY", KEY), ("OPENAI_BASE_URL", address), ("GEMINI_API_KEY", KEY)];
    let unasked = ["init", "--write", "yes"];
    let undo = ["init", "--undo", "--yes"];
    user.run_with(&variables, &unasked).ends(0);
    assert!(!user.text().contains("providers"), "nothing is added unasked: {}", user.text());
    user.run(&undo).ends(0);

    let asked = [&unasked[..], &["--providers", "yes"]].concat();
    let told = user.run_with(&variables, &asked).ends(0).stdout;
    assert!(told.contains("of openai, with the key of OPENAI_API_KEY, at the address"), "{told}");
    let text = user.text();
    for line in [
        "provider = \"openai\"",
        "[providers.openai]",
        "secrets.key.env = \"OPENAI_API_KEY\"",
        "format = \"chat\"",
        "base_url = \"https://models.example/v1\"",
        "[providers.gemini]",
        "secrets.key.env = \"GEMINI_API_KEY\"",
    ] {
        assert!(text.lines().any(|written| written == line), "{line} is missing: {text}");
    }
    let record = user.0.root.path().join("data/init.json");
    let record = fs::read_to_string(record).expect("it is written");
    for shown in [&told, &text, &record] {
        assert!(!shown.contains(KEY), "{shown}");
    }
    user.run(&["config", "check"]).ends(0);
    user.run(&undo).ends(0);
    user.assert_nothing_is_left();

    // A configured provider stays the only one.
    let configured = [&asked[..], &["--set", "providers.mine.model=own"]].concat();
    user.run_with(&variables, &configured).ends(0);
    assert!(!user.text().contains("providers"), "{}", user.text());
}

#[test]
fn init_writes_one_provider_without_choosing_it() {
    let user = Newcomer::new();
    let line = ["init", "--write", "yes", "--providers", "yes"];
    user.run_with(&[("GEMINI_API_KEY", KEY)], &line).ends(0);
    assert!(user.text().contains("\n[providers.gemini]\nmodel = "), "{}", user.text());
    assert!(!user.text().contains("[agent]"), "{}", user.text());
}

#[test]
fn init_names_the_model_that_no_file_names() {
    let user = Newcomer::new();
    let line = ["init", "--write", "yes"];
    let told = user.run_with(&[("GEMINI_API_KEY", KEY)], &line).ends(0).stdout;
    assert!(told.contains("of gemini, with the key of GEMINI_API_KEY."), "{told}");
    assert!(!told.contains(KEY) && !user.text().contains("gemini"), "{told}");
}

#[test]
fn unusable_address_of_a_provider_stops_init_before_it_writes() {
    let user = Newcomer::new();
    let variables = [("OPENAI_API_KEY", KEY), ("OPENAI_BASE_URL", "nowhere")];
    let refused = user.run_with(&variables, &["init", "--write", "yes", "--providers", "yes"]);
    assert_ne!(refused.code, 0);
    assert!(refused.stderr.contains("OPENAI_BASE_URL"), "{}", refused.stderr);
    assert!(!user.file().exists());
}

#[test]
fn init_imports_servers_and_takes_them_back() {
    let user = Newcomer::new();
    let (client, before) = user.use_cursor();
    let line = ["init", "--write", "yes", "--import", "yes"];
    let undo = ["init", "--undo", "--yes"];
    let told = user.run(&line).ends(0).stdout;
    assert!(told.contains("toolhold mcp approve small") && !told.contains(KEY), "{told}");
    let text = user.text();
    let table = "\n\n[mcp.servers.small]\ncommand = \"/usr/bin/true\"\n";
    assert!(text.contains(table) && !text.contains(KEY), "{text}");
    // The line that a person may uncomment stays in its own table.
    let comment = text.find("# deny_read").expect("it is there");
    assert!(comment < text.find(table).expect("it is there"), "{text}");
    let secret = user.file().with_file_name("secrets").join("small-API_KEY");
    assert_eq!(fs::read_to_string(&secret).expect("it is there"), KEY);
    user.run(&["config", "check"]).ends(0);
    assert_eq!(fs::read_to_string(&client).expect("it is there"), before);

    // Only an edited secret isn't removed.
    fs::write(&secret, "another").expect("a file is written");
    let told = user.run(&undo).ends(2).stderr;
    assert!(told.contains("secrets/small-API_KEY"), "{told}");
    assert!(!user.file().exists() && secret.exists());

    fs::remove_file(&secret).expect("it is there");
    fs::remove_dir(secret.parent().expect("a folder")).expect("it is empty");
    user.run(&line).ends(0);
    user.run(&undo).ends(0);
    user.assert_nothing_is_left();
    assert_eq!(fs::read_to_string(&client).expect("it is there"), before);

    // A file of the user in the same folder stays.
    let own = secret.with_file_name("own");
    fs::create_dir(secret.parent().expect("a folder")).expect("a folder is made");
    fs::set_permissions(secret.parent().expect("a folder"), fs::Permissions::from_mode(0o700))
        .expect("they are set");
    fs::write(&own, "mine").expect("a file is written");
    user.run(&line).ends(0);
    user.run(&undo).ends(0);
    assert!(!user.file().exists() && !secret.exists() && own.exists());
}

#[test]
fn unreadable_file_of_a_client_stops_no_init() {
    let user = Newcomer::new();
    let (client, _) = user.use_cursor();
    fs::write(&client, "{ x").expect("a file is written");
    let ended = user.run(&["init", "--write", "yes", "--import", "yes"]).ends(0);
    assert!(ended.stderr.contains(".cursor/mcp.json: line 1"), "{}", ended.stderr);
    assert!(ended.stdout.contains("A test call"), "{}", ended.stdout);
    assert!(!user.text().contains("mcp"), "{}", user.text());
}

#[test]
fn init_asks_about_providers_and_servers_at_a_terminal() {
    let user = Newcomer::new();
    user.use_cursor();
    let key = [("GEMINI_API_KEY", KEY)];
    let Some(ended) = user.0.typed_with(&key, &["init"], "\n\n\n\n\n\ny\n") else { return };
    let shown = ended.ends(0).stdout;
    for part in [
        "gemini, with the key of GEMINI_API_KEY",
        "Add these providers with these models? [Y/n]",
        "Import the servers of Cursor?",
        "Add 1 server? [y/N]",
    ] {
        assert!(shown.contains(part), "{part} is missing: {shown}");
    }
    assert!(!shown.contains(KEY), "{shown}");
    let text = user.text();
    assert!(text.contains("[providers.gemini]") && text.contains("[mcp.servers.small]"), "{text}");
    user.run(&["init", "--undo", "--yes"]).ends(0);
    user.assert_nothing_is_left();
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
        ("/proc", "kernel's file system"),
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
        "change files in these folders without asking? [Y/n]",
        "network without asking? [y/N]",
        "need your approval",
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
