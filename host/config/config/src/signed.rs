//! Reads the organisation's ceiling. Checks its owner, and its signature if the organisation has
//! signing keys.

use std::path::Path;
use std::str::FromStr;

use toolhold_signing::{PublicKey, verify_ceiling};

use super::file::{self, Text};
use super::inputs::ceiling_keys_path;
use super::{Inputs, Problem, Source};

/// Most keys in a file of keys. A file with more keys is refused. Usually, the file has the current
/// key and its successor.
const MAX_KEYS: usize = 16;

/// Reads the organisation's ceiling. Returns the text, and the name of the key that signed the
/// ceiling. Returns `None` if the ceiling is missing.
///
/// If there is a file of keys next to the ceiling, the ceiling must exist and be signed by one of
/// these keys. Otherwise, removing the ceiling would remove its limits.
///
/// # Errors
///
/// Returns a problem with the remedy if the ceiling can't be trusted.
pub(super) fn read(path: &Path) -> Result<Option<(Text, Option<String>)>, Problem> {
    let keys_path = ceiling_keys_path(path);
    let Some(keys) = file::read_organisation_file(&keys_path, file::MAX_BYTES)? else {
        return Ok(file::read_organisation_file(path, file::MAX_BYTES)?.map(|text| (text, None)));
    };
    let keys = parse_keys(&keys.text)
        .map_err(|error| Problem::new(Source::Path(keys_path.clone()), error.to_string()))?;
    let Some(Text { text, identity }) = file::read_organisation_file(path, file::MAX_BYTES)? else {
        return Err(unsigned(path, "the ceiling is missing"));
    };
    // Only the signed text is used.
    let (signer, text) =
        verify_ceiling(&text, &keys).map_err(|error| unsigned(path, &error.to_string()))?;
    Ok(Some((Text { text, identity }, Some(signer.to_string()))))
}

/// Makes the problem of a ceiling without a valid signature.
fn unsigned(path: &Path, why: &str) -> Problem {
    let message = format!(
        "{why}. {} exists, so the ceiling must be signed by a key in that file. Ask the \
         administrator of this machine, who signs the ceiling with `toolhold config ceiling sign \
         FILE` and moves FILE to {}",
        ceiling_keys_path(path).display(),
        path.display()
    );
    Problem::new(Source::Path(path.to_owned()), message)
}

#[derive(Debug, PartialEq, thiserror::Error)]
enum KeysError {
    #[error("{0}")]
    Key(<PublicKey as FromStr>::Err),
    #[error("the file has no key; put the public key into the file, or remove the file")]
    Empty,
    #[error("the file has {0} keys; the limit is {MAX_KEYS}")]
    Count(usize),
}

/// Parses a file with keys in minisign's format. Each line that isn't a comment is a key.
fn parse_keys(text: &str) -> Result<Vec<PublicKey>, KeysError> {
    let mut keys: Vec<PublicKey> = Vec::new();
    for line in text.lines().map(str::trim) {
        if !line.is_empty() && !line.starts_with("untrusted comment:") {
            keys.push(line.parse().map_err(KeysError::Key)?);
        }
    }
    match keys.len() {
        0 => Err(KeysError::Empty),
        1..=MAX_KEYS => Ok(keys),
        count => Err(KeysError::Count(count)),
    }
}

/// The state of the ceiling files, for detecting changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CeilingFiles(Vec<Option<FileState>>);

/// The owner, the mode, and the start of the contents.
type FileState = (u32, u32, Vec<u8>);

impl CeilingFiles {
    /// Reads the files of all ceilings. Blocks.
    pub fn read(inputs: &Inputs) -> Self {
        Self(inputs.ceiling_files().iter().map(|path| file::state(path)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "RWTkp7wu9DV4mg7a2pNdpvNEOj9dYkZsMqrBuZ1Er/rkykxixdMMkWLG";

    #[test]
    fn file_of_keys_has_one_to_sixteen_keys_and_nothing_else() {
        let file = format!("untrusted comment: minisign public key\n{KEY}\n");
        assert_eq!(parse_keys(&file).map(|keys| keys.len()), Ok(1));
        assert_eq!(parse_keys(&file.repeat(16)).map(|keys| keys.len()), Ok(16));
        for wrong in [String::new(), "untrusted comment: x\n".to_owned(), file.repeat(17)] {
            parse_keys(&wrong).expect_err(&wrong);
        }
        parse_keys(&format!("{file}# a comment\n")).expect_err("it isn't a key");
    }
}
