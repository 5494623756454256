//! Prints the events of `toolhold plugin dev`.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use serde_json::{Value, json};
use toolhold_core::text::{cut, neutral, neutral_line};
use toolhold_core::{Answer, CallObserver, HostError, ObservedCall, Output};

/// The most events that wait for a slow terminal. The others are dropped and counted.
const WAITING: usize = 256;

/// The most bytes that are shown of arguments, of an answer, and of a compiler's output.
const MAX_ARGUMENTS: usize = 1024;
const MAX_ANSWER: usize = 4096;
const MAX_BUILD: usize = 32 * 1024;

/// Prints events on a separate thread, because a slow terminal must not delay a call.
#[derive(Clone)]
pub(crate) struct Screen {
    events: SyncSender<Value>,
    dropped: Arc<AtomicU64>,
}

impl Screen {
    /// Starts the thread that prints events, as JSON lines if `json` is on.
    pub(crate) fn open(json: bool) -> Result<Self, HostError> {
        let (events, received) = sync_channel::<Value>(WAITING);
        let dropped = Arc::new(AtomicU64::new(0));
        let dropped_events = Arc::clone(&dropped);
        std::thread::Builder::new()
            .name("toolhold-dev-screen".to_owned())
            .spawn(move || print_all(received, &dropped_events, json))
            .map_err(HostError::io("the thread that prints events can't be started"))?;
        Ok(Self { events, dropped })
    }

