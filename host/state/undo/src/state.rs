//! The states of a path before the call, after the call and now.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{AtFlags, FileType, OFlags, Stat, StatxFlags};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use toolhold_data_dir::PrivateFolder;

use super::access::Access;
use super::files::{self, DirEntryRef, Meta};
use super::hex::hex;
use super::saved_path;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Bytes of a file that are read at once.
const CHUNK: usize = 64 * 1024;

/// Identifies an object. No later object has the same identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    /// The time of creation. It is needed, because inode numbers of removed files are used again.
    born: (i64, u32),
}

impl Identity {
    pub(crate) fn born(&self) -> u64 {
        let (seconds, nanoseconds) = self.born;
        // A time before 1970 counts as 1970.
        let seconds = u64::try_from(seconds).unwrap_or(0);
        seconds.saturating_mul(NANOS_PER_SECOND).saturating_add(nanoseconds.into())
    }

    pub(crate) fn at(handle: &OwnedFd) -> Option<Self> {
        let stat = rustix::fs::statat(handle, "", AtFlags::EMPTY_PATH).ok()?;
        Self::from_stat(handle.as_fd(), &stat)
    }

    /// Returns the identity of an open object, or `None` if the file system doesn't store the time
    /// of creation.
    pub(crate) fn from_stat(handle: BorrowedFd<'_>, stat: &Stat) -> Option<Self> {
        let statx = rustix::fs::statx(handle, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
        let has_birth_time = statx.stx_mask & StatxFlags::BTIME.bits() != 0;
        if !has_birth_time {
            return None;
        }
        let born = (statx.stx_btime.tv_sec, statx.stx_btime.tv_nsec);
        Some(Self { device: stat.st_dev, inode: stat.st_ino, born })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanoseconds) = self.born;
        write!(f, "{:x}-{:x}-{seconds:x}-{nanoseconds:x}", self.device, self.inode)
    }
}

impl FromStr for Identity {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('-');
        let device = next_number(&mut parts)?;
        let inode = next_number(&mut parts)?;
        let seconds = next_number(&mut parts)?;
        let nanoseconds = next_number(&mut parts)?;
        let seconds = i64::try_from(seconds).map_err(drop)?;
        let born = (seconds, u32::try_from(nanoseconds).map_err(drop)?);
        Ok(Self { device, inode, born })
    }
}

