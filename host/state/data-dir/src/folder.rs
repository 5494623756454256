//! Reads the kind, owner, permissions and file system of one of Toolhold's own folders, for
//! `toolhold doctor`.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;

/// The kind of object at the path of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Folder {
    /// The folder doesn't exist yet.
    Missing {
        /// The nearest existing parent folder.
        above: PathBuf,
        /// Whether this process may create files in that folder.
        writable: bool,
    },
    /// The path is a link. The link's target isn't checked.
    Link,
    /// Not a folder.
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

/// The file system of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// The name of a network file system, such as `NFS`, to which other machines also write.
    pub network: Option<&'static str>,
    /// Whether the file system is mounted with `noexec`, so that no code can be mapped from it.
    pub no_exec: bool,
    /// Mounted read-only.
    pub read_only: bool,
    /// Free bytes for this user.
    pub free: u64,
}

/// Reads the properties of a folder without following a link at its end.
///
/// # Errors
///
/// Returns the system's error. A missing folder is no error.
pub fn look_at(path: &Path) -> io::Result<Folder> {
    let stat = match rustix::fs::lstat(path) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(missing(path)),
        Err(errno) => return Err(errno.into()),
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => return Ok(Folder::Link),
        FileType::Directory => {}
        _ => return Ok(Folder::NoFolder),
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&handle)?;
    let mount = rustix::fs::fstatvfs(&handle)?;
    let file_system = FileSystem {
        network: network(rustix::fs::fstatfs(&handle)?.f_type),
        no_exec: mount.f_flag.contains(StatVfsMountFlags::NOEXEC),
        read_only: mount.f_flag.contains(StatVfsMountFlags::RDONLY),
        free: mount.f_bavail.saturating_mul(mount.f_frsize),
    };
    Ok(Folder::There(FolderStatus { owner: stat.st_uid, mode: stat.st_mode & 0o7777, file_system }))
}

fn missing(path: &Path) -> Folder {
    let mut ancestors = path.ancestors().skip(1);
    let existing = ancestors.find(|ancestor| ancestor.symlink_metadata().is_ok());
    let above = existing.unwrap_or(Path::new("/")).to_owned();
    let rights = Access::WRITE_OK | Access::EXEC_OK;
    let writable = rustix::fs::accessat(CWD, &above, rights, AtFlags::EACCESS).is_ok();
    Folder::Missing { above, writable }
}

/// Returns the name of a network file system by its number in `statfs(2)`. Returns `None` for a
/// local file system.
fn network(kind: rustix::fs::FsWord) -> Option<&'static str> {
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
    known.into_iter().find(|(number, _)| *number == kind).map(|(_, name)| name)
}

/// The regular files directly in a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The number of files.
    pub files: u64,
    /// The size of the files in bytes.
    pub bytes: u64,
}

/// The most entries that are counted. Toolhold's own folders always have fewer.
const MAX_ENTRIES: usize = 100_000;

/// Counts the regular files directly in a folder.
///
/// # Errors
///
/// Returns the system's error.
pub fn usage(path: &Path) -> io::Result<Usage> {
    let mut usage = Usage::default();
    for entry in std::fs::read_dir(path)?.take(MAX_ENTRIES) {
        // A removed file takes no room.
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
