//! The image of a container, as a layout of OCI in a tar: one layer that has the program and its
//! documents, and nothing else.

use std::io;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::archive::{Entry, gzip, tar};
use crate::{NAME, Package, Release, SUMMARY};

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// The image of a release.
pub(crate) fn image(release: &Release) -> io::Result<Package> {
    let version = &release.version;
    let machine = release.architecture;
    let layer = tar(release, &layer_entries(release))?;
    let packed = gzip(release, &layer)?;
    let created = release.timestamp()?.to_string();
    let mut labels = json!({
        "org.opencontainers.image.created": created,
        "org.opencontainers.image.description": SUMMARY,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "org.opencontainers.image.title": NAME,
        "org.opencontainers.image.version": version,
    });
    if let Some(repository) = &release.repository {
        labels["org.opencontainers.image.source"] = json!(repository.to_string());
    }
    let config = json!({
        "architecture": machine.of_images(),
        "os": "linux",
        "created": created,
        "config": {
            "Entrypoint": [format!("/usr/bin/{NAME}")],
            "Cmd": ["serve"],
            "Env": ["HOME=/root", "PATH=/usr/bin"],
            "WorkingDir": "/work",
            "Labels": labels,
        },
        "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
        "history": [{ "created": created, "created_by": "cargo xtask dist" }],
    })
    .to_string();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": described(CONFIG, config.as_bytes()),
        "layers": [described(LAYER, &packed)],
        "annotations": labels,
    })
    .to_string();
    let mut listed = described(MANIFEST, manifest.as_bytes());
    listed["annotations"] = json!({ "org.opencontainers.image.ref.name": version });
    listed["platform"] = json!({ "architecture": machine.of_images(), "os": "linux" });
    let index =
        json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [listed] }).to_string();
    let layout = json!({ "imageLayoutVersion": "1.0.0" }).to_string();

    let mut blobs = [config.as_bytes(), manifest.as_bytes(), &packed]
        .map(|blob| Entry::file(format!("blobs/{}", digest(blob).replace(':', "/")), blob));
    blobs.sort_by(|a, b| a.path.cmp(&b.path));
    let mut entries = vec![
        Entry::file("oci-layout", layout.as_bytes()),
        Entry::file("index.json", index.as_bytes()),
        Entry::folder("blobs/", 0o755),
        Entry::folder("blobs/sha256/", 0o755),
    ];
    entries.extend(blobs);
    Ok(Package {
        file_name: format!("{NAME}-{version}-{}-image.tar", machine.name()),
        bytes: tar(release, &entries)?,
    })
}

/// The entries of the layer: Toolhold's files, and the folders that it needs, because an image
/// without a system has none.
fn layer_entries(release: &Release) -> Vec<Entry<'_>> {
    let documents = format!("usr/share/doc/{NAME}");
    let mut entries = vec![
        Entry::folder("root/", 0o700),
        Entry::folder("tmp/", 0o1777),
        Entry::folder("usr/", 0o755),
        Entry::folder("usr/bin/", 0o755),
        Entry::program(format!("usr/bin/{NAME}"), &release.program),
        Entry::folder("usr/lib/", 0o755),
        Entry::folder(format!("usr/lib/{NAME}/"), 0o755),
        Entry::folder(format!("usr/lib/{NAME}/parts/"), 0o755),
    ];
    entries.extend(release.parts_in("usr/"));
    entries.extend([
        Entry::folder("usr/share/", 0o755),
        Entry::folder("usr/share/doc/", 0o755),
        Entry::folder(format!("{documents}/"), 0o755),
    ]);
    entries.extend(
        release
            .licences
            .iter()
            .map(|(name, text)| Entry::file(format!("{documents}/{name}"), text)),
    );
    entries.push(Entry::file(format!("{documents}/sbom.cdx.json"), &release.sbom));
    entries.push(Entry::folder("work/", 0o755));
    entries
}

fn described(media_type: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": digest(bytes), "size": bytes.len() })
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
