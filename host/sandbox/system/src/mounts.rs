//! Reads the mounts, to find the kernel's own file systems and the other names of a folder.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// File systems through which the kernel shows and changes its state, such as the memory of
/// processes or settings of the machine. Each has its name and the kernel's number.
const KERNEL: [(&str, i64); 30] = [
    ("proc", PROC),
    ("sysfs", 0x6265_6572),
    ("securityfs", 0x7363_6673),
    ("debugfs", 0x6462_6720),
    ("tracefs", 0x7472_6163),
    ("cgroup", 0x0027_e0eb),
    ("cgroup2", 0x6367_7270),
    ("configfs", 0x6265_6570),
    ("bpf", 0xcafe_4a11),
    ("efivarfs", 0xde5e_81e4),
    ("pstore", 0x6165_676c),
    ("selinuxfs", 0xf97c_ff8c),
    ("smackfs", 0x4341_5d53),
    ("apparmorfs", 0x5a3c_69f0),
    ("mqueue", 0x1980_0202),
    ("nsfs", 0x6e73_6673),
    ("devpts", 0x1cd1),
    ("binfmt_misc", 0x4249_4e4d),
    ("fusectl", 0x6573_5543),
    ("resctrl", 0x0765_5821),
    ("xenfs", 0xabba_1974),
    ("nfsd", 0x6e66_7364),
    ("rpc_pipefs", 0x6759_6969),
    ("binder", 0x6c6f_6f70),
    ("usbdevfs", 0x9fa2),
    ("openpromfs", 0x9fa1),
    ("devmem", 0x454d_444d),
    ("pidfs", 0x5049_4446),
    ("secretmem", 0x5345_434d),
    ("anon_inodefs", 0x0904_1934),
];

pub(crate) const PROC: i64 = 0x9fa0;

/// Maximum bytes of the mount table. A machine has some hundred mounts, one per line.
const MAX_TABLE: usize = 64 << 20;

/// A file system, or a part of one, at a mount point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) point: PathBuf,
    device: String,
    /// The part of the file system that is mounted.
    part: PathBuf,
    kind: String,
}

impl Mount {
    /// Parses a line of the mount table: two IDs, the device, the mounted part, the mount point,
    /// options, optional fields, a dash, and the kind of the file system. Returns `None` for other
    /// lines.
    fn parse(line: &[u8]) -> Option<Self> {
        let ids = 2;
        let mut fields = line.split(|byte| *byte == b' ').skip(ids);
        let device = fields.next()?;
        let part = fields.next()?;
        let point = fields.next()?;
        fields.find(|field| *field == b"-")?;
        let kind = fields.next()?;
        Some(Self {
            device: String::from_utf8_lossy(device).into_owned(),
            part: unescape(part),
            point: unescape(point),
            kind: String::from_utf8_lossy(kind).into_owned(),
        })
    }

    pub(crate) fn is_kernels(&self) -> bool {
        KERNEL.iter().any(|(name, _)| *name == self.kind)
    }

    pub(crate) fn is_proc(&self) -> bool {
        self.kind == "proc"
    }
}

/// Checks whether a handle is in one of the kernel's own file systems.
pub fn is_kernels(handle: impl AsFd) -> Result<bool, Errno> {
    let kind = rustix::fs::fstatfs(handle)?.f_type;
    Ok(KERNEL.iter().any(|(_, number)| *number == kind))
}

/// The mounts at one moment. A mount comes after the mount that contains its mount point.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mounts(Vec<Mount>);

