//! Hostile signatures and keys, and what each is refused with.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use jiff::civil::{Date, date};

use super::*;
use crate::signature::prehash;

const TODAY: Date = date(2026, 11, 26);

/// A component with a manifest, and bytes that make it another one.
fn component(name: &str, more: &[u8]) -> Vec<u8> {
    let manifest = format!(
        r#"{{"manifest":1,"name":"{name}","version":"1.2.0","description":"Notes","capabilities":[]}}"#
    );
    [bare(more), section("toolhold:manifest", manifest.as_bytes())].concat()
}

/// A component without a manifest.
fn bare(more: &[u8]) -> Vec<u8> {
    [b"\0asm\x0d\0\x01\0".to_vec(), section("more", more)].concat()
}

fn section(name: &str, content: &[u8]) -> Vec<u8> {
    let length = |length: usize| [(length & 0x7f) as u8 | 0x80, (length >> 7) as u8];
    let body = [&[name.len() as u8], name.as_bytes(), content].concat();
    [&[0][..], &length(body.len()), &body].concat()
}

fn key() -> SecretKey {
    SecretKey::generate().expect("there are random bytes")
}

fn trusted(key: &SecretKey) -> TrustedKey {
    TrustedKey {
        name: "acme".into(),
        key: key.public().clone(),
        plugins: vec!["acme-*".parse().expect("it is valid")],
        sources: Vec::new(),
        bundles: false,
        not_after: None,
        revoked: false,
    }
}

fn sign(wasm: &[u8], name: &str, key: &SecretKey) -> Vec<u8> {
    let statement = Statement::of_plugin(wasm, Some(name)).expect("it can be signed");
    sign_as(wasm, &statement.to_string(), key)
}

fn sign_as(wasm: &[u8], comment: &str, key: &SecretKey) -> Vec<u8> {
    Signature::sign(wasm, comment, key).expect("it is signed").to_string().into_bytes()
}

fn verify(
    wasm: &[u8],
    name: &str,
    signatures: &[Vec<u8>],
    keys: &[TrustedKey],
) -> Result<Signer, SignatureRefusal> {
    verify_plugin(SignedPlugin { wasm, name, source: None }, signatures, keys, TODAY)
}

#[test]
fn signature_of_a_trusted_key_counts() {
    let (key, wasm) = (key(), component("acme-notes", b""));
    let signer = verify(&wasm, "acme-notes", &[sign(&wasm, "acme-notes", &key)], &[trusted(&key)]);
    assert_eq!(signer.expect("it counts"), Signer { name: "acme".into(), key: key.public().id() });
}

#[test]
fn changed_bytes_and_signatures_of_other_files_are_refused() {
    let (key, wasm) = (key(), component("acme-notes", b"1"));
    let keys = [trusted(&key)];
    let signature = sign(&wasm, "acme-notes", &key);
    let wrong = Err(SignatureRefusal::WrongSignature("acme".into()));
    assert_eq!(
        verify(
            &component("acme-notes", b"2"),
            "acme-notes",
            std::slice::from_ref(&signature),
            &keys
        ),
        wrong
    );
    for at in 0..wasm.len() {
        let mut changed = wasm.clone();
        changed[at] ^= 1;
        assert_eq!(
            verify(&changed, "acme-notes", std::slice::from_ref(&signature), &keys),
            wrong,
            "byte {at}"
        );
    }
    verify(&wasm, "acme-notes", &[signature], &keys).expect("the original counts");
}

#[test]
fn every_changed_byte_of_a_signature_is_refused_but_in_the_untrusted_comment() {
    let (key, wasm) = (key(), component("acme-notes", b""));
    let keys = [trusted(&key)];
    let signature = sign(&wasm, "acme-notes", &key);
    let untrusted = signature.iter().position(|byte| *byte == b'\n').expect("it has lines");
    for at in untrusted + 1..signature.len() - 1 {
        let mut changed = signature.clone();
        changed[at] ^= 1;
        verify(&wasm, "acme-notes", &[changed], &keys).expect_err(&format!("byte {at}"));
        let cut = signature[..at].to_vec();
        let refused = verify(&wasm, "acme-notes", &[cut], &keys).expect_err("it is cut");
        assert!(
            matches!(refused, SignatureRefusal::Malformed(_) | SignatureRefusal::WrongSignature(_)),
            "{refused}"
        );
    }
}

