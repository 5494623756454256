//! `toolhold undo`: what a call changed in files comes back, or the refusal says why not.

pub(crate) mod commands;
mod git;
mod random;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::mcp::client::{Client, LEGACY, text};
use crate::support::Cli;

/// A file, a link or a folder: its content, its mode, and its time if it isn't the top folder.
pub(crate) type Thing = (String, Vec<u8>, u32, (i64, i64));

/// Everything below a folder, by relative path.
pub(crate) fn state(folder: &Path) -> BTreeMap<PathBuf, Thing> {
    let mut all = BTreeMap::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(path) = pending.pop() {
        let metadata = fs::symlink_metadata(&path).expect("it is there");
        let kind = metadata.file_type();
        let (kind, bytes) = if kind.is_dir() {
            let entries = fs::read_dir(&path).expect("the folder is readable");
            pending.extend(entries.flatten().map(|entry| entry.path()));
            ("folder", Vec::new())
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).expect("the link is readable");
            ("link", target.into_os_string().into_encoded_bytes())
        } else if kind.is_file() {
            ("file", fs::read(&path).expect("the file is readable"))
        } else {
            // A pipe or a socket.
            ("other", Vec::new())
        };
        let relative = path.strip_prefix(folder).expect("it is below").to_owned();
        // The host itself puts names into the top folder while a command runs.
        let is_top = relative.as_os_str().is_empty();
        let time = if is_top { (0, 0) } else { (metadata.mtime(), metadata.mtime_nsec()) };
        all.insert(relative, (kind.to_owned(), bytes, metadata.mode() & 0o7777, time));
    }
    all
}

/// The calls that can be undone, the newest first.
fn listed(cli: &Cli) -> Vec<serde_json::Value> {
    let list = cli.run(&["undo", "--list", "--json"]).ends(0).json();
    list.as_array().expect("a list").clone()
}

#[test]
fn undo_restores_what_file_tools_changed() {
    let cli = Cli::new();
    let at = |path: &str| cli.work().join(path);
    fs::create_dir(at("folder")).expect("a folder is made");
    fs::write(at("folder/kept.txt"), "kept").expect("a file is written");
    fs::set_permissions(at("notes.txt"), fs::Permissions::from_mode(0o640)).expect("it is set");
    let calls: [(&str, &[&str]); 6] = [
        ("write", &["path=new/deep.txt", "content=new"]),
        ("write", &["path=notes.txt", "content=other"]),
        ("edit", &["path=notes.txt", "old_string=second", "new_string=2nd"]),
        ("delete_path", &["path=folder", "recursive=true"]),
        ("move_path", &["source=folder", "destination=elsewhere"]),
        ("copy_path", &["source=folder", "destination=copy"]),
    ];
    for (tool, arguments) in calls {
        let before = state(&cli.work());
        let line: Vec<&str> =
            ["call", "--yes", tool].into_iter().chain(arguments.iter().copied()).collect();
        cli.run(&line).ends(0);
        assert_ne!(state(&cli.work()), before, "{tool}");
        let said = cli.run(&["undo", "--yes"]).ends(0).stdout;
        assert!(said.contains(tool) && said.ends_with("Undone.\n"), "{tool}: {said}");
        assert_eq!(state(&cli.work()), before, "{tool}");
    }
    assert!(listed(&cli).iter().all(|call| call["undone"] == json!(true)));
    let list = cli.run(&["undo", "--list"]).ends(0).stdout;
    for paths in ["\n  new", "\n  notes.txt\n", "folder, folder/kept.txt"] {
        assert!(list.contains(paths), "{paths}: {list}");
    }
    // Each undo is on the record.
    let records = cli.run(&["audit", "tail", "--json", "-n", "100"]).ends(0).stdout;
    assert_eq!(records.matches("\"kind\":\"rollback\"").count(), 6, "{records}");
    cli.run(&["audit", "verify"]).ends(0);
}

