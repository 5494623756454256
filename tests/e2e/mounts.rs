//! What is mounted in a granted directory: the kernel's own file systems, and Berth's own folders once more.
//!
//! In namespaces of their own, in which a mount is nobody else's.

use std::fs;
use std::process::{Command, Stdio};

use crate::support::{Cli, Ended, not_tried};

const SECRET: &str = "the-planted-secret";

/// Runs a script in namespaces of users, mounts and processes, `BERTH` being the call of a tool. None where there are none to be had.
fn in_namespaces(cli: &Cli, script: &str) -> Option<Ended> {
    let enter = ["-Urpfm", "--kill-child", "sh", "-c"];
    let tried = Command::new("unshare").args(enter).arg("mount -t proc proc /proc").stderr(Stdio::null()).status();
    if !tried.is_ok_and(|status| status.success()) {
        not_tried("mounting in namespaces of its own (`unshare -Urpfm`)");
        return None;
    }
    let berth = cli.command(&["call", "--yes", "--set", "tools.autonomy=full"]);
    let program = berth.get_program().to_string_lossy().into_owned();
    let arguments: Vec<_> = berth.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let call = format!("{program} {}", arguments.join(" "));
    let mut shell = Command::new("unshare");
    shell.args(enter).arg(format!("set -e; mount -t proc proc /proc; {}", script.replace("BERTH", &call)));
    shell.env_clear().current_dir(cli.work()).stdin(Stdio::null());
    shell.envs(berth.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
    Some(Ended::of(shell.env("PLANTED", SECRET).output().expect("it starts")))
}

#[test]
fn a_procfs_in_a_grant_gives_nothing_away() {
    let cli = Cli::new();
    fs::create_dir_all(cli.work().join("root/proc")).expect("a folder is made");
    // The shell itself has the secret among its variables, and waits for Berth.
    let script = "
        mount -t proc proc root/proc; ls root/proc/1/environ
        BERTH copy_path source=root/proc/1/environ destination=copied || true
        BERTH read path=root/proc/1/environ || true
        BERTH read path=root/proc/self/environ || true
        BERTH grep pattern=planted path=root || true
        BERTH grep pattern=planted path=root/proc/1 || true
        BERTH list_directory path=root/proc || true
        BERTH find_path pattern=environ path=root || true
        BERTH write path=root/proc/self/comm content=renamed || true
        BERTH bash 'command=cat root/proc/1/environ; ls root/proc; cat root/proc/*/environ' || true";
    let Some(ended) = in_namespaces(&cli, script) else { return };
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(said.contains("root/proc/1/environ\n"), "it was there: {said}");
    assert!(!said.contains(SECRET) && !cli.work().join("copied").exists(), "{said}");
    assert!(said.contains("the kernel's own file systems"), "{said}");
    assert!(!said.contains("sysrq-trigger") && !said.contains("cmdline"), "nothing of it is listed: {said}");
}

#[test]
fn a_file_of_a_procfs_that_is_mounted_by_itself_gives_nothing_away() {
    let cli = Cli::new();
    for file in ["environ", "link"] {
        fs::write(cli.work().join(file), "").expect("a file is made");
    }
    let script = "
        mount --bind /proc/1/environ environ; grep -q planted environ && echo there
        BERTH read path=environ || true
        BERTH grep pattern=planted path=. || true
        BERTH grep pattern=planted path=environ || true
        BERTH copy_path source=environ destination=copied || true
        BERTH bash 'command=cat environ' || true";
    let Some(ended) = in_namespaces(&cli, script) else { return };
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(said.contains("there\n") && !said.contains(SECRET) && !cli.work().join("copied").exists(), "{said}");
}

#[test]
fn berths_own_folders_are_out_of_reach_by_every_name() {
    let cli = Cli::new();
    for folder in ["data", "above", "deep"] {
        fs::create_dir_all(cli.work().join(folder)).expect("a folder is made");
    }
    let script = "
        data=$ROOT/data; test -d \"$data\"
        mkdir -p \"$data/planted\"; echo the-planted-secret > \"$data/planted/file\"
        mount --bind \"$data\" data; mount --bind \"$(dirname \"$data\")\" above; mount --bind \"$data/planted\" deep
        name=above/$(basename \"$data\")/planted
        for path in data/planted $name deep; do
            test -e $path/file
            BERTH read path=$path/file || true
            BERTH grep pattern=planted path=$path || true
            BERTH write path=$path/made content=made || true
            BERTH bash \"command=cat $path/file; echo made > $path/made\" || true
        done
        BERTH grep pattern=planted path=. || true
        ls \"$data/planted\"";
    // The first call makes the folders.
    cli.run(&["call", "--yes", "list_directory"]);
    let script = script.replace("$ROOT", &cli.root.path().display().to_string());
    let Some(ended) = in_namespaces(&cli, &script) else { return };
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(!said.contains(SECRET), "{said}");
    assert!(ended.stdout.ends_with("file\n") && !ended.stdout.contains("made\n"), "{said}");
    assert!(said.contains("Berth's own files are out of reach"), "{said}");
}
