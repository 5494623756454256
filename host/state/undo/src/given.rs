//! Records the temporary permissions of an undo, so that a later undo can remove them after a
//! crash.

use std::io::{BufRead as _, BufReader};
use std::os::fd::AsFd as _;

use toolhold_data_dir::PrivateFolder;

use super::access::{Access, Given};
use super::files::DirEntryRef;

const NOTES: &str = "given";

/// Returns an access that records temporary permissions in a call's folder. On a full disk, the
/// permissions aren't recorded.
pub(crate) fn noted_access(folder: &PrivateFolder) -> Access {
    match folder.appended(NOTES) {
        Ok(notes) => Access::noting(notes),
        Err(_) => Access::default(),
    }
}

/// Removes the temporary permissions of an earlier undo, and returns an access that records new
/// ones.
pub(crate) fn access_for(folder: &PrivateFolder) -> Access {
    let Ok(notes) = folder.appended(NOTES) else { return Access::default() };
    let lines = BufReader::new(&notes).lines().map_while(Result::ok);
    let notes_of_earlier_undo: Vec<Given> =
        lines.filter_map(|line| serde_json::from_str(&line).ok()).collect();
    let access = Access::default();
    for given in notes_of_earlier_undo.iter().rev() {
        let object = DirEntryRef::find(&access, &given.path).and_then(|place| place.handle());
        if let Ok(object) = object {
            given.take_back(object.as_fd());
        }
    }
    // If the notes stay, a later undo finds the modes changed and ignores the notes.
    let _ = notes.set_len(0);
    Access::noting(notes)
}
