//! Binds an approval of a command to the content of the files that the command starts, such as
//! scripts.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FileType;
use sha2::{Digest, Sha256};
use toolhold_catalogue::CallContext;
use toolhold_contract::SubjectKind;
use toolhold_policy::commands::Command;
use toolhold_system::files::{FileView, Grants, OpenOptions};

use super::preview::MAX_COMPARED;

/// Maximum number of bytes that are read for one call. Beyond this limit, the time of the last
/// change represents the content.
const MAX_BYTES: usize = 16 << 20;

/// Computes a digest of the files that the commands of a call start. Returns `None` if no such file
/// can be read.
pub(crate) async fn digest(context: &CallContext) -> Option<[u8; 32]> {
    let job = digest_job(context)?;
    // Reading may wait for a disk or a network.
    tokio::task::spawn_blocking(job).await.unwrap_or(None)
}

pub(crate) fn digest_blocking(context: &CallContext) -> Option<[u8; 32]> {
    let job = digest_job(context)?;
    job()
}

/// Returns a function that hashes the files that the commands start. The function borrows nothing
/// from the call. Returns `None` if the commands start no files.
fn digest_job(context: &CallContext) -> Option<impl FnOnce() -> Option<[u8; 32]> + Send + 'static> {
    let policy = context.tool.as_deref()?.plugin.as_ref()?.policy();
    let grants = Arc::clone(&policy.capabilities.process.as_ref()?.places.grants);
    // An earlier command of the session may have changed the directory.
    let directory = match &context.carried.directory {
        Some(directory) => PathBuf::from(directory),
        None => policy.working_directory.clone()?,
    };

    let mut files = Vec::new();
    for command in context.subjects.iter().filter(|subject| subject.kind == SubjectKind::Command) {
        for file in Command::read(&command.text).started_files() {
            files.push(directory.join(file));
        }
    }
    if files.is_empty() {
        return None;
    }
    Some(move || hash_files(&grants, &files))
}

/// Hashes the paths, sizes and contents of the files. Returns `None` if no file can be read.
fn hash_files(grants: &Arc<Grants>, files: &[PathBuf]) -> Option<[u8; 32]> {
    let mut hash = Sha256::new();
    let mut has_files = false;
    let mut remaining_bytes = MAX_BYTES;
    for file in files {
        let most = remaining_bytes.min(MAX_COMPARED);
        let Some((size, bytes)) = read(grants, file, most) else { continue };
        has_files = true;
        remaining_bytes = remaining_bytes.saturating_sub(bytes.len());
        let path = file.as_os_str().as_encoded_bytes();
        // Without the length, another path with another size could have the same bytes.
        hash.update((path.len() as u64).to_le_bytes());
        hash.update(path);
        hash.update(size.to_le_bytes());
        hash.update(Sha256::digest(bytes));
    }
    if !has_files {
        return None;
    }
    Some(hash.finalize().into())
}

/// Reads the size and the content of a granted file. If the file has more than `most` bytes,
/// returns the first `most` bytes and the time of the last metadata change.
fn read(grants: &Arc<Grants>, path: &Path, most: usize) -> Option<(u64, Vec<u8>)> {
    let options = OpenOptions { read: true, ..OpenOptions::default() };
    let read_only = true;
    let opened = FileView::new(Arc::clone(grants), read_only).open(path, options).ok()?;
    if opened.kind != FileType::RegularFile {
        return None;
    }
    let file = File::from(opened.handle);
    let metadata = file.metadata().ok()?;
    let mut bytes = Vec::new();
    file.take(most as u64).read_to_end(&mut bytes).ok()?;
    let size = metadata.len();
    if size > bytes.len() as u64 {
        // Each change of the file also changes this time, and programs can't set this time.
        bytes.extend(metadata.ctime().to_le_bytes());
        bytes.extend(metadata.ctime_nsec().to_le_bytes());
    }
    Some((size, bytes))
}
