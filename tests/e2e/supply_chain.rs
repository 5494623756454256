//! Registries that swap, lie, lead elsewhere or never end, by what is installed and served after
//! that.

use serde_json::json;

use crate::plugin_install::read_kept;
use crate::support::server::{Server, answer};
use crate::support::shelf::{CONFIG, LAYER, MANIFEST, Serving, Shelf, descriptor, digest, plugin};
use crate::support::{Living, ends, run, said, version};

/// Makes the next version, and returns the digest of its manifest.
type Change<'a> = dyn Fn(&mut Shelf) -> String + Sync + 'a;

/// A registry that gives one version for the first time, and then what `change` makes of it.
fn changing(good: &[u8], change: impl FnOnce(&mut Shelf) -> String) -> Serving {
    let mut shelf = Shelf::default();
    let first = shelf.plugin(good);
    shelf.tag("1", &first);
    let next = change(&mut shelf);
    shelf.moves = Some(("1".to_owned(), next));
    shelf.serve()
}

fn word(number: &str, answer: &'static str) -> Vec<u8> {
    version("word", number, answer).encode()
}

#[test]
fn plugin_of_a_registry_serves_what_was_shown_whatever_its_tag_becomes() {
    run(async {
        let living = Living::new();
        let (one, two) = (word("1.0.0", "one"), word("1.1.0", "two"));
        let server = changing(&one, |shelf| shelf.plugin(&two));
        let source = server.source(":1");
        let told = ends(&living.toolhold(&["plugin", "add", &source, "--yes"]), 0);
        assert!(told.contains("Installed word 1.0.0"), "{told}");
        let lock = std::fs::read_to_string(living.folders.data.join("toolhold.lock"))
            .expect("it is written");
        assert!(lock.contains("/plugin:1@sha256:"), "the manifest is pinned: {lock}");
        ends(&living.toolhold(&["plugin", "outdated"]), 0);
        let host = living.host(&[]).await;
        assert_eq!(said(&host, "word").await.as_deref(), Ok("one"));
        // It can do the same, so it needs no approval.
        ends(&living.toolhold(&["plugin", "update", "word"]), 0);
        let host = living.host(&[]).await;
        assert_eq!(said(&host, "word").await.as_deref(), Ok("two"));
        ends(&living.toolhold(&["plugin", "rollback", "word"]), 0);
        let host = living.host(&[]).await;
        assert_eq!(said(&host, "word").await.as_deref(), Ok("one"));
    });
}

#[test]
fn pinned_artifact_is_the_only_one_that_is_installed() {
    let living = Living::new();
    let before = read_kept(&living);
    let mut shelf = Shelf::default();
    let good = shelf.plugin(&word("1.0.0", "one"));
    let evil = shelf.plugin(&word("1.0.0", "evil"));
    let swapped = shelf.manifests[&evil].clone();
    shelf.manifests.insert(good.clone(), swapped);
    let server = shelf.serve();
    let pinned = server.source(&format!("@{good}"));
    let told = ends(&living.toolhold(&["plugin", "add", &pinned, "--yes"]), 4);
    assert!(told.contains("was requested"), "{told}");
    assert_eq!(read_kept(&living), before);
}

#[test]
fn lying_registry_changes_nothing() {
    run(async {
        let (good, evil) = (word("1.0.0", "one"), word("1.0.1", "evil"));
        let lies: [(&str, &Change<'_>); 6] = [
            ("a changed byte", &|shelf| {
                let manifest = shelf.plugin(&evil);
                let mut changed = evil.clone();
                *changed.last_mut().expect("it has bytes") ^= 1;
                shelf.blobs.insert(digest(&evil), changed);
                manifest
            }),
            ("fewer bytes", &|shelf| {
                let manifest = shelf.plugin(&evil);
                shelf.blobs.insert(digest(&evil), evil[..evil.len() - 1].to_vec());
                manifest
            }),
            ("bytes after the end", &|shelf| {
                let manifest = shelf.plugin(&evil);
                shelf.blobs.insert(digest(&evil), [&evil[..], &[0; 1 << 20]].concat());
                manifest
            }),
            ("a size beyond every limit", &|shelf| {
                let mut layer = descriptor(LAYER, &evil);
                layer["size"] = json!(u64::MAX);
                shelf.blob(&evil);
                shelf.manifest(MANIFEST, &plugin(CONFIG, &[layer]))
            }),
            ("a path as digest", &|shelf| {
                let mut layer = descriptor(LAYER, &evil);
                layer["digest"] = json!("../../../../etc/passwd");
                shelf.manifest(MANIFEST, &plugin(CONFIG, &[layer]))
            }),
            ("another plugin's component", &|shelf| {
                shelf.plugin(&version("other", "1.0.1", "evil").encode())
            }),
        ];
        for (lie, change) in lies {
            let living = Living::new();
            let server = changing(&good, change);
            ends(&living.toolhold(&["plugin", "add", &server.source(":1"), "--yes"]), 0);
            let before = read_kept(&living);
            let told = ends(&living.toolhold(&["plugin", "update", "word", "--yes"]), 4);
            assert_eq!(read_kept(&living), before, "{lie}: {told}");
            let host = living.host(&[]).await;
            assert_eq!(said(&host, "word").await.as_deref(), Ok("one"), "{lie}");
            // Nor is it installed where nothing was before.
            let fresh = Living::new();
            let before = read_kept(&fresh);
            if lie != "another plugin's component" {
                ends(&fresh.toolhold(&["plugin", "add", &server.source(":1"), "--yes"]), 4);
                assert_eq!(read_kept(&fresh), before, "{lie}");
            }
        }
    });
}

#[test]
fn registry_reaches_no_other_server_on_this_machine() {
    let living = Living::new();
    let before = read_kept(&living);
    let victim = Server::plain(|_, wire| answer(wire, "200 OK", &[], &word("1.0.0", "one")));
    for scheme in ["http", "https"] {
        let to = format!("{scheme}://127.0.0.1:{}/", victim.port());
        let manifest = plugin(CONFIG, &[descriptor(LAYER, &word("1.0.0", "one"))]).to_string();
        let registry = Server::plain(move |asked, wire| {
            if asked.path().contains("manifests") {
                answer(wire, "200 OK", &[("content-type", MANIFEST)], manifest.as_bytes())
            } else {
                answer(wire, "307 Temporary Redirect", &[("location", &to)], b"")
            }
        });
        let source = format!("oci+http://127.0.0.1:{}/plugin:1", registry.port());
        let told = ends(&living.toolhold(&["plugin", "add", &source, "--yes"]), 4);
        assert!(told.contains("name yourself") || told.contains("https"), "{told}");
        assert_eq!(read_kept(&living), before, "{told}");
    }
    assert_eq!(victim.connections(), 0);
}

#[test]
fn registry_that_never_ends_is_left() {
    let living = Living::new();
    let before = read_kept(&living);
    let endless = Server::plain(|_, wire| {
        wire.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: ")?;
        wire.write_all(MANIFEST.as_bytes())?;
        wire.write_all(b"\r\n\r\n")?;
        loop {
            wire.write_all(&[b' '; 1 << 16])?;
        }
    });
    let source = format!("oci+http://127.0.0.1:{}/plugin:1", endless.port());
    let told = ends(&living.toolhold(&["plugin", "add", &source, "--yes"]), 4);
    assert!(told.contains("limit"), "{told}");
    assert_eq!(read_kept(&living), before);
}
