//! Records the temporary permissions of an undo, so that a later undo removes them after a crash.

use std::io::{BufRead as _, BufReader};
use std::os::fd::AsFd as _;

use toolhold_data_dir::PrivateFolder;

use super::access::{Access, Given};
use super::files::DirEntryRef;

/// The file in a call's folder that records these permissions.
const NOTES: &str = "given";

/// Makes the access for temporary permissions, and records them, so that an undo of the call
/// removes them.
pub(crate) fn noted_access(folder: &PrivateFolder) -> Access {
    match folder.appended(NOTES) {
        Ok(notes) => Access::noting(notes),
        Err(_) => Access::default(),
    }
}

/// Removes the temporary permissions of an earlier undo of the call. The permissions of this undo
/// are recorded, unless the disk is full.
pub(crate) fn access_for(folder: &PrivateFolder) -> Access {
    let Ok(notes) = folder.appended(NOTES) else { return Access::default() };
    let lines = BufReader::new(&notes).lines().map_while(Result::ok);
    let given: Vec<Given> = lines.filter_map(|line| serde_json::from_str(&line).ok()).collect();
    let access = Access::default();
    for one in given.iter().rev() {
        if let Ok(object) = DirEntryRef::find(&access, &one.path).and_then(|place| place.handle()) {
            one.take_back(object.as_fd());
        }
    }
    let _ = notes.set_len(0);
    Access::noting(notes)
}
