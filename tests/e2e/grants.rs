//! Nested grants, and what is unreachable whatever is granted.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;
use toolhold_core::config::Folders;

use crate::support::{Cli, Ended, Scene, loot, refused, run, wait_until};

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
            ("config/toolhold.toml", &b"# mine\n"[..]),
            ("data/audit.jsonl", &secret),
            ("cache/answers", &secret),
        ] {
            let file = root.join("granted/.toolhold").join(file);
            fs::create_dir_all(file.parent().expect("it has a folder"))
                .and_then(|()| fs::write(&file, text))
                .expect("a file is written");
        }
        let cache: fs::Permissions = PermissionsExt::from_mode(0o700);
        fs::set_permissions(root.join("granted/.toolhold/cache"), cache)
            .expect("the cache is private");
    };
    let scene =
        Scene::in_folders(&[], fill, |root| Some(Folders::inside(&root.join("granted/.toolhold"))))
            .await;
    let own = scene.granted.join(".toolhold");
    (scene, own)
}

#[test]
fn toolhold_s_folders_are_unwritable_under_any_grant() {
    run(async {
        let (scene, own) = around_own_folders().await;
        let before = names_and_texts(&own);
        for name in [
            "config/toolhold.toml",
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
            (".toolhold", "moved"),
            (".toolhold/config", "moved"),
            ("public.txt", ".toolhold/config/filters"),
            ("public.txt", ".toolhold"),
        ] {
            let arguments =
                json!({ "path": scene.granted.join(from), "to": scene.granted.join(to) });
            scene.attack("rename", arguments).await.outcome.expect_err("nothing is moved");
        }
        for name in ["toolhold.toml", "filters.toml", "TOOLHOLD.TOML", ".toolhold/../toolhold.toml"]
        {
            refused(
                &scene.attack("write_outside", json!({ "path": scene.granted.join(name) })).await,
                "own files",
            );
            let answer = scene.call("write", json!({ "path": name, "content": "[tools]" })).await;
            refused(&answer, "own files");
        }
        assert_eq!(names_and_texts(&own), before);
        assert!(!scene.granted.join("toolhold.toml").exists());
    });
}

