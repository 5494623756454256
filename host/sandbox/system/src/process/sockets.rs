//! Finds sockets and pipes of other programs in a command's directories. Through a socket, a
//! command could make another program act for it. A read-only mount doesn't prevent writing to a
//! pipe.
//!
//! A network namespace blocks only sockets without a path. So sockets with a path are searched and
//! covered before a command runs. The kernel then reports each name that appears or disappears in a
//! searched directory, and the next search checks only these names.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{CStr, CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use toolhold_policy::files::OWN_NAMES;

use super::limits::{MAX_CHECKED, MAX_DEPTH, PlacesError};
use crate::confine::Identity;
use crate::mounts::Mounts;

const BUFFER: usize = 32 << 10;

/// Limits for the watched directories and the bytes of each path. Beyond them, each search checks
/// everything. They are low, because editors need watches too, and older kernels allow a user only
/// 8,192.
const MAX_WATCHED: usize = 4_096;
const MAX_LENGTH: usize = 256;

/// Remembered sockets, pipes and own files, and names that are checked one by one. Beyond this
/// number, each search checks everything.
const MAX_NAMES: usize = 1_000;

/// File systems whose names change only through this kernel, which reports each change: ext, XFS,
/// Btrfs, F2FS, tmpfs and overlays. A socket in a layer of an overlay can't be reached through the
/// overlay.
const LOCAL: [i64; 6] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994, 0x794c_7630];

#[derive(Clone, Debug, Default)]
pub(super) struct SocketScan {
    /// Sockets with a listener.
    pub(super) sockets: Vec<PathBuf>,
    pub(super) pipes: Vec<PathBuf>,
    /// Directories that can't be read. A program that knows the name of a socket in such a
    /// directory may still reach it.
    pub(super) unreadable: Vec<PathBuf>,
    pub(super) own_names: Vec<PathBuf>,
}

#[derive(Debug, Default)]
pub(super) struct RememberedScan(Mutex<Option<Box<Walk>>>);

/// The directories of a search, and the paths that it leaves out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scope {
    /// The directories, and the object at the path of each.
    pub(super) roots: Vec<(PathBuf, Option<Identity>)>,
    /// The paths that are left out, with everything below them.
    pub(super) skipped: BTreeSet<PathBuf>,
}

impl Scope {
    /// Returns the number of levels between a folder and its root.
    fn depth_of(&self, folder: &Path) -> usize {
        for (root, _) in &self.roots {
            if let Ok(below) = folder.strip_prefix(root) {
                return below.components().count();
            }
        }
        // The watched folders are below the roots, so this doesn't happen.
        0
    }

    fn leaves_out(&self, path: &Path) -> bool {
        path.ancestors().any(|above| self.skipped.contains(above))
    }
}

impl RememberedScan {
    /// Searches everything below the roots, except for the paths that the scope leaves out. Doesn't
    /// follow links. If the kernel has reported all changes since the last search, only these
    /// changes are checked.
    pub(super) fn search(
        &self,
        scope: Scope,
        mounts: &Arc<Mounts>,
    ) -> Result<SocketScan, PlacesError> {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last_walk = remembered.take();
        // If the last search couldn't watch all directories, this search doesn't watch any.
        let is_watchable = last_walk.as_ref().is_none_or(|walk| walk.watches.is_some());
        if let Some(mut walk) = last_walk
            && walk.scope == scope
            && Arc::ptr_eq(&walk.mounts, mounts)
            && let Some(scan) = walk.update()
        {
            *remembered = Some(walk);
            return Ok(scan);
        }

        let watches = if is_watchable { Watches::new() } else { None };
        let mut walk = Walk {
            scope,
            mounts: Arc::clone(mounts),
            found: SocketScan::default(),
            watches,
            entries_left: MAX_CHECKED,
            buffer: Vec::with_capacity(BUFFER),
        };
        for (root, identity) in walk.scope.roots.clone() {
            walk.check_root(&root, identity.as_ref())?;
        }
        walk.stop_watching_if_unsure();
        let scan = walk.result();
        *remembered = Some(Box::new(walk));
        Ok(scan)
    }
}

#[derive(Debug)]
struct Watches {
    queue: OwnedFd,
    folders: HashMap<i32, PathBuf>,
}

impl Watches {
    fn new() -> Option<Self> {
        let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        Some(Self { queue, folders: HashMap::new() })
    }

