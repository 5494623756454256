//! Notes the permissions that an undo gives for a time, so that after a crash a later undo takes
//! them back.

use std::io::{BufRead as _, BufReader};
use std::os::fd::AsFd as _;

use toolhold_data_dir::PrivateFolder;

use super::access::{Access, Given};
use super::files::DirEntryRef;

/// The file of a call's folder that names them.
const NOTES: &str = "given";

/// Makes the access that gives permissions for a time and notes them, so that an undo of the call
/// takes them back.
pub(crate) fn noted_access(folder: &PrivateFolder) -> Access {
    match folder.appended(NOTES) {
        Ok(notes) => Access::noting(notes),
        Err(_) => Access::default(),
    }
}

/// Takes back the permissions that an earlier undo of the call gave. Those that this one gives are
/// noted, unless the disk has no room for that.
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
