//! Nested grants, and what is unreachable whatever is granted.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use berth_core::config::Folders;
use serde_json::json;

use crate::support::{Cli, Scene, loot, refused, run};

/// A vendored folder with content to change.
fn with_vendor(root: &Path) {
    fs::create_dir_all(root.join("granted/vendor/patch")).expect("folders are made");
    for file in ["vendor/lib.rs", "vendor/patch/fix.rs"] {
        fs::write(root.join("granted").join(file), "as it was").expect("a file is written");
    }
}

fn unchanged(path: &Path) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text == "as it was")
}

#[test]
fn read_only_grant_holds_inside_a_writable_one() {
    run(async {
        let setting = "plugins.hostile.allowed_paths=[\"{granted}\", {path=\"{granted}/vendor\", access=\"read\"}, \"{granted}/vendor/patch\"]";
        let scene = Scene::with(&[setting], with_vendor).await;
        let at = |name: &str| scene.granted.join(name);
        for attack in ["write_outside", "write_what_is_open_for_reading"] {
            refused(
                &scene.attack(attack, json!({ "path": at("vendor/lib.rs") })).await,
                "read-only grant",
            );
        }
        // Not even as a part of something that may be changed.
        for (from, to) in
            [("vendor", "moved"), ("vendor/lib.rs", "lib.rs"), ("public.txt", "vendor/public.txt")]
        {
            refused(
                &scene.attack("rename", json!({ "path": at(from), "to": at(to) })).await,
                "read-only grant",
            );
            scene
                .attack("hard_link_into_reach", json!({ "path": at(from), "to": at(to) }))
                .await
                .outcome
                .expect_err("no link is made");
        }
        refused(
            &scene.attack("rename", json!({ "path": at("vendor/patch"), "to": at("patch") })).await,
            "can't be moved or removed",
        );
        assert!(
            unchanged(&at("vendor/lib.rs")) && at("public.txt").exists() && !at("lib.rs").exists()
        );
        loot(&scene.attack("write_outside", json!({ "path": at("vendor/patch/fix.rs") })).await);
        assert!(!unchanged(&at("vendor/patch/fix.rs")), "the innermost grant is writable");
    });
}

#[test]
fn writable_grant_inside_read_only_one_opens_only_itself() {
    run(async {
        let setting = "plugins.hostile.allowed_paths=[{path=\"{granted}\", access=\"read\"}, \"{granted}/vendor/patch\"]";
        let scene = Scene::with(&[setting], with_vendor).await;
        let at = |name: &str| scene.granted.join(name);
        refused(
            &scene.attack("write_outside", json!({ "path": at("vendor/lib.rs") })).await,
            "read-only grant",
        );
        refused(
            &scene.attack("write_outside", json!({ "path": at("vendor/patch/../lib.rs") })).await,
            "allowed_paths",
        );
        // A second name in the writable folder would be a way to write.
        for attack in ["hard_link_into_reach", "rename_into_reach"] {
            let arguments = json!({ "path": at("vendor/lib.rs"), "to": at("vendor/patch/lib.rs") });
            refused(&scene.attack(attack, arguments).await, "read-only grant");
        }
        assert!(unchanged(&at("vendor/lib.rs")) && !at("vendor/patch/lib.rs").exists());
        loot(&scene.attack("write_outside", json!({ "path": at("vendor/patch/fix.rs") })).await);
    });
}

/// A program that replaced a granted directory by a link would decide what is granted from the next
/// start on.
#[test]
fn granted_directory_itself_cannot_be_replaced() {
    run(async {
        let setting = "plugins.hostile.allowed_paths=[{path=\"{granted}\", access=\"read\"}, \"{granted}/in/out\"]";
        let scene = Scene::with(&[setting], |root| {
            fs::create_dir_all(root.join("granted/in/out")).expect("folders are made");
        })
        .await;
        let out = scene.granted.join("in/out");
        for path in [&out, &scene.granted.join("in")] {
            scene.attack("change_outside", json!({ "path": path, "to": out.join("moved") })).await;
            scene
                .attack("rename", json!({ "path": path, "to": out.join("moved") }))
                .await
                .outcome
                .expect_err("it stays");
            let link = json!({ "path": path, "to": ".." });
            scene.attack("follow_a_link_of_its_own", link).await;
            assert!(
                fs::symlink_metadata(path).is_ok_and(|there| there.is_dir()),
                "{} is still a directory",
                path.display()
            );
        }
        loot(&scene.attack("write_outside", json!({ "path": out.join("file") })).await);
    });
}

