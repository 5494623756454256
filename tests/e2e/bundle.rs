//! `toolhold plugin bundle`, from a machine with plugins to one without a network: what it leaves behind,
//! whoever made the bundle and whatever ends its installation.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use toolhold_registry::bundle::{EntryContent, NewEntry};
use toolhold_signing::{PasswordSource, SecretKey, Signature, Statement, read_secret_key};

use crate::plugin_install::{kill, read_kept, toolhold as quiet};
use crate::support::{Component, Living, Offer, ends, not_tried, run, until_says, version};

const FILTERS: &str = "[[rule]]\nname = \"acme\"\ncommands = [\"acme\"]\n";

/// An administrator with a key, and a user without a network.
struct Machines {
    admin: Living,
    user: Living,
    key: String,
}

impl Machines {
    /// The user trusts the key with plugins and bundles.
    fn new() -> Self {
        let (admin, user) = (Living::new(), Living::new());
        let made = admin.toolhold(&["plugin", "key", "new", "--no-password", "--json"]);
        let made: Value = serde_json::from_str(&ends(&made, 0)).expect("it is JSON");
        let key = made["key"].as_str().expect("it has a key").to_owned();
        let machines = Self { admin, user, key };
        machines.trust("bundles = true");
        machines
    }

    /// Makes the user trust the key, with further lines about it.
    fn trust(&self, more: &str) {
        self.configure(&format!(
            "[[installing.keys]]\nname = \"acme\"\nkey = \"{}\"\nplugins = [\"*\"]\n{more}\n",
            self.key
        ));
    }

