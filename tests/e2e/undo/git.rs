//! Undo beside git, which notes the times of files in its index whenever it is asked for changes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::{listed, state};
use crate::support::Cli;

/// Runs git as the user does, outside of the sandbox.
fn git(folder: &Path, arguments: &[&str]) -> String {
    let done = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"])
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .expect("git starts");
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("git prints text")
}

/// Gives a file another time, so that git reads it and notes the new one.
fn touch(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + seconds);
    let file = fs::File::options().write(true).open(path).expect("it opens");
    file.set_modified(time).expect("it has a new time");
}

/// A repository with a commit, a stash, and files of another time than the index says.
fn repository(cli: &Cli, format: &str, version: &str) {
    let work = cli.work();
    git(&work, &["init", "-q", &format!("--object-format={format}")]);
    let long = "long/".repeat(30);
    fs::create_dir_all(work.join(&long)).expect("folders are made");
    fs::write(work.join(format!("{long}/file")), "deep\n").expect("it is written");
    fs::write(work.join("other.txt"), "other\n").expect("it is written");
    git(&work, &["update-index", "--index-version", version]);
    git(&work, &["add", "."]);
    git(&work, &["commit", "-qm", "first"]);
    fs::write(work.join("other.txt"), "stashed\n").expect("it is written");
    git(&work, &["stash", "-q"]);
    touch(&work.join("other.txt"), 1);
}

#[test]
fn last_edit_is_undone_though_git_noted_times_since() {
    for (format, version) in [("sha1", "2"), ("sha1", "4"), ("sha256", "2")] {
        let cli = Cli::new();
        repository(&cli, format, version);
        let (work, index) = (cli.work(), cli.work().join(".git/index"));
        let (before, old_index) = (state(&work), fs::read(&index).expect("it is there"));
        cli.run(&["call", "--yes", "write", "path=notes.txt", "content=wrong"]).ends(0);
        for (seconds, command) in [(2, "git status"), (3, "git diff")] {
            let noted = fs::read(&index).expect("it is there");
            touch(&work.join("other.txt"), seconds);
            cli.run(&["call", "bash", command]).ends(0);
            assert_ne!(fs::read(&index).expect("it is there"), noted, "{format} {command}");
        }
        // As `touch` of any program.
        cli.run(&["call", "bash", "touch -d @1000000001 other.txt"]).ends(0);
        let calls = listed(&cli);
        let times: Vec<_> = calls.iter().map(|call| call["only_times"] == true).collect();
        assert_eq!(times, [true, true, true, false], "{format} {version}: {calls:?}");

        let said = cli.run(&["undo", "--yes"]).ends(0).stdout;
        assert!(said.starts_with("write"), "{format} {version}: {said}");
        assert_eq!(git(&work, &["--no-optional-locks", "status", "--porcelain"]), "");
        let left = cli.run(&["undo", "--yes"]).ends(2).stderr;
        assert!(left.contains("only times"), "{left}");
        // What git noted is saved too.
        for call in &calls[..3] {
            let call = call["call"].as_str().expect("an ID");
            cli.run(&["undo", "--yes", call]).ends(0);
        }
        assert_eq!(fs::read(&index).expect("it is there"), old_index);
        touch(&work.join("other.txt"), 1);
        assert_eq!(state(&work), before, "{format} {version}");
    }
}

#[test]
fn staged_change_is_undone_though_git_noted_times_since() {
    let cli = Cli::new();
    repository(&cli, "sha1", "2");
    let (work, index) = (cli.work(), cli.work().join(".git/index"));
    let history = git(&work, &["log", "--all", "--format=%H"]);
    fs::write(work.join("notes.txt"), "new\n").expect("it is written");
    let old_index = fs::read(&index).expect("it is there");
    for command in [
        "git add notes.txt",
        "git rm -q --cached other.txt",
        "git update-index --chmod=+x notes.txt",
    ] {
        cli.run(&["call", "--yes", "bash", command]).ends(0);
        assert_eq!(listed(&cli)[0]["only_times"], false, "{command}");
        // By the agent, and by the user.
        touch(&work.join("long").join("long/".repeat(29)).join("file"), 5);
        let staged = fs::read(&index).expect("it is there");
        cli.run(&["call", "bash", "git status"]).ends(0);
        touch(&work.join("long").join("long/".repeat(29)).join("file"), 6);
        git(&work, &["status"]);
        assert_ne!(fs::read(&index).expect("it is there"), staged, "{command}");

        let said = cli.run(&["undo", "--yes"]).ends(0).stdout;
        assert!(said.starts_with("bash"), "{command}: {said}");
        assert_eq!(git(&work, &["--no-optional-locks", "diff", "--cached"]), "", "{command}");
        assert_eq!(fs::read(&index).expect("it is there"), old_index, "{command}");
    }
    assert_eq!(git(&work, &["log", "--all", "--format=%H"]), history);
    // What is staged since isn't lost.
    cli.run(&["call", "--yes", "bash", "git add notes.txt"]).ends(0);
    git(&work, &["rm", "-q", "--cached", "other.txt"]);
    let staged = fs::read(&index).expect("it is there");
    let refused = cli.run(&["undo", "--yes"]).ends(2).stderr;
    assert!(refused.contains("index: the file was changed after the call"), "{refused}");
    assert_eq!(fs::read(&index).expect("it is there"), staged);
}