    /// Watches an open directory. Returns true if the kernel reports all of its changes.
    fn add(&mut self, folder: &OwnedFd, path: &Path) -> bool {
        let is_local = rustix::fs::fstatfs(folder).is_ok_and(|fs| LOCAL.contains(&fs.f_type));
        let events = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE;
        let link = format!("/proc/self/fd/{}", folder.as_raw_fd());
        let Ok(watch) = inotify::add_watch(&self.queue, link, events) else { return false };
        // A directory that is mounted twice has only one watch, so its changes would be reported
        // for only one path.
        let previous_path = self.folders.insert(watch, path.to_owned());
        let has_one_path = previous_path.is_none_or(|previous| previous == path);
        let is_within_limits =
            self.folders.len() <= MAX_WATCHED && path.as_os_str().len() <= MAX_LENGTH;
        is_local && is_within_limits && has_one_path
    }

    /// Returns the paths whose names have appeared or disappeared since the last call. Returns
    /// `None` if there are too many paths, or some paths are unknown.
    fn read_changed_paths(&mut self) -> Option<BTreeSet<PathBuf>> {
        let mut changed = BTreeSet::new();
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut events = Reader::new(&self.queue, &mut buffer);
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Some(changed),
                Err(Errno::INTR) => continue,
                Err(_) => return None,
            };
            let flags = event.events();
            if flags.contains(ReadFlags::IGNORED) {
                // The directory was removed, so its watch has ended. The watch of its parent
                // reports the name.
                self.folders.remove(&event.wd());
                continue;
            }
            let is_incomplete = flags.intersects(ReadFlags::QUEUE_OVERFLOW | ReadFlags::UNMOUNT);
            let is_move = flags.intersects(ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO);
            // Everything below a moved directory has another path now.
            let is_moved_directory = is_move && flags.contains(ReadFlags::ISDIR);
            if is_incomplete || is_moved_directory || changed.len() == MAX_NAMES {
                return None;
            }
            let folder = self.folders.get(&event.wd())?;
            changed.insert(folder.join(OsStr::from_bytes(event.file_name()?.to_bytes())));
        }
    }
}

#[derive(Debug)]
struct Walk {
    scope: Scope,
    /// The mounts during the search. With other mounts, the paths may lead elsewhere.
    mounts: Arc<Mounts>,
    /// All sockets. A socket without a listener may get one soon.
    found: SocketScan,
    /// `None` if the kernel doesn't report all changes, or there are too many directories.
    watches: Option<Watches>,
    entries_left: usize,
    buffer: Vec<u8>,
}

impl Walk {
    /// Returns the findings without the sockets that have no listener.
    fn result(&self) -> SocketScan {
        let mut scan = self.found.clone();
        scan.sockets.retain(|path| has_listener(path));
        scan
    }

    /// Stops watching if there are too many names to remember, or a directory can't be read. The
    /// next search then checks everything.
    fn stop_watching_if_unsure(&mut self) {
        let SocketScan { sockets, pipes, unreadable, own_names } = &self.found;
        let is_too_much = sockets.len() + pipes.len() + own_names.len() > MAX_NAMES;
        let has_unreadable = !unreadable.is_empty();
        // If a known socket can't be reached any more, its directory has become unreadable. Only a
        // complete search reports such a directory.
        let has_lost_socket = sockets.iter().any(|path| is_out_of_reach(path));
        if is_too_much || has_unreadable || has_lost_socket {
            self.watches = None;
        }
    }

    /// Checks the names whose changes the kernel reports. Returns `None` if a complete search is
    /// needed.
    fn update(&mut self) -> Option<SocketScan> {
        for path in self.watches.as_mut()?.read_changed_paths()? {
            self.check_name(path).ok()?;
        }
        self.stop_watching_if_unsure();
        if self.watches.is_some() { Some(self.result()) } else { None }
    }

    /// Checks everything below a root. `identity` is the object that the root is expected to be.
    fn check_root(&mut self, root: &Path, identity: Option<&Identity>) -> Result<(), PlacesError> {
        if self.scope.leaves_out(root) {
            return Ok(());
        }
        let folder = match rustix::fs::openat(CWD, root, DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(()),
            opened => opened.map_err(unreadable(root))?,
        };
        let stat = rustix::fs::fstat(&folder).map_err(unreadable(root))?;
        let current = Identity::Object { device: stat.st_dev, inode: stat.st_ino };
        if identity != Some(&current) {
            // Another object has just replaced the root. The next search must check this object
            // completely, so its changes aren't watched.
            self.watches = None;
        }
        let depth = 0;
        self.check_folder(&folder, &mut root.to_owned(), depth)
    }

