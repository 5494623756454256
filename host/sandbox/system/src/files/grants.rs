//! Opens the granted directories, and finds the directory that covers a path.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use toolhold_contract::Access;
use toolhold_data_dir::Way;
use toolhold_policy::files::{FileRules, Grant, OwnFolder};

use super::kernel;
use crate::mounts::{self, Mounts};

/// The granted directories of one policy. They are opened once, so a name that later leads to
/// another directory has no effect until the policy is built again.
#[derive(Debug)]
pub struct Grants {
    rules: FileRules,
    roots: Vec<Root>,
    /// The devices of the roots, except for roots in a procfs.
    devices: Vec<u64>,
    aliases: Mutex<Aliases>,
}

/// The types of the file systems of [`Root::prompt`]: ext2 to ext4, XFS, Btrfs and tmpfs.
const PROMPT: [i64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994];

/// The other names of Toolhold's own folders, as found last.
#[derive(Debug, Default)]
struct Aliases {
    /// The mounts when the names were found.
    mounts: Option<Arc<Mounts>>,
    own: Arc<[OwnFolder]>,
}

/// A granted directory.
#[derive(Debug)]
pub struct Root {
    /// The handle of the granted directory.
    pub dir: Dir,
    /// The real path.
    pub path: PathBuf,
    /// The greatest access below the root.
    pub access: Access,
    /// Whether the file system answers for a cached object without waiting: ext2 to ext4, XFS,
    /// Btrfs and tmpfs. An overlay isn't prompt, because it asks the file systems below it.
    pub prompt: bool,
}

/// The reason why a directory can't be granted.
#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    /// The directory can't be opened.
    #[error("{path} can't be granted: {source}")]
    Open {
        /// The real path of the directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The real paths of files can't be determined.
    #[error(
        "no directory can be granted, because /proc is not mounted and the real paths of files are \
         unknown. Mount /proc: `mount -t proc proc /proc`"
    )]
    NoProc,
}

impl Grants {
    /// Opens the directories of `grants` by their real paths, and builds the rules. `globs` adds
    /// globs to the rules. No grant includes `/proc` or the `own` folders (see [`with_its_links`]).
    ///
    /// # Errors
    ///
    /// Returns an error if a path doesn't exist, isn't a directory or has become a link, or if
    /// `/proc` is missing.
    pub fn open(
        grants: Vec<Grant>,
        own: Vec<OwnFolder>,
        globs: impl FnOnce(FileRules) -> FileRules,
    ) -> Result<Self, GrantError> {
        let mut roots = Vec::new();
        let mut devices = Vec::new();
        for grant in &grants {
            let dir = Dir::open_ambient_dir(&grant.path, ambient_authority())
                .map_err(|error| not_opened(grant, error))?;
            let path = kernel::real_path(dir.as_fd()).map_err(|errno| match errno {
                kernel::NO_PROC => GrantError::NoProc,
                other => not_opened(grant, other),
            })?;
            // After a link has replaced a part of the path, the path leads to another directory.
            if path != grant.path {
                return Err(not_opened(
                    grant,
                    io::Error::other("a link has replaced the directory"),
                ));
            }
            let kind = rustix::fs::fstatfs(&dir).map_err(|errno| not_opened(grant, errno))?.f_type;
            if kind != mounts::PROC {
                let stat = rustix::fs::fstat(&dir).map_err(|errno| not_opened(grant, errno))?;
                devices.push(stat.st_dev);
            }
            let prompt = PROMPT.contains(&kind);
            roots.push(Root { dir, path, access: grant.access, prompt });
        }
        // `/proc` contains files with this process's environment, memory and descriptors.
        let proc = OwnFolder { path: PathBuf::from("/proc"), secret: true };
        let own = own.into_iter().chain([proc]).collect();
        Ok(Self {
            rules: globs(FileRules::new(grants, own)),
            roots,
            devices,
            aliases: Mutex::default(),
        })
    }

