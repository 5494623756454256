//! Hostile bundles: each is refused, and nothing of it is left anywhere.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::PathBuf;
use std::process::Command;

use jiff::civil::{Date, date};
use serde_json::{Value, json};
use tempfile::TempDir;
use toolhold_signing::{SecretKey, Signature, SignatureRefusal, Statement, TrustedKey};

use super::*;
use crate::bundle::tar::header;

const TODAY: Date = date(2026, 11, 26);

/// A folder with a bundle, and a key that is trusted with it.
struct Scene {
    root: TempDir,
    key: SecretKey,
    trusted: TrustedKey,
}

impl Scene {
    fn new() -> Self {
        let key = SecretKey::generate().expect("there are random bytes");
        let trusted = TrustedKey {
            name: "acme".into(),
            key: key.public().clone(),
            plugins: Vec::new(),
            sources: Vec::new(),
            bundles: true,
            not_after: None,
            revoked: false,
        };
        let root = tempfile::tempdir().expect("a temporary folder");
        Self { root, key, trusted }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn create(&self) -> Vec<u8> {
        let component = self.path("notes.wasm");
        fs::write(&component, vec![7; 64]).expect("it is written");
        let bytes = |name: &str, bytes: &[u8]| NewEntry {
            name: name.into(),
            content: EntryContent::Bytes(bytes.into()),
        };
        let entries = vec![
            NewEntry {
                name: "plugins/acme-notes.wasm".into(),
                content: EntryContent::File(component),
            },
            bytes("toolhold.lock", b"lock"),
            bytes("ceiling.toml", b"#"),
            bytes("filters.toml", b""),
        ];
        let path = self.path("made.tar");
        create(&path, entries, &self.key).expect("it is made");
        let made = fs::read(&path).expect("it is there");
        fs::remove_file(path).expect("it was there");
        made
    }

    fn open(&self, bundle: &[u8]) -> Result<Bundle, BundleError> {
        fs::write(self.path("bundle.tar"), bundle).expect("it is written");
        self.open_there()
    }

    fn open_there(&self) -> Result<Bundle, BundleError> {
        open(
            &self.path("bundle.tar"),
            std::slice::from_ref(&self.trusted),
            TODAY,
            &self.path("own"),
        )
    }

    /// Opens a bundle that has to be refused, and looks that nothing of it was written.
    fn refused(&self, bundle: &[u8]) -> String {
        fs::write(self.path("bundle.tar"), bundle).expect("it is written");
        self.refused_there()
    }

    fn refused_there(&self) -> String {
        let refused = self.open_there().expect_err("it is refused").to_string();
        let left = fs::read_dir(self.path("own")).into_iter().flatten();
        let left: Vec<_> = left.map(|entry| entry.expect("it is read").file_name()).collect();
        assert!(left.iter().all(|name| name == "bundle.lock"), "{refused}: {left:?}");
        refused
    }

    /// A bundle that is signed, whatever its index says. It has these blocks behind the signature.
    fn signed(&self, index: &Value, rest: &[u8]) -> Vec<u8> {
        let index = index.to_string();
        let signature =
            Signature::sign(index.as_bytes(), &Statement::Bundle.to_string(), &self.key)
                .expect("it is signed")
                .to_string();
        let (index, signature) = (
            file("index.json", index.as_bytes()),
            file("index.json.minisig", signature.as_bytes()),
        );
        [&index[..], &signature, rest, &[0; 1024]].concat()
    }
}

/// A file, as it stands in a bundle.
fn file(name: &str, content: &[u8]) -> Vec<u8> {
    let mut file = [&header(name, content.len() as u64)[..], content].concat();
    file.resize(file.len().next_multiple_of(512), 0);
    file
}

/// Its entry in an index.
fn entry(name: &str, content: &[u8]) -> Value {
    let (length, digest) =
        create::copy_hashed(&mut &*content, &mut std::io::sink()).expect("it is read");
    json!({ "name": name, "length": length, "sha256": digest })
}

#[test]
fn bundle_comes_out_as_it_went_in_and_its_folder_is_private_and_goes() {
    let scene = Scene::new();
    let made = scene.create();
    let bundle = scene.open(&made).expect("it is right");
    assert_eq!(bundle.signer().name, "acme");
    let names: Vec<&str> = bundle.entries().iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["ceiling.toml", "filters.toml", "plugins/acme-notes.wasm", "toolhold.lock"]);
    let read =
        |name| std::io::read_to_string(bundle.file(name).expect("it is there").expect("it opens"));
    assert_eq!(read("toolhold.lock").expect("it is text"), "lock");
    assert_eq!(read("plugins/acme-notes.wasm").expect("it is text"), "\x07".repeat(64));
    assert!(bundle.file("plugins/other.wasm").is_none());
    for path in ["", "plugins", "plugins/acme-notes.wasm", "toolhold.lock"] {
        let mode = fs::metadata(bundle.path().join(path)).expect("it is there").mode();
        assert_eq!(mode & 0o077, 0, "{path}: {mode:o}");
    }
    let path = bundle.path().to_owned();
    drop(bundle);
    assert!(!path.exists());
}

