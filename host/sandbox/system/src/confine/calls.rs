//! Blocks system calls of commands that affect the kernel, other processes or other sandboxes
//! (seccomp).
//!
//! A blocked call fails, and the program continues. The filter is a deny list. All other calls are
//! allowed.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, sock_filter,
};

use super::raw::landlock_version;

/// The first version of Landlock that restricts sockets without a path.
const COVERS_SOCKETS: u32 = 6;

/// The indices of arguments that the rules compare.
const CLONE_FLAGS: u8 = 0;
const IOCTL_REQUEST: u8 = 1;
const SOCKET_FAMILY: u8 = 0;
const SOCKET_TYPE: u8 = 1;
const SOCKET_PROTOCOL: u8 = 2;
const OPTION_LEVEL: u8 = 1;
const OPTION_NAME: u8 = 2;

/// The flags of a new socket, in all combinations.
const SOCKET_FLAGS: [libc::c_int; 4] =
    [0, libc::SOCK_CLOEXEC, libc::SOCK_NONBLOCK, libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK];

/// Calls that send bytes, and the index of their flags. With one flag, they connect the socket.
const SENDS: [(libc::c_long, u8); 3] =
    [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Refused with any arguments.
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
    // Another kernel or kernel modules.
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
    // Opens files without their names.
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

/// The flags of `clone` that create a namespace. Each of them alone is refused.
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
/// the protocol of modems.
const TERMINAL: [u32; 3] = [libc::TIOCSTI as u32, libc::TIOCLINUX as u32, libc::TIOCSETD as u32];

/// Not defined in every libc.
const MEMFD_SECRET: u32 = 447;

/// Not defined in every libc.
const FCHMODAT2: libc::c_long = 452;

/// Calls that set a file's mode, and the index of the mode's argument.
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

/// Calls that open a file, and the index of the mode's argument. The kernel reads the mode only if
/// the flags, in the argument before it, create a file.
const OPENS: &[(libc::c_long, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 2),
    (libc::SYS_openat, 3),
];

/// The flags that create a file. `O_TMPFILE` contains `O_DIRECTORY`, which is left out, because it
/// alone creates nothing.
const CREATION_FLAGS: [libc::c_int; 2] = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];

/// A user who runs a file with one of these bits gets the rights of its owner or group, even
/// outside of the sandbox.
const SET_ID: [libc::mode_t; 2] = [libc::S_ISUID, libc::S_ISGID];

/// The bit of system calls with 32-bit pointers on x86-64, which have separate numbers.
const X32: u32 = 0x4000_0000;

