//! Opens the root of a search, and writes the paths of results as the caller sees them.

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
use super::ignores::{IgnoreSource, Ignores, RuleMemory};
use super::model::{Scope, SearchError};
use toolhold_system::files::{FileError, FileView, ResolvedObject};

/// The directory to walk, or the one file to search.
#[derive(Debug)]
pub(super) struct Root {
    /// The directory. If the root is a file, this is its parent directory with the file as the only
    /// entry.
    pub(super) folder: Arc<Folder>,
    /// Whether some entries of the root may be missing because they couldn't be read.
    pub(super) is_incomplete: bool,
    pub(super) is_file: bool,
    spelled: String,
}

/// Opens the root of a scope, makes the filter for the entries below the root, and reads the ignore
/// files that apply to them. The search uses `threads` threads.
///
/// # Errors
///
/// [`SearchError`] if the root can't be opened, or a glob isn't valid.
pub(super) fn open(
    view: &FileView,
    scope: &Scope,
    threads: usize,
) -> Result<(Root, Filter), SearchError> {
    let filter = Filter::new(scope, threads)?;
    let spelled = &scope.root;
    let found = view.find(Path::new(spelled)).map_err(|error| explain(error, spelled))?;
    match found.kind {
        FileType::Directory => {
            let root = Root::directory(view, &found, scope, filter.memory())
                .map_err(|errno| explain(errno.into(), spelled))?;
            Ok((root, filter))
        }
        FileType::RegularFile => {
            let root =
                Root::file(view, &found, spelled).map_err(|error| explain(error, spelled))?;
            Ok((root, Filter::everything()))
        }
        _ => Err(SearchError::Failed(format!("{spelled} is neither a file nor a directory"))),
    }
}

impl Root {
    /// Returns the path of a result as the caller sees it. `rest` is the path below the root.
    pub(super) fn result_path(&self, rest: &[u8]) -> String {
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
        memory: Option<&Arc<RuleMemory>>,
    ) -> Result<Self, Errno> {
        let fd = directory::open_directory(found.handle.as_fd(), c".")?;
        // A directory that was moved after the rules allowed its path is treated as missing, as
        // everywhere in the walk.
        if !directory::is_at(fd.as_fd(), found.path.as_os_str().as_bytes()) {
            return Err(Errno::NOENT);
        }
        view.record_at(found.path.as_os_str().as_bytes(), fd.as_fd());
        let (names, is_complete) = Names::read(fd.as_fd(), scratch(&mut Vec::new()));
        let prefix = with_slash(&found.path);
        let mut ignores = None;
        if let Some(memory) = memory {
            let above = ignores_above(view, &found.path, memory);
            let source = IgnoreSource { view, dir: fd.as_fd(), prefix: &prefix, memory };
            ignores = Ignores::from_entries(source, &names, above);
        }
        let folder = Folder::new(fd, prefix, 0, ignores, names);
        Ok(Self {
            folder: Arc::new(folder),
            is_incomplete: !is_complete,
            is_file: false,
            spelled: scope.root.clone(),
        })
    }

    fn file(view: &FileView, found: &ResolvedObject, spelled: &str) -> Result<Self, FileError> {
        let (Some(parent), Some(name)) = (found.path.parent(), found.path.file_name()) else {
            return Err(Errno::INVAL.into());
        };
        let name = CString::new(name.as_bytes()).map_err(|_| Errno::INVAL)?;
        // The lookup isn't reported, since the other entries of the parent don't affect the answer.
        let parent = view.unreported().find(parent)?;
        let names = Names::single(&name, FileType::RegularFile);
        let folder = Folder::new(parent.handle, with_slash(&parent.path), 0, None, names);
        Ok(Self {
            folder: Arc::new(folder),
            is_incomplete: false,
            is_file: true,
            spelled: spelled.to_owned(),
        })
    }
}

/// Returns the ignore rules of the directories above `path`, up to the first unreadable directory.
fn ignores_above(view: &FileView, path: &Path, memory: &Arc<RuleMemory>) -> Option<Arc<Ignores>> {
    // The lookups aren't reported. Only the ignore files in these directories affect the answer,
    // and reading an ignore file records it.
    let unreported = view.unreported();
    let readable = path.ancestors().skip(1).map_while(|above| unreported.find(above).ok());
    let above: Vec<ResolvedObject> = readable.collect();
    let mut ignores = None;
    for directory in above.iter().rev() {
        let prefix = with_slash(&directory.path);
        let source = IgnoreSource { view, dir: directory.handle.as_fd(), prefix: &prefix, memory };
        ignores = Ignores::from_directory(source, ignores);
    }
    ignores
}

/// Returns the path of a directory with a slash at its end.
fn with_slash(path: &Path) -> Vec<u8> {
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
        FileError::Errno(errno) => {
            let error = std::io::Error::from(errno);
            SearchError::Failed(format!("{spelled} can't be opened: {error}"))
        }
    }
}
