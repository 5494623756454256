//! Reads and writes paths in JSON files. JSON is UTF-8, but file names may be other bytes.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

use super::hex::{bytes, hex};

/// Precedes the hexadecimal bytes of a path that isn't UTF-8. No path contains this character.
const ENCODED: char = '\0';

fn text(path: &Path) -> String {
    match path.to_str() {
        Some(text) => text.to_owned(),
        None => format!("{ENCODED}{}", hex(path.as_os_str().as_bytes())),
    }
}

fn path(text: String) -> Option<PathBuf> {
    let Some(digits) = text.strip_prefix(ENCODED) else { return Some(text.into()) };
    bytes(digits).map(|bytes| OsString::from_vec(bytes).into())
}

pub(crate) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&text(path))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    path(String::deserialize(from)?).ok_or_else(|| D::Error::custom("this isn't a saved path"))
}

pub(crate) mod map {
    use std::collections::BTreeMap;

    use serde::Serialize;

    use super::{Deserialize, Deserializer, Error, PathBuf, Serializer, path, text};

    pub(crate) fn serialize<S: Serializer, V: Serialize>(
        map: &BTreeMap<PathBuf, V>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_map(map.iter().map(|(path, value)| (text(path), value)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
        from: D,
    ) -> Result<BTreeMap<PathBuf, V>, D::Error> {
        let saved = BTreeMap::<String, V>::deserialize(from)?;
        let entries = saved.into_iter().map(|(text, value)| path(text).map(|path| (path, value)));
        entries.collect::<Option<_>>().ok_or_else(|| D::Error::custom("this isn't a saved path"))
    }
}
