//! Keys and signatures, against Debian's `minisign` both ways, and what installing makes of them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::{Living, ends, fetched, server, version};

#[path = "../../host/packages/registry/tests/fetching/writable.rs"]
mod writable;

/// A component in a private folder, where `minisign` also puts its keys.
fn component(living: &Living, name: &str, answer: &'static str) -> PathBuf {
    let folder = living.root().join("author");
    fs::create_dir_all(&folder).expect("a folder is made");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("it is private");
    let path = folder.join(format!("{name}.wasm"));
    fs::write(&path, version(name, "1.0.0", answer).encode()).expect("it is written");
    path
}

/// The text of a path.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("it is UTF-8")
}

/// Makes a key without a password. Returns the public one.
pub(crate) fn new_key(living: &Living, name: &str) -> String {
    let made = living.toolhold(&["plugin", "key", "new", name, "--no-password", "--json"]);
    let made: Value = serde_json::from_str(&ends(&made, 0)).expect("it is JSON");
    made["key"].as_str().expect("it has a key").to_owned()
}

/// Trusts a key with plugins, in the user's configuration. `more`: further lines of the key.
fn trust(living: &Living, key: &str, plugins: &str, more: &str) {
    let config = format!(
        "[installing]\nrequire_signature = true\n[[installing.keys]]\nname = \"acme\"\nkey = \"{key}\"\nplugins = [\"{plugins}\"]\n{more}\n"
    );
    let folder = &living.folders.config;
    fs::create_dir_all(folder).expect("a folder is made");
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).expect("it is private");
    fs::write(living.folders.config_file(), config).expect("it is written");
}

/// Debian's `minisign`, in the folder of the file.
fn minisign(root: &Path, file: &Path, arguments: &[&str]) -> Output {
    let libraries = fs::read_dir(root.join("usr/lib")).expect("there are libraries");
    let libraries: Vec<PathBuf> =
        libraries.map(|entry| entry.expect("it is read").path()).collect();
    Command::new(root.join("usr/bin/minisign"))
        .env_clear()
        .env("LD_LIBRARY_PATH", std::env::join_paths(libraries).expect("they can be joined"))
        .current_dir(file.parent().expect("it has a folder"))
        .args(arguments)
        .arg("-m")
        .arg(file)
        .stdin(Stdio::null())
        .output()
        .expect("it starts")
}

#[test]
fn published_plugin_is_installed_with_its_signature() {
    let author = Living::new();
    let file = component(&author, "word", "one");
    let told = ends(&author.toolhold(&["plugin", "sign", text(&file)]), 2);
    assert!(told.contains("to make one: toolhold plugin key new default"), "{told}");
    let key = new_key(&author, "default");
    ends(&author.toolhold(&["plugin", "sign", text(&file)]), 0);
    let folder = author.root().join("served");
    fs::create_dir(&folder).expect("a folder is made");
    let registry = writable::Registry { has_referrers: true, ..Default::default() }.serve();
    let in_registry = format!("oci+http://127.0.0.1:{}/plugin:1.0", registry.port());
    for destination in [text(&folder), &in_registry] {
        let publish = ["plugin", "publish", text(&file), destination];
        let told = ends(&author.toolhold(&publish), 0);
        assert!(told.contains("word 1.0.0 is published, signed by key `default`"), "{told}");
        let again = ends(&author.toolhold(&publish), 0);
        assert!(again.contains("is already published"), "{again}");
        assert!(!again.contains("Another component"), "{again}");
        let user = Living::new();
        trust(&user, &key, "word", "");
        let told = ends(&user.toolhold(&["plugin", "add", destination, "--yes"]), 0);
        assert!(told.contains("Installed word 1.0.0"), "{told}");
        let told = ends(&user.toolhold(&["plugin", "inspect", "word"]), 0);
        assert!(told.contains("Signed by your trusted key `acme`"), "{told}");
        ends(&user.toolhold(&["plugin", "verify"]), 0);
    }
    let published = folder.join("word.wasm");
    let stranger = Living::new();
    for line in [&["plugin", "add", text(&published), "--yes"][..], &["plugin", "inspect", "word"]]
    {
        let told = ends(&stranger.toolhold(line), 0);
        assert!(told.contains("which isn't trusted. To trust the key, add it"), "{told}");
    }
    let mode = fs::metadata(&published).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode, 0o644);
    // The same component without its signature leaves the signature in the folder.
    let unsigned = author.root().join("unsigned.wasm");
    fs::copy(&file, &unsigned).expect("it is copied");
    let signed = fs::read(folder.join("word.wasm.minisig")).expect("it is there");
    ends(&author.toolhold(&["plugin", "publish", text(&unsigned), text(&folder)]), 0);
    assert_eq!(fs::read(folder.join("word.wasm.minisig")).ok(), Some(signed));

    // A rebuilt component has a signature of the component before, and then none.
    let before = fs::read(&published).expect("it is there");
    component(&author, "word", "two");
    let publish = ["plugin", "publish", text(&file), text(&folder)];
    let told = ends(&author.toolhold(&publish), 2);
    assert!(told.contains("the signature is wrong") && told.contains("plugin sign"), "{told}");
    fs::remove_file(file.with_extension("wasm.minisig")).expect("it is removed");
    for destination in [text(&folder), &in_registry] {
        let line = ["plugin", "publish", text(&file), destination];
        let told = ends(&author.toolhold(&line), if destination == in_registry { 4 } else { 2 });
        assert!(told.contains("--replace"), "{told}");
    }
    assert_eq!(fs::read(&published).ok(), Some(before), "nothing is replaced");
    assert!(folder.join("word.wasm.minisig").exists());
    let told = ends(&author.toolhold(&[&publish[..], &["--replace"]].concat()), 0);
    assert!(told.contains("without a signature"), "{told}");
    assert!(told.contains("Another component with version 1.0.0 was published"), "{told}");
    let (_, digest) = told.split_once(" --digest ").expect("a command has the digest");
    let digest = digest.lines().next().expect("it has a line");
    let user = Living::new();
    let exactly = ["plugin", "add", text(&published), "--digest", digest];
    ends(&user.toolhold(&exactly), 0);
    assert_eq!(fs::read(&published).ok(), fs::read(&file).ok());
    assert!(!folder.join("word.wasm.minisig").exists(), "the old signature is gone");

    for (destination, told) in
        [("https://example.com/word.wasm", "accepts no uploads"), ("/nowhere", "isn't a folder")]
    {
        let text = ends(&author.toolhold(&["plugin", "publish", text(&file), destination]), 2);
        assert!(text.contains(told), "{text}");
    }
    fs::write(&file, b"\0asm no component").expect("it is written");
    let told = ends(&author.toolhold(&publish), 4);
    assert!(!told.contains("is published"), "{told}");
}

