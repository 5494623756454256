//! Requests of OTLP, read by OpenTelemetry's own messages for Python.

use std::io::Write;
use std::process::{Command, Stdio};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::support::fetched;
use crate::support::server::Asked;

/// Requests as their receiver reads them. `None`, with a notice, without the Python client.
pub(super) fn decoded(requests: &[Asked]) -> Option<Vec<Value>> {
    let lines = requests.iter().map(|request| {
        assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
        json!({ "path": request.path(), "body": BASE64_STANDARD.encode(&request.body) })
    });
    run(&lines.collect::<Vec<_>>())
}

/// The lines of a file with logs.
pub(super) fn decoded_file(text: &str) -> Option<Vec<Value>> {
    let lines = text.lines().map(|line| {
        let request: Value = serde_json::from_str(line).expect("each line is JSON");
        json!({ "path": "/v1/logs", "json": request })
    });
    run(&lines.collect::<Vec<_>>())
}

fn run(lines: &[Value]) -> Option<Vec<Value>> {
    let folder = fetched("python")?;
    let mut python = Command::new(folder.join("bin/python"));
    python.arg(folder.join("otlp.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.stderr(Stdio::piped()).spawn().expect("python starts");
    let mut input = python.stdin.take().expect("it has an input");
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let writing = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let ended = python.wait_with_output().expect("it ends");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    writing.join().expect("it writes").expect("it reads");
    let out = String::from_utf8(ended.stdout).expect("it is text");
    Some(out.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect())
}

/// The only element of each list on the way, and the last list.
pub(super) fn items(request: &Value, path: [&str; 3]) -> Vec<Value> {
    let outer = request[path[0]].as_array().into_iter().flatten();
    let inner = outer.flat_map(|outer| outer[path[1]].as_array().into_iter().flatten());
    inner.flat_map(|inner| inner[path[2]].as_array().cloned().unwrap_or_default()).collect()
}

/// An attribute of an item, as text.
pub(super) fn attribute(item: &Value, name: &str) -> Option<String> {
    let attributes = item["attributes"].as_array()?;
    let value = &attributes.iter().find(|attribute| attribute["key"] == name)?["value"];
    let (_, value) = value.as_object()?.iter().next()?;
    Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}