/// The process's own memory and environment are files too, where `/proc` is granted.
#[test]
fn hosts_process_is_unreachable_whatever_is_granted() {
    run(async {
        let scene = Scene::with(
            &["plugins.hostile.allowed_paths=[\"/\"]", "plugins.hostile.limits.cpu_secs=5"],
            |_| {},
        )
        .await;
        let process = format!("/proc/{}", std::process::id());
        let variables = fs::read("/proc/self/environ").expect("this process has variables");
        assert!(!variables.is_empty());
        for name in [
            "environ",
            "cmdline",
            "maps",
            "mem",
            "fd",
            "root",
            "cwd",
            "task",
            "oom_score_adj",
            "comm",
        ] {
            for process in [process.as_str(), "/proc/self", "/proc/thread-self", "/proc/1"] {
                let path = format!("{process}/{name}");
                for attack in ["read_outside", "write_outside"] {
                    // Not by `attack`: all files are granted here, so `read_outside` would find the
                    // secret by `root` if it were allowed.
                    let answer =
                        scene.call(&format!("hostile__{attack}"), json!({ "path": path })).await;
                    assert!(answer.outcome.is_err(), "{attack} {path}");
                }
            }
        }
        let found =
            scene.call("hostile__search_outside", json!({ "path": process, "text": "PATH" })).await;
        found.outcome.expect_err("nor is it searched");
    });
}

#[test]
fn code_is_not_planted_in_a_repository() {
    run(async {
        let scene = Scene::with(&[], |root| {
            fs::create_dir_all(root.join("granted/sub/.git/hooks")).expect("folders are made");
        })
        .await;
        for name in ["sub/.git/hooks/pre-commit", "sub/.git/config", "sub/.git/commondir", ".git"] {
            let path = scene.granted.join(name);
            refused(&scene.attack("write_outside", json!({ "path": path })).await, "deny_write");
            refused(
                &scene
                    .attack(
                        "rename",
                        json!({ "path": scene.granted.join("public.txt"), "to": path }),
                    )
                    .await,
                "deny_write",
            );
            assert!(!path.exists(), "{name}");
        }
        refused(
            &scene
                .attack(
                    "rename",
                    json!({ "path": scene.granted.join("sub"), "to": scene.granted.join("other") }),
                )
                .await,
            "deny_write",
        );
    });
}

/// A host whose own folders lie in what it grants. The secret is in its data and its cache.
async fn around_own_folders() -> (Scene, PathBuf) {
    let fill = |root: &Path| {
        let secret = fs::read(root.join("outside/secret.txt")).expect("it was written");
        for (file, text) in [
            ("config/berth.toml", &b"# mine\n"[..]),
            ("data/audit.jsonl", &secret),
            ("cache/answers", &secret),
        ] {
            let file = root.join("granted/.berth").join(file);
            fs::create_dir_all(file.parent().expect("it has a folder"))
                .and_then(|()| fs::write(&file, text))
                .expect("a file is written");
        }
        let cache: fs::Permissions = PermissionsExt::from_mode(0o700);
        fs::set_permissions(root.join("granted/.berth/cache"), cache)
            .expect("the cache is private");
    };
    let scene =
        Scene::in_folders(&[], fill, |root| Some(Folders::inside(&root.join("granted/.berth"))))
            .await;
    let own = scene.granted.join(".berth");
    (scene, own)
}

#[test]
fn berth_s_folders_are_unwritable_under_any_grant() {
    run(async {
        let (scene, own) = around_own_folders().await;
        let before = names_and_texts(&own);
        for name in [
            "config/berth.toml",
            "config/new",
            "data/audit.jsonl",
            "data/new",
            "cache/answers",
            "cache/compiled/x.cwasm",
            "config/../config/new",
        ] {
            refused(
                &scene.attack("write_outside", json!({ "path": own.join(name) })).await,
                "own files",
            );
            let arguments =
                json!({ "path": own.join(name), "to": scene.granted.join("public.txt") });
            scene.attack("change_outside", arguments).await.outcome.expect_err("nothing changes");
        }
        for (from, to) in [
            (".berth", "moved"),
            (".berth/config", "moved"),
            ("public.txt", ".berth/config/filters"),
            ("public.txt", ".berth"),
        ] {
            let arguments =
                json!({ "path": scene.granted.join(from), "to": scene.granted.join(to) });
            scene.attack("rename", arguments).await.outcome.expect_err("nothing is moved");
        }
        for name in ["berth.toml", "filters.toml", "BERTH.TOML", ".berth/../berth.toml"] {
            refused(
                &scene.attack("write_outside", json!({ "path": scene.granted.join(name) })).await,
                "own files",
            );
            let answer = scene.call("write", json!({ "path": name, "content": "[tools]" })).await;
            refused(&answer, "own files");
        }
        assert_eq!(names_and_texts(&own), before);
        assert!(!scene.granted.join("berth.toml").exists());
    });
}