#[test]
fn toolhold_s_stored_data_is_unreadable_under_any_grant() {
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
                let arguments = json!({ "path": scene.granted.join("taken"), "to": format!(".toolhold/{name}") });
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
                    .attack("read_outside", json!({ "path": own.join("config/toolhold.toml") }))
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
    assert!(told.contains("may now read") && told.contains("toolhold.toml"), "{told}");
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

    let home = other.display().to_string();
    let mut allow = cli.command(&["allow", &home]);
    let warned = allow.env("HOME", &home).output().expect("toolhold runs");
    let warned = String::from_utf8_lossy(&warned.stderr).into_owned();
    assert!(warned.contains("your home contains keys"), "{warned}");

    let url = "url=https://docs.rs/x";
    let asks = cli.run(&["policy", "check", "fetch", url]).ends(3).stdout;
    assert!(asks.contains("ask"), "{asks}");
    cli.run(&["allow", "--host", "docs.rs"]).ends(0);
    cli.run(&["policy", "check", "fetch", url]).ends(0);
    let refused = cli.run(&["allow", "--host", "not a host"]).code;
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

/// Runs calls that reach for a folder of somebody else by names in the project.
#[track_caller]
fn nothing_comes_from(cli: &Cli, others: &Path, calls: &[&[&str]]) {
    for call in calls {
        let ended = cli.run(call);
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert!(!said.contains("of somebody else"), "{call:?}: {said}");
        assert!(said.contains("link"), "{call:?}: {said}");
    }
    let names: Vec<_> = fs::read_dir(others).expect("it is listed").collect();
    assert_eq!(names.len(), 1, "nothing is made there: {names:?}");
    let text = fs::read_to_string(others.join("key")).expect("it is read");
    assert_eq!(text, "of somebody else");
}

/// A folder that no configuration names.
fn somebody_elses(cli: &Cli) -> PathBuf {
    let others = cli.work().with_file_name("others");
    fs::create_dir(&others).expect("a folder is made");
    fs::write(others.join("key"), "of somebody else").expect("a file is written");
    others
}

#[test]
fn link_that_a_project_brings_along_is_no_grant() {
    for configuration in [
        "[tools.file]\nallowed_paths = [\".\", \"src\"]\n",
        "[tools.file]\nallowed_paths = [{ path = \".\", access = \"read\" }, \"src/deep/..\"]\n",
        "[tools.shell]\nallowed_paths = [{ path = \".\", access = \"read\" }, \"src\"]\n",
        "[plugins.file]\nallowed_paths = [\"src\"]\n[tools.file]\nallowed_paths = [\"src\"]\n",
    ] {
        let cli = Cli::new();
        let others = somebody_elses(&cli);
        symlink(&others, cli.work().join("src")).expect("a link is made");
        cli.configure(configuration);
        let calls: [&[&str]; 3] = [
            &["call", "read", "path=src/key"],
            &["call", "write", "path=src/made", "content=x"],
            &["call", "bash", "command=cat src/key; touch src/made"],
        ];
        let calls = if configuration.contains("shell") { &calls[2..] } else { &calls[..2] };
        nothing_comes_from(&cli, &others, calls);
    }
}

/// Names that lead through a project, although they don't begin with it.
#[test]
fn link_is_found_on_every_way() {
    for (configuration, links) in [
        // A link of the person's own, to what tools may exchange.
        ("[tools.file]\nallowed_paths = [\".\", \"~/current\"]\n", &[("work/src", "current")][..]),
        // The home has two names.
        ("[tools.file]\nallowed_paths = [\".\", \"{root}/twin/work/src\"]\n", &[("", "twin")]),
        // A folder above what a link leads to.
        (
            "[tools.file]\nallowed_paths = [\".\", { path = \"src/../others\", access = \"read\" }]\n",
            &[],
        ),
    ] {
        let cli = Cli::new();
        let others = somebody_elses(&cli);
        let root = cli.work().with_file_name("");
        symlink(&others, cli.work().join("src")).expect("a link is made");
        for (target, link) in links {
            symlink(root.join(target), root.join(link)).expect("a link is made");
        }
        cli.configure(&configuration.replace("{root}/", root.to_str().expect("it is text")));
        let key = format!("path={}", others.join("key").display());
        nothing_comes_from(
            &cli,
            &others,
            &[&["call", "read", &key], &["call", "bash", "command=ls"]],
        );
    }
}

/// Tools may write elsewhere in another working directory.
#[test]
fn link_of_a_person_is_named_by_where_it_leads() {
    let cli = Cli::new();
    let others = somebody_elses(&cli);
    let root = cli.work().with_file_name("");
    symlink(&others, root.join("shared")).expect("a link is made");
    let key = format!("path={}", others.join("key").display());
    for entry in ["~/shared", "~/shared/", "~/work/../shared"] {
        cli.configure(&format!("[tools.file]\nallowed_paths = [\".\", \"{entry}\"]\n"));
        let refused = cli.run(&["call", "read", &key]).ends(4).stderr;
        let link =
            format!("through the link {} to {}", root.join("shared").display(), others.display());
        assert!(refused.contains(&link), "{refused}");
    }
    cli.configure("[tools.file]\nallowed_paths = [\".\", \"~/others\"]\n");
    assert!(cli.run(&["call", "read", &key]).ends(0).stdout.contains("of somebody else"));
}

/// Where a tool writes, by another working directory or another configuration, it makes links for
/// all others.
#[test]
fn link_that_was_made_elsewhere_is_no_grant() {
    let cli = Cli::new();
    let others = somebody_elses(&cli);
    let entry = cli.work().join("data");
    fs::create_dir(&entry).expect("a folder is made");
    let project = cli.work().with_file_name("project");
    fs::create_dir(&project).expect("a folder is made");
    cli.configure("[tools.file]\nallowed_paths = [\".\", { path = \"~/work/data\", access = \"read\" }]\n[tools.shell]\nallowed_paths = [\".\"]\n[tools.scheduler]\nenabled = true\n");
    let key = format!("path={}", others.join("key").display());
    let read = |line: &[&str]| {
        let output = cli.command(line).current_dir(&project).output().expect("it runs");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    assert!(!read(&["call", "read", &format!("path={}", entry.display())]).contains("link"));
    let exchange = format!("command=rmdir data; ln -s {} data", others.display());
    cli.run(&["call", "bash", &exchange]).ends(0);
    assert!(entry.is_symlink());
    let said = read(&["call", "read", &key]);
    assert!(said.contains("through the link") && !said.contains("of somebody else"), "{said}");
    // A project that narrows what tools write switches nothing off.
    fs::write(project.join("toolhold.toml"), "[tools.file]\nallowed_paths = [\"~/work/data\"]\n")
        .expect("it is written");
    let said = read(&["call", "read", &key]);
    assert!(said.contains("through the link") && !said.contains("of somebody else"), "{said}");
}

/// What one tool may move is a grant of another one.
#[test]
fn grant_that_tools_exchange_for_a_link_ends() {
    let cli = Cli::new();
    let others = somebody_elses(&cli);
    fs::create_dir(cli.work().join("data")).expect("a folder is made");
    cli.configure("[tools.file]\nallowed_paths = [\".\", \"data\"]\n[tools.shell]\nallowed_paths = [\".\"]\n[tools.scheduler]\nenabled = true\n");
    let task = |name: &str, tool: &str, arguments: &str| {
        let task = format!(
            r#"{{"name": "{name}", "when": "1h", "tool": "{tool}", "arguments": {arguments}}}"#
        );
        cli.run(&["call", "--yes", "schedule_deferred", &task]).ends(0);
    };
    task("reads", "read", r#"{"path": "data/key"}"#);
    task("writes", "write", r#"{"path": "data/made", "content": "x"}"#);
    let exchange = format!("command=mv data kept && ln -s {} data", others.display());
    cli.run(&["call", "bash", &exchange]).ends(0);
    assert!(cli.work().join("data").is_symlink());
    nothing_comes_from(
        &cli,
        &others,
        &[
            &["call", "read", "path=data/key"],
            &["call", "write", "path=data/made", "content=x"],
            &["call", "search_code", "query=somebody", "path=data"],
        ],
    );
    for name in ["reads", "writes"] {
        cli.run(&["tasks", "run", name]).ends(0);
    }
    let mut daemon = cli.command(&["tasks", "daemon"]).spawn().expect("it starts");
    let ended = |name: &str| {
        let listed = cli.run(&["tasks", "results", name, "--json"]).ends(0).json();
        listed["runs"].as_array().is_some_and(|runs| !runs.is_empty()).then(|| listed.to_string())
    };
    let mut results = String::new();
    wait_until("both have run", || {
        results = ["reads", "writes"].map(|name| ended(name).unwrap_or_default()).concat();
        results.matches("through the link").count() >= 2
    });
    daemon.kill().and_then(|()| daemon.wait()).expect("it ends");
    assert!(!results.contains("of somebody else"), "{results}");
    assert_eq!(fs::read_dir(&others).expect("it is listed").count(), 1);
}

/// A folder and a link that are exchanged while calls begin: what was decided on is what they get.
#[test]
fn folder_that_is_exchanged_for_a_link_all_the_time_opens_nothing_else() {
    let cli = Cli::new();
    let others = somebody_elses(&cli);
    let cargo = cli.work().with_file_name("cargo");
    let link = cli.work().with_file_name("link");
    for folder in [others.join("registry"), cargo.join("registry")] {
        fs::create_dir_all(folder).expect("folders are made");
    }
    fs::write(others.join("registry/key"), "of somebody else").expect("a file is written");
    symlink(&others, &link).expect("a link is made");
    cli.configure("[tools.shell]\npresets = [\"cargo\"]\n");
    let reads = format!(
        "command=test -d {0}/registry && echo granted; cat {0}/registry/key; touch {0}/registry/made",
        cargo.display()
    );
    let ended = AtomicBool::new(false);
    let opened = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                renameat_with(CWD, &cargo, CWD, &link, RenameFlags::EXCHANGE).expect("they change");
            }
        });
        let (mut opened, mut calls) = (0, 0);
        // Each call sees the one or the other.
        while calls < 30 || (opened == 0 && calls < 300) {
            calls += 1;
            let mut call = cli.command(&["call", "bash", &reads]);
            let said = call.env("CARGO_HOME", &cargo).output().expect("it runs").stdout;
            let said = String::from_utf8_lossy(&said).into_owned();
            opened += usize::from(said.contains("granted"));
            if said.contains("of somebody else") {
                ended.store(true, Ordering::Relaxed);
                panic!("{said}");
            }
        }
        ended.store(true, Ordering::Relaxed);
        opened
    });
    let names = |folder: &Path| {
        let entries = fs::read_dir(folder).expect("it is listed");
        entries.map(|entry| entry.expect("it is read").file_name()).collect::<BTreeSet<_>>()
    };
    assert_eq!(names(&others), ["key", "registry"].map(OsString::from).into());
    assert_eq!(names(&others.join("registry")), ["key"].map(OsString::from).into());
    assert!(opened > 0, "no call got the folder");
}

