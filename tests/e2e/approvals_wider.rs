//! Approvals and rules of more calls than one: of a tool, and of every tool of a server. Each test
//! looks at the calls that the servers got.

use std::fs;

use serde_json::{Value, json};

use crate::approvals_command::{only_question, waiting};
use crate::mcp::client::{Client, LEGACY};
use crate::support::Cli;

/// Two servers with the same tools, the name of one beginning with that of the other.
struct Scene {
    cli: Cli,
}

impl Scene {
    /// `more`: lines of the configuration.
    fn new(more: &str) -> Self {
        let scene = Self { cli: Cli::asking() };
        let folder = scene.cli.root.path().canonicalize().expect("it is there").join("server");
        fs::create_dir(&folder).expect("a folder is made");
        let script = folder.join("server.py");
        fs::write(&script, include_str!("../servers/noting.py")).expect("a file is written");
        let mut servers = String::new();
        for name in ["git", "git-evil"] {
            servers += &format!(
                "[mcp.servers.{name}]\ncommand = \"/usr/bin/python3\"\n\
                 args = [{script:?}, {name:?}, {:?}]\nallowed_paths = [{folder:?}]\n",
                folder.join("notes")
            );
        }
        scene.cli.configure(&format!("{servers}{more}"));
        scene.cli.run(&["mcp", "approve", "git", "--yes"]).ends(0);
        scene.cli.run(&["mcp", "approve", "git-evil", "--yes"]).ends(0);
        scene
    }

    /// The calls that the servers got.
    fn noted(&self) -> String {
        let notes = self.cli.root.path().join("server/notes");
        fs::read_to_string(notes).unwrap_or_default()
    }

    /// Makes a call and checks whether it runs, by its effect.
    #[track_caller]
    fn check(&self, tool: &str, arguments: &[&str], runs: bool) {
        let before = self.noted().lines().count();
        let ended = self.cli.run(&[&["call", tool], arguments].concat());
        assert_eq!(ended.code, if runs { 0 } else { 3 }, "{tool}: {}", ended.stderr);
        assert_eq!(self.noted().lines().count() - before, usize::from(runs), "{tool}");
    }

    /// Makes a call that needs approval, and answers its question.
    fn approve(&self, tool: &str, flags: &[&str]) -> String {
        self.check(tool, &["x=1"], false);
        let id = only_question(&self.cli);
        self.cli.run(&[&["approvals", "allow", &id], flags].concat()).ends(0).stdout
    }

    /// Checks that a rule or an approval for `git` gave nothing to what is not `git`'s.
    #[track_caller]
    fn check_others(&self) {
        self.check("git-evil__status", &[], false);
        self.check("git__reset", &[], false);
        self.cli.run(&["call", "write", "path=notes.txt", "content=x"]).ends(3);
        self.cli.run(&["call", "bash", "shutdown now"]).ends(3);
        let notes = fs::read_to_string(self.cli.work().join("notes.txt")).expect("it is there");
        assert_eq!(notes, "first\nsecond\n");
    }

    fn configuration(&self) -> String {
        let file = self.cli.root.path().join("config/toolhold.toml");
        fs::read_to_string(file).expect("it is there")
    }
}

const ALLOW_GIT: &str = "[[tools.permissions.\"git__*\"]]\npattern = \"*\"\naction = \"allow\"\n";

#[test]
fn glob_allows_the_tools_of_its_server_and_no_other() {
    let scene = Scene::new(ALLOW_GIT);
    scene.check("git__status", &[], true);
    scene.check("git__commit", &["x=2"], true);
    scene.check_others();
}

#[test]
fn strictest_answer_of_a_name_and_a_glob_applies() {
    let deny = "[[tools.permissions.\"git__c*\"]]\npattern = \"*\"\naction = \"deny\"\n\
                [[tools.permissions.git__commit]]\npattern = \"*\"\naction = \"allow\"\n";
    let scene = Scene::new(&format!("{ALLOW_GIT}{deny}"));
    scene.check("git__status", &[], true);
    let refused = scene.cli.run(&["call", "git__commit"]).ends(3).stderr;
    assert!(refused.contains("[tools.permissions.\"git__c*\"]"), "{refused}");
    let checked = scene.cli.run(&["policy", "check", "git__status"]).ends(0).stdout;
    assert!(checked.contains("[tools.permissions.\"git__*\"] in "), "{checked}");
    assert_eq!(scene.noted(), "git status\n");
}

