//! What a path was, or is.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Stat};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::files::{self, Meta, Place};
use super::hex::hex;
use super::saved_path;

/// What has a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum State {
    /// Nothing.
    Missing,
    /// A regular file.
    File {
        meta: Meta,
        size: u64,
        /// SHA-256 of its contents.
        digest: String,
        /// The number of the saved copy, if there is one.
        copy: Option<u32>,
        /// Its inode, if it has more than one name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shared: Option<u64>,
    },
    /// A symbolic link.
    Link {
        #[serde(with = "saved_path")]
        target: PathBuf,
        modified: (i64, u32),
    },
    /// A directory, without what is in it.
    Directory { meta: Meta },
    /// A device, a socket or a pipe, which is never saved.
    Other,
}

impl State {
    /// What a path is now, without a copy of it. Nothing, if its directory is missing.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        match Place::find(path) {
            Ok(place) => Self::now(&place),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::Missing),
            Err(error) => Err(error),
        }
    }

    /// The same of a place.
    fn now(place: &Place) -> io::Result<Self> {
        match place.stat()? {
            None => Ok(Self::Missing),
            Some(stat) => match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => {
                    let mut file = place.open()?;
                    let digest = digest(&mut file)?;
                    Ok(Self::File {
                        meta: Meta::from_stat(&stat),
                        size: stat.st_size.cast_unsigned(),
                        digest,
                        copy: None,
                        shared: shared(&stat),
                    })
                }
                FileType::Symlink => {
                    let meta = Meta::from_stat(&stat);
                    Ok(Self::Link { target: place.target()?, modified: meta.modified })
                }
                FileType::Directory => Ok(Self::Directory { meta: Meta::from_stat(&stat) }),
                _ => Ok(Self::Other),
            },
        }
    }

    /// What an object is that is held by a handle. A file's contents go through `copy`, which says
    /// the number of the copy.
    pub(crate) fn saved(
        object: &OwnedFd,
        copy: impl FnOnce(&mut File, u64) -> io::Result<(u32, String)>,
    ) -> io::Result<Self> {
        let stat = rustix::fs::statat(object, "", AtFlags::EMPTY_PATH)?;
        let meta = Meta::from_stat(&stat);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let size = stat.st_size.cast_unsigned();
                let (copy, digest) = copy(&mut files::reopened(object.as_fd())?, size)?;
                Ok(Self::File { meta, size, digest, copy: Some(copy), shared: shared(&stat) })
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(object, "", Vec::new())?;
                Ok(Self::Link { target: files::path(target), modified: meta.modified })
            }
            FileType::Directory => Ok(Self::Directory { meta }),
            _ => Ok(Self::Other),
        }
    }

    /// Whether both are the same thing with the same contents.
    pub(crate) fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::File { meta, size, digest, .. },
                Self::File { meta: other_meta, size: other_size, digest: other_digest, .. },
            ) => meta.same(other_meta) && (size, digest) == (other_size, other_digest),
            (Self::Directory { meta }, Self::Directory { meta: other }) => meta.same(other),
            (one, other) => one == other,
        }
    }

    /// Whether it is a file or a link.
    pub(crate) fn has_contents(&self) -> bool {
        matches!(self, Self::File { .. } | Self::Link { .. })
    }

    /// Whether a person would say that this path was changed: the times of a directory change with
    /// its entries.
    pub(crate) fn is_changed_to(&self, now: &Self) -> bool {
        match (self, now) {
            (Self::Directory { meta }, Self::Directory { meta: now }) => meta.mode != now.mode,
            _ => !self.same(now),
        }
    }

    /// Whether both differ in nothing but times.
    pub(crate) fn same_but_for_times(&self, other: &Self) -> bool {
        let modes = match (self, other) {
            (Self::File { meta, .. }, Self::File { meta: other, .. })
            | (Self::Directory { meta }, Self::Directory { meta: other }) => {
                (meta.mode, meta.owner) == (other.mode, other.owner)
            }
            _ => true,
        };
        modes && self.same_contents(other)
    }

    /// Whether both have the same contents, whatever their modes and times are.
    pub(crate) fn same_contents(&self, other: &Self) -> bool {
        match (self, other) {
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

fn shared(stat: &Stat) -> Option<u64> {
    (stat.st_nlink > 1).then_some(stat.st_ino)
}

/// SHA-256 of all that a file has from here on, in hexadecimal.
pub(crate) fn digest(file: &mut File) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&hash.finalize())),
            read => hash.update(&buffer[..read]),
        }
    }
}