#[test]
fn huge_and_malformed_signatures_are_refused_with_the_reason() {
    let (key, wasm) = (key(), component("acme-notes", b""));
    let keys = [trusted(&key)];
    let signature = String::from_utf8(sign(&wasm, "acme-notes", &key)).expect("it is text");
    let lines: Vec<&str> = signature.lines().collect();
    let with = |at: usize, line: &str| {
        let mut lines = lines.clone();
        lines[at] = line;
        lines.join("\n").into_bytes()
    };
    let mut legacy = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, lines[1])
        .expect("it is base64");
    legacy[1] = b'd';
    let old = encoded::encode(&legacy);
    legacy[0] = b'X';
    let other = encoded::encode(&legacy);
    for (file, reason) in [
        (vec![b'x'; MAX_SIGNATURE + 1], "the limit is"),
        (vec![0xff; 100], "isn't UTF-8"),
        (signature.repeat(2).into_bytes(), "the valid number is 4"),
        (with(0, "comment"), "must start with `untrusted comment:`"),
        (with(1, &old), "without prehashing"),
        (with(1, &other), "the algorithm is unknown"),
        (with(1, &"A".repeat(4000)), "the valid length is 100"),
        (with(2, "comment"), "must start with `trusted comment: `"),
        (with(2, "trusted comment: \u{1b}[2Jfine"), "invisible characters"),
        (with(2, "trusted comment: \u{202e}fine"), "invisible characters"),
        (with(2, &format!("trusted comment: {}", "x".repeat(5000))), "the limit is"),
        (with(3, "AAAA"), "the valid length is 88"),
    ] {
        let refused = verify(&wasm, "acme-notes", &[file], &keys).expect_err(reason).to_string();
        assert!(refused.contains(reason), "{refused}");
        assert!(!refused.contains(['\u{1b}', '\u{202e}']), "{refused}");
    }
}

#[test]
fn signature_moves_to_no_other_name_version_or_manifest() {
    let key = key();
    let wasm = component("acme-notes", b"");
    let all = TrustedKey { plugins: vec!["*".parse().expect("it is valid")], ..trusted(&key) };
    for comment in [
        "toolhold-plugin/1 name=acme-other version=1.2.0 manifest=-".to_owned(),
        sign_comment(&wasm).replace("1.2.0", "1.3.0"),
        sign_comment(&wasm).replace("sha256:", "sha256:0"),
        sign_comment(&wasm).replace("/1", "/2"),
        format!("{} more=1", sign_comment(&wasm)),
        "toolhold-bundle/1".into(),
    ] {
        let signature = sign_as(&wasm, &comment, &key);
        let refused = verify(&wasm, "acme-notes", &[signature], std::slice::from_ref(&all));
        assert!(
            matches!(refused, Err(SignatureRefusal::OtherPlugin { .. })),
            "{comment}: {refused:?}"
        );
    }
    // Under another name than its manifest's, and without a manifest under another than signed.
    let refused =
        verify(&wasm, "acme-other", &[sign(&wasm, "acme-notes", &key)], std::slice::from_ref(&all));
    assert!(matches!(refused, Err(SignatureRefusal::OtherPlugin { .. })), "{refused:?}");
    let wasm = bare(b"");
    let signature = sign(&wasm, "acme-one", &key);
    verify(&wasm, "acme-one", std::slice::from_ref(&signature), std::slice::from_ref(&all))
        .expect("it is signed so");
    let refused = verify(&wasm, "acme-two", &[signature], &[all]);
    assert!(matches!(refused, Err(SignatureRefusal::OtherPlugin { .. })), "{refused:?}");
}

fn sign_comment(wasm: &[u8]) -> String {
    Statement::of_plugin(wasm, None).expect("it has a name").to_string()
}

#[test]
fn plain_signature_counts_only_where_the_bytes_name_the_plugin() {
    let key = key();
    let keys = [trusted(&key)];
    let comment = "timestamp:1795000000\tfile:x.wasm\thashed";
    let wasm = component("acme-notes", b"");
    verify(&wasm, "acme-notes", &[sign_as(&wasm, comment, &key)], &keys).expect("it is named");
    let wasm = bare(b"");
    let refused = verify(&wasm, "acme-notes", &[sign_as(&wasm, comment, &key)], &keys);
    assert!(refused.expect_err("nothing names it").to_string().contains("names the plugin"));
    // And not where the key isn't trusted with that name.
    let wasm = component("other", b"");
    let refused = verify(&wasm, "other", &[sign_as(&wasm, comment, &key)], &keys);
    assert!(matches!(refused, Err(SignatureRefusal::OutOfScope { .. })), "{refused:?}");
}