#[derive(Debug, thiserror::Error)]
pub(super) enum FilterError {
    #[error(transparent)]
    Build(#[from] BackendError),
    #[error(transparent)]
    Install(#[from] seccompiler::Error),
}

/// Decides which sockets a process may make.
pub(super) struct SocketAccess {
    /// The process sees only granted files and granted sockets.
    pub(super) has_view: bool,
    /// The network is reachable.
    pub(super) has_network: bool,
    /// The host makes the connections of the process.
    pub(super) is_relayed: bool,
}

/// Filters the system calls of this process and its descendants. The error is the reason why the
/// filter can't be enforced.
pub(super) fn filter(sockets: &SocketAccess) -> Result<(), FilterError> {
    for program in programs(sockets)? {
        seccompiler::apply_filter(&program)?;
    }
    Ok(())
}

/// Returns the filters as programs for the kernel.
fn programs(sockets: &SocketAccess) -> Result<Vec<BpfProgram>, BackendError> {
    // Without a condition, every call is refused.
    let mut rules: Rules = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    for flag in NAMESPACES {
        let bit = flag as u64;
        let equals_bit = SeccompCmpOp::MaskedEq(bit);
        let is_set = SeccompCondition::new(CLONE_FLAGS, SeccompCmpArgLen::Qword, equals_bit, bit)?;
        refuse(&mut rules, libc::SYS_clone, vec![is_set])?;
    }
    for request in TERMINAL {
        let is_request = SeccompCondition::new(
            IOCTL_REQUEST,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::Eq,
            u64::from(request),
        )?;
        refuse(&mut rules, libc::SYS_ioctl, vec![is_request])?;
    }
    refuse_set_id(&mut rules)?;
    refuse_sockets(&mut rules, sockets)?;

    let action = SeccompAction::Errno(libc::EPERM as u32);
    let architecture = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, architecture)?;
    let refused: BpfProgram = filter.try_into()?;
    Ok(vec![refused, missing_calls()])
}

/// Refuses to set the set-user-ID and set-group-ID bits of files.
fn refuse_set_id(rules: &mut Rules) -> Result<(), BackendError> {
    for bit in SET_ID.map(u64::from) {
        for (call, mode_argument) in MODES {
            refuse(rules, *call, vec![has_bit(*mode_argument, bit)?])?;
        }
        for (call, mode_argument) in OPENS {
            // The flags are the argument before the mode.
            let flags_argument = mode_argument - 1;
            for flag in CREATION_FLAGS {
                let creates = has_bit(flags_argument, flag as u64)?;
                let sets_id = has_bit(*mode_argument, bit)?;
                refuse(rules, *call, vec![creates, sets_id])?;
            }
        }
    }
    Ok(())
}

/// Refuses to make sockets that could reach something outside of the sandbox.
fn refuse_sockets(rules: &mut Rules, access: &SocketAccess) -> Result<(), BackendError> {
    let SocketAccess { has_view, has_network, is_relayed } = *access;
    let mut allowed = Vec::new();
    // A Unix socket with a path reaches only files in the view. A Unix socket without a path
    // reaches every process in the same network namespace. The filter can't distinguish these
    // sockets, so the network must be separate, or Landlock must block the sockets without a path.
    let is_path_only = !has_network || landlock_version() >= Some(COVERS_SOCKETS);
    if has_view && is_path_only {
        allowed.push(libc::AF_UNIX);
    } else {
        refuse_datagram_pairs(rules)?;
    }
    if has_view || has_network {
        allowed.extend([libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]);
    }
    if allowed.is_empty() && is_relayed {
        return refuse_unrelayed(rules);
    }
    if allowed.is_empty() {
        // Without a condition, every call is refused.
        rules.entry(libc::SYS_socket).or_default();
        return Ok(());
    }

    let mut is_other_family = Vec::new();
    for family in allowed {
        is_other_family.push(compares(SOCKET_FAMILY, SeccompCmpOp::Ne, family)?);
    }
    refuse(rules, libc::SYS_socket, is_other_family)?;
    // The only allowed netlink socket lists network interfaces. The list is read-only in the
    // sandbox.
    let is_netlink = compares(SOCKET_FAMILY, SeccompCmpOp::Eq, libc::AF_NETLINK)?;
    let is_other_protocol = compares(SOCKET_PROTOCOL, SeccompCmpOp::Ne, libc::NETLINK_ROUTE)?;
    refuse(rules, libc::SYS_socket, vec![is_netlink, is_other_protocol])
}

/// Refuses pairs of sockets that can send to the address of any other socket.
fn refuse_datagram_pairs(rules: &mut Rules) -> Result<(), BackendError> {
    let is_other_family = compares(SOCKET_FAMILY, SeccompCmpOp::Ne, libc::AF_UNIX)?;
    refuse(rules, libc::SYS_socketpair, vec![is_other_family])?;
    let is_datagram = is_other_type(&[libc::SOCK_STREAM, libc::SOCK_SEQPACKET])?;
    refuse(rules, libc::SYS_socketpair, is_datagram)
}

/// Refuses everything except for sockets of TCP that only the host can connect. The process is in
/// the machine's network, so nothing else separates it from servers and from other machines.
fn refuse_unrelayed(rules: &mut Rules) -> Result<(), BackendError> {
    let is_other_family = compares(SOCKET_FAMILY, SeccompCmpOp::Ne, libc::AF_INET)?;
    refuse(rules, libc::SYS_socket, vec![is_other_family])?;
    refuse(rules, libc::SYS_socket, is_other_type(&[libc::SOCK_STREAM])?)?;
    let is_named = compares(SOCKET_PROTOCOL, SeccompCmpOp::Ne, 0)?;
    let is_other_protocol = compares(SOCKET_PROTOCOL, SeccompCmpOp::Ne, libc::IPPROTO_TCP)?;
    refuse(rules, libc::SYS_socket, vec![is_named, is_other_protocol])?;
    for call in [libc::SYS_bind, libc::SYS_listen] {
        // Without a condition, every call is refused.
        rules.entry(call).or_default();
    }
    for (call, flags) in SENDS {
        refuse(rules, call, vec![has_bit(flags, libc::MSG_FASTOPEN as u64)?])?;
    }
    // Options that could lead the packets of a connected socket elsewhere: source routes and
    // interfaces. ssh sets the type of service.
    let is_ip = compares(OPTION_LEVEL, SeccompCmpOp::Eq, libc::IPPROTO_IP)?;
    let is_other_option = compares(OPTION_NAME, SeccompCmpOp::Ne, libc::IP_TOS)?;
    refuse(rules, libc::SYS_setsockopt, vec![is_ip, is_other_option])?;
    for option in [libc::SO_BINDTODEVICE, libc::SO_BINDTOIFINDEX] {
        let is_socket = compares(OPTION_LEVEL, SeccompCmpOp::Eq, libc::SOL_SOCKET)?;
        let is_option = compares(OPTION_NAME, SeccompCmpOp::Eq, option)?;
        refuse(rules, libc::SYS_setsockopt, vec![is_socket, is_option])?;
    }
    Ok(())
}

/// Returns conditions that apply to all types of sockets except for `types`.
fn is_other_type(types: &[i32]) -> Result<Vec<SeccompCondition>, BackendError> {
    let mut conditions = Vec::new();
    for kind in types {
        for flags in SOCKET_FLAGS {
            conditions.push(compares(SOCKET_TYPE, SeccompCmpOp::Ne, kind | flags)?);
        }
    }
    Ok(conditions)
}

/// Refuses a call if all conditions apply to its arguments.
fn refuse(
    rules: &mut Rules,
    call: libc::c_long,
    conditions: Vec<SeccompCondition>,
) -> Result<(), BackendError> {
    rules.entry(call).or_default().push(SeccompRule::new(conditions)?);
    Ok(())
}

fn has_bit(argument: u8, bit: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bit), bit)
}

