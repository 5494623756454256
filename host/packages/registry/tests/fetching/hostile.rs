//! Registries that lie, lead elsewhere, or never end. Nothing of what they send is used.

use serde_json::{Value, json};

use super::shelf::{CONFIG, EMPTY, INDEX, LAYER, MANIFEST, descriptor, plugin};
use super::*;

#[test]
fn lies_about_digests_and_lengths_are_refused() {
    run(async {
        let evil: &[u8] = b"\0asm evil, just as long: \0\0";
        assert_eq!(evil.len(), WASM.len());
        // The bytes of a blob are others, fewer, or more.
        for bytes in [evil, &WASM[..10], &[WASM, b"x"].concat()] {
            let mut shelf = Shelf::default();
            let manifest = shelf.plugin(WASM);
            shelf.tag("1", &manifest);
            shelf.blobs.insert(digest(WASM), bytes.to_vec());
            let server = shelf.serve();
            let error = get(&server.source(":1")).await.expect_err("it lies").to_string();
            let told =
                ["the manifest says", "more than 27 bytes"].iter().any(|told| error.contains(told));
            assert!(told, "{error}");
        }
        // A manifest that isn't the one that was named.
        let mut shelf = Shelf::default();
        let (good, other) = (shelf.plugin(WASM), shelf.plugin(evil));
        let swapped = shelf.manifests[&other].clone();
        shelf.manifests.insert(good.clone(), swapped);
        let server = shelf.serve();
        let error =
            get(&server.source(&format!("@{good}"))).await.expect_err("it lies").to_string();
        assert!(error.contains("was requested"), "{error}");
        assert!(server.paths().iter().all(|path| !path.contains("blobs")), "{:?}", server.paths());
        // A stated digest that isn't the manifest's.
        let mut shelf = Shelf { stated: Some(other), ..Shelf::default() };
        let manifest = shelf.plugin(WASM);
        shelf.tag("1", &manifest);
        let error = get(&shelf.serve().source(":1")).await.expect_err("it lies").to_string();
        assert!(error.contains("was requested"), "{error}");
        // A signature that isn't what its manifest says.
        let mut shelf = Shelf::default();
        let manifest = shelf.plugin(WASM);
        shelf.tag("1", &manifest);
        shelf.signature(&manifest, b"signature 1");
        shelf.blobs.insert(digest(b"signature 1"), b"signature 2".to_vec());
        let error = get(&shelf.serve().source(":1")).await.expect_err("it lies").to_string();
        assert!(error.contains("a signature"), "{error}");
    });
}

#[test]
fn other_artifacts_are_refused_before_their_content_is_asked_for() {
    run(async {
        let layer = descriptor(LAYER, WASM);
        let one = |config| plugin(config, std::slice::from_ref(&layer));
        let mut large = layer.clone();
        large["size"] = json!(1_u64 << 40);
        let mut weak = layer.clone();
        weak["digest"] = json!("sha512:00");
        let mut path = layer.clone();
        path["digest"] = json!("../../manifests/1");
        let mut other_kind = one(CONFIG);
        other_kind["mediaType"] = json!(INDEX);
        let mut confused = one(CONFIG);
        confused["mediaType"] = json!("application/x");
        let mut old = one(CONFIG);
        old["schemaVersion"] = json!(1);
        let docker = "application/vnd.docker.distribution.manifest.v2+json";
        let image = "application/vnd.oci.image.config.v1+json";
        let index = json!({ "schemaVersion": 2, "manifests": [layer.clone()] });
        for (media_type, manifest, told) in [
            (INDEX, index, "is an index"),
            (MANIFEST, other_kind, "is an index"),
            (MANIFEST, confused, "type is `application/x`"),
            (docker, one(CONFIG), "type is `application/vnd.docker"),
            ("text/html", json!({}), "type is `text/html`"),
            (MANIFEST, one(image), "isn't a plugin"),
            (MANIFEST, json!({ "schemaVersion": 2, "layers": [layer.clone()] }), "isn't a plugin"),
            (MANIFEST, plugin(CONFIG, &[]), "0 layers"),
            (MANIFEST, plugin(CONFIG, &[layer.clone(), layer.clone()]), "2 layers"),
            (
                MANIFEST,
                plugin(CONFIG, &[descriptor("application/x\u{1b}", WASM)]),
                "the layer's type is",
            ),
            (MANIFEST, plugin(CONFIG, &[large]), "the limit is"),
            (MANIFEST, plugin(CONFIG, &[weak]), "write `sha256:` and 64 digits"),
            (MANIFEST, plugin(CONFIG, &[path]), "write `sha256:` and 64 digits"),
            (MANIFEST, old, "version is 1"),
            (MANIFEST, json!([]), "isn't"),
            (MANIFEST, Value::Null, "isn't"),
        ] {
            let mut shelf = Shelf::default();
            shelf.blob(WASM);
            let digest = shelf.manifest(media_type, &manifest);
            shelf.tag("1", &digest);
            let server = shelf.serve();
            let error = get(&server.source(":1")).await.expect_err(told).to_string();
            assert!(error.contains(told) && !error.contains('\u{1b}'), "{told}: {error}");
            assert_eq!(server.paths(), ["/v2/plugin/manifests/1"], "{told}");
        }
        // What other tools make: one component without a description.
        let mut shelf = Shelf::default();
        shelf.blob(WASM);
        let manifest = shelf.manifest(MANIFEST, &one(EMPTY));
        shelf.tag("1", &manifest);
        assert!(get(&shelf.serve().source(":1")).await.is_ok());
    });
}