fn next_number<'t>(parts: &mut impl Iterator<Item = &'t str>) -> Result<u64, ()> {
    u64::from_str_radix(parts.next().ok_or(())?, 16).map_err(drop)
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum State {
    Missing,
    File {
        meta: Meta,
        size: u64,
        /// SHA-256 of the contents. Empty if the contents weren't read.
        digest: String,
        /// The number of the saved copy.
        copy: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identity: Option<Identity>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_shared: bool,
    },
    Link {
        #[serde(with = "saved_path")]
        target: PathBuf,
        modified: (i64, u32),
        owner: Option<(u32, u32)>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identity: Option<Identity>,
    },
    Directory {
        meta: Meta,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identity: Option<Identity>,
    },
    /// A device, a socket or a pipe. Such an object is never saved.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    Contents,
    /// Only the size and the times.
    Times,
}

impl State {
    /// Reads the current state of a path. Returns `Missing` if a directory of the path is missing.
    /// The digest of a file is empty with [`Depth::Times`], or if the file is unreadable.
    pub(crate) fn at(access: &Access, path: &Path, depth: Depth) -> io::Result<Self> {
        let handle = match DirEntryRef::find(access, path).and_then(|place| place.handle()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Missing),
            handle => handle?,
        };
        Self::from_object(access, &handle, |file, _size| {
            let no_copy = None;
            if depth == Depth::Times {
                return Ok((no_copy, String::new()));
            }
            match digest(file) {
                // An unreadable object can still be moved back.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    Ok((no_copy, String::new()))
                }
                digest => Ok((no_copy, digest?)),
            }
        })
    }

    /// Returns the state of an open object. For a file, calls `copy` with the contents and the
    /// size. `copy` returns the number of the copy and the digest.
    pub(crate) fn from_object(
        access: &Access,
        object: &OwnedFd,
        copy: impl FnOnce(&Content<'_>, u64) -> io::Result<(Option<u32>, String)>,
    ) -> io::Result<Self> {
        let stat = rustix::fs::statat(object, "", AtFlags::EMPTY_PATH)?;
        let meta = Meta { mode: access.own_mode(&stat), ..Meta::from_stat(&stat) };
        let identity = Identity::from_stat(object.as_fd(), &stat);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let size = stat.st_size.cast_unsigned();
                let is_shared = stat.st_nlink > 1;
                let content = Content { access, object, identity, is_shared };
                let (copy, digest) = copy(&content, size)?;
                Ok(Self::File { meta, size, digest, copy, identity, is_shared })
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(object, "", Vec::new())?;
                let Meta { modified, owner, .. } = meta;
                Ok(Self::Link { target: files::path(target), modified, owner, identity })
            }
            FileType::Directory => Ok(Self::Directory { meta, identity }),
            _ => Ok(Self::Other),
        }
    }

    /// Checks whether the contents, the permissions and the times are the same. For a link, also
    /// compares the owner.
    pub(crate) fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::File { meta, size, digest, .. },
                Self::File { meta: other_meta, size: other_size, digest: other_digest, .. },
            ) => meta.same(other_meta) && (size, digest) == (other_size, other_digest),
            (Self::Directory { meta, .. }, Self::Directory { meta: other, .. }) => meta.same(other),
            (
                Self::Link { target, modified, owner, .. },
                Self::Link { target: other, modified: other_modified, owner: other_owner, .. },
            ) => (target, modified, owner) == (other, other_modified, other_owner),
            _ => self == other,
        }
    }

    pub(crate) fn mode(&self) -> Option<u32> {
        self.meta().map(|meta| meta.mode)
    }

    pub(crate) fn identity(&self) -> Option<Identity> {
        match self {
            Self::File { identity, .. } => *identity,
            _ => None,
        }
    }

    pub(crate) fn object(&self) -> Option<Identity> {
        match self {
            Self::File { identity, .. }
            | Self::Link { identity, .. }
            | Self::Directory { identity, .. } => *identity,
            Self::Missing | Self::Other => None,
        }
    }

    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::File { is_shared: true, .. })
    }

    pub(crate) fn meta(&self) -> Option<&Meta> {
        match self {
            Self::File { meta, .. } | Self::Directory { meta, .. } => Some(meta),
            Self::Missing | Self::Link { .. } | Self::Other => None,
        }
    }

    /// Checks whether this user can create the object again with the same owner and group.
    pub(crate) fn is_restorable(&self) -> bool {
        let user = rustix::process::geteuid();
        let owner = match self {
            Self::File { meta, .. } | Self::Directory { meta, .. } => meta.owner,
            Self::Link { owner, .. } => *owner,
            Self::Missing | Self::Other => None,
        };
        if user.is_root() {
            return true;
        }
        match owner {
            Some((owner, group)) => owner == user.as_raw() && is_in_group(group),
            None => true,
        }
    }

    /// Returns the data that must be read to compare a file with this state.
    pub(crate) fn depth(&self) -> Depth {
        match self {
            Self::File { digest, .. } if digest.is_empty() => Depth::Times,
            _ => Depth::Contents,
        }
    }

    pub(crate) fn has_contents(&self) -> bool {
        matches!(self, Self::File { .. } | Self::Link { .. })
    }

    /// Checks whether a person regards the path as changed. The times of a directory are ignored,
    /// because they change with its entries.
    pub(crate) fn is_changed_to(&self, now: &Self) -> bool {
        match (self, now) {
            (Self::Directory { meta, .. }, Self::Directory { meta: now, .. }) => {
                meta.mode != now.mode
            }
            _ => !self.same(now),
        }
    }

    /// Checks whether the contents, the mode and the owner are the same.
    pub(crate) fn same_but_for_times(&self, other: &Self) -> bool {
        let has_same_mode = match (self, other) {
            (Self::File { meta, .. }, Self::File { meta: other, .. })
            | (Self::Directory { meta, .. }, Self::Directory { meta: other, .. }) => {
                (meta.mode, meta.owner) == (other.mode, other.owner)
            }
            // Other objects have no mode.
            _ => true,
        };
        has_same_mode && self.same_contents(other)
    }

    /// Checks whether the contents are the same. If a digest is missing, the size and the time of
    /// the last change are compared.
    pub(crate) fn same_contents(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::File { meta, size, digest, .. },
                Self::File { meta: other_meta, size: other_size, digest: other_digest, .. },
            ) if digest.is_empty() || other_digest.is_empty() => {
                (size, meta.modified) == (other_size, other_meta.modified)
            }
            (
                Self::File { size, digest, .. },
                Self::File { size: other_size, digest: other_digest, .. },
            ) => (size, digest) == (other_size, other_digest),
            (Self::Directory { .. }, Self::Directory { .. }) => true,
            (Self::Link { target, .. }, Self::Link { target: other, .. }) => target == other,
            _ => self == other,
        }
    }
}

fn is_in_group(group: u32) -> bool {
    if group == rustix::process::getegid().as_raw() {
        return true;
    }
    let Ok(groups) = rustix::process::getgroups() else { return false };
    groups.iter().any(|other| other.as_raw() == group)
}

/// A file that is about to be saved.
pub(crate) struct Content<'a> {
    access: &'a Access,
    object: &'a OwnedFd,
    pub(crate) identity: Option<Identity>,
    pub(crate) is_shared: bool,
}

impl Content<'_> {
    /// Links the file itself into `folder`, so that an undo can restore a lost name of the file.
    /// Does nothing if the path has another file by now.
    pub(crate) fn link_into(
        &self,
        path: &Path,
        folder: &PrivateFolder,
        copy: u32,
    ) -> io::Result<()> {
        // The handle in this value may come from a command's view, which is a separate mount. Links
        // from another mount fail, so the file is opened by its path.
        let object = DirEntryRef::find(self.access, path)?.handle()?;
        if Identity::at(&object) == self.identity {
            folder.link(object.as_fd(), &kept_name(copy))?;
        }
        Ok(())
    }

    pub(crate) fn open(&self) -> io::Result<File> {
        files::reopened(self.access, self.object.as_fd(), OFlags::RDONLY)
    }
}

pub(crate) fn kept_name(copy: u32) -> String {
    format!("kept-{copy}")
}

fn digest(content: &Content<'_>) -> io::Result<String> {
    digest_of(content.open()?)
}

/// Returns the SHA-256 of a file from its current position, in hexadecimal.
pub(crate) fn digest_of(mut file: File) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&hash.finalize())),
            read => hash.update(&buffer[..read]),
        }
    }
}