    /// Checks a name again after a change, and everything below it.
    fn check_name(&mut self, mut path: PathBuf) -> Result<(), PlacesError> {
        let SocketScan { sockets, pipes, own_names, .. } = &mut self.found;
        for known_paths in [sockets, pipes, own_names] {
            known_paths.retain(|known| !known.starts_with(&path));
        }
        // A watched name has a parent and no NUL byte, so these two lines never return.
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        let Ok(name) = CString::new(name.as_bytes()) else { return Ok(()) };
        let depth = self.scope.depth_of(folder);
        let folder = match openat2(CWD, folder, DIRECTORY, Mode::empty(), ResolveFlags::NO_SYMLINKS)
        {
            // The directory was removed or replaced meanwhile.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            opened => opened.map_err(unreadable(folder))?,
        };
        let kind = match rustix::fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            stat => FileType::from_raw_mode(stat.map_err(unreadable(&path))?.st_mode),
        };
        self.entries_left = self.entries_left.checked_sub(1).ok_or(PlacesError::TooMany)?;
        if kind == FileType::Directory {
            return self.enter(&folder, &name, &mut path, depth);
        }
        path.pop();
        self.remember_file(kind, &path, &name);
        Ok(())
    }

    /// Remembers a file if it is a socket or a pipe, or has one of Toolhold's own names.
    fn remember_file(&mut self, kind: FileType, folder: &Path, name: &CStr) {
        let name = OsStr::from_bytes(name.to_bytes());
        match kind {
            FileType::Socket => {
                let path = folder.join(name);
                if !self.scope.leaves_out(&path) {
                    self.found.sockets.push(path);
                }
            }
            FileType::Fifo => self.found.pipes.push(folder.join(name)),
            FileType::RegularFile if OWN_NAMES.iter().any(|own| name.eq_ignore_ascii_case(own)) => {
                self.found.own_names.push(folder.join(name));
            }
            // A command can't make another program act through other objects.
            _ => {}
        }
    }

    /// Checks everything below an open directory. `path` is its path, which is unchanged
    /// afterwards.
    fn check_folder(
        &mut self,
        folder: &OwnedFd,
        path: &mut PathBuf,
        depth: usize,
    ) -> Result<(), PlacesError> {
        // The watch starts before the directory is read, so no change is missed.
        if self.watches.as_mut().is_some_and(|watches| !watches.add(folder, path)) {
            self.watches = None;
        }

        let mut folders = Vec::new();
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let mut entries = RawDir::new(folder, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::ACCESS) if depth > 0 => {
                    self.found.unreadable.push(path.clone());
                    break;
                }
                Err(errno) => return Err(unreadable(path)(errno)),
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            self.entries_left = self.entries_left.checked_sub(1).ok_or(PlacesError::TooMany)?;
            let mut kind = entry.file_type();
            // Some file systems don't report the type.
            if kind == FileType::Unknown
                && let Ok(stat) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
            {
                kind = FileType::from_raw_mode(stat.st_mode);
            }
            if kind == FileType::Directory {
                folders.push(CString::from(name));
            } else {
                self.remember_file(kind, path, name);
            }
        }
        self.buffer = buffer;

        for name in folders {
            path.push(OsStr::from_bytes(name.to_bytes()));
            self.enter(folder, &name, path, depth)?;
            path.pop();
        }
        Ok(())
    }

    /// Checks everything below the directory `name` of `folder`. `path` is the path of the
    /// directory, and `depth` is the depth of `folder`.
    fn enter(
        &mut self,
        folder: &OwnedFd,
        name: &CStr,
        path: &mut PathBuf,
        depth: usize,
    ) -> Result<(), PlacesError> {
        if self.scope.leaves_out(path) {
            return Ok(());
        }
        match rustix::fs::openat(folder, name, DIRECTORY, Mode::empty()) {
            Ok(_) if depth == MAX_DEPTH => return Err(PlacesError::TooDeep(path.clone())),
            Ok(below) => self.check_folder(&below, path, depth + 1)?,
            // The directory was removed, or another object has its name.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(Errno::ACCESS) => self.found.unreadable.push(path.clone()),
            Err(errno) => return Err(PlacesError::Unreadable(path.clone(), errno.into())),
        }
        Ok(())
    }
}