#[test]
fn destructive_tool_is_allowed_by_its_full_name_only() {
    let named = "[[tools.permissions.git__reset]]\npattern = \"*\"\naction = \"allow\"\n";
    Scene::new(named).check("git__reset", &[], true);

    let scene = Scene::new("");
    scene.check("git__reset", &["x=1"], false);
    let question = waiting(&scene.cli).remove(0);
    assert_eq!(question["question"]["wider"], Value::Null, "{question}");
    let rule = &question["question"]["always"]["writes"];
    assert_eq!(rule["is_glob"], false, "{rule}");
    let id = question["id"].as_str().expect("it has a name");
    let line = ["approvals", "allow", id, "--session", "--all"];
    scene.cli.run(&line).ends(2);
    scene.check("git__reset", &["x=1"], false);
}

#[test]
fn session_approval_of_a_tool_covers_its_calls_only() {
    let scene = Scene::new("");
    scene.approve("git__status", &["--session", "--tool"]);
    scene.check("git__status", &["x=1"], true);
    scene.check("git__status", &["x=2"], true);
    scene.check("git__commit", &[], false);
    scene.check("git__status", &["x=2", "--session", "other"], false);
    scene.check_others();
}

#[test]
fn session_approval_of_a_server_covers_its_tools_only() {
    let scene = Scene::new("");
    scene.approve("git__status", &["--session", "--all"]);
    scene.check("git__status", &["x=1"], true);
    scene.check("git__commit", &["x=2"], true);
    scene.check("git__commit", &["--session", "other"], false);
    scene.check_others();
}

#[test]
fn session_approval_ends_where_another_rule_asks() {
    let scene = Scene::new("");
    scene.approve("git__status", &["--session", "--all"]);
    scene.check("git__status", &["x=1"], true);
    let asks = "[[tools.permissions.git__commit]]\npattern = \"*secret*\"\naction = \"ask\"\n";
    scene.cli.configure(&format!("{}{asks}", scene.configuration()));
    scene.check("git__commit", &["x=2"], true);
    scene.check("git__commit", &["x=secret"], false);
}

#[test]
fn always_writes_a_rule_for_the_tool_or_for_the_server() {
    let scene = Scene::new("");
    let before = scene.configuration();
    scene.approve("git__status", &["--always"]);
    let rule = "[[tools.permissions.git__status]]\npattern = \"*\"\naction = \"allow\"\n";
    assert_eq!(scene.configuration(), format!("{before}\n{rule}"));
    scene.check("git__status", &["x=2"], true);
    scene.check("git__commit", &[], false);

    let scene = Scene::new("");
    let before = scene.configuration();
    let said = scene.approve("git__status", &["--always", "--all"]);
    assert!(said.contains(ALLOW_GIT), "{said}");
    assert!(said.contains("except tools that say that they may destroy something"), "{said}");
    assert_eq!(scene.configuration(), format!("{before}\n{ALLOW_GIT}"));
    scene.check("git__commit", &["x=2"], true);
    scene.check_others();
}

#[test]
fn rule_for_every_call_leaves_the_denials_of_its_tool() {
    let denies = "[[tools.permissions.git__commit]]\npattern = \"*secret*\"\naction = \"deny\"\n";
    let scene = Scene::new(denies);
    scene.approve("git__commit", &["--always", "--tool"]);
    scene.check("git__commit", &["x=2"], true);
    scene.check("git__commit", &["x=secret"], false);

    let scene = Scene::new(denies);
    scene.cli.run(&["allow", "--tool", "git__commit"]).ends(0);
    scene.check("git__commit", &["x=2"], true);
    scene.check("git__commit", &["x=secret"], false);
}

#[test]
fn wider_answers_at_a_terminal() {
    let scene = Scene::new("");
    let Some(said) = scene.cli.typed(&["call", "git__status"], "session all\n") else { return };
    let wider = "`session all` or `always all` allows every tool of git, except tools that say \
                 that they may destroy something";
    assert!(said.stdout.contains(wider), "{}", said.stdout);
    let grants = "the tool can use everything that git was granted";
    assert!(said.stdout.contains(grants), "{}", said.stdout);
    said.ends(0);
    scene.check("git__commit", &["x=2"], true);
    scene.check_others();
}

