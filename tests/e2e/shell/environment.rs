//! The environment is built from nothing.

use std::process::Command;

use crate::support::{Cli, Ended};

const PLANTED: [(&str, &str); 9] = [
    ("AWS_SECRET_ACCESS_KEY", "planted-1"),
    ("GITHUB_TOKEN", "planted-2"),
    ("OPENAI_API_KEY", "planted-3"),
    ("MY_SETTING", "planted-4"),
    ("SSH_AUTH_SOCK", "/planted-5"),
    ("DOCKER_HOST", "unix:///planted-6"),
    ("BASH_ENV", "/planted-8"),
    ("ASAN_OPTIONS", "abort_on_error=planted-9"),
    ("npm_config_fetch_retries", "planted-10"),
];

fn environment(cli: &Cli, settings: &[&str]) -> String {
    environment_of(cli, settings, false)
}

fn environment_of(cli: &Cli, settings: &[&str], network: bool) -> String {
    let mut line = vec![
        "call",
        "--yes",
        "bash",
        "command=env; cat /proc/self/environ",
        "--set",
        "tools.autonomy=full",
    ];
    if network {
        line.extend(["network=true", "--set", "tools.shell.network=allow"]);
    }
    for setting in settings {
        line.extend(["--set", setting]);
    }
    let mut command: Command = cli.command(&line);
    command
        .envs(PLANTED)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("LANG", "C.UTF-8")
        .env("TZ", "UTC");
    Ended::from_output(command.output().expect("toolhold starts")).ends(0).stdout
}

#[test]
fn planted_variables_are_not_in_a_commands_environment() {
    let cli = Cli::new();
    let seen = environment(&cli, &[]);
    assert!(!seen.contains("planted"), "{seen}");
    for usual in
        ["PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "TZ=UTC", "TERM=dumb", "HOME="]
    {
        assert!(seen.lines().any(|line| line.starts_with(usual)), "{usual}: {seen}");
    }
}

#[test]
fn only_named_variables_are_passed_on() {
    let cli = Cli::new();
    let seen = environment(&cli, &["tools.shell.env=[\"MY_SETTING\"]"]);
    assert!(seen.contains("MY_SETTING=planted-4"), "{seen}");
    assert_eq!(seen.matches("planted").count(), 2, "{seen}");
}

#[test]
fn command_without_the_network_has_npm_fail_at_once() {
    let cli = Cli::new();
    let fast =
        ["npm_config_fetch_retries=0", "npm_config_update_notifier=false", "NO_UPDATE_NOTIFIER=1"];
    let count =
        |seen: &str| fast.iter().filter(|wanted| seen.lines().any(|line| line == **wanted)).count();
    let deny = "tools.shell.network=deny";
    assert_eq!(count(&environment(&cli, &[deny])), 3);
    // A program may ask for its hosts.
    assert_eq!(count(&environment(&cli, &[])), 0);
    assert_eq!(count(&environment_of(&cli, &[], true)), 0);
    let named = environment(&cli, &[deny, "tools.shell.env=[\"npm_config_fetch_retries\"]"]);
    assert!(named.contains("npm_config_fetch_retries=planted-10") && count(&named) == 2, "{named}");
}

#[test]
fn options_of_sanitizers_are_the_users_if_they_are_named() {
    let cli = Cli::new();
    let seen = environment(&cli, &[]);
    assert!(seen.lines().any(|line| line == "ASAN_OPTIONS=detect_leaks=0"), "{seen}");
    let named = environment(&cli, &["tools.shell.env=[\"ASAN_OPTIONS\"]"]);
    assert!(named.contains("ASAN_OPTIONS=abort_on_error=planted-9"), "{named}");
    assert!(!named.contains("detect_leaks"), "{named}");
}