#[test]
fn minisign_verifies_what_toolhold_signs_and_signs_with_its_keys() {
    let Some(debian) = fetched("debian") else { return };
    let living = Living::new();
    let file = component(&living, "word", "one");
    new_key(&living, "plain");
    let mut command = living.command();
    let made = command
        .args(["plugin", "key", "new", "sealed", "--password-from", "env:PASSWORD"])
        .env("PASSWORD", "correct horse")
        .output()
        .expect("toolhold starts");
    let told = ends(&made, 0);
    assert!(!told.contains("correct horse"), "{told}");
    let keys = living.folders.config.join("keys");
    for (name, password) in [("plain", None), ("sealed", Some("correct horse"))] {
        let mut command = living.command();
        command.args(["plugin", "sign", text(&file), "--key", name]);
        if let Some(password) = password {
            command.args(["--password-from", "env:PASSWORD"]).env("PASSWORD", password);
        }
        let told = ends(&command.output().expect("toolhold starts"), 0);
        assert!(told.contains("name=word version=1.0.0 manifest=sha256:"), "{told}");
        let public = keys.join(format!("{name}.pub"));
        let verified = ends(&minisign(&debian, &file, &["-V", "-p", text(&public)]), 0);
        assert!(verified.contains("toolhold-plugin/1 name=word version=1.0.0"), "{verified}");
    }
    // It is the signature of this file by this key, to minisign as well.
    let public = keys.join("plain.pub");
    assert_ne!(
        minisign(&debian, &file, &["-V", "-p", text(&public)]).status.code(),
        Some(0),
        "the last signature is by the other key"
    );
    let sealed = keys.join("sealed.pub");
    fs::write(&file, version("word", "1.0.0", "two").encode()).expect("it is changed");
    assert_ne!(minisign(&debian, &file, &["-V", "-p", text(&sealed)]).status.code(), Some(0));

    // Its own signatures are made with Toolhold's keys, too.
    let (secret, signature) =
        (keys.join("plain.key"), living.root().join("author/word.wasm.minisig"));
    fs::remove_file(&signature).expect("it was there");
    ends(&minisign(&debian, &file, &["-S", "-W", "-s", text(&secret)]), 0);
    ends(&minisign(&debian, &file, &["-V", "-p", text(&public)]), 0);
}