    fn configure(&self, text: &str) {
        let folder = &self.user.folders.config;
        fs::create_dir_all(folder).expect("a folder is made");
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).expect("it is private");
        fs::write(self.user.folders.config_file(), text).expect("it is written");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.admin.root().join(name)
    }

    /// Writes a component on the administrator's machine, and signs it.
    fn signed(&self, component: &Component, file: &str) -> String {
        let path = self.path(file);
        fs::write(&path, component.encode()).expect("it is written");
        let path = text(&path).to_owned();
        ends(&self.admin.toolhold(&["plugin", "sign", &path]), 0);
        path
    }

    /// Installs a signed component on the administrator's machine, in place of an earlier one.
    fn add(&self, name: &str, number: &str, answer: &'static str) {
        let file = self.signed(&version(name, number, answer), &format!("{name}.wasm"));
        let _ = self.admin.toolhold(&["plugin", "remove", name]);
        ends(&self.admin.toolhold(&["plugin", "add", &file, "--yes"]), 0);
    }

    /// Makes a bundle of what the administrator has.
    fn create(&self, name: &str, more: &[&str]) -> PathBuf {
        let path = self.path(name);
        ends(
            &self.admin.toolhold(&[&["plugin", "bundle", "create", text(&path)], more].concat()),
            0,
        );
        path
    }

    /// Makes a bundle of filters and plugins: names, versions and answers.
    fn bundle(&self, name: &str, plugins: &[(&str, &str, &'static str)], filters: &str) -> PathBuf {
        plugins.iter().for_each(|(name, number, answer)| self.add(name, number, answer));
        let file = self.path("filters.toml");
        fs::write(&file, filters).expect("it is written");
        self.create(name, &["--filters", text(&file)])
    }

    fn secret(&self) -> SecretKey {
        let path = self.admin.folders.config.join("keys/default.key");
        read_secret_key(&path, &PasswordSource::default()).expect("it has no password")
    }

    /// A bundle that `toolhold` would not make. Without a lock, one that fits the plugins.
    fn forged(&self, lock: Option<Value>, plugins: &[(&str, &Component)]) -> PathBuf {
        let path = self.path("forged.tar");
        let _ = fs::remove_file(&path);
        let entries = plugins.iter().map(|(name, component)| entry(name, component.encode()));
        let mut entries: Vec<NewEntry> = entries.collect();
        let own = plugins.iter().map(|(name, component)| {
            let name = name.trim_start_matches("plugins/").trim_end_matches(".wasm");
            (name.to_owned(), locked(&component.encode(), "1.0.0"))
        });
        let lock = lock.unwrap_or_else(|| own.collect::<serde_json::Map<_, _>>().into());
        entries.push(entry("toolhold.lock", lock.to_string().into_bytes()));
        toolhold_registry::bundle::create(&path, entries, &self.secret()).expect("it is made");
        path
    }

    fn install(&self, bundle: &Path, more: &[&str]) -> std::process::Output {
        self.user.toolhold(&[&["plugin", "bundle", "install", text(bundle)], more].concat())
    }

    /// Installs a bundle that has to be refused, and looks that nothing changed.
    #[track_caller]
    fn refused(&self, bundle: &Path, more: &[&str], reason: &str) {
        let before = read_kept(&self.user);
        let told = ends(&self.install(bundle, &[&["--yes"], more].concat()), 4);
        assert!(told.contains(reason), "{reason}: {told}");
        assert!(read_kept(&self.user) == before, "nothing changed: {told}");
        assert!(!self.user.folders.data.join("bundle").exists(), "{told}");
    }
}

#[test]
fn key_that_a_ceiling_takes_away_is_refused_with_the_ceiling() {
    let machines = Machines::new();
    let bundle = machines.bundle("acme.tar", &[("notes", "1.0.0", "one")], FILTERS);
    let ceiling = machines.path("ceiling.toml");
    let entry = |key: &str, more: &str| {
        format!("[[installing.keys]]\nname = \"x\"\nkey = \"{key}\"\nplugins = [\"*\"]\n{more}\n")
    };
    let install = |keys: &str| {
        fs::write(&ceiling, keys).expect("it is written");
        let mut command = machines.user.command();
        command.args(["plugin", "bundle", "install", text(&bundle), "--yes"]);
        command.env("TOOLHOLD_CEILING", &ceiling).output().expect("it starts")
    };
    let other = "RWTkp7wu9DV4mg7a2pNdpvNEOj9dYkZsMqrBuZ1Er/rkykxixdMMkWLG";
    for keys in [entry(other, ""), entry(&machines.key, "")] {
        let told = ends(&install(&keys), 4);
        assert!(
            told.contains("limits the trusted keys")
                && told.contains("ceiling.toml, line 1")
                && told.contains("bundles = true"),
            "{told}"
        );
        assert_eq!(names(&machines.user), Vec::<String>::new());
    }
    ends(&install(&entry(&machines.key, "bundles = true")), 0);
    assert_eq!(names(&machines.user), ["notes"]);
    machines.configure("");
    let told = ends(&machines.install(&bundle, &["--yes"]), 4);
    assert!(told.contains("to trust the bundle") && told.contains("bundles = true"), "{told}");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("it is UTF-8")
}

fn entry(name: &str, bytes: Vec<u8>) -> NewEntry {
    NewEntry { name: name.to_owned(), content: EntryContent::Bytes(bytes) }
}

fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A plugin's entry in a lock.
fn locked(component: &[u8], version: &str) -> Value {
    let digest = sha256(component);
    let source = json!({ "given": "/a.wasm", "resolved": "/a.wasm", "installed_at": 1 });
    json!({ "digest": digest, "version": version, "source": source })
}

fn names(living: &Living) -> Vec<String> {
    let lock = fs::read(living.folders.data.join("toolhold.lock")).unwrap_or_default();
    let lock: serde_json::Map<String, Value> = serde_json::from_slice(&lock).unwrap_or_default();
    lock.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn bundle_installs_what_it_shows_after_approval_and_grants_nothing() {
    run(async {
        let machines = Machines::new();
        let user = &machines.user;
        let bundle = machines.bundle(
            "acme.tar",
            &[("word", "1.0.0", "one"), ("other", "1.0.0", "else")],
            FILTERS,
        );
        let told = ends(&user.toolhold(&["plugin", "bundle", "show", text(&bundle)]), 0);
        assert!(told.contains("`acme`") && told.contains("plugin word 1.0.0"), "{told}");
        let shown = ends(&user.toolhold(&["plugin", "bundle", "show", text(&bundle), "--json"]), 0);
        let shown: Value = serde_json::from_str(&shown).expect("it is JSON");
        assert_eq!(shown["plugins"].as_array().map(Vec::len), Some(2), "{shown}");
        assert_eq!((&shown["signer"], &shown["filters"]), (&json!("acme"), &json!(true)));

        let host = user.watching(&[]).await;
        let before = read_kept(user);
        let told = ends(&machines.install(&bundle, &[]), 3);
        assert!(told.contains("does not ask for") && told.contains("--yes"), "{told}");
        assert!(told.contains("filters.toml") && told.contains("name = \"acme\""), "{told}");
        assert_eq!(read_kept(user), before, "nobody was asked");

        let told = ends(&machines.install(&bundle, &["--yes"]), 0);
        assert!(told.contains("Signed by your trusted key `acme`"), "{told}");
        until_says(&host, "word", Some("one")).await;
        until_says(&host, "other", Some("else")).await;
        let filters = user.folders.config.join("filters.toml");
        assert_eq!(fs::read_to_string(&filters).expect("it is there"), FILTERS);
        let config = fs::read_to_string(user.folders.config_file()).expect("it is there");
        assert!(!config.contains("[plugins"), "{config}");
        ends(&user.toolhold(&["plugin", "verify"]), 0);
        let after = read_kept(user);
        let told = ends(&machines.install(&bundle, &[]), 0);
        assert!(told.contains("already installed"), "{told}");
        assert_eq!(read_kept(user), after);
        // Whatever lies at the path where the administrator had it.
        fs::write(machines.path("word.wasm"), version("word", "9.0.0", "evil").encode())
            .expect("it is written");
        let told = ends(&user.toolhold(&["plugin", "update"]), 0);
        assert!(told.contains("only another bundle can update this plugin"), "{told}");
        assert_eq!(read_kept(user), after);

        // A newer bundle shows what is more, and an older one needs a word.
        let mut more = Component { answer: "two", ..version("word", "1.1.0", "two") };
        more.offers.push(Offer::named("shout"));
        let file = machines.signed(&more, "word.wasm");
        ends(&machines.admin.toolhold(&["plugin", "remove", "word"]), 0);
        ends(&machines.admin.toolhold(&["plugin", "add", &file, "--yes"]), 0);
        let newer = machines.create("newer.tar", &["--only", "word"]);
        let told = ends(&machines.install(&newer, &["--yes"]), 0);
        assert!(told.contains("word 1.0.0 -> 1.1.0") && told.contains("word__shout"), "{told}");
        until_says(&host, "word", Some("two")).await;
        machines.refused(&bundle, &[], "is older than 1.1.0");
        let told = ends(&machines.install(&bundle, &["--yes", "--downgrade"]), 0);
        assert!(told.contains("1.1.0 -> 1.0.0, older"), "{told}");
        until_says(&host, "word", Some("one")).await;
        ends(&user.toolhold(&["plugin", "rollback", "word"]), 0);
        until_says(&host, "word", Some("two")).await;
    });
}

#[test]
fn bundle_with_any_changed_byte_is_refused_as_a_whole() {
    let machines = Machines::new();
    let bundle = machines.bundle("acme.tar", &[("word", "1.0.0", "one")], FILTERS);
    let good = fs::read(&bundle).expect("it is there");
    let changed = machines.path("changed.tar");
    let refuse = |bytes: &[u8]| {
        fs::write(&changed, bytes).expect("it is written");
        machines.refused(&changed, &[], "");
    };
    // In every part: headers, index, signature, lock, filters, component, padding, end.
    for at in (0..good.len()).step_by(good.len() / 24).chain([good.len() - 1]) {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        refuse(&bytes);
    }
    refuse(&good[..good.len() - 512]);
    refuse(&[&good[..], &[0; 512]].concat());
    refuse(b"");
    assert!(names(&machines.user).is_empty());
}

#[test]
fn bundle_counts_only_by_a_key_that_is_trusted_with_bundles() {
    let machines = Machines::new();
    let bundle = machines.bundle("acme.tar", &[("word", "1.0.0", "one")], FILTERS);
    for (more, reason) in [
        ("", "bundles"),
        ("bundles = true\nnot_after = \"2026-01-01\"", "expired"),
        ("bundles = true\nrevoked = true", "revoked"),
    ] {
        machines.trust(more);
        machines.refused(&bundle, &[], reason);
        let told = ends(&machines.user.toolhold(&["plugin", "bundle", "show", text(&bundle)]), 4);
        assert!(told.contains(reason), "{told}");
    }
    machines.configure("");
    machines.refused(&bundle, &[], "isn't trusted");
    // The key of a bundle doesn't count for its plugins unless it is trusted with them.
    let strict = |plugins: &str, more: &str| {
        machines.configure(&format!(
            "[installing]\nrequire_signature = true\n{more}\n[[installing.keys]]\nname = \"acme\"\nkey = \"{}\"\nbundles = true\nplugins = [{plugins}]\n",
            machines.key
        ));
    };
    strict("", "");
    machines.refused(&bundle, &[], "is not trusted for `word`");
    strict("\"word\"", "sources = [\"oci://registry.example.com/*\"]");
    machines.refused(&bundle, &[], "installing.sources");
    strict("\"word\"", "");
    ends(&machines.install(&bundle, &["--yes"]), 0);
}

#[test]
fn bundle_whose_parts_do_not_fit_is_refused_though_its_key_is_trusted() {
    let machines = Machines::new();
    let one = version("word", "1.0.0", "one");
    let component = "plugins/word.wasm";
    let other = json!({ "word": locked(b"other", "1.0.0") });
    let refused = |lock: Option<Value>, plugins: &[(&str, &Component)], reason: &str| {
        machines.refused(&machines.forged(lock, plugins), &[], reason);
    };
    refused(
        Some(other),
        &[(component, &one)],
        "the digest of `word` in the bundle's `toolhold.lock` differs from the component's digest",
    );
    refused(Some(json!({})), &[(component, &one)], "doesn't name the plugin of");
    refused(Some(json!({ "word": locked(b"", "1") })), &[], "doesn't have the component");
    refused(Some(json!([])), &[(component, &one)], "isn't valid");
    let unnamed = json!({ "word": { "digest": "0", "version": "1" }, "$pending": [] });
    refused(Some(unnamed), &[], "isn't valid");
    let of = |locked| Some(json!({ "word": locked }));
    refused(
        of(locked(&one.encode(), "2.0.0")),
        &[(component, &one)],
        "the component is `word` 1.0.0",
    );
    let mut unsourced = locked(&one.encode(), "1.0.0");
    unsourced["source"] = Value::Null;
    refused(of(unsourced), &[(component, &one)], "has no source for");

    // Each plugin passes the rules of `plugin add`, and one that doesn't takes all with it.
    let plugin = |name| version(name, "1.0.0", "x");
    refused(None, &[("plugins/file.wasm", &plugin("file")), (component, &one)], "built-in");
    refused(None, &[("plugins/f1le.wasm", &plugin("f1le"))], "looks like `file`");
    refused(None, &[("plugins/w0rd.wasm", &plugin("w0rd")), (component, &one)], "looks like");
    refused(None, &[(component, &plugin("other"))], "the component is `other`");
    let unasked = Component {
        in_component: r#"(import "wasi:http/types@0.2.6" (instance))"#,
        ..plugin("other")
    };
    refused(None, &[("plugins/other.wasm", &unasked), (component, &one)], "http");
    let broken = entry("filters.toml", b"[[".to_vec());
    let path = machines.path("broken.tar");
    toolhold_registry::bundle::create(&path, vec![broken], &machines.secret()).expect("it is made");
    machines.refused(&path, &[], "isn't TOML");
    ends(&machines.install(&path, &["--yes", "--without", "filters"]), 0);
    machines.trust("bundles = true\n[plugins.word]\npath = \"mine.wasm\"");
    refused(None, &[(component, &one)], "names another file");
    machines.configure(&format!(
        "[installing]\nrequire_signature = true\n[[installing.keys]]\nname = \"acme\"\nkey = \"{}\"\nplugins = [\"*\"]\nbundles = true\n",
        machines.key
    ));
    refused(None, &[(component, &one)], "the signature is missing");
}

#[test]
fn bundle_that_leads_elsewhere_or_never_ends_is_refused() {
    let machines = Machines::new();
    let (user, outside) = (&machines.user, machines.user.root().join("outside"));
    let key = machines.secret();
    // Signed by the trusted key, whatever the index says.
    let bundle = |files: Value, rest: &[u8]| {
        let index = json!({ "bundle": 1, "files": files }).to_string();
        let statement = Statement::Bundle.to_string();
        let signature =
            Signature::sign(index.as_bytes(), &statement, &key).expect("it is signed").to_string();
        let parts = [
            block("index.json", b'0', "", index.as_bytes()),
            block("index.json.minisig", b'0', "", signature.as_bytes()),
            rest.to_vec(),
            vec![0; 1024],
        ];
        let path = machines.path("evil.tar");
        fs::write(&path, parts.concat()).expect("it is written");
        path
    };
    let file = |name: &str, length: u64, content: &[u8]| json!([{ "name": name, "length": length, "sha256": sha256(content) }]);
    for name in ["../../outside", text(&outside), "plugins/../../../outside", "plugins/a/b.wasm"] {
        let path = bundle(file(name, 4, b"evil"), &block(name, b'0', "", b"evil"));
        machines.refused(&path, &[], "a bundle may not have the file");
    }
    // The name is a good one, and the header makes a link of it.
    for kind in [b'1', b'2', b'5', b'6'] {
        let link = block("filters.toml", kind, text(&outside), b"");
        machines.refused(&bundle(file("filters.toml", 0, b""), &link), &[], "another entry");
    }
    let huge = file("plugins/word.wasm", 1 << 40, b"");
    machines.refused(&bundle(huge, b""), &[], "the limit is");
    let long = file("filters.toml", 60 << 20, b"");
    machines.refused(&bundle(long, b""), &[], "the index says");
    let many: Vec<Value> =
        (0..3000).map(|n| file(&format!("plugins/p{n:04}.wasm"), 1, b"")[0].clone()).collect();
    machines.refused(&bundle(json!(many), b""), &[], "3000 files");
    let text = " ".repeat(2 << 20);
    let spaces = block("filters.toml", b'0', "", text.as_bytes());
    let path = bundle(file("filters.toml", 2 << 20, text.as_bytes()), &spaces);
    machines.refused(&path, &[], "too large; the limit is 1048576");
    assert!(!outside.exists() && names(user).is_empty());
    // A file that never ends, and none at all.
    let told = ends(&machines.install(Path::new("/dev/zero"), &["--yes"]), 4);
    assert!(told.contains("isn't a file"), "{told}");
}

/// A file of a tar.
fn block(name: &str, kind: u8, target: &str, content: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 512];
    let mut put = |at: usize, text: &str| {
        header[at..at + text.len()].copy_from_slice(text.as_bytes());
    };
    put(0, &name[..name.len().min(100)]);
    put(100, "0000644\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{:011o}\0", content.len()));
    put(136, "00000000000\0");
    put(148, "        ");
    put(157, &target[..target.len().min(100)]);
    put(257, "ustar\0");
    put(263, "00");
    header[156] = kind;
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut file = [&header[..], content].concat();
    file.resize(file.len().next_multiple_of(512), 0);
    file
}

