//! Finds the git repository of a directory, and the files that git runs later, such as hooks.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::Way;

/// Most bytes that are read of a `.git` file.
const MAX_GIT_FILE: u64 = 8 << 10;

/// Parts of a repository's folder that contain or name programs. Git runs these programs later,
/// outside of any sandbox.
const RUN_LATER: [&str; 3] = ["hooks", "config", "config.worktree"];

/// Files of a worktree that name another folder.
const REDIRECTING: [&str; 2] = ["commondir", "gitdir"];

/// Limits of the search for submodules and worktrees.
const MAX_FOLDERS: usize = 500;
const MAX_DEPTH: usize = 4;

/// The repository of a directory, and the paths that must not change.
#[derive(Debug, Default)]
pub struct Repository {
    /// The links and the `.git` file on the way to the repository and its parts. If one of them
    /// changes, git uses other folders.
    pub names: Vec<PathBuf>,
    /// The folders that a path enters and leaves again by `..`.
    pub left: Vec<PathBuf>,
    /// The real paths of the parts that git runs, even if they don't exist. Empty without a
    /// repository.
    pub later: Vec<PathBuf>,
    /// The folder of the repository, even if it doesn't exist.
    pub folder: PathBuf,
    /// The folders of the repositories of submodules and worktrees.
    pub inner: Vec<PathBuf>,
}

impl Repository {
    /// Finds the repository of a directory.
    pub fn find(directory: &Path) -> Self {
        let mut repository = Self::default();
        let mut folder = repository.follow(&directory.join(".git"));
        // A `.git` file names the folder of the repository.
        if let Some(named_path) = named_by(&folder, directory) {
            let git_file = folder;
            folder = repository.follow(&named_path);
            repository.names.push(git_file);
        }
        if folder.is_dir() {
            repository.later = RUN_LATER.map(|name| repository.follow(&folder.join(name))).to_vec();
            let mut folders_left = MAX_FOLDERS;
            for name in ["modules", "worktrees"] {
                find_inner(&folder.join(name), MAX_DEPTH, &mut folders_left, &mut repository.inner);
            }
        }
        repository.folder = folder;
        repository
    }

    /// Returns the name and the real path of each part that git runs, such as `hooks`.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        RUN_LATER.into_iter().zip(self.later.iter().map(PathBuf::as_path))
    }

    /// Returns the real path of a part. Returns `None` if there is no repository.
    pub fn part(&self, name: &str) -> Option<&Path> {
        let part = self.parts().find(|(known, _)| *known == name);
        part.map(|(_, real)| real)
    }

    /// Returns the existing paths in submodules and worktrees with programs or with names of
    /// programs, and the paths that lead git to other folders.
    pub fn inner_parts(&self) -> impl Iterator<Item = PathBuf> {
        let parts = self.inner.iter().flat_map(|repository| {
            let names = RUN_LATER.into_iter().chain(REDIRECTING);
            names.map(|name| repository.join(name))
        });
        parts.filter(|path| path.symlink_metadata().is_ok())
    }

    /// Returns the paths of the submodules' hooks, even if they don't exist.
    pub fn inner_hooks(&self) -> impl Iterator<Item = PathBuf> {
        let modules = self.inner.iter().filter(|inner| inner.join("config").exists());
        modules.map(|inner| inner.join("hooks"))
    }

    fn follow(&mut self, path: &Path) -> PathBuf {
        let Way { real, links, left } = Way::as_far_as_it_exists(path);
        self.names.extend(links);
        self.left.extend(left);
        real
    }
}

/// Adds the repositories below a folder, down to `depth`. Checks at most `folders_left` folders.
/// The name of a submodule may contain slashes, so a folder that isn't a repository may contain
/// repositories.
fn find_inner(
    folder: &Path,
    depth: usize,
    folders_left: &mut usize,
    repositories: &mut Vec<PathBuf>,
) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_folder || *folders_left == 0 {
            continue;
        }
        *folders_left -= 1;
        let path = entry.path();
        let is_repository = path.join("HEAD").is_file();
        if depth > 0 {
            // A submodule may have its own submodules.
            let inner = if is_repository { path.join("modules") } else { path.clone() };
            find_inner(&inner, depth - 1, folders_left, repositories);
        }
        if is_repository {
            repositories.push(path);
        }
    }
}

/// Returns the repository that a `.git` file names. Git resolves a relative path from `directory`,
/// even if the file is a link.
fn named_by(file: &Path, directory: &Path) -> Option<PathBuf> {
    // Only a file is opened, because opening a device may have effects.
    if !file.symlink_metadata().ok()?.is_file() {
        return None;
    }
    // A FIFO may have replaced the file. With `NONBLOCK`, opening a FIFO doesn't wait.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = File::from(rustix::fs::open(file, flags, Mode::empty()).ok()?);
    if !opened.metadata().ok()?.is_file() {
        return None;
    }

    let mut text = Vec::new();
    opened.take(MAX_GIT_FILE).read_to_end(&mut text).ok()?;
    let after_key = text.strip_prefix(b"gitdir: ")?;
    // The path ends before the line end, or before a NUL.
    let last = after_key.iter().rposition(|byte| !b"\r\n".contains(byte))?;
    let path = after_key[..=last].split(|byte| *byte == 0).next()?;
    Some(directory.join(OsStr::from_bytes(path)))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[test]
    fn only_a_file_names_a_repository() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join(".git");
        assert_eq!(named_by(&path, dir.path()), None);
        std::fs::write(&path, "gitdir: ../store\n").expect("it is written");
        assert_eq!(named_by(&path, dir.path()), Some(dir.path().join("../store")));
        for (text, named) in [
            (&b"gitdir: st\xff\r\n\n"[..], Some(&b"st\xff"[..])),
            (b"gitdir:  a b \0x\n", Some(b" a b ")),
            (b"gitdir: st\n\0x\n", Some(b"st\n")),
            (b"gitdir: \n", None),
            (b"gitdir:store\n", None),
            (b"other", None),
        ] {
            std::fs::write(&path, text).expect("it is written");
            let named = named.map(|named| dir.path().join(OsStr::from_bytes(named)));
            assert_eq!(named_by(&path, dir.path()), named);
        }
        // By a link, it is read as if it lay where the link is.
        std::fs::create_dir(dir.path().join("meta")).expect("a folder");
        std::fs::write(dir.path().join("meta/file"), "gitdir: store").expect("it is written");
        std::fs::remove_file(&path).expect("it is removed");
        std::os::unix::fs::symlink("meta/file", &path).expect("a link is made");
        let real = dir.path().canonicalize().expect("it is there");
        assert_eq!(Repository::find(&real).folder, real.join("store"));
        std::fs::remove_file(&path).expect("it is removed");
        std::fs::write(&path, "other").expect("it is written");
        assert_eq!(named_by(&path, dir.path()), None);
        std::fs::remove_file(&path).expect("it is removed");
        // Nobody writes to it, and nothing waits.
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("it is made");
        assert_eq!(named_by(&path, dir.path()), None);
        assert_eq!(named_by(dir.path(), dir.path()), None);
    }
}
