//! On a machine without namespaces: nothing runs, or commands are confined by the rest.

use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::mcp::client::{Client, LEGACY, text};
use crate::support::{Cli, Ended, not_tried};

/// `toolhold` where no further user namespace can be created. `None` if this machine can't be
/// changed that way.
fn without_namespaces(cli: &Cli, line: &[&str]) -> Option<Command> {
    let toolhold = cli.command(line);
    let mut command = Command::new("unshare");
    command.args([
        "-Ur",
        "sh",
        "-c",
        "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"",
    ]);
    command
        .arg(toolhold.get_program())
        .args(toolhold.get_args())
        .env_clear()
        .current_dir(cli.work());
    command
        .envs(toolhold.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null());
    let probe = Command::new("unshare")
        .args(["-Ur", "sh", "-c", "echo 0 > /proc/sys/user/max_user_namespaces"])
        .output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        not_tried("unshare");
        return None;
    }
    Some(command)
}

fn ended_without_namespaces(cli: &Cli, line: &[&str]) -> Option<Ended> {
    let mut command = without_namespaces(cli, line)?;
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
    let Some(ended) = ended_without_namespaces(
        &cli,
        &line("tools.shell.sandbox=strict", "command=echo x > made"),
    ) else {
        return;
    };
    assert_ne!(ended.code, 0);
    let text = format!("{}{}", ended.stdout, ended.stderr);
    assert!(text.contains("namespaces") && text.contains("best-effort"), "{text}");
    let file = cli.root.path().join("config/toolhold.toml").display().to_string();
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
    let Some(ended) =
        ended_without_namespaces(&cli, &line("tools.shell.sandbox=best-effort", &command))
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
    let Some(ended) =
        ended_without_namespaces(&cli, &line("tools.shell.sandbox=best-effort", &command))
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

/// Without a view, nothing keeps a granted directory in its place.
#[test]
fn link_in_the_place_of_a_granted_directory_opens_nothing() {
    for (granted, exchange) in [
        ("data", "mv data kept && ln -s ../others/data data"),
        ("sub/data", "mv sub kept && ln -s ../others sub"),
    ] {
        let cli = Cli::new();
        let others = cli.work().with_file_name("others");
        for folder in [others.join("data"), cli.work().join(granted)] {
            fs::create_dir_all(folder).expect("folders are made");
        }
        let key = others.join("data/key");
        fs::write(&key, "of somebody else").expect("a file is written");
        cli.configure(&format!(
            "[tools]\nautonomy = \"full\"\n[tools.shell]\nnetwork = \"deny\"\nsandbox = \"best-effort\"\nallowed_paths = [\".\", {{ path = \"{granted}\", access = \"read\" }}]\n"
        ));
        let Some(toolhold) = without_namespaces(&cli, &["serve"]) else { return };
        let mut client = Client::start(toolhold);
        client.begin(LEGACY, false);
        let mut run = |command: &str| text(&client.call("bash", json!({ "command": command })));
        let exchanged = run(&format!("{exchange} && echo exchanged"));
        assert!(exchanged.contains("exchanged\n"), "{exchanged}");
        for _ in 0..2 {
            let said = run(&format!("cat {0} {granted}/key; echo x >> {0}", key.display()));
            assert!(!said.contains("of somebody else"), "{said}");
            assert!(
                said.contains("Permission denied") || said.contains("moved in the meantime"),
                "{said}"
            );
        }
        assert_eq!(fs::read_to_string(&key).expect("it is there"), "of somebody else");
        assert_eq!(client.leave(), 0);
    }
}