/// Two bundles with the same plugins in two versions, and the filters of each.
fn two_bundles(machines: &Machines) -> ([PathBuf; 2], [String; 2]) {
    let texts = [FILTERS.to_owned(), FILTERS.replace("acme", "other")];
    let bundles = [
        machines.bundle("0.tar", &[("word", "1.0.0", "x"), ("other", "1.0.0", "x")], &texts[0]),
        machines.bundle("1.tar", &[("word", "2.0.0", "x"), ("other", "2.0.0", "x")], &texts[1]),
    ];
    (bundles, texts)
}

/// Ends processes at random moments. Each time, the plugins and the filters are those of one
/// bundle.
#[test]
fn soak_killed_bundle_leaves_the_old_state_or_the_new_one() {
    let rounds: u32 = if std::env::var_os("TOOLHOLD_SOAK").is_some() { 200 } else { 12 };
    let machines = Machines::new();
    let user = &machines.user;
    let (bundles, texts) = two_bundles(&machines);
    // How long a whole run takes here. After the first, nothing is compiled.
    ends(&machines.install(&bundles[1], &["--yes"]), 0);
    let began = Instant::now();
    ends(&machines.install(&bundles[0], &["--yes", "--downgrade"]), 0);
    let whole = began.elapsed();
    let mut now = 0;
    let (mut killed, mut changed) = (0, 0);
    for round in 0..rounds {
        let next = 1 - now;
        let mut command = quiet(user);
        command.args(["plugin", "bundle", "install", text(&bundles[next]), "--yes", "--downgrade"]);
        let mut child = command.spawn().expect("it starts");
        let moment = Instant::now() + whole.mul_f64(f64::from(round * 37 % 100) / 90.0);
        // The first is killed at once, and the second one ends, however busy the machine is.
        while (round == 1 || Instant::now() < moment)
            && child.try_wait().expect("it is there").is_none()
        {
            std::thread::yield_now();
        }
        killed += u32::from(kill(child));
        // Whatever command comes next finishes what was in force.
        let told = ends(&user.toolhold(&["plugin", "verify"]), 0);
        assert!(told.contains("2 verified"), "{told}");
        let lock = fs::read(user.folders.data.join("toolhold.lock")).expect("it is there");
        let lock: Value = serde_json::from_slice(&lock).expect("it is JSON");
        let filters = fs::read_to_string(user.folders.config.join("filters.toml"));
        let filters = filters.expect("it is there");
        let state = |bundle: usize| {
            let number = ["1.0.0", "2.0.0"][bundle];
            [&lock["word"], &lock["other"]].iter().all(|locked| locked["version"] == number)
                && filters == texts[bundle]
                && lock["$pending"].is_null()
        };
        assert!(state(now) != state(next), "it is one of both: {lock} {filters}");
        changed += u32::from(state(next));
        now = if state(next) { next } else { now };
    }
    assert!(killed > 0 && changed > 0, "{killed} {changed}");
    // What the last one left is gone with the next.
    ends(&machines.install(&bundles[1 - now], &["--yes", "--downgrade"]), 0);
    let left = fs::read_dir(&user.folders.config).expect("it is there").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| text(name.as_ref()).contains("pending")), "{left:?}");
    assert!(!user.folders.data.join("bundle").exists());
}

