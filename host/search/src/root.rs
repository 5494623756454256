//! Where a search begins.

use std::ffi::CString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::directory::{self, Names, scratch};
use super::filter::Filter;
use super::folder::Folder;
use super::ignores::{Ignores, Place, Room};
use super::model::{Scope, SearchError};
use berth_system::files::{FileError, FileView, ResolvedObject};

/// The directory to walk, or the one file to look at.
#[derive(Debug)]
pub(super) struct Root {
    /// The directory, or the one that holds the file, with the file as its only entry.
    pub(super) folder: Arc<Folder>,
    /// Whether not all of the root's entries could be read.
    pub(super) is_cut: bool,
    pub(super) is_file: bool,
    spelled: String,
}

/// Opens the root of a scope, with the filter for what is below it, and reads the ignore files that
/// hold there. So many threads search.
///
/// # Errors
///
/// [`SearchError`].
pub(super) fn open(
    view: &FileView,
    scope: &Scope,
    threads: usize,
) -> Result<(Root, Filter), SearchError> {
    let filter = Filter::new(scope, threads)?;
    let spelled = &scope.root;
    let explain = |error| explain(error, spelled);
    let found = view.find(Path::new(spelled)).map_err(explain)?;
    match found.kind {
        FileType::Directory => {
            let root = Root::directory(view, &found, scope, filter.room())
                .map_err(|errno| explain(errno.into()))?;
            Ok((root, filter))
        }
        FileType::RegularFile => {
            Ok((Root::file(view, &found, spelled).map_err(explain)?, Filter::everything()))
        }
        _ => Err(SearchError::Failed(format!("{spelled} is neither a file nor a directory"))),
    }
}

impl Root {
    /// A result's path as the caller sees it, from its path below the root.
    pub(super) fn spell(&self, rest: &[u8]) -> String {
        if self.is_file {
            return self.spelled.clone();
        }
        let slash = if self.spelled.ends_with('/') { "" } else { "/" };
        format!("{}{slash}{}", self.spelled, String::from_utf8_lossy(rest))
    }

    fn directory(
        view: &FileView,
        found: &ResolvedObject,
        scope: &Scope,
        room: Option<&Arc<Room>>,
    ) -> Result<Self, Errno> {
        let fd = directory::open_directory(found.handle.as_fd(), c".")?;
        // As everywhere in the walk: what was moved since the rules decided on it is gone.
        if !directory::lies_at(fd.as_fd(), found.path.as_os_str().as_bytes()) {
            return Err(Errno::NOENT);
        }
        view.record_at(found.path.as_os_str().as_bytes(), fd.as_fd());
        let (names, whole) = Names::read(fd.as_fd(), scratch(&mut Vec::new()));
        let prefix = prefix(&found.path);
        let mut ignores = None;
        if let Some(room) = room {
            let place = Place { view, dir: fd.as_fd(), prefix: &prefix, room };
            ignores = Ignores::from_entries(place, &names, ignores_above(view, &found.path, room));
        }
        let folder = Folder::new(fd, prefix, 0, ignores, names);
        Ok(Self {
            folder: Arc::new(folder),
            is_cut: !whole,
            is_file: false,
            spelled: scope.root.clone(),
        })
    }

    fn file(view: &FileView, found: &ResolvedObject, spelled: &str) -> Result<Self, FileError> {
        let (Some(parent), Some(name)) = (found.path.parent(), found.path.file_name()) else {
            return Err(Errno::INVAL.into());
        };
        let name = CString::new(name.as_bytes()).map_err(|_| Errno::INVAL)?;
        // What else lies in there doesn't matter.
        let parent = view.unreported().find(parent)?;
        let names = Names::one(&name, FileType::RegularFile);
        let folder = Folder::new(parent.handle, prefix(&parent.path), 0, None, names);
        Ok(Self {
            folder: Arc::new(folder),
            is_cut: false,
            is_file: true,
            spelled: spelled.to_owned(),
        })
    }
}

/// What the ignore files above `path` say, as far up as may be read.
fn ignores_above(view: &FileView, path: &Path, room: &Arc<Room>) -> Option<Arc<Ignores>> {
    // Of the directories themselves, only the files count that are told of below.
    let unreported = view.unreported();
    let readable = path.ancestors().skip(1).map_while(|above| unreported.find(above).ok());
    let above: Vec<ResolvedObject> = readable.collect();
    above.iter().rev().fold(None, |ignores, found| {
        let place = Place { view, dir: found.handle.as_fd(), prefix: &prefix(&found.path), room };
        Ignores::from_directory(place, ignores)
    })
}

/// A directory's path with a slash at its end.
fn prefix(path: &Path) -> Vec<u8> {
    let mut prefix = path.as_os_str().as_bytes().to_vec();
    if prefix.last() != Some(&b'/') {
        prefix.push(b'/');
    }
    prefix
}

fn explain(error: FileError, spelled: &str) -> SearchError {
    match error {
        FileError::Denied(denial) => SearchError::Denied(denial),
        FileError::Errno(Errno::NOENT | Errno::NOTDIR) => SearchError::NotFound(spelled.to_owned()),
        FileError::Errno(errno) => SearchError::Failed(format!(
            "{spelled} can't be opened: {}",
            std::io::Error::from(errno)
        )),
    }
}
