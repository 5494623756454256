//! Whether a question is outdated, because the file whose change it shows has changed since.

use std::fs::File;
use std::io::Read;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::preview::{MAX_COMPARED, Preview};

/// Whether the file of a preview has changed. If it can't be read, the answer is no.
///
/// Reads with the rights of the person who looks at the question, not with those of a guest. No
/// grant decides here, and the only effect is whether the question is shown.
pub(super) fn is_outdated(preview: &Preview) -> bool {
    // Follows no link and never waits: the path may be another kind of file by now.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut bytes = Vec::new();
    match rustix::fs::open(&preview.file, flags, Mode::empty()).map(File::from) {
        Err(Errno::NOENT) => {}
        Err(error) => return error == Errno::LOOP,
        Ok(file) => {
            let is_file = file.metadata().is_ok_and(|found| found.is_file());
            if !is_file || file.take(MAX_COMPARED as u64 + 1).read_to_end(&mut bytes).is_err() {
                return true;
            }
        }
    }
    format!("{:x}", Sha256::digest(&bytes)) != preview.sha256
}
