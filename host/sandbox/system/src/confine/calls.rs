//! Blocks system calls of commands (seccomp) that affect the kernel, other processes or other
//! sandboxes.
//!
//! A blocked call fails, and the program continues. The filter is a deny list: an ordinary program
//! may make any other call.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, sock_filter,
};

use super::raw::landlock_version;

/// The first version of Landlock that restricts sockets without a path.
const COVERS_SOCKETS: u32 = 6;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Never permitted, whatever the arguments are.
const REFUSED: &[i64] = &[
    // Mounts, roots and namespaces could be used to escape from the view.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    // Memory and descriptors of other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // These calls load another kernel or modules.
    libc::SYS_kexec_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
    // `io_uring` makes system calls that no filter sees.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Namespaces don't separate the user's keys.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // This call opens files without their names.
    libc::SYS_open_by_handle_at,
    // Settings of the machine.
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// The flags of `clone` that create a namespace. Each flag is checked separately, since any of them
/// is refused.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Terminal requests that insert input, read the screen, or select another kernel protocol, such as
/// one for modems.
const TERMINAL: [u32; 3] = [libc::TIOCSTI as u32, libc::TIOCLINUX as u32, libc::TIOCSETD as u32];

/// `memfd_secret`, which isn't defined in every libc.
const MEMFD_SECRET: u32 = 447;

/// The system call `fchmodat2`, which sets a file's mode. Its number isn't defined in every libc.
const FCHMODAT2: libc::c_long = 452;

/// Calls that set a file's mode, and the index of that argument.
const MODES: &[(libc::c_long, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    (libc::SYS_mknodat, 2),
];

/// The calls that open a file, with the argument index of the mode. The kernel reads the mode only
/// if the flags, in the argument before, create a file.
const OPENS: &[(libc::c_long, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 2),
    (libc::SYS_openat, 3),
];

/// The flags that create a file, with a name and without.
const MAKES: [libc::c_int; 2] = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];

/// The set-ID bits. A user who runs a file with one of these bits gets the rights of its owner or
/// group, even outside of the sandbox.
const SET_ID: [libc::mode_t; 2] = [libc::S_ISUID, libc::S_ISGID];

/// The bit that marks system calls with 32-bit pointers on x86-64. They have separate numbers.
const X32: u32 = 0x4000_0000;

/// A failure to filter system calls.
#[derive(Debug, thiserror::Error)]
pub(super) enum FilterError {
    #[error(transparent)]
    Build(#[from] BackendError),
    #[error(transparent)]
    Install(#[from] seccompiler::Error),
}

/// Filters the system calls of this process and its descendants. `view`: whether outside files and
/// their sockets are invisible. `network`: whether the network is reachable.
///
/// # Errors
///
/// Returns the reason why the filter can't be enforced.
pub(super) fn filter(view: bool, network: bool) -> Result<(), FilterError> {
    for program in programs(view, network)? {
        seccompiler::apply_filter(&program)?;
    }
    Ok(())
}

fn programs(view: bool, network: bool) -> Result<Vec<BpfProgram>, BackendError> {
    let mut rules: Rules = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    for flag in NAMESPACES {
        let flag = flag as u64;
        let is_set =
            SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)?;
        refuse(&mut rules, libc::SYS_clone, vec![is_set])?;
    }
    for request in TERMINAL {
        let request = u64::from(request);
        let is_request =
            SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, request)?;
        refuse(&mut rules, libc::SYS_ioctl, vec![is_request])?;
    }
    for bit in SET_ID.map(u64::from) {
        for (call, mode) in MODES {
            refuse(&mut rules, *call, vec![has_bit(*mode, bit)?])?;
        }
        for (call, mode) in OPENS {
            for flag in MAKES {
                let creates = has_bit(mode - 1, flag as u64)?;
                let sets_id = has_bit(*mode, bit)?;
                refuse(&mut rules, *call, vec![creates, sets_id])?;
            }
        }
    }
    refuse_sockets(&mut rules, view, network)?;

    let action = SeccompAction::Errno(libc::EPERM as u32);
    let architecture = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, architecture)?;
    let refused: BpfProgram = filter.try_into()?;
    Ok(vec![refused, missing()])
}

/// Refuses all kinds of sockets except the harmless ones.
fn refuse_sockets(rules: &mut Rules, view: bool, network: bool) -> Result<(), BackendError> {
    // With a view, a socket with a path only reaches files in the view. With a separate network
    // namespace, network sockets and sockets without a path reach nothing outside. In the machine's
    // network, a filter can't distinguish sockets without a path from others.
    let mut allowed = Vec::new();
    let is_path_only = !network || landlock_version() >= Some(COVERS_SOCKETS);
    if view && is_path_only {
        allowed.push(libc::AF_UNIX);
    }
    if view || network {
        allowed.extend([libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]);
    }
    if allowed.is_empty() {
        // Without a rule, every call is refused.
        rules.entry(libc::SYS_socket).or_default();
        return Ok(());
    }

    let mut is_other = Vec::new();
    for family in allowed {
        is_other.push(compares(0, SeccompCmpOp::Ne, family)?);
    }
    refuse(rules, libc::SYS_socket, is_other)?;
    // Of the netlink sockets, only the list of network interfaces is allowed. It is read-only in
    // the sandbox.
    let is_netlink = compares(0, SeccompCmpOp::Eq, libc::AF_NETLINK)?;
    let is_no_list = compares(2, SeccompCmpOp::Ne, libc::NETLINK_ROUTE)?;
    refuse(rules, libc::SYS_socket, vec![is_netlink, is_no_list])
}

/// Refuses a call if all of these conditions are true.
fn refuse(
    rules: &mut Rules,
    call: libc::c_long,
    conditions: Vec<SeccompCondition>,
) -> Result<(), BackendError> {
    rules.entry(call).or_default().push(SeccompRule::new(conditions)?);
    Ok(())
}

/// Returns the condition that an argument of a call has a bit.
fn has_bit(argument: u8, bit: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bit), bit)
}

/// Returns the condition that an argument of a call compares with a value.
fn compares(
    argument: u8,
    operator: SeccompCmpOp,
    value: i32,
) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value as u64)
}

/// Reports some system calls as missing, like an older kernel. Libraries then use another way.
///
/// The reasons differ. The flags of `clone3` and the mode of `openat2` are in memory, which a
/// filter can't read. Unnamed files in memory aren't included in any process's memory. A second
/// numbering of all calls would bypass every filter.
fn missing() -> BpfProgram {
    let load = 0x20;
    let equal = 0x15;
    let at_least = 0x35;
    let answer = 0x06;
    let missing = 0x0005_0000 | libc::ENOSYS as u32;
    let allowed = 0x7fff_0000;
    let clone3 = libc::SYS_clone3 as u32;
    vec![
        // The first line loads the number. A conditional jump skips the given number of lines.
        sock_filter { code: load, jt: 0, jf: 0, k: 0 },
        sock_filter { code: at_least, jt: 5, jf: 0, k: X32 },
        sock_filter { code: equal, jt: 4, jf: 0, k: clone3 },
        sock_filter { code: equal, jt: 3, jf: 0, k: libc::SYS_openat2 as u32 },
        sock_filter { code: equal, jt: 2, jf: 0, k: libc::SYS_memfd_create as u32 },
        sock_filter { code: equal, jt: 1, jf: 0, k: MEMFD_SECRET },
        sock_filter { code: answer, jt: 0, jf: 0, k: allowed },
        sock_filter { code: answer, jt: 0, jf: 0, k: missing },
    ]
}