    /// Returns the other names that mounts give Toolhold's own folders now. If the mounts can't be
    /// read, returns the names that were found last.
    pub(crate) fn aliases(&self) -> Arc<[OwnFolder]> {
        let mut known = self.aliases.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(mounts) = Mounts::current() else { return Arc::clone(&known.own) };
        let is_current = known.mounts.as_ref().is_some_and(|before| Arc::ptr_eq(before, &mounts));
        if is_current {
            return Arc::clone(&known.own);
        }

        let mut aliases = Vec::new();
        for own in self.rules.own() {
            // The rules recognise a procfs by its type. A path that ends with `..` only stands for
            // a directory on the way to an own folder.
            if own.path == Path::new("/proc") || own.path.ends_with("..") {
                continue;
            }
            let names = mounts.other_names(&own.path).into_iter();
            aliases.extend(names.map(|path| OwnFolder { path, secret: own.secret }));
        }
        *known = Aliases { mounts: Some(mounts), own: aliases.into() };
        Arc::clone(&known.own)
    }

    pub(super) fn is_on_a_granted_device(&self, device: u64) -> bool {
        self.devices.contains(&device)
    }

    /// Returns the rules for the directories.
    pub fn rules(&self) -> &FileRules {
        &self.rules
    }

    /// Returns the granted directories, in the order of the configuration.
    pub fn roots(&self) -> &[Root] {
        &self.roots
    }

    /// Returns the innermost root of an absolute path, and the path below the root. Compares only
    /// the texts and opens nothing.
    pub(super) fn covering<'p>(&self, path: &'p Path) -> Option<(&Root, &'p Path)> {
        let covering = self.roots.iter().filter_map(|root| {
            let below = path.strip_prefix(&root.path).ok()?;
            Some((root, below))
        });
        covering.min_by_key(|(_, below)| below.components().count())
    }
}

fn not_opened(grant: &Grant, source: impl Into<io::Error>) -> GrantError {
    GrantError::Open { path: grant.path.clone(), source: source.into() }
}

/// Returns all paths that must not change, because they determine the path of an own folder: its
/// real path, each link to it, and each folder before a `..`, which a link could replace. A path
/// that ends with `..` stands for such a folder.
pub fn with_its_links(own: OwnFolder) -> impl Iterator<Item = OwnFolder> {
    let way = Way::as_far_as_it_exists(&own.path);
    let mut folders = vec![OwnFolder { path: way.real, secret: own.secret }];
    // The text of a link isn't secret, and its target doesn't belong to Toolhold.
    for link in way.links {
        folders.push(OwnFolder { path: link, secret: false });
    }
    for folder in way.left {
        folders.push(OwnFolder { path: folder.join(".."), secret: false });
    }
    folders.into_iter()
}

/// Returns the real path of an object that may not exist yet: the real path of the existing part,
/// and the missing part. The path protects an own folder before it is created.
pub fn real_or_given(path: &Path) -> PathBuf {
    Way::as_far_as_it_exists(path).real
}

impl Root {
    /// Opens another handle of the directory, for a guest that reads its entries.
    ///
    /// # Errors
    ///
    /// Returns an error if no more descriptors can be opened.
    pub fn reopen(&self) -> io::Result<OwnedFd> {
        let lowest_descriptor = 0;
        Ok(rustix::io::fcntl_dupfd_cloexec(&self.dir, lowest_descriptor)?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Between the moment when its real path was found and now, somebody exchanged a part of it.
    #[test]
    fn directory_that_has_become_a_link_is_no_grant() {
        let root = tempfile::tempdir().expect("a folder is made");
        let root = root.path().canonicalize().expect("it is there");
        fs::create_dir_all(root.join("others/below")).expect("folders are made");
        symlink("others", root.join("link")).expect("a link is made");
        for exchanged in ["link", "link/below"] {
            let (path, place) = (root.join(exchanged), "[tools.file]".into());
            let grant = Grant { path, access: Access::Write, place };
            let refused = Grants::open(vec![grant], Vec::new(), |rules| rules);
            let refused = refused.expect_err("it is a link").to_string();
            assert!(refused.contains("a link has replaced the directory"), "{refused}");
        }
    }
}
