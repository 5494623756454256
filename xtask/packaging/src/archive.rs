//! Archives whose bytes depend on their contents only.

use std::io::{self, Cursor, Write};

use flate2::{Compression, GzBuilder};
use jiff::tz::TimeZone;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use crate::{NAME, Release};

/// A file or a folder of an archive.
pub(crate) struct Entry<'c> {
    pub(crate) path: String,
    pub(crate) mode: u32,
    /// The content of a file, or `None` for a folder.
    pub(crate) content: Option<&'c [u8]>,
}

impl<'c> Entry<'c> {
    pub(crate) fn file(path: impl Into<String>, content: &'c [u8]) -> Self {
        Self { path: path.into(), mode: 0o644, content: Some(content) }
    }

    pub(crate) fn program(path: impl Into<String>, content: &'c [u8]) -> Self {
        Self { mode: 0o755, ..Self::file(path, content) }
    }

    pub(crate) fn folder(path: impl Into<String>, mode: u32) -> Self {
        Self { path: path.into(), mode, content: None }
    }
}

impl Release {
    /// The files of the parts in a package. The program looks for them in `lib/toolhold/parts`,
    /// beside the folder that it is in. `prefix` is the path of the folder that contains both.
    pub(crate) fn parts_in(&self, prefix: &str) -> impl Iterator<Item = Entry<'_>> {
        let file = move |name: &str| format!("{prefix}lib/{NAME}/parts/{name}.wasm");
        self.parts.iter().map(move |(name, wasm)| Entry::file(file(name), wasm))
    }
}

/// Makes a tar of these entries, in this order. All entries belong to root.
pub(crate) fn tar(release: &Release, entries: &[Entry<'_>]) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for Entry { path, mode, content } in entries {
        let mut header = tar::Header::new_ustar();
        header.set_mode(*mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(release.time);
        let content = content.unwrap_or_default();
        header.set_size(content.len() as u64);
        header.set_entry_type(if path.ends_with('/') {
            tar::EntryType::Directory
        } else {
            tar::EntryType::Regular
        });
        archive.append_data(&mut header, path, content)?;
    }
    archive.into_inner()
}

/// Compresses as gzip, without a name or a time.
pub(crate) fn gzip(release: &Release, bytes: &[u8]) -> io::Result<Vec<u8>> {
    // 3 stands for Unix. It is fixed, so that the bytes don't depend on this machine.
    let builder = GzBuilder::new().mtime(0).operating_system(3);
    let mut encoder = builder.write(Vec::new(), Compression::new(release.compression));
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// A zip with these files in this order.
pub(crate) fn zip(release: &Release, entries: &[Entry<'_>]) -> io::Result<Vec<u8>> {
    let time = zip_time(release)?;
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

/// Returns the time of a release in the format of zips, which has no times before 1980. An earlier
/// time becomes the start of 1980.
fn zip_time(release: &Release) -> io::Result<DateTime> {
    let time = TimeZone::UTC.to_datetime(release.timestamp()?);
    let Ok(year) = u16::try_from(time.year()) else { return Ok(DateTime::default()) };
    let [month, day, hour, minute, second] =
        [time.month(), time.day(), time.hour(), time.minute(), time.second()]
            .map(|part| u8::try_from(part).unwrap_or_default());
    Ok(DateTime::from_date_and_time(year, month, day, hour, minute, second).unwrap_or_default())
}
