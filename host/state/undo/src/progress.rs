//! Records the finished steps of an undo, so that a later undo continues after them.

use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;

use toolhold_data_dir::PrivateFolder;

const PROGRESS: &str = "progress";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Step {
    Open = b'-',
    /// A killed undo may have done the step.
    Begun = b'?',
    Done = b'+',
}

/// Reserves space for the progress, because the disk may be full later.
pub(crate) fn reserve(folder: &PrivateFolder, steps: usize) -> io::Result<()> {
    folder.updated(PROGRESS)?.write_all_at(&vec![Step::Open as u8; steps], 0)
}

/// Reads the progress of an undo. Steps without a record are open.
pub(crate) fn read(folder: &PrivateFolder, steps: usize) -> io::Result<Vec<Step>> {
    // The file has one byte for each step.
    let mut bytes = Vec::new();
    match folder.file(PROGRESS) {
        Ok(file) => {
            file.take(steps as u64).read_to_end(&mut bytes)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    bytes.resize(steps, Step::Open as u8);
    let mut progress = Vec::with_capacity(steps);
    for byte in bytes {
        progress.push(match byte {
            b'+' => Step::Done,
            b'?' => Step::Begun,
            _ => Step::Open,
        });
    }
    Ok(progress)
}

/// Records the progress of the step at an index. If writing fails, a later undo repeats the step.
pub(crate) fn note(folder: &PrivateFolder, index: usize, step: Step) {
    // A test simulates a killed process after some notes.
    #[cfg(test)]
    NOTES_LEFT.with(|left| match left.get().checked_sub(1) {
        Some(fewer) => left.set(fewer),
        None => std::panic::resume_unwind(Box::new("killed")),
    });
    if let Ok(file) = folder.updated(PROGRESS) {
        let _ = file.write_all_at(&[step as u8], index as u64);
    }
}

#[cfg(test)]
std::thread_local! {
    /// The number of notes before a test kills the undo of this thread.
    pub(crate) static NOTES_LEFT: std::cell::Cell<usize> = const { std::cell::Cell::new(usize::MAX) };
}