#[test]
fn unknown_revoked_and_expired_keys_and_no_signature_have_reasons_of_their_own() {
    let (key, other) = (key(), key());
    let wasm = component("acme-notes", b"");
    let signatures = [sign(&wasm, "acme-notes", &key)];
    let refused = |keys: &[TrustedKey]| {
        verify(&wasm, "acme-notes", &signatures, keys).expect_err("it doesn't count")
    };
    assert_eq!(
        verify(&wasm, "acme-notes", &[], &[trusted(&key)]),
        Err(SignatureRefusal::NoSignature)
    );
    assert_eq!(refused(&[trusted(&other)]), SignatureRefusal::UnknownKey(key.public().id()));
    assert_eq!(refused(&[]), SignatureRefusal::UnknownKey(key.public().id()));
    // The id is the key's, the key isn't.
    let mut forged = trusted(&other);
    forged.key.id = key.public().id();
    assert_eq!(refused(&[forged]), SignatureRefusal::WrongSignature("acme".into()));
    let revoked = TrustedKey { revoked: true, name: "old".into(), ..trusted(&key) };
    assert_eq!(refused(std::slice::from_ref(&revoked)), SignatureRefusal::Revoked("old".into()));
    // What is revoked somewhere stays revoked, also under another name.
    assert_eq!(refused(&[trusted(&key), revoked]), SignatureRefusal::Revoked("old".into()));
    let until = |not_after| TrustedKey { not_after: Some(not_after), ..trusted(&key) };
    let yesterday = date(2026, 11, 25);
    assert_eq!(
        refused(&[until(yesterday)]),
        SignatureRefusal::Expired { key: "acme".into(), not_after: yesterday }
    );
    verify(&wasm, "acme-notes", &signatures, &[until(TODAY)]).expect("the last day counts");
}

#[test]
fn key_counts_for_its_plugins_and_sources_only() {
    let key = key();
    let wasm = component("evil-notes", b"");
    let refused = verify(&wasm, "evil-notes", &[sign(&wasm, "evil-notes", &key)], &[trusted(&key)]);
    assert!(matches!(refused, Err(SignatureRefusal::OutOfScope { .. })), "{refused:?}");
    let nothing = TrustedKey { plugins: Vec::new(), ..trusted(&key) };
    let wasm = component("acme-notes", b"");
    let signatures = [sign(&wasm, "acme-notes", &key)];
    let refused = verify(&wasm, "acme-notes", &signatures, &[nothing]);
    assert!(matches!(refused, Err(SignatureRefusal::OutOfScope { .. })), "{refused:?}");

    let source = "oci://registry.example/acme/*".parse().expect("it is valid");
    let keys = [TrustedKey { sources: vec![source], ..trusted(&key) }];
    for (source, counts) in [
        (Some("oci://registry.example/acme/notes:1"), true),
        (Some("oci://registry.example/acme-evil/notes:1"), false),
        (Some("oci://registry.example/acme/../evil/notes"), false),
        (Some("oci://registry.example/acme/%2E%2e/evil/notes"), false),
        (Some("oci://registry.example/acme/..%2Fevil/notes"), false),
        (Some("oci://registry.example/acme/x%5c..%5cevil"), false),
        (Some("oci://registry.example.evil/acme/notes"), false),
        (Some("oci://registry.example/acme/"), false),
        (None, false),
    ] {
        let plugin = SignedPlugin { wasm: &wasm, name: "acme-notes", source };
        let verdict = verify_plugin(plugin, &signatures, &keys, TODAY);
        assert_eq!(verdict.is_ok(), counts, "{source:?}: {verdict:?}");
    }
    for pattern in
        ["", "oci://*", "a*b/*", "https://x.example/a b", "https:///*", "oci://registry.example"]
    {
        pattern.parse::<SourcePattern>().expect_err(pattern);
    }
    for pattern in ["", "A", "a*b", "**", "a/b"] {
        pattern.parse::<PluginPattern>().expect_err(pattern);
    }
}

