//! Fetching from servers on loopback, and publishing to them: honest ones, and those that lie.

mod docker_registry;
mod hostile;
mod logins;
mod publishing;
mod real;
mod shelf;
mod writable;

#[path = "../../../../../tests/not_tried.rs"]
mod not_tried;
#[allow(dead_code, reason = "shared with the tests of toolhold-net, which use more of it")]
#[path = "../../../../sandbox/net/tests/requests/server.rs"]
mod server;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use server::{Authority, Server, answer};
use shelf::{SIGNATURE, Shelf, digest};
use toolhold_contract::Failure;
use toolhold_net::requests::{DoorRecord, Network, OutboundClient, Recorder};
use toolhold_registry::{FetchError, FetchOptions, Fetched, Source, fetch, tags};

const WASM: &[u8] = b"\0asm\x0d\0\x01\0 and the rest of it";

/// Runs a test on its own reactor.
fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a reactor starts")
        .block_on(test);
}

#[derive(Debug, Default)]
struct Records(Mutex<Vec<DoorRecord>>);

impl Recorder for Records {
    fn record(&self, record: &DoorRecord) -> Result<(), Failure> {
        self.0.lock().expect("nobody panicked").push(record.clone());
        Ok(())
    }
}

fn outbound_client(network: Network) -> OutboundClient {
    OutboundClient::new(network, Arc::<Records>::default())
}

/// Short limits, so that what never ends is ended soon.
fn options() -> FetchOptions {
    FetchOptions {
        time: Duration::from_secs(2),
        idle: Duration::from_millis(500),
        ..FetchOptions::default()
    }
}

async fn get_with(text: &str, options: &FetchOptions) -> Result<Fetched, FetchError> {
    let source = Source::parse(text)?;
    fetch(&source, &outbound_client(Network::default()), options, &|_, _| {}).await
}

async fn get(text: &str) -> Result<Fetched, FetchError> {
    get_with(text, &options()).await
}

#[test]
fn artifact_comes_with_its_digests_and_signatures() {
    run(async {
        let mut shelf = Shelf::default();
        let manifest = shelf.plugin(WASM);
        shelf.tag("1.0", &manifest);
        shelf.signature(&manifest, b"signature 1");
        shelf.signature(&manifest, b"signature 2");
        // Something else that refers to it, and a signature of something else.
        shelf.referrer(&manifest, "application/spdx+json", &manifest, b"{}");
        shelf.referrer(&manifest, SIGNATURE, &digest(b"other"), b"signature 3");
        let server = shelf.serve();
        let steps = Mutex::new(Vec::new());
        let source = Source::parse(&server.source(":1.0")).expect("is valid");
        let progress = |bytes, all| steps.lock().expect("is whole").push((bytes, all));
        let fetched = fetch(&source, &outbound_client(Network::default()), &options(), &progress)
            .await
            .expect("is there");
        assert_eq!(fetched.bytes, WASM);
        assert_eq!(format!("sha256:{}", fetched.digest), digest(WASM));
        assert_eq!(fetched.resolved.to_string(), format!("{source}@{manifest}"));
        assert_eq!(fetched.signatures, [b"signature 1".to_vec(), b"signature 2".to_vec()]);
        let all = WASM.len() as u64;
        assert_eq!(steps.into_inner().expect("is whole").last(), Some(&(all, Some(all))));

        let exact = get(&fetched.resolved.to_string()).await.expect("is there");
        assert_eq!(exact, fetched);
    });
}

#[test]
fn older_registries_list_signatures_under_a_tag() {
    run(async {
        let mut shelf = Shelf { has_referrers: false, ..Shelf::default() };
        let manifest = shelf.plugin(WASM);
        shelf.tag("latest", &manifest);
        shelf.signature(&manifest, b"signature 1");
        let server = shelf.serve();
        let fetched = get(&server.source("")).await.expect("is there");
        assert_eq!(fetched.signatures, [b"signature 1".to_vec()]);
        assert!(fetched.resolved.to_string().contains(":latest@sha256:"));
    });
}

#[test]
fn tag_that_changes_meanwhile_changes_nothing() {
    run(async {
        let mut shelf = Shelf::default();
        let (first, second) = (shelf.plugin(WASM), shelf.plugin(b"\0asm another one"));
        shelf.tag("1", &first);
        shelf.signature(&first, b"of the first");
        shelf.signature(&second, b"of the second");
        shelf.moves = Some(("1".to_owned(), second.clone()));
        let server = shelf.serve();
        let fetched = get(&server.source(":1")).await.expect("is there");
        assert_eq!(fetched.bytes, WASM);
        assert!(fetched.resolved.to_string().ends_with(&first));
        assert_eq!(fetched.signatures, [b"of the first".to_vec()]);
        let again = get(&server.source(":1")).await.expect("is there");
        assert!(again.resolved.to_string().ends_with(&second));
    });
}

