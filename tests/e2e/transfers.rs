//! Creating, copying, moving and deleting on a real tree, through the host.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};
use toolhold_core::{Answer, CancellationToken, Category, Content, Events, Progress, Request};

use crate::support::{Scene, failure, not_tried, refused, run};

/// Enough time on a busy machine.
const TIME: [&str; 3] =
    ["tools.call=40", "tools.limits.cpu_secs=40", "tools.limits.written_mib=64"];

fn filled(folders: &[&str], files: &[&str]) -> impl FnOnce(&Path) {
    move |root| {
        for folder in folders {
            fs::create_dir_all(root.join("granted").join(folder)).expect("folders are made");
        }
        for file in files {
            fs::write(root.join("granted").join(file), "as it was").expect("a file is written");
        }
    }
}

/// Everything below a folder: the content of files, the targets of links.
fn everything(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(path) = pending.pop() {
        let meta = fs::symlink_metadata(&path).expect("it is there");
        let text = match () {
            () if meta.is_dir() => {
                pending.extend(
                    fs::read_dir(&path)
                        .expect("it is readable")
                        .map(|entry| entry.expect("an entry").path()),
                );
                "a folder".to_owned()
            }
            () if meta.is_symlink() => {
                fs::read_link(&path).expect("it is a link").display().to_string()
            }
            () => String::from_utf8_lossy(&fs::read(&path).expect("it is readable")).into_owned(),
        };
        all.insert(path.strip_prefix(folder).expect("it is below").to_owned(), text);
    }
    all
}

impl Scene {
    async fn delete(&self, path: &str) -> Answer {
        self.call("delete_path", json!({ "path": path, "recursive": true })).await
    }

    async fn copy(&self, source: &str, destination: &str) -> Answer {
        self.call("copy_path", json!({ "source": source, "destination": destination })).await
    }

    async fn transfer(&self, source: &str, destination: &str) -> Answer {
        self.call("move_path", json!({ "source": source, "destination": destination })).await
    }
}

#[track_caller]
fn structured(answer: &Answer) -> Value {
    let output = answer
        .outcome
        .as_ref()
        .unwrap_or_else(|failure| panic!("it works: {} {:?}", failure.message, failure.suggestion));
    output.structured.clone().expect("there is something for programs")
}

#[test]
fn tree_is_made_copied_moved_and_deleted() {
    run(async {
        let scene = Scene::new().await;
        let at = |name: &str| scene.granted.join(name);
        assert_eq!(
            structured(&scene.call("create_directory", json!({ "path": "a/b" })).await),
            json!({ "created": true })
        );
        fs::write(at("a/b/file"), "text").expect("a file is written");
        symlink("b/file", at("a/link")).expect("a link is made");
        let mode = |path: &str| fs::metadata(at(path)).expect("it is there").mode() & 0o777;
        for (path, mode) in [("a/b/file", 0o700), ("a/b", 0o750), ("a", 0o700)] {
            fs::set_permissions(at(path), fs::Permissions::from_mode(mode))
                .expect("the mode is set");
        }
        let copied = structured(&scene.copy("a", "new/c").await);
        assert_eq!(
            (&copied["files"], &copied["directories"], &copied["links"]),
            (&json!(1), &json!(2), &json!(1))
        );
        assert_eq!(everything(&at("a")), everything(&at("new/c")));
        assert_eq!(
            (mode("new/c/b/file"), mode("new/c/b"), mode("new/c")),
            (0o700, 0o750, 0o700),
            "modes are kept"
        );
        assert_eq!(
            structured(&scene.transfer("new/c", "d").await),
            json!({ "replaced": false, "copied": false })
        );
        assert_eq!(everything(&at("a")), everything(&at("d")));
        assert_eq!(structured(&scene.delete("d").await), json!({ "deleted": 4 }));
        assert!(!at("d").exists() && !at("new/c").exists() && at("a/b/file").exists());
        // Into itself, by a path that doesn't show it.
        symlink("a/b", at("round")).expect("a link is made");
        for destination in ["a/x", "round/x", "a/b/../x"] {
            for answer in
                [scene.copy("a", destination).await, scene.transfer("a", destination).await]
            {
                failure(&answer, Category::InvalidParameters, None);
            }
        }
        assert_eq!(everything(&at("a")).len(), 4, "nothing is left in there");
    });
}

