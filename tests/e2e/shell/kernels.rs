//! Older kernels, with the features of later ones hidden: the versions of Landlock, and the system
//! calls and flags that came after Linux 5.15.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Output};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use crate::support::{Cli, Ended, NEWEST_LANDLOCK, output_under};

/// What checks the protections of a command: the view of files and writes, the network, processes
/// and system calls; and that its changes are saved.
const CORPUS: [&str; 6] = [
    "shell::files::",
    "shell::fallback::",
    "shell::sockets::",
    "shell::network::",
    "shell::process_lifetime::",
    "undo::commands::",
];

/// The system calls after those of Linux 5.15, which have the same numbers everywhere.
const LATER: std::ops::Range<i64> = 449..512;

/// `seccomp`, and its flag that came with Linux 5.19.
const SECCOMP: i64 = if cfg!(target_arch = "x86_64") { 317 } else { 277 };
const WAIT_KILLABLE_RECV: u64 = 1 << 5;

const EINVAL: u32 = 22;
const ENOSYS: u32 = 38;

/// Filters that answer as Linux 5.15.
fn linux_5_15() -> [BpfProgram; 2] {
    let later = LATER.map(|call| (call, Vec::new())).collect();
    let flag = SeccompCondition::new(
        1,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::MaskedEq(WAIT_KILLABLE_RECV),
        WAIT_KILLABLE_RECV,
    );
    let flag = flag.and_then(|flag| SeccompRule::new(vec![flag])).expect("it is a rule");
    [(later, ENOSYS), ([(SECCOMP, vec![flag])].into(), EINVAL)].map(|(rules, answer)| {
        let architecture = std::env::consts::ARCH.try_into().expect("it is known");
        let answer = SeccompAction::Errno(answer);
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, answer, architecture);
        filter.and_then(TryInto::try_into).expect("it is a filter")
    })
}

/// Runs a program on the kernel that it sees then.
fn on_an_older_kernel(command: &mut Command, newest_landlock: u32) -> Output {
    output_under(&linux_5_15(), command.env(NEWEST_LANDLOCK, newest_landlock.to_string()))
}

#[track_caller]
fn corpus_holds(newest_landlock: u32) {
    let mut tests = Command::new(std::env::current_exe().expect("this program is there"));
    let ended = on_an_older_kernel(tests.args(CORPUS), newest_landlock);
    let [stdout, stderr] =
        [&ended.stdout, &ended.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(ended.status.success(), "with Landlock {newest_landlock}:\n{stdout}\n{stderr}");
    assert!(!stdout.contains("running 0 tests"), "{stdout}");
    for not_tried in stdout.lines().filter(|line| line.starts_with("NOT TRIED: ")) {
        let _ = std::io::stdout().write_all(format!("{not_tried}\n").as_bytes());
    }
}

#[test]
fn protections_hold_with_landlock_1() {
    corpus_holds(1);
}

#[test]
fn protections_hold_with_landlock_2() {
    corpus_holds(2);
}

#[test]
fn protections_hold_with_landlock_3() {
    corpus_holds(3);
}

/// Landlock 1 would refuse both.
#[test]
fn files_are_linked_and_moved_to_another_directory_with_every_landlock() {
    for newest in 0..=3 {
        let cli = Cli::new();
        let work = "command=mkdir a b && echo x > a/f && ln a/f b/linked && mv a/f b/moved";
        let line = ["call", "--yes", "--set", "tools.autonomy=full", "bash", work];
        let output = on_an_older_kernel(&mut cli.command(&line), newest);
        Ended::from_output(output).ends(0);
        let inode = |name| std::fs::metadata(cli.work().join(name)).expect("it is there").ino();
        assert_eq!(inode("b/linked"), inode("b/moved"), "Landlock {newest}: it wasn't copied");
    }
}
