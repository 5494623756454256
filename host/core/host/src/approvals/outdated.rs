//! Checks whether a question is outdated because its file has changed.

use std::fs::File;
use std::io::Read;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::preview::{MAX_COMPARED, Preview};

/// Checks whether the file of a preview has changed.
///
/// No grant is needed, because the result only decides whether the question is shown.
pub(super) fn is_outdated(preview: &Preview) -> bool {
    // The path may be another kind of file by now, so don't follow a link and don't wait for a
    // pipe.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut bytes = Vec::new();
    match rustix::fs::open(&preview.file, flags, Mode::empty()).map(File::from) {
        // The preview of a missing file has the digest of empty content, so compare with that.
        Err(Errno::NOENT) => {}
        // A link has replaced the file.
        Err(Errno::LOOP) => return true,
        // The file can't be opened, so a change is unknown. The question stays.
        Err(_) => return false,
        Ok(file) => {
            let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
            if !is_file {
                return true;
            }
            // One byte more than a preview allows is enough: with it, the digest differs from the
            // digest of any file with a preview.
            let most_bytes = MAX_COMPARED as u64 + 1;
            if file.take(most_bytes).read_to_end(&mut bytes).is_err() {
                return true;
            }
        }
    }
    let sha256 = format!("{:x}", Sha256::digest(&bytes));
    sha256 != preview.sha256
}
