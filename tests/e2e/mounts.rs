//! Mounts in a granted directory: the kernel's own file systems, and Toolhold's own folders once
//! more.
//!
//! In namespaces of their own, in which mounts affect nobody else.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Cli, Ended, not_tried};

const SECRET: &str = "the-planted-secret";

/// Runs a script in namespaces of users, mounts and processes. `TOOLHOLD` is the call of a tool and
/// `SERVE` the server. `None` without such namespaces.
pub(crate) fn in_namespaces(cli: &Cli, script: &str) -> Option<Ended> {
    let enter = ["-Urpfm", "--kill-child", "sh", "-c"];
    let tried = Command::new("unshare")
        .args(enter)
        .arg("mount -t proc proc /proc")
        .stderr(Stdio::null())
        .status();
    if !tried.is_ok_and(|status| status.success()) {
        not_tried("mounting in namespaces of its own (`unshare -Urpfm`)");
        return None;
    }
    let toolhold = cli.command(&["call", "--yes", "--set", "tools.autonomy=full"]);
    let program = toolhold.get_program().to_string_lossy().into_owned();
    let arguments: Vec<_> =
        toolhold.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let call = format!("{program} {}", arguments.join(" "));
    let script = script.replace("TOOLHOLD", &call).replace("SERVE", &format!("{program} serve"));
    let mut shell = Command::new("unshare");
    shell.args(enter).arg(format!("set -e; mount -t proc proc /proc; {script}"));
    shell.env_clear().current_dir(cli.work()).stdin(Stdio::null());
    shell
        .envs(toolhold.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
    Some(Ended::from_output(shell.env("PLANTED", SECRET).output().expect("it starts")))
}

#[test]
fn procfs_in_a_grant_reveals_nothing() {
    let cli = Cli::new();
    fs::create_dir_all(cli.work().join("root/proc")).expect("a folder is made");
    // The shell itself has the secret in a variable, and waits for Toolhold.
    let script = "
        mount -t proc proc root/proc; ls root/proc/1/environ
        TOOLHOLD copy_path source=root/proc/1/environ destination=copied || true
        TOOLHOLD read path=root/proc/1/environ || true
        TOOLHOLD read path=root/proc/self/environ || true
        TOOLHOLD grep pattern=planted path=root || true
        TOOLHOLD grep pattern=planted path=root/proc/1 || true
        TOOLHOLD list_directory path=root/proc || true
        TOOLHOLD find_path pattern=environ path=root || true
        TOOLHOLD write path=root/proc/self/comm content=renamed || true
        TOOLHOLD bash 'command=cat root/proc/1/environ; ls root/proc; cat root/proc/*/environ' || true";
    let Some(ended) = in_namespaces(&cli, script) else { return };
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(said.contains("root/proc/1/environ\n"), "it was there: {said}");
    assert!(!said.contains(SECRET) && !cli.work().join("copied").exists(), "{said}");
    assert!(said.contains("the kernel's own file systems"), "{said}");
    assert!(
        !said.contains("sysrq-trigger") && !said.contains("cmdline"),
        "nothing of it is listed: {said}"
    );
}

#[test]
fn singly_mounted_procfs_file_reveals_nothing() {
    let cli = Cli::new();
    for file in ["environ", "link"] {
        fs::write(cli.work().join(file), "").expect("a file is made");
    }
    let script = "
        mount --bind /proc/1/environ environ; grep -q planted environ && echo there
        TOOLHOLD read path=environ || true
        TOOLHOLD grep pattern=planted path=. || true
        TOOLHOLD grep pattern=planted path=environ || true
        TOOLHOLD copy_path source=environ destination=copied || true
        TOOLHOLD bash 'command=cat environ' || true";
    let Some(ended) = in_namespaces(&cli, script) else { return };
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(
        said.contains("there\n") && !said.contains(SECRET) && !cli.work().join("copied").exists(),
        "{said}"
    );
}

#[test]
fn toolholds_own_folders_are_out_of_reach_by_every_name() {
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
            TOOLHOLD read path=$path/file || true
            TOOLHOLD grep pattern=planted path=$path || true
            TOOLHOLD write path=$path/made content=made || true
            TOOLHOLD bash \"command=cat $path/file; echo made > $path/made\" || true
        done
        TOOLHOLD grep pattern=planted path=. || true
        ls \"$data/planted\"";
    // The first call makes the folders.
    cli.run(&["call", "--yes", "list_directory"]);
    let script = script.replace("$ROOT", &cli.root.path().display().to_string());
    let Some(ended) = in_namespaces(&cli, &script) else { return };
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(!said.contains(SECRET), "{said}");
    assert!(ended.stdout.ends_with("file\n") && !ended.stdout.contains("made\n"), "{said}");
    assert!(said.contains("Toolhold's own files are blocked"), "{said}");
}

/// A file system without a server: a network disk whose server is gone, for example.
const HUNG: &str = "mkdir -p hung; exec 9<>/dev/fuse; mount -i -t fuse -o fd=9,rootmode=40000,user_id=0,group_id=0 hung hung";

#[test]
fn hanging_file_system_ends_only_the_calls_that_use_it() {
    let cli = Cli::new();
    fs::write(cli.work().join("plain"), "as it was").expect("a file is written");
    let call = |id: u32, name: &str, arguments: Value| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": name, "arguments": arguments } });
    let begin = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "tester", "version": "1" } } });
    let mut lines = vec![begin, json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })];
    // More than there are cores, each in another way.
    lines.extend((1..=8).map(|id| call(id, "read", json!({ "path": "hung/file" }))));
    lines.push(call(9, "write", json!({ "path": "hung/made", "content": "made" })));
    lines.push(call(10, "read", json!({ "path": "plain" })));
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(cli.work().join("lines"), lines).expect("the requests are written");
    let script = format!(
        "{HUNG}
        TOOLHOLD --set tools.call=2 read path=hung/file && echo read
        TOOLHOLD --set tools.call=2 read path=plain
        mkfifo answers; (cat lines; sleep 30) | SERVE --set tools.call=20 > answers & server=$!
        grep -m1 '\"id\":10' answers; kill $server"
    );
    if !Path::new("/dev/fuse").exists() {
        return not_tried("/dev/fuse");
    }
    let Some(ended) = in_namespaces(&cli, &script) else { return };
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(said.contains("hung/file did not answer within 2 s"), "{said}");
    assert!(ended.stdout.matches("as it was").count() == 2, "{said}");
}