#[test]
fn every_changed_byte_and_every_cut_is_refused() {
    let scene = Scene::new();
    let made = scene.create();
    let path = scene.path("bundle.tar");
    fs::write(&path, &made).expect("it is written");
    let file = fs::File::options().write(true).open(&path).expect("it opens");
    for (at, byte) in made.iter().enumerate() {
        let changed = [byte ^ 1 << (at % 8)];
        file.write_all_at(&changed, at as u64).expect("it is written");
        scene.refused_there();
        file.write_all_at(&[*byte], at as u64).expect("it is written");
    }
    for at in (0..made.len() as u64).rev().step_by(64) {
        file.set_len(at).expect("it is cut");
        scene.refused_there();
    }
    for more in [&b"x"[..], &[0], &[0; 512], &[0; 8192]] {
        let refused = scene.refused(&[&made[..], more].concat());
        assert!(refused.contains("the index says"), "{refused}");
    }
    scene.open(&made).expect("the original is right");
}

#[test]
fn only_a_key_for_bundles_counts() {
    let mut scene = Scene::new();
    let made = scene.create();
    scene.trusted.bundles = false;
    assert!(scene.refused(&made).contains("bundles = true"));
    scene.trusted.bundles = true;
    scene.trusted.revoked = true;
    assert!(scene.refused(&made).contains("revoked"));
    scene.trusted = Scene::new().trusted;
    assert!(matches!(
        scene.open(&made),
        Err(BundleError::Signature(SignatureRefusal::UnknownKey(_)))
    ));
    // Nothing was even made where it would go.
    assert!(!scene.path("own").exists());
}

#[test]
fn signed_index_with_names_that_lead_elsewhere_is_refused() {
    let scene = Scene::new();
    for name in [
        "../evil",
        "/etc/cron.d/evil",
        "plugins/../../evil",
        "plugins/a/../../../evil.wasm",
        "toolhold.toml",
        "keys/evil.key",
        "plugins/.wasm",
        "index.json",
        "plugins/\u{202e}a.wasm",
    ] {
        let index = json!({ "bundle": 1, "files": [entry(name, b"evil")] });
        // The index decides before a header is read, so it needs no valid one.
        let short: String = name.chars().filter(char::is_ascii).collect();
        let refused = scene.refused(&scene.signed(&index, &file(&short, b"evil")));
        assert!(refused.contains("a bundle may not have the file"), "{refused}");
        assert!(!refused.contains('\u{202e}'), "{refused}");
    }
    let outside = scene.root.path().parent().expect("it has one").join("evil");
    assert!(!outside.exists());
}

