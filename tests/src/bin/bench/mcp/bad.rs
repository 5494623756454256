//! Servers that do what no server should, one kind each, for the calls beside them.

use std::io::{BufRead, Write};
use std::time::Duration;

use serde_json::{Value, json};

/// The kinds, as they are named in the configuration, and what they do in words.
pub(crate) const KINDS: [(&str, &str); 5] = [
    (HANGS, "never answers"),
    (FLOODS, "floods as much as it may"),
    (BURSTS, "floods until it is ended"),
    (CRASHES, "crashes in each call"),
    (SLOW, "starts slowly, and ends"),
];

pub(crate) const HANGS: &str = "hangs";
const FLOODS: &str = "floods";
const BURSTS: &str = "bursts";
const CRASHES: &str = "crashes";
const SLOW: &str = "slow";

/// Its only tool.
pub(crate) const TOOL: &str = "bad";

/// Time that a server takes to start.
const START: Duration = Duration::from_secs(2);

/// Between two messages that answer nothing: a server is ended at more than 500 in a second.
const PAUSE: Duration = Duration::from_micros(2500);

/// Serves on stdin and stdout as one of [`KINDS`].
pub(crate) fn serve(kind: &str) -> Result<(), String> {
    if kind == SLOW {
        std::thread::sleep(START);
    }
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let message: Value = serde_json::from_str(&line).map_err(|error| error.to_string())?;
        let Some(id) = message.get("id") else { continue };
        match message["method"].as_str() {
            Some("initialize") => answer(
                id,
                &json!({
                    "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                    "serverInfo": { "name": kind, "version": "1" },
                }),
            )?,
            Some("tools/list") => {
                let tool = json!({ "name": TOOL, "inputSchema": { "type": "object" } });
                answer(id, &json!({ "tools": [tool] }))?;
            }
            Some("tools/call") => misbehave(kind, id)?,
            _ => send(&json!({
                "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "no such method" },
            }))?,
        }
    }
    Ok(())
}

/// What a call of its tool does.
fn misbehave(kind: &str, id: &Value) -> Result<(), String> {
    let noise = json!({
        "jsonrpc": "2.0", "method": "notifications/message",
        "params": { "level": "info", "data": "noise ".repeat(200) },
    });
    match kind {
        FLOODS => {
            std::thread::spawn(|| while writeln!(std::io::stderr(), "{:1000}", "").is_ok() {});
            while send(&noise).is_ok() {
                std::thread::sleep(PAUSE);
            }
        }
        BURSTS => while send(&noise).is_ok() {},
        CRASHES => std::process::exit(1),
        SLOW => {
            answer(id, &json!({ "content": [{ "type": "text", "text": "late" }] }))?;
            std::process::exit(0);
        }
        _ => {}
    }
    Ok(())
}

fn answer(id: &Value, result: &Value) -> Result<(), String> {
    send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

fn send(message: &Value) -> Result<(), String> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{message}").and_then(|()| output.flush()).map_err(|error| error.to_string())
}