#[test]
fn tags_come_page_by_page_and_end() {
    run(async {
        let server = Server::plain(|asked, wire| {
            let (status, link, body) = match asked.path() {
                "/v2/good/tags/list?n=100" => (
                    "200 OK",
                    "</v2/good/tags/list?last=b>; rel=\"next\"",
                    r#"{"tags":["a","b","\u001b"]}"#,
                ),
                "/v2/good/tags/list?last=b" => ("200 OK", "", r#"{"name":"good","tags":["c"]}"#),
                "/v2/none/tags/list?n=100" => ("200 OK", "", r#"{"tags":null}"#),
                "/v2/endless/tags/list?n=100" | "/v2/endless/tags/list?n=1" => {
                    ("200 OK", "</v2/endless/tags/list?n=1>; rel=\"next\"", r#"{"tags":["x"]}"#)
                }
                "/v2/other/tags/list?n=100" => {
                    ("200 OK", "<https://example.com/v2/other/tags/list>; rel=\"next\"", "{}")
                }
                _ => ("404 Not Found", "", "{}"),
            };
            answer(wire, status, &[("link", link)], body.as_bytes())
        });
        let all = |name: &str| {
            let text = format!("oci+http://127.0.0.1:{}/{name}", server.port());
            async move {
                let source = Source::parse(&text).expect("is valid");
                tags(&source, &outbound_client(Network::default()), &options()).await
            }
        };
        let good = all("good").await.expect("is there");
        assert_eq!((good.tags.join(" "), good.is_complete), ("a b c".to_owned(), true));
        assert_eq!(all("none").await.map(|found| found.tags.len()), Ok(0));
        let before = server.asked().len();
        let endless = all("endless").await.expect("it ends");
        assert!(!endless.is_complete && server.asked().len() - before <= 20, "{endless:?}");
        let other = all("other").await.expect_err("it leads elsewhere").to_string();
        assert!(other.contains("on another server"), "{other}");
        let missing = all("missing").await.expect_err("it doesn't exist").to_string();
        assert!(missing.contains("404"), "{missing}");
    });
}

#[test]
fn component_at_a_url_comes_with_the_signature_beside_it() {
    run(async {
        let authority = Authority::new();
        let config: Arc<rustls::ServerConfig> = authority.server(&["127.0.0.1"], &[], |_| {});
        let server = Server::tls(config, |asked, wire| match asked.path() {
            "/a/signed.wasm?v=1" | "/a/unsigned.wasm" | "/broken.wasm" => {
                answer(wire, "200 OK", &[], WASM)
            }
            "/a/signed.wasm.minisig?v=1" => answer(wire, "200 OK", &[], b"signature 1"),
            "/broken.wasm.minisig" => answer(wire, "500 Oh", &[], b""),
            "/page.wasm" => answer(wire, "200 OK", &[], b"<html>\x1b[2J"),
            "/large.wasm" => answer(wire, "200 OK", &[], WASM),
            "/large.wasm.minisig" => answer(wire, "200 OK", &[], &[b'x'; 10_000]),
            _ => answer(wire, "404 Not Found", &[], b"not here"),
        });
        let client =
            outbound_client(Network { authorities: vec![authority.file()], ..Network::default() });
        let get = |path: &str| {
            let url = format!("https://127.0.0.1:{}{path}", server.port());
            let client = client.clone();
            async move {
                let source = Source::parse(&url).expect("is valid");
                fetch(&source, &client, &options(), &|_, _| {}).await
            }
        };
        let signed = get("/a/signed.wasm?v=1").await.expect("is there");
        assert_eq!(
            (signed.bytes.as_slice(), signed.signatures),
            (WASM, vec![b"signature 1".to_vec()])
        );
        assert_eq!(get("/a/unsigned.wasm").await.map(|fetched| fetched.signatures.len()), Ok(0));
        for (path, told) in [
            ("/missing.wasm", "404"),
            ("/broken.wasm", "500"),
            ("/page.wasm", "isn't WebAssembly"),
            ("/large.wasm", "more than 8192 bytes"),
        ] {
            let error = get(path).await.expect_err(path).to_string();
            assert!(error.contains(told) && !error.contains('\x1b'), "{path}: {error}");
        }
    });
}
