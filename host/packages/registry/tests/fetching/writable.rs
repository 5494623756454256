//! A small registry that takes uploads. The tests of the program use it too.

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::server::{Asked, Server, answer};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// A status, headers and a body.
type Reply = (&'static str, Vec<(&'static str, String)>, Vec<u8>);

/// A registry that takes uploads for the repository `plugin`, and nothing that is incomplete.
#[derive(Default)]
pub(crate) struct Registry {
    /// Whether it lists referrers by itself.
    pub(crate) has_referrers: bool,
    pub(crate) blobs: HashMap<String, Vec<u8>>,
    /// By digest and by tag, with the type.
    pub(crate) manifests: HashMap<String, (String, Vec<u8>)>,
}

impl Registry {
    pub(crate) fn serve(self) -> Server {
        let registry = Mutex::new(self);
        Server::plain(move |asked, wire| {
            let mut registry = registry.lock().expect("nobody panicked");
            let (status, headers, body) = registry.answer(asked);
            let headers: Vec<(&str, &str)> =
                headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            answer(wire, status, &headers, &body)
        })
    }

    fn answer(&mut self, asked: &Asked) -> Reply {
        let method = asked.head.split(' ').next().unwrap_or_default();
        let (path, query) = asked.path().split_once('?').unwrap_or((asked.path(), ""));
        let rest = path.strip_prefix("/v2/plugin/").unwrap_or_default();
        let (kind, name) = rest.split_once('/').unwrap_or_default();
        match (method, kind) {
            ("POST", "blobs") => {
                let place = "/v2/plugin/blobs/uploads/1?state=a%2Fb".to_owned();
                ("202 Accepted", vec![("location", place)], Vec::new())
            }
            ("PUT", "blobs") if query == format!("state=a%2Fb&digest={}", urlencoded(asked)) => {
                self.blobs.insert(digest(&asked.body), asked.body.clone());
                ("201 Created", Vec::new(), Vec::new())
            }
            ("PUT", "manifests") => self.take_manifest(name, asked),
            ("GET", "manifests") if self.manifests.contains_key(name) => {
                let (media_type, bytes) = self.manifests[name].clone();
                ("200 OK", vec![("content-type", media_type)], bytes)
            }
            ("GET", "blobs") if self.blobs.contains_key(name) => {
                ("200 OK", Vec::new(), self.blobs[name].clone())
            }
            ("GET", "referrers") if self.has_referrers => {
                ("200 OK", vec![("content-type", INDEX.to_owned())], self.referrers(name))
            }
            _ => ("404 Not Found", Vec::new(), b"{}".to_vec()),
        }
    }

    fn take_manifest(&mut self, name: &str, asked: &Asked) -> Reply {
        let manifest: Value = serde_json::from_slice(&asked.body).expect("a manifest is JSON");
        let layers = manifest["layers"].as_array().cloned().unwrap_or_default();
        let blobs = layers.iter().chain(manifest.get("config"));
        for blob in blobs {
            let digest = blob["digest"].as_str().expect("it has a digest");
            if !self.blobs.contains_key(digest) {
                return ("400 Bad Request", Vec::new(), b"a blob is missing".to_vec());
            }
        }
        let media_type = asked.header("content-type").unwrap_or_default().to_owned();
        let entry = (media_type, asked.body.clone());
        self.manifests.insert(digest(&asked.body), entry.clone());
        self.manifests.insert(name.to_owned(), entry);
        let subject = manifest["subject"]["digest"].as_str().unwrap_or_default();
        if self.has_referrers && !subject.is_empty() {
            return ("201 Created", vec![("oci-subject", subject.to_owned())], Vec::new());
        }
        ("201 Created", Vec::new(), Vec::new())
    }

    fn referrers(&self, subject: &str) -> Vec<u8> {
        let mut entries: Vec<Value> = Vec::new();
        for (name, (media_type, bytes)) in &self.manifests {
            let manifest: Value = serde_json::from_slice(bytes).expect("a manifest is JSON");
            if name.starts_with("sha256:") && manifest["subject"]["digest"] == subject {
                entries.push(json!({
                    "mediaType": media_type, "digest": name, "size": bytes.len(),
                    "artifactType": manifest["artifactType"],
                }));
            }
        }
        json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": entries })
            .to_string()
            .into_bytes()
    }
}

/// The digest of what was sent, as in a query.
fn urlencoded(asked: &Asked) -> String {
    digest(&asked.body).replace(':', "%3A")
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
