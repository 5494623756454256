//! Makes the root directory that a command sees. It has only the trees of the command and the parts
//! of the system that programs need.
//!
//! No name reaches an object outside the view, not even the socket of another program, which
//! Landlock doesn't restrict yet. Trees are cloned from handles that were opened without following
//! links, so that no process can replace a tree meanwhile.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags, mkdirat, openat2, statx,
    symlinkat,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
    mount_change, mount_remount, move_mount, open_tree, unmount,
};

use super::raw;
use super::spec::{Identity, Preparation, Tree, TreeAccess, TreeState};

/// Devices without data.
pub(super) const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// The controlling terminal of a process. It is missing until a program creates one.
pub(super) const TERMINAL: &str = "/dev/tty";

/// The terminals that programs in the view create with `openpty`. No terminal of the machine is in
/// this directory.
pub(super) const TERMINALS: &str = "/dev/pts";

/// The most terminals in the view at the same time. All users of the machine share 4096 terminals.
const MOST_TERMINALS: &str = "64";

/// Private directories, which are initially empty. They are removed with the view.
pub(super) const OWN_WRITABLE: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// The most files and directories in a private directory. This is enough for an unpacked archive in
/// `/tmp`.
const INODES: &str = "262144";

const LINKS: [(&str, &str); 5] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/ptmx", "pts/ptmx"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

