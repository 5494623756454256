//! Publishing to a registry on loopback, and fetching again.

use toolhold_registry::{Publication, Published, Reference, publish};

use super::writable::Registry;
use super::*;

const OTHER: &[u8] = b"\0asm\x0d\0\x01\0 of another build";

fn reference(server: &Server, version: &str) -> Reference {
    let text = format!("oci+http://127.0.0.1:{}/plugin{version}", server.port());
    match Source::parse(&text) {
        Ok(Source::Oci(reference)) => reference,
        other => panic!("{other:?}"),
    }
}

async fn put(
    reference: &Reference,
    wasm: &[u8],
    signatures: &[Vec<u8>],
    replaces: bool,
) -> Result<Published, FetchError> {
    let publication = Publication { wasm, name: "notes", version: "1.2.0", signatures, replaces };
    publish(reference, publication, &outbound_client(Network::default()), &options()).await
}

#[test]
fn published_component_is_fetched_with_its_signatures() {
    run(async {
        for has_referrers in [true, false] {
            let server = Registry { has_referrers, ..Registry::default() }.serve();
            let one = [b"signature 1".to_vec()];
            let reference = reference(&server, ":1.2");
            let published = put(&reference, WASM, &one, false).await.expect("it is taken");
            assert!(!published.is_same);
            let fetched = get(&reference.to_string()).await.expect("it is there");
            assert_eq!(fetched.bytes, WASM);
            assert_eq!(fetched.signatures, one);
            assert_eq!(fetched.resolved, published.source);

            // Again, with one more signature: only that is new.
            let before = server.asked().len();
            let two = [b"signature 1".to_vec(), b"signature 2".to_vec()];
            let again = put(&reference, WASM, &two, false).await.expect("it is taken");
            assert_eq!(again, Published { is_same: true, ..published.clone() });
            assert!(server.asked()[before..].iter().all(|asked| asked.body != WASM));
            let fetched = get(&reference.to_string()).await.expect("it is there");
            let mut signatures = fetched.signatures;
            signatures.sort();
            assert_eq!(signatures, two);
        }
    });
}

#[test]
fn tag_of_another_component_is_replaced_only_on_request() {
    run(async {
        let server = Registry { has_referrers: true, ..Registry::default() }.serve();
        let reference = reference(&server, ":1.2");
        put(&reference, WASM, &[], false).await.expect("it is taken");
        let before = server.asked().len();
        let refused = put(&reference, OTHER, &[], false).await.expect_err("the tag is taken");
        assert!(refused.to_string().contains("`1.2` already names another component"), "{refused}");
        assert!(
            server.asked()[before..].iter().all(|asked| asked.head.starts_with("GET ")),
            "nothing is sent"
        );
        assert_eq!(get(&reference.to_string()).await.map(|got| got.bytes), Ok(WASM.to_vec()));
        let published = put(&reference, OTHER, &[], true).await.expect("it is replaced");
        assert!(published.is_replaced);
        assert_eq!(get(&reference.to_string()).await.map(|got| got.bytes), Ok(OTHER.to_vec()));
        let exact = reference.with_digest(&digest(WASM));
        let refused = put(&exact, WASM, &[], true).await.expect_err("a digest isn't a tag");
        assert!(refused.to_string().contains("under a tag"), "{refused}");
    });
}

#[test]
fn registry_can_not_send_an_upload_to_a_private_host() {
    run(async {
        let inside = Server::plain(|_, wire| answer(wire, "201 Created", &[], b""));
        let place = format!("http://127.0.0.1:{}/v2/plugin/blobs/uploads/1", inside.port());
        let server = Server::plain(move |asked, wire| {
            if asked.head.starts_with("POST ") {
                answer(wire, "202 Accepted", &[("location", &place)], b"")
            } else {
                answer(wire, "404 Not Found", &[], b"{}")
            }
        });
        let reference = reference(&server, ":1.2");
        put(&reference, WASM, &[], false).await.expect_err("the place is refused");
        assert_eq!(inside.asked().len(), 0, "nothing arrives there");
    });
}
