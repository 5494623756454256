//! Makes the root directory of a command. It contains only the trees of the command, and the parts
//! of the system that programs need.
//!
//! No name leads out of the view, not even the name of another program's socket, which Landlock
//! doesn't restrict yet. Trees are opened without following links, and cloned from these handles.
//! So no process can replace a tree meanwhile.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

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

pub(super) const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// The controlling terminal of a process. It doesn't exist until a program creates a terminal.
pub(super) const TERMINAL: &str = "/dev/tty";

/// The terminals that programs in the view create with `openpty`. It contains no terminal of the
/// machine.
pub(super) const TERMINALS: &str = "/dev/pts";

/// Maximum number of terminals in the view. All users of the machine share 4096, so a command gets
/// only a part of them.
const MOST_TERMINALS: &str = "64";

/// Private directories. They are empty at first, and are removed with the view.
pub(super) const OWN_WRITABLE: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// The file with the certificates that a command trusts, if it trusts one more than the machine.
pub const AUTHORITIES: &str = "/run/toolhold/certificates.pem";

/// Files and directories in a private directory. An archive unpacked in `/tmp` needs fewer.
const INODES: &str = "262144";

const LINKS: [(&str, &str); 5] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/ptmx", "pts/ptmx"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

#[derive(Debug, thiserror::Error)]
pub(crate) enum ViewError {
    /// A path that was found before is missing now, so it can't be covered.
    #[error("a path was moved in the meantime: {0}")]
    Moved(String),
    #[error("{0}: {1}")]
    Step(&'static str, #[source] io::Error),
    #[error("{0}: {1}")]
    Find(String, #[source] Errno),
    #[error("{0} can't be opened: {1}")]
    Open(String, #[source] Errno),
    #[error("the mount of {0} can't be cloned: {1}")]
    Clone(String, #[source] Errno),
    #[error("{0} can't be mounted: {1}")]
    Mount(String, #[source] Errno),
    #[error("{0} can't be made in the sandbox's file system: {1}")]
    Make(String, #[source] Errno),
    #[error("{0} can't be linked: {1}")]
    Link(String, #[source] Errno),
    #[error("{0} can't be kept in place: {1}")]
    Pin(String, #[source] Errno),
    #[error("{0} can't be protected: {1}")]
    Protect(String, #[source] io::Error),
    #[error("{0} can't be hidden: {1}")]
    Hide(String, #[source] Errno),
}

type Step<T> = Result<T, ViewError>;

pub(super) struct View {
    root: Root,
    /// The object at the path of each tree.
    found: Vec<Option<Identity>>,
    /// Trees inside of other trees, with the numbers of their mounts. If its mount point is
    /// removed, such a tree disappears.
    inner: Vec<(String, u64)>,
    covers: Covers,
}

impl View {
    /// Makes a view with the trees, and enters it as the root directory of this process. Only for
    /// the first process of a process namespace, in its own mount namespace. The error is the step
    /// that failed. The process must then stop.
    pub(super) fn enter(preparation: &Preparation) -> Step<Self> {
        // Mounts must not propagate into or out of this namespace.
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
            .map_err(failed("the mounts can't be separated from those of the machine"))?;
        // All trees are opened before anything is covered.
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
            root.make_directory(path)?;
        }
        // Private directories are separate mounts, so they stay writable.
        for path in own_writable(preparation).filter(|path| *path != "/") {
            root.make_directory(path)?;
            root.pin(path)?;
        }
        for path in leading_directories(preparation) {
            root.make_directory(path)?;
            root.pin(path)?;
        }
        for (name, target) in LINKS {
            symlinkat(target, &root.0, &name[1..])
                .map_err(failed("the links in /dev can't be made"))?;
        }

        let covers = Covers::make(&root, preparation)?;
        root.attach(&proc, "/proc")?;
        root.attach(&terminals, TERMINALS)?;
        for (source, _) in &sources {
            source.attach(&root)?;
        }
        for (path, file) in &covers.replacements {
            root.replace_file(path, file)?;
        }
        let mut inner = Vec::new();
        for tree in inner_trees(&preparation.trees) {
            if let Ok(handle) = root.find(&tree.path) {
                inner.push((tree.path.clone(), mount_of(&handle)?));
            }
        }

        rustix::process::fchdir(&root.0)
            .map_err(failed("the sandbox's file system can't be entered"))?;
        rustix::process::pivot_root(".", ".")
            .map_err(failed("the sandbox's file system can't become the root"))?;
        unmount(".", UnmountFlags::DETACH).map_err(failed("the old root can't be left"))?;
        rustix::process::chdir("/")
            .map_err(failed("the sandbox's file system can't be entered"))?;
        if preparation.home.as_deref() != Some("/") {
            let flags =
                MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
            mount_remount("/", flags, c"")
                .map_err(failed("the sandbox's file system can't be protected"))?;
        }
        Ok(Self { root, found, inner, covers })
    }

    /// Checks that the trees still have their paths, and covers the paths that the program may not
    /// read. The error is the step that failed. The program must then not start.
    pub(super) fn cover(&self, trees: &[Tree], state: &TreeState) -> Step<()> {
        if self.found != state.found {
            let mut pairs = self.found.iter().zip(&state.found);
            let index = pairs.position(|(mounted, current)| mounted != current);
            // If the lists have different lengths, perhaps no entry differs. Then no tree is named.
            let moved = index.and_then(|index| trees.get(index));
            let path = moved.map_or("a tree", |tree| &tree.path);
            return Err(ViewError::Moved(path.to_owned()));
        }
        for (path, mount) in &self.inner {
            let current_mount = mount_of(&self.root.find_known(path)?)?;
            if current_mount != *mount {
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

/// Returns each directory that has a tree below it and is below one of the program's own
/// directories, such as `/tmp`. Outer directories come first. The program may not rename these
/// directories, because undo saves the changes in a tree by their paths.
fn leading_directories(preparation: &Preparation) -> BTreeSet<&str> {
    let mut leading = BTreeSet::new();
    for tree in &preparation.trees {
        let ancestors_and_tree = Path::new(&tree.path).ancestors();
        for above in ancestors_and_tree.skip(1) {
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

fn own_writable(preparation: &Preparation) -> impl Iterator<Item = &str> {
    OWN_WRITABLE.into_iter().chain(preparation.home.as_deref())
}

/// Returns the trees that are inside of other trees. In `trees`, an outer tree comes before its
/// inner trees.
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

fn mount_of(handle: &OwnedFd) -> Step<u64> {
    statx(handle, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)
        .map(|found| found.stx_mnt_id)
        .map_err(failed("a mount can't be found"))
}

fn failed(step: &'static str) -> impl Fn(Errno) -> ViewError {
    move |errno| ViewError::Step(step, errno.into())
}

/// Attributes of a mount without usable devices and set-user-ID bits.
const PRIVATE: MountAttrFlags =
    MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);

/// Makes a new file system that isn't attached to a path yet.
fn mounted(kind: &str, options: &[(&str, &str)], attributes: MountAttrFlags) -> Step<OwnedFd> {
    new_mount(kind, options, attributes).map_err(|errno| ViewError::Mount(kind.to_owned(), errno))
}

/// Makes a new file system of this kind, which isn't attached to a path yet.
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
/// doesn't exist. Doesn't follow links, so it fails if a link has taken the place of a component.
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

enum Source {
    Tree { path: String, clone: OwnedFd, is_directory: bool },
    Link { path: String, target: String },
}

impl Source {
    /// Opens the object at a path. Makes a mount of a file or directory, and reads the target of a
    /// link. Returns the source and its identity, or `None` if the path doesn't exist.
    fn open(path: &str, writable: bool) -> Step<Option<(Self, Identity)>> {
        let Some((handle, kind, identity)) = open_itself(path)? else { return Ok(None) };
        if let Identity::Link(target) = &identity {
            let link = Self::Link { path: path.to_owned(), target: target.clone() };
            return Ok(Some((link, identity)));
        }
        let clone = clone(&handle).map_err(|errno| ViewError::Clone(path.to_owned(), errno))?;
        let is_device = kind == FileType::CharacterDevice;
        let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID;
        attributes.set(MountAttrFlags::MOUNT_ATTR_NODEV, !is_device);
        attributes.set(MountAttrFlags::MOUNT_ATTR_RDONLY, !writable);
        raw::mount_attributes(&clone, attributes.bits().into())
            .map_err(|error| ViewError::Protect(path.to_owned(), error))?;
        let is_directory = kind == FileType::Directory;
        Ok(Some((Self::Tree { path: path.to_owned(), clone, is_directory }, identity)))
    }

    /// Adds the tree or link to the view, with the same path.
    fn attach(&self, root: &Root) -> Step<()> {
        match self {
            Self::Tree { path, clone, is_directory } => {
                if *is_directory {
                    root.make_directory(path)?;
                } else {
                    root.make_file(path)?;
                }
                root.attach(clone, path)
            }
            Self::Link { path, target } => {
                let (above, leaf) = split(path);
                root.make_directory(above)?;
                let above = root
                    .find(above)
                    .map_err(failed("a link can't be made in the sandbox's file system"))?;
                match symlinkat(target.as_str(), above, leaf) {
                    // The view may already have an object with this name, such as `/dev/stdin`.
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

struct Root(OwnedFd);

impl Root {
    /// Makes the root of the view, an empty file system with at most `size` bytes.
    fn make(size: u64) -> Step<Self> {
        let size_option = size.to_string();
        let options = [("size", size_option.as_str()), ("nr_inodes", INODES), ("mode", "0755")];
        let root = mounted("tmpfs", &options, PRIVATE)?;
        // The mount may cover any directory, because all needed objects of the old root are open.
        let mount_point = if Path::new("/tmp").is_dir() { "/tmp" } else { "/proc" };
        move_mount(&root, c"", CWD, mount_point, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(failed("the sandbox's file system can't be mounted"))?;
        Ok(Self(root))
    }

    /// Opens the object at an absolute path in the view. Follows no links.
    fn find(&self, path: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // The path starts with a slash. The path `/` means the root of the view itself.
        let relative_path = if path.len() > 1 { &path[1..] } else { "." };
        openat2(
            &self.0,
            relative_path,
            flags,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
        )
    }

    /// Makes a directory in the view, and the directories above it.
    fn make_directory(&self, path: &str) -> Step<()> {
        if path == "/" {
            return Ok(());
        }
        if self.find(path).is_ok() {
            return Ok(());
        }
        let (above, leaf) = split(path);
        self.make_directory(above)?;
        // The view has only this user. So this mode is enough, even for a directory such as `/tmp`
        // that is usually writable for all users.
        let mode = Mode::from_raw_mode(0o755);
        let made = self.find(above).and_then(|above| mkdirat(above, leaf, mode));
        made.map_err(|errno| ViewError::Make(path.to_owned(), errno))
    }

    /// Creates an empty file as a mount point, unless the path exists.
    fn make_file(&self, path: &str) -> Step<()> {
        let (above, leaf) = split(path);
        self.make_directory(above)?;
        if self.find(path).is_ok() {
            return Ok(());
        }
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o644);
        let made = self.find(above).and_then(|above| rustix::fs::openat(above, leaf, flags, mode));
        made.map(drop).map_err(|errno| ViewError::Make(path.to_owned(), errno))
    }

    fn attach(&self, mount: &OwnedFd, path: &str) -> Step<()> {
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        self.find(path)
            .and_then(|target| move_mount(mount, c"", target, c"", flags))
            .map_err(|errno| ViewError::Mount(path.to_owned(), errno))
    }

    /// Mounts `file` over the file at a path. Follows links. Creates a missing file, unless its
    /// directory belongs to the machine.
    fn replace_file(&self, path: &str, file: &OwnedFd) -> Step<()> {
        let mut path = Path::new(path).to_owned();
        for _ in 0..MAX_LINKS {
            let Some(name) = path.to_str() else { return Ok(()) };
            let Ok(found) = self.find(name) else {
                // The mount point would remain in a directory of the machine that is granted.
                if !self.is_own_directory(&path)? {
                    return Ok(());
                }
                return match self.make_file(name) {
                    Ok(()) => self.mount_copy(file, name),
                    Err(_) => Ok(()),
                };
            };
            let Ok(target) = rustix::fs::readlinkat(&found, c"", Vec::new()) else {
                return self.mount_copy(file, name);
            };
            // A link has a parent, because the root directory isn't a link.
            let folder = path.parent().unwrap_or(Path::new("/"));
            path = normalized(&folder.join(OsStr::from_bytes(target.as_bytes())));
        }
        Ok(())
    }

    /// Checks whether the nearest existing directory above a path is in the view's own file system.
    fn is_own_directory(&self, path: &Path) -> Step<bool> {
        for above in path.ancestors().skip(1).filter_map(Path::to_str) {
            if let Ok(directory) = self.find(above) {
                return Ok(mount_of(&directory)? == mount_of(&self.0)?);
            }
        }
        Ok(false)
    }

    fn mount_copy(&self, file: &OwnedFd, path: &str) -> Step<()> {
        let copy = clone(file).map_err(|errno| ViewError::Clone(path.to_owned(), errno))?;
        self.attach(&copy, path)
    }

    /// Opens a path that existed before. If the path is missing, the object was moved, which is an
    /// error.
    fn find_known(&self, path: &str) -> Step<OwnedFd> {
        self.find(path).map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => ViewError::Moved(path.to_owned()),
            errno => ViewError::Find(path.to_owned(), errno),
        })
    }

    /// Makes a directory or a link a mount point by mounting the object at its own path. A mount
    /// point can't be renamed, removed or exchanged.
    fn pin(&self, path: &str) -> Step<()> {
        let target = self.find_known(path)?;
        let copy = clone(&target).map_err(|errno| ViewError::Pin(path.to_owned(), errno))?;
        self.attach(&copy, path)
    }

    /// Makes the object at a path read-only, by mounting a read-only copy at the same path.
    fn freeze(&self, path: &str) -> Step<()> {
        let target = self.find_known(path)?;
        let stat = rustix::fs::fstat(&target)
            .map_err(|errno| ViewError::Protect(path.to_owned(), errno.into()))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            // A link can only be replaced, not written. Its target is frozen separately.
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

/// An empty file and an empty directory that can't be opened. They cover paths that may not be
/// read.
struct Covers {
    file: OwnedFd,
    directory: OwnedFd,
    /// Files that make programs ask the host for addresses, and trust the host's certificate, with
    /// the paths that they replace.
    replacements: Vec<(&'static str, OwnedFd)>,
}

/// The settings with which programs find the addresses of hosts.
const NAME_SERVICE: [(&str, &str, &str); 3] = [
    ("/etc/resolv.conf", "resolv.conf", "nameserver 127.0.0.1\n"),
    (
        "/etc/nsswitch.conf",
        "nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files dns\nnetworks: files\nprotocols: files\n\
         services: files\n",
    ),
    ("/etc/hosts", "hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"),
];

/// The files with the certificates that programs trust, on the usual systems.
const BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Bytes of the certificates that are copied. The certificates of the usual systems have less than
/// 512 KiB.
const MAX_BUNDLE: u64 = 4 << 20;

/// Links that are followed to a file.
const MAX_LINKS: usize = 8;

/// Bytes of the file system with the covers.
const COVERS_SIZE: &str = "8m";

/// The mount point of the covers. The mount of `/proc` hides it, so no name leads to it.
const COVERS: &str = "/proc";

impl Covers {
    /// Makes the empty directory and the empty file that cover hidden objects. Also makes the
    /// settings for finding addresses, and the certificates, if the command needs them.
    fn make(root: &Root, preparation: &Preparation) -> Step<Self> {
        let mount = mounted("tmpfs", &[("size", COVERS_SIZE), ("mode", "0755")], PRIVATE)?;
        root.attach(&mount, COVERS)?;
        let covers = Self::make_in(&mount, preparation)
            .map_err(failed("the files that hide denied files can't be made"))?;
        // The clones of this mount are read-only too.
        raw::mount_attributes(&mount, MountAttrFlags::MOUNT_ATTR_RDONLY.bits().into()).map_err(
            |error| ViewError::Step("the files that hide denied files can't be made", error),
        )?;
        Ok(covers)
    }

    fn make_in(mount: &OwnedFd, preparation: &Preparation) -> Result<Self, Errno> {
        mkdirat(mount, "directory", Mode::empty())?;
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::openat(mount, "file", flags, Mode::empty())?;
        let mut replacements = Vec::new();
        let settings = if preparation.relayed { &NAME_SERVICE[..] } else { &[] };
        for (path, name, text) in settings {
            write_cover(mount, name, text.as_bytes())?;
            replacements.push((*path, open_cover(mount, name)?));
        }
        if let Some(certificate) = &preparation.authority {
            let name = "certificates";
            write_cover(mount, name, &bundle(certificate))?;
            for path in BUNDLES.into_iter().chain([AUTHORITIES]) {
                replacements.push((path, open_cover(mount, name)?));
            }
        }
        let file = open_cover(mount, "file")?;
        let directory = open_cover(mount, "directory")?;
        Ok(Self { file, directory, replacements })
    }

    /// Covers the object at a path with an empty object.
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

/// Returns the certificates that the machine trusts, and one more.
fn bundle(certificate: &str) -> Vec<u8> {
    let mut all = Vec::new();
    for path in BUNDLES {
        let opened = std::fs::File::open(path);
        let read = opened.and_then(|file| file.take(MAX_BUNDLE).read_to_end(&mut all));
        if read.is_ok() && !all.is_empty() {
            break;
        }
        all.clear();
    }
    // The last line of the machine's file may have no end.
    all.push(b'\n');
    all.extend_from_slice(certificate.as_bytes());
    all
}

/// Creates a file with the content `bytes` in `mount`, the file system of the covers.
fn write_cover(mount: &OwnedFd, name: &str, bytes: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(mount, name, flags, Mode::from_raw_mode(0o444))?;
    let mut rest = bytes;
    // One call of `write` may write only some of the bytes.
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = &rest[written..];
    }
    Ok(())
}

/// Opens a file or directory in `mount`, the file system of the covers, to attach copies of it over
/// other objects.
fn open_cover(mount: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    openat2(mount, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::BENEATH)
}

/// Returns an absolute path without `.` and `..`.
fn normalized(path: &Path) -> PathBuf {
    let mut normal = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => {
                normal.pop();
            }
            _ => {}
        }
    }
    normal
}

fn split(path: &str) -> (&str, &str) {
    let (above, leaf) = path.rsplit_once('/').unwrap_or(("", path));
    (if above.is_empty() { "/" } else { above }, leaf)
}
