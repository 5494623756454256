//! Makes the outcome of a call that crashed, was stopped, was denied or reached a limit. The
//! outcome has the failure with its reason and remedy, and the emitted parts, without secrets.

use std::sync::Arc;

use serde_json::Value;
use toolhold_contract::text::{cut, neutral, neutral_line};
use toolhold_contract::{Category, Content, Definition, Denial, Failure, Outcome, Report};
use toolhold_net::{Egress, Obstacle};
use toolhold_redaction::{self as redaction, Keys};
use wasmtime::{Store, Trap};
use wasmtime_wasi::I32Exit;

use crate::guest::capability::http::part_without_secrets;
use crate::guest::{CallState, Emitted, take_emitted};
use crate::timing::CallWatch;
use crate::timing::less_or_more;

/// Makes the failure of a guest that returned no answer, because the host stopped it or it crashed.
pub(crate) fn failure(
    watch: &CallWatch,
    error: &wasmtime::Error,
    store: &Store<CallState>,
    plugin: &Arc<str>,
) -> Failure {
    watch.failure_if_stopped().unwrap_or_else(|| crash_failure(watch, error, store.data(), plugin))
}

/// Most bytes of a crashed guest's standard error in the failure, taken from the end.
const LAST_WORDS: usize = 2048;

/// Makes the failure of a guest that crashed. The backtrace goes to the log, not to the model. The
/// end of the standard error is content, because programs print uncaught exceptions there.
fn crash_failure(
    watch: &CallWatch,
    error: &wasmtime::Error,
    state: &CallState,
    plugin: &str,
) -> Failure {
    if state.memory.refused() {
        return Failure::new(
            Category::PermanentFailure,
            "the tool needed more memory than its limit and was stopped",
        )
        .with_code("memory_limit")
        .with_suggestion(less_or_more("memory_mib", &watch.table));
    }
    let reason = match (error.downcast_ref::<I32Exit>(), error.downcast_ref::<Trap>()) {
        (Some(exit), _) => format!("it exited with exit code {}", exit.0),
        (None, Some(trap)) => trap.to_string(),
        (None, None) => error.root_cause().to_string(),
    };
    let reason = neutral_line(cut(&reason, 1024));
    let output = format!("{}\n{}", state.call.stderr.text(), state.call.stdout.text());
    let printed = state.capabilities.http.without_secrets(output);
    tracing::warn!(target: "toolhold::crash", plugin, call = %state.call.id, "the tool crashed: {}", redaction::text(&reason, Keys::Text));
    tracing::debug!(
        target: "toolhold::crash",
        plugin,
        call = %state.call.id,
        "{}\nit printed: {}",
        neutral(&format!("{error:?}")),
        redaction::text(&neutral(cut(printed.trim(), 16 * 1024)), Keys::Text),
    );
    let mut failure =
        Failure::new(Category::PermanentFailure, format!("the tool crashed: {reason}"))
            .with_code("crash");
    failure.content.extend(last_words(state));
    failure
}

/// Returns the end of a guest's standard error, without secrets. If the text has several lines, the
/// result begins with a whole line. Returns `None` if the guest printed nothing.
fn last_words(state: &CallState) -> Option<Content> {
    // Secrets are redacted in a longer text than is returned, since no pattern matches the second
    // half of a secret.
    let stderr = state.capabilities.http.without_secrets(state.call.stderr.end(8 * LAST_WORDS));
    let end = redaction::text(&neutral(stderr.trim()), Keys::Text).into_owned();
    let start = end.ceil_char_boundary(end.len().saturating_sub(LAST_WORDS));
    let mut tail = &end[start..];
    if start > 0
        && let Some((_, whole_lines)) = tail.split_once('\n')
    {
        tail = whole_lines;
    }
    if tail.is_empty() {
        return None;
    }
    Some(Content::text(format!("The end of its standard error:\n{tail}")))
}

/// Puts the emitted parts before the content of a failure, so that they are the answer of a stopped
/// call. A successful answer doesn't need them or already contains them.
pub(crate) fn with_emitted(outcome: Outcome, emitted: &Emitted) -> Outcome {
    outcome.map_err(|mut failure| {
        let mut parts = take_emitted(emitted);
        if !parts.is_empty() {
            parts.append(&mut failure.content);
            failure.content = parts;
        }
        failure
    })
}

/// Puts the emitted parts before the content of an answer whose tool requests this.
pub(crate) fn after_emitted(outcome: Outcome, emitted: &Emitted) -> Outcome {
    outcome.map(|mut output| {
        let mut parts = take_emitted(emitted);
        parts.append(&mut output.content);
        output.content = parts;
        output
    })
}

/// Redacts secrets in the answer of a guest. The guest may have joined or decoded parts of
/// responses, so that the host couldn't see the secrets in the responses.
pub(crate) fn without_secrets(outcome: Outcome, state: &CallState) -> Outcome {
    let Some(egress) = state.capabilities.http.egress() else { return outcome };
    if !egress.knows_secrets() {
        return outcome;
    }
    match outcome {
        Ok(mut output) => {
            for part in &mut output.content {
                part_without_secrets(part, egress);
            }
            for value in output.structured.iter_mut().chain(&mut output.meta) {
                change_strings(value, &|text| remove_secrets(text, egress));
            }
            Ok(output)
        }
        Err(mut failure) => {
            remove_secrets(&mut failure.message, egress);
            if let Some(suggestion) = &mut failure.suggestion {
                remove_secrets(suggestion, egress);
            }
            for part in &mut failure.content {
                part_without_secrets(part, egress);
            }
            for value in failure.structured.iter_mut().chain(&mut failure.meta) {
                change_strings(value, &|text| remove_secrets(text, egress));
            }
            Err(failure)
        }
    }
}

