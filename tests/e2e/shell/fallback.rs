//! On a machine without namespaces: nothing runs, or commands are confined by the rest.

use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use crate::support::{Cli, Ended, not_tried};

/// Runs `berth` where no further user namespace can be created. `None` if this machine can't be
/// changed that way.
fn without_namespaces(cli: &Cli, line: &[&str]) -> Option<Ended> {
    let berth = cli.command(line);
    let mut command = Command::new("unshare");
    command.args([
        "-Ur",
        "sh",
        "-c",
        "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"",
    ]);
    command.arg(berth.get_program()).args(berth.get_args()).env_clear().current_dir(cli.work());
    command
        .envs(berth.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null());
    let probe = Command::new("unshare")
        .args(["-Ur", "sh", "-c", "echo 0 > /proc/sys/user/max_user_namespaces"])
        .output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        not_tried("unshare");
        return None;
    }
    Some(Ended::from_output(command.output().expect("it starts")))
}

fn line<'l>(sandbox: &'l str, command: &'l str) -> [&'l str; 11] {
    [
        "call",
        "--yes",
        "--set",
        "tools.autonomy=full",
        "--set",
        "tools.shell.network=deny",
        "--set",
        sandbox,
        "bash",
        command,
        "--json",
    ]
}

#[test]
fn strict_sandbox_refuses_to_start_with_a_missing_part() {
    let cli = Cli::new();
    let Some(ended) =
        without_namespaces(&cli, &line("tools.shell.sandbox=strict", "command=echo x > made"))
    else {
        return;
    };
    assert_ne!(ended.code, 0);
    let text = format!("{}{}", ended.stdout, ended.stderr);
    assert!(text.contains("namespaces") && text.contains("best-effort"), "{text}");
    let file = cli.root.path().join("config/berth.toml").display().to_string();
    assert!(text.contains(&format!("[tools.shell] of {file}")), "{text}");
    assert!(!cli.work().join("made").exists());
}

#[test]
fn best_effort_sandbox_starts_and_reports_missing_parts() {
    let cli = Cli::new();
    let outside = cli.root.path().canonicalize().expect("it is there").join("secret.txt");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.set_nonblocking(true).expect("it can be asked without waiting");
    let socket = cli.root.path().join("agent.sock");
    let agent = UnixListener::bind(&socket).expect("a socket is made");
    agent.set_nonblocking(true).expect("it can be asked without waiting");
    let port = listener.local_addr().expect("it is bound").port();
    let command = format!(
        "command=echo made > made; cat {0}; echo gone > {0}; exec 3<>/dev/tcp/127.0.0.1/{port}; \
         /usr/bin/python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{1}\")'",
        outside.display(),
        socket.display()
    );
    let Some(ended) = without_namespaces(&cli, &line("tools.shell.sandbox=best-effort", &command))
    else {
        return;
    };
    let text = format!("{}{}", ended.stdout, ended.stderr);
    assert!(text.contains("namespaces"), "what is missing is said: {text}");
    assert_eq!(fs::read_to_string(cli.work().join("made")).expect("it ran"), "made\n", "{text}");
    assert!(!text.contains("the secret"), "{text}");
    assert_eq!(fs::read_to_string(outside).expect("it is there"), "the secret");
    assert!(listener.accept().is_err(), "nobody reached the port");
    assert!(agent.accept().is_err(), "nobody reached the socket");
}

#[test]
fn no_process_stays_without_namespaces_either() {
    let cli = Cli::new();
    let mark = format!("{}", 8_000_000 + std::process::id());
    let command = format!(
        "command=setsid sleep {mark} & (setsid sh -c 'trap \"\" TERM; sleep {mark}' &) ; sleep {mark} & echo begun"
    );
    let Some(ended) = without_namespaces(&cli, &line("tools.shell.sandbox=best-effort", &command))
    else {
        return;
    };
    ended.ends(0);
    let entries = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    assert_eq!(
        lines
            .filter(|line| line.split(|byte| *byte == 0).any(|word| word == mark.as_bytes()))
            .count(),
        0
    );
}