#[test]
fn berth_s_stored_data_is_unreadable_under_any_grant() {
    run(async {
        let (scene, own) = around_own_folders().await;
        for name in ["data/audit.jsonl", "cache/answers", "data", "cache/compiled"] {
            for attack in ["read_outside", "look_outside", "search_outside"] {
                let answer = scene
                    .attack(attack, json!({ "path": own.join(name), "text": "secret-of" }))
                    .await;
                answer.outcome.expect_err("it is out of reach");
            }
            for attack in ["hard_link_into_reach", "rename_into_reach", "follow_a_link_of_its_own"]
            {
                let arguments =
                    json!({ "path": own.join(name), "to": scene.granted.join("taken") });
                scene.attack(attack, arguments).await.outcome.expect_err("it is out of reach");
                let arguments =
                    json!({ "path": scene.granted.join("taken"), "to": format!(".berth/{name}") });
                scene
                    .attack("follow_a_link_of_its_own", arguments)
                    .await
                    .outcome
                    .expect_err("it is out of reach");
            }
        }
        // A search over everything skips them, and the configuration may be read.
        scene.attack("search_outside", json!({ "path": scene.granted, "text": "secret-of" })).await;
        let grep = scene.call("grep", json!({ "pattern": "secret-of|mine", "path": own })).await;
        scene.assert_safe(&grep);
        assert!(
            loot(
                &scene
                    .attack("read_outside", json!({ "path": own.join("config/berth.toml") }))
                    .await
            )
            .contains("# mine")
        );
    });
}

/// Every file below a folder.
fn names_and_texts(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("it is readable").flatten() {
        let path = entry.path();
        // The host writes down what it is asked to do.
        if path.ends_with("data/audit") {
            continue;
        }
        if path.is_dir() {
            found.extend(names_and_texts(&path));
        } else {
            found.push((
                path.clone(),
                String::from_utf8_lossy(&fs::read(&path).expect("it is readable")).into_owned(),
            ));
        }
    }
    found.sort();
    found
}

#[test]
fn allow_commands_write_grants_that_hold() {
    let cli = Cli::new();
    let other = cli.root.path().canonicalize().expect("it is there").join("my notes");
    fs::create_dir(&other).expect("a folder is made");
    fs::write(other.join("a.txt"), "noted\n").expect("a file is written");
    let path = other.join("a.txt").display().to_string();
    cli.run(&["call", "read", &path]).ends(3);
    let told = cli.run(&["allow", "../my notes", "--read"]).ends(0).stdout;
    assert!(told.contains("may read") && told.contains("berth.toml"), "{told}");
    cli.run(&["call", "read", &path]).ends(0);
    cli.run(&["call", "read", "notes.txt"]).ends(0);
    let write = ["call", "write", &format!("path={path}"), "content=x"];
    cli.run(&write).ends(3);
    cli.run(&["call", "bash", &format!("echo x > '{path}'")]).ends(1);
    cli.run(&["allow", "../my notes"]).ends(0);
    cli.run(&write).ends(0);
    cli.run(&["call", "bash", &format!("echo y > '{path}'")]).ends(0);
    assert_eq!(fs::read_to_string(other.join("a.txt")).expect("it is there"), "y\n");
    for (directory, why) in [("/", "the whole machine"), ("none", "can't be used")] {
        let refused = cli.run(&["allow", directory]).ends(2).stderr;
        assert!(refused.contains(why), "{refused}");
    }

    let url = "url=https://docs.rs/x";
    let asks = cli.run(&["policy", "check", "fetch", url]).ends(3).stdout;
    assert!(asks.contains("ask"), "{asks}");
    cli.run(&["allow-host", "docs.rs"]).ends(0);
    cli.run(&["policy", "check", "fetch", url]).ends(0);
    let refused = cli.run(&["allow-host", "not a host"]).code;
    assert_ne!(refused, 0);
    cli.run(&["config", "check"]).ends(0);
}

#[test]
fn vanished_directory_is_told_and_ends_nothing_else() {
    let cli = Cli::new();
    cli.configure("[tools.file]\nallowed_paths = [\".\", \"/none/at/all\"]\n");
    let read = cli.run(&["call", "read", "notes.txt"]).ends(0);
    assert!(read.stdout.contains("second"), "{}", read.stdout);
    assert!(read.stderr.contains("/none/at/all doesn't exist"), "{}", read.stderr);
    let doctor = cli.run(&["doctor"]).stdout;
    assert!(doctor.contains("/none/at/all doesn't exist"), "{doctor}");
    // What was typed just now is an error.
    cli.run(&["--allow", "/none/at/all", "call", "read", "notes.txt"]).ends(4);
}
