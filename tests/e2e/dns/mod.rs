//! Names that change their addresses, from a real DNS server in a network of the test's own. What
//! counts is who was connected to.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Cli, not_tried, toolhold};

#[test]
fn name_that_moves_to_a_private_address_is_not_followed_there() {
    let probe = |program: &str, arguments: &[&str]| {
        let there = Command::new(program)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        there.is_ok_and(|status| status.success())
    };
    for (program, arguments) in [("unshare", &["-Urnm", "true"][..]), ("python3", &["-c", ""])] {
        if !probe(program, arguments) {
            not_tried(program);
            return;
        }
    }
    let cli = Cli::new();
    cli.configure(
        "[tools.web]\nallowed_domains = [{ host = \"*.example.com\", scheme = \"http\", port = 8080 }]\nhttps_only = false\n\
         [tools.retry]\nmax_attempts = 0\n",
    );
    let script = cli.root.path().join("inside.py");
    fs::write(&script, include_str!("inside.py")).expect("it is written");
    let mut inside = Command::new("unshare");
    inside
        .args(["-Urnm", "python3"])
        .arg(&script)
        .arg(toolhold())
        .arg(cli.root.path().join("work"));
    let environment = cli.command(&[]);
    inside
        .env_clear()
        .envs(environment.get_envs().filter_map(|(name, value)| Some((name, value?))));
    inside.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let output = inside.output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");

    // A name with a public address at the lookup was connected at that address, though it would
    // lead inside by then.
    assert_eq!(
        told["connected"],
        json!({ "outer": ["/", "/1", "/away/led", "/away/moves"], "inner": [] }),
        "{told:#}"
    );
    // Once for each connection, so no second answer can differ from the one that was decided on.
    let once = json!({ "steady": 3, "moves": 4, "mixed": 1, "six": 1, "mapped": 1, "both": 1, "alias": 1, "zero": 1, "led": 1 });
    assert_eq!(told["looked"], once, "{told:#}");
    for call in told["called"].as_array().expect("it is a list") {
        let (path, code) = (call["path"].as_str().expect("it is a text"), call["code"].as_i64());
        let expected = if matches!(path, "steady/" | "moves/1") { 0 } else { 3 };
        assert_eq!(code, Some(expected), "{call:#}");
        assert_eq!(
            call["told"].as_str().is_some_and(|told| told.contains("policy_blocked")),
            expected == 3,
            "{call:#}"
        );
    }
}
