//! Sockets of other programs in a command's directories: a program that connects to one has a
//! program outside act for it.
//!
//! A network namespace only stops sockets without a path. So sockets with a path are searched for
//! before a command runs, and covered.

use std::ffi::{CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use berth_policy::files::OWN_NAMES;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::places::{MAX_DEPTH, MAX_LOOKED_AT, PlacesError};

/// Bytes of a directory's entries that the kernel returns at a time.
const BUFFER: usize = 32 << 10;

/// The results of a walk.
#[derive(Debug, Default)]
pub(super) struct SocketScan {
    /// Sockets with a listener.
    pub(super) sockets: Vec<PathBuf>,
    /// Directories that can't be read; a program that knows the name of a socket in one may still
    /// reach it.
    pub(super) unreadable: Vec<PathBuf>,
    /// Files whose names are Berth's own.
    pub(super) own_names: Vec<PathBuf>,
}

/// A walk through one directory. It follows no link and enters nothing in `passed`.
pub(super) struct Walk<'w> {
    pub(super) passed: &'w dyn Fn(&Path) -> bool,
    pub(super) found: SocketScan,
    left: usize,
    buffer: Vec<u8>,
}

impl<'w> Walk<'w> {
    pub(super) fn new(passed: &'w dyn Fn(&Path) -> bool) -> Self {
        Self {
            passed,
            found: SocketScan::default(),
            left: MAX_LOOKED_AT,
            buffer: Vec::with_capacity(BUFFER),
        }
    }

    /// Checks everything below `root`.
    pub(super) fn below(&mut self, root: &Path) -> Result<(), PlacesError> {
        if (self.passed)(root) {
            return Ok(());
        }
        match rustix::fs::openat(CWD, root, DIRECTORY, Mode::empty()) {
            Ok(folder) => self.folder(&folder, &mut root.to_owned(), 0),
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(PlacesError::Unreadable(root.to_owned(), errno.into())),
        }
    }

    fn folder(
        &mut self,
        folder: &OwnedFd,
        path: &mut PathBuf,
        depth: usize,
    ) -> Result<(), PlacesError> {
        let unreadable =
            |path: &Path, errno: Errno| PlacesError::Unreadable(path.to_owned(), errno.into());
        let mut folders = Vec::new();
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let scratch: &mut [MaybeUninit<u8>] = buffer.spare_capacity_mut();
        let mut entries = RawDir::new(folder, scratch);
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::ACCESS) if depth > 0 => {
                    self.found.unreadable.push(path.clone());
                    break;
                }
                Err(errno) => return Err(unreadable(path, errno)),
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            self.left = self.left.checked_sub(1).ok_or(PlacesError::TooMany)?;
            let kind = match entry.file_type() {
                // Some file systems don't say.
                FileType::Unknown => rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
                kind => kind,
            };
            match kind {
                FileType::Directory => folders.push(CString::from(name)),
                FileType::Socket if has_listener(folder, name) => {
                    let socket = path.join(OsStr::from_bytes(name.to_bytes()));
                    if !(self.passed)(&socket) {
                        self.found.sockets.push(socket);
                    }
                }
                FileType::RegularFile
                    if OWN_NAMES
                        .iter()
                        .any(|own| name.to_bytes().eq_ignore_ascii_case(own.as_bytes())) =>
                {
                    self.found.own_names.push(path.join(OsStr::from_bytes(name.to_bytes())));
                }
                _ => {}
            }
        }
        self.buffer = buffer;
        for name in folders {
            path.push(OsStr::from_bytes(name.to_bytes()));
            if !(self.passed)(path) {
                match rustix::fs::openat(folder, &name, DIRECTORY, Mode::empty()) {
                    Ok(_) if depth == MAX_DEPTH => return Err(PlacesError::TooDeep(path.clone())),
                    Ok(below) => self.folder(&below, path, depth + 1)?,
                    // It is gone, or something else has its name.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                    Err(Errno::ACCESS) => self.found.unreadable.push(path.clone()),
                    Err(errno) => return Err(unreadable(path, errno)),
                }
            }
            path.pop();
        }
        Ok(())
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

/// Whether a program listens on a socket. A left-over socket never gets a listener again: a program
/// removes the file and creates a new one.
///
/// No program notices this: connecting a datagram socket sends nothing, and it can't connect to
/// another kind.
fn has_listener(folder: &OwnedFd, name: &std::ffi::CStr) -> bool {
    let ask = || {
        let socket = rustix::fs::openat(
            folder,
            name,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        // Its name may be longer than an address.
        let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", socket.as_fd().as_raw_fd()))?;
        let asking = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        rustix::net::connect(&asking, &address)
    };
    !matches!(ask(), Err(Errno::CONNREFUSED | Errno::NOENT))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixListener};

    use super::*;

    fn found(root: &Path, passed: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
        let mut walk = Walk::new(passed);
        walk.below(root).expect("it is looked through");
        walk.found.sockets.sort();
        walk.found.sockets
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
        while found(&root, &|_| false).len() > expected.len() && since.elapsed().as_secs() < 30 {
            std::thread::yield_now();
        }
        assert_eq!(found(&root, &|_| false), expected);
        assert_eq!(
            found(&root, &|path| path.ends_with("datagram") || path.ends_with("b".repeat(100))),
            [root.join("packets")]
        );
        for result in [listener.set_nonblocking(true), datagram.set_nonblocking(true)] {
            result.expect("it is set");
        }
        assert!(
            listener.accept().is_err() && datagram.recv(&mut [0]).is_err(),
            "nobody was heard of"
        );
    }
}