/// A step of making a view that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ViewError {
    /// A path that was found before is now missing, so it isn't covered.
    #[error("moved meanwhile: {0}")]
    Moved(String),
    /// A step without a path.
    #[error("{0}: {1}")]
    Step(&'static str, #[source] io::Error),
    /// A path isn't found in the view.
    #[error("{0}: {1}")]
    Find(String, #[source] Errno),
    #[error("opening {0}: {1}")]
    Open(String, #[source] Errno),
    #[error("cloning {0}: {1}")]
    Clone(String, #[source] Errno),
    #[error("mounting {0}: {1}")]
    Mount(String, #[source] Errno),
    #[error("making {0} in the view: {1}")]
    Make(String, #[source] Errno),
    #[error("linking {0}: {1}")]
    Link(String, #[source] Errno),
    #[error("keeping {0} in its place: {1}")]
    Pin(String, #[source] Errno),
    #[error("protecting {0}: {1}")]
    Protect(String, #[source] io::Error),
    #[error("hiding {0}: {1}")]
    Hide(String, #[source] Errno),
}

type Step<T> = Result<T, ViewError>;

/// The view of a process that has entered the view.
pub(super) struct View {
    root: Root,
    /// The objects of the paths of the trees.
    found: Vec<Option<Identity>>,
    /// Trees inside of other trees, with their mounts. Such a tree would disappear together with
    /// its mount point.
    inner: Vec<(String, u64)>,
    covers: Covers,
}

impl View {
    /// Creates a view with the trees, and makes it the root directory of this process. Only for the
    /// first process of a process namespace, in its own mount namespace.
    ///
    /// # Errors
    ///
    /// Returns the step that failed. The process must then stop.
    pub(super) fn enter(preparation: &Preparation) -> Step<Self> {
        // Mounts don't propagate into or out of this namespace.
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
            .map_err(failed("taking the mounts apart"))?;
        // All are opened before anything is covered.
        let mut sources = Vec::new();
        let mut found = Vec::new();
        for tree in &preparation.trees {
            let source = Source::open(&tree.path, tree.access == TreeAccess::Write)?;
            found.push(source.as_ref().map(|(_, identity)| identity.clone()));
            sources.extend(source);
        }
        for device in DEVICES.map(|device| format!("/dev/{device}")) {
            sources.extend(Source::open(&device, true)?);
        }
        sources.extend(Source::open(TERMINAL, true)?);

        let root = Root::make(preparation.limits.scratch)?;
        let proc = mounted("proc", &[], PRIVATE | MountAttrFlags::MOUNT_ATTR_RDONLY)?;
        let options = [("ptmxmode", "0666"), ("mode", "0600"), ("max", MOST_TERMINALS)];
        let terminals = mounted("devpts", &options, MountAttrFlags::MOUNT_ATTR_NOSUID)?;
        for path in ["/proc", "/run", TERMINALS] {
            root.directory(path)?;
        }
        // Private directories are separate mounts, so that they stay writable.
        for path in own_writable(preparation).filter(|path| *path != "/") {
            root.directory(path)?;
            root.pin(path)?;
        }
        for path in leading_directories(preparation) {
            root.directory(path)?;
            root.pin(path)?;
        }
        for (name, target) in LINKS {
            symlinkat(target, &root.0, &name[1..]).map_err(failed("making /dev"))?;
        }

        let covers = Covers::make(&root)?;
        root.attach(&proc, "/proc")?;
        root.attach(&terminals, TERMINALS)?;
        for (source, _) in &sources {
            source.attach(&root)?;
        }
        let mut inner = Vec::new();
        for tree in inner_trees(&preparation.trees) {
            if let Ok(handle) = root.find(&tree.path) {
                inner.push((tree.path.clone(), mount_of(&handle)?));
            }
        }

        rustix::process::fchdir(&root.0).map_err(failed("entering the view"))?;
        rustix::process::pivot_root(".", ".").map_err(failed("making the view the root"))?;
        unmount(".", UnmountFlags::DETACH).map_err(failed("leaving the old root"))?;
        rustix::process::chdir("/").map_err(failed("entering the view"))?;
        if preparation.home.as_deref() != Some("/") {
            let flags =
                MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
            mount_remount("/", flags, c"").map_err(failed("protecting the view"))?;
        }
        Ok(Self { root, found, inner, covers })
    }

    /// Checks that the trees still have their paths, and covers the paths that the program may not
    /// read.
    ///
    /// # Errors
    ///
    /// Returns the step that failed. The program must then not start.
    pub(super) fn cover(&self, trees: &[Tree], state: &TreeState) -> Step<()> {
        if self.found != state.found {
            let mut pairs = self.found.iter().zip(&state.found);
            let index = pairs.position(|(found, now)| found != now);
            let moved = index.and_then(|index| trees.get(index));
            let path = moved.map_or("a tree", |tree| &tree.path);
            return Err(ViewError::Moved(path.to_owned()));
        }
        for (path, mount) in &self.inner {
            if mount_of(&self.root.find_known(path)?)? != *mount {
                return Err(ViewError::Moved(path.clone()));
            }
        }
        for path in &state.pinned {
            self.root.pin(path)?;
        }
        for path in &state.hidden {
            self.covers.hide(&self.root, path)?;
        }
        for path in &state.frozen {
            self.root.freeze(path)?;
        }
        Ok(())
    }
}

/// Returns the directories inside private ones that lead to trees, outer directories first. They
/// can't be renamed, because undo saves changes in a tree by their paths.
fn leading_directories(preparation: &Preparation) -> BTreeSet<&str> {
    let mut leading = BTreeSet::new();
    for tree in &preparation.trees {
        for above in Path::new(&tree.path).ancestors().skip(1) {
            let is_in_private = own_writable(preparation)
                .map(Path::new)
                .any(|own| above != own && above.starts_with(own));
            if is_in_private {
                leading.extend(above.to_str());
            }
        }
    }
    leading
}

/// Returns the private directories, with the home.
fn own_writable(preparation: &Preparation) -> impl Iterator<Item = &str> {
    OWN_WRITABLE.into_iter().chain(preparation.home.as_deref())
}

/// Returns the trees inside of other trees.
fn inner_trees(trees: &[Tree]) -> Vec<&Tree> {
    let mut inner = Vec::new();
    for (index, tree) in trees.iter().enumerate() {
        let mut before = trees[..index].iter();
        if before.any(|outer| Path::new(&tree.path).starts_with(&outer.path)) {
            inner.push(tree);
        }
    }
    inner
}

/// Returns the number of the mount that a handle is in.
fn mount_of(handle: &OwnedFd) -> Step<u64> {
    statx(handle, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)
        .map(|found| found.stx_mnt_id)
        .map_err(failed("finding a mount"))
}

fn failed(step: &'static str) -> impl Fn(Errno) -> ViewError {
    move |errno| ViewError::Step(step, errno.into())
}

/// Attributes of a file system without effective devices and set-user-ID bits.
const PRIVATE: MountAttrFlags =
    MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);

/// Makes a new file system, without a place yet.
fn mounted(kind: &str, options: &[(&str, &str)], attributes: MountAttrFlags) -> Step<OwnedFd> {
    new_mount(kind, options, attributes).map_err(|errno| ViewError::Mount(kind.to_owned(), errno))
}

fn new_mount(
    kind: &str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
) -> Result<OwnedFd, Errno> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(context.as_fd(), *key, *value)?;
    }
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Opens the object at a real path, and returns its kind and identity. Returns `None` if the path
/// doesn't exist. No link is followed: if a component has become a link, the path has moved.
pub(crate) fn open_itself(path: &str) -> Step<Option<(OwnedFd, FileType, Identity)>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let handle = match openat2(CWD, path, flags, Mode::empty(), resolve) {
        Ok(handle) => handle,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP | Errno::NOTDIR) => return Err(ViewError::Moved(path.to_owned())),
        Err(errno) => return Err(ViewError::Open(path.to_owned(), errno)),
    };
    let stat =
        rustix::fs::fstat(&handle).map_err(|errno| ViewError::Open(path.to_owned(), errno))?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let identity = if kind == FileType::Symlink {
        let target = rustix::fs::readlinkat(&handle, c"", Vec::new())
            .map_err(|errno| ViewError::Open(path.to_owned(), errno))?;
        Identity::Link(target.to_string_lossy().into_owned())
    } else {
        Identity::Object { device: stat.st_dev, inode: stat.st_ino }
    };
    Ok(Some((handle, kind, identity)))
}

/// A part of the view: a clone of a tree, a link, or nothing.
enum Source {
    Tree { path: String, clone: OwnedFd, is_directory: bool },
    Link { path: String, target: String },
}

impl Source {
    /// Opens the object at a path, and returns its identity. Returns `None` if the path doesn't
    /// exist.
    fn open(path: &str, writable: bool) -> Step<Option<(Self, Identity)>> {
        let Some((handle, kind, identity)) = open_itself(path)? else { return Ok(None) };
        if let Identity::Link(target) = &identity {
            let link = Self::Link { path: path.to_owned(), target: target.clone() };
            return Ok(Some((link, identity)));
        }
        let clone = clone(&handle).map_err(|errno| ViewError::Clone(path.to_owned(), errno))?;
        let device = kind == FileType::CharacterDevice;
        let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID;
        attributes.set(MountAttrFlags::MOUNT_ATTR_NODEV, !device);
        attributes.set(MountAttrFlags::MOUNT_ATTR_RDONLY, !writable);
        raw::mount_attributes(&clone, attributes.bits().into())
            .map_err(|error| ViewError::Protect(path.to_owned(), error))?;
        let is_directory = kind == FileType::Directory;
        Ok(Some((Self::Tree { path: path.to_owned(), clone, is_directory }, identity)))
    }

    fn attach(&self, root: &Root) -> Step<()> {
        match self {
            Self::Tree { path, clone, is_directory } => {
                if *is_directory {
                    root.directory(path)?;
                } else {
                    root.file(path)?;
                }
                root.attach(clone, path)
            }
            Self::Link { path, target } => {
                let (above, leaf) = split(path);
                root.directory(above)?;
                let above = root.find(above).map_err(failed("making the view"))?;
                match symlinkat(target.as_str(), above, leaf) {
                    Ok(()) | Err(Errno::EXIST) => Ok(()),
                    Err(errno) => Err(ViewError::Link(path.clone(), errno)),
                }
            }
        }
    }
}

fn clone(handle: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(handle, c"", flags | OpenTreeFlags::AT_EMPTY_PATH)
}

/// The new root, while it is built.
struct Root(OwnedFd);

impl Root {
    fn make(size: u64) -> Step<Self> {
        let size = size.to_string();
        let options = [("size", size.as_str()), ("nr_inodes", INODES), ("mode", "0755")];
        let root = mounted("tmpfs", &options, PRIVATE)?;
        // Any place is possible, since all needed objects of the old root are open.
        let place = if Path::new("/tmp").is_dir() { "/tmp" } else { "/proc" };
        move_mount(&root, c"", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(failed("mounting the view"))?;
        Ok(Self(root))
    }

    /// Opens a path in the view without following links.
    fn find(&self, path: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = if path.len() > 1 { &path[1..] } else { "." };
        openat2(
            &self.0,
            path,
            flags,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
        )
    }

    /// Creates a directory and its parents.
    fn directory(&self, path: &str) -> Step<()> {
        if path == "/" {
            return Ok(());
        }
        if self.find(path).is_ok() {
            return Ok(());
        }
        let (above, leaf) = split(path);
        self.directory(above)?;
        // Inside the view there is no other user, so a directory that this user or all users may
        // write to can belong to this user.
        let made =
            self.find(above).and_then(|above| mkdirat(above, leaf, Mode::from_raw_mode(0o755)));
        made.map_err(|errno| ViewError::Make(path.to_owned(), errno))
    }

    /// Creates an empty file as a mount point.
    fn file(&self, path: &str) -> Step<()> {
        let (above, leaf) = split(path);
        self.directory(above)?;
        if self.find(path).is_ok() {
            return Ok(());
        }
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.find(above)
            .and_then(|above| rustix::fs::openat(above, leaf, flags, Mode::from_raw_mode(0o644)))
            .map(drop)
            .map_err(|errno| ViewError::Make(path.to_owned(), errno))
    }

    fn attach(&self, mount: &OwnedFd, path: &str) -> Step<()> {
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        self.find(path)
            .and_then(|target| move_mount(mount, c"", target, c"", flags))
            .map_err(|errno| ViewError::Mount(path.to_owned(), errno))
    }

    /// Opens a path that existed before. A missing path is an error, because it has moved.
    fn find_known(&self, path: &str) -> Step<OwnedFd> {
        self.find(path).map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => ViewError::Moved(path.to_owned()),
            errno => ViewError::Find(path.to_owned(), errno),
        })
    }

    /// Prevents changes of the name of a directory or a link: a mount point can't be renamed,
    /// removed or exchanged.
    fn pin(&self, path: &str) -> Step<()> {
        let target = self.find_known(path)?;
        let copy = clone(&target).map_err(|errno| ViewError::Pin(path.to_owned(), errno))?;
        self.attach(&copy, path)
    }

    /// Makes a path read-only.
    fn freeze(&self, path: &str) -> Step<()> {
        let target = self.find_known(path)?;
        let stat = rustix::fs::fstat(&target)
            .map_err(|errno| ViewError::Protect(path.to_owned(), errno.into()))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            // Writing to a link isn't possible. The link's target is checked by its own path.
            return self.pin(path);
        }
        let copy =
            clone(&target).map_err(|errno| ViewError::Protect(path.to_owned(), errno.into()))?;
        let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY.bits().into();
        raw::mount_attributes(&copy, attributes)
            .map_err(|error| ViewError::Protect(path.to_owned(), error))?;
        self.attach(&copy, path)
    }
}

/// Covers for paths that may not be read: an empty file and an empty directory that can't be
/// opened.
struct Covers {
    file: OwnedFd,
    directory: OwnedFd,
}

/// The place of the covers. It is below the mount of `/proc`, so no name leads to it.
const COVERS: &str = "/proc";

impl Covers {
    fn make(root: &Root) -> Step<Self> {
        let mount = mounted("tmpfs", &[("size", "4k"), ("mode", "0755")], PRIVATE)?;
        root.attach(&mount, COVERS)?;
        let covers = Self::make_in(&mount).map_err(failed("making what hides files"))?;
        // The clones of this mount are read-only too.
        raw::mount_attributes(&mount, MountAttrFlags::MOUNT_ATTR_RDONLY.bits().into())
            .map_err(|error| ViewError::Step("making what hides files", error))?;
        Ok(covers)
    }

    fn make_in(mount: &OwnedFd) -> Result<Self, Errno> {
        mkdirat(mount, "directory", Mode::empty())?;
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::openat(mount, "file", flags, Mode::empty())?;
        Ok(Self { file: open_cover(mount, "file")?, directory: open_cover(mount, "directory")? })
    }

    /// Covers a path.
    fn hide(&self, root: &Root, path: &str) -> Step<()> {
        let target = root.find_known(path)?;
        let stat =
            rustix::fs::fstat(&target).map_err(|errno| ViewError::Hide(path.to_owned(), errno))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Symlink {
            // The target of the link is covered itself, or isn't in the view.
            return root.pin(path);
        }
        let cover = if kind == FileType::Directory { &self.directory } else { &self.file };
        let copy = clone(cover).map_err(|errno| ViewError::Hide(path.to_owned(), errno))?;
        root.attach(&copy, path)
    }
}

fn open_cover(mount: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    openat2(mount, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::BENEATH)
}

/// Splits a path into its directory and its last component.
fn split(path: &str) -> (&str, &str) {
    let (above, leaf) = path.rsplit_once('/').unwrap_or(("", path));
    (if above.is_empty() { "/" } else { above }, leaf)
}