#[test]
fn undo_merges_later_changes_and_refuses_what_it_can_t_merge() {
    let cli = Cli::new();
    let file = cli.work().join("notes.txt");
    let lines: String = (1..=20).map(|line| format!("line {line}\n")).collect();
    fs::write(&file, &lines).expect("a file is written");
    cli.run(&[
        "call",
        "--yes",
        "edit",
        "path=notes.txt",
        "old_string=line 3\n",
        "new_string=call\n",
    ])
    .ends(0);
    let call = listed(&cli)[0]["call"].as_str().expect("an ID").to_owned();

    // A change elsewhere in the file stays.
    let later = fs::read_to_string(&file).expect("it is there").replace("line 18", "later");
    fs::write(&file, &later).expect("it is written");
    let said = cli.run(&["undo", "--yes", &call]).ends(0).stdout;
    assert!(said.contains("merged with later changes"), "{said}");
    let now = fs::read_to_string(&file).expect("it is there");
    assert_eq!(now, lines.replace("line 18", "later"));

    // A change of the same line isn't overwritten.
    cli.run(&[
        "call",
        "--yes",
        "edit",
        "path=notes.txt",
        "old_string=line 3\n",
        "new_string=call\n",
    ])
    .ends(0);
    let later = now.replace("line 3\n", "mine\n");
    fs::write(&file, &later).expect("it is written");
    let refused = cli.run(&["undo", "--yes"]).ends(2).stderr;
    assert!(refused.contains("not restored") && refused.contains("notes.txt"), "{refused}");
    assert_eq!(fs::read_to_string(&file).expect("it is there"), later);
}

#[test]
fn undo_asks_first_and_names_what_is_missing() {
    let cli = Cli::new();
    let nothing = cli.run(&["undo"]).ends(2).stderr;
    assert!(nothing.contains("there is nothing to undo in this directory"), "{nothing}");
    assert!(nothing.contains("Changes by MCP servers can't be undone"), "{nothing}");
    let unknown = cli.run(&["undo", "--yes", "abc"]).ends(2).stderr;
    assert!(unknown.contains("`abc`") && unknown.contains("--list"), "{unknown}");

    cli.run(&["call", "--yes", "write", "path=notes.txt", "content=other"]).ends(0);
    let unasked = cli.run(&["undo"]).ends(3).stderr;
    assert!(unasked.contains("toolhold undo --yes"), "{unasked}");
    assert_eq!(fs::read_to_string(cli.work().join("notes.txt")).expect("it is there"), "other");
    if let Some(declined) = cli.typed(&["undo"], "n\n") {
        assert!(declined.stdout.contains("notes.txt: would be restored"), "{}", declined.stdout);
        assert!(declined.stdout.contains("Nothing was changed"), "{}", declined.stdout);
        assert_eq!(fs::read_to_string(cli.work().join("notes.txt")).expect("it is there"), "other");
        cli.typed(&["undo"], "y\n").expect("the terminal worked before").ends(0);
        let now = fs::read_to_string(cli.work().join("notes.txt")).expect("it is there");
        assert_eq!(now, "first\nsecond\n");
    }
}

#[test]
fn undo_of_a_session_goes_back_to_its_beginning() {
    let cli = Cli::new();
    let before = state(&cli.work());
    for content in ["one", "two", "three"] {
        let content = format!("content={content}");
        cli.run(&["call", "--yes", "write", "path=notes.txt", &content]).ends(0);
    }
    cli.run(&["call", "--yes", "delete_path", "path=notes.txt"]).ends(0);
    cli.run(&["undo", "--session", "--yes"]).ends(0);
    assert_eq!(state(&cli.work()), before);
}

#[test]
fn undo_can_be_switched_off_and_a_project_can_t_do_that() {
    let cli = Cli::new();
    fs::write(cli.work().join("toolhold.toml"), "[tools.undo]\nenabled = false\n")
        .expect("written");
    cli.run(&["call", "--yes", "write", "path=notes.txt", "content=other"]).ends(0);
    assert_eq!(listed(&cli).len(), 1);
    cli.run(&[
        "--set",
        "tools.undo.enabled=false",
        "call",
        "--yes",
        "write",
        "path=notes.txt",
        "content=x",
    ])
    .ends(0);
    assert_eq!(listed(&cli).len(), 1);
}

