//! Compares the states of a path: before the call, after it, and now.

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

/// The identity of a file, independent of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    /// The time of creation. It distinguishes files that had the same inode number one after the
    /// other.
    born: (i64, u32),
}

impl Identity {
    /// Returns the time of creation, in nanoseconds since 1970.
    pub(crate) fn born(&self) -> u64 {
        let seconds = u64::try_from(self.born.0).unwrap_or_default();
        seconds.saturating_mul(1_000_000_000).saturating_add(self.born.1.into())
    }

    pub(crate) fn at(handle: &OwnedFd) -> Option<Self> {
        let stat = rustix::fs::statat(handle, "", AtFlags::EMPTY_PATH).ok()?;
        Self::from_stat(handle.as_fd(), &stat)
    }

    /// Returns the identity of an open object. Returns `None` if the file system doesn't store the
    /// time of creation.
    pub(crate) fn from_stat(handle: BorrowedFd<'_>, stat: &Stat) -> Option<Self> {
        let statx = rustix::fs::statx(handle, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
        if statx.stx_mask & StatxFlags::BTIME.bits() == 0 {
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

/// The state of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum State {
    /// The path doesn't exist.
    Missing,
    /// A regular file.
    File {
        meta: Meta,
        size: u64,
        /// SHA-256 of the contents. Empty if only the size and the time are known.
        digest: String,
        /// The number of the saved copy, if the file has one.
        copy: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identity: Option<Identity>,
        /// Whether the file has several names.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_shared: bool,
    },
    /// A symbolic link.
    Link {
        #[serde(with = "saved_path")]
        target: PathBuf,
        modified: (i64, u32),
        owner: Option<(u32, u32)>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identity: Option<Identity>,
    },
    /// A directory, without its entries.
    Directory {
        meta: Meta,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identity: Option<Identity>,
    },
    /// A device, a socket or a pipe, which is never saved.
    Other,
}

/// How closely a file is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// The contents are read.
    Contents,
    /// Only the size and the times are read.
    Times,
}

impl State {
    /// Returns the current state of a path, without a copy. Returns `Missing` if its directory is
    /// missing.
    pub(crate) fn at(access: &Access, path: &Path, depth: Depth) -> io::Result<Self> {
        let handle = match DirEntryRef::find(access, path).and_then(|place| place.handle()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Missing),
            handle => handle?,
        };
        Self::from_object(access, &handle, |file, _| match depth {
            Depth::Contents => match digest(file) {
                // The object can't be read, but its name can be moved back.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    Ok((None, String::new()))
                }
                digest => Ok((None, digest?)),
            },
            Depth::Times => Ok((None, String::new())),
        })
    }

    /// Returns the state of the object behind a handle. A file's contents go through `copy`, which
    /// returns the number of the copy.
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

    /// Checks whether both are the same kind of object with the same contents.
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
            (one, other) => one == other,
        }
    }

    /// Returns the permissions. Returns `None` if the object has no permissions.
    pub(crate) fn mode(&self) -> Option<u32> {
        self.meta().map(|meta| meta.mode)
    }

    /// Returns the identity of the file.
    pub(crate) fn identity(&self) -> Option<Identity> {
        match self {
            Self::File { identity, .. } => *identity,
            _ => None,
        }
    }

    /// Returns the identity of the file, link or directory. Returns `None` if the identity is
    /// unknown.
    pub(crate) fn object(&self) -> Option<Identity> {
        match self {
            Self::File { identity, .. }
            | Self::Link { identity, .. }
            | Self::Directory { identity, .. } => *identity,
            Self::Missing | Self::Other => None,
        }
    }

    /// Checks whether the object is a file with several names.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::File { is_shared: true, .. })
    }

    pub(crate) fn meta(&self) -> Option<&Meta> {
        match self {
            Self::File { meta, .. } | Self::Directory { meta, .. } => Some(meta),
            Self::Missing | Self::Link { .. } | Self::Other => None,
        }
    }

    /// Checks whether this user can create the object again with its owner after it was removed.
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

    /// Returns how closely a file has to be read for a comparison with this state.
    pub(crate) fn depth(&self) -> Depth {
        match self {
            Self::File { digest, .. } if digest.is_empty() => Depth::Times,
            _ => Depth::Contents,
        }
    }

    /// Checks whether the object is a file or a link.
    pub(crate) fn has_contents(&self) -> bool {
        matches!(self, Self::File { .. } | Self::Link { .. })
    }

    /// Checks whether a person would regard the path as changed. The times of a directory don't
    /// matter, since they change with its entries.
    pub(crate) fn is_changed_to(&self, now: &Self) -> bool {
        match (self, now) {
            (Self::Directory { meta, .. }, Self::Directory { meta: now, .. }) => {
                meta.mode != now.mode
            }
            _ => !self.same(now),
        }
    }

    /// Checks whether both differ in nothing but times.
    pub(crate) fn same_but_for_times(&self, other: &Self) -> bool {
        let modes = match (self, other) {
            (Self::File { meta, .. }, Self::File { meta: other, .. })
            | (Self::Directory { meta, .. }, Self::Directory { meta: other, .. }) => {
                (meta.mode, meta.owner) == (other.mode, other.owner)
            }
            _ => true,
        };
        modes && self.same_contents(other)
    }

    /// Checks whether both have the same contents. Modes and times may differ.
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
            (one, other) => one == other,
        }
    }
}

/// Checks whether this user may set a file's group to `group`.
fn is_in_group(group: u32) -> bool {
    if group == rustix::process::getegid().as_raw() {
        return true;
    }
    let Ok(groups) = rustix::process::getgroups() else { return false };
    groups.iter().any(|other| other.as_raw() == group)
}

/// A file whose state is saved.
pub(crate) struct Content<'a> {
    access: &'a Access,
    object: &'a OwnedFd,
    pub(crate) identity: Option<Identity>,
    /// Whether the file has several names.
    pub(crate) is_shared: bool,
}

impl Content<'_> {
    /// Links the file itself into a folder, next to its copy, because other names of the file may
    /// remain.
    pub(crate) fn keep(&self, path: &Path, folder: &PrivateFolder, copy: u32) -> io::Result<()> {
        // In a command's view, the file is on a separate mount, where it can't get a name outside.
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

/// Returns the name of the preserved file whose copy has this number.
pub(crate) fn kept_name(copy: u32) -> String {
    format!("kept-{copy}")
}

fn digest(content: &Content<'_>) -> io::Result<String> {
    digest_of(content.open()?)
}

/// Returns the SHA-256 of a file's bytes from its current position on, in hexadecimal.
pub(crate) fn digest_of(mut file: File) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&hash.finalize())),
            read => hash.update(&buffer[..read]),
        }
    }
}
