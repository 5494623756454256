//! Attacks on files that aren't granted, and on denials.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;
use toolhold_core::{Answer, Category};

use crate::support::{Scene, attacks, loot, refused, run};

/// Links out of the granted folder, created by the operator or a program of theirs.
pub(crate) fn with_links(root: &Path) {
    let granted = root.join("granted");
    let link =
        |target: &Path, name: &str| symlink(target, granted.join(name)).expect("a link is made");
    fs::create_dir_all(granted.join("sub/deeper")).expect("folders are made");
    link(&root.join("outside/secret.txt"), "link.txt");
    link(&root.join("outside"), "link-folder");
    link(Path::new("../outside/secret.txt"), "sub/climbing.txt");
    link(Path::new("../outside/secret.txt"), "relative.txt");
    link(Path::new("second"), "first");
    link(Path::new("third"), "second");
    link(Path::new("../outside"), "third");
    link(Path::new("/proc/self/root"), "root");
    link(Path::new("/proc/self/cwd"), "cwd");
    link(Path::new("/"), "slash");
    link(Path::new("public.txt"), "inside.txt");
    link(&root.join("outside/new.txt"), "dangling.txt");
}

/// Ways to the secret.
pub(crate) fn ways_out(scene: &Scene) -> Vec<PathBuf> {
    let (granted, outside) = (&scene.granted, &scene.outside);
    let below_root = scene.secret_file.strip_prefix("/").expect("it is absolute");
    let mut ways = vec![
        scene.secret_file.clone(),
        granted.join("../outside/secret.txt"),
        granted.join("sub/../../outside/secret.txt"),
        granted.join("sub/deeper/../../../outside/./secret.txt"),
        granted.join("link.txt"),
        granted.join("link-folder/secret.txt"),
        granted.join("link-folder/../outside/secret.txt"),
        granted.join("first/secret.txt"),
        granted.join("relative.txt"),
        granted.join("slash").join(below_root),
        granted.join("root").join(below_root),
        Path::new("/proc/self/root").join(below_root),
        Path::new("/proc/thread-self/root").join(below_root),
        outside.join("../outside/secret.txt"),
        PathBuf::from(format!("/{}", scene.secret_file.display())),
        PathBuf::from(format!("{}//../outside//secret.txt", granted.display())),
    ];
    // A trailing slash has made other sandboxes skip the check.
    ways.extend(ways.clone().iter().map(|way| PathBuf::from(format!("{}/", way.display()))));
    ways
}

/// Attacks each of `paths`; all must be refused.
pub(crate) async fn all_fail(scene: &Scene, attack: &str, paths: &[PathBuf]) {
    for path in paths {
        let answer = scene
            .attack(
                attack,
                json!({ "path": path, "to": scene.granted.join("taken"), "text": "secret-of" }),
            )
            .await;
        assert!(answer.outcome.is_err(), "{attack} {}: {answer:?}", path.display());
        assert!(
            fs::symlink_metadata(scene.granted.join("taken")).is_err(),
            "{attack} {} left something",
            path.display()
        );
    }
}

fn reads_text(answer: &Answer, text: &str) -> bool {
    loot(answer).contains(text)
}