#[test]
fn non_empty_directory_stays_and_the_error_says_how_to_delete_it() {
    run(async {
        let scene = Scene::with(&[], filled(&["sub"], &["sub/file"])).await;
        let answer = scene.call("delete_path", json!({ "path": "sub" })).await;
        let failure = failure(&answer, Category::PermanentFailure, Some("not-empty"));
        assert!(failure.message.contains("holds 1 entry"), "{}", failure.message);
        assert!(
            failure
                .suggestion
                .as_ref()
                .is_some_and(|suggestion| suggestion.contains("recursive=true")),
            "{:?}",
            failure.suggestion
        );
        assert!(scene.granted.join("sub/file").exists());
    });
}

#[test]
fn granted_directory_is_not_deleted_or_moved_in_any_spelling() {
    run(async {
        let scene = Scene::with(&[], filled(&["sub"], &["sub/file"])).await;
        symlink(".", scene.granted.join("self")).expect("a link is made");
        let before = everything(&scene.granted);
        let absolute = scene.granted.display().to_string();
        let spelled = [
            ".",
            "./",
            "sub/..",
            "sub/../",
            "sub/../.",
            &absolute,
            &format!("{absolute}/"),
            &format!("{absolute}/sub/.."),
        ];
        for path in spelled {
            refused(&scene.delete(path).await, "can't be moved or removed");
            refused(&scene.transfer(path, "sub/in").await, "can't be moved or removed");
        }
        for path in ["..", "../..", "/", "../granted", "../granted/.."] {
            refused(&scene.delete(path).await, "allowed_paths");
        }
        assert_eq!(everything(&scene.granted), before);
        // The link to it is only a link.
        structured(&scene.delete("self/").await);
        assert!(
            scene.granted.join("sub/file").exists()
                && fs::symlink_metadata(scene.granted.join("self")).is_err()
        );
    });
}

/// A link is deleted and moved as a link, also if it leads out, into another grant, or to a denied
/// file.
#[test]
fn transfers_act_on_a_link_and_not_on_its_target() {
    run(async {
        let settings = [
            "tools.file.allowed_paths=[\"{granted}\", \"{root}/second\"]",
            "tools.file.deny_read=[\"hidden\"]",
        ];
        let scene = Scene::with(&settings, |root| {
            filled(&["sub"], &["hidden"])(root);
            fs::create_dir_all(root.join("second/kept"))
                .and_then(|()| fs::write(root.join("second/kept/file"), "kept"))
                .expect("made");
        })
        .await;
        let second = scene.root().join("second");
        let targets = [
            second.join("kept"),
            scene.outside.clone(),
            scene.secret_file.clone(),
            "hidden".into(),
            "nowhere".into(),
            "/".into(),
        ];
        for target in &targets {
            let link = scene.granted.join("link");
            symlink(target, &link).expect("a link is made");
            structured(&scene.transfer("link", "moved").await);
            assert_eq!(
                fs::read_link(scene.granted.join("moved")).expect("it is the link"),
                *target
            );
            structured(&scene.delete("moved").await);
            assert!(fs::symlink_metadata(scene.granted.join("moved")).is_err());
            // Below a directory as well.
            symlink(target, scene.granted.join("sub/link")).expect("a link is made");
            structured(&scene.delete("sub").await);
            fs::create_dir(scene.granted.join("sub")).expect("a folder is made");
            // And replaced, without a change of its target.
            symlink(target, &link).expect("a link is made");
            let arguments =
                json!({ "source": "public.txt", "destination": "link", "overwrite": true });
            structured(&scene.call("copy_path", arguments).await);
            assert!(fs::symlink_metadata(&link).expect("it is there").is_file());
            fs::remove_file(link).expect("it is removed");
        }
        scene.assert_untouched();
        assert_eq!(fs::read_to_string(second.join("kept/file")).expect("it is there"), "kept");
        assert_eq!(
            fs::read_to_string(scene.granted.join("hidden")).expect("it is there"),
            "as it was"
        );
        // Reading goes through the link, and only where that is allowed.
        symlink(&scene.secret_file, scene.granted.join("link")).expect("a link is made");
        refused(&scene.copy("link", "copy").await, "allowed_paths");
        symlink("public.txt", scene.granted.join("good")).expect("a link is made");
        structured(&scene.copy("good", "copy").await);
        assert_eq!(fs::read_to_string(scene.granted.join("copy")).expect("it is there"), "public");
    });
}

