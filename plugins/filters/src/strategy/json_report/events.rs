//! Shortens reports with a JSON event in each line: `cargo --message-format json`,
//! `cargo test -- --format json`, `go test -json`.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::reports_failure;
use crate::text;

/// The event of a line.
enum Event {
    /// The line isn't an event of a known form.
    Other,
    Cargo(Map<String, Value>),
    Libtest(Map<String, Value>),
    Go(Map<String, Value>),
}

fn parse(line: &str) -> Event {
    let has_key = ["\"reason\"", "\"event\"", "\"Action\""].iter().any(|key| line.contains(key));
    if !line.starts_with('{') || !has_key {
        return Event::Other;
    }
    let Ok(Value::Object(event)) = serde_json::from_str(line) else { return Event::Other };
    if event.get("reason").is_some_and(Value::is_string) {
        Event::Cargo(event)
    } else if event.get("type").is_some_and(Value::is_string) && event.contains_key("event") {
        Event::Libtest(event)
    } else if event.get("Action").is_some_and(Value::is_string) {
        Event::Go(event)
    } else {
        Event::Other
    }
}

/// The lines without events of passed tests. `None` if no line is an event.
pub(super) fn shorten(lines: &[&str]) -> Option<String> {
    let events: Vec<Event> = lines.iter().map(|line| parse(line)).collect();
    if events.iter().all(|event| matches!(event, Event::Other)) {
        return None;
    }
    let mut writer = Writer { out: String::new(), left_out: 0, output: None };
    let passed = passed_go_tests(&events);
    let mut rendered = HashSet::new();
    for (line, event) in lines.iter().zip(&events) {
        match event {
            Event::Other => writer.line(line),
            Event::Cargo(event) => match text_of(event, "reason") {
                "compiler-artifact" | "build-script-executed" => writer.leave_out(),
                "compiler-message" => {
                    // A crate and its tests are compiled apart, and say the same.
                    match message(event) {
                        Some(short) if rendered.insert(short.clone()) => writer.line(&short),
                        Some(_) => writer.leave_out(),
                        None => writer.line(line),
                    }
                }
                _ => writer.line(line),
            },
            Event::Libtest(event) => {
                let has_passed = match (text_of(event, "type"), text_of(event, "event")) {
                    (_, "started") => true,
                    ("test", "ok" | "ignored") => !reports_failure(text_of(event, "stdout")),
                    _ => false,
                };
                if has_passed {
                    writer.leave_out();
                } else if let Some(stdout) = super::shorten_text(text_of(event, "stdout")) {
                    let mut event = event.clone();
                    event.insert("stdout".to_owned(), stdout.into());
                    writer.line(&Value::Object(event).to_string());
                } else {
                    writer.line(line);
                }
            }
            Event::Go(event) => write_go(&mut writer, line, event, &passed),
        }
    }
    writer.end();
    Some(writer.out)
}

fn text_of<'a>(event: &'a Map<String, Value>, key: &str) -> &'a str {
    event.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A compiler's message with its text, as the compiler would print it, and its places.
fn message(event: &Map<String, Value>) -> Option<String> {
    let message = event.get("message")?;
    let rendered = message.get("rendered")?.as_str()?;
    let places = message.get("spans").and_then(Value::as_array).into_iter().flatten();
    let places: Vec<Value> = places
        .filter(|span| span["is_primary"].as_bool() == Some(true))
        .map(|span| json!({ "file_name": span["file_name"], "line_start": span["line_start"], "column_start": span["column_start"] }))
        .collect();
    let code = message.get("code").and_then(|code| code.get("code"));
    let short = json!({
        "reason": "compiler-message",
        "message": {
            "level": message.get("level"),
            "code": code,
            "message": message.get("message"),
            "spans": places,
            "rendered": rendered,
        },
    });
    Some(short.to_string())
}

/// A test of Go: its package and its name. The name is empty for the package itself.
type GoTest<'a> = (&'a str, &'a str);

fn go_test(event: &Map<String, Value>) -> GoTest<'_> {
    (text_of(event, "Package"), text_of(event, "Test"))
}

/// The tests and packages that passed or were skipped. One that also failed, as with `-count 2`,
/// isn't among them.
fn passed_go_tests(events: &[Event]) -> HashSet<GoTest<'_>> {
    let mut passed: HashMap<GoTest<'_>, bool> = HashMap::new();
    for event in events {
        if let Event::Go(event) = event {
            match text_of(event, "Action") {
                "pass" | "skip" => drop(passed.entry(go_test(event)).or_insert(true)),
                "fail" => drop(passed.insert(go_test(event), false)),
                _ => {}
            }
        }
    }
    passed.into_iter().filter_map(|(test, passed)| passed.then_some(test)).collect()
}

fn write_go(
    writer: &mut Writer,
    line: &str,
    event: &Map<String, Value>,
    passed: &HashSet<GoTest<'_>>,
) {
    let test = go_test(event);
    let output = text_of(event, "Output");
    match text_of(event, "Action") {
        "start" | "run" | "pause" | "cont" => writer.leave_out(),
        // The result of a package stays.
        "pass" | "skip" if !test.1.is_empty() => writer.leave_out(),
        "output" | "build-output" => {
            let is_of_package = test.1.is_empty() && output.contains("coverage: ");
            let is_mark = ["=== RUN", "=== PAUSE", "=== CONT", "=== NAME"]
                .iter()
                .any(|mark| output.starts_with(mark));
            if is_mark || passed.contains(&test) && !is_of_package && !reports_failure(output) {
                writer.leave_out();
            } else {
                writer.output(line, event, output);
            }
        }
        _ => writer.line(&without_time(event)),
    }
}

fn without_time(event: &Map<String, Value>) -> String {
    let event: Map<String, Value> = event
        .iter()
        .filter(|(key, _)| *key != "Time")
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    Value::Object(event).to_string()
}

/// Writes lines, and counts the events that it leaves out.
struct Writer {
    out: String,
    left_out: usize,
    /// The output of one test of Go, as one event.
    output: Option<Map<String, Value>>,
}

impl Writer {
    fn leave_out(&mut self) {
        self.left_out += 1;
    }

    fn line(&mut self, line: &str) {
        self.end_output();
        self.mark();
        text::push_line(&mut self.out, line);
    }

    /// Adds the output of a test to what it printed before.
    fn output(&mut self, line: &str, event: &Map<String, Value>, output: &str) {
        if output.is_empty() {
            return self.line(line);
        }
        if let Some(last) = &mut self.output
            && ["Action", "Package", "Test", "ImportPath"]
                .iter()
                .all(|key| last.get(*key) == event.get(*key))
            && let Some(Value::String(all)) = last.get_mut("Output")
        {
            return all.push_str(output);
        }
        self.end_output();
        let mut event = event.clone();
        event.shift_remove("Time");
        self.output = Some(event);
    }

    fn end_output(&mut self) {
        if let Some(mut event) = self.output.take() {
            if let Some(Value::String(output)) = event.get_mut("Output")
                && let Some(shorter) = super::shorten_text(output)
            {
                *output = shorter;
            }
            self.mark();
            text::push_line(&mut self.out, &Value::Object(event).to_string());
        }
    }

    fn mark(&mut self) {
        if self.left_out > 0 {
            text::push_mark(&mut self.out, std::mem::take(&mut self.left_out));
            self.out.push('\n');
        }
    }

    fn end(&mut self) {
        self.end_output();
        self.mark();
    }
}
