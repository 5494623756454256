//! Finds `AGENTS.md` and `TOOLHOLD.md` in the working directory and the directories above it, and
//! remembers which files a person has seen.
//!
//! The files are as untrusted as their repository, so a file applies only after a person has seen
//! its current content.

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

/// The last name takes precedence.
const FILE_NAMES: [&str; 2] = ["AGENTS.md", "TOOLHOLD.md"];

/// Larger files are left out.
const MAX_BYTES: u64 = 64 * 1024;

/// The user ID of root.
const ROOT_USER: u32 = 0;

/// The number of searched directories, from the working directory upwards.
const MAX_DIRECTORIES: usize = 64;

/// Contains the digests of the files that a person has seen.
const SEEN_FILE: &str = "instructions.json";

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

/// Finds the files for a directory. Files of upper directories come first. Also returns a message
/// for each file that is left out. Blocks.
///
/// # Errors
///
/// Fails if the list of seen files can't be read.
pub fn find_instructions(
    directory: &Path,
    folders: &Folders,
) -> Result<(Vec<InstructionFile>, Vec<String>), HostError> {
    let mut files = Vec::new();
    let mut left_out = Vec::new();
    let directories: Vec<&Path> = directory.ancestors().take(MAX_DIRECTORIES).collect();
    // Only read files of these users, because another user may create `AGENTS.md` in a directory
    // such as `/tmp`. If the owner of the working directory is unknown, take root, who is trusted
    // anyway.
    let directory_owner = directory.metadata().map_or(ROOT_USER, |metadata| metadata.uid());
    let trusted_owners = [directory_owner, rustix::process::geteuid().as_raw(), ROOT_USER];
    // The digests of the seen files, read when the first file is found.
    let mut seen: Option<BTreeMap<String, String>> = None;
    for directory in directories.into_iter().rev() {
        for name in FILE_NAMES {
            let path = directory.join(name);
            let text = match read(&path, &trusted_owners) {
                Ok(None) => continue,
                Ok(Some(text)) => text,
                Err(error) => {
                    left_out.push(format!("{} is left out: {error}", path.display()));
                    continue;
                }
            };
            let digest = format!("{:x}", Sha256::digest(&text));
            if seen.is_none() {
                seen = Some(state::read(&folder(folders), SEEN_FILE)?);
            }
            let seen_digest = seen.as_ref().and_then(|seen| seen.get(&key(&path)));
            let is_seen = seen_digest == Some(&digest);
            files.push(InstructionFile { path, text: neutral_owned(text), is_seen, digest });
        }
    }
    Ok((files, left_out))
}

/// Records that a person has seen the current content of these files. Blocks.
///
/// # Errors
///
/// Fails if the list of seen files can't be written.
pub fn remember_instructions(
    files: &[InstructionFile],
    folders: &Folders,
) -> Result<(), HostError> {
    state::update(&folder(folders), SEEN_FILE, |seen: &mut BTreeMap<String, String>| {
        for file in files {
            seen.insert(key(&file.path), file.digest.clone());
        }
        Ok(())
    })
}

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

#[derive(Debug, thiserror::Error)]
enum InstructionError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the file is a link to a file outside its directory")]
    LinkOutside,
    #[error("the file is a link to a file that isn't Markdown")]
    NotMarkdown,
    #[error("this isn't a regular file")]
    NotAFile,
    #[error("the file belongs to another user")]
    Owner,
    #[error("the file is larger than {MAX_BYTES} bytes, the limit")]
    TooLarge,
}

/// Reads a file with instructions. Returns `None` if the file doesn't exist. Fails if the file
/// doesn't belong to one of `owners`, isn't a regular Markdown file or is too large. A link must
/// lead to a file in or below the link's folder.
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
    // The target has to be Markdown as well. Otherwise, a link with the name `AGENTS.md` could
    // reveal a file such as `.env`, which a rule may hide from tools.
    let extension = target.extension().unwrap_or_default();
    if !extension.eq_ignore_ascii_case("md") {
        return Err(InstructionError::NotMarkdown);
    }
    read_target(&target, owners).map(Some)
}

/// Reads a file that isn't a link, with the checks of [`read`].
fn read_target(target: &Path, owners: &[u32]) -> Result<String, InstructionError> {
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
    // Read one byte more than the limit, to see whether the file is too large.
    file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(InstructionError::TooLarge);
    }
    Ok(text)
}
