//! Which steps of an undo are done. Another undo goes on with the others.

use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;

use toolhold_private::PrivateFolder;

/// The file that has a byte for each step of an undo, and the two bytes.
const PROGRESS: &str = "progress";
const OPEN: u8 = b'-';
const DONE: u8 = b'+';

/// Makes room for the notes of an undo of so many steps, which may find the disk full.
pub(crate) fn reserve(folder: &PrivateFolder, steps: usize) -> io::Result<()> {
    folder.updated(PROGRESS)?.write_all_at(&vec![OPEN; steps], 0)
}

/// Which of so many steps are done.
pub(crate) fn read(folder: &PrivateFolder, steps: usize) -> io::Result<Vec<bool>> {
    let mut bytes = Vec::new();
    match folder.file(PROGRESS) {
        Ok(file) => file.take(steps as u64).read_to_end(&mut bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    Ok(bytes.into_iter().map(|byte| byte == DONE).collect())
}

/// Notes a step that is done. Without room for that, another undo does it once more.
pub(crate) fn note(folder: &PrivateFolder, step: usize) {
    let noted = folder.updated(PROGRESS);
    let _ = noted.and_then(|file| file.write_all_at(&[DONE], step as u64));
}
