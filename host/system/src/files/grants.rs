use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use berth_contract::Access;
use berth_policy::files::{FileRules, Grant, OwnFolder};
use cap_std::ambient_authority;
use cap_std::fs::Dir;

use rustix::io::Errno;

use super::kernel;
use crate::mounts::{self, Mounts};

/// The directories of one policy, opened once. The handles keep the directories that existed then:
/// if a name leads elsewhere later, nothing changes until the policy is built again.
#[derive(Debug)]
pub struct Grants {
    rules: FileRules,
    roots: Vec<Root>,
    /// The devices of the roots, except of those in a procfs.
    devices: Vec<u64>,
    aliases: Mutex<Aliases>,
}

/// The types of file systems for [`Root::prompt`].
const PROMPT: [i64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994];

/// The other names of Berth's own folders when they were last searched for.
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
    /// The path as the operator wrote it.
    pub spelled: PathBuf,
    /// The largest access below it.
    pub access: Access,
    /// Whether its file system opens and describes an object in memory without a wait: ext2 to
    /// ext4, XFS, Btrfs and tmpfs do. An overlay doesn't, since it asks the file systems below it.
    pub prompt: bool,
}

/// Why a directory can't be granted.
#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    /// It can't be opened.
    #[error("{path} can't be granted: {source}")]
    Open {
        /// The path as the operator wrote it.
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
    /// Opens the directories of `grants` and builds the rules: `grants` as the operator wrote them,
    /// without `own` folders (see [`with_its_name`]) and `/proc`, with `globs` added.
    ///
    /// # Errors
    ///
    /// [`GrantError`] if a path doesn't exist or isn't a directory, or if `/proc` is missing.
    pub fn open(
        grants: Vec<Grant>,
        own: Vec<OwnFolder>,
        globs: impl FnOnce(FileRules) -> FileRules,
    ) -> Result<Self, GrantError> {
        let mut roots = Vec::new();
        let mut real_grants = Vec::new();
        let mut devices = Vec::new();
        for grant in grants {
            let failed = |source: io::Error| GrantError::Open { path: grant.path.clone(), source };
            let dir = Dir::open_ambient_dir(&grant.path, ambient_authority()).map_err(failed)?;
            let path = kernel::real_path(dir.as_fd()).map_err(|errno| match errno {
                kernel::NO_PROC => GrantError::NoProc,
                other => failed(other.into()),
            })?;
            real_grants.push(Grant { path: path.clone(), ..grant.clone() });
            let failed =
                |errno: Errno| GrantError::Open { path: grant.path.clone(), source: errno.into() };
            let kind = rustix::fs::fstatfs(&dir).map_err(failed)?.f_type;
            if kind != mounts::PROC {
                devices.push(rustix::fs::fstat(&dir).map_err(failed)?.st_dev);
            }
            roots.push(Root {
                dir,
                path,
                spelled: grant.path,
                access: grant.access,
                prompt: PROMPT.contains(&kind),
            });
        }
        // This process's environment, memory and descriptors are files there.
        let proc = OwnFolder { path: PathBuf::from("/proc"), secret: true };
        let own = own.into_iter().chain([proc]).collect();
        Ok(Self {
            rules: globs(FileRules::new(real_grants, own)),
            roots,
            devices,
            aliases: Mutex::default(),
        })
    }

    /// Berth's own folders under the other names that current mounts give them. If the mounts can't
    /// be read, the names from the last time.
    pub(crate) fn aliases(&self) -> Arc<[OwnFolder]> {
        let mut known = self.aliases.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(mounts) = Mounts::current() else { return Arc::clone(&known.own) };
        if known.mounts.as_ref().is_none_or(|before| !Arc::ptr_eq(before, &mounts)) {
            let names = |own: &OwnFolder| {
                mounts
                    .other_names(&own.path)
                    .into_iter()
                    .map(move |path| (path, own.secret))
                    .collect::<Vec<_>>()
            };
            // Each procfs is recognised by its type.
            let own = self.rules.own().iter().filter(|own| own.path != Path::new("/proc"));
            let own =
                own.flat_map(names).map(|(path, secret)| OwnFolder { path, secret }).collect();
            *known = Aliases { mounts: Some(mounts), own };
        }
        Arc::clone(&known.own)
    }

    /// Whether the file system of this device may be used like that of a granted directory.
    pub(super) fn is_on_a_granted_device(&self, device: u64) -> bool {
        self.devices.contains(&device)
    }

    /// The rules for the directories.
    pub fn rules(&self) -> &FileRules {
        &self.rules
    }

    /// The directories, in the operator's order.
    pub fn roots(&self) -> &[Root] {
        &self.roots
    }

    /// The innermost root of an absolute path, and the rest of the path below it. Compares
    /// spellings and opens nothing.
    pub(super) fn covering<'p>(&self, path: &'p Path) -> Option<(&Root, &'p Path)> {
        let below = |root: &Root| {
            path.strip_prefix(&root.path).or_else(|_| path.strip_prefix(&root.spelled)).ok()
        };
        let covering = self.roots.iter().filter_map(|root| Some((root, below(root)?)));
        covering.min_by_key(|(_, rest)| rest.components().count())
    }
}

/// The paths that must not change for a path to lead where it does: its target and the name itself,
/// which may be a link that could be replaced.
pub fn with_its_name(own: OwnFolder) -> impl Iterator<Item = OwnFolder> {
    let target = real_or_given(&own.path);
    let name = own
        .path
        .parent()
        .zip(own.path.file_name())
        .map(|(parent, leaf)| real_or_given(parent).join(leaf));
    let name = name.filter(|name| *name != target);
    [Some(target), name].into_iter().flatten().map(move |path| OwnFolder { path, ..own })
}

/// The real path of something that may not exist yet: the real path of the nearest existing folder
/// above it, and the rest. So a folder of Berth's own is protected under its future name.
pub fn real_or_given(path: &Path) -> PathBuf {
    for (depth, ancestor) in path.ancestors().enumerate() {
        // One call shows that it is missing; searching it for links takes one for each folder
        // above.
        if !ancestor.exists() {
            continue;
        }
        if let Ok(real) = ancestor.canonicalize() {
            let mut rest: Vec<_> = path.components().rev().take(depth).collect();
            rest.reverse();
            return rest.into_iter().fold(real, |joined, part| joined.join(part));
        }
    }
    path.to_owned()
}

impl Root {
    /// A second handle of the directory, for a guest that reads its entries.
    ///
    /// # Errors
    ///
    /// The system's, if no more descriptors can be opened.
    pub fn reopen(&self) -> io::Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(&self.dir, 0)?)
    }
}
