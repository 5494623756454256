//! A small registry whose content and lies a test chooses.

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::server::{Server, answer};

pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const CONFIG: &str = "application/vnd.wasm.config.v0+json";
pub(crate) const EMPTY: &str = "application/vnd.oci.empty.v1+json";
pub(crate) const LAYER: &str = "application/wasm";
pub(crate) const SIGNATURE: &str = "application/vnd.toolhold.minisig";

pub(crate) fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

pub(crate) fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": digest(bytes), "size": bytes.len() })
}

/// The manifest of a plugin.
pub(crate) fn plugin(config: &str, layers: &[Value]) -> Value {
    json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": descriptor(config, b"{}"), "layers": layers })
}

/// What a registry has of the repository `plugin`.
pub(crate) struct Shelf {
    pub(crate) blobs: HashMap<String, Vec<u8>>,
    /// By digest and by tag, with the type.
    pub(crate) manifests: HashMap<String, (String, Vec<u8>)>,
    pub(crate) referrers: HashMap<String, Vec<Value>>,
    /// Whether it has the list of what refers to a manifest. Otherwise there is a tag.
    pub(crate) has_referrers: bool,
    /// After it was asked for once, the tag stands for another manifest.
    pub(crate) moves: Option<(String, String)>,
    /// The digest that it states of every manifest.
    pub(crate) stated: Option<String>,
}

impl Default for Shelf {
    fn default() -> Self {
        Self {
            blobs: HashMap::new(),
            manifests: HashMap::new(),
            referrers: HashMap::new(),
            has_referrers: true,
            moves: None,
            stated: None,
        }
    }
}

pub(crate) struct Serving {
    pub(crate) server: Server,
}

impl Serving {
    /// The source with a tag or digest, as `:tag`.
    pub(crate) fn source(&self, version: &str) -> String {
        format!("oci+http://127.0.0.1:{}/plugin{version}", self.server.port())
    }

    /// The paths that were asked for.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.server.asked().iter().map(|asked| asked.path().to_owned()).collect()
    }
}

impl Shelf {
    pub(crate) fn blob(&mut self, bytes: &[u8]) {
        self.blobs.insert(digest(bytes), bytes.to_vec());
    }

    pub(crate) fn manifest(&mut self, media_type: &str, manifest: &Value) -> String {
        let bytes = manifest.to_string().into_bytes();
        let digest = digest(&bytes);
        self.manifests.insert(digest.clone(), (media_type.to_owned(), bytes));
        digest
    }

    pub(crate) fn plugin(&mut self, wasm: &[u8]) -> String {
        self.blob(wasm);
        self.manifest(MANIFEST, &plugin(CONFIG, &[descriptor(LAYER, wasm)]))
    }

    pub(crate) fn tag(&mut self, tag: &str, digest: &str) {
        let manifest = self.manifests[digest].clone();
        self.manifests.insert(tag.to_owned(), manifest);
    }

    pub(crate) fn signature(&mut self, subject: &str, bytes: &[u8]) {
        self.referrer(subject, SIGNATURE, subject, bytes);
    }

    /// Lists something that refers to `subject`, or says so and refers to something else.
    pub(crate) fn referrer(&mut self, listed: &str, kind: &str, subject: &str, bytes: &[u8]) {
        self.blob(bytes);
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": kind, "config": descriptor(EMPTY, b"{}"),
            "layers": [descriptor(kind, bytes)],
            "subject": { "mediaType": MANIFEST, "digest": subject, "size": 1 },
        });
        let digest = self.manifest(MANIFEST, &manifest);
        let entry =
            json!({ "mediaType": MANIFEST, "digest": digest, "size": 1, "artifactType": kind });
        self.referrers.entry(listed.to_owned()).or_default().push(entry);
    }

    pub(crate) fn serve(mut self) -> Serving {
        let lists: Vec<(String, Value)> = self
            .referrers
            .drain()
            .map(|(subject, entries)| {
                (subject, json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": entries }))
            })
            .collect();
        let mut by_list = HashMap::new();
        for (subject, list) in lists {
            if self.has_referrers {
                by_list.insert(subject, list.to_string());
            } else {
                let list = (INDEX.to_owned(), list.to_string().into_bytes());
                self.manifests.insert(subject.replace(':', "-"), list);
            }
        }
        let shelf = Mutex::new(self);
        let server = Server::plain(move |asked, wire| {
            let mut shelf = shelf.lock().expect("nobody panicked");
            let path = asked.path().split('?').next().unwrap_or_default();
            let rest = path.strip_prefix("/v2/plugin/").unwrap_or_default();
            let (kind, name) = rest.split_once('/').unwrap_or_default();
            match kind {
                "manifests" if shelf.manifests.contains_key(name) => {
                    let (media_type, bytes) = shelf.manifests[name].clone();
                    if let Some((tag, digest)) = shelf.moves.take_if(|(tag, _)| tag == name) {
                        shelf.tag(&tag, &digest);
                    }
                    let stated = shelf.stated.clone().unwrap_or_else(|| digest(&bytes));
                    let headers =
                        [("content-type", &*media_type), ("docker-content-digest", &stated)];
                    answer(wire, "200 OK", &headers, &bytes)
                }
                "blobs" if shelf.blobs.contains_key(name) => {
                    answer(wire, "200 OK", &[], &shelf.blobs[name])
                }
                "referrers" if by_list.contains_key(name) => {
                    answer(wire, "200 OK", &[("content-type", INDEX)], by_list[name].as_bytes())
                }
                _ => answer(wire, "404 Not Found", &[], b"{}"),
            }
        });
        Serving { server }
    }
}
