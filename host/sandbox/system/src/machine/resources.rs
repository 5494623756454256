//! The resource limits of this process, and the memory that it may use.

use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use super::{number, read_text};

/// The resource limits of this process, in the kernel's units. `None` means no limit.
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

/// Reads the [`Bounds`] of this process.
pub fn bounds() -> Bounds {
    Bounds {
        open_files: getrlimit(Resource::Nofile).current,
        processes: getrlimit(Resource::Nproc).current,
        stack: getrlimit(Resource::Stack).current,
        address_space: getrlimit(Resource::As).current,
    }
}

/// Returns the bytes of address space that this process uses, or `None` if `/proc` isn't mounted.
pub fn address_space() -> Option<u64> {
    kibibytes("/proc/self/status", "VmSize:")
}

/// Returns the bytes of memory that this process can use, and the origin of this limit: the machine
/// or the file of a control group. Returns `None` if no limit is known.
pub fn memory() -> Option<(u64, String)> {
    let mut limits = Vec::new();
    if let Some(bytes) = kibibytes("/proc/meminfo", "MemTotal:") {
        limits.push((bytes, "the machine".to_owned()));
    }
    let groups = read_text("/proc/self/cgroup").unwrap_or_default();
    for path in groups.lines().filter_map(limit_files).flatten() {
        let path = path.display().to_string();
        if let Some(bytes) = number(&path) {
            limits.push((bytes, path));
        }
    }
    // All limits apply, so the lowest limit decides.
    limits.into_iter().min()
}

/// Checks whether the kernel overcommits memory, as usual. Returns `None` if the kernel doesn't
/// report its mode.
pub fn overcommits() -> Option<bool> {
    let never = 2;
    number("/proc/sys/vm/overcommit_memory").map(|mode| mode != never)
}

/// Returns the files with the memory limits of a control group and its parents. `line` is a line of
/// `/proc/self/cgroup`: a number, controllers and the group. Returns `None` for other lines.
fn limit_files(line: &str) -> Option<Vec<PathBuf>> {
    let (_, controllers_and_group) = line.split_once(':')?;
    let (controllers, group) = controllers_and_group.split_once(':')?;
    let (root, file) = match controllers {
        // Version 2 of control groups has no list of controllers.
        "" => ("/sys/fs/cgroup", "memory.max"),
        controllers if controllers.split(',').any(|name| name == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let relative_group = Path::new(group.trim_start_matches('/'));
    let groups = relative_group.ancestors();
    Some(groups.map(|group| Path::new(root).join(group).join(file)).collect())
}

/// Reads a value in KiB from a file of the kernel, and returns it in bytes.
fn kibibytes(path: &str, name: &str) -> Option<u64> {
    let text = read_text(path)?;
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_is_limited_by_all_groups_above() {
        let files = |line: &str| {
            limit_files(line).map(|files| {
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