#[test]
fn one_of_several_signatures_and_keys_is_enough() {
    let (old, new) = (key(), key());
    let wasm = component("acme-notes", b"");
    let keys = [
        TrustedKey { revoked: true, ..trusted(&old) },
        TrustedKey { name: "acme-2027".into(), ..trusted(&new) },
    ];
    let of = |key| sign(&wasm, "acme-notes", key);
    let signatures = [b"no signature".to_vec(), of(&old), of(&new)];
    assert_eq!(
        verify(&wasm, "acme-notes", &signatures, &keys).expect("it counts").name,
        "acme-2027"
    );
    // Of several reasons, the one that says most.
    let refused = verify(&wasm, "acme-notes", &signatures[..2], &keys);
    assert_eq!(refused, Err(SignatureRefusal::Revoked("acme".into())));
}

#[test]
fn bundle_needs_a_key_for_bundles_and_a_signature_that_says_so() {
    let (key, index) = (key(), b"{}");
    let signature = sign_as(index, &Statement::Bundle.to_string(), &key);
    let bundles = TrustedKey { bundles: true, ..trusted(&key) };
    let check = |signature: &[u8], key: &TrustedKey| {
        verify_bundle(index, signature, std::slice::from_ref(key), TODAY)
    };
    check(&signature, &bundles).expect("it counts");
    let refused = check(&signature, &trusted(&key));
    assert!(matches!(refused, Err(SignatureRefusal::OutOfScope { .. })), "{refused:?}");
    let refused = check(&sign_as(index, "timestamp:1", &key), &bundles);
    assert!(matches!(refused, Err(SignatureRefusal::OtherPlugin { .. })), "{refused:?}");
}

#[test]
fn key_file_is_private_never_overwritten_and_needs_its_password() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let folder = KeyFolder::new(root.path());
    let made = folder.create("mine", Some("correct horse")).expect("it is made");
    assert_eq!(fs::metadata(&made.secret).expect("it is there").mode() & 0o7777, 0o600);
    // A copy of it is for every user.
    assert_eq!(fs::metadata(&made.public).expect("it is there").mode() & 0o7777, 0o644);
    let before = fs::read(&made.secret).expect("it is there");
    let taken = folder.create("mine", None).expect_err("the name is taken").to_string();
    assert!(taken.contains("not overwritten"), "{taken}");
    assert_eq!(fs::read(&made.secret).expect("it is there"), before);
    let entries = fs::read_dir(root.path().join("keys")).expect("it is there").count();
    assert_eq!(entries, 2, "nothing else is left there");
    assert_eq!(folder.all().expect("they are there"), [("mine".into(), made.key.clone())]);
    for name in ["", "../mine", "Mine", "a/b", "\u{1b}[2J"] {
        folder.create(name, None).expect_err(name);
    }

    let file = String::from_utf8(before).expect("it is text");
    assert!(SecretKey::needs_password(&file).expect("it is a key"));
    let of = |password| SecretKey::from_file(&file, password).map(|key| key.public().clone());
    assert_eq!(of(Some("correct horse")), Ok(made.key));
    assert_eq!(of(Some("wrong")), Err(SecretKeyError::WrongPassword));
    assert_eq!(of(None), Err(SecretKeyError::NeedsPassword));

    // Another user may not read it.
    fs::set_permissions(&made.secret, fs::Permissions::from_mode(0o640)).expect("it is set");
    let open = read_secret_key(&made.secret, &PasswordSource::Terminal).expect_err("it is open");
    assert!(open.to_string().contains("chmod go-rwx"), "{open}");
}

#[test]
fn key_without_a_password_signs_and_a_damaged_one_does_not() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let made = KeyFolder::new(root.path()).create("mine", None).expect("it is made");
    let key = read_secret_key(&made.secret, &PasswordSource::Terminal).expect("it is read");
    assert_eq!(key.public(), &made.key);
    let shown = format!("{key:?}");
    assert_eq!(shown, format!("SecretKey({})", made.key.id()));
    let signature = Signature::sign(b"bytes", "comment", &key).expect("it is signed");
    assert!(signature.is_of(&made.key, &prehash(b"bytes")));

    let file = fs::read_to_string(&made.secret).expect("it is there");
    let line = file.lines().nth(1).expect("it has two lines");
    let mut bytes: [u8; 158] = encoded::decode(line, "it").expect("it is base64");
    for (at, reason) in [(70, "damaged"), (0, "algorithm"), (3, "algorithm"), (5, "algorithm")] {
        bytes[at] ^= 1;
        let damaged = format!("untrusted comment: x\n{}\n", encoded::encode(&bytes));
        bytes[at] ^= 1;
        let error = SecretKey::from_file(&damaged, None).expect_err(reason).to_string();
        assert!(error.contains(reason), "{error}");
    }
    // minisign writes no checksum without a password. The public key inside still has to fit.
    let mut unchecked = bytes;
    unchecked[126..].fill(0);
    let file = |bytes: &[u8]| format!("untrusted comment: x\n{}\n", encoded::encode(bytes));
    let read = SecretKey::from_file(&file(&unchecked), None).expect("it is right");
    assert_eq!(read.public(), &made.key);
    unchecked[70] ^= 1;
    let error = SecretKey::from_file(&file(&unchecked), None).expect_err("it is damaged");
    assert_eq!(error, SecretKeyError::OtherPublicKey);
    // The file can't make the host work for hours, or take all memory.
    bytes[2..4].copy_from_slice(b"Sc");
    bytes[38..54].fill(0xff);
    let bomb = format!("untrusted comment: x\n{}\n", encoded::encode(&bytes));
    let error = SecretKey::from_file(&bomb, Some("x")).expect_err("it is too much").to_string();
    assert!(error.contains("the limit is"), "{error}");
}