#[test]
fn bundle_in_force_is_finished_by_the_next_command_whatever_it_is() {
    let machines = Machines::new();
    let user = &machines.user;
    let bundle = machines.bundle("acme.tar", &[("word", "1.0.0", "one")], FILTERS);
    ends(&machines.install(&bundle, &["--yes"]), 0);
    // The process ended between the step that puts all into force and the last rename.
    let (lock, filters) =
        (user.folders.data.join("toolhold.lock"), user.folders.config.join("filters.toml"));
    let mut text: Value =
        serde_json::from_slice(&fs::read(&lock).expect("it is there")).expect("it is JSON");
    text["$pending"] = json!([{ "folder": user.folders.config, "name": "filters.toml" }]);
    fs::write(&lock, text.to_string()).expect("it is written");
    fs::rename(&filters, user.folders.config.join("filters.toml.pending")).expect("it is moved");
    ends(&user.toolhold(&["config", "check"]), 0);
    assert_eq!(fs::read_to_string(&filters).expect("it is there"), FILTERS);
    let text = fs::read_to_string(&lock).expect("it is there");
    assert!(text.contains("word") && !text.contains("pending"), "{text}");
}

#[test]
fn two_bundles_at_once_leave_the_state_of_one() {
    let machines = Machines::new();
    let user = &machines.user;
    let (bundles, texts) = two_bundles(&machines);
    let children = bundles.each_ref().map(|bundle| {
        let mut command = quiet(user);
        command.args(["plugin", "bundle", "install", text(bundle), "--yes"]);
        command.spawn().expect("it starts")
    });
    let ended = children.map(|child| child.wait_with_output().expect("it ends").status.code());
    // The other one is refused, or comes late and finds a newer version, or an older one.
    assert!(ended.contains(&Some(0)), "{ended:?}");
    assert!(ended.iter().all(|code| matches!(code, Some(0 | 4))), "{ended:?}");
    ends(&user.toolhold(&["plugin", "verify"]), 0);
    let lock = fs::read(user.folders.data.join("toolhold.lock")).expect("it is there");
    let lock: Value = serde_json::from_slice(&lock).expect("it is JSON");
    let filters = fs::read_to_string(user.folders.config.join("filters.toml"));
    let filters = filters.expect("it is there");
    let which = usize::from(lock["word"]["version"] == "2.0.0");
    assert_eq!(lock["word"]["version"], lock["other"]["version"]);
    assert_eq!(filters, texts[which]);
}

