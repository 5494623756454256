//! Finds the git repository of a directory, and the parts that git would run later, such as hooks.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::Way;

/// The most bytes of a file that names a repository. Paths are shorter.
const MAX_NAMING: u64 = 8 << 10;

/// The parts of a repository's own folder that git would run later, outside of any sandbox, or that
/// name programs to run.
const RUN_LATER: [&str; 3] = ["hooks", "config", "config.worktree"];

/// The files in a repository's folder that refer to another folder, as in a worktree.
const LEADING: [&str; 2] = ["commondir", "gitdir"];

/// The most folders that are searched for repositories of submodules and worktrees, and the deepest
/// nesting.
const MAX_FOLDERS: usize = 500;
const MAX_DEPTH: usize = 4;

/// The repository of a directory, with the paths that must not change.
#[derive(Debug, Default)]
pub struct Repository {
    /// The links and the file that determine the places of the repository and its parts. A changed
    /// one would refer to other places.
    pub names: Vec<PathBuf>,
    /// The folders that `..` leaves on the ways.
    pub left: Vec<PathBuf>,
    /// The real paths of the parts that git would run, even if they don't exist. Empty if there is
    /// no repository.
    pub later: Vec<PathBuf>,
    /// The folder of the repository that git uses or would use. The links and the file lead to this
    /// folder.
    pub folder: PathBuf,
    /// The folders of the inner repositories, which belong to submodules and worktrees.
    pub inner: Vec<PathBuf>,
}

impl Repository {
    /// Finds the repository of a directory.
    pub fn find(directory: &Path) -> Self {
        let mut repository = Self::default();
        let mut folder = repository.follow(&directory.join(".git"));
        if let Some(named) = named_by(&folder, directory) {
            let named_folder = repository.follow(&named);
            let file = std::mem::replace(&mut folder, named_folder);
            repository.names.push(file);
        }
        if folder.is_dir() {
            repository.later = RUN_LATER.map(|name| repository.follow(&folder.join(name))).to_vec();
            let mut left = MAX_FOLDERS;
            for name in ["modules", "worktrees"] {
                find_inner(&folder.join(name), MAX_DEPTH, &mut left, &mut repository.inner);
            }
        }
        repository.folder = folder;
        repository
    }

    /// Returns the names of the parts that git would run, such as `hooks`, each with its real path.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        RUN_LATER.into_iter().zip(self.later.iter().map(PathBuf::as_path))
    }

    /// Returns the real path of the part with this name. Returns `None` if there is no repository.
    pub fn part(&self, name: &str) -> Option<&Path> {
        let part = self.parts().find(|(known, _)| *known == name);
        part.map(|(_, real)| real)
    }

    /// Returns the existing parts of the inner repositories that git would run.
    pub fn inner_parts(&self) -> impl Iterator<Item = PathBuf> {
        let parts = self
            .inner
            .iter()
            .flat_map(|inner| RUN_LATER.into_iter().chain(LEADING).map(|name| inner.join(name)));
        parts.filter(|path| path.symlink_metadata().is_ok())
    }

    /// Returns the folders of hooks that submodules would have.
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

/// Adds the repositories below a folder. At most `left` folders are checked. The name of a
/// submodule may contain slashes.
fn find_inner(folder: &Path, depth: usize, left: &mut usize, repositories: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_folder || *left == 0 {
            continue;
        }
        *left -= 1;
        let path = entry.path();
        let is_repository = path.join("HEAD").is_file();
        if depth > 0 {
            let inner = if is_repository { path.join("modules") } else { path.clone() };
            find_inner(&inner, depth - 1, left, repositories);
        }
        if is_repository {
            repositories.push(path);
        }
    }
}

/// Returns the repository that a `.git` file names, as in a worktree. Like git, resolves the path
/// from the directory, even if the file is a link.
fn named_by(file: &Path, directory: &Path) -> Option<PathBuf> {
    // Opening another kind of file, such as a device, may have effects.
    if !file.symlink_metadata().ok()?.is_file() {
        return None;
    }
    // If a FIFO replaces the file meanwhile, opening it must not block.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = File::from(rustix::fs::open(file, flags, Mode::empty()).ok()?);
    if !opened.metadata().ok()?.is_file() {
        return None;
    }

    let mut text = Vec::new();
    opened.take(MAX_NAMING).read_to_end(&mut text).ok()?;
    let after_key = text.strip_prefix(b"gitdir: ")?;
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