#[test]
fn toolhold_accepts_keys_and_signatures_of_minisign() {
    let Some(debian) = fetched("debian") else { return };
    let living = Living::new();
    let file = component(&living, "word", "one");
    let (public, secret) = (living.root().join("author/m.pub"), living.root().join("author/m.key"));
    let files = ["-p", text(&public), "-s", text(&secret)];
    ends(&minisign(&debian, &file, &[&["-G", "-W"], &files[..]].concat()), 0);
    ends(&minisign(&debian, &file, &["-S", "-W", "-s", text(&secret)]), 0);
    let key = fs::read_to_string(&public).expect("it is there");
    trust(&living, key.lines().nth(1).expect("it has two lines"), "word", "");
    let shown = ends(&living.toolhold(&["plugin", "inspect", text(&file)]), 0);
    assert!(shown.contains("Signed by your trusted key `acme`"), "{shown}");
    let told = ends(&living.toolhold(&["plugin", "add", text(&file), "--yes"]), 0);
    assert!(told.contains("Signed by your trusted key `acme`"), "{told}");

    ends(&living.toolhold(&["plugin", "sign", text(&file), "--key", text(&secret)]), 0);
    ends(&minisign(&debian, &file, &["-V", "-p", text(&public)]), 0);
    // A copy of the signature beside other bytes is refused, by name.
    let other = component(&living, "other", "two");
    let beside = |path: &Path| PathBuf::from(format!("{}.minisig", path.display()));
    fs::copy(beside(&file), beside(&other)).expect("it is copied");
    let told = ends(&living.toolhold(&["plugin", "add", text(&other), "--yes"]), 4);
    assert!(told.contains("the signature is wrong"), "{told}");
}

#[test]
fn plugin_is_installed_only_with_a_signature_that_counts() {
    let living = Living::new();
    let file = component(&living, "word", "one");
    let key = new_key(&living, "default");
    let lock = living.folders.data.join("toolhold.lock");
    let refused = |reason: &str| {
        let told = ends(&living.toolhold(&["plugin", "add", text(&file), "--yes"]), 4);
        assert!(told.contains(reason), "{reason}: {told}");
        assert!(!lock.exists(), "nothing is installed");
        assert!(!living.folders.data.join("approved/word.wasm").exists());
    };
    trust(&living, &key, "word", "");
    refused("the signature is missing");
    ends(&living.toolhold(&["plugin", "sign", text(&file)]), 0);
    trust(&living, &key, "other-*", "");
    refused("is not trusted for `word`");
    trust(&living, &key, "word", "sources = [\"oci://registry.example/acme/*\"]");
    refused("is not trusted for `word` from");
    trust(&living, &key, "word", "not_after = \"2026-01-01\"");
    refused("expired after 2026-01-01");
    trust(&living, &key, "word", "revoked = true");
    refused("is revoked");
    // What is revoked is refused also where no signature is needed.
    let config = fs::read_to_string(living.folders.config_file()).expect("it is there");
    fs::write(living.folders.config_file(), config.replace("require_signature = true", ""))
        .expect("it is written");
    refused("is revoked");
    trust(&living, &new_key(&living, "another"), "word", "");
    refused("which isn't trusted");
    trust(&living, &key, "word", "");
    let config = fs::read_to_string(living.folders.config_file()).expect("it is there");
    let nowhere =
        config.replace("[installing]", "[installing]\nsources = [\"https://a.example/*\"]");
    fs::write(living.folders.config_file(), nowhere).expect("it is written");
    refused("the plugin's source isn't in `installing.sources`");

    trust(&living, &key, "word", "");
    ends(&living.toolhold(&["plugin", "add", text(&file), "--yes"]), 0);
    let locked: Value =
        serde_json::from_slice(&fs::read(&lock).expect("it is there")).expect("it is JSON");
    assert_eq!(locked["word"]["source"]["signer"], "acme", "{locked}");

    // The working directory's file can't trust a key, or need no signature.
    let evil = new_key(&living, "evil");
    fs::write(
        living.work().join("toolhold.toml"),
        format!("[installing]\nrequire_signature = false\n[[installing.keys]]\nname = \"evil\"\nkey = \"{evil}\"\nplugins = [\"*\"]\n"),
    )
    .expect("it is written");
    let other = component(&living, "other", "two");
    ends(&living.toolhold(&["plugin", "sign", text(&other), "--key", "evil"]), 0);
    let told = ends(&living.toolhold(&["plugin", "add", text(&other), "--yes"]), 4);
    assert!(told.contains("which isn't trusted"), "{told}");
}