#[test]
fn form_offers_the_tool_and_the_server_for_the_session() {
    let scene = Scene::new("");
    let mut client = Client::new(&scene.cli, &[], LEGACY, true);
    let choose = |choice: &str| json!({ "action": "accept", "content": { "answer": choice } });
    let call = |tool: &str| json!({ "name": tool, "arguments": {} });

    let id = client.ask("tools/call", call("git__status"));
    let form = client.user_says(&choose("all"));
    let choices = &form["requestedSchema"]["properties"]["answer"]["oneOf"];
    let choices = choices.as_array().expect("there are choices").iter();
    let choices: Vec<_> =
        choices.map(|choice| choice["const"].as_str().unwrap_or_default()).collect();
    assert_eq!(choices, ["once", "session", "tool", "all", "no"], "{form}");
    assert_eq!(client.answer(id)["isError"], false);
    assert_eq!(client.call("git__commit", json!({}))["isError"], false);

    // A choice that isn't offered approves nothing, and neither does one for another server.
    for tool in ["git__reset", "git-evil__status"] {
        let id = client.ask("tools/call", call(tool));
        client.user_says(&choose(if tool == "git__reset" { "all" } else { "always" }));
        assert_eq!(client.answer(id)["isError"], true, "{tool}");
    }
    assert_eq!(scene.noted(), "git status\ngit commit\n");
}

#[test]
fn name_with_a_wildcard_needs_a_plugin_or_server() {
    for name in ["*", "git*", "*__status", "b?sh"] {
        let cli = Cli::asking();
        cli.configure(&format!(
            "[[tools.permissions.\"{name}\"]]\npattern = \"*\"\naction = \"allow\"\n"
        ));
        let refused = cli.run(&["call", "write", "path=notes.txt", "content=x"]).ends(4).stderr;
        assert!(refused.contains("write a name before the wildcard"), "{refused}");
        let notes = fs::read_to_string(cli.work().join("notes.txt")).expect("it is there");
        assert_eq!(notes, "first\nsecond\n");
    }
}

#[test]
fn allow_writes_the_rule_of_a_glob() {
    let scene = Scene::new("");
    let before = scene.configuration();
    let said = scene.cli.run(&["allow", "--tool", "git__*"]).ends(0).stdout;
    assert!(said.contains("may destroy something still need approval"), "{said}");
    assert_eq!(scene.configuration(), format!("{before}\n{ALLOW_GIT}"));
    scene.check("git__commit", &[], true);
    scene.check_others();
    let checked = scene.cli.run(&["policy", "check", "git__reset"]).ends(3).stdout;
    assert!(checked.contains("`toolhold allow --tool git__reset`"), "{checked}");
    for name in ["bash", "*", "*__status"] {
        scene.cli.run(&["allow", "--tool", name]).ends(2);
    }
    assert_eq!(scene.configuration(), format!("{before}\n{ALLOW_GIT}"));
}

#[test]
fn suggested_rule_is_a_pattern_that_a_person_would_write() {
    let cli = Cli::asking();
    cli.configure("");
    fs::create_dir(cli.work().join("src")).expect("a folder is made");
    let work = cli.work();
    let suggests = |line: &[&str], pattern: &str, is_glob: bool| {
        cli.run(&[&["call"], line].concat()).ends(3);
        let question = waiting(&cli).pop().expect("it waits");
        let rule = &question["question"]["always"]["writes"];
        assert_eq!((&rule["pattern"], &rule["is_glob"]), (&json!(pattern), &json!(is_glob)));
        let id = question["id"].as_str().expect("it has a name");
        cli.run(&["approvals", "deny", id]).ends(0);
        cli.run(&[&["call"], line].concat()).ends(3);
    };
    let write = |path: &str| format!("path={path}");
    // A pattern for the folder would also allow files that other programs run or obey later.
    let file = work.join("src/a.rs");
    let file = file.to_str().expect("it is UTF-8");
    suggests(&["write", &write("src/a.rs"), "content=x"], file, false);
    suggests(&["bash", "git status --short"], "git status *", true);
    suggests(&["bash", "git status"], "git status", false);
    suggests(&["bash", "git branch"], "git branch", false);
}
