//! The sample `git` in repositories that name programs to run, and with arguments that try to be
//! options. Whether a program ran is seen by a file that it makes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::GIT;
use crate::support::{Cli, Ended};

/// A repository in the working directory, and the grants of the README.
struct Repository {
    cli: Cli,
    /// Where the programs of the repository make their files.
    ran: PathBuf,
}

impl Repository {
    fn new() -> Self {
        let cli = Cli::new();
        let component = GIT.component().expect("it needs nothing that has to be fetched");
        let grants = GIT
            .shown("toolhold.toml")
            .replace("\"git.wasm\"", &format!("{component:?}"))
            .replace("[\".\"]", &format!("[{:?}]", cli.work()));
        cli.configure(&grants);
        let ran = cli.work().join("ran");
        fs::create_dir(&ran).expect("a folder is made");
        let repository = Self { cli, ran };
        fs::create_dir(repository.folder()).expect("a folder is made");
        repository.git(&["init", "--quiet", "--initial-branch", "main"]);
        for (text, message) in [("one\n", "First"), ("one\ntwo\n", "Second")] {
            repository.write("notes.txt", text);
            repository.git(&["add", "notes.txt"]);
            repository.git(&["commit", "--quiet", "--message", message]);
        }
        repository
    }

    fn folder(&self) -> PathBuf {
        self.cli.work().join("repo")
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder().join(name), text).expect("a file is written");
    }

    /// Git as a person starts it.
    fn try_git(&self, arguments: &[&str]) -> Output {
        let mut git = Command::new("git");
        git.current_dir(self.folder()).args(arguments).env("HOME", self.cli.root.path());
        for name in ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"] {
            git.env(name, "Ada");
        }
        for name in ["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"] {
            git.env(name, "ada@example.com");
        }
        git.output().expect("git starts")
    }

    #[track_caller]
    fn git(&self, arguments: &[&str]) -> String {
        let output = self.try_git(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn start(&self, more: &[&str], tool: &str, arguments: &Value) -> Ended {
        let (tool, arguments) = (format!("git__{tool}"), arguments.to_string());
        let line = [&["call", "--json"], more, &[tool.as_str(), arguments.as_str()]].concat();
        let mut command = self.cli.command(&line);
        command.current_dir(self.folder());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        Ended::from_output(command.output().expect("toolhold starts"))
    }

    /// A call that was approved.
    fn call(&self, tool: &str, arguments: &Value) -> Value {
        self.start(&["--yes"], tool, arguments).json()
    }

    /// The names of the programs that ran since the last look.
    fn take_ran(&self) -> BTreeSet<String> {
        let names: BTreeSet<String> = fs::read_dir(&self.ran)
            .expect("the folder is there")
            .map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned())
            .collect();
        for name in &names {
            fs::remove_file(self.ran.join(name)).expect("it is removed");
        }
        names
    }

    /// A program that makes a file of this name.
    fn program(&self, name: &str) -> String {
        let path = self.cli.work().join(format!("{name}.sh"));
        let script = format!("#!/bin/sh\ntouch '{}'\n", self.ran.join(name).display());
        fs::write(&path, script).expect("a program is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is made one");
        path.display().to_string()
    }

    /// Adds to the repository's configuration.
    fn configure(&self, text: &str) {
        let path = self.folder().join(".git/config");
        let before = fs::read_to_string(&path).expect("it is there");
        fs::write(path, before + text).expect("it is written");
    }

    /// Names a program wherever git takes one and has a switch for it.
    fn turn_hostile(&self) {
        let hooks = self.cli.work().join("hooks");
        fs::create_dir(&hooks).expect("a folder is made");
        let hook = self.program("hook");
        for name in [
            "pre-commit",
            "prepare-commit-msg",
            "commit-msg",
            "post-commit",
            "post-checkout",
            "post-index-change",
            "post-rewrite",
            "reference-transaction",
            "pre-auto-gc",
            "fsmonitor-watchman",
        ] {
            fs::copy(&hook, hooks.join(name)).expect("a hook is written");
        }
        let program = |name: &str| self.program(name);
        let pager = program("pager");
        self.write(".gitattributes", "*.txt diff=own\n");
        self.configure(&format!(
            "[core]\n fsmonitor = {}\n pager = {pager}\n editor = {}\n sshCommand = {}\n askPass = {}\n hooksPath = {}\n\
             [sequence]\n editor = {}\n[pager]\n status = {pager}\n diff = {pager}\n log = {pager}\n show = {pager}\n branch = {pager}\n\
             [diff]\n external = {}\n[diff \"own\"]\n command = {}\n textconv = {}\n\
             [commit]\n gpgSign = true\n[log]\n showSignature = true\n[gpg]\n program = {}\n\
             [alias]\n status = !{alias}\n log = !{alias}\n stash = !{alias}\n\
             [credential]\n helper = !{}\n[interactive]\n diffFilter = {}\n[maintenance]\n auto = true\n[gc]\n auto = 1\n",
            program("fsmonitor"),
            program("editor"),
            program("ssh"),
            program("askpass"),
            hooks.display(),
            program("sequence"),
            program("external"),
            program("command"),
            program("textconv"),
            program("gpg"),
            program("credential"),
            program("filter"),
            alias = program("alias"),
        ));
    }

    /// Lets an object be missing that a program of the repository would bring.
    fn promise_an_object(&self) {
        let blob = self.git(&["rev-parse", "HEAD~1:notes.txt"]);
        let (folder, rest) = blob.split_at(2);
        fs::remove_file(self.folder().join(".git/objects").join(folder).join(rest))
            .expect("it is there");
        self.git(&["config", "core.repositoryFormatVersion", "1"]);
        self.configure(&format!(
            "[extensions]\n partialClone = origin\n[protocol]\n allow = always\n[protocol \"ext\"]\n allow = always\n\
             [remote \"origin\"]\n url = ext::{}\n promisor = true\n partialclonefilter = blob:none\n",
            self.program("transport"),
        ));
    }
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn no_program_of_a_repository_runs() {
    let repository = Repository::new();
    repository.write("other.md", "other\n");
    repository.git(&["add", "other.md"]);
    repository.git(&["commit", "--quiet", "--message", "Other"]);
    repository.turn_hostile();
    repository.write("notes.txt", "one\ntwo\nthree\n");
    repository.write("other.md", "changed\n");
    // They do run if git is started without the switches, or this test would show nothing.
    for arguments in
        [&["status"] as &[&str], &["diff"], &["log", "-p"], &["commit", "--all", "--message", "x"]]
    {
        let _ = repository.try_git(arguments);
    }
    let ran = repository.take_ran();
    let expected = set(&["fsmonitor", "external", "command", "textconv", "hook", "gpg"]);
    assert!(ran.is_superset(&expected), "{ran:?}");

    let notes = json!(["notes.txt"]);
    let worktree = repository.cli.work().join("tree");
    for (tool, arguments) in [
        ("status", json!({})),
        ("diff", json!({})),
        ("diff", json!({ "from": "HEAD", "paths": notes })),
        ("log", json!({ "paths": notes })),
        ("show", json!({})),
        ("branch", json!({ "all": true })),
        ("blame", json!({ "path": "notes.txt" })),
        ("stash", json!({ "action": "push", "message": "later" })),
        ("stash", json!({ "action": "list" })),
        ("stash", json!({ "action": "pop" })),
        ("add", json!({ "paths": notes })),
        ("diff", json!({ "staged": true })),
        ("commit", json!({ "message": "Third" })),
        ("checkout", json!({ "branch": "topic", "create": true })),
        ("worktree", json!({ "action": "add", "path": worktree, "branch": "tree" })),
        ("worktree", json!({ "action": "list" })),
        ("worktree", json!({ "action": "remove", "path": worktree })),
    ] {
        let answer = repository.call(tool, &arguments);
        assert!(answer["output"].is_object(), "{tool} {arguments}: {answer}");
        assert_eq!(repository.take_ran(), BTreeSet::new(), "{tool} {arguments}: {answer}");
    }
    assert_eq!(repository.git(&["log", "-1", "--format=%s %an"]), "Third Ada");
}

#[test]
fn missing_object_is_brought_by_no_program() {
    let repository = Repository::new();
    repository.promise_an_object();
    let _ = repository.try_git(&["show", "HEAD~1:notes.txt"]);
    assert_eq!(repository.take_ran(), set(&["transport"]));
    for (tool, arguments) in [
        ("show", json!({ "revision": "HEAD~1:notes.txt" })),
        ("diff", json!({ "from": "HEAD~1" })),
        ("blame", json!({ "path": "notes.txt" })),
    ] {
        let answer = repository.call(tool, &arguments);
        assert_eq!(answer["failure"]["code"], "git", "{tool}: {answer}");
        assert_eq!(repository.take_ran(), BTreeSet::new(), "{tool}: {answer}");
    }
    // Git itself takes this for a success.
    let answer = repository.call("checkout", &json!({ "branch": "HEAD~1" }));
    assert!(answer.to_string().contains("unable to read"), "{answer}");
    assert_eq!(repository.take_ran(), BTreeSet::new(), "{answer}");
}

#[test]
fn repository_with_a_program_without_a_switch_is_refused() {
    for (section, key) in [
        ("filter \"own\"", "clean"),
        ("filter \"own\"", "smudge"),
        ("filter \"a.b=c\"", "process"),
        ("merge \"own\"", "driver"),
        ("hook \"own\"", "command"),
    ] {
        let repository = Repository::new();
        let program = repository.program("program");
        repository.write(".gitattributes", "*.txt filter=own merge=own\n");
        // By a file that the configuration includes.
        repository.write("included", &format!("[{section}]\n {key} = {program}\n"));
        repository.configure("[include]\n path = ../included\n");
        repository.write("notes.txt", "other\n");
        if key == "clean" {
            repository.git(&["diff", "--stat"]);
            assert_eq!(repository.take_ran(), set(&["program"]));
        }
        for (tool, arguments) in [
            ("status", json!({})),
            ("diff", json!({})),
            ("add", json!({ "paths": ["notes.txt"] })),
            ("stash", json!({ "action": "push" })),
        ] {
            let answer = repository.call(tool, &arguments);
            assert_eq!(answer["failure"]["code"], "configured-program", "{tool}: {answer}");
            let message = answer["failure"]["message"].as_str().unwrap_or_default();
            assert!(message.contains(&format!(".{key}")), "{message}");
            assert_eq!(repository.take_ran(), BTreeSet::new(), "{tool} {section}");
        }
    }
}

/// Git goes on in a new working tree, with the configuration that holds there.
#[test]
fn program_for_another_working_tree_is_refused() {
    let included = |repository: &Repository| {
        let program = repository.program("smudge");
        format!("[filter \"own\"]\n smudge = {program}\n clean = {program}\n")
    };
    let conditional = |repository: &Repository| {
        repository.write("included", &included(repository));
        repository.configure("[includeIf \"gitdir:**/worktrees/**\"]\n path = ../included\n");
    };
    // The copy of this configuration lies elsewhere, so that its path means another file.
    let copied = |repository: &Repository| {
        repository.git(&["config", "extensions.worktreeConfig", "true"]);
        repository.write(".git/config.worktree", "[include]\n path = ../included\n");
        fs::create_dir_all(repository.folder().join(".git/worktrees")).expect("a folder is made");
        repository.write(".git/worktrees/included", &included(repository));
    };
    for prepare in [&conditional as &dyn Fn(&Repository), &copied] {
        let repository = Repository::new();
        repository.write(".gitattributes", "*.txt filter=own\n");
        repository.git(&["add", ".gitattributes"]);
        repository.git(&["commit", "--quiet", "--message", "Attributes"]);
        prepare(&repository);
        repository.git(&["worktree", "add", "--quiet", "-b", "shown", "../shown"]);
        assert_eq!(repository.take_ran(), set(&["smudge"]), "the counterpart");
        let path = repository.cli.work().join("tree");
        let add = json!({ "action": "add", "path": path, "branch": "tree" });
        let answer = repository.call("worktree", &add);
        assert_eq!(answer["failure"]["code"], "configured-program", "{answer}");
        assert!(repository.take_ran().is_empty() && !path.exists(), "{answer}");
    }

    // One that is there has a configuration of its own, and git looks for changes before it goes.
    let repository = Repository::new();
    repository.write(".gitattributes", "*.txt filter=own\n");
    repository.git(&["config", "extensions.worktreeConfig", "true"]);
    for tree in ["shown", "tree"] {
        let path = repository.cli.work().join(tree);
        repository.git(&["worktree", "add", "--quiet", "-b", tree, &path.display().to_string()]);
        fs::write(path.join(".gitattributes"), "*.txt filter=own\n").expect("it is written");
        fs::write(path.join("notes.txt"), "oneXtwo\n").expect("it is written");
        let configuration = format!(".git/worktrees/{tree}/config.worktree");
        repository.write(&configuration, &included(&repository));
    }
    let _ = repository.try_git(&["worktree", "remove", "../shown"]);
    assert_eq!(repository.take_ran(), set(&["smudge"]), "the counterpart");
    let path = repository.cli.work().join("tree");
    let answer = repository.call("worktree", &json!({ "action": "remove", "path": path }));
    assert_eq!(answer["failure"]["code"], "configured-program", "{answer}");
    assert!(repository.take_ran().is_empty() && path.exists(), "{answer}");
}

/// To see whether a submodule has changed, git starts itself there.
#[test]
fn program_of_a_submodule_is_refused() {
    let submodules = || {
        let repository = Repository::new();
        for inner in ["sub", "sub/inner"] {
            fs::create_dir(repository.folder().join(inner)).expect("a folder is made");
            let git = |arguments: &[&str]| repository.git(&[&["-C", inner], arguments].concat());
            git(&["init", "--quiet", "--initial-branch", "main"]);
            repository.write(&format!("{inner}/notes.txt"), "one\n");
            repository.write(&format!("{inner}/.gitattributes"), "*.txt filter=own\n");
            git(&["add", "notes.txt", ".gitattributes"]);
            git(&["commit", "--quiet", "--message", "Inner"]);
        }
        for (outer, inner) in [("sub", "inner"), (".", "sub")] {
            let git = |arguments: &[&str]| repository.git(&[&["-C", outer], arguments].concat());
            git(&["-c", "advice.addEmbeddedRepo=false", "add", inner]);
            git(&["commit", "--quiet", "--message", "Submodule"]);
        }
        repository.write("sub/notes.txt", "two\n");
        repository.write("sub/inner/notes.txt", "two\n");
        repository.write("notes.txt", "other\n");
        repository
    };
    for inner in ["sub", "sub/inner"] {
        let repository = submodules();
        let program = repository.program("clean");
        repository.git(&["-C", inner, "config", "filter.own.clean", &program]);
        repository.take_ran();
        for arguments in [&["add", "sub"] as &[&str], &["commit", "--all", "--dry-run"]] {
            let _ = repository.try_git(arguments);
            assert_eq!(repository.take_ran(), set(&["clean"]), "the counterpart: {arguments:?}");
        }
        let path = repository.cli.work().join("tree");
        for (tool, arguments) in [
            ("add", json!({ "paths": ["sub"] })),
            ("commit", json!({ "message": "x", "all": true })),
            ("stash", json!({ "action": "push" })),
            ("checkout", json!({ "branch": "topic", "create": true })),
            ("worktree", json!({ "action": "add", "path": path, "branch": "tree" })),
        ] {
            let answer = repository.call(tool, &arguments);
            assert_eq!(answer["failure"]["code"], "configured-program", "{tool}: {answer}");
            assert!(answer.to_string().contains(inner), "{tool}: {answer}");
            assert_eq!(repository.take_ran(), BTreeSet::new(), "{tool}: {answer}");
        }
        for (tool, arguments) in [("status", json!({})), ("diff", json!({})), ("show", json!({}))] {
            let answer = repository.call(tool, &arguments);
            assert!(answer["output"].is_object(), "{tool}: {answer}");
            assert_eq!(repository.take_ran(), BTreeSet::new(), "{tool}: {answer}");
        }
    }
    let repository = submodules();
    let arguments = json!({ "message": "x", "all": true, "repository": repository.folder() });
    let answer = repository.call("commit", &arguments);
    assert!(answer["output"].is_object(), "without a program it works: {answer}");
}

#[test]
fn arguments_are_no_options() {
    let repository = Repository::new();
    repository.write("notes.txt", "one\ntwo\nthree\n");
    repository.write("-x", "a file\n");
    let traces = |repository: &Repository| {
        let below = |folder: PathBuf| {
            let names = fs::read_dir(folder).expect("the folder is there").flatten();
            names.map(|entry| entry.file_name()).collect::<BTreeSet<_>>()
        };
        let head = repository.git(&["log", "--all", "--format=%H %D"]);
        let notes = fs::read_to_string(repository.folder().join("notes.txt"));
        (below(repository.folder()), below(repository.cli.work()), head, notes.ok())
    };
    let before = traces(&repository);
    for (tool, arguments) in [
        ("diff", json!({ "from": "--output=loot" })),
        ("diff", json!({ "from": "HEAD", "to": "--ext-diff" })),
        ("log", json!({ "revision": "--output=loot" })),
        ("log", json!({ "revision": "-S\n--output=loot" })),
        ("show", json!({ "revision": "--output=loot" })),
        ("show", json!({ "revision": "" })),
        ("blame", json!({ "path": "notes.txt", "revision": "--contents=/etc/passwd" })),
        ("blame", json!({ "path": "../../secret.txt" })),
        ("checkout", json!({ "branch": "--orphan=x" })),
        ("checkout", json!({ "branch": "-f" })),
        ("checkout", json!({ "branch": "notes.txt" })),
        ("checkout", json!({ "branch": "-B", "create": true })),
        ("worktree", json!({ "action": "add", "path": "../tree", "branch": "--detach" })),
        ("worktree", json!({ "action": "add", "path": "/tmp/toolhold-tree", "branch": "b" })),
        ("worktree", json!({ "action": "remove", "path": "." })),
        ("add", json!({ "paths": ["/etc/hostname"] })),
        ("add", json!({ "paths": [":(top)nothing"] })),
        ("commit", json!({ "message": "nothing is staged" })),
        ("commit", json!({ "message": " " })),
        ("status", json!({ "repository": "/" })),
    ] {
        let answer = repository.call(tool, &arguments);
        assert!(answer["failure"].is_object(), "{tool} {arguments}: {answer}");
        assert_eq!(traces(&repository), before, "{tool} {arguments}: {answer}");
    }
    // A file whose name looks like an option is a file.
    let added = repository.call("add", &json!({ "paths": ["-x"] }));
    assert!(added["output"].is_object(), "{added}");
    assert_eq!(repository.git(&["diff", "--cached", "--name-only"]), "-x");
}

#[test]
fn looking_asks_nobody_and_changing_does() {
    let repository = Repository::new();
    repository.write("notes.txt", "one\ntwo\nthree\n");
    let index = fs::read(repository.folder().join(".git/index")).expect("it is there");
    for (tool, arguments) in [
        ("status", json!({})),
        ("diff", json!({})),
        ("log", json!({})),
        ("show", json!({ "revision": "HEAD~1" })),
        ("branch", json!({})),
        ("blame", json!({ "path": "notes.txt" })),
    ] {
        repository.start(&[], tool, &arguments).ends(0);
    }
    assert_eq!(fs::read(repository.folder().join(".git/index")).ok(), Some(index));
    let head = repository.git(&["rev-parse", "HEAD"]);
    for (tool, arguments) in [
        ("add", json!({ "paths": ["notes.txt"] })),
        ("commit", json!({ "message": "x", "all": true })),
        ("checkout", json!({ "branch": "b", "create": true })),
        ("stash", json!({ "action": "push" })),
        ("worktree", json!({ "action": "add", "path": "../tree", "branch": "b" })),
    ] {
        let answer = repository.start(&[], tool, &arguments).json();
        assert_eq!(answer["failure"]["category"], "confirmation_required", "{tool}: {answer}");
    }
    assert_eq!(repository.git(&["rev-parse", "HEAD"]), head);
    assert_eq!(repository.git(&["branch", "--format=%(refname:short)"]), "main");
    assert!(!repository.cli.work().join("tree").exists());
}

/// The grant of the tools that look is for those alone.
#[test]
fn without_the_grant_to_change_nothing_changes() {
    let repository = Repository::new();
    let grants = fs::read_to_string(repository.cli.root.path().join("config/toolhold.toml"));
    let grants = grants.expect("it was written");
    let only: Vec<&str> = grants.lines().filter(|line| !line.contains("{add,")).collect();
    repository.cli.configure(&only.join("\n"));
    repository.write("notes.txt", "other\n");
    let status = repository.call("status", &json!({}));
    assert_eq!(status["output"]["structured"]["files"][0]["unstaged"], "modified", "{status}");
    let commit = repository.call("commit", &json!({ "message": "x", "all": true }));
    assert_eq!(commit["failure"]["category"], "policy_blocked", "{commit}");
    assert_eq!(repository.git(&["log", "--format=%s", "-1"]), "Second");
}