#[test]
fn agent_undoes_its_own_calls_and_no_others() {
    let cli = Cli::new();
    let file = cli.work().join("notes.txt");
    let before = fs::read_to_string(&file).expect("it is there");
    // Of another session.
    cli.run(&["call", "--yes", "write", "path=notes.txt", "content=person"]).ends(0);
    let others = listed(&cli)[0]["call"].as_str().expect("an ID").to_owned();
    let mut client = Client::new(&cli, &["--set", "tools.autonomy=full"], LEGACY, false);
    let refused = client.call("undo", json!({}));
    assert!(text(&refused).contains("no call left to undo"), "{refused}");
    let refused = client.call("undo", json!({ "call": others }));
    assert!(text(&refused).contains("no changes of the call"), "{refused}");
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "person");

    let first = client.call("write", json!({ "path": "notes.txt", "content": "one" }));
    let meta = &first["_meta"]["toolhold"];
    assert_eq!(meta["snapshot"]["paths"], json!(1), "{first}");
    client.call("bash", json!({ "command": "rm notes.txt" }));
    let undone = client.call("undo", json!({}));
    assert!(text(&undone).contains("Undone: bash"), "{undone}");
    assert_eq!(fs::read_to_string(&file).expect("it is back"), "one");
    let undone = client.call("undo", json!({ "call": meta["call"] }));
    assert!(text(&undone).contains("notes.txt: restored"), "{undone}");
    assert_eq!(fs::read_to_string(&file).expect("it is back"), "person");
    let records = cli.run(&["audit", "tail", "--json", "-n", "100"]).ends(0).stdout;
    assert_eq!(records.matches("\"kind\":\"rollback\"").count(), 2, "{records}");
    drop(client);
    cli.run(&["undo", "--yes", &others]).ends(0);
    assert_eq!(fs::read_to_string(&file).expect("it is back"), before);
}

#[test]
fn undo_finds_the_latest_change_in_this_directory_whoever_made_it() {
    let cli = Cli::new();
    let file = cli.work().join("notes.txt");
    let before = fs::read_to_string(&file).expect("it is there");
    let mut client = Client::new(&cli, &["--set", "tools.autonomy=full"], LEGACY, false);
    client.call("write", json!({ "path": "notes.txt", "content": "client" }));
    drop(client);
    let said = cli.run(&["undo", "--yes"]).ends(0).stdout;
    assert!(said.contains("by an MCP client"), "{said}");
    assert_eq!(fs::read_to_string(&file).expect("it is back"), before);
}

#[test]
fn undo_restores_one_path_without_its_later_change() {
    let cli = Cli::new();
    let file = cli.work().join("notes.txt");
    let before = fs::read_to_string(&file).expect("it is there");
    cli.run(&["call", "--yes", "write", "path=notes.txt", "content=call"]).ends(0);
    let call = listed(&cli)[0]["call"].as_str().expect("an ID").to_owned();
    fs::write(&file, "later").expect("it is written");
    let left = cli.run(&["undo", "--yes", &call]).ends(2);
    assert!(left.stdout.contains("-later") && left.stdout.contains("+first"), "{}", left.stdout);
    cli.run(&["undo", "--yes", &call, "--path", "notes.txt"]).ends(0);
    assert_eq!(fs::read_to_string(&file).expect("it is back"), before);
}

#[test]
fn undo_follows_no_link_that_took_a_folder_s_place() {
    let cli = Cli::new();
    let at = |path: &str| cli.work().join(path);
    fs::create_dir(at("folder")).expect("a folder is made");
    fs::write(at("folder/kept.txt"), "kept").expect("a file is written");
    let outside = tempfile::tempdir().expect("a folder");
    fs::write(outside.path().join("kept.txt"), "theirs").expect("a file is written");
    cli.run(&["call", "--yes", "write", "path=folder/kept.txt", "content=changed"]).ends(0);
    fs::rename(at("folder"), at("moved")).expect("it is moved");
    std::os::unix::fs::symlink(outside.path(), at("folder")).expect("a link is made");
    let refused = cli.run(&["undo", "--yes"]).ends(2).stderr;
    assert!(refused.contains("not restored"), "{refused}");
    let names: Vec<_> = fs::read_dir(outside.path()).expect("readable").collect();
    assert_eq!(names.len(), 1, "{names:?}");
    let theirs = fs::read_to_string(outside.path().join("kept.txt")).expect("it is there");
    assert_eq!(theirs, "theirs");
    assert_eq!(fs::read_to_string(at("moved/kept.txt")).expect("it is there"), "changed");
}