#[test]
fn redirects_of_a_registry_reach_no_private_address() {
    run(async {
        let victim = Server::plain(|_, wire| answer(wire, "200 OK", &[], WASM));
        for scheme in ["http", "https"] {
            let to = format!("{scheme}://127.0.0.1:{}/", victim.port());
            let mut shelf = Shelf::default();
            shelf.plugin(WASM);
            let manifest = plugin(CONFIG, &[descriptor(LAYER, WASM)]).to_string();
            let server = Server::plain(move |asked, wire| {
                if asked.path().contains("manifests") {
                    answer(wire, "200 OK", &[("content-type", MANIFEST)], manifest.as_bytes())
                } else {
                    answer(wire, "307 Temporary Redirect", &[("location", &to)], b"")
                }
            });
            let source = format!("oci+http://127.0.0.1:{}/plugin:1", server.port());
            let error = get(&source).await.expect_err("it leads elsewhere");
            assert!(matches!(&error, FetchError::Request(error) if error.is_refusal()), "{error}");
        }
        assert_eq!(victim.connections(), 0);
    });
}

#[test]
fn registries_that_never_end_are_ended() {
    run(async {
        let bomb = |_: &server::Asked, wire: &mut dyn server::Wire| {
            let headers = [("content-encoding", "gzip"), ("content-type", MANIFEST)];
            answer(wire, "200 OK", &headers, &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3])
        };
        let endless = |_: &server::Asked, wire: &mut dyn server::Wire| {
            wire.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
            loop {
                wire.write_all(b"4000\r\n")?;
                wire.write_all(&[b'['; 0x4000])?;
                wire.write_all(b"\r\n")?;
            }
        };
        let silent = |_: &server::Asked, wire: &mut dyn server::Wire| wire.read(&mut [0]).map(drop);
        let around = |asked: &server::Asked, wire: &mut dyn server::Wire| {
            let next = format!("{}0", asked.path());
            answer(wire, "302 Found", &[("location", &next)], b"")
        };
        let source = |server: &Server| format!("oci+http://127.0.0.1:{}/plugin:1", server.port());
        for (server, told) in [
            (Server::plain(bomb), "the content encoding `gzip`"),
            (Server::plain(endless), "more than 4194304 bytes"),
            (Server::plain(silent), "sent nothing for"),
            (Server::plain(around), "more than 5 redirects"),
        ] {
            let error = get(&source(&server)).await.expect_err(told).to_string();
            assert!(error.contains(told), "{told}: {error}");
        }
    });
}

#[test]
fn many_signatures_are_not_all_fetched() {
    run(async {
        let mut shelf = Shelf::default();
        let manifest = shelf.plugin(WASM);
        shelf.tag("1", &manifest);
        for number in 0..40 {
            shelf.referrer(&manifest, "application/x", &manifest, format!("{number}").as_bytes());
        }
        for number in 0..40 {
            shelf.signature(&manifest, format!("signature {number}").as_bytes());
        }
        shelf.signature(&manifest, &[b'x'; 10_000]);
        let server = shelf.serve();
        let fetched = get(&server.source(":1")).await.expect("is there");
        assert_eq!(fetched.signatures.len(), toolhold_registry::MAX_SIGNATURES);
        assert!(server.paths().len() < 25, "{:?}", server.paths());
    });
}
