//! Resolves a path and records the links on the way. Programs of this user can replace some of
//! these links.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::geteuid;

/// The most links in a path, as in the kernel.
const MAX_LINKS: usize = 40;

/// The resolution of a path, in the kernel's order.
#[derive(Debug, Default)]
pub struct Way {
    /// The resolved path. Missing components are unchanged.
    pub real: PathBuf,
    /// The real paths of the links on the way. If a link is replaced, the path has another target.
    pub links: Vec<PathBuf>,
    /// The folders that the path enters and leaves again by `..`. If a link replaces such a folder,
    /// the path has another target.
    pub left: Vec<PathBuf>,
}

impl Way {
    /// Resolves an existing path, and records the links on it.
    ///
    /// # Errors
    ///
    /// Returns an error if the path doesn't exist, can't be read, or has more than 40 links.
    pub fn follow(path: &Path) -> io::Result<Self> {
        let mut way = Self::default();
        // The function `Err` passes each error on.
        way.follow_parts(path, &mut Err)?;
        Ok(way)
    }

    /// Resolves the existing part of a path.
    pub fn as_far_as_it_exists(path: &Path) -> Self {
        let mut way = Self::default();
        // The closure ignores all errors.
        let _ = way.follow_parts(path, &mut |_| Ok(()));
        way
    }

    /// Follows each part of a path, and records the links and the folders that `..` leaves. A part
    /// that can't be read isn't followed if `on_error` returns `Ok`.
    fn follow_parts(
        &mut self,
        path: &Path,
        on_error: &mut dyn FnMut(io::Error) -> io::Result<()>,
    ) -> io::Result<()> {
        // The remaining parts, as a stack. The parts of a link's target come before the other
        // parts.
        let mut pending: Vec<OsString> = Vec::new();
        push_parts(&mut pending, &std::path::absolute(path)?);
        while let Some(part) = pending.pop() {
            match Path::new(&part).components().next() {
                Some(Component::Normal(name)) => {
                    let next = self.real.join(name);
                    match self.link_target(&next) {
                        Ok(None) => self.real = next,
                        Ok(Some(target)) => {
                            push_parts(&mut pending, &target);
                            self.links.push(next);
                        }
                        Err(error) => {
                            on_error(error)?;
                            self.real = next;
                        }
                    }
                }
                Some(Component::RootDir) => self.real = PathBuf::from("/"),
                Some(Component::ParentDir) => {
                    if let Some(parent) = self.real.parent().map(Path::to_owned) {
                        let folder = std::mem::replace(&mut self.real, parent);
                        self.left.push(folder);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn link_target(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        if !path.symlink_metadata()?.is_symlink() {
            return Ok(None);
        }
        if self.links.len() == MAX_LINKS {
            return Err(io::Error::other("the path leads through too many links"));
        }
        path.read_link().map(Some)
    }
}

fn push_parts(pending: &mut Vec<OsString>, path: &Path) {
    pending.extend(path.components().rev().map(|part| part.as_os_str().to_owned()));
}

impl Way {
    /// Returns a link on the way that programs of this user can replace. This doesn't depend on the
    /// current grants, because tools may have other grants with another working directory or
    /// configuration.
    pub fn exchangeable(&self) -> Option<&Path> {
        self.links.iter().map(PathBuf::as_path).find(|link| can_be_exchanged(link))
    }
}

/// Checks whether a program of this user could replace a link. Returns true if the answer is
/// unknown.
fn can_be_exchanged(link: &Path) -> bool {
    let user = geteuid().as_raw();
    let Some(folder) = link.parent() else { return true };
    let Ok(folder_metadata) = folder.metadata() else { return true };
    let Ok(link_metadata) = link.symlink_metadata() else { return true };
    if folder_metadata.uid() == user {
        return true;
    }
    // In a sticky folder such as `/tmp`, only the owner of a file can rename or remove it.
    let is_sticky = folder_metadata.mode() & 0o1000 != 0;
    if is_sticky && link_metadata.uid() != user {
        return false;
    }
    access(folder, Access::WRITE_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn way_is_that_of_the_kernel() {
        let root = tempfile::tempdir().expect("a folder is made");
        let root = root.path().canonicalize().expect("it is there");
        fs::create_dir_all(root.join("a/b")).expect("folders are made");
        for (target, link) in [
            ("a", "one"),
            ("one/b", "two"),
            ("../..", "a/up"),
            ("loop", "loop"),
            ("none/x", "lost"),
        ] {
            symlink(target, root.join(link)).expect("a link is made");
        }
        symlink(root.join("two"), root.join("a/far")).expect("a link is made");
        let joined = |links: &[&str]| links.iter().map(|link| root.join(link)).collect::<Vec<_>>();
        let left = Way::as_far_as_it_exists(&root.join("one/../a/b/../../none/..")).left;
        assert_eq!(left, joined(&["a", "a/b", "a", "none"]));
        for (path, links) in [
            ("a/b", &[][..]),
            ("one/b", &["one"]),
            ("two/../b/.", &["two", "one"]),
            ("one/far", &["one", "a/far", "two", "one"]),
            ("a/../one/./b/..", &["one"]),
            ("a/b/../up", &["a/up"]),
        ] {
            let real = root.join(path).canonicalize().expect("it exists");
            let way = Way::follow(&root.join(path)).expect("it leads somewhere");
            assert_eq!((way.real, way.links), (real.clone(), joined(links)), "{path}");
            let way = Way::as_far_as_it_exists(&root.join(path));
            assert_eq!((way.real, way.links), (real, joined(links)), "{path}");
        }
        for (path, real, links) in [
            ("a/missing", "a/missing", &[][..]),
            ("one/b/c/d", "a/b/c/d", &["one"]),
            ("lost/y", "none/x/y", &["lost"]),
        ] {
            assert!(Way::follow(&root.join(path)).is_err(), "{path}");
            let way = Way::as_far_as_it_exists(&root.join(path));
            assert_eq!((way.real, way.links), (root.join(real), joined(links)), "{path}");
        }
        assert!(Way::follow(&root.join("loop")).is_err());
        let way = Way::as_far_as_it_exists(&root.join("loop/x"));
        assert!(way.links.contains(&root.join("loop")), "{way:?}");
    }
}
