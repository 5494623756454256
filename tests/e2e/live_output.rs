//! What leaves of a command while it runs: nothing that its answer would not say, and marked as the
//! answer is.

use std::fs;
use std::io::Read;

use serde_json::{Value, json};

use crate::bash::{at_a_terminal, unasked};
use crate::mcp::client::{Client, LEGACY, text};
use crate::support::Cli;

/// An invented token, put together so that no scanner reports it, as a program colours it.
fn commands() -> [String; 3] {
    let token = format!("gh{}_0123456789a", 'p');
    [
        // So slow that each line is an event of its own.
        "while read -r line; do echo \"$line\"; echo note >&2; sleep 0.12; done < id".to_owned(),
        format!("printf '{token}\\033[0mbcdefghijklmnopqrstuvwxyz\\n'; sleep 0.2"),
        format!(
            "echo {token}bcdefghijklmnopqrstuvwxyz > t; grep --color=always 6789 t; sleep 0.2; cat t"
        ),
    ]
}

/// Parts of the secrets that these commands print.
const PARTS: [&str; 3] = ["QUJDabc0", "23456789a", "bcdefghij"];

fn with_key() -> Cli {
    let cli = unasked();
    let line = |number: u8| format!("{number}{}\n", "QUJDabc0".repeat(8));
    let lines: String = (0..6).map(line).collect();
    let label = "PRIVATE KEY-----";
    let key = format!("-----BEGIN {label}\n{lines}-----END {label}\n");
    fs::write(cli.work().join("id"), key).expect("it is written");
    cli
}

#[test]
fn mcp_client_gets_no_secret_while_the_command_prints_it() {
    let cli = with_key();
    let mut client = Client::new(&cli, &[], LEGACY, false);
    for command in commands() {
        let arguments = json!({ "command": command });
        let token = json!({ "progressToken": "p" });
        let params = json!({ "name": "bash", "arguments": arguments, "_meta": token });
        let id = client.ask("tools/call", params);
        let mut live = String::new();
        let answer = loop {
            let message = client.next();
            if message["id"] == json!(id) {
                break message["result"].clone();
            }
            live += message["params"]["message"].as_str().unwrap_or_default();
        };
        let answer = text(&answer);
        for said in [&live, &answer] {
            assert!(!PARTS.iter().any(|part| said.contains(part)), "{command}: {said}");
        }
        // The lines of a key are empty while it comes, and a token is named.
        let is_told = live.contains("[REDACTED:") || live.contains("BEGIN PRIVATE KEY-----\n");
        assert!(is_told && answer.contains("[REDACTED:"), "{command}: {live}\n{answer}");
    }
}

#[test]
fn terminal_shows_no_secret_while_the_command_prints_it() {
    let cli = with_key();
    for command in commands() {
        // It is one word of a shell's line.
        fs::write(cli.work().join("prints"), &command).expect("it is written");
        let line = ["call", "bash", "command=. ./prints"].map(str::to_owned);
        let Some((mut child, mut screen)) = at_a_terminal(&cli, &line) else { return };
        let mut shown = Vec::new();
        screen.read_to_end(&mut shown).expect("it can be read");
        assert!(child.wait().expect("it ends").success());
        let shown = String::from_utf8_lossy(&shown);
        assert!(shown.contains("[REDACTED:"), "{command}: {shown}");
        assert!(!PARTS.iter().any(|part| shown.contains(part)), "{command}: {shown}");
    }
}

/// Whether a memory is untrusted.
#[track_caller]
fn is_untrusted(cli: &Cli, key: &str) -> bool {
    let entry = cli.run(&["memory", "show", key, "--json"]).ends(0).json();
    entry["untrusted"] != Value::Bool(false)
}

const WAITS: &str = "echo obey; until test -e go; do sleep 0.01; done";

#[test]
fn what_is_saved_after_live_output_is_untrusted() {
    let cli = unasked();
    let mut client = Client::new(&cli, &[], LEGACY, false);
    let save = |key: &str| json!({ "content": format!("obey ({key})"), "key": key });
    client.call("memory_save", save("before"));
    let params = json!({
        "name": "bash", "arguments": { "command": WAITS }, "_meta": { "progressToken": "p" },
    });
    let running = client.ask("tools/call", params);
    let told = client.notification("notifications/progress");
    assert_eq!(told["params"]["message"], "obey\n", "{told}");
    let mark = &told["params"]["_meta"]["toolhold"]["tool"]["toolhold:untrusted"];
    assert_eq!(mark, &json!(true), "{told}");
    let saved = client.call("memory_save", save("during"));
    assert_eq!(saved["isError"], false, "{saved}");
    fs::write(cli.work().join("go"), "").expect("it is written");
    client.answer(running);
    assert!(!is_untrusted(&cli, "before") && is_untrusted(&cli, "during"));
}

#[test]
fn program_hides_no_text_from_the_model() {
    let cli = unasked();
    for end in ["\\007", "\\033\\\\", "\\302\\234"] {
        let command = format!("command=printf 'A\\033]0;x{end}B hidden\\nC\\n'");
        let said = cli.run(&["call", "bash", &command]).ends(0).stdout;
        assert_eq!(said, "AB hidden\nC\n", "{end}");
    }
}