#[test]
fn links_devices_and_other_headers_are_refused_before_anything_is_written() {
    let scene = Scene::new();
    let index = json!({ "bundle": 1, "files": [entry("filters.toml", b"rule"), entry("toolhold.lock", b"")] });
    let right = [file("filters.toml", b"rule"), file("toolhold.lock", b"")].concat();
    scene.open(&scene.signed(&index, &right)).expect("it is right");
    // The second file's header: hard and symbolic links, devices, folders, FIFOs, long names of GNU
    // and pax, sparse files, and other owners, modes and times.
    let headers: [(usize, u8); 13] = [
        (156, b'1'),
        (156, b'2'),
        (156, b'3'),
        (156, b'4'),
        (156, b'5'),
        (156, b'6'),
        (156, b'L'),
        (156, b'x'),
        (156, b'S'),
        (104, b'7'),
        (109, b'1'),
        (140, b'1'),
        (345, b'/'),
    ];
    for (at, byte) in headers {
        let mut rest = right.clone();
        let second = &mut rest[1024..1536];
        second[at] = byte;
        second[148..156].fill(b' ');
        let sum: u32 = second.iter().map(|byte| u32::from(*byte)).sum();
        second[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let refused = scene.refused(&scene.signed(&index, &rest));
        assert!(refused.contains("another entry is in the place"), "{refused}");
    }
    // In another order, and with something hidden in the padding.
    let swapped = [file("toolhold.lock", b""), file("filters.toml", b"rule")].concat();
    assert!(scene.refused(&scene.signed(&index, &swapped)).contains("another entry"));
    let mut hidden = right;
    hidden[600] = 1;
    assert!(scene.refused(&scene.signed(&index, &hidden)).contains("between the files"));
}

#[test]
fn bombs_duplicates_and_false_indexes_are_refused() {
    let scene = Scene::new();
    let lock = || entry("toolhold.lock", b"lock");
    let with = |key: &str, value: Value| {
        let mut entry = lock();
        entry[key] = value;
        json!({ "bundle": 1, "files": [entry] })
    };
    let many: Vec<Value> =
        (0..=MAX_ENTRIES).map(|number| entry(&format!("plugins/a{number}.wasm"), b"")).collect();
    let large: Vec<Value> = (0..100)
        .map(|number| {
            json!({ "name": format!("plugins/a{number:03}.wasm"), "length": MAX_ENTRY, "sha256": "0".repeat(64) })
        })
        .collect();
    for (index, reason) in [
        (json!({ "bundle": 1, "files": [lock(), lock()] }), "a name twice"),
        (json!({ "bundle": 1, "files": [lock(), entry("filters.toml", b"")] }), "isn't sorted"),
        (json!({ "bundle": 2, "files": [] }), "reads format 1"),
        (json!({ "bundle": 1, "files": [], "more": 1 }), "isn't valid"),
        (json!([]), "isn't valid"),
        (with("length", json!(u64::MAX)), "the limit is"),
        (with("length", json!(MAX_ENTRY + 1)), "the limit is"),
        (with("length", json!(-1)), "isn't valid"),
        (with("length", json!(MAX_ENTRY)), "the index says"),
        (with("length", json!(5)), "another entry"),
        (with("sha256", json!("0".repeat(64))), "doesn't match the index"),
        (with("sha256", json!("../x")), "isn't valid"),
        (json!({ "bundle": 1, "files": many }), "the limit is 2000"),
        (json!({ "bundle": 1, "files": large }), "the limit is"),
    ] {
        let refused = scene.refused(&scene.signed(&index, &file("toolhold.lock", b"lock")));
        assert!(refused.contains(reason), "{reason}: {refused}");
    }
    // An index that says to be huge isn't read.
    let huge = [&header("index.json", 7 << 30)[..], &[0; 4096]].concat();
    assert!(scene.refused(&huge).contains("the limit is"));
    // A file with a hole isn't a reason to read gigabytes.
    let path = scene.path("hole.tar");
    fs::File::create(&path).expect("it is made").set_len(5 << 30).expect("it is a hole");
    let refused = open(&path, &[], TODAY, &scene.path("own")).expect_err("it is too large");
    assert!(refused.to_string().contains("the limit is"), "{refused}");
    for path in ["/dev/zero", "/proc", "/none"] {
        open(path.as_ref(), &[], TODAY, &scene.path("own")).expect_err(path);
    }
}

#[test]
fn folder_that_is_a_link_is_not_followed_and_leftovers_go() {
    let scene = Scene::new();
    let made = scene.create();
    let (own, victim) = (scene.path("own"), scene.path("victim"));
    toolhold_data_dir::PrivateFolder::make(&own).expect("it is made");
    fs::create_dir(&victim).expect("it is made");
    fs::write(victim.join("kept"), "kept").expect("it is written");
    symlink(&victim, own.join("bundle")).expect("a link is made");
    let _ = scene.open(&made);
    assert_eq!(fs::read_dir(&victim).expect("it is there").count(), 1, "nothing was written there");
    // What a killed process left is removed, and isn't taken for a part of this bundle.
    let _ = fs::remove_file(own.join("bundle"));
    toolhold_data_dir::PrivateFolder::make(&own.join("bundle/plugins")).expect("it is made");
    fs::write(own.join("bundle/plugins/acme-notes.wasm"), vec![9; 5000]).expect("it is written");
    let bundle = scene.open(&made).expect("it is right");
    assert_eq!(
        fs::read(bundle.path().join("plugins/acme-notes.wasm")).expect("it is there"),
        vec![7; 64]
    );
}

#[test]
fn bundle_is_made_whole_or_not_at_all_and_overwrites_nothing() {
    let scene = Scene::new();
    let path = scene.path("made.tar");
    let entry = |name: &str, content| NewEntry { name: name.into(), content };
    let bytes = || EntryContent::Bytes(b"lock".into());
    for (entries, reason) in [
        (vec![entry("../evil", bytes())], "may not have"),
        (vec![entry("toolhold.lock", bytes()), entry("toolhold.lock", bytes())], "twice"),
        (vec![entry("toolhold.lock", EntryContent::File("/none".into()))], "/none"),
        (vec![entry("toolhold.lock", EntryContent::File("/dev/zero".into()))], "isn't a file"),
        (
            vec![entry("toolhold.lock", EntryContent::Bytes(vec![0; MAX_ENTRY as usize + 1]))],
            "the limit",
        ),
    ] {
        let error = create(&path, entries, &scene.key).expect_err(reason).to_string();
        assert!(error.contains(reason), "{error}");
        assert_eq!(fs::read_dir(scene.root.path()).expect("it is there").count(), 0, "{reason}");
    }
    fs::write(&path, "of somebody else").expect("it is written");
    create(&path, vec![entry("toolhold.lock", bytes())], &scene.key).expect_err("it exists");
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "of somebody else");
    assert_eq!(fs::read_dir(scene.root.path()).expect("it is there").count(), 1);
}

#[test]
fn tar_lists_and_unpacks_a_bundle() {
    let scene = Scene::new();
    let path = scene.path("made.tar");
    fs::write(&path, scene.create()).expect("it is written");
    let tar = Command::new("tar").arg("-C").arg(scene.root.path()).arg("-xvf").arg(&path).output();
    let output = tar.expect("tar starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "index.json\nindex.json.minisig\nceiling.toml\nfilters.toml\n\
         plugins/acme-notes.wasm\ntoolhold.lock\n"
    );
    assert_eq!(fs::read(scene.path("plugins/acme-notes.wasm")).expect("it is there"), vec![7; 64]);
}
