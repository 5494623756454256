//! What commands changed comes back, whatever program changed it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::json;
use toolhold_core::undo::{self, UndoStore};

use super::state;
use crate::shell::{call, scene, there_is};
use crate::support::{Scene, unasked};

/// The saved changes of a scene's calls.
pub(crate) fn store(scene: &Scene) -> UndoStore {
    let folders = toolhold_core::config::Folders::inside(&scene.root().join("toolhold"));
    undo::store(&unasked(&folders), &folders)
}

fn fill(root: &Path) {
    let granted = root.join("granted");
    for folder in ["a", "a/b", "c"] {
        fs::create_dir(granted.join(folder)).expect("a folder is made");
    }
    for (file, content) in [
        ("a/one.txt", "one\nline two\n"),
        ("a/b/two.txt", "two\n"),
        ("c/three.sh", "#!/bin/sh\necho three\n"),
        ("four.txt", ""),
    ] {
        fs::write(granted.join(file), content).expect("a file is written");
    }
    let script = granted.join("c/three.sh");
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).expect("the mode is set");
    std::os::unix::fs::symlink("a/one.txt", granted.join("link")).expect("a link is made");
}

/// Ways to a file that don't name it plainly. Each changes `a/one.txt`, or fails.
const WAYS: &[(&str, &str)] = &[
    ("bash", "cd a/b && echo x > ../one.txt"),
    ("bash", "echo x > link"),
    ("bash", "ln -s ../a/one.txt c/l2 && ln -s l2 c/l3 && echo x > c/l3"),
    ("bash", "ln -s a d && echo x > d/one.txt"),
    ("bash", "echo x > ./a/../a/./one.txt"),
    ("bash", "echo x > /proc/self/cwd/a/one.txt"),
    ("bash", "ln -s /proc/self/cwd/a d; echo x > d/one.txt"),
    ("bash", "ln -s /proc/self/cwd/a/one.txt d; echo x > d"),
    ("bash", "exec 3< a/one.txt; echo x > /proc/self/fd/3"),
    ("bash", "exec 3<> a/one.txt; echo x >&3; echo y > /dev/fd/3"),
    ("bash", "sleep 5 < a/one.txt & echo x > /proc/$!/fd/0; kill $!"),
    (
        "python3",
        "/usr/bin/python3 -c \"import os; d = os.open('a', os.O_RDONLY); f = os.open('one.txt', os.O_WRONLY | os.O_TRUNC, dir_fd=d); os.write(f, b'x')\"",
    ),
    (
        "python3",
        "/usr/bin/python3 -c \"import os; d = os.open('a', os.O_RDONLY); os.rename('one.txt', 'z', src_dir_fd=d); os.unlink('z', dir_fd=d)\"",
    ),
    (
        "python3",
        "/usr/bin/python3 -c \"import os; f = os.open('a/one.txt', os.O_RDONLY); os.fchmod(f, 0o600); os.utime(f, (1, 1))\"",
    ),
    ("python3", "/usr/bin/python3 -c \"import os; os.truncate('a/one.txt', 1)\""),
    (
        "python3",
        "/usr/bin/python3 -c \"import os; f = os.open('.', os.O_TMPFILE | os.O_RDWR); os.write(f, b'x'); os.link('/proc/self/fd/' + str(f), 'a/named', follow_symlinks=True)\"",
    ),
    (
        "python3",
        "/usr/bin/python3 -c \"import ctypes; ctypes.CDLL(None).renameat2(-100, b'a/one.txt', -100, b'four.txt', 2)\"; echo x > a/one.txt",
    ),
    (
        "python3",
        "/usr/bin/python3 -c \"import threading; t = [threading.Thread(target=lambda i=i: open('a/one.txt', 'a').write(str(i))) for i in range(20)]; [x.start() for x in t]; [x.join() for x in t]\"",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn undo_restores_a_file_that_was_changed_in_an_unusual_way() {
    let scene = scene(&["tools.autonomy=full"], fill).await;
    let store = store(&scene);
    for (program, line) in WAYS {
        if !there_is(program) {
            continue;
        }
        let before = state(&scene.granted);
        let answer = call(&scene.host, json!({ "command": line })).await;
        assert!(crate::shell::ran(&answer).is_some(), "{line}: {:?}", answer.outcome);
        if state(&scene.granted) != before {
            let plan = store.undo(&answer.id.0);
            assert!(plan.is_ok(), "{line}: {}", plan.expect_err("it failed"));
        }
        assert_eq!(state(&scene.granted), before, "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn command_writes_below_its_own_folders_in_proc_and_undo_restores_it() {
    let scene = scene(&["tools.autonomy=full"], fill).await;
    let store = store(&scene);
    let name = OsStr::from_bytes(b"a/\xff");
    fs::write(scene.granted.join(name), "old").expect("a file is written");
    let lines = [
        "echo new > /proc/self/cwd/a/one.txt && cat a/one.txt",
        "cd a && echo new > /proc/thread-self/cwd/../a/./one.txt && cat one.txt",
        "echo new > /proc/self/root/$PWD/a/one.txt && cat a/one.txt",
        "exec 3< a; echo new > /proc/self/fd/3/one.txt && cat a/one.txt",
        "echo new > /proc/self/cwd/made && cat made",
        "rm /proc/self/cwd/a/one.txt && test ! -e a/one.txt && echo new",
        "f=$(printf '/proc/self/cwd/a/\\377'); echo new > \"$f\" && cat \"$f\"",
    ];
    let before = state(&scene.granted);
    for line in lines {
        let answer = call(&scene.host, json!({ "command": line })).await;
        let ran = crate::shell::ran(&answer).expect("it ran");
        assert_eq!(ran.stdout, "new\n", "{line}: {ran:?}");
        assert_ne!(state(&scene.granted), before, "{line}");
        store.undo(&answer.id.0).expect("it is undone");
        assert_eq!(state(&scene.granted), before, "{line}");
    }
    // Not that of another process.
    let line = "echo new > /proc/$$/cwd/a/one.txt";
    let answer = call(&scene.host, json!({ "command": line })).await;
    assert!(crate::shell::ran(&answer).expect("it ran").stderr.contains("denied"));
    assert_eq!(state(&scene.granted), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn undo_leaves_what_the_command_couldn_t_reach() {
    let scene = scene(
        &[
            "tools.autonomy=full",
            "tools.file.deny_read=[\"**/.env\"]",
            "tools.file.deny_write=[\"c\"]",
        ],
        |root| {
            fill(root);
            fs::write(root.join("granted/.env"), "SECRET=1").expect("a file is written");
        },
    )
    .await;
    let before = state(&scene.granted);
    // The command's own `/tmp`, a covered file and a frozen folder are other objects than the
    // host's.
    let mark = std::env::temp_dir().join(format!("toolhold-undo-{}", std::process::id()));
    fs::write(&mark, "outside").expect("a file is written");
    let line = format!(
        "echo mine > {0}; cat {0}; rm {0}; echo x > .env; rm -f .env; mv .env e2; echo x > c/three.sh; echo new > four.txt; true",
        mark.display()
    );
    let answer = call(&scene.host, json!({ "command": line })).await;
    let ran = crate::shell::ran(&answer).expect("it ran");
    assert_eq!(ran.stdout, "mine\n", "{ran:?}");
    let plan = store(&scene).undo(&answer.id.0).expect("it is undone");
    let paths: Vec<_> = plan.changes.iter().map(|change| change.path.clone()).collect();
    assert_eq!(paths, [scene.granted.join("four.txt")]);
    assert_eq!(state(&scene.granted), before);
    assert_eq!(fs::read_to_string(&mark).expect("it is there"), "outside");
    fs::remove_file(&mark).expect("it is removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_that_a_command_can_t_write_are_neither_saved_nor_restored() {
    let scene = scene(&["tools.autonomy=full"], fill).await;
    let before = state(&scene.granted);
    // Top-level directories, their parent, and files on read-only mounts of the command's view.
    let line = "rm a/one.txt; mkdir -p /usr/local/x /etc/x; mkdir /usr; mv /usr /u; touch / . /usr/bin/env; chmod 600 /usr/bin/env /etc/hosts; rm -f /etc/hostname; true";
    let answer = call(&scene.host, json!({ "command": line })).await;
    let snapshot = answer.snapshot.expect("something is saved");
    assert_eq!((snapshot.bytes, snapshot.lost), ("one\nline two\n".len() as u64, 0));
    let plan = store(&scene).undo(&answer.id.0).expect("it is undone");
    assert!(plan.changes.iter().all(|it| it.path.starts_with(&scene.granted)), "{plan:?}");
    assert_eq!(state(&scene.granted), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn undo_says_what_was_too_large_to_save() {
    let scene = scene(&["tools.autonomy=full", "tools.undo.call_mib=1"], |root| {
        fs::write(root.join("granted/large"), vec![7; 2 << 20]).expect("a file is written");
    })
    .await;
    let store = store(&scene);
    let answer = call(&scene.host, json!({ "command": "rm large; rm -f public.txt" })).await;
    let refused = store.undo(&answer.id.0).expect_err("it can't be undone").to_string();
    assert!(refused.contains("large") && refused.contains("1 MiB"), "{refused}");
    assert!(scene.granted.join("public.txt").exists(), "all others are restored");
}

/// In a private directory, a command may rename what it makes there.
#[tokio::test(flavor = "multi_thread")]
async fn undo_restores_a_file_if_the_command_tried_to_move_what_is_around_its_tree() {
    let scene = scene(&["tools.autonomy=full"], fill).await;
    let before = state(&scene.granted);
    let root = scene.root().display().to_string();
    let line = format!(
        "cd /; mv {root} {root}-moved; for folder in {root} {root}-moved; do echo x > $folder/granted/a/one.txt; done; true"
    );
    let answer = call(&scene.host, json!({ "command": line })).await;
    assert_ne!(state(&scene.granted), before, "it was written: {answer:?}");
    store(&scene).undo(&answer.id.0).expect("it is undone");
    assert_eq!(state(&scene.granted), before);
}

/// As cargo, pytest and ruff make theirs.
#[tokio::test(flavor = "multi_thread")]
async fn cache_that_a_call_made_goes_with_it() {
    let scene = scene(&["tools.autonomy=full"], |_| {}).await;
    let store = store(&scene);
    let tag = "echo 'Signature: 8a477f597d28d172789f06886806bc55' >";
    for (line, cache) in [
        (
            format!(
                "mkdir tXYZ; {tag} tXYZ/CACHEDIR.TAG; mkdir tXYZ/a; mv tXYZ target; echo x > target/built; mkdir target/n; mv target/n target/m"
            ),
            "target",
        ),
        (
            format!(
                "mkdir .ruff_cache; echo x > .ruff_cache/built; {tag} .ruff_cache/CACHEDIR.TAG; echo x > .ruff_cache/y; mv .ruff_cache/y .ruff_cache/z"
            ),
            ".ruff_cache",
        ),
        (
            format!(
                "mkdir -p new/t; {tag} new/t/CACHEDIR.TAG; mv new/t new/target; echo x > new/target/built; echo x > new/src"
            ),
            "new/target",
        ),
    ] {
        let before = state(&scene.granted);
        let line = format!("{line}; echo x > other.txt");
        let answer = call(&scene.host, json!({ "command": line })).await;
        // The cache is of this session, so a later change in it is saved and undone as any other.
        let later = format!("echo y > {cache}/built; mkdir {cache}/more; echo y > {cache}/more/x");
        let later = call(&scene.host, json!({ "command": later })).await;
        assert!(scene.granted.join(cache).join("more/x").exists(), "{line}");
        for id in [&later.id.0, &answer.id.0] {
            store.undo(id).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        assert_eq!(state(&scene.granted), before, "{line}");
    }
}

/// A tag, a name or a move that a call makes passes nothing off as a cache.
#[tokio::test(flavor = "multi_thread")]
async fn folder_that_a_call_passes_off_as_a_cache_is_saved() {
    let tag = "echo 'Signature: 8a477f597d28d172789f06886806bc55' >";
    for line in [
        format!("{tag} src/CACHEDIR.TAG; mv src .tox; rm .tox/main .tox/CACHEDIR.TAG; mv .tox src"),
        format!(
            "mv src .tox; {tag} .tox/CACHEDIR.TAG; rm .tox/main .tox/CACHEDIR.TAG; mv .tox src"
        ),
        format!("{tag} target/CACHEDIR.TAG; rm target/main target/CACHEDIR.TAG"),
        format!("mkdir n; {tag} n/CACHEDIR.TAG; mv n target; rm -rf target/*"),
        format!("mkdir n; {tag} n/CACHEDIR.TAG; mv -T n target; rm -rf n; echo lost > target/main"),
        format!(
            "mv src .nox; mkdir n; {tag} n/CACHEDIR.TAG; mv n .nox; rm -rf .nox/*; mv .nox src"
        ),
        format!("mv src s2; {tag} s2/CACHEDIR.TAG; mv s2 .tox; rm -rf .tox/main"),
        format!("mv src p; mkdir q; mv p q/target; {tag} q/target/CACHEDIR.TAG; mv q r; rm -r r"),
        "mv src .ruff_cache/src; rm -rf .ruff_cache/src".to_owned(),
        "mv src .ruff_cache/src; echo lost > .ruff_cache/src/main".to_owned(),
        "mv .ruff_cache old; rm -r old".to_owned(),
        "mv .ruff_cache/inner .github; rm -r .github".to_owned(),
        format!(
            "mv .ruff_cache old; mkdir n; {tag} n/CACHEDIR.TAG; mv n .ruff_cache; echo x > .ruff_cache/x"
        ),
        format!(
            "mv src new; mkdir -p src/target; {tag} src/target/CACHEDIR.TAG; echo x > src/target/x"
        ),
        format!(
            "rm -r src; mkdir -p src/target; {tag} src/target/CACHEDIR.TAG; mv target src/target"
        ),
        format!(
            "rm one; mkdir -p one/target; {tag} one/target/CACHEDIR.TAG; echo x > one/target/x"
        ),
        format!("rm link; mkdir -p link/.tox; {tag} link/.tox/CACHEDIR.TAG"),
        format!(
            "mkdir new; mkdir new/target; {tag} new/target/CACHEDIR.TAG; mkdir new/target/g; mv new/target/g .github"
        ),
    ] {
        let scene = scene(&["tools.autonomy=full"], |root| {
            let granted = root.join("granted");
            for folder in ["src", "target", ".ruff_cache", ".ruff_cache/inner"] {
                fs::create_dir(granted.join(folder)).expect("a folder is made");
                fs::write(granted.join(folder).join("main"), "x").expect("it is written");
            }
            let tag = "Signature: 8a477f597d28d172789f06886806bc55\n";
            fs::write(granted.join(".ruff_cache/CACHEDIR.TAG"), tag).expect("it is written");
            fs::write(granted.join("one"), "x").expect("it is written");
            symlink("one", granted.join("link")).expect("a link is made");
        })
        .await;
        let before = state(&scene.granted);
        let answer = call(&scene.host, json!({ "command": line })).await;
        assert_ne!(state(&scene.granted), before, "{answer:?}");
        let undone = store(&scene).undo(&answer.id.0);
        undone.unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(state(&scene.granted), before, "{line}");
    }
}

/// Files that are moved or linked into a cache are saved as elsewhere, over several calls.
#[tokio::test(flavor = "multi_thread")]
async fn files_that_no_call_made_in_a_cache_come_back() {
    for lines in [
        ["mv src target/src", "rm -rf target/src"],
        ["mv src target/src", "rm -rf target"],
        ["ln src/main target/main", "echo lost > target/main"],
        ["mkdir target/debug; echo x > target/debug/x", "rm target/own; rm -rf target/debug"],
        ["rm -rf target/*", "true"],
    ] {
        let scene = scene(&["tools.autonomy=full"], |root| {
            let granted = root.join("granted");
            for folder in ["src", "target", ".git"] {
                fs::create_dir(granted.join(folder)).expect("a folder is made");
            }
            fs::write(granted.join(".gitignore"), "target/\n").expect("it is written");
            let tag = "Signature: 8a477f597d28d172789f06886806bc55\n";
            fs::write(granted.join("target/CACHEDIR.TAG"), tag).expect("it is written");
            for file in ["src/main", "target/own"] {
                fs::write(granted.join(file), "precious").expect("it is written");
            }
        })
        .await;
        let before = state(&scene.granted);
        let mut calls = Vec::new();
        for line in lines {
            calls.push(call(&scene.host, json!({ "command": line })).await.id.0);
        }
        for id in calls.iter().rev() {
            let undone = store(&scene).undo(id);
            let is_empty = matches!(undone, Err(undo::UndoError::NotSaved));
            assert!(undone.is_ok() || is_empty, "{lines:?}: {undone:?}");
        }
        let after = state(&scene.granted);
        let is_lost = |path: &&std::path::PathBuf| {
            before[*path].1 != after.get(*path).map_or(Vec::new(), |there| there.1.clone())
        };
        let lost: Vec<_> = before.keys().filter(is_lost).collect();
        assert!(lost.is_empty(), "{lines:?}: {lost:?}");
    }
}

/// The mark of a cache that never answers.
#[tokio::test(flavor = "multi_thread")]
async fn fifo_as_the_mark_of_a_cache_holds_nothing_up() {
    let scene = scene(&["tools.autonomy=full", "tools.call=20"], |_| {}).await;
    let line = "mkdir a; mkfifo a/CACHEDIR.TAG; mv a target; echo x > target/x";
    let answer = call(&scene.host, json!({ "command": line })).await;
    answer.outcome.expect("it ends by itself");
    assert_eq!(fs::read_to_string(scene.granted.join("target/x")).expect("it is there"), "x\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn change_that_can_t_be_saved_is_refused_if_saving_is_required() {
    let settings =
        ["tools.autonomy=full", "tools.shell.snapshot_required=true", "tools.undo.call_mib=1"];
    let scene = scene(&settings, |root| {
        fill(root);
        fs::write(root.join("granted/large"), vec![7; 2 << 20]).expect("a file is written");
    })
    .await;
    let before = state(&scene.granted);
    let line = "rm -f large; : > large; mv four.txt large; echo x >> a/one.txt; true";
    let answer = call(&scene.host, json!({ "command": line })).await;
    let text = format!("{:?}", answer.outcome);
    assert!(text.contains("was not changed") && text.contains("call_mib"), "{text}");
    assert_eq!(fs::metadata(scene.granted.join("large")).expect("it is there").len(), 2 << 20);
    assert_eq!(fs::read_to_string(scene.granted.join("a/one.txt")).unwrap().lines().count(), 3);
    store(&scene).undo(&answer.id.0).expect("the rest is undone");
    assert_eq!(state(&scene.granted), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn command_without_a_sandbox_does_not_start_if_saving_is_required() {
    let required = ["tools.autonomy=full", "tools.shell.sandbox=off"];
    let free = scene(&required, fill).await;
    let answer = call(&free.host, json!({ "command": "rm four.txt" })).await;
    let refused = store(&free).undo(&answer.id.0).expect_err("it wasn't saved").to_string();
    assert!(refused.contains("the sandbox is disabled"), "{refused}");
    assert_eq!(answer.snapshot.map(|snapshot| snapshot.lost), Some(1));

    let required = [&required[..], &["tools.shell.snapshot_required=true"]].concat();
    let strict = scene(&required, fill).await;
    let answer = call(&strict.host, json!({ "command": "rm four.txt" })).await;
    assert!(strict.granted.join("four.txt").exists());
    let failure = answer.outcome.expect_err("it didn't start");
    assert!(failure.message.contains("which is required"), "{failure:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn scope_and_size_say_what_of_commands_is_saved() {
    let settings = [
        "tools.autonomy=full",
        "tools.shell.transaction_scope=[\"a/**\"]",
        "tools.shell.max_snapshot_bytes=10",
    ];
    let scene = scene(&settings, fill).await;
    let line = "echo new > c/new; rm four.txt; rm -r a/b; mv c/three.sh a/b.sh; mv link l2";
    let answer = call(&scene.host, json!({ "command": line })).await;
    store(&scene).undo(&answer.id.0).expect("what is in the scope is undone");
    let at = |path: &str| scene.granted.join(path);
    assert_eq!(fs::read_to_string(at("a/b/two.txt")).expect("it is back"), "two\n");
    assert!(!at("a/b.sh").exists() && !at("four.txt").exists() && at("c/new").exists());
    let answer = call(&scene.host, json!({ "command": "rm a/one.txt" })).await;
    let refused = store(&scene).undo(&answer.id.0).expect_err("it was too large").to_string();
    assert!(refused.contains("a/one.txt") && refused.contains("10 bytes"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn command_that_fails_is_undone_if_the_rules_say_so() {
    let settings = ["tools.autonomy=full", "tools.shell.auto_rollback=true"];
    let scene = scene(&settings, fill).await;
    let before = state(&scene.granted);
    let change = "rm -r a; echo x > four.txt; mkdir new";
    for code in [1, 2] {
        let line = format!("{change}; exit {code}");
        let answer = call(&scene.host, json!({ "command": line })).await;
        let text = format!("{:?}", answer.outcome);
        assert!(text.contains("its changes were undone"), "{text}");
        assert_eq!(state(&scene.granted), before, "{code}");
        assert!(store(&scene).undo(&answer.id.0).is_err(), "it is undone already");
    }
    for code in [0, 3] {
        let line = format!("{change}; exit {code}");
        let answer = call(&scene.host, json!({ "command": line })).await;
        assert!(!scene.granted.join("a").exists(), "{code}");
        store(&scene).undo(&answer.id.0).expect("a person undoes it");
        assert_eq!(state(&scene.granted), before, "{code}");
    }
    let log = scene.root().join("toolhold/data/audit/audit.jsonl");
    let log = fs::read_to_string(log).expect("the record is there");
    assert_eq!(log.matches("\"by\":\"auto_rollback\"").count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_not_saved_if_that_is_switched_off() {
    let scene = scene(&["tools.autonomy=full", "tools.shell.transactional=false"], fill).await;
    let answer = call(&scene.host, json!({ "command": "rm four.txt" })).await;
    assert_eq!(answer.snapshot, None);
    assert!(store(&scene).undo(&answer.id.0).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn undo_removes_sockets_and_pipes_that_a_command_made() {
    let scene = scene(&["tools.autonomy=full"], fill).await;
    let before = state(&scene.granted);
    let line = "mkfifo a/pipe; /usr/bin/python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('a/socket'); socket.socket(socket.AF_UNIX).bind('\\0abstract'); socket.socket().bind(('127.0.0.1', 0))\"; ls a";
    let answer = call(&scene.host, json!({ "command": line })).await;
    let ran = crate::shell::ran(&answer).expect("it ran");
    assert!(ran.stdout.contains("pipe"), "{ran:?}");
    assert!(!there_is("python3") || ran.stdout.contains("socket"), "{ran:?}");
    store(&scene).undo(&answer.id.0).expect("it is undone");
    assert_eq!(state(&scene.granted), before);
}
