//! Whether what a question shows is still so.

use std::fs::File;
use std::io::Read;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::Preview;
use super::preview::MAX_COMPARED;

/// Whether the file of a preview holds something else by now. What can't be told is not said to.
///
/// It looks for the person who looks at questions, with that person's rights, and not for a guest:
/// no grant decides, and nothing comes of it but whether the question is asked.
pub(super) fn is_outdated(preview: &Preview) -> bool {
    // Nothing is followed or waited for: another kind of file may stand there by now.
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
