//! Reads the properties of Toolhold's own folders for `toolhold doctor`.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;

/// The bits of a mode that are permissions, and not the type of the file.
pub(crate) const PERMISSION_BITS: u32 = 0o7777;

/// The object at the path of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Folder {
    /// The folder doesn't exist yet.
    Missing {
        /// The nearest existing parent folder.
        above: PathBuf,
        /// Whether this process may create files in `above`.
        writable: bool,
    },
    /// A link. Its target isn't checked.
    Link,
    /// Another object.
    NoFolder,
    /// A folder.
    There(FolderStatus),
}

/// The properties of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderStatus {
    /// The owner's user ID.
    pub owner: u32,
    /// The permission bits.
    pub mode: u32,
    /// The file system.
    pub file_system: FileSystem,
}

/// The mount options and the free space of a folder's file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// The name of a network file system, such as `NFS`.
    pub network: Option<&'static str>,
    /// Whether the file system is mounted with `noexec`. No code can be mapped from it then.
    pub no_exec: bool,
    /// Whether the file system is mounted read-only.
    pub read_only: bool,
    /// The number of bytes that this user can still write.
    pub free: u64,
}

/// Reads the properties of a folder. Doesn't follow a link at the end of `path`.
///
/// # Errors
///
/// Returns the system's error. A missing folder isn't an error.
pub fn look_at(path: &Path) -> io::Result<Folder> {
    let stat = match rustix::fs::lstat(path) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(describe_missing(path)),
        Err(errno) => return Err(errno.into()),
    };
    let file_type = FileType::from_raw_mode(stat.st_mode);
    if file_type.is_symlink() {
        return Ok(Folder::Link);
    }
    if !file_type.is_dir() {
        return Ok(Folder::NoFolder);
    }

    // The handle keeps the folder even if another process replaces the path.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&handle)?;
    let mount = rustix::fs::fstatvfs(&handle)?;
    let file_system = FileSystem {
        network: network_name(rustix::fs::fstatfs(&handle)?.f_type),
        no_exec: mount.f_flag.contains(StatVfsMountFlags::NOEXEC),
        read_only: mount.f_flag.contains(StatVfsMountFlags::RDONLY),
        free: mount.f_bavail.saturating_mul(mount.f_frsize),
    };
    let mode = stat.st_mode & PERMISSION_BITS;
    Ok(Folder::There(FolderStatus { owner: stat.st_uid, mode, file_system }))
}

fn describe_missing(path: &Path) -> Folder {
    // The first ancestor is the path itself.
    let mut ancestors = path.ancestors().skip(1);
    let existing = ancestors.find(|ancestor| ancestor.symlink_metadata().is_ok());
    let above = existing.unwrap_or(Path::new("/")).to_owned();
    let rights = Access::WRITE_OK | Access::EXEC_OK;
    let writable = rustix::fs::accessat(CWD, &above, rights, AtFlags::EACCESS).is_ok();
    Folder::Missing { above, writable }
}

/// Returns the name of a network file system. Returns `None` for other file systems. `kind` is the
/// number of the file system in `statfs(2)`.
fn network_name(kind: rustix::fs::FsWord) -> Option<&'static str> {
    // The kernel uses 32 bits, which are signed on some platforms.
    #[expect(
        clippy::cast_sign_loss,
        clippy::cast_possible_truncation,
        reason = "the low 32 bits are the number"
    )]
    let kind = kind as u32;
    let known = [
        (0x6969, "NFS"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB"),
        (0x0102_1997, "9p"),
        (0x00c3_6400, "Ceph"),
        (0x5346_414f, "AFS"),
    ];
    for (number, name) in known {
        if number == kind {
            return Some(name);
        }
    }
    None
}

/// The number and size of the regular files directly in a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The number of files.
    pub files: u64,
    /// The total size in bytes.
    pub bytes: u64,
}

/// Most entries that are counted. Toolhold's own folders have fewer.
const MAX_ENTRIES: usize = 100_000;

/// Counts the regular files directly in a folder, and their bytes.
///
/// # Errors
///
/// Returns the system's error.
pub fn usage(path: &Path) -> io::Result<Usage> {
    let mut usage = Usage::default();
    for entry in std::fs::read_dir(path)?.take(MAX_ENTRIES) {
        // Reading the metadata fails if the file was removed in the meantime.
        let Ok(metadata) = entry?.metadata() else { continue };
        if metadata.is_file() {
            usage.files += 1;
            usage.bytes += metadata.len();
        }
    }
    Ok(usage)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn folder_differs_from_other_kinds() {
        let root = tempfile::tempdir().expect("a temporary folder is made");
        let path = |name: &str| root.path().join(name);
        fs::create_dir(path("folder")).expect("a folder is made");
        fs::set_permissions(path("folder"), fs::Permissions::from_mode(0o750))
            .expect("its mode is set");
        fs::write(path("folder/file"), "12345").expect("a file is written");
        symlink(path("folder"), path("link")).expect("a link is made");
        let look = |name: &str| look_at(&path(name)).expect("it can be looked at");
        assert!(
            matches!(look("folder"), Folder::There(FolderStatus { mode: 0o750, owner, .. }) if owner == rustix::process::geteuid().as_raw())
        );
        assert_eq!(look("link"), Folder::Link);
        assert_eq!(look("folder/file"), Folder::NoFolder);
        assert_eq!(
            look("no/such"),
            Folder::Missing { above: root.path().to_owned(), writable: true }
        );
        assert_eq!(usage(&path("folder")).expect("it is there"), Usage { files: 1, bytes: 5 });
    }

    #[test]
    fn mount_flags_are_seen() {
        let Folder::There(proc) = look_at(Path::new("/proc")).expect("it is mounted") else {
            panic!("/proc is a folder")
        };
        assert_eq!(proc.file_system.network, None);
        let Folder::There(sys) = look_at(Path::new("/sys")).expect("it is mounted") else {
            panic!("/sys is a folder")
        };
        let mounts = fs::read_to_string("/proc/mounts").expect("/proc is mounted");
        let options = mounts
            .lines()
            .find_map(|line| line.strip_prefix("sysfs /sys sysfs "))
            .unwrap_or_default();
        assert_eq!(sys.file_system.no_exec, options.contains("noexec"), "{options}");
    }
}
