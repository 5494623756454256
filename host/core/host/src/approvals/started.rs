//! Binds an approval of a command to the content of the project files that the command starts.

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

/// Maximum number of bytes that are read from the files of one call. For other files, only the time
/// of the last change is read.
const MAX_BYTES: usize = 16 << 20;

/// Computes a digest of the files that the commands of a call start. Returns `None` if the call may
/// change none of these files.
pub(crate) async fn digest(context: &CallContext) -> Option<[u8; 32]> {
    let job = digest_job(context)?;
    // Reading may wait for a disk or a network.
    tokio::task::spawn_blocking(job).await.unwrap_or(None)
}

/// Computes the digest like [`digest`], and blocks.
pub(crate) fn digest_blocking(context: &CallContext) -> Option<[u8; 32]> {
    let job = digest_job(context)?;
    job()
}

/// Returns a function that computes the digest without borrowing the call. Returns `None` if the
/// commands of the call start no files.
fn digest_job(context: &CallContext) -> Option<impl FnOnce() -> Option<[u8; 32]> + Send + 'static> {
    let policy = context.tool.as_deref()?.plugin.as_ref()?.policy();
    let grants = Arc::clone(&policy.capabilities.process.as_ref()?.places.grants);
    let carried = context.carried.directory.as_ref().map(PathBuf::from);
    let directory = carried.or_else(|| policy.working_directory.clone())?;
    let commands = context.subjects.iter().filter(|subject| subject.kind == SubjectKind::Command);
    let files: Vec<PathBuf> = commands
        .flat_map(|command| Command::read(&command.text).started_files())
        .map(|file| directory.join(file))
        .collect();
    if files.is_empty() {
        return None;
    }
    Some(move || hash_files(&grants, &files))
}

/// Computes the digest of files. Returns `None` if no file can be read.
fn hash_files(grants: &Arc<Grants>, files: &[PathBuf]) -> Option<[u8; 32]> {
    let mut hash = Sha256::new();
    let mut has_files = false;
    let mut left = MAX_BYTES;
    for file in files {
        let Some((size, bytes)) = read(grants, file, left.min(MAX_COMPARED)) else { continue };
        has_files = true;
        left = left.saturating_sub(bytes.len());
        hash.update((file.as_os_str().len() as u64).to_le_bytes());
        hash.update(file.as_os_str().as_encoded_bytes());
        hash.update(size.to_le_bytes());
        hash.update(Sha256::digest(bytes));
    }
    if !has_files {
        return None;
    }
    Some(hash.finalize().into())
}

/// Reads the size and the content of a granted file. If the file has more than `most` bytes, the
/// returned content is its beginning and the time of its last change.
fn read(grants: &Arc<Grants>, path: &Path, most: usize) -> Option<(u64, Vec<u8>)> {
    let options = OpenOptions { read: true, ..OpenOptions::default() };
    let opened = FileView::new(Arc::clone(grants), true).open(path, options).ok()?;
    if opened.kind != FileType::RegularFile {
        return None;
    }
    let file = File::from(opened.handle);
    let metadata = file.metadata().ok()?;
    let mut bytes = Vec::new();
    file.take(most as u64).read_to_end(&mut bytes).ok()?;
    // No program can set this time.
    if metadata.len() > bytes.len() as u64 {
        bytes.extend(metadata.ctime().to_le_bytes());
        bytes.extend(metadata.ctime_nsec().to_le_bytes());
    }
    Some((metadata.len(), bytes))
}
