//! The files of the audit log: their names, their order, and the key for the hashes.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use rustix::rand::GetRandomFlags;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use toolhold_data_dir::PrivateFolder;

use super::chain::{self, Hash, Key, SealedRecord};
use super::lines::Lines;

pub(super) const FOLDER: &str = "audit";

pub(super) const CURRENT: &str = "audit.jsonl";

/// The file that states where the log ends. Writers lock this file.
pub(super) const HEAD: &str = "head";

pub(super) const KEY: &str = "key";

const KEY_BYTES: usize = 32;

/// Maximum offset of the first entry of a file. Incomplete entries may be before it.
const MAX_BEGIN_OFFSET: u64 = 256 * 1024;

/// Maximum number of names in the folder that are read.
const MAX_NAMES: usize = 1_000_000;

pub(super) fn name(number: u64) -> String {
    format!("audit.{number:06}.jsonl")
}

pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

pub(super) fn rotated(folder: &PrivateFolder) -> io::Result<Vec<u64>> {
    let mut numbers: Vec<u64> =
        folder.names(MAX_NAMES)?.iter().filter_map(|found| number_of(found)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn number_of(file_name: &str) -> Option<u64> {
    let number = file_name.strip_prefix("audit.")?.strip_suffix(".jsonl")?.parse().ok()?;
    // Toolhold writes the number in only one form: `+1` or `01` belong to other files.
    if name(number) == file_name { Some(number) } else { None }
}

pub(super) fn has_current_records(folder: &PrivateFolder) -> bool {
    let Ok(file) = folder.file(CURRENT) else { return false };
    file.metadata().is_ok_and(|metadata| metadata.len() > 0)
}

/// Returns the key, or `None` if it doesn't exist yet.
pub(super) fn key(folder: &PrivateFolder) -> io::Result<Option<Key>> {
    Ok(key_bytes(folder)?.map(|secret| Key::new(&secret)))
}

/// Returns the beginning of the key's hash, which identifies the key without revealing it.
pub(super) fn key_id(folder: &PrivateFolder) -> io::Result<String> {
    let secret = key_bytes(folder)?.ok_or(ErrorKind::NotFound)?;
    Ok(chain::to_hex(&Sha256::digest(secret).into())[..16].to_owned())
}

fn key_bytes(folder: &PrivateFolder) -> io::Result<Option<[u8; KEY_BYTES]>> {
    let mut file = match folder.file(KEY) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // The additional byte reveals a file that is too long.
    let mut secret = [0; KEY_BYTES + 1];
    let mut length = 0;
    while length < secret.len() {
        match file.read(&mut secret[length..])? {
            0 => break,
            read => length += read,
        }
    }
    match secret.first_chunk::<KEY_BYTES>() {
        Some(secret) if length == KEY_BYTES => Ok(Some(*secret)),
        _ => Err(io::Error::new(
            ErrorKind::InvalidData,
            "`key` is damaged; restore it, or move the folder away to start a new log",
        )),
    }
}

/// Returns the key. Creates the key if the key and all entries are missing. The caller must hold
/// the lock.
pub(super) fn ensure_key(folder: &PrivateFolder) -> io::Result<Key> {
    if let Some(key) = key(folder)? {
        return Ok(key);
    }
    if !rotated(folder)?.is_empty() || has_current_records(folder) {
        return Err(io::Error::new(
            ErrorKind::NotFound,
            "`key` is missing; restore it, or move the folder away to start a new log",
        ));
    }
    let mut secret = [0; KEY_BYTES];
    let mut filled = 0;
    while filled < secret.len() {
        filled += rustix::rand::getrandom(&mut secret[filled..], GetRandomFlags::empty())?;
    }
    folder.put(KEY, &secret)?;
    Ok(Key::new(&secret))
}

/// The first entry of a file.
pub(super) struct Begin {
    pub(super) ts: String,
    pub(super) file: u64,
    /// The number of the oldest file when the entry was written.
    pub(super) oldest: u64,
    /// The entry's own number, and the hash of the previous entry.
    pub(super) seq: u64,
    pub(super) previous: Hash,
}

/// Returns the first entry of a file, or `None` if the file has no entry.
pub(super) fn begin(file: &File) -> io::Result<Option<Begin>> {
    let size = file.metadata()?.len();
    let mut lines = Lines::new(file, 0, size);
    // If a process was killed while it wrote the first entry, a later writer has repeated the entry
    // in one of the next lines.
    while let Some(line) = lines.next()? {
        if let Some(begin) = begin_of(line.bytes)
            && line.whole
        {
            return Ok(Some(begin));
        }
        if line.from > MAX_BEGIN_OFFSET {
            break;
        }
    }
    Ok(None)
}

/// Returns the content of a `begin` entry. Returns `None` for any other line.
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
