//! A real registry, with TLS and a password.

use std::fs;
use std::path::PathBuf;

use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Method};
use serde_json::json;
use toolhold_net::requests::{Credential, Request};
use toolhold_registry::{Credentials, Publication, Published, Reference, publish};
use url::Url;

use super::docker_registry::{AUTH, DockerRegistry};
use super::not_tried::not_tried;
use super::shelf::{CONFIG, EMPTY, INDEX, LAYER, MANIFEST, descriptor, plugin};
use super::*;

/// The program, if this machine could fetch it.
fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().expect("a test knows its program");
    let target = own.ancestors().nth(3).expect("a test lies in target/debug/deps");
    let folder = target.join("clients/debian");
    if !folder.join("fetched").exists() {
        not_tried("clients/debian");
        return None;
    }
    Some(folder.join("usr/bin/docker-registry"))
}

impl DockerRegistry {
    fn url(&self) -> Url {
        format!("https://localhost:{}/", self.port).parse().expect("is a URL")
    }

    fn outbound_client(&self) -> OutboundClient {
        let authorities = vec![self.authority()];
        outbound_client(Network { authorities, ..Network::default() })
    }

    fn options(&self, auth: &str) -> FetchOptions {
        let path = self.folder().join("logins.json");
        let logins =
            json!({ "auths": { toolhold_net::requests::origin(&self.url()): { "auth": auth } } });
        fs::write(&path, logins.to_string()).expect("it is written");
        FetchOptions {
            credentials: Credentials::load(&path).expect("is valid"),
            ..FetchOptions::default()
        }
    }

    fn source(&self, version: &str) -> Source {
        let text = format!("oci://localhost:{}/tools/plugin{version}", self.port);
        Source::parse(&text).expect("is valid")
    }

    /// Sends something to the registry; returns where that is.
    async fn send(&self, method: Method, url: Url, media_type: &str, body: &[u8]) -> Option<Url> {
        let basic = HeaderValue::from_str(&format!("Basic {AUTH}")).expect("is a value");
        let request = Request::new("a test", method, url.as_str())
            .expect("is valid")
            .header(CONTENT_TYPE, HeaderValue::from_str(media_type).expect("is a value"))
            .credential(Some(Credential::new(&self.url(), basic)))
            .body(body.to_vec());
        let answer = self.outbound_client().send(request).await.expect("the registry answers");
        assert!(answer.status().is_success(), "{url}: {}", answer.status());
        let location = answer.headers().get(LOCATION)?.to_str().ok()?;
        answer.url().join(location).ok()
    }

    async fn blob(&self, bytes: &[u8]) {
        let url = self.url().join("/v2/tools/plugin/blobs/uploads/").expect("is a URL");
        let kind = "application/octet-stream";
        let mut to = self.send(Method::POST, url, kind, b"").await.expect("it says where");
        to.query_pairs_mut().append_pair("digest", &digest(bytes));
        self.send(Method::PUT, to, kind, bytes).await;
    }

    async fn manifest(
        &self,
        version: &str,
        media_type: &str,
        manifest: &serde_json::Value,
    ) -> String {
        let bytes = manifest.to_string().into_bytes();
        let url = self.url().join(&format!("/v2/tools/plugin/manifests/{version}"));
        self.send(Method::PUT, url.expect("is a URL"), media_type, &bytes).await;
        digest(&bytes)
    }

    async fn put(
        &self,
        reference: &Reference,
        publication: Publication<'_>,
    ) -> Result<Published, FetchError> {
        publish(reference, publication, &self.outbound_client(), &self.options(AUTH)).await
    }

    async fn fetch(&self, version: &str) -> Result<Fetched, FetchError> {
        fetch(&self.source(version), &self.outbound_client(), &self.options(AUTH), &|_, _| {}).await
    }
}

