//! What git would run later of a repository, and how it finds the repository.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::Way;

/// Most bytes of a file that names a repository: more than a path has.
const MAX_NAMING: u64 = 8 << 10;

/// The parts of a repository's own folder that git would run later, outside of any sandbox, or that
/// name programs to run.
const RUN_LATER: [&str; 3] = ["hooks", "config", "config.worktree"];

/// The repository of a directory: what has to stay as it is.
#[derive(Debug, Default)]
pub struct Repository {
    /// The links and the file that say where it and its parts are: others would name others.
    pub names: Vec<PathBuf>,
    /// The folders that `..` leaves on the ways.
    pub left: Vec<PathBuf>,
    /// The real path of its hooks, whether they exist or not. `None`: there is no repository.
    pub hooks: Option<PathBuf>,
    /// The real path of its configuration, whether it exists or not. `None`: git sees no repository
    /// there yet.
    pub config: Option<PathBuf>,
    /// The real paths of what git would run, whether it exists or not.
    pub later: Vec<PathBuf>,
}

impl Repository {
    /// Finds the repository of a directory.
    pub fn find(directory: &Path) -> Self {
        let mut found = Self::default();
        let mut git = found.follow(&directory.join(".git"));
        if let Some(named) = named_by(&git) {
            let named = found.follow(&named);
            found.names.push(std::mem::replace(&mut git, named));
        }
        if git.is_dir() {
            found.later = RUN_LATER.map(|name| found.follow(&git.join(name))).to_vec();
            found.hooks = found.later.first().cloned();
            let is_one = git.join("HEAD").symlink_metadata().is_ok();
            found.config = found.later.get(1).filter(|_| is_one).cloned();
        }
        found
    }

    fn follow(&mut self, path: &Path) -> PathBuf {
        let Way { real, links, left } = Way::as_far_as_it_exists(path);
        self.names.extend(links);
        self.left.extend(left);
        real
    }
}

/// The repository that a file in the place of one names, as in a worktree.
fn named_by(file: &Path) -> Option<PathBuf> {
    let mut text = String::new();
    // A FIFO that takes its place meanwhile would let the open wait.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = File::from(rustix::fs::open(file, flags, Mode::empty()).ok()?);
    let is_file = opened.metadata().is_ok_and(|meta| meta.is_file());
    opened.take(if is_file { MAX_NAMING } else { 0 }).read_to_string(&mut text).ok()?;
    Some(file.parent()?.join(text.strip_prefix("gitdir:")?.trim()))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[test]
    fn only_a_file_names_a_repository() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join(".git");
        assert_eq!(named_by(&path), None);
        std::fs::write(&path, "gitdir: ../store\n").expect("it is written");
        assert_eq!(named_by(&path), Some(dir.path().join("../store")));
        std::fs::write(&path, "other").expect("it is written");
        assert_eq!(named_by(&path), None);
        std::fs::remove_file(&path).expect("it is removed");
        // Nobody writes to it, and nothing waits.
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("it is made");
        assert_eq!(named_by(&path), None);
        assert_eq!(named_by(dir.path()), None);
    }
}