impl Mounts {
    /// Returns the current mounts. The table is read again only if the kernel reports a change.
    pub(crate) fn current() -> Result<Arc<Self>, Errno> {
        static KNOWN: Mutex<Option<(OwnedFd, Arc<Mounts>)>> = Mutex::new(None);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((table, mounts)) = &*known {
            // The kernel reports a change as urgent data of the open table.
            let mut fds = [PollFd::new(table, PollFlags::PRI)];
            let without_waiting = Timespec { tv_sec: 0, tv_nsec: 0 };
            let changed_tables = poll(&mut fds, Some(&without_waiting))?;
            if changed_tables == 0 {
                return Ok(Arc::clone(mounts));
            }
        }
        // A later call must not return the old mounts if the new table can't be read.
        *known = None;
        let table = rustix::fs::open(
            "/proc/self/mountinfo",
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let mounts = Arc::new(Self::parse(&read(&table)?));
        *known = Some((table, Arc::clone(&mounts)));
        Ok(mounts)
    }

    /// Parses a table with lines like
    /// `36 35 98:0 /part /point rw,noatime master:1 - ext3 /dev/root rw`.
    fn parse(table: &[u8]) -> Self {
        Self(table.split(|byte| *byte == b'\n').filter_map(Mount::parse).collect())
    }

    pub(crate) fn below(&self, folder: &Path) -> impl Iterator<Item = &Mount> {
        self.0.iter().filter(move |mount| mount.point.starts_with(folder))
    }

    pub(crate) fn mount_of(&self, path: &Path) -> Option<&Mount> {
        let containing = self.0.iter().filter(|mount| path.starts_with(&mount.point));
        containing.max_by_key(|mount| mount.point.components().count())
    }

    /// Returns the other names that mounts of the same file system give a path. The path and the
    /// names may not exist.
    pub(crate) fn other_names(&self, path: &Path) -> Vec<PathBuf> {
        let Some(own_mount) = self.mount_of(path) else { return Vec::new() };
        let Ok(below_mount) = path.strip_prefix(&own_mount.point) else { return Vec::new() };
        let part = join(&own_mount.part, below_mount);

        let mut names = Vec::new();
        for mount in self.0.iter().filter(|mount| mount.device == own_mount.device) {
            if let Ok(below_part) = part.strip_prefix(&mount.part) {
                names.push(join(&mount.point, below_part));
            } else if mount.part.starts_with(&part) {
                // The path contains the mounted part of the file system.
                names.push(mount.point.clone());
            }
        }
        names.retain(|name| name != path);
        names
    }
}

fn join(path: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { path.to_owned() } else { path.join(below) }
}

/// Bytes of the mount table that are read at once.
const BUFFER_BYTES: usize = 64 << 10;

fn read(table: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let mut text = Vec::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    while text.len() < MAX_TABLE {
        match rustix::io::retry_on_intr(|| rustix::io::read(table, &mut *buffer))? {
            0 => return Ok(text),
            read => text.extend_from_slice(&buffer[..read]),
        }
    }
    Err(Errno::FBIG)
}

/// Decodes a path of the mount table, in which a space has the form `\040`.
fn unescape(word: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, after)) = rest.split_first() {
        if let [b'\\', a @ b'0'..=b'7', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] = rest {
            let [high, middle, low] = [a, b, c].map(|digit| digit - b'0');
            // Three octal digits can exceed a byte, so the product may overflow.
            path.push(high.wrapping_mul(8 * 8).wrapping_add(middle * 8 + low));
            let escape_length = 1 + [high, middle, low].len();
            rest = &rest[escape_length..];
        } else {
            path.push(*first);
            rest = after;
        }
    }
    PathBuf::from(OsString::from_vec(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 8:2 / /home rw - ext4 /dev/sda2 rw
24 22 0:21 / /proc rw - proc proc rw
30 22 8:2 /u/.local /mnt/with\\040space rw - ext4 /dev/sda2 rw
31 22 8:2 /u/.local/share/toolhold/approvals /mnt/deep rw - ext4 /dev/sda2 rw
32 22 0:30 / /srv/root/proc rw master:3 - proc none rw
33 22 0:31 /docker /srv/root/cgroup rw - cgroup2 none rw
";

    #[test]
    fn other_names_come_from_mounts_around_and_within() {
        let mounts = Mounts::parse(TABLE);
        let names = |path: &str| mounts.other_names(Path::new(path));
        let data = "/home/u/.local/share/toolhold";
        assert_eq!(
            names(data),
            [Path::new("/mnt/with space/share/toolhold"), Path::new("/mnt/deep")]
        );
        assert_eq!(names("/home/u/.config/toolhold"), [] as [PathBuf; 0]);
        assert_eq!(names("/etc/toolhold"), [] as [PathBuf; 0]);
        assert_eq!(
            names("/mnt/deep"),
            [Path::new(data).join("approvals"), "/mnt/with space/share/toolhold/approvals".into()]
        );
    }

    #[test]
    fn kernel_file_systems_are_recognised_by_type() {
        let mounts = Mounts::parse(TABLE);
        let kernels = |path: &str| mounts.mount_of(Path::new(path)).is_some_and(Mount::is_kernels);
        assert!(
            kernels("/proc/1/environ")
                && kernels("/srv/root/proc/self")
                && kernels("/srv/root/cgroup")
        );
        assert!(!kernels("/srv/root") && !kernels("/home/u") && !kernels("/process"));
        let below: Vec<_> = mounts
            .below(Path::new("/srv"))
            .filter(|mount| mount.is_kernels())
            .map(|mount| &mount.point)
            .collect();
        assert_eq!(below, [Path::new("/srv/root/proc"), Path::new("/srv/root/cgroup")]);
    }

    #[test]
    fn mount_table_of_this_machine_is_read() {
        let mounts = Mounts::current().expect("there is a table");
        assert!(mounts.mount_of(Path::new("/proc/self")).is_some_and(Mount::is_proc));
        assert_eq!(Mounts::current().expect("there is a table"), mounts);
        assert_eq!(
            is_kernels(std::fs::File::open("/proc/self/stat").expect("it is there")),
            Ok(true)
        );
        assert_eq!(is_kernels(std::fs::File::open("/").expect("it is there")), Ok(false));
    }
}
