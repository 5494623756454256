//! System calls that no program needs that works on files, and that reach the kernel, other
//! processes or other sandboxes.
//!
//! They fail, and the program goes on. The filter knows what to refuse, not what to allow: an
//! ordinary program may call anything else.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, sock_filter,
};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Not permitted, whatever the arguments are.
const REFUSED: &[i64] = &[
    // Mounts, roots and namespaces: a way out of the view.
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
    // Other processes: their memory and their descriptors.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Another kernel, or more in this one.
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
    // A second way to make system calls, which no filter sees.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Keys of the user's, which no namespace parts.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Files by something else than their names.
    libc::SYS_open_by_handle_at,
    // The machine.
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

/// The flags of `clone` that make a namespace. Each by itself: one of them is enough.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Puts text into a terminal's input, or reads what it shows.
const TERMINAL: [u32; 2] = [libc::TIOCSTI as u32, libc::TIOCLINUX as u32];

/// `memfd_secret`, of which not every libc knows.
const MEMFD_SECRET: u32 = 447;

/// Sets a file's mode, where its number isn't known to every libc.
const FCHMODAT2: libc::c_long = 452;

/// Calls that give a file its mode, and which of their arguments it is.
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

/// Calls that open a file, and where they have a mode, which is read only where the flags before it
/// say that a file is made.
const OPENS: &[(libc::c_long, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 2),
    (libc::SYS_openat, 3),
];

/// The flags with which a file is made: with one name, and with none yet.
const MAKES: [libc::c_int; 2] = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];

/// Who runs a file with one of these bits does so with its owner's rights, or its group's, outside
/// of the sandbox too.
const SET_ID: [libc::mode_t; 2] = [libc::S_ISUID, libc::S_ISGID];

/// The bit of system calls with 32-bit pointers on x86-64, which have numbers of their own.
const X32: u32 = 0x4000_0000;

/// Filters the system calls of this process and all that it starts. `view`: whether files outside,
/// sockets among them, can't be seen; `network`: whether it reaches the network.
///
/// # Errors
///
/// Why it can't be enforced.
pub(super) fn filter(view: bool, network: bool) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("the filter of system calls: {error}");
    for program in programs(view, network).map_err(|error| failed(&error))? {
        seccompiler::apply_filter(&program).map_err(|error| failed(&error))?;
    }
    Ok(())
}

fn programs(view: bool, network: bool) -> Result<Vec<BpfProgram>, Box<dyn std::error::Error>> {
    let mut rules: Rules = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    for flag in NAMESPACES {
        let flag = u64::try_from(flag)?;
        let flag =
            SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)?;
        rules.entry(libc::SYS_clone).or_default().push(SeccompRule::new(vec![flag])?);
    }
    for request in TERMINAL {
        let request = SeccompCondition::new(
            1,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::Eq,
            u64::from(request),
        )?;
        rules.entry(libc::SYS_ioctl).or_default().push(SeccompRule::new(vec![request])?);
    }
    for bit in SET_ID.map(u64::from) {
        let has = |argument, bit| {
            SeccompCondition::new(
                argument,
                SeccompCmpArgLen::Dword,
                SeccompCmpOp::MaskedEq(bit),
                bit,
            )
        };
        for (call, mode) in MODES {
            rules.entry(*call).or_default().push(SeccompRule::new(vec![has(*mode, bit)?])?);
        }
        for (call, mode) in OPENS {
            for flag in MAKES {
                let made = has(mode - 1, u64::try_from(flag)?)?;
                rules
                    .entry(*call)
                    .or_default()
                    .push(SeccompRule::new(vec![made, has(*mode, bit)?])?);
            }
        }
    }
    // Kinds of sockets: those with a path lead where files lead, if there is a view; those of the
    // network, where there is one of its own.
    let mut known = Vec::new();
    if view {
        known.push(libc::AF_UNIX);
    }
    if view || network {
        known.extend([libc::AF_INET, libc::AF_INET6]);
    }
    let mut other = Vec::new();
    for family in known {
        other.push(SeccompCondition::new(
            0,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::Ne,
            u64::try_from(family)?,
        )?);
    }
    rules.insert(
        libc::SYS_socket,
        if other.is_empty() { Vec::new() } else { vec![SeccompRule::new(other)?] },
    );
    let refuse = SeccompAction::Errno(u32::try_from(libc::EPERM)?);
    let refused = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        refuse,
        std::env::consts::ARCH.try_into()?,
    )?
    .try_into()?;
    Ok(vec![refused, missing()])
}

/// Says of some system calls that there are none, as an older kernel would; libraries have other
/// ways then. Of `clone3`, the flags lie in memory, which a filter can't read, and so does the mode
/// of `openat2`. Files in memory without a name are counted as nobody's memory. And there is a
/// second numbering of all calls, by which every filter could be passed.
fn missing() -> BpfProgram {
    let (load, equal, at_least, answer) = (0x20, 0x15, 0x35, 0x06);
    let missing = 0x0005_0000 | libc::ENOSYS as u32;
    let allowed = 0x7fff_0000;
    let clone3 = libc::SYS_clone3 as u32;
    vec![
        // Load the number; a jump leads over as many lines as it says, where the comparison holds,
        // else goes on.
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
