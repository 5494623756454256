//! The resource limits of this process, and the memory that it may use.

use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use super::{number, text};

/// The resource limits of this process, in the kernel's units. `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Open descriptors (`ulimit -n`).
    pub open_files: Option<u64>,
    /// Processes and threads of the user (`ulimit -u`).
    pub processes: Option<u64>,
    /// Bytes of the first thread's stack (`ulimit -s`).
    pub stack: Option<u64>,
    /// Bytes of address space (`ulimit -v`).
    pub address_space: Option<u64>,
}

/// See [`Bounds`].
pub fn bounds() -> Bounds {
    Bounds {
        open_files: getrlimit(Resource::Nofile).current,
        processes: getrlimit(Resource::Nproc).current,
        stack: getrlimit(Resource::Stack).current,
        address_space: getrlimit(Resource::As).current,
    }
}

/// Bytes of address space that this process uses. `None` if `/proc` isn't mounted.
pub fn address_space() -> Option<u64> {
    kibibytes("/proc/self/status", "VmSize:")
}

/// Bytes of memory that this process can use at most, and the limit's source: the machine or a
/// control group.
pub fn memory() -> Option<(u64, String)> {
    let machine =
        kibibytes("/proc/meminfo", "MemTotal:").map(|bytes| (bytes, "the machine".to_owned()));
    let groups = text("/proc/self/cgroup").unwrap_or_default();
    groups
        .lines()
        .filter_map(read_limits)
        .flatten()
        .filter_map(|file| {
            Some((number(&file.display().to_string())?, format!("{}", file.display())))
        })
        .chain(machine)
        .min()
}

/// Whether the kernel promises more memory than it has, which is usual. `None` if the kernel
/// doesn't say.
pub fn overcommits() -> Option<bool> {
    number("/proc/sys/vm/overcommit_memory").map(|mode| mode != 2)
}

/// The files with the memory limits of a control group and of those above it; `line` is one of
/// `/proc/self/cgroup`.
fn read_limits(line: &str) -> Option<Vec<PathBuf>> {
    let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
    let (root, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        controllers if controllers.split(',').any(|name| name == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let below = Path::new(group.trim_start_matches('/'));
    Some(below.ancestors().map(|group| Path::new(root).join(group).join(file)).collect())
}

fn kibibytes(path: &str, name: &str) -> Option<u64> {
    let text = text(path)?;
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_is_limited_by_all_groups_above() {
        let files = |line: &str| {
            read_limits(line).map(|files| {
                files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>()
            })
        };
        let expected = [
            "/sys/fs/cgroup/a/b/memory.max",
            "/sys/fs/cgroup/a/memory.max",
            "/sys/fs/cgroup/memory.max",
        ];
        assert_eq!(files("0::/a/b"), Some(expected.map(str::to_owned).to_vec()));
        assert_eq!(files("0::/"), Some(vec![expected[2].to_owned()]));
        assert_eq!(
            files("5:cpu,memory:/"),
            Some(vec!["/sys/fs/cgroup/memory/memory.limit_in_bytes".to_owned()])
        );
        assert_eq!(files("5:cpu:/"), None);
    }

    #[test]
    fn memory_of_this_machine_is_known() {
        assert!(memory().is_some_and(|(bytes, _)| bytes > 0));
        assert!(address_space().is_some_and(|bytes| bytes > 0));
    }
}
