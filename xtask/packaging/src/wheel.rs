//! The Python wheel. It has no Python: installing it puts the program beside the interpreter, as
//! the specification of wheels has it for scripts.

use std::io::{self, Cursor, Write};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::tz::TimeZone;
use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use crate::archive::Entry;
use crate::{NAME, Package, Release};

/// The wheel of a release.
pub(crate) fn wheel(release: &Release) -> io::Result<Package> {
    let version = &release.version;
    // A static program runs with every C library, so also where only musl's is.
    let machine = release.architecture.name();
    let platforms = ["manylinux_2_17", "manylinux2014", "musllinux_1_1"];
    let tags = platforms.map(|platform| format!("{platform}_{machine}"));

    let metadata = metadata(release);
    let mut about =
        String::from("Wheel-Version: 1.0\nGenerator: toolhold-packaging\nRoot-Is-Purelib: false\n");
    tags.iter().for_each(|tag| about += &format!("Tag: py3-none-{tag}\n"));

    let info = format!("{NAME}-{version}.dist-info");
    let mut entries = vec![
        Entry::program(format!("{NAME}-{version}.data/scripts/{NAME}"), &release.program),
        Entry::file(format!("{info}/METADATA"), metadata.as_bytes()),
        Entry::file(format!("{info}/WHEEL"), about.as_bytes()),
        Entry::file(format!("{info}/sboms/{NAME}.cdx.json"), &release.sbom),
    ];
    // What is in `data` is put below the prefix of the interpreter.
    entries.extend(release.parts_in(&format!("{NAME}-{version}.data/data/")));
    let licences = release.licences.iter();
    entries
        .extend(licences.map(|(name, text)| Entry::file(format!("{info}/licenses/{name}"), text)));
    let mut record = String::new();
    for Entry { path, content, .. } in &entries {
        let content = content.unwrap_or_default();
        let digest = URL_SAFE_NO_PAD.encode(Sha256::digest(content));
        record += &format!("{path},sha256={digest},{}\n", content.len());
    }
    record += &format!("{info}/RECORD,,\n");
    // The last one, as wheels have it.
    entries.push(Entry::file(format!("{info}/RECORD"), record.as_bytes()));
    Ok(Package {
        file_name: format!("{NAME}-{version}-py3-none-{}.whl", tags.join(".")),
        bytes: zip(release, &entries)?,
    })
}

fn metadata(release: &Release) -> String {
    let mut metadata = format!(
        "Metadata-Version: 2.4\nName: {NAME}\nVersion: {}\n\
         Summary: Runs the tools of AI agents, each call in a WebAssembly sandbox of its own\n\
         License-Expression: MIT OR Apache-2.0\n",
        release.version
    );
    for (name, _) in &release.licences {
        metadata += &format!("License-File: {name}\n");
    }
    metadata += "Requires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n";
    metadata + &String::from_utf8_lossy(&release.readme)
}

fn zip(release: &Release, entries: &[Entry<'_>]) -> io::Result<Vec<u8>> {
    let time = TimeZone::UTC.to_datetime(release.timestamp()?);
    // The format begins with 1980.
    let part = |part: i8| u8::try_from(part).unwrap_or_default();
    let time = u16::try_from(time.year())
        .ok()
        .and_then(|year| {
            let (month, day) = (part(time.month()), part(time.day()));
            let (hour, minute, second) =
                (part(time.hour()), part(time.minute()), part(time.second()));
            DateTime::from_date_and_time(year, month, day, hour, minute, second).ok()
        })
        .unwrap_or_default();
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for Entry { path, mode, content } in entries {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .compression_level(Some(i64::from(release.compression)))
            .last_modified_time(time)
            .unix_permissions(*mode);
        archive.start_file(path.as_str(), options)?;
        archive.write_all(content.unwrap_or_default())?;
    }
    Ok(archive.finish()?.into_inner())
}