fn unreadable(path: &Path) -> impl Fn(Errno) -> PlacesError {
    move |errno| PlacesError::Unreadable(path.to_owned(), errno.into())
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

fn is_out_of_reach(path: &Path) -> bool {
    rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).err() == Some(Errno::ACCESS)
}

/// Checks whether a program listens on a socket. A stale socket never gets a listener again,
/// because programs remove the file and create a new socket.
///
/// No program notices this check. Connecting a datagram socket sends no data, and fails for other
/// kinds of sockets.
fn has_listener(path: &Path) -> bool {
    !matches!(connect(path), Err(Errno::CONNREFUSED | Errno::NOENT))
}

/// Tries to connect to a socket without waiting.
fn connect(path: &Path) -> Result<(), Errno> {
    let socket = rustix::fs::openat(
        CWD,
        path,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    // The path of the socket may be too long for an address, so the short path of the handle is
    // used.
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", socket.as_fd().as_raw_fd()))?;
    let probe = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    rustix::net::connect(&probe, &address)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixListener};

    use super::super::places::identity;
    use super::*;

    fn scope(root: &Path, skipped: &[&Path]) -> Scope {
        Scope {
            roots: vec![(root.to_owned(), identity(root))],
            skipped: skipped.iter().map(|path| path.to_path_buf()).collect(),
        }
    }

    fn mounts() -> Arc<Mounts> {
        Mounts::current().expect("there is a table")
    }

    fn found(root: &Path, skipped: &[&Path]) -> Vec<PathBuf> {
        let scan = RememberedScan::default().search(scope(root, skipped), &mounts());
        let mut sockets = scan.expect("it is looked through").sockets;
        sockets.sort();
        sockets
    }

    #[test]
    fn sockets_of_every_kind_are_found_without_side_effects() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("it is there");
        let deep = root.join("a".repeat(100)).join("b".repeat(100));
        std::fs::create_dir_all(&deep).expect("folders");
        std::os::unix::fs::symlink(&deep, root.join("link")).expect("a link");
        // Its path is longer than an address allows.
        let short = format!("/proc/self/fd/{}/deep", {
            let handle = rustix::fs::open(&deep, OFlags::PATH, Mode::empty()).expect("it opens");
            std::os::fd::IntoRawFd::into_raw_fd(handle)
        });
        let listener = UnixListener::bind(short).expect("a socket");
        let datagram = UnixDatagram::bind(root.join("datagram")).expect("a socket");
        drop(UnixListener::bind(root.join("dead")).expect("a socket"));
        let bound = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)
            .expect("a socket");
        rustix::net::bind(&bound, &SocketAddrUnix::new(root.join("packets")).expect("an address"))
            .expect("it is bound");
        let mut expected = vec![deep.join("deep"), root.join("datagram"), root.join("packets")];
        expected.sort();
        // A child that another test forks keeps the dead socket open until its `exec`.
        let since = std::time::Instant::now();
        while found(&root, &[]).len() > expected.len() && since.elapsed().as_secs() < 30 {
            std::thread::yield_now();
        }
        assert_eq!(found(&root, &[]), expected);
        assert_eq!(found(&root, &[&root.join("datagram"), &deep]), [root.join("packets")]);
        for result in [listener.set_nonblocking(true), datagram.set_nonblocking(true)] {
            result.expect("it is set");
        }
        assert!(
            listener.accept().is_err() && datagram.recv(&mut [0]).is_err(),
            "nobody was heard of"
        );
    }

    /// Searches twice: with what is remembered, and everything.
    fn both(known: &RememberedScan, scope: &Scope) -> Vec<PathBuf> {
        let mut again = known.search(scope.clone(), &mounts()).expect("it is looked through");
        let mut all = RememberedScan::default()
            .search(scope.clone(), &mounts())
            .expect("it is looked through");
        for found in
            [&mut again.sockets, &mut all.sockets, &mut again.own_names, &mut all.own_names]
        {
            found.sort();
        }
        assert_eq!((&again.sockets, &again.own_names), (&all.sockets, &all.own_names));
        all.sockets
    }

    fn is_watched(known: &RememberedScan) -> bool {
        known.0.lock().expect("a lock").as_ref().is_some_and(|walk| walk.watches.is_some())
    }

    #[test]
    fn remembered_search_finds_what_came_went_and_moved() {
        let dir = tempfile::tempdir().expect("a folder");
        let outside = tempfile::tempdir_in(dir.path()).expect("a folder");
        let root = dir.path().canonicalize().expect("it is there").join("root");
        std::fs::create_dir_all(root.join("a/b")).expect("folders");
        std::fs::write(root.join("a/file"), "").expect("a file");
        let known = RememberedScan::default();
        let scope = scope(&root, &[]);
        let found = |known: &RememberedScan| both(known, &scope);
        let bind = |path: &Path| UnixDatagram::bind(path).expect("a socket");
        assert!(found(&known).is_empty() && is_watched(&known));

        let one = bind(&root.join("a/b/one"));
        assert_eq!(found(&known), [root.join("a/b/one")]);
        // In directories that came after the last search, and behind a second name.
        std::fs::create_dir_all(root.join("c/d/e")).expect("folders");
        let two = bind(&root.join("c/d/e/two"));
        std::fs::hard_link(root.join("a/b/one"), root.join("c/one")).expect("a link");
        std::fs::write(root.join("c/d/Toolhold.toml"), "").expect("a file");
        assert_eq!(found(&known).len(), 3);
        // A directory that moves within the tree, out of it, and into it with a socket.
        std::fs::rename(root.join("c/d"), root.join("a/d")).expect("it moves");
        assert_eq!(found(&known)[2..], [root.join("c/one")]);
        let three = bind(&root.join("a/d/e/three"));
        assert_eq!(found(&known).len(), 4);
        std::fs::rename(root.join("a/d"), outside.path().join("d")).expect("it moves");
        assert_eq!(found(&known).len(), 2);
        let four = bind(&outside.path().join("d/e/four"));
        std::fs::rename(outside.path().join("d"), root.join("a/back")).expect("it moves");
        assert_eq!(found(&known).len(), 5);
        // A file that becomes a socket's second name, and a directory that becomes a link.
        std::fs::rename(root.join("a/b/one"), root.join("a/file")).expect("it moves");
        std::fs::remove_file(root.join("c/one")).expect("it is removed");
        std::fs::remove_dir(root.join("c")).expect("it is removed");
        std::os::unix::fs::symlink(outside.path(), root.join("c")).expect("a link");
        assert_eq!(found(&known).len(), 4);
        // Another directory in the place of the root.
        std::fs::rename(&root, outside.path().join("old")).expect("it moves");
        std::fs::create_dir(&root).expect("a folder");
        let five = bind(&root.join("five"));
        let now = Scope { roots: vec![(root.clone(), identity(&root))], ..scope.clone() };
        assert_eq!(both(&known, &now), [root.join("five")]);
        // What nobody listens on any more isn't covered.
        drop((one, two, three, four, five));
        assert!(both(&known, &now).is_empty() && is_watched(&known));
    }

    #[test]
    fn socket_that_gets_its_listener_after_a_search_is_found() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("it is there");
        // A name of a socket that isn't bound yet, as in the middle of `bind`.
        let path = root.join("late");
        rustix::fs::mknodat(CWD, &path, FileType::Socket, Mode::RUSR, 0).expect("a name");
        let known = RememberedScan::default();
        let scope = scope(&root, &[]);
        assert!(both(&known, &scope).is_empty());
        let known = known.0.lock().expect("a lock").take().expect("it is remembered");
        assert_eq!(known.found.sockets, [path]);
    }

    #[test]
    fn more_changes_than_the_kernel_keeps_are_found() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("it is there");
        std::fs::create_dir(root.join("folder")).expect("a folder");
        let known = RememberedScan::default();
        let scope = scope(&root, &[]);
        assert!(both(&known, &scope).is_empty() && is_watched(&known));
        let most = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events");
        let most: usize = most.expect("it is there").trim().parse().expect("a number");
        for number in 0..=most / 2 {
            let path = root.join("folder").join(number.to_string());
            std::fs::write(&path, "").and_then(|()| std::fs::remove_file(path)).expect("a file");
        }
        let _socket = UnixDatagram::bind(root.join("folder/socket")).expect("a socket");
        assert_eq!(both(&known, &scope), [root.join("folder/socket")]);
    }

    #[test]
    fn file_system_that_others_change_is_looked_through_each_time() {
        let known = RememberedScan::default();
        let scope = scope(Path::new("/proc/self/fdinfo"), &[]);
        known.search(scope, &mounts()).expect("it is looked through");
        assert!(!is_watched(&known));
    }
}