attacks! {
    async fn read_outside() {
        let scene = Scene::with(&[], with_links).await;
        for inside in ["public.txt", "inside.txt", "sub/../public.txt"] {
            assert!(reads_text(&scene.attack("read_outside", json!({ "path": scene.granted.join(inside) })).await, "public"), "{inside}");
        }
        let ways = ways_out(&scene);
        all_fail(&scene, "read_outside", &ways).await;
        let folders = ["../outside", "..", "link-folder", "link-folder/", "first", "root", "slash", "slash/"].map(|name| scene.granted.join(name));
        all_fail(&scene, "read_outside", &folders).await;
        let special = ["/", "/proc/self/fd", "/proc/self/environ", "/proc/self/mem", "/dev", "/dev/null", "/etc/passwd", "", "~", "\0"];
        all_fail(&scene, "read_outside", &special.map(PathBuf::from)).await;
        for descriptor in 0..16 {
            all_fail(&scene, "read_outside", &[format!("/proc/self/fd/{descriptor}").into(), format!("/dev/fd/{descriptor}").into()]).await;
        }
        refused(&scene.attack("read_outside", json!({ "path": scene.secret_file })).await, "allowed_paths");
    }

    async fn look_outside() {
        let scene = Scene::with(&[], with_links).await;
        loot(&scene.attack("look_outside", json!({ "path": scene.granted.join("public.txt") })).await);
        let ways = ways_out(&scene);
        // The target of a link inside may be known, but not its content.
        let is_link = |way: &PathBuf| fs::read_link(way).is_ok();
        let ways: Vec<PathBuf> = ways.into_iter().filter(|way| !is_link(way)).collect();
        all_fail(&scene, "look_outside", &ways).await;
        all_fail(&scene, "look_outside", &[scene.outside.clone(), scene.granted.join(".."), "/".into(), "/proc/self".into()]).await;
        // Existing and missing files look the same from inside.
        let told = async |name: &str| {
            let answer = scene.attack("look_outside", json!({ "path": scene.outside.join(name) })).await;
            refused(&answer, "allowed_paths").denial.as_ref().map(|denial| denial.rule.clone())
        };
        assert_eq!(told("secret.txt").await, told("not-there.txt").await);
    }

    async fn search_outside() {
        let scene = Scene::with(&[], with_links).await;
        let inside = scene.attack("search_outside", json!({ "path": scene.granted, "text": "public" })).await;
        assert!(reads_text(&inside, "public.txt"));
        let ways: Vec<PathBuf> = ways_out(&scene).into_iter().filter(|way| fs::read_link(way).is_err()).collect();
        all_fail(&scene, "search_outside", &ways).await;
        let folders = ["../outside", "..", "link-folder/", "first/", "root/", "slash/"].map(|name| scene.granted.join(name));
        all_fail(&scene, "search_outside", &folders).await;
        // From inside, links are seen and not followed: `attack` searches for the secret.
        let found = scene.attack("search_outside", json!({ "path": scene.granted, "text": "secret-of" })).await;
        assert!(!loot(&found).contains("grep:"), "{found:?}");
    }

    async fn write_outside() {
        let scene = Scene::with(&[], with_links).await;
        loot(&scene.attack("write_outside", json!({ "path": scene.granted.join("sub/made.txt") })).await);
        assert!(fs::read_to_string(scene.granted.join("sub/made.txt")).expect("it was made").contains("overwritten"));
        all_fail(&scene, "write_outside", &ways_out(&scene)).await;
        let new = ["../outside/new.txt", "link-folder/new.txt", "first/new.txt", "dangling.txt", "../new.txt", "sub/../../new.txt"];
        all_fail(&scene, "write_outside", &new.map(|name| scene.granted.join(name))).await;
        all_fail(&scene, "write_outside", &[scene.root().join("new.txt"), "/dev/null".into(), "/proc/self/oom_score_adj".into()]).await;
        assert!(!scene.root().join("new.txt").exists());
    }

    async fn change_outside() {
        let scene = Scene::with(&[], with_links).await;
        let mut ways: Vec<PathBuf> = ways_out(&scene).into_iter().filter(|way| fs::read_link(way).is_err()).collect();
        ways.extend(["../outside/new", "link-folder/new", "first/new", "../outside", ".."].map(|name| scene.granted.join(name)));
        ways.push(scene.granted.clone());
        for way in &ways {
            // The path inside is the other name of a link or a rename.
            let arguments = json!({ "path": way, "to": scene.granted.join("public.txt") });
            let answer = scene.attack("change_outside", arguments).await;
            assert!(answer.outcome.is_err(), "{}: {answer:?}", way.display());
        }
        assert_eq!(fs::read_to_string(scene.granted.join("public.txt")).expect("it is there"), "public");
    }

    async fn lie_about_reading() {
        let scene = Scene::new().await;
        let file = scene.granted.join("public.txt");
        refused(&scene.attack("lie_about_reading", json!({ "path": file })).await, "only reads");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "public");
        scene.attack("lie_about_reading", json!({ "path": scene.granted.join("new.txt") })).await.outcome.expect_err("nothing is made");
        assert!(!scene.granted.join("new.txt").exists());
    }

    async fn write_what_is_open_for_reading() {
        let settings = ["plugins.hostile.allowed_paths=[{path=\"{granted}\", access=\"read\"}]"];
        let scene = Scene::with(&settings, with_links).await;
        let file = scene.granted.join("public.txt");
        let before = fs::metadata(&file).and_then(|metadata| metadata.modified()).expect("it is there");
        for attack in ["write_what_is_open_for_reading", "write_outside"] {
            for path in [&file, &scene.granted.join("inside.txt")] {
                refused(&scene.attack(attack, json!({ "path": path })).await, "read-only grant");
            }
        }
        for to in ["new", "sub/new", "link.txt"] {
            let answer = scene.attack("change_outside", json!({ "path": file, "to": scene.granted.join(to) })).await;
            answer.outcome.expect_err("nothing changes");
            let answer = scene.attack("change_outside", json!({ "path": scene.granted.join("sub"), "to": scene.granted.join(to) })).await;
            answer.outcome.expect_err("nothing changes");
        }
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "public");
        assert_eq!(fs::metadata(&file).and_then(|metadata| metadata.modified()).expect("it is there"), before);
        assert!(!scene.granted.join("new").exists() && scene.granted.join("sub/deeper").exists());
    }

    /// Names that aren't UTF-8 can't be represented in a guest: they are left out and do no harm.
    async fn list_names() {
        let bad = OsStr::from_bytes(b"bad-\xff\xfe.txt");
        let scene = Scene::with(&["tools.file.deny_read=[\"hidden*\"]"], |root| {
            for name in [bad, OsStr::new("hidden.txt")] {
                fs::write(root.join("granted").join(name), "x").expect("a file is written");
            }
            fs::create_dir(root.join("granted/sub")).and_then(|()| fs::write(root.join("granted/sub").join(bad), "x")).expect("a file is written");
        })
        .await;
        let names = loot(&scene.attack("list_names", json!({ "path": scene.granted })).await);
        assert!(names.contains("public.txt") && !names.contains("bad-") && !names.contains("hidden"), "{names}");
        let found = loot(&scene.attack("search_outside", json!({ "path": scene.granted, "text": "x" })).await);
        assert!(!found.contains("hidden"), "{found}");
        // A path that can't be decided on can't be moved.
        let moved = scene.attack("rename", json!({ "path": scene.granted.join("sub"), "to": scene.granted.join("other") })).await;
        moved.outcome.expect_err("it stays where it is");
        assert!(scene.granted.join("sub").join(bad).exists());
    }

    async fn climb_from_a_handle() {
        let scene = Scene::with(&[], with_links).await;
        for (from, to) in [("sub", "outside/secret.txt"), ("sub/deeper", "outside/secret.txt"), (".", "outside/secret.txt"), ("sub", "etc/passwd")] {
            let answer = scene.attack("climb_from_a_handle", json!({ "path": scene.granted.join(from), "to": to })).await;
            answer.outcome.expect_err("a handle leads down only");
        }
        loot(&scene.attack("climb_from_a_handle", json!({ "path": scene.granted.join("sub"), "to": "deeper" })).await);
    }

    async fn climb_from_a_moved_folder() {
        let scene = Scene::with(&[], with_links).await;
        let arguments = json!({ "path": scene.granted.join("sub/deeper"), "to": scene.granted.join("moved"), "text": "outside/secret.txt" });
        scene.attack("climb_from_a_moved_folder", arguments).await.outcome.expect_err("a handle leads down only");
        assert!(scene.granted.join("moved").exists(), "the folder was moved, so it was tried");
    }

    async fn touch_special_file() {
        let scene = Scene::with(&["plugins.hostile.allowed_paths=[\"{granted}\", \"/dev\"]"], |root| {
            let granted = root.join("granted");
            mknodat(CWD, granted.join("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO is made");
            drop(UnixListener::bind(granted.join("socket")).expect("a socket is made"));
            symlink("fifo", granted.join("link")).expect("a link is made");
        })
        .await;
        let inside = ["fifo", "socket", "link"].map(|name| scene.granted.join(name));
        for path in inside.into_iter().chain(["/dev/zero", "/dev/null", "/dev/tty", "/dev/full"].map(PathBuf::from)) {
            let answer = scene.attack_beside_others("touch_special_file", json!({ "path": path })).await;
            assert!(answer.outcome.is_err_and(|failure| failure.category != Category::Timeout), "{}", path.display());
        }
        // A search doesn't either.
        let found = scene.attack_beside_others("search_outside", json!({ "path": scene.granted, "text": "public" })).await;
        assert!(reads_text(&found, "public"));
    }

    async fn follow_a_link_of_its_own() {
        let scene = Scene::with(&[], |root| fs::create_dir_all(root.join("granted/sub")).expect("folders are made")).await;
        loot(&scene.attack("follow_a_link_of_its_own", json!({ "path": scene.granted.join("good"), "to": "public.txt" })).await);
        let absolute = scene.secret_file.display().to_string();
        let targets = [&absolute, "../outside/secret.txt", "sub/../../outside/secret.txt", "/proc/self/root", "..", "/", "good/../../outside"];
        for (number, target) in targets.into_iter().enumerate() {
            for folder in ["", "sub/"] {
                let path = scene.granted.join(format!("{folder}link{number}"));
                let target = if folder.is_empty() || target.starts_with('/') { target.to_owned() } else { format!("../{target}") };
                let answer = scene.attack("follow_a_link_of_its_own", json!({ "path": path, "to": target })).await;
                refused(&answer, "allowed_paths");
                assert!(fs::symlink_metadata(&path).is_err(), "a link to {target} was made, and programs outside would follow it");
            }
        }
    }

    async fn write_through_a_link_of_its_own() {
        let scene = Scene::new().await;
        for (number, target) in [scene.secret_file.to_str().expect("it is UTF-8"), "../outside/secret.txt", "../outside", "../outside/new.txt"].into_iter().enumerate() {
            let path = scene.granted.join(format!("link{number}"));
            // If no link is created, the write creates a file in the granted folder, which is
            // allowed.
            scene.attack("write_through_a_link_of_its_own", json!({ "path": path, "to": target })).await;
            assert!(fs::read_link(&path).is_err(), "a link to {target} was made");
        }
    }

    async fn hard_link_into_reach() {
        let scene = Scene::with(&["tools.file.deny_read=[\"**/.env\"]"], with_links).await;
        fs::write(scene.granted.join(".env"), &scene.secret).expect("a file is written");
        let mut ways = ways_out(&scene);
        ways.push(scene.granted.join(".env"));
        all_fail(&scene, "hard_link_into_reach", &ways).await;
        let arguments = json!({ "path": scene.granted.join("public.txt"), "to": scene.granted.join("second.txt") });
        loot(&scene.attack("hard_link_into_reach", arguments).await);
    }

    async fn rename_into_reach() {
        let scene = Scene::with(&["tools.file.deny_read=[\"**/.env\"]"], with_links).await;
        fs::write(scene.granted.join(".env"), &scene.secret).expect("a file is written");
        let ways: Vec<PathBuf> = ways_out(&scene).into_iter().filter(|way| fs::read_link(way).is_err()).collect();
        all_fail(&scene, "rename_into_reach", &ways).await;
        all_fail(&scene, "rename_into_reach", &[scene.granted.join(".env")]).await;
        // A link may move; its target stays unreachable.
        let arguments = json!({ "path": scene.granted.join("link.txt"), "to": scene.granted.join("moved.txt") });
        scene.attack("rename_into_reach", arguments).await.outcome.expect_err("it points outside");
    }

    /// A folder with denied content isn't moved, whether the denial matches the name above or
    /// below.
    async fn rename() {
        let scene = Scene::with(&["tools.file.deny_read=[\"**/.env\", \"keys/**\"]", "tools.file.deny_write=[\"**/frozen\"]"], |root| {
            for folder in ["conf/deep", "keys", "open", "cold"] {
                fs::create_dir_all(root.join("granted").join(folder)).expect("folders are made");
            }
            for file in ["conf/deep/.env", "keys/id", "cold/frozen", "open/id"] {
                fs::write(root.join("granted").join(file), "denied").expect("a file is written");
            }
        })
        .await;
        let at = |name: &str| scene.granted.join(name);
        for (from, to, rule) in [
            ("conf", "moved", "deny_read"),
            ("conf/deep", "moved", "deny_read"),
            ("keys", "moved", "deny_read"),
            ("cold", "moved", "deny_write"),
            ("open", "keys", "deny_read"),
            ("public.txt", "conf/deep/.env", "deny_read"),
            ("public.txt", "cold/frozen", "deny_write"),
            ("public.txt", "toolhold.toml", "own files"),
            ("public.txt", "Filters.TOML", "own files"),
        ] {
            refused(&scene.attack("rename", json!({ "path": at(from), "to": at(to) })).await, rule);
        }
        for there in ["conf/deep/.env", "keys/id", "cold/frozen", "open/id"] {
            assert_eq!(fs::read_to_string(at(there)).expect("it is where it was"), "denied");
        }
        assert!(!at("moved").exists() && !at("toolhold.toml").exists());
        loot(&scene.attack("rename", json!({ "path": at("open"), "to": at("moved") })).await);
    }
}