/// A file in a layer has another inode there; a denial is by path.
#[test]
fn rules_hold_inside_overlay_mounts() {
    let cli = Cli::new();
    cli.configure("[tools.file]\ndeny_read = [\"**/.env\"]\n");
    for folder in ["below", "above", "work", "shown"] {
        fs::create_dir(cli.work().join(folder)).expect("a folder is made");
    }
    for (file, text) in [("below/plain", "plain"), ("below/.env", SECRET)] {
        fs::write(cli.work().join(file), text).expect("a file is written");
    }
    let script = "
        mount -t overlay overlay -o lowerdir=below,upperdir=above,workdir=work shown; grep -q planted shown/.env && echo there
        TOOLHOLD read path=shown/.env || true
        TOOLHOLD grep pattern=planted path=shown || true
        TOOLHOLD copy_path source=shown destination=copied || true
        TOOLHOLD bash 'command=cat shown/.env; cat shown/plain' || true
        TOOLHOLD write path=shown/plain content=changed
        TOOLHOLD read path=shown/plain";
    let Some(ended) = in_namespaces(&cli, script) else { return };
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(
        said.contains("there\n")
            && !said.contains(SECRET)
            && !cli.work().join("copied/.env").exists(),
        "{said}"
    );
    assert!(said.contains("plain\n") && said.contains("changed"), "{said}");
    let text = |file: &str| fs::read_to_string(cli.work().join(file)).expect("it is there");
    assert_eq!((text("below/plain").as_str(), text("above/plain").as_str()), ("plain", "changed"));
}

