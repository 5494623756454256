//! Python wheels: one of the program, and one of the SDK for plugins.
//!
//! The wheel of the program has no Python: installing it puts the program beside the interpreter,
//! as the specification of wheels has it for scripts.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::archive::{Entry, zip};
use crate::{NAME, Package, Release, SUMMARY};

/// The wheel of the program.
pub(crate) fn wheel(release: &Release) -> io::Result<Package> {
    let version = &release.version;
    // A static program runs with every C library, so also where only musl's is.
    let machine = release.architecture.name();
    let platforms = ["manylinux_2_17", "manylinux2014", "musllinux_1_1"];
    let tags = platforms.map(|platform| format!("{platform}_{machine}"));

    let mut description = String::from_utf8_lossy(&release.readme).into_owned();
    if let Some(repository) = &release.repository {
        // By this line, the registry of MCP checks that the wheel belongs to the same project.
        description += &format!("\n<!-- mcp-name: {} -->\n", repository.mcp_name());
    }
    let wheel = Wheel {
        name: NAME,
        summary: SUMMARY,
        requires_python: ">=3.8",
        tags: tags.iter().map(|tag| format!("py3-none-{tag}")).collect(),
        is_pure: false,
        licences: &release.licences,
        description,
    };
    // Installing the wheel puts the files in `data` below the prefix of the interpreter.
    let data = format!("{NAME}-{version}.data");
    let mut entries = vec![
        Entry::program(format!("{data}/scripts/{NAME}"), &release.program),
        Entry::file(format!("{NAME}-{version}.dist-info/sboms/{NAME}.cdx.json"), &release.sbom),
    ];
    entries.extend(release.parts_in(&format!("{data}/data/")));
    let file_name = format!("{NAME}-{version}-py3-none-{}.whl", tags.join("."));
    pack(release, &wheel, entries, file_name)
}

/// The wheel of the SDK for plugins in Python.
pub(crate) fn sdk(release: &Release) -> io::Result<Package> {
    let wheel = Wheel {
        name: "toolhold_sdk",
        summary: "What a Toolhold plugin in Python needs",
        requires_python: ">=3.11",
        tags: vec!["py3-none-any".to_owned()],
        is_pure: true,
        licences: release.own_licences(),
        description: "# toolhold-sdk\n\nThe package `toolhold`, which plugins of Toolhold in Python \
                      import. `toolhold plugin new NAME --lang python` makes a plugin that has it.\n"
            .to_owned(),
    };
    let entries = release.sdk_python.iter().map(|(path, content)| Entry::file(path, content));
    let file_name = format!("{}-{}-py3-none-any.whl", wheel.name, release.version);
    pack(release, &wheel, entries.collect(), file_name)
}

/// The metadata of a wheel.
struct Wheel<'r> {
    name: &'static str,
    summary: &'static str,
    requires_python: &'static str,
    tags: Vec<String>,
    /// Whether its files are Python for every machine.
    is_pure: bool,
    licences: &'r [(String, Vec<u8>)],
    description: String,
}

/// Adds the metadata to the files of a wheel, and packs them.
fn pack(
    release: &Release,
    wheel: &Wheel<'_>,
    files: Vec<Entry<'_>>,
    file_name: String,
) -> io::Result<Package> {
    let info = format!("{}-{}.dist-info", wheel.name, release.version);
    let metadata = metadata(release, wheel);
    let is_pure = if wheel.is_pure { "true" } else { "false" };
    let mut about =
        format!("Wheel-Version: 1.0\nGenerator: toolhold-packaging\nRoot-Is-Purelib: {is_pure}\n");
    wheel.tags.iter().for_each(|tag| about += &format!("Tag: {tag}\n"));
    let mut entries = files;
    entries.extend([
        Entry::file(format!("{info}/METADATA"), metadata.as_bytes()),
        Entry::file(format!("{info}/WHEEL"), about.as_bytes()),
    ]);
    let licences = wheel.licences.iter();
    entries
        .extend(licences.map(|(name, text)| Entry::file(format!("{info}/licenses/{name}"), text)));
    let mut record = String::new();
    for Entry { path, content, .. } in &entries {
        let content = content.unwrap_or_default();
        let digest = URL_SAFE_NO_PAD.encode(Sha256::digest(content));
        record += &format!("{path},sha256={digest},{}\n", content.len());
    }
    record += &format!("{info}/RECORD,,\n");
    // `RECORD` is the last file, as is usual in wheels.
    entries.push(Entry::file(format!("{info}/RECORD"), record.as_bytes()));
    Ok(Package { file_name, bytes: zip(release, &entries)? })
}

fn metadata(release: &Release, wheel: &Wheel<'_>) -> String {
    let mut metadata = format!(
        "Metadata-Version: 2.4\nName: {}\nVersion: {}\nSummary: {}\n\
         License-Expression: MIT OR Apache-2.0\n",
        wheel.name, release.version, wheel.summary
    );
    if let Some(repository) = &release.repository {
        metadata += &format!("Project-URL: Source, {repository}\n");
    }
    for (name, _) in wheel.licences {
        metadata += &format!("License-File: {name}\n");
    }
    metadata += &format!("Requires-Python: {}\n", wheel.requires_python);
    metadata += "Description-Content-Type: text/markdown\n\n";
    metadata + &wheel.description
}