#[test]
fn signature_is_written_beside_its_file_and_read_bounded() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let (path, key) = (root.path().join("notes.wasm"), key());
    fs::write(&path, component("acme-notes", b"")).expect("it is written");
    assert!(read_signatures_beside(&path).expect("it is none").is_empty());
    let (written, said) = sign_file(&path, None, &key).expect("it is signed");
    assert_eq!(written, root.path().join("notes.wasm.minisig"));
    let Statement::Plugin { name, version, .. } = said else { panic!("it is of a plugin") };
    assert_eq!((name.as_str(), version.as_str()), ("acme-notes", "1.2.0"));
    let signature = read_signatures_beside(&path).expect("it is there").remove(0);
    let wasm = fs::read(&path).expect("it is there");
    verify(&wasm, "acme-notes", &[signature], &[trusted(&key)]).expect("it counts");
    sign_file(&path, Some("acme-other"), &key).expect_err("its manifest names it otherwise");
    fs::write(&written, vec![b'x'; 1 << 20]).expect("it is written");
    read_signatures_beside(&path).expect_err("it is too large");
    fs::remove_file(&written).expect("it was there");
    let fifo = rustix::fs::mknodat(
        rustix::fs::CWD,
        &written,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    );
    fifo.expect("a FIFO is made");
    read_signatures_beside(&path).expect_err("a FIFO is no file, and isn't waited for");
}

#[test]
fn signature_of_a_ceiling_is_in_the_first_lines_of_its_file() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let (path, key) = (root.path().join("ceiling.toml"), key());
    let text = "a = 1\n";
    sign_ceiling(&path, text, &key).expect("it is signed");
    let keys = [key.public().clone()];
    let expected = Ok((key.public().id(), format!("\n\n\n\n{text}")));
    let file = fs::read_to_string(&path).expect("it is there");
    assert!(file.ends_with(&format!("\n{text}")), "{file}");
    assert_eq!(verify_ceiling(&file, &keys), expected);
    // Made by hand from a signature of minisign.
    let signature = Signature::sign(text.as_bytes(), "timestamp:1", &key).expect("it is signed");
    let mut by_hand = String::new();
    for line in signature.to_string().lines() {
        by_hand += &format!("# {line}\n");
    }
    by_hand += text;
    assert_eq!(verify_ceiling(&by_hand, &keys), expected);
    for unsigned in ["", text, "# untrusted comment: x\n", "# a\n# b\n# c\n# d\na = 1\n"] {
        let refused = verify_ceiling(unsigned, &keys);
        assert_eq!(refused, Err(SignatureRefusal::NoSignature), "{unsigned}");
    }

    // Nothing but the signed text is used, so the first comment has no effect.
    let comment = file.replacen("untrusted comment:", "untrusted comment: a = 2", 1);
    assert_eq!(verify_ceiling(&comment, &keys), expected);
    let signature = file.strip_suffix(text).expect("it ends with the text");
    for changed in [
        format!("a = 2\n{file}"),
        format!("\u{feff}{file}"),
        format!("{file}a = 2\n"),
        format!("{signature}{file}"),
        file.replace('\n', "\r\n"),
        file.replacen("\n# ", "\n#", 1),
        signature.to_owned(),
        signature.lines().take(3).collect::<Vec<_>>().join("\n"),
    ] {
        verify_ceiling(&changed, &keys).expect_err(&changed);
    }
    // An empty text lifts all limits only if it was signed. Signing again replaces the signature.
    sign_ceiling(&path, "", &key).expect("it is signed");
    let empty = fs::read_to_string(&path).expect("it is there");
    assert_eq!(verify_ceiling(&empty, &keys), Ok((key.public().id(), "\n\n\n\n".to_owned())));
    sign_ceiling(&path, &file, &key).expect("it is signed");
    let again = fs::read_to_string(&path).expect("it is there");
    assert_eq!(verify_ceiling(&again, &keys), expected);
}

