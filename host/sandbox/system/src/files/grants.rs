//! Opens the granted directories once, and finds the directory that covers a path.

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

/// The directories of one policy, opened once. The handles refer to the directories at that time.
/// If a name later leads to another directory, this has no effect until the policy is built again.
#[derive(Debug)]
pub struct Grants {
    rules: FileRules,
    roots: Vec<Root>,
    /// The devices of the roots, except for roots in a procfs.
    devices: Vec<u64>,
    aliases: Mutex<Aliases>,
}

/// The file system types for [`Root::prompt`].
const PROMPT: [i64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994];

/// The other names of Toolhold's own folders at the time of the last search.
#[derive(Debug, Default)]
struct Aliases {
    /// The mounts at that time.
    mounts: Option<Arc<Mounts>>,
    own: Arc<[OwnFolder]>,
}

/// A granted directory.
#[derive(Debug)]
pub struct Root {
    /// Keeps the inode that was granted.
    pub dir: Dir,
    /// Real path.
    pub path: PathBuf,
    /// The largest access below the root.
    pub access: Access,
    /// Whether the file system opens and describes a cached object without waiting. This applies to
    /// ext2 to ext4, XFS, Btrfs and tmpfs. It doesn't apply to an overlay, which asks the file
    /// systems below it.
    pub prompt: bool,
}

/// The reason why a directory can't be granted.
#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    /// The directory can't be opened.
    #[error("{path} can't be granted: {source}")]
    Open {
        /// The real path of the root.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The real places of files can't be determined.
    #[error(
        "directories can't be granted here: /proc is not mounted, so the real path of a file is unknown. Mount it (`mount -t proc proc /proc`)"
    )]
    NoProc,
}

impl Grants {
    /// Opens the directories of `grants` by their real paths, and builds the rules. The rules
    /// exclude the `own` folders (see [`with_its_links`]) and `/proc`. `globs` adds globs to the
    /// rules.
    ///
    /// # Errors
    ///
    /// [`GrantError`] if a path doesn't exist, isn't a directory or has become a link, or if
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
            // A path with a part that was exchanged for a link means another directory.
            if path != grant.path {
                return Err(not_opened(grant, io::Error::other("a link has taken its place")));
            }
            let kind = rustix::fs::fstatfs(&dir).map_err(|errno| not_opened(grant, errno))?.f_type;
            if kind != mounts::PROC {
                let stat = rustix::fs::fstat(&dir).map_err(|errno| not_opened(grant, errno))?;
                devices.push(stat.st_dev);
            }
            let prompt = PROMPT.contains(&kind);
            roots.push(Root { dir, path, access: grant.access, prompt });
        }
        // `/proc` has files with this process's environment, memory and descriptors.
        let proc = OwnFolder { path: PathBuf::from("/proc"), secret: true };
        let own = own.into_iter().chain([proc]).collect();
        Ok(Self {
            rules: globs(FileRules::new(grants, own)),
            roots,
            devices,
            aliases: Mutex::default(),
        })
    }

    /// Returns Toolhold's own folders under the other names that current mounts give them. If the
    /// mounts can't be read, returns the names of the last time.
    pub(crate) fn aliases(&self) -> Arc<[OwnFolder]> {
        let mut known = self.aliases.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(mounts) = Mounts::current() else { return Arc::clone(&known.own) };
        let is_current = known.mounts.as_ref().is_some_and(|before| Arc::ptr_eq(before, &mounts));
        if is_current {
            return Arc::clone(&known.own);
        }

        let mut aliases = Vec::new();
        for own in self.rules.own() {
            // The rules recognise a procfs by its type.
            if own.path == Path::new("/proc") || own.path.ends_with("..") {
                continue;
            }
            let names = mounts.other_names(&own.path).into_iter();
            aliases.extend(names.map(|path| OwnFolder { path, secret: own.secret }));
        }
        *known = Aliases { mounts: Some(mounts), own: aliases.into() };
        Arc::clone(&known.own)
    }

    /// Checks whether this is the device of a granted directory. Such a file system may be used.
    pub(super) fn is_on_a_granted_device(&self, device: u64) -> bool {
        self.devices.contains(&device)
    }

    /// Returns the rules for the directories.
    pub fn rules(&self) -> &FileRules {
        &self.rules
    }

    /// Returns the directories, in the order of the configuration.
    pub fn roots(&self) -> &[Root] {
        &self.roots
    }

    /// Returns the innermost root of an absolute path, and the rest of the path below it. Compares
    /// only spellings and opens nothing.
    pub(super) fn covering<'p>(&self, path: &'p Path) -> Option<(&Root, &'p Path)> {
        let covering =
            self.roots.iter().filter_map(|root| Some((root, path.strip_prefix(&root.path).ok()?)));
        covering.min_by_key(|(_, rest)| rest.components().count())
    }
}

fn not_opened(grant: &Grant, source: impl Into<io::Error>) -> GrantError {
    GrantError::Open { path: grant.path.clone(), source: source.into() }
}

/// Returns all paths that must not change, so that the path of an own folder stays the same. These
/// are the folder's real path, each link on the way, which could be exchanged, and each folder that
/// `..` leaves, which a link could replace.
pub fn with_its_links(own: OwnFolder) -> impl Iterator<Item = OwnFolder> {
    let Way { real, links, left } = Way::as_far_as_it_exists(&own.path);
    // The text of a link is no secret, and the rest of a link's target doesn't belong to Toolhold.
    let on_the_way = links
        .into_iter()
        .chain(left.into_iter().map(|folder| folder.join("..")))
        .map(|path| OwnFolder { path, secret: false });
    std::iter::once(OwnFolder { path: real, secret: own.secret }).chain(on_the_way)
}

/// Returns the real path of an object that may not exist yet: the real path of the existing part,
/// followed by the rest. This protects an own folder under its future name.
pub fn real_or_given(path: &Path) -> PathBuf {
    Way::as_far_as_it_exists(path).real
}

impl Root {
    /// Opens a second handle of the directory, for a guest that reads its entries.
    ///
    /// # Errors
    ///
    /// Returns the system's error if no more descriptors can be opened.
    pub fn reopen(&self) -> io::Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(&self.dir, 0)?)
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
            assert!(refused.contains("a link has taken its place"), "{refused}");
        }
    }
}
