//! Finds `AGENTS.md` and `TOOLHOLD.md` in the working directory and the directories above it, and
//! remembers which files a person has seen.
//!
//! These files are as untrusted as the repository that they come from. A file applies after a
//! person has seen it. When the file changes, the person has to see it again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use sha2::{Digest, Sha256};
use toolhold_core::HostError;
use toolhold_core::config::Folders;
use toolhold_core::state;
use toolhold_core::text::neutral_owned;

/// The file names. The last name takes precedence.
const NAMES: [&str; 2] = ["AGENTS.md", "TOOLHOLD.md"];

/// The most bytes of one file.
const MAX_BYTES: u64 = 64 * 1024;

/// Directories that are looked at.
const MAX_DIRECTORIES: usize = 64;

/// The file of the digests that a person has seen.
const SEEN: &str = "instructions.json";

/// A file with instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstructionFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The content of the file.
    pub text: String,
    /// Whether a person has seen the current content.
    pub is_seen: bool,
    digest: String,
}

/// Finds the files that apply to a directory. Files of upper directories come first. Also returns a
/// message for each file that is left out. Blocks.
///
/// # Errors
///
/// Returns an error if the record of seen files can't be read.
pub fn find_instructions(
    directory: &Path,
    folders: &Folders,
) -> Result<(Vec<InstructionFile>, Vec<String>), HostError> {
    let mut files = Vec::new();
    let mut left_out = Vec::new();
    let directories: Vec<&Path> = directory.ancestors().take(MAX_DIRECTORIES).collect();
    // A directory above may be writable for everyone, such as /tmp.
    let owner = directory.metadata().map_or(0, |directory| directory.uid());
    let owners = [owner, rustix::process::geteuid().as_raw(), 0];
    let mut seen: Option<BTreeMap<String, String>> = None;
    for directory in directories.into_iter().rev() {
        for name in NAMES {
            let path = directory.join(name);
            let text = match read(&path, &owners) {
                Ok(None) => continue,
                Ok(Some(text)) => text,
                Err(error) => {
                    left_out.push(format!("{} is left out: {error}", path.display()));
                    continue;
                }
            };
            let digest = format!("{:x}", Sha256::digest(&text));
            if seen.is_none() {
                seen = Some(state::read(&folder(folders), SEEN)?);
            }
            let seen_digest = seen.as_ref().and_then(|seen| seen.get(&key(&path)));
            let is_seen = seen_digest == Some(&digest);
            files.push(InstructionFile { path, text: neutral_owned(text), is_seen, digest });
        }
    }
    Ok((files, left_out))
}

/// Remembers that a person has seen these files. Blocks.
///
/// # Errors
///
/// Returns an error if the record can't be written.
pub fn remember_instructions(
    files: &[InstructionFile],
    folders: &Folders,
) -> Result<(), HostError> {
    state::update(&folder(folders), SEEN, |seen: &mut BTreeMap<String, String>| {
        for file in files {
            seen.insert(key(&file.path), file.digest.clone());
        }
        Ok(())
    })
}

/// Writes the files as a part of the system text.
pub(crate) fn in_words(files: &[InstructionFile]) -> String {
    let texts = files.iter().map(|file| {
        let path = toolhold_core::text::neutral_line(&file.path.display().to_string());
        format!("\n\nInstructions of the project, from {path}:\n\n{}", file.text.trim_end())
    });
    texts.collect()
}

fn folder(folders: &Folders) -> PathBuf {
    folders.data.join("agent")
}

fn key(path: &Path) -> String {
    path.display().to_string()
}

/// The reason against reading a file with instructions.
#[derive(Debug, thiserror::Error)]
enum InstructionError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it is a link to a file outside of its directory")]
    LinkOutside,
    #[error("it is a link to a file that isn't Markdown")]
    NotMarkdown,
    #[error("it isn't a regular file")]
    NotAFile,
    #[error("it belongs to another user")]
    Owner,
    #[error("it is larger than {MAX_BYTES} bytes, the limit")]
    TooLarge,
}

/// Reads a file that belongs to one of `owners`. Returns `None` if there is no such file. The
/// target of a link must be in the link's own folder or below, and inside the repository.
fn read(path: &Path, owners: &[u32]) -> Result<Option<String>, InstructionError> {
    if path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Ok(None);
    }
    let target = path.canonicalize()?;
    let folder = match path.parent() {
        Some(parent) => parent.canonicalize()?,
        None => PathBuf::new(),
    };
    if !target.starts_with(folder) {
        return Err(InstructionError::LinkOutside);
    }
    // A rule may hide a file such as `.env` from tools. A link with another name must not read it.
    let extension = target.extension().unwrap_or_default();
    if !extension.eq_ignore_ascii_case("md") {
        return Err(InstructionError::NotMarkdown);
    }

    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(target)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(InstructionError::NotAFile);
    }
    if !owners.contains(&metadata.uid()) {
        return Err(InstructionError::Owner);
    }
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(InstructionError::TooLarge);
    }
    Ok(Some(text))
}