/// Whoever could create the ceiling would limit everyone on the machine, or nobody.
#[test]
fn ceiling_cannot_be_created_by_a_tool() {
    let cli = Cli::new();
    cli.configure(
        "[tools.file]\nallowed_paths = [\"/\"]\n[tools.shell]\nallowed_paths = [\".\", \"/etc\"]\n",
    );
    let script = "
        mount -t tmpfs tmpfs /etc; mkdir elsewhere
        for round in missing there; do
            TOOLHOLD write path=/etc/toolhold/ceiling.toml content=made || true
            TOOLHOLD write path=/etc/toolhold/ceiling.pub content=made || true
            TOOLHOLD write path=/etc/toolhold/toolhold.toml content=made || true
            TOOLHOLD create_directory path=/etc/toolhold/deep || true
            TOOLHOLD move_path source=elsewhere destination=/etc/toolhold || true
            TOOLHOLD bash 'command=mkdir -p /etc/toolhold && echo made > /etc/toolhold/ceiling.toml' || true
            TOOLHOLD bash 'command=ln -s /tmp /etc/toolhold/ceiling.toml; mv elsewhere /etc/toolhold' || true
            TOOLHOLD bash 'command=rm -rf /etc/toolhold; mv /etc/toolhold /etc/moved' || true
            echo $round: $(find /etc)
            mkdir -p /etc/toolhold
        done
        TOOLHOLD bash 'command=echo made > /etc/beside'; cat /etc/beside";
    let Some(ended) = in_namespaces(&cli, script) else { return };
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(
        ended.stdout.contains("missing: /etc\n")
            && ended.stdout.contains("there: /etc /etc/toolhold\n"),
        "{said}"
    );
    assert!(ended.stdout.ends_with("made\n"), "{said}");
}

/// A fleet's ceiling and defaults, in an /etc of their own.
#[test]
fn organisation_files_hold_and_a_changed_ceiling_stops_every_start() {
    let cli = Cli::new();
    let script = "
        toolhold=$(echo TOOLHOLD | cut -d' ' -f1)
        mount -t tmpfs tmpfs /etc; mkdir /etc/toolhold
        $toolhold plugin key new fleet --no-password > made
        $toolhold config ceiling show
        echo 'tools.file.deny_read = [\"notes.txt\"]' > /etc/toolhold/ceiling.toml
        echo 'tools.call = 7' > /etc/toolhold/toolhold.toml
        grep -h -A9 untrusted $ROOT/config/keys/fleet.pub > /etc/toolhold/ceiling.pub
        TOOLHOLD read path=notes.txt && echo unsigned-ran
        $toolhold config ceiling sign /etc/toolhold/ceiling.toml --key fleet > signed
        TOOLHOLD read path=notes.txt && echo denied-ran
        TOOLHOLD list_directory > /dev/null && echo signed-ran
        $toolhold config ceiling show; $toolhold config show | grep 'call = 7'
        echo 'tools.call = 9' >> /etc/toolhold/ceiling.toml
        TOOLHOLD list_directory; echo changed ends $?
        rm /etc/toolhold/ceiling.toml
        TOOLHOLD list_directory; echo removed ends $?";
    let script = script.replace("$ROOT", &cli.root.path().display().to_string());
    let script = format!("set +e; {script}");
    let Some(ended) = in_namespaces(&cli, &script) else { return };
    let (out, said) = (&ended.stdout, format!("{}{}", ended.stdout, ended.stderr));
    assert!(out.contains("There is no ceiling"), "{said}");
    assert!(!out.contains("unsigned-ran") && !out.contains("denied-ran"), "{said}");
    assert!(out.contains("signed-ran") && out.contains(", signed by key "), "{said}");
    assert!(out.contains("call = 7") && out.contains("/etc/toolhold/toolhold.toml:1"), "{said}");
    assert!(out.contains("changed ends 4") && out.contains("removed ends 4"), "{said}");
    assert!(
        said.contains("the signature is wrong") && said.contains("the ceiling is missing"),
        "{said}"
    );
}

#[test]
fn command_granted_the_whole_machine_is_refused_with_the_reason() {
    let cli = Cli::new();
    cli.configure("[tools.shell]\nallowed_paths = [\"/\"]\n");
    let refused = cli
        .run(&["call", "--yes", "--set", "tools.autonomy=full", "bash", "command=echo ran"])
        .ends(1);
    assert!(
        refused.stderr.contains("`/` can't be granted to commands")
            && refused.stderr.contains("`allowed_paths`"),
        "{}",
        refused.stderr
    );
    assert!(!refused.stdout.contains("ran"), "{}", refused.stdout);
}