/// All or nothing, as far as rules decide.
#[test]
fn denied_entry_below_stops_the_whole_transfer() {
    run(async {
        let settings = [
            "tools.file.deny_read=[\"**/.env\"]",
            "tools.file.deny_write=[\"**/frozen\"]",
            "tools.file.allowed_paths=[\"{granted}\", {path=\"{granted}/mixed/vendor\", access=\"read\"}]",
        ];
        let folders = ["secret/a/b", "cold/z", "mixed/vendor", "mixed/a", "config/deep"];
        let files = [
            "secret/a/b/.env",
            "secret/a/first",
            "cold/z/frozen",
            "cold/a",
            "mixed/vendor/lib",
            "mixed/a/file",
            "config/deep/toolhold.toml",
        ];
        let scene = Scene::with(&settings, filled(&folders, &files)).await;
        let before = everything(&scene.granted);
        for (folder, rule) in [
            ("secret", "deny_read"),
            ("cold", "deny_write"),
            ("mixed", "read-only grant"),
            ("config", "own files"),
        ] {
            refused(&scene.delete(folder).await, rule);
            refused(&scene.transfer(folder, "elsewhere").await, rule);
            assert_eq!(everything(&scene.granted), before, "{folder}");
        }
        // If a part may not be read, a copy would only look complete.
        let answer = scene.copy("secret", "copy").await;
        let told = &failure(&answer, Category::PermanentFailure, Some("not-permitted")).message;
        assert!(told.contains("1 entry below") && told.contains("nothing was copied"), "{told}");
        // If a part may not be written, it is refused there, and the rest is deleted.
        refused(&scene.copy("cold", "copy").await, "deny_write");
        refused(&scene.copy("config", "copy").await, "own files");
        assert_eq!(everything(&scene.granted), before);
        structured(&scene.copy("mixed", "copy").await);
        assert_eq!(
            fs::read_to_string(scene.granted.join("copy/vendor/lib")).expect("it was copied"),
            "as it was"
        );
    });
}

#[test]
fn between_file_systems_a_move_is_whole_or_not_at_all() {
    run(async {
        let Ok(other) = tempfile::tempdir_in("/dev/shm") else { return not_tried("/dev/shm") };
        let (device, folder) = (
            |path: &Path| fs::metadata(path).expect("it is there").dev(),
            other.path().display().to_string(),
        );
        let granted = format!("tools.file.allowed_paths=[\"{{granted}}\", \"{folder}\"]");
        let settings =
            [TIME[0], TIME[1], TIME[2], "tools.file.deny_read=[\"**/.env\"]", granted.as_str()];
        let scene = Scene::with(
            &settings,
            filled(
                &["tree/sub", "mixed", "linked"],
                &["tree/sub/file", "tree/a", "mixed/.env", "linked/a"],
            ),
        )
        .await;
        if device(&scene.granted) == device(other.path()) {
            return not_tried("/dev/shm");
        }
        symlink("sub/file", scene.granted.join("tree/link")).expect("a link is made");
        symlink(&scene.outside, scene.granted.join("linked/away")).expect("a link is made");
        let tree = everything(&scene.granted.join("tree"));
        let moved = structured(&scene.transfer("tree", &format!("{folder}/new/tree")).await);
        assert_eq!(moved, json!({ "replaced": false, "copied": true }));
        assert_eq!(everything(&other.path().join("new/tree")), tree);
        assert!(!scene.granted.join("tree").exists());

        let before = (everything(&scene.granted), everything(other.path()));
        refused(&scene.transfer("mixed", &format!("{folder}/mixed")).await, "deny_read");
        // A link that can't be created there stays, with everything beside it.
        let answer = scene.transfer("linked", &format!("{folder}/linked")).await;
        let failure = answer.outcome.expect_err("a part of it can't be moved");
        assert!(
            failure.message.contains("allowed_paths")
                || failure.message.contains("nothing was moved"),
            "{}",
            failure.message
        );
        assert_eq!((everything(&scene.granted), everything(other.path())), before);
    });
}

/// Cancels the call at its first progress.
struct CancelsAtOnce(CancellationToken);

impl Events for CancelsAtOnce {
    fn progress(&self, _: Progress) {
        self.0.cancel();
    }

    fn emitted(&self, _: &Content) {}
}