/// The host makes missing caches. Where a tool made a link, it makes none behind it.
#[test]
fn cache_is_not_made_behind_a_link_of_a_tool() {
    for target in ["others", "others/deep"] {
        let cli = Cli::new();
        let others = somebody_elses(&cli);
        let cargo = cli.work().join(".cargo");
        cli.configure("[tools.shell]\npresets = [\"cargo\"]\n");
        let run = |line: &str| {
            let mut call = cli.command(&["call", "bash", &format!("command={line}")]);
            Ended::from_output(call.env("CARGO_HOME", &cargo).output().expect("it runs")).ends(0)
        };
        run("test -d .cargo/registry && touch .cargo/registry/made");
        assert!(cargo.join("registry/made").exists(), "a place in the project is made");
        run(&format!("rm -rf .cargo; ln -s {} .cargo", others.with_file_name(target).display()));
        assert!(cargo.is_symlink());
        run("true");
        assert_eq!(names_and_texts(&others), [(others.join("key"), "of somebody else".into())]);
        let names: Vec<_> = fs::read_dir(&others).expect("it is listed").collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }
}

/// A cache of a preset is written by commands, although no `allowed_paths` names it.
#[test]
fn link_in_a_cache_of_a_preset_is_no_grant() {
    let cli = Cli::new();
    let others = somebody_elses(&cli);
    let source = cli.work().with_file_name(".cargo").join("registry/src");
    cli.configure("[tools.file]\nallowed_paths = [\".\", { path = \"~/.cargo/registry/src\", access = \"read\" }]\n[tools.shell]\npresets = [\"cargo\"]\n");
    let link = format!("command=ln -s {} {}", others.display(), source.display());
    cli.run(&["call", "bash", &link]).ends(0);
    assert!(source.is_symlink());
    let key = format!("path={}", others.join("key").display());
    nothing_comes_from(
        &cli,
        &others,
        &[
            &["call", "read", &key],
            &["call", "read", &format!("path={}", source.join("key").display())],
            &["call", "bash", &format!("command=cat {0}/key; touch {0}/made", others.display())],
        ],
    );
}

/// What a refusal says to write is written, and the next calls work.
#[test]
fn line_of_a_refusal_is_a_valid_configuration() {
    for (name, has_line) in
        [("Makefile", false), (".netrc", false), ("todo.txt", false), ("own/todo.txt", true)]
    {
        let cli = Cli::new();
        let path = cli.work().with_file_name(name);
        fs::create_dir_all(cli.work().with_file_name("own")).expect("a folder is made");
        fs::write(&path, "to do").expect("a file is written");
        let read = ["call", "read", &format!("path={}", path.display())];
        let refused = cli.run(&read).ends(3).stderr;
        let advice = if has_line { "To allow it" } else { "grant that directory" };
        assert!(refused.contains(advice), "{refused}");
        let lines = refused.split_once("    [tools.file]\n");
        assert_eq!(lines.is_some(), has_line, "{name}: {refused}");
        let Some((_, line)) = lines else { continue };
        cli.configure(&format!("[tools.file]\n{line}"));
        assert!(cli.run(&read).ends(0).stdout.contains("to do"));
        cli.run(&["call", "read", "path=notes.txt"]).ends(0);
    }
}