fn compares(
    argument: u8,
    operator: SeccompCmpOp,
    value: i32,
) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value as u64)
}

/// Returns a filter that answers some system calls with the error of a missing call. Libraries then
/// use other calls, as on an older kernel.
///
/// The calls with 32-bit pointers have separate numbers, which would bypass the other filter. That
/// filter can't read the flags of `clone3` and the mode of `openat2`, because they are in memory.
/// The memory of `memfd_create` and `memfd_secret` doesn't count as memory of any process.
fn missing_calls() -> BpfProgram {
    // The codes of the kernel's filter machine (classic BPF) for loading a part of the call, for
    // conditional jumps, and for returning the decision.
    let load = 0x20;
    let jump_if_equal = 0x15;
    let jump_if_at_least = 0x35;
    let decide = 0x06;
    // `SECCOMP_RET_ERRNO` and `SECCOMP_RET_ALLOW`.
    let missing = 0x0005_0000 | libc::ENOSYS as u32;
    let allowed = 0x7fff_0000;
    let clone3 = libc::SYS_clone3 as u32;
    vec![
        // The number of the call is the first part. `jt` is the number of lines that a true
        // condition skips, up to the last line.
        sock_filter { code: load, jt: 0, jf: 0, k: 0 },
        sock_filter { code: jump_if_at_least, jt: 5, jf: 0, k: X32 },
        sock_filter { code: jump_if_equal, jt: 4, jf: 0, k: clone3 },
        sock_filter { code: jump_if_equal, jt: 3, jf: 0, k: libc::SYS_openat2 as u32 },
        sock_filter { code: jump_if_equal, jt: 2, jf: 0, k: libc::SYS_memfd_create as u32 },
        sock_filter { code: jump_if_equal, jt: 1, jf: 0, k: MEMFD_SECRET },
        sock_filter { code: decide, jt: 0, jf: 0, k: allowed },
        sock_filter { code: decide, jt: 0, jf: 0, k: missing },
    ]
}