/// A guest can't follow a link that leads out; a program outside of the sandbox, such as an editor,
/// would.
#[test]
fn links_made_by_guests_never_lead_out_of_the_grant() {
    run(async {
        let scene = Scene::with(&[], |root| {
            fs::create_dir_all(root.join("granted/a/b")).expect("folders are made");
        })
        .await;
        let at = |name: &str| scene.granted.join(name);
        let link = async |name: &str, target: &str| {
            scene
                .attack("follow_a_link_of_its_own", json!({ "path": at(name), "to": target }))
                .await;
        };
        let leads_out =
            |name: &str| fs::read_to_string(at(name)).is_ok_and(|text| text == scene.secret);

        // Through another link, after which `..` leads elsewhere than it seems.
        link("here", ".").await;
        link("out", "here/../outside/secret.txt").await;
        assert!(!leads_out("out"), "`..` after a name is somebody else's parent");

        // By moving it, or a folder that holds it, closer to the border.
        link("a/b/link", "../../outside/secret.txt").await;
        assert!(fs::read_link(at("a/b/link")).is_ok(), "where it is, it stays inside");
        scene.attack("rename", json!({ "path": at("a/b/link"), "to": at("a/link") })).await;
        assert!(!leads_out("a/link"), "a link was moved out of its depth");
        scene.attack("rename", json!({ "path": at("a/b"), "to": at("c") })).await;
        assert!(!leads_out("c/link"), "a folder with a link was moved out of its depth");
    });
}