/// A stopped copy leaves nothing, and a stopped move leaves the original.
#[test]
fn cancelled_transfer_leaves_the_original() {
    run(async {
        let other = tempfile::tempdir_in("/dev/shm").ok();
        let folder = other
            .as_ref()
            .map_or("{granted}".to_owned(), |other| other.path().display().to_string());
        let granted = format!("tools.file.allowed_paths=[\"{{granted}}\", \"{folder}\"]");
        let scene = Scene::with(&[TIME[0], TIME[1], TIME[2], granted.as_str()], |root| {
            for number in 0..2_000 {
                let folder = root.join(format!("granted/tree/{}", number % 20));
                fs::create_dir_all(&folder)
                    .and_then(|()| fs::write(folder.join(number.to_string()), "x".repeat(1000)))
                    .expect("made");
            }
            fs::create_dir(root.join("granted/target")).expect("made");
        })
        .await;
        let before = everything(&scene.granted);
        let mut tries = vec![("copy_path", "target/copy".to_owned())];
        if let Some(other) = &other {
            tries.push(("move_path", other.path().join("moved").display().to_string()));
        }
        for (tool, destination) in tries {
            let cancel = CancellationToken::new();
            let events = Arc::new(CancelsAtOnce(cancel.clone()));
            let arguments = json!({ "source": "tree", "destination": destination });
            let answer =
                scene.host.call(Request { cancel, events, ..Request::new(tool, arguments) }).await;
            failure(&answer, Category::Cancelled, None);
            assert_eq!(everything(&scene.granted), before, "{tool}");
            if let Some(other) = &other {
                assert_eq!(everything(other.path()).len(), 1, "{tool}");
            }
        }
    });
}

#[test]
fn copy_that_is_too_large_leaves_nothing() {
    run(async {
        let scene = Scene::with(&[], |root| {
            fs::create_dir(root.join("granted/tree")).expect("made");
            for name in ["a", "b", "c"] {
                fs::write(root.join("granted/tree").join(name), "x".repeat(500_000))
                    .expect("a file is written");
            }
        })
        .await;
        let before = everything(&scene.granted);
        // A call may write 1 MiB here.
        scene.copy("tree", "copy").await.outcome.expect_err("it is more than may be written");
        assert_eq!(everything(&scene.granted), before);
    });
}

/// Swaps a directory below a tree with a link to another, again and again, while `tool` works on
/// the tree. The link's target must not change, inside the grant and outside.
async fn race(tool: &str, arguments: Value, target: &str, succeeds: bool) {
    let scene = Scene::with(&TIME, filled(&["kept"], &["kept/file", "kept/0"])).await;
    let at = |name: &str| scene.granted.join(name);
    let kept = everything(&at("kept"));
    let (end, swaps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let swapper = std::thread::spawn({
        let (end, swaps, a, b) = (Arc::clone(&end), Arc::clone(&swaps), at("tree/sub"), at("link"));
        move || {
            while !end.load(Ordering::Relaxed) {
                // Between two swaps, the tree is gone.
                if renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).is_ok() {
                    swaps.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::yield_now();
            }
        }
    });
    let (mut rounds, mut successes) = (0, 0);
    while rounds < 30 || swaps.load(Ordering::Relaxed) < 100 || (succeeds && successes == 0) {
        for name in ["tree", "link", "copy"] {
            let gone = match fs::symlink_metadata(at(name)) {
                Err(_) => Ok(()),
                Ok(meta) if meta.is_dir() => fs::remove_dir_all(at(name)),
                Ok(_) => fs::remove_file(at(name)),
            };
            // The swapper may have been quicker.
            let _ = gone;
        }
        let _ = fs::create_dir_all(at("tree/sub"));
        for number in 0..30 {
            let _ = fs::write(at("tree/sub").join(number.to_string()), "mine");
        }
        let _ = symlink(target, at("link"));
        let answer = scene.call(tool, arguments.clone()).await;
        successes += u64::from(answer.outcome.is_ok());
        rounds += 1;
        scene.assert_safe(&answer);
        if at("copy").exists() {
            let copied = everything(&at("copy"));
            assert!(
                !copied.values().any(|text| text == "as it was" || *text == scene.secret),
                "it was followed: {copied:?}"
            );
        }
    }
    end.store(true, Ordering::Relaxed);
    swapper.join().expect("the swapper swaps");
    assert_eq!(everything(&at("kept")), kept);
    let names = |folder: &Path| {
        fs::read_dir(folder)
            .expect("it is readable")
            .map(|entry| entry.expect("an entry").file_name())
            .collect::<Vec<_>>()
    };
    assert!(
        !names(&scene.granted).iter().any(|name| name.to_string_lossy().starts_with(".toolhold-")),
        "{:?}",
        names(&scene.granted)
    );
}

#[test]
fn deletion_does_not_follow_a_link_that_replaces_a_directory() {
    run(async {
        let arguments = json!({ "path": "tree", "recursive": true });
        race("delete_path", arguments.clone(), "kept", true).await;
        race("delete_path", arguments, "../outside", true).await;
    });
}

#[test]
fn copy_does_not_follow_a_link_that_replaces_a_directory() {
    run(async {
        let arguments = json!({ "source": "tree", "destination": "copy" });
        race("copy_path", arguments.clone(), "kept", true).await;
        race("copy_path", arguments, "../outside", true).await;
    });
}