    pub(crate) fn show(&self, event: Value) {
        if self.events.try_send(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Shows a failed build with the compiler's `output`. `has_previous` says whether an earlier
    /// version is in use.
    pub(crate) fn show_failed_build(&self, error: &str, output: &str, has_previous: bool) {
        let output = shorten(output.trim_end(), MAX_BUILD);
        let now =
            if has_previous { "the previous version stays in use" } else { "waiting for a change" };
        self.show(json!({ "event": "build_failed", "error": neutral(error), "output": output, "now": now }));
    }
}

impl CallObserver for Screen {
    /// Shows a call and its answer.
    fn called(&self, call: &ObservedCall<'_>) {
        let ObservedCall { arguments, answer, took, .. } = call;
        let (status, text) = match &answer.outcome {
            Ok(output) => ("ok".to_owned(), output_text(output)),
            Err(failure) => {
                let mut status = failure.category.as_str().to_owned();
                if let Some(code) = &failure.code {
                    status += &format!("/{code}");
                }
                (status, format!("{}\n{}", failure.message, failure.joined_text()))
            }
        };

        let (denials, denial) = describe_denials(answer);
        self.show(json!({
            "event": "call",
            "tool": answer.tool,
            "arguments": shorten(&arguments.to_string(), MAX_ARGUMENTS),
            "status": neutral_line(&status),
            "answer": shorten(text.trim_end(), MAX_ANSWER),
            "ms": took.as_secs_f64() * 1000.0,
            "denials": denials,
            "denial": denial,
        }));
    }
}

fn output_text(output: &Output) -> String {
    let text = output.joined_text();
    match &output.structured {
        Some(value) if text.is_empty() => value.to_string(),
        _ => text,
    }
}

/// Returns the number of denials in a call, and the description of a denial.
fn describe_denials(answer: &Answer) -> (u64, Option<String>) {
    let report = answer.report.entries();
    let mut denial = report.denial.as_ref();
    if denial.is_none()
        && let Err(failure) = &answer.outcome
    {
        denial = failure.denial.as_ref();
    }
    let Some(denial) = denial else { return (report.denials, None) };
    // If the denial is only in the failure, the report hasn't counted it.
    let count = report.denials.max(1);
    (count, Some(neutral(&denial.to_string()).into_owned()))
}

/// Cuts a text to `max` bytes, and removes control characters.
fn shorten(text: &str, max: usize) -> String {
    let start = cut(text, max);
    let mut shortened = neutral(start).into_owned();
    let left_out = text.len() - start.len();
    if left_out > 0 {
        shortened += &format!("\n… {left_out} more bytes");
    }
    shortened
}

/// Prints events until the channel is closed. `dropped` counts the events for which the channel had
/// no space.
fn print_all(events: Receiver<Value>, dropped: &AtomicU64, json: bool) {
    for event in events {
        let mut out = std::io::stdout().lock();
        let left_out = dropped.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            let _ = print(&mut out, &json!({ "event": "left_out", "events": left_out }), json);
        }
        // Printing fails if the terminal is closed. A signal then ends the process.
        let _ = print(&mut out, &event, json);
    }
}

fn print(out: &mut impl Write, event: &Value, json: bool) -> std::io::Result<()> {
    if json {
        return writeln!(out, "{event}").and_then(|()| out.flush());
    }
    let ms = event["ms"].as_f64().unwrap_or_default();
    match text(event, "event") {
        "building" => {
            writeln!(out, "building …")?;
        }
        "built" => {
            writeln!(out, "built {} in {:.1} s", text(event, "file"), ms / 1000.0)?;
            let notes = event["notices"].as_array();
            for note in notes.into_iter().flatten().filter_map(Value::as_str) {
                writeln!(out, "note: {note}")?;
            }
        }
        "build_failed" => {
            writeln!(out, "{}\nthe build failed: {}", text(event, "output"), text(event, "error"))?;
            writeln!(out, "{}", text(event, "now"))?;
        }
        "serving" => {
            let listed = event["tools"].as_array().into_iter().flatten();
            let tools: Vec<&str> = listed.filter_map(Value::as_str).collect();
            writeln!(out, "serving {}: {}", text(event, "plugin"), tools.join(", "))?;
        }
        "refused" => {
            writeln!(out, "the new version isn't used: {}", text(event, "reason"))?;
        }
        "how" | "note" => {
            writeln!(out, "{}", text(event, "text"))?;
        }
        "call_not_made" => {
            writeln!(out, "the call was not made: {}", text(event, "reason"))?;
        }
        "held" => {
            writeln!(out, "not built: {}", text(event, "reason"))?;
        }
        "call" => {
            writeln!(
                out,
                "{} {} -> {}, {:.1} ms",
                text(event, "tool"),
                text(event, "arguments"),
                text(event, "status"),
                ms
            )?;
            write!(out, "{}", indented(text(event, "answer")))?;
            if let Some(denial) = event["denial"].as_str() {
                if text(event, "answer").contains(denial) {
                    writeln!(out, "  denied: {}", event["denials"])?;
                } else {
                    write!(out, "  denied ({}):\n{}", event["denials"], indented(denial))?;
                }
            }
        }
        "left_out" => {
            writeln!(out, "{} events were left out: the terminal is slow", event["events"])?;
        }
        _ => {
            writeln!(out, "{event}")?;
        }
    }
    out.flush()
}

fn text<'e>(event: &'e Value, name: &str) -> &'e str {
    event[name].as_str().unwrap_or_default()
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(event: Value) -> String {
        let mut out = Vec::new();
        print(&mut out, &event, false).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn call_is_shown_with_its_denial() {
        let shown = printed(json!({
            "event": "call", "tool": "a__b", "arguments": "{}", "status": "policy_blocked",
            "answer": "one\ntwo", "ms": 1.25, "denials": 2, "denial": "read /x is denied",
        }));
        assert_eq!(
            shown,
            "a__b {} -> policy_blocked, 1.2 ms\n  one\n  two\n  denied (2):\n  read /x is denied\n"
        );
    }

    #[test]
    fn long_and_steering_text_is_cut_and_neutralised() {
        let text = shorten(&format!("\u{1b}[2J{}", "x".repeat(5000)), 4096);
        assert!(text.ends_with("more bytes") && text.len() < 4200 && !text.contains('\u{1b}'));
    }
}
