//! Opens the root of a search, and writes the paths of results as the caller wrote the root.

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

#[derive(Debug)]
pub(super) struct Root {
    /// The directory. For a root that is a file, this is its parent with the file as the only
    /// entry.
    pub(super) folder: Arc<Folder>,
    /// Whether entries of the root may be missing because they can't be read.
    pub(super) is_incomplete: bool,
    pub(super) is_file: bool,
    /// The path of the root, as the caller wrote it.
    spelled: String,
}

/// Opens the root of a scope, makes the filter, and reads the ignore files above the root. Fails if
/// the root can't be opened, or a glob isn't valid.
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
    pub(super) fn result_path(&self, relative_path: &[u8]) -> String {
        if self.is_file {
            return self.spelled.clone();
        }
        let slash = if self.spelled.ends_with('/') { "" } else { "/" };
        format!("{}{slash}{}", self.spelled, String::from_utf8_lossy(relative_path))
    }

    /// Makes the root of a search below a directory.
    fn directory(
        view: &FileView,
        found: &ResolvedObject,
        scope: &Scope,
        memory: Option<&Arc<RuleMemory>>,
    ) -> Result<Self, Errno> {
        let fd = directory::open_directory(found.handle.as_fd(), c".")?;
        // The directory may have been moved meanwhile. The rules haven't allowed its new path, so
        // the directory counts as missing.
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
        let depth = 0;
        let folder = Folder::new(fd, prefix, depth, ignores, names);
        Ok(Self {
            folder: Arc::new(folder),
            is_incomplete: !is_complete,
            is_file: false,
            spelled: scope.root.clone(),
        })
    }

    /// Makes the root of a search in one file.
    fn file(view: &FileView, found: &ResolvedObject, spelled: &str) -> Result<Self, FileError> {
        let (Some(parent), Some(name)) = (found.path.parent(), found.path.file_name()) else {
            return Err(Errno::INVAL.into());
        };
        let name = CString::new(name.as_bytes()).map_err(|_| Errno::INVAL)?;
        // The answer doesn't depend on other entries of the parent, so the lookup isn't recorded.
        let parent = view.unreported().find(parent)?;
        let names = Names::single(&name, FileType::RegularFile);
        let prefix = with_slash(&parent.path);
        let depth = 0;
        let ignores = None;
        let folder = Folder::new(parent.handle, prefix, depth, ignores, names);
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
    // The answer depends on the ignore files in these directories, and reading the files is
    // recorded. The lookups of the directories aren't recorded.
    let unreported = view.unreported();
    let mut readable = Vec::new();
    for parent in path.ancestors().skip(1) {
        let Ok(directory) = unreported.find(parent) else { break };
        readable.push(directory);
    }
    let mut ignores = None;
    // The rules of a directory refer to those of the directory above, so begin with the outermost.
    for directory in readable.iter().rev() {
        let prefix = with_slash(&directory.path);
        let source = IgnoreSource { view, dir: directory.handle.as_fd(), prefix: &prefix, memory };
        ignores = Ignores::from_directory(source, ignores);
    }
    ignores
}

fn with_slash(path: &Path) -> Vec<u8> {
    let mut prefix = path.as_os_str().as_bytes().to_vec();
    if prefix.last() != Some(&b'/') {
        prefix.push(b'/');
    }
    prefix
}

/// Returns the error for a root that can't be opened. `spelled` is its path as written.
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