/// Runs a script as root of namespaces of its own. `None` without such namespaces.
fn in_namespaces(living: &Living, script: &str) -> Option<String> {
    let command = living.command();
    let program = command.get_program().to_string_lossy().into_owned();
    let enter = ["-Urm", "sh", "-c"];
    let tried = Command::new("unshare")
        .args(enter)
        .arg("mount -t tmpfs tmpfs /tmp")
        .stderr(Stdio::null())
        .status();
    if !tried.is_ok_and(|status| status.success()) {
        not_tried("mounting in namespaces of its own (`unshare -Urm`)");
        return None;
    }
    let mut shell = Command::new("unshare");
    shell.args(enter).arg(script.replace("TOOLHOLD ", &format!("{program} "))).env_clear();
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").current_dir(living.work());
    let output = shell.stdin(Stdio::null()).output().expect("it starts");
    let said = [&output.stdout[..], &output.stderr].concat();
    Some(String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn ceiling_of_a_bundle_is_put_in_force_by_root_alone_and_never_without_the_rest() {
    let machines = Machines::new();
    let user = &machines.user;
    machines.add("word", "1.0.0", "one");
    let ceiling = machines.path("ceiling.toml");
    let mut bundles = Vec::new();
    for (name, text) in [("good.tar", "[tools]\nmax_call = 9\n"), ("bad.tar", "")] {
        fs::write(&ceiling, text).expect("it is written");
        bundles.push(machines.create(name, &["--ceiling", self::text(&ceiling)]));
    }
    let told = ends(
        &machines.admin.toolhold(&["plugin", "bundle", "create", "x.tar", "--ceiling", "nowhere"]),
        4,
    );
    assert!(told.contains("nowhere"), "{told}");
    // One that would end every start.
    let evil = machines.path("evil.tar");
    let broken = entry("ceiling.toml", b"[tools]\nno_such_key = 1\n".to_vec());
    let lone = entry("filters.toml", FILTERS.as_bytes().to_vec());
    toolhold_registry::bundle::create(&evil, vec![broken, lone], &machines.secret())
        .expect("it is made");
    let script = format!(
        "unshare -U TOOLHOLD plugin bundle install {good} --yes; echo ended $?
        mount -t tmpfs tmpfs /etc
        umask 077
        TOOLHOLD plugin bundle install {evil} --yes; echo ended $?; ls -A /etc
        mount -t tmpfs -o ro tmpfs /etc
        TOOLHOLD plugin bundle install {good} --yes; echo ended $?; umount /etc
        ls -A $TOOLHOLD_DATA_DIR/toolhold.lock $TOOLHOLD_CONFIG_DIR/filters.toml
        TOOLHOLD plugin bundle install {good} --yes; echo ended $?
        cat /etc/toolhold/ceiling.toml; stat -c %a /etc/toolhold /etc/toolhold/ceiling.toml; ls -A /etc/toolhold
        TOOLHOLD config show | grep max_call",
        evil = text(&evil),
        good = text(&bundles[0]),
    );
    let Some(said) = in_namespaces(user, &script) else { return };
    assert_eq!(said.matches("ended 4\n").count(), 3, "{said}");
    assert_eq!(said.matches("ended 0\n").count(), 1, "{said}");
    let end = said.rsplit("ended 0\n").next().unwrap_or_default();
    assert!(end.starts_with("[tools]\nmax_call = 9\n755\n644\nceiling.toml\n"), "{said}");
    assert!(end.contains("max_call = 9"), "{said}");
    assert!(
        said.contains("no_such_key") && said.matches("--without ceiling").count() == 2,
        "{said}"
    );
    assert_eq!(said.matches("No such file or directory").count(), 2, "nothing before: {said}");
    assert_eq!(names(user), ["word"]);
    assert!(!user.folders.config.join("filters.toml").exists());
}

#[test]
fn ceiling_that_this_machine_would_not_accept_is_not_put_in_force() {
    let machines = Machines::new();
    let ceiling = machines.path("ceiling.toml");
    ends(&machines.admin.toolhold(&["plugin", "key", "new", "other", "--no-password"]), 0);
    let bundle = |name: &str, max_call: u32, key: &str| {
        fs::write(&ceiling, format!("[tools]\nmax_call = {max_call}\n")).expect("it is written");
        ends(
            &machines.admin.toolhold(&["config", "ceiling", "sign", text(&ceiling), "--key", key]),
            0,
        );
        machines.create(name, &["--ceiling", text(&ceiling)])
    };
    let (first, evil) = (bundle("1.tar", 9, "default"), bundle("evil.tar", 600, "other"));
    let second = bundle("2.tar", 8, "default");
    fs::write(&ceiling, "[tools]\nmax_call = 8\n").expect("it is written");
    let unsigned = machines.create("unsigned.tar", &["--ceiling", text(&ceiling)]);
    let script = format!(
        "mount -t tmpfs tmpfs /etc
        TOOLHOLD plugin bundle install {first} --yes; echo ended $?
        cp {key} /etc/toolhold/ceiling.pub
        before=$(cat /etc/toolhold/*)
        TOOLHOLD plugin bundle install {evil} --yes; echo ended $?
        TOOLHOLD plugin bundle install {unsigned} --yes; echo ended $?
        test \"$before\" = \"$(cat /etc/toolhold/*)\" && echo unchanged
        TOOLHOLD plugin bundle install {second} --yes; echo ended $?
        TOOLHOLD config show | grep max_call; ls -A /etc/toolhold",
        first = text(&first),
        evil = text(&evil),
        unsigned = text(&unsigned),
        second = text(&second),
        key = text(&machines.admin.folders.config.join("keys/default.pub")),
    );
    let Some(said) = in_namespaces(&machines.user, &script) else { return };
    let ended: Vec<&str> = said.lines().filter(|line| line.starts_with("ended")).collect();
    assert_eq!(ended, ["ended 0", "ended 4", "ended 4", "ended 0"], "{said}");
    assert!(said.contains("unchanged") && said.contains("the signature is missing"), "{said}");
    assert!(said.contains("which isn't trusted"), "{said}");
    let end = said.rsplit("ended 0\n").next().unwrap_or_default();
    assert!(end.starts_with("max_call = 8"), "{said}");
    assert!(end.contains("ceiling.pub\nceiling.toml\n"), "{said}");
}

#[test]
fn full_disk_and_read_only_folders_change_nothing() {
    let machines = Machines::new();
    let user = &machines.user;
    let old = machines.bundle("old.tar", &[("word", "1.0.0", "one")], FILTERS);
    ends(&machines.install(&old, &["--yes"]), 0);
    let new = machines.bundle("new.tar", &[("word", "2.0.0", "two")], "# new\n");
    let (data, config) = (&user.folders.data, &user.folders.config);
    let before = read_kept(user);
    // Full: of each number of free blocks, up to one with which it works.
    let script = format!(
        "set -e; cd /; cp -a {data} {scratch}/copy; cp -a {config} {scratch}/config
        show() {{ md5sum {data}/toolhold.lock {config}/filters.toml; ls -A {data}/approved {config}; }}
        for blocks in 1 2 3 4 5 6 7 8 9 10 12 16 24 32 64 128; do
            mount -t tmpfs -o size=1m,mode=700 tmpfs {data}; cp -a {scratch}/copy/. {data}
            used=$(df -k --output=used {data} | tail -1)
            mount -o remount,size=$((used + 4 * blocks))k {data}
            old=$(show)
            if TOOLHOLD plugin bundle install {new} --yes > {scratch}/told 2>&1; then
                echo installed with $blocks; umount {data}; break
            fi
            test \"$old\" = \"$(show)\" || {{ echo changed with $blocks; show; cat {scratch}/told; }}
            grep -q 'No space left' {scratch}/told || cat {scratch}/told
            echo refused with $blocks; umount {data}
        done
        cp -a {scratch}/config/. {config}
        old=$(show)
        for folder in {data} {config}; do
            mount --bind $folder $folder; mount -o remount,ro,bind $folder
            TOOLHOLD plugin bundle install {new} --yes > {scratch}/told 2>&1 || echo refused
            grep -q 'Read-only' {scratch}/told || cat {scratch}/told
            umount $folder
            test \"$old\" = \"$(show)\" || {{ echo changed; show; }}
        done",
        data = text(data),
        config = text(config),
        new = text(&new),
        scratch = text(&user.root()),
    );
    let Some(said) = in_namespaces(user, &script) else { return };
    assert!(said.contains("refused with 1\n") && said.contains("installed with"), "{said}");
    assert!(!said.contains("changed") && !said.contains("error"), "{said}");
    assert_eq!(said.matches("refused\n").count(), 2, "{said}");
    assert_eq!(read_kept(user), before, "{said}");
}

#[test]
fn bundle_carries_the_plugins_that_are_named_and_what_is_intact() {
    let machines = Machines::new();
    machines.add("word", "1.0.0", "one");
    machines.add("other", "1.0.0", "else");
    let create = |file: &str, more: &[&str], code: i32| {
        let path = machines.path(file);
        let line = [&["plugin", "bundle", "create", text(&path)], more].concat();
        (ends(&machines.admin.toolhold(&line), code), path)
    };
    let (told, _) = create("one.tar", &["--only", "word"], 0);
    assert!(told.contains("plugins/word.wasm.minisig") && !told.contains("other"), "{told}");
    let (told, path) = create("two.tar", &["--only", "nope"], 4);
    assert!(told.contains("nope: the plugin isn't installed") && !path.exists(), "{told}");
    let (told, path) = create("one.tar", &[], 4);
    assert!(told.contains("exists already") && path.exists(), "{told}");
    let (told, path) = create("three.tar", &["--key", "nope"], 2);
    assert!(told.contains("nope.key") && !path.exists(), "{told}");
    let approved = machines.admin.folders.data.join("approved");
    let copy = fs::read_dir(&approved).expect("it is there").flatten().map(|entry| entry.path());
    for copy in copy.filter(|path| path.extension().is_some_and(|end| end == "wasm")) {
        fs::write(&copy, version("word", "1.0.0", "evil").encode()).expect("it is changed");
    }
    let (told, path) = create("four.tar", &[], 4);
    assert!(told.contains("the stored component is damaged") && !path.exists(), "{told}");
}
