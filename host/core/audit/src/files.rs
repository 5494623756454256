//! The files of the audit log: their names, their order, and the key of the hashes.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use rustix::rand::GetRandomFlags;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use toolhold_data_dir::PrivateFolder;

use super::chain::{self, Hash, Key, SealedRecord};
use super::lines::Lines;

/// The folder in Toolhold's data folder.
pub(super) const FOLDER: &str = "audit";

/// The current file.
pub(super) const CURRENT: &str = "audit.jsonl";

/// The file that states where the log ends. A process that appends locks this file.
pub(super) const HEAD: &str = "head";

/// The key of the hashes.
pub(super) const KEY: &str = "key";

/// Names in the folder that are read.
const MOST: usize = 1_000_000;

/// Returns the name of a finished file, by its number.
pub(super) fn name(number: u64) -> String {
    format!("audit.{number:06}.jsonl")
}

/// Returns a function for `map_err` that adds the path to an error.
pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Returns the numbers of the finished files, in order.
///
/// # Errors
///
/// The system's error.
pub(super) fn rotated(folder: &PrivateFolder) -> io::Result<Vec<u64>> {
    let mut numbers: Vec<u64> =
        folder.names(MOST)?.iter().filter_map(|found| number_of(found)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Returns the number in the name of a finished file, or `None` for another file.
fn number_of(file_name: &str) -> Option<u64> {
    let number = file_name.strip_prefix("audit.")?.strip_suffix(".jsonl")?.parse().ok()?;
    // A number in another form, as with a sign, isn't Toolhold's.
    if name(number) == file_name { Some(number) } else { None }
}

/// Checks whether the current file has content.
pub(super) fn has_current_records(folder: &PrivateFolder) -> bool {
    let Ok(file) = folder.file(CURRENT) else { return false };
    file.metadata().is_ok_and(|metadata| metadata.len() > 0)
}

/// Returns the key, or `None` if it doesn't exist yet.
///
/// # Errors
///
/// Returns the system's error, or an error if the key is damaged.
pub(super) fn key(folder: &PrivateFolder) -> io::Result<Option<Key>> {
    Ok(key_bytes(folder)?.map(|secret| Key::new(&secret)))
}

/// Returns the beginning of the key's hash, which identifies the key without revealing it, because
/// the key is random.
///
/// # Errors
///
/// Returns the system's error, or an error if there is no key.
pub(super) fn key_id(folder: &PrivateFolder) -> io::Result<String> {
    let secret = key_bytes(folder)?.ok_or(ErrorKind::NotFound)?;
    Ok(chain::to_hex(&Sha256::digest(secret).into())[..16].to_owned())
}

/// Reads the key, or returns `None` if it doesn't exist yet.
fn key_bytes(folder: &PrivateFolder) -> io::Result<Option<[u8; 32]>> {
    let mut file = match folder.file(KEY) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut secret = [0; 33];
    let mut length = 0;
    while length < secret.len() {
        match file.read(&mut secret[length..])? {
            0 => break,
            read => length += read,
        }
    }
    match secret.first_chunk::<32>() {
        Some(secret) if length == 32 => Ok(Some(*secret)),
        _ => Err(io::Error::new(
            ErrorKind::InvalidData,
            "`key` is damaged; restore it, or move the folder away to start a new log",
        )),
    }
}

/// Returns the key, and creates it if it doesn't exist and no entry was written with a key. Call
/// this function only under the lock.
///
/// # Errors
///
/// Returns the system's error, or an error if the key is lost.
pub(super) fn made_key(folder: &PrivateFolder) -> io::Result<Key> {
    if let Some(key) = key(folder)? {
        return Ok(key);
    }
    if !rotated(folder)?.is_empty() || has_current_records(folder) {
        return Err(io::Error::new(
            ErrorKind::NotFound,
            "`key` is missing; restore it, or move the folder away to start a new log",
        ));
    }
    let mut secret = [0; 32];
    let mut filled = 0;
    while filled < secret.len() {
        filled += rustix::rand::getrandom(&mut secret[filled..], GetRandomFlags::empty())?;
    }
    folder.put(KEY, &secret)?;
    Ok(Key::new(&secret))
}

/// The content of a file's first record.
pub(super) struct Begin {
    /// The time at which the entry was written.
    pub(super) ts: String,
    /// The file's number.
    pub(super) file: u64,
    /// The number of the oldest file at that time.
    pub(super) oldest: u64,
    /// The entry's own number, and the hash of the previous entry.
    pub(super) seq: u64,
    pub(super) previous: Hash,
}

/// Returns the first entry of a file, or `None` if the file has no entry.
///
/// # Errors
///
/// Returns the system's error.
pub(super) fn begin(file: &File) -> io::Result<Option<Begin>> {
    let size = file.metadata()?.len();
    let mut lines = Lines::new(file, 0, size);
    // A process may have been killed while it wrote the first entry.
    while let Some(line) = lines.next()? {
        if let Some(begin) = begin_of(line.bytes)
            && line.whole
        {
            return Ok(Some(begin));
        }
        if line.from > 256 * 1024 {
            break;
        }
    }
    Ok(None)
}

/// Parses the first entry of a file. Returns `None` for another entry.
pub(super) fn begin_of(line: &[u8]) -> Option<Begin> {
    #[derive(Deserialize)]
    struct Fields {
        ts: String,
        kind: String,
        file: u64,
        oldest: u64,
        previous: String,
    }
    let link = SealedRecord::parse(line)?.link;
    let Fields { ts, kind, file, oldest, previous } = serde_json::from_slice(line).ok()?;
    if kind != "begin" || link.seq == 0 {
        return None;
    }
    let previous = chain::from_hex(previous.as_bytes())?;
    Some(Begin { ts, file, oldest, seq: link.seq, previous })
}
