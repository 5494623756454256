//! Records which steps of an undo are done. A later undo continues with the other steps.

use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;

use toolhold_data_dir::PrivateFolder;

/// The file that has a byte for each step of an undo.
const PROGRESS: &str = "progress";

/// How far a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Step {
    Open = b'-',
    /// A killed undo may have done the step.
    Begun = b'?',
    Done = b'+',
}

/// Reserves space for the notes of an undo with `steps` steps, because the disk may be full later.
pub(crate) fn reserve(folder: &PrivateFolder, steps: usize) -> io::Result<()> {
    folder.updated(PROGRESS)?.write_all_at(&vec![Step::Open as u8; steps], 0)
}

/// Returns the progress of each step.
pub(crate) fn read(folder: &PrivateFolder, steps: usize) -> io::Result<Vec<Step>> {
    let mut bytes = Vec::new();
    match folder.file(PROGRESS) {
        Ok(file) => file.take(steps as u64).read_to_end(&mut bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    bytes.resize(steps, Step::Open as u8);
    let steps = bytes.into_iter().map(|byte| match byte {
        b'+' => Step::Done,
        b'?' => Step::Begun,
        _ => Step::Open,
    });
    Ok(steps.collect())
}

/// Records the progress of a step. If the note can't be written, a later undo repeats the step.
pub(crate) fn note(folder: &PrivateFolder, at: usize, step: Step) {
    #[cfg(test)]
    NOTES_LEFT.with(|left| match left.get().checked_sub(1) {
        Some(fewer) => left.set(fewer),
        None => std::panic::resume_unwind(Box::new("killed")),
    });
    let noted = folder.updated(PROGRESS);
    let _ = noted.and_then(|file| file.write_all_at(&[step as u8], at as u64));
}

#[cfg(test)]
std::thread_local! {
    /// The number of notes that an undo of this thread makes before a test kills it.
    pub(crate) static NOTES_LEFT: std::cell::Cell<usize> = const { std::cell::Cell::new(usize::MAX) };
}