#[test]
fn password_comes_from_where_it_is_named_and_is_bounded() {
    let mut file = tempfile::tempfile().expect("a temporary file");
    std::io::Write::write_all(&mut file, b"one\ntwo\n").expect("it is written");
    let number = std::os::fd::AsRawFd::as_raw_fd(&file);
    let source: PasswordSource = format!("fd:{number}").parse().expect("it is valid");
    assert_eq!(*source.read("", false).expect("it is there"), "one");
    std::io::Write::write_all(&mut file, &[b'x'; 4096]).expect("it is written");
    let unset: PasswordSource = "env:TOOLHOLD_TEST_UNSET".parse().expect("it is valid");
    assert!(unset.read("", false).expect_err("it isn't set").to_string().contains("isn't set"));
    for wrong in ["", "secret", "env:", "fd:x", "file:/x"] {
        wrong.parse::<PasswordSource>().expect_err(wrong);
    }
    fs::write(format!("/proc/self/fd/{number}"), vec![b'x'; 4096]).expect("it is written");
    let long = source.read("", false).expect_err("it is too long").to_string();
    assert!(long.contains("the limit is 1024"), "{long}");
}

#[test]
fn patterns_cover_what_they_contain_and_nothing_else() {
    let source = |text: &str| text.parse::<SourcePattern>().expect("it is valid");
    let notes = source("oci://registry.example/acme/notes");
    assert!(notes.matches("oci://registry.example/acme/notes:1.2@sha256:0f"));
    for other in ["notes-evil:1", "notes:1/evil", "notes/evil:1"] {
        assert!(!notes.matches(&format!("oci://registry.example/acme/{other}")), "{other}");
    }
    for (one, other, covers) in [
        ("*", "*", true),
        ("*", "oci://a/*", true),
        ("oci://a/*", "*", false),
        ("oci://a/*", "oci://a/*", true),
        ("oci://a/*", "oci://a/b/*", true),
        ("oci://a/b/*", "oci://a/*", false),
        ("oci://a/b/*", "oci://a/bc/*", false),
        ("oci://a/*", "oci://a/b", true),
        ("oci://a/b", "oci://a/b/*", false),
        ("oci://a/*", "oci://a/../b/*", false),
    ] {
        assert_eq!(source(one).covers(&source(other)), covers, "{one} and {other}");
    }
    let plugin = |text: &str| text.parse::<PluginPattern>().expect("it is valid");
    for (one, other, covers) in [
        ("*", "*", true),
        ("acme-*", "acme-notes", true),
        ("acme-*", "acme-n*", true),
        ("acme-*", "acme*", false),
        ("acme-n*", "acme-*", false),
        ("acme", "acme*", false),
    ] {
        assert_eq!(plugin(one).covers(&plugin(other)), covers, "{one} and {other}");
    }
}

#[test]
fn what_minisign_wrote_is_read() {
    let public: PublicKey = "RWTkp7wu9DV4mg7a2pNdpvNEOj9dYkZsMqrBuZ1Er/rkykxixdMMkWLG"
        .parse()
        .expect("it is a public key");
    assert_eq!(public.id().to_string(), "9A7835F42EBCA7E4");
    let lines = [
        "untrusted comment: signature from minisign secret key",
        "RUTkp7wu9DV4miOxV/K3lklG5+kU7oBlyosJyNNF0b+UJdiLCZyGl3/Rkd9TgRdGN4U1fbn6YyBshxilKvyZm1lRYC300+AzpgM=",
        "trusted comment: timestamp:1795652478\tfile:f\thashed",
        "gBKmxwJ4UHV1Vv20TBUdcR+EJJqIM6IsSwmUCEtkn3tDzGZSGsw0cBu8FovtUR+RcfsfkSQ67VhmLIAedQrSCw==",
    ];
    let signature = Signature::read(lines.join("\n").as_bytes()).expect("it is a signature");
    assert!(signature.is_of(&public, &prehash(b"hello\n")));
    assert!(!signature.is_of(&public, &prehash(b"hello")));
}