#[test]
fn real_registry_takes_what_is_published() {
    let Some(program) = program() else { return };
    run(async {
        let registry = DockerRegistry::start(&program);
        let Source::Oci(reference) = registry.source(":1.0") else { panic!("is in a registry") };
        let signatures = [b"signature 1".to_vec(), b"signature 2".to_vec()];
        let publication = Publication {
            wasm: WASM,
            name: "plugin",
            version: "1.0.0",
            signatures: &signatures,
            replaces: false,
        };
        let published = registry.put(&reference, publication).await.expect("it is taken");
        let fetched = registry.fetch(":1.0").await.expect("it is there");
        assert_eq!((&fetched.bytes[..], &fetched.signatures[..]), (WASM, &signatures[..]));
        assert_eq!(fetched.resolved, published.source);
        assert_eq!(
            registry.put(&reference, publication).await.map(|again| again.is_same),
            Ok(true)
        );

        let other = Publication { wasm: b"\0asm another one", ..publication };
        let refused =
            registry.put(&reference, other).await.expect_err("the tag is taken").to_string();
        assert!(refused.contains("--replace"), "{refused}");
        assert_eq!(registry.fetch(":1.0").await.map(|fetched| fetched.bytes), Ok(WASM.to_vec()));
        let replacing = Publication { replaces: true, signatures: &[], ..other };
        registry.put(&reference, replacing).await.expect("it is replaced");
        let replaced = registry.fetch(":1.0").await.expect("it is there");
        assert_eq!((&replaced.bytes[..], replaced.signatures.len()), (other.wasm, 0));
        let client = registry.outbound_client();
        let no_login = publish(&reference, publication, &client, &FetchOptions::default()).await;
        assert!(matches!(no_login, Err(FetchError::Login { .. })), "{no_login:?}");
    });
}

#[test]
fn real_registry_with_tls_and_a_password_gives_plugin_and_signature() {
    let Some(program) = program() else { return };
    run(async {
        let registry = DockerRegistry::start(&program);
        for blob in [WASM, b"{}", b"signature 1"] {
            registry.blob(blob).await;
        }
        let manifest =
            registry.manifest("1.0", MANIFEST, &plugin(CONFIG, &[descriptor(LAYER, WASM)])).await;
        let signature = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": shelf::SIGNATURE,
            "config": descriptor(EMPTY, b"{}"),
            "layers": [descriptor(shelf::SIGNATURE, b"signature 1")],
            "subject": { "mediaType": MANIFEST, "digest": manifest, "size": 1 },
        });
        let bytes = signature.to_string().into_bytes();
        registry.manifest(&digest(&bytes), MANIFEST, &signature).await;
        let mut entry = descriptor(MANIFEST, &bytes);
        entry["artifactType"] = json!(shelf::SIGNATURE);
        let list = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [entry] });
        registry.manifest(&manifest.replace(':', "-"), INDEX, &list).await;

        let fetched = registry.fetch(":1.0").await.expect("it is there");
        assert_eq!(fetched.bytes, WASM);
        assert_eq!(fetched.signatures, [b"signature 1".to_vec()]);
        assert!(fetched.resolved.to_string().ends_with(&format!(":1.0@{manifest}")));
        assert_eq!(registry.fetch(&format!("@{manifest}")).await.expect("is there").bytes, WASM);
        let found =
            tags(&registry.source(""), &registry.outbound_client(), &registry.options(AUTH)).await;
        assert!(found.expect("it has tags").tags.contains(&"1.0".to_owned()));

        let index = registry.fetch(&format!(":{}", manifest.replace(':', "-"))).await;
        assert!(index.is_err_and(|error| error.to_string().contains("is an index")));
        let missing = registry.fetch(":2.0").await.expect_err("it doesn't exist").to_string();
        assert!(missing.contains("404"), "{missing}");
        let source = registry.source(":1.0");
        let no_login =
            fetch(&source, &registry.outbound_client(), &FetchOptions::default(), &|_, _| {}).await;
        assert!(matches!(no_login, Err(FetchError::Login { .. })), "{no_login:?}");
        let wrong = registry.options("YW5uYTp3cm9uZw==");
        let wrong = fetch(&source, &registry.outbound_client(), &wrong, &|_, _| {}).await;
        assert!(matches!(wrong, Err(FetchError::Login { .. })), "{wrong:?}");
        let untrusting = outbound_client(Network::default());
        let untrusted = fetch(&source, &untrusting, &registry.options(AUTH), &|_, _| {}).await;
        assert!(untrusted.is_err_and(|error| error.to_string().contains("certificate")));

        // Somebody changes the component where the registry keeps it.
        let hex = digest(WASM).split_off("sha256:".len());
        let kept = format!("data/docker/registry/v2/blobs/sha256/{}/{hex}/data", &hex[..2]);
        let mut changed = WASM.to_vec();
        changed[20] ^= 1;
        fs::write(registry.folder().join(kept), changed).expect("it is there");
        let error = registry.fetch(":1.0").await.expect_err("it was changed").to_string();
        assert!(error.contains("the digest is"), "{error}");
    });
}
