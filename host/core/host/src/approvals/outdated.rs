//! Checks whether a question is outdated, because the file whose change it shows has changed since.

use std::fs::File;
use std::io::Read;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::preview::{MAX_COMPARED, Preview};

/// Checks whether the file of a preview has changed. A file that can't be opened is treated as
/// unchanged.
///
/// The check reads with the rights of the person who sees the question, not with the rights of a
/// guest. No grant is needed, because the only effect is whether the question is shown.
pub(super) fn is_outdated(preview: &Preview) -> bool {
    // The path may be another kind of file by now. These flags prevent following a link and
    // waiting.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut bytes = Vec::new();
    match rustix::fs::open(&preview.file, flags, Mode::empty()).map(File::from) {
        // The preview of a missing file has the digest of nothing.
        Err(Errno::NOENT) => {}
        // A link has replaced the file.
        Err(Errno::LOOP) => return true,
        Err(_) => return false,
        Ok(file) => {
            let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
            if !is_file {
                return true;
            }
            if file.take(MAX_COMPARED as u64 + 1).read_to_end(&mut bytes).is_err() {
                return true;
            }
        }
    }
    format!("{:x}", Sha256::digest(&bytes)) != preview.sha256
}
