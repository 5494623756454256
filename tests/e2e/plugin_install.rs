//! `toolhold plugin add`, `update`, `rollback`, `verify` and `remove`, by what they leave behind
//! and what hosts serve then.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{
    Component, Living, Offer, ends, run, said, soon, state, type_at_terminal, until, until_says,
    version,
};

/// Everything that installing writes, by path. What is in the compile cache doesn't count.
pub(crate) fn read_kept(living: &Living) -> BTreeMap<PathBuf, Vec<u8>> {
    fn walk(folder: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => walk(&path, found),
                Ok(kind) if kind.is_file() => {
                    found.insert(path.clone(), fs::read(path).unwrap_or_default());
                }
                _ => {}
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(&living.folders.config, &mut found);
    walk(&living.folders.data.join("approved"), &mut found);
    let lock = living.folders.data.join("toolhold.lock");
    found.extend(fs::read(&lock).ok().map(|text| (lock, text)));
    found
}

/// SHA-256 of a component's file.
fn digest_of(living: &Living, file: &str) -> String {
    let told = ends(&living.toolhold(&["plugin", "inspect", file, "--json"]), 0);
    let told: Value = serde_json::from_str(&told).expect("it is JSON");
    told["digest"].as_str().expect("it has one").to_owned()
}

fn source(living: &Living, bytes: &[u8]) -> String {
    let path = living.root().join("source.wasm");
    fs::write(&path, bytes).expect("the source is written");
    path.display().to_string()
}

#[test]
fn plugin_is_installed_granted_and_served_by_a_running_host() {
    run(async {
        let living = Living::new();
        let host = living.watching(&[]).await;
        let manifest = br#"{"manifest":1,"name":"word","version":"1.0.0","description":"Says something","capabilities":[{"name":"files","access":"read","reason":"to read"}]}"#;
        let reads =
            Component { manifests: vec![manifest.to_vec()], ..version("word", "1.0.0", "one") };
        let file = source(&living, &reads.encode());
        // Nobody is asked here, so nothing happens.
        let before = read_kept(&living);
        let told = ends(&living.toolhold(&["plugin", "add", &file]), 3);
        assert!(told.contains("does not ask for") && told.contains("--yes"), "{told}");
        assert_eq!(read_kept(&living), before);

        let work = living.work().display().to_string();
        let told =
            ends(&living.toolhold(&["plugin", "add", &file, "--allow-read", &work, "--yes"]), 0);
        assert!(told.contains("Installed word 1.0.0") && told.contains(&work), "{told}");
        until_says(&host, "word", Some("one")).await;
        let own = fs::read_to_string(living.folders.config_file()).expect("it is written");
        let own: toml::Table = own.parse().expect("it is TOML");
        let granted = &own["plugins"]["word"]["allowed_paths"][0];
        assert_eq!(granted["path"].as_str(), Some(&*work));
        assert_eq!(granted["access"].as_str(), Some("read"));
        let lock: Value = serde_json::from_slice(
            &fs::read(living.folders.data.join("toolhold.lock")).expect("it is written"),
        )
        .expect("it is JSON");
        assert_eq!(lock["word"]["source"]["given"], *file, "{lock}");

        // The source isn't used again: what was shown is what serves.
        fs::write(&file, b"other").expect("the source changes");
        let next = living.host(&[]).await;
        assert_eq!(said(&next, "word").await.as_deref(), Ok("one"));

        let told = ends(&living.toolhold(&["plugin", "remove", "word"]), 0);
        let file = living.folders.config_file().display().to_string();
        assert!(told.contains(&format!("the tables below it from {file}, line ")), "{told}");
        until(&host, "it is gone", || host.tool("word__say").is_none()).await;
        let kept = read_kept(&living);
        assert!(!kept.keys().any(|path| path.ends_with("wasm")), "{:?}", kept.keys());
    });
}

#[test]
fn update_that_can_do_more_is_held_while_the_old_version_serves() {
    run(async {
        let living = Living::new();
        let host = living.watching(&[]).await;
        let file = source(&living, &version("word", "1.0.0", "one").encode());
        ends(&living.toolhold(&["plugin", "add", &file, "--yes"]), 0);
        until_says(&host, "word", Some("one")).await;

        let (end, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let callers: Vec<_> = (0..4)
            .map(|_| {
                let (host, end) = (Arc::clone(&host), Arc::clone(&end));
                let answered = Arc::clone(&answered);
                tokio::spawn(async move {
                    let mut answers = Vec::new();
                    while !end.load(Ordering::Relaxed) {
                        let answer = said(&host, "word").await.expect("no call fails");
                        answered.fetch_add(1, Ordering::Relaxed);
                        if answers.last() != Some(&answer) {
                            answers.push(answer);
                        }
                    }
                    answers
                })
            })
            .collect();

        // It offers one more tool.
        let mut more = Component { answer: "two", ..version("word", "1.1.0", "two") };
        more.offers.push(Offer::named("shout"));
        let file = source(&living, &more.encode());
        let check = ends(&living.toolhold(&["plugin", "update", "--check", "--json"]), 0);
        let check: Value = serde_json::from_str(&check).expect("it is JSON");
        assert_eq!(check[0]["state"], "more", "{check}");
        assert_eq!(check[0]["difference"]["tools_added"][0], "word__shout", "{check}");
        let told = ends(&living.toolhold(&["plugin", "update", "word"]), 3);
        assert!(told.contains("held") && told.contains("word__shout"), "{told}");
        until(&host, "the update is held", || state(&host, "word").waiting.is_some()).await;
        let held = state(&host, "word");
        assert!(held.waiting.is_some_and(|waiting| waiting.held), "it needs approval");
        // A host that starts now serves the old one too.
        let next = living.host(&[]).await;
        assert_eq!(said(&next, "word").await.as_deref(), Ok("one"));
        let before = answered.load(Ordering::Relaxed);
        soon("calls go on", || answered.load(Ordering::Relaxed) > before + 50).await;

        ends(&living.toolhold(&["plugin", "approve", "word", "--yes"]), 0);
        until_says(&host, "word", Some("two")).await;
        // Only the code differs: who asks for the update has approved it.
        more.answer = "three";
        fs::write(&file, more.encode()).expect("the source changes");
        ends(&living.toolhold(&["plugin", "update", "word"]), 0);
        until_says(&host, "word", Some("three")).await;
        let history = ends(&living.toolhold(&["plugin", "history", "word", "--json"]), 0);
        let history: Value = serde_json::from_str(&history).expect("it is JSON");
        assert_eq!(history["previous"].as_array().map(Vec::len), Some(2), "{history}");
        ends(&living.toolhold(&["plugin", "rollback", "word"]), 0);
        until_says(&host, "word", Some("two")).await;
        ends(&living.toolhold(&["plugin", "rollback", "word"]), 0);
        until_says(&host, "word", Some("one")).await;
        let told = ends(&living.toolhold(&["plugin", "rollback", "word"]), 4);
        assert!(told.contains("no earlier version"), "{told}");

        end.store(true, Ordering::Relaxed);
        for caller in callers {
            let answers = caller.await.expect("no caller fails");
            // A caller may be too slow to see each one, and sees none out of order.
            let mut order = ["one", "two", "three", "two", "one"].iter();
            assert!(answers.iter().all(|answer| order.any(|next| next == answer)), "{answers:?}");
        }
        assert_eq!(state(&host, "word").failures, 0);
    });
}

#[test]
fn approved_update_names_the_grants_without_which_it_does_not_load() {
    let living = Living::new();
    let file = source(&living, &version("word", "1.0.0", "one").encode());
    ends(&living.toolhold(&["plugin", "add", &file, "--yes"]), 0);
    let manifest = br#"{"manifest":1,"name":"word","version":"1.1.0","description":"Asks","capabilities":[{"name":"files","access":"read","reason":"to read"},{"name":"http","reason":"to ask"}]}"#;
    let asking = Component {
        in_component: r#"(import "wasi:http/types@0.2.6" (instance))"#,
        manifests: vec![manifest.to_vec()],
        ..version("word", "1.1.0", "two")
    };
    fs::write(&file, asking.encode()).expect("the source changes");
    let command = "toolhold plugin grant word --allow-read . --allow-host api.example.com";
    let consequence = "Without `http`, the plugin doesn't load.";

    ends(&living.toolhold(&["plugin", "update"]), 3);
    let told = ends(&living.toolhold(&["plugin", "approve", "word", "--yes"]), 0);
    assert!(told.contains(command) && told.contains(consequence), "{told}");
    ends(&living.toolhold(&["plugin", "rollback", "word"]), 0);
    let told = ends(&living.toolhold(&["plugin", "update", "--yes"]), 0);
    assert!(told.contains(command) && told.contains(consequence), "{told}");

    // The named command is all that is missing.
    let refused = living.toolhold(&["call", "--yes", "word__say"]);
    assert_ne!(refused.status.code(), Some(0), "{refused:?}");
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    ends(&living.toolhold(&words), 0);
    let told = ends(&living.toolhold(&["call", "--yes", "word__say"]), 0);
    assert!(told.contains("two"), "{told}");
}

#[test]
fn what_must_not_be_installed_leaves_nothing_behind() {
    let living = Living::new();
    let good = source(&living, &version("word", "2.0.0", "two").encode());
    ends(&living.toolhold(&["plugin", "add", &good, "--yes"]), 0);
    let before = read_kept(&living);
    let refuse = |arguments: &[&str], bytes: &[u8], code: i32, told: &str| {
        let path = living.root().join("bad.wasm");
        fs::write(&path, bytes).expect("the source is written");
        let path = path.display().to_string();
        let line: Vec<&str> = ["plugin", "add", &path, "--allow-host", "api.example.com"]
            .into_iter()
            .chain(arguments.iter().copied())
            .collect();
        let text = ends(&living.toolhold(&line), code);
        assert!(text.contains(told), "{text}");
        assert_eq!(read_kept(&living), before, "nothing changed: {text}");
    };
    let yes = ["--yes"];
    refuse(&yes, &version("file", "1", "x").encode(), 4, "the name of a built-in plugin");
    refuse(&yes, &version("f1le", "1", "x").encode(), 4, "looks like `file`");
    refuse(&yes, &version("w0rd", "1", "x").encode(), 4, "looks like `word`");
    refuse(&yes, &version("word", "3", "x").encode(), 4, "already installed");
    refuse(&yes, b"no component", 4, "isn't WebAssembly");
    refuse(&yes, &version("other", "1", "x").encode()[..200], 4, "is damaged");
    let other = version("other", "1", "x").encode();
    refuse(&["--digest", &"0".repeat(64)], &other, 2, "the component's digest differs");
    refuse(&["--digest", "0000"], &other, 2, "the minimum is 32");
    refuse(&["--yes", "--allow-read", "/nowhere"], &other, 2, "/nowhere can't be used");
    refuse(&yes, &other, 2, "doesn't ask for network requests");
    let asks = br#"{"manifest":1,"name":"other","version":"1","description":"Asks","capabilities":[{"name":"http","reason":"to ask"}]}"#;
    let asking = Component { manifests: vec![asks.to_vec()], ..version("other", "1", "x") };
    refuse(&["--yes", "--allow-host", "a b"], &asking.encode(), 4, "a b");
    // It imports requests, and its manifest asks for nothing.
    let unasked = Component {
        in_component: r#"(import "wasi:http/types@0.2.6" (instance))"#,
        ..version("other", "1", "x")
    };
    refuse(&yes, &unasked.encode(), 4, "http");

    // What the source of an installed one gives.
    let update = |bytes: &[u8], arguments: &[&str], told: &str| {
        fs::write(&good, bytes).expect("the source changes");
        let line: Vec<&str> =
            ["plugin", "update", "word"].into_iter().chain(arguments.iter().copied()).collect();
        let text = ends(&living.toolhold(&line), 4);
        assert!(text.contains(told), "{text}");
        assert_eq!(read_kept(&living), before, "nothing changed: {text}");
    };
    update(&version("word", "1.9.0", "old").encode(), &yes, "older than 2.0.0");
    update(&version("word", "2.0.0-rc1", "old").encode(), &yes, "older than 2.0.0");
    update(&version("word", "99999999999999999999", "x").encode(), &yes, "can't be compared");
    update(&version("other", "2.0.1", "x").encode(), &yes, "the source now has the plugin `other`");
    update(b"\0asm", &yes, "");
    fs::remove_file(&good).expect("the source goes");
    ends(&living.toolhold(&["plugin", "update"]), 4);
    assert_eq!(read_kept(&living), before);
    fs::write(&good, version("word", "1.9.0", "old").encode()).expect("it is back");
    ends(&living.toolhold(&["plugin", "update", "word", "--downgrade", "--yes"]), 0);
}

#[test]
fn changed_copy_is_reported_and_does_not_serve() {
    run(async {
        let living = Living::new();
        let file = source(&living, &version("word", "1.0.0", "one").encode());
        ends(&living.toolhold(&["plugin", "add", &file, "--yes"]), 0);
        ends(&living.toolhold(&["plugin", "verify"]), 0);
        let approved = living.folders.data.join("approved");
        let copy = fs::read_dir(&approved)
            .expect("it is there")
            .flatten()
            .find(|entry| entry.path().extension().is_some_and(|end| end == "wasm"))
            .expect("the copy is there")
            .path();
        fs::write(&copy, version("word", "1.0.0", "evil").encode()).expect("it is changed");
        let told = ends(&living.toolhold(&["plugin", "verify"]), 1);
        assert!(told.contains("another digest"), "{told}");
        let host = living.host(&[]).await;
        assert!(said(&host, "word").await.is_err(), "what nobody approved doesn't serve");
        fs::remove_file(&copy).expect("it goes");
        let told = ends(&living.toolhold(&["plugin", "verify", "--json"]), 1);
        assert!(told.contains(r#""ok": false"#), "{told}");
    });
}

#[test]
fn plugin_in_the_plugin_folder_gives_way_to_an_installed_one() {
    run(async {
        let living = Living::new();
        let file = source(&living, &version("word", "1.0.0", "installed").encode());
        ends(&living.toolhold(&["plugin", "add", &file, "--yes"]), 0);
        living.put("word", &version("word", "9.0.0", "dropped").encode());
        let host = living.host(&["plugin_folder.reload=trust"]).await;
        assert_eq!(said(&host, "word").await.as_deref(), Ok("installed"));
    });
}

#[test]
fn plugin_that_a_project_names_is_installed_after_approval_and_with_its_digest_alone() {
    run(async {
        let living = Living::new();
        let good = version("word", "1.0.0", "one").encode();
        let file = source(&living, &good);
        let digest = digest_of(&living, &file);
        let project = living.work().join("toolhold.toml");
        let name = |digest: &str| {
            let text = format!("[plugins.word]\nsource = {file:?}\ndigest = \"{digest}\"\n");
            fs::write(&project, text).expect("the project names a plugin");
        };
        name(&digest);
        // A project alone starts nothing.
        let before = read_kept(&living);
        let told = ends(&living.toolhold(&["plugin", "install", "--yes"]), 0);
        assert!(told.contains("Every plugin") && told.contains("toolhold trust"), "{told}");
        assert_eq!(read_kept(&living), before);
        let told = ends(&living.toolhold(&["trust"]), 3);
        assert!(told.contains(&file), "{told}");
        assert_eq!(read_kept(&living), before);

        // Another component than the one that the file names is refused.
        fs::write(&file, version("word", "1.0.0", "evil").encode()).expect("it is changed");
        let told = ends(&living.toolhold(&["trust", "--yes"]), 4);
        assert!(told.contains("digest is") && told.contains(&digest), "{told}");
        assert!(!living.folders.data.join("toolhold.lock").exists());
        fs::write(&file, &good).expect("it is back");
        let told = ends(&living.toolhold(&["plugin", "install", "--yes"]), 0);
        assert!(told.contains("Installed word 1.0.0"), "{told}");
        ends(&living.toolhold(&["plugin", "verify"]), 0);

        // It doesn't serve where the configuration names another digest, approved or not.
        let other = format!("plugins.word.digest=\"{}\"", "0".repeat(64));
        let host = living.host(&[&other]).await;
        assert!(said(&host, "word").await.is_err_and(|why| why.contains(&digest)));
        let host = living.host(&[]).await;
        assert_eq!(said(&host, "word").await.as_deref(), Ok("one"));
    });
}

#[test]
fn relative_source_starts_at_the_folder_of_the_file_that_names_it() {
    let living = Living::new();
    let config = living.folders.config.clone();
    fs::create_dir_all(&config).expect("a folder is made");
    fs::set_permissions(&config, fs::Permissions::from_mode(0o700)).expect("it is private");
    let write = |path: PathBuf, name: &str| {
        fs::write(path, version(name, "1.0.0", "x").encode()).expect("it is written");
    };
    // The user's file names one beside itself, and one in the home directory.
    write(config.join("own.wasm"), "own");
    write(living.root().join("home.wasm"), "home");
    write(living.work().join("theirs.wasm"), "theirs");
    fs::write(
        living.folders.config_file(),
        "[plugins.own]\nsource = \"own.wasm\"\n[plugins.home]\nsource = \"~/home.wasm\"\n",
    )
    .expect("it is written");
    ends(&living.toolhold(&["plugin", "install", "--yes"]), 0);
    // The project's file names one beside itself.
    fs::write(living.work().join("toolhold.toml"), "[plugins.theirs]\nsource = \"theirs.wasm\"\n")
        .expect("it is written");
    ends(&living.toolhold(&["trust", "--yes"]), 0);
    let lock = fs::read(living.folders.data.join("toolhold.lock")).expect("it is there");
    let lock: Value = serde_json::from_slice(&lock).expect("it is JSON");
    for (name, folder) in [("own", config), ("home", living.root()), ("theirs", living.work())] {
        let given = folder.join(format!("{name}.wasm"));
        assert_eq!(lock[name]["source"]["given"].as_str(), given.to_str(), "{lock}");
    }
}

#[test]
fn install_asks_for_no_grant_that_the_configuration_has() {
    let living = Living::new();
    let reader = br#"{"manifest":1,"name":"word","version":"1","description":"Reads","capabilities":[{"name":"files","access":"read","reason":"to read"}]}"#;
    let reads = Component { manifests: vec![reader.to_vec()], ..version("word", "1", "one") };
    let file = source(&living, &reads.encode());
    let config = living.folders.config.clone();
    fs::create_dir_all(&config).expect("a folder is made");
    fs::set_permissions(&config, fs::Permissions::from_mode(0o700)).expect("it is private");
    fs::write(
        living.folders.config_file(),
        format!("[plugins.word]\nsource = {file:?}\nallowed_paths = [\".\"]\n"),
    )
    .expect("it is written");
    let command = living.command();
    let mut script = Command::new("script");
    let line = format!("'{}' plugin install", crate::support::toolhold().display());
    script.args(["-qec", &line, "/dev/null"]).current_dir(living.work()).env_clear();
    script
        .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env("NO_COLOR", "1")
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let Some(ended) = type_at_terminal(script, "", "y\n") else { return };
    let shown = String::from_utf8_lossy(&ended.stdout);
    assert!(shown.contains("Granted already") && !shown.contains("Directories that"), "{shown}");
    assert!(shown.contains("Installed word 1"), "{shown}");
}

#[test]
fn grants_are_no_more_than_asked_for_and_those_of_a_name_are_shown_to_its_next_plugin() {
    let living = Living::new();
    let reader = br#"{"manifest":1,"name":"word","version":"1","description":"Reads","capabilities":[{"name":"files","access":"read","reason":"to read"}]}"#;
    let reads = Component { manifests: vec![reader.to_vec()], ..version("word", "1", "one") };
    let file = source(&living, &reads.encode());
    let work = living.work().display().to_string();
    ends(&living.toolhold(&["plugin", "add", &file, "--yes", "--allow-path", &work]), 0);
    let own = fs::read_to_string(living.folders.config_file()).expect("it is written");
    let own: toml::Table = own.parse().expect("it is TOML");
    assert_eq!(own["plugins"]["word"]["allowed_paths"][0]["access"].as_str(), Some("read"));
    let told = ends(&living.toolhold(&["plugin", "remove", "word"]), 0);
    assert!(told.contains("the next plugin of this name"), "{told}");
    let told = ends(&living.toolhold(&["plugin", "add", &file]), 3);
    assert!(told.contains("Granted already") && told.contains(&work), "{told}");
    let told = ends(&living.toolhold(&["plugin", "rollback", "nope"]), 2);
    assert!(told.contains("no plugin is installed"), "{told}");

    // Neither a plugin that only searches, nor one that names no access, gets to write.
    for capabilities in [
        r#"{"name":"search","reason":"to find"}"#,
        r#"{"name":"search","reason":"to find"},{"name":"files","reason":"to show"}"#,
    ] {
        let living = Living::new();
        let manifest = format!(
            r#"{{"manifest":1,"name":"word","version":"1","description":"Finds","capabilities":[{capabilities}]}}"#
        );
        let finds =
            Component { manifests: vec![manifest.into_bytes()], ..version("word", "1", "one") };
        let file = source(&living, &finds.encode());
        ends(&living.toolhold(&["plugin", "add", &file, "--yes"]), 0);
        ends(&living.toolhold(&["plugin", "grant", "word", "--allow-path", "."]), 0);
        let own = fs::read_to_string(living.folders.config_file()).expect("it is written");
        let own: toml::Table = own.parse().expect("it is TOML");
        assert_eq!(own["plugins"]["word"]["allowed_paths"][0]["access"].as_str(), Some("read"));
    }
}

#[test]
fn denied_path_names_the_command_that_grants_it_and_no_more() {
    let living = Living::new();
    let reader = br#"{"manifest":1,"name":"word","version":"1","description":"Reads","capabilities":[{"name":"files","access":"read","reason":"to read"},{"name":"process","reason":"to count"}]}"#;
    let mut reads = Component { manifests: vec![reader.to_vec()], ..version("word", "1", "one") };
    reads.offers[0].input_schema =
        r#"{"type":"object","properties":{"path":{"type":"string"}}}"#.into();
    reads.offers[0].subject_pointer = Some("/path".into());
    let file = source(&living, &reads.encode());
    let told = ends(&living.toolhold(&["plugin", "add", &file, "--yes"]), 0);
    assert!(told.contains("\n  toolhold plugin grant word --allow-read .\n"), "{told}");
    assert!(told.contains("\n  programs = ["), "{told}");

    let call = ["call", "--yes", "word__say", "path=a.txt"];
    let denied = ends(&living.toolhold(&call), 3);
    let command = "toolhold plugin grant word --allow-read .";
    assert!(denied.contains(command) && denied.contains(r#"access = "read" }"#), "{denied}");
    // A path elsewhere, with the directory that has it.
    let notes = living.root().join("my notes");
    let elsewhere = format!("path={}/a.txt", notes.display());
    let denied = ends(&living.toolhold(&["call", "--yes", "word__say", &elsewhere]), 3);
    let grant = format!("toolhold plugin grant word --allow-read '{}'", notes.display());
    assert!(denied.contains(&grant), "{denied}");
    assert!(denied.contains(&format!("path = {notes:?}, access")), "{denied}");

    // Grants that the plugin doesn't ask for, and directories that nobody may grant.
    let before = read_kept(&living);
    for (arguments, told) in [
        (&["word", "--allow-host", "example.com"][..], "doesn't ask for network requests"),
        (&["word", "--store", "16"], "doesn't ask for storage"),
        (&["word", "--allow-read", "/"], "the whole machine"),
        (&["w0rd", "--allow-read", "."], "w0rd"),
    ] {
        let line: Vec<&str> = ["plugin", "grant"].into_iter().chain(arguments.to_vec()).collect();
        let answer = living.toolhold(&line);
        assert_ne!(answer.status.code(), Some(0), "{line:?}");
        let text = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert!(text.contains(told), "{line:?}: {text}");
    }
    assert_eq!(read_kept(&living), before, "nothing is granted");
    let told = ends(&living.toolhold(&["plugin", "grant", "word"]), 0);
    assert!(told.contains(command), "{told}");
    assert_eq!(read_kept(&living), before, "a list grants nothing");

    // Writing, of a plugin that asks only to read.
    ends(&living.toolhold(&["plugin", "grant", "word", "--allow-path", "."]), 0);
    let own = fs::read_to_string(living.folders.config_file()).expect("it is written");
    let own: toml::Table = own.parse().expect("it is TOML");
    let granted = &own["plugins"]["word"]["allowed_paths"][0];
    assert_eq!(granted["access"].as_str(), Some("read"));
    assert_eq!(granted["path"].as_str(), living.work().to_str());
    ends(&living.toolhold(&call), 0);
    let told = ends(&living.toolhold(&["plugin", "add", &file, "--allow-read", "."]), 4);
    assert!(told.contains("toolhold plugin grant word"), "{told}");
}

#[test]
fn two_installs_at_once_leave_one_whole_plugin() {
    let living = Living::new();
    let files = ["one", "two"].map(|answer| {
        let path = living.root().join(format!("{answer}.wasm"));
        fs::write(&path, version("word", "1.0.0", answer).encode()).expect("it is written");
        path
    });
    let children = files.map(|file| {
        let mut command = toolhold(&living);
        command.args(["plugin", "add", "--yes"]).arg(file);
        command.spawn().expect("it starts")
    });
    let ended = children.map(|child| child.wait_with_output().expect("it ends").status.code());
    assert!(ended.contains(&Some(0)), "{ended:?}");
    ends(&living.toolhold(&["plugin", "verify"]), 0);
    let one = fs::read_dir(living.folders.data.join("approved"))
        .expect("it is there")
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|end| end == "wasm"))
        .count();
    assert_eq!(one, 1, "the other's copy is gone");
}

/// Ends processes at random moments of adding, updating, going back and removing. Each time the
/// state is the one before or the one after.
#[test]
fn soak_killed_install_leaves_the_old_state_or_the_new_one() {
    let rounds: u32 = if std::env::var_os("TOOLHOLD_SOAK").is_some() { 200 } else { 15 };
    let living = Living::new();
    // The plugin asks for files, so that adding it also writes a grant.
    let versions = ["1.0.0", "1.0.1"].map(|number| {
        let manifest = format!(
            r#"{{"manifest":1,"name":"word","version":"{number}","description":"Reads","capabilities":[{{"name":"files","access":"read","reason":"to read"}}]}}"#
        );
        let manifests = vec![manifest.into_bytes()];
        Component { manifests, ..version("word", number, "x") }.encode()
    });
    let file = source(&living, &versions[0]);
    let allowed = living.work().display().to_string();
    // Number of runs that were killed, and of those that came into force, for each action.
    let mut seen = BTreeMap::<&str, (u32, u32)>::new();
    let mut action = 0;
    for round in 0..rounds {
        // The version in force, and the ones before.
        let state = || {
            let lock = fs::read(living.folders.data.join("toolhold.lock")).unwrap_or_default();
            let lock: Value = serde_json::from_slice(&lock).unwrap_or_default();
            let text = |locked: &Value| locked["version"].as_str().map(str::to_owned);
            let previous = lock["word"]["previous"].as_array().cloned().unwrap_or_default();
            let all = [text(&lock["word"])].into_iter().chain(previous.iter().map(text));
            all.flatten().collect::<Vec<String>>()
        };
        let before = state();
        let other = usize::from(before.first().map(String::as_str) == Some("1.0.0"));
        fs::write(&file, &versions[other]).expect("the source changes");
        let other = ["1.0.0", "1.0.1"][other].to_owned();
        let (name, arguments, after): (_, &[&str], _) = match action {
            0 => ("add", &["add", &file, "--yes", "--allow-read", &allowed], vec![other]),
            1 | 3 => (
                "update",
                &["update", "word", "--yes", "--downgrade"],
                [vec![other], before.clone()].concat(),
            ),
            2 => ("rollback", &["rollback", "word"], before.get(1..).unwrap_or_default().to_vec()),
            _ => ("remove", &["remove", "word"], Vec::new()),
        };
        let mut child = toolhold(&living).arg("plugin").args(arguments).spawn().expect("it starts");
        // A whole run takes some tens of milliseconds here, so the moments are spread over it.
        let moment = Instant::now() + Duration::from_millis(u64::from(round * 37 % 83));
        // The first is killed at once, and the second one ends, however busy the machine is.
        while (round == 1 || Instant::now() < moment)
            && child.try_wait().expect("it is there").is_none()
        {
            std::thread::yield_now();
        }
        let killed = kill(child);
        let now = state();
        assert!(now == before || now == after, "{name}: {before:?} {now:?} {after:?}");
        let (kills, changes) = seen.entry(name).or_default();
        *kills += u32::from(killed);
        *changes += u32::from(now == after);
        let told = ends(&living.toolhold(&["plugin", "verify"]), 0);
        let expected = u32::from(!now.is_empty());
        assert!(told.contains(&format!("{expected} verified")), "{before:?} {now:?} {told}");
        // The user's file can be read, whatever happened.
        ends(&living.toolhold(&["config", "check"]), 0);
        // What was killed in time is tried again.
        if now == after {
            action = (action + 1) % 5;
        }
    }
    let all = |count: fn(&(u32, u32)) -> u32| seen.values().map(count).sum::<u32>();
    assert!(all(|seen| seen.0) > 0 && all(|seen| seen.1) > 0, "{seen:?}");
    if rounds >= 200 {
        let each = seen.values().all(|(kills, changes)| *kills > 0 && *changes > 0);
        assert!(each && seen.len() == 4, "{seen:?}");
    }
}

pub(crate) fn toolhold(living: &Living) -> Command {
    let mut command = living.command();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Ends a process. Returns whether it still ran.
pub(crate) fn kill(mut child: Child) -> bool {
    let ran = child.try_wait().expect("it is there").is_none();
    child.kill().expect("it ends");
    child.wait().expect("it ends");
    ran
}

#[test]
fn component_of_a_url_on_this_machine_is_installed() {
    let living = Living::new();
    let bytes = version("word", "1.0.0", "one").encode();
    let (address, requests) = serve(bytes);
    let url = format!("http://{address}/word.wasm");
    let told = ends(&living.toolhold(&["plugin", "add", &url, "--yes"]), 0);
    assert!(told.contains(&url), "{told}");
    assert!(requests.load(Ordering::Relaxed) >= 1);
    ends(&living.toolhold(&["plugin", "outdated"]), 0);
    // The request is in the record.
    let audit = ends(&living.toolhold(&["audit", "tail", "--json"]), 0);
    assert!(audit.contains(&address), "{audit}");
    let told = ends(&living.toolhold(&["plugin", "add", "http://192.0.2.1/word.wasm"]), 2);
    assert!(told.contains("https"), "{told}");
}

/// Serves a component on this machine. Returns the address, and the number of requests.
fn serve(bytes: Vec<u8>) -> (String, Arc<AtomicU64>) {
    use std::io::{BufRead, BufReader, Write};

    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has one").to_string();
    let requests = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&requests);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let first = lines.next().unwrap_or_default();
            lines.by_ref().take_while(|line| !line.is_empty()).for_each(drop);
            count.fetch_add(1, Ordering::Relaxed);
            let (status, body) = if first.contains("/word.wasm ") {
                ("200 OK", &*bytes)
            } else {
                ("404 Not Found", &[][..])
            };
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = (&stream).write_all(head.as_bytes()).and_then(|()| (&stream).write_all(body));
        }
    });
    (address, requests)
}