fn remove_secrets(text: &mut String, egress: &Egress) {
    if let Some(without) = egress.without_secrets(text) {
        *text = without;
    }
}

/// Changes every string of a value, including the names of fields.
fn change_strings(value: &mut Value, change: &impl Fn(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(values) => values.iter_mut().for_each(|value| change_strings(value, change)),
        Value::Object(fields) => {
            let all = std::mem::take(fields);
            fields.extend(all.into_iter().map(|(mut name, mut value)| {
                change(&mut name);
                change_strings(&mut value, change);
                (name, value)
            }));
        }
        _ => {}
    }
}

/// Adds the operator's remedy for a failed request, since the guest doesn't know it.
pub(crate) fn with_obstacle(outcome: Outcome, state: &CallState) -> Outcome {
    outcome.map_err(|mut failure| {
        match state.capabilities.http.take_obstacle() {
            // A failure by the host already names its limit.
            Some(Obstacle::TimeLimit(bound))
                if failure.category == Category::Timeout && failure.suggestion.is_none() =>
            {
                failure.message = format!("{} ({bound})", failure.message);
            }
            Some(Obstacle::Setup(reason)) if failure.category == Category::PermanentFailure => {
                failure.message = reason;
                failure.code = Some("host".into());
                failure.suggestion = Some("Run `toolhold doctor` to see what to fix.".to_owned());
            }
            _ => {}
        }
        if state.files.reached_write_limit() && failure.category == Category::PermanentFailure {
            let table = &state.call.watch.table;
            failure.message = format!(
                "{} (the call has reached its limit of written bytes: `written_mib`)",
                failure.message
            );
            failure.suggestion.get_or_insert_with(|| {
                format!(
                    "To let a call write more, for example, {}",
                    table.lines("written_mib = 4096")
                )
            });
        }
        failure
    })
}

/// Adds the denial if a tool failed because a listing left out an entry. The tool can't know that a
/// rule was the reason.
fn with_left_out_denial(failure: Failure, report: &Report) -> Failure {
    if failure.category != Category::PermanentFailure
        || failure.code.as_deref() != Some("not-permitted")
    {
        return failure;
    }
    let mut entries = report.entries();
    let left_out = &mut entries.left_out;
    let denial = match left_out.denied.take() {
        Some(denial) => denial,
        None => match left_out.asked.take() {
            Some((denial, _)) => denial,
            None => return failure,
        },
    };
    let message = format!("{denial} (The tool said: {})", failure.message);
    entries.denials += 1;
    entries.denial.get_or_insert_with(|| denial.clone());
    Failure {
        category: Category::PolicyBlocked,
        code: None,
        message,
        denial: Some(denial),
        ..failure
    }
}

/// Adds a denial of the call to its failure if the denial may be the reason. The guest can't
/// prevent this (invariant 5).
pub(crate) fn with_denial(
    outcome: Outcome,
    state: &mut CallState,
    arguments: &Value,
    definition: &Definition,
    report: &Report,
) -> Outcome {
    let (file_denial, file_denials) = state.files.denials().take();
    let requests = state.capabilities.http.take_refused();
    // The suggestion belongs to the denied request.
    let suggestion =
        if file_denial.is_none() { requests.suggestion.map(str::to_owned) } else { None };
    let denial = file_denial.or(requests.first);
    if let Some(denial) = &denial {
        let mut entries = report.entries();
        entries.denials += file_denials + requests.count;
        entries.denial.get_or_insert_with(|| (**denial).clone());
    }

    let failure = match outcome {
        Err(failure) => failure,
        ok => return ok,
    };
    let Some(denial) = denial else { return Err(with_left_out_denial(failure, report)) };
    if is_stop(&failure) {
        return Err(failure);
    }
    let may_be_reason = failure.category == Category::PermanentFailure
        || is_about_subject(&denial, arguments, definition);
    if !may_be_reason {
        return Err(failure);
    }

    let text = denial.to_string();
    // The tool's message isn't needed if it only repeats the denial. A tool that got the denial
    // from a standard interface has only its code.
    let repeats =
        failure.message.contains(&text) || failure.code.as_deref() == Some("not-permitted");
    let message =
        if repeats { text } else { format!("{text} (The tool said: {})", failure.message) };
    Err(Failure {
        category: Category::PolicyBlocked,
        code: None,
        message,
        suggestion,
        denial: Some(*denial),
        ..failure
    })
}

/// Checks whether the host stopped the guest at its time, at a limit or at its cancellation.
fn is_stop(failure: &Failure) -> bool {
    matches!(failure.code.as_deref(), Some("cpu_budget" | "memory_limit" | "result_limit"))
        || matches!(failure.category, Category::Timeout | Category::Cancelled)
}

/// Checks whether a denied action was on a path that the call names.
fn is_about_subject(denial: &Denial, arguments: &Value, definition: &Definition) -> bool {
    definition
        .subjects
        .iter()
        .filter(|subject| subject.kind.is_path())
        .filter_map(|subject| arguments.pointer(&subject.pointer)?.as_str())
        .any(|path| denial.action.ends_with(path))
}