#[test]
fn update_that_loses_its_signer_waits_for_approval() {
    let living = Living::new();
    let file = component(&living, "word", "one");
    let key = new_key(&living, "default");
    trust(&living, &key, "word", "");
    let config = fs::read_to_string(living.folders.config_file()).expect("it is there");
    fs::write(living.folders.config_file(), config.replace("require_signature = true", ""))
        .expect("it is written");
    ends(&living.toolhold(&["plugin", "sign", text(&file)]), 0);
    ends(&living.toolhold(&["plugin", "add", text(&file), "--yes"]), 0);
    // The same tools, and nobody's signature.
    let next = version("word", "1.0.1", "two").encode();
    fs::write(&file, next).expect("it is written");
    fs::remove_file(living.root().join("author/word.wasm.minisig")).expect("it was there");
    let shown = |told: &str| {
        told.contains("was your trusted key `acme`") && told.contains("is  no trusted key")
    };
    let told = ends(&living.toolhold(&["plugin", "update", "--check"]), 0);
    assert!(told.contains("needs approval") && shown(&told), "{told}");
    let told = ends(&living.toolhold(&["plugin", "update", "--check", "--json"]), 0);
    let told: Value = serde_json::from_str(&told).expect("it is JSON");
    assert_eq!(told[0]["signer"], json!({ "old": "acme", "new": null }), "{told}");
    let told = ends(&living.toolhold(&["plugin", "update"]), 3);
    assert!(told.contains("held") && shown(&told), "{told}");
    let told = ends(&living.toolhold(&["plugin", "approve", "word"]), 3);
    assert!(shown(&told), "{told}");
    let told = ends(&living.toolhold(&["plugin", "inspect", "word"]), 0);
    assert!(shown(&told), "{told}");
    // Signed again, it is just a newer version.
    ends(&living.toolhold(&["plugin", "sign", text(&file)]), 0);
    let told = ends(&living.toolhold(&["plugin", "update"]), 0);
    assert!(told.contains("updated"), "{told}");
}

#[test]
fn new_key_is_shown_with_both_of_its_uses() {
    let living = Living::new();
    let told = ends(&living.toolhold(&["plugin", "key", "new", "fleet", "--no-password"]), 0);
    for words in ["[[installing.keys]]", "name = \"fleet\"", "/etc/toolhold/ceiling.pub instead"] {
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[test]
fn secret_keys_and_passwords_are_never_shown_or_overwritten() {
    let living = Living::new();
    let key = new_key(&living, "mine");
    let secret = living.folders.config.join("keys/mine.key");
    let before = fs::read_to_string(&secret).expect("it is there");
    let told = ends(&living.toolhold(&["plugin", "key", "new", "mine", "--no-password"]), 2);
    assert!(told.contains("not overwritten"), "{told}");
    let shown = ends(&living.toolhold(&["plugin", "key", "show"]), 0);
    assert!(shown.contains(&key), "{shown}");
    let shown = shown + &ends(&living.toolhold(&["plugin", "key", "show", "mine", "--json"]), 0);
    let hidden = before.lines().nth(1).expect("it has two lines");
    assert!(!shown.contains(&hidden[..40]), "{shown}");
    assert_eq!(fs::read_to_string(&secret).expect("it is there"), before);
    // Without a terminal, the password isn't guessed, and no key is made.
    let told = ends(&living.toolhold(&["plugin", "key", "new", "other"]), 2);
    assert!(told.contains("--password-from"), "{told}");
    assert!(!living.folders.config.join("keys/other.key").exists());
}

#[test]
fn tool_that_is_granted_the_whole_home_reads_no_secret_key() {
    let living = Living::new();
    new_key(&living, "release");
    let folder = living.folders.config.join("keys");
    let secret = fs::read_to_string(folder.join("release.key")).expect("it is there");
    let secret = secret.lines().nth(1).expect("it has a key");
    let home = living.root().display().to_string();
    let key = folder.join("release.key").display().to_string();
    let path = format!("path={key}");
    let (cat, cut) = (format!("command=cat {key}"), format!("command=cut -c3- {key}"));
    let copy = format!("command=cp {key} copied; cat copied");
    for call in [
        &["read", &*path][..],
        &["grep", "pattern=RW", &path],
        &["copy_path", &format!("source={key}"), "destination=copied"],
        &["bash", &cat],
        &["bash", &cut],
        &["bash", &copy],
    ] {
        let line = [&["--allow", &home, "call", "--yes"], call].concat();
        let output = living.toolhold(&line);
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains(&secret[4..]) && !said.contains("REDACTED"), "{call:?}: {said}");
    }
    let copied = fs::read_to_string(living.work().join("copied")).unwrap_or_default();
    assert!(!copied.contains(secret), "{copied}");
}
