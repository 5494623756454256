//! Makes the outcome of a call: adds reasons, remedies and emitted parts, and redacts secrets.

use std::sync::Arc;

use serde_json::Value;
use toolhold_contract::text::{cut, neutral, neutral_line};
use toolhold_contract::{Category, Content, Definition, Denial, Failure, Outcome, Report};
use toolhold_net::{Egress, Obstacle};
use toolhold_policy::OwnTable;
use toolhold_redaction::{self as redaction, Keys};
use wasmtime::{Store, Trap};
use wasmtime_wasi::I32Exit;

use crate::guest::capability::http::part_without_secrets;
use crate::guest::{CallState, Emitted, take_emitted};
use crate::timing::CallWatch;
use crate::timing::limit_suggestion;

pub(crate) fn failure(
    watch: &CallWatch,
    error: &wasmtime::Error,
    store: &Store<CallState>,
    plugin: &Arc<str>,
) -> Failure {
    watch.failure_if_stopped().unwrap_or_else(|| crash_failure(watch, error, store.data(), plugin))
}

/// Bytes at the end of a crashed guest's standard error that the failure contains.
const LAST_WORDS: usize = 2048;

/// Bytes at the end of standard error in which secrets are redacted before the cut.
const REDACTED_STDERR: usize = 8 * LAST_WORDS;

/// Most bytes of the reason of a crash, and of the output in the log. Longer texts are cut.
const MAX_REASON: usize = 1024;
const MAX_LOGGED_OUTPUT: usize = 16 * 1024;

/// Makes the failure of a guest that crashed. The backtrace goes only to the log. The end of the
/// standard error is content, because programs print uncaught exceptions there.
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
        .with_suggestion(limit_suggestion("memory_mib", &watch.table));
    }
    let untrusted_reason = if let Some(exit) = error.downcast_ref::<I32Exit>() {
        format!("the component exited with exit code {}", exit.0)
    } else if let Some(trap) = error.downcast_ref::<Trap>() {
        trap.to_string()
    } else {
        error.root_cause().to_string()
    };
    let reason = neutral_line(cut(&untrusted_reason, MAX_REASON));
    let output = format!("{}\n{}", state.call.stderr.text(), state.call.stdout.text());
    let printed = state.capabilities.http.without_secrets(output);
    tracing::warn!(target: "toolhold::crash", plugin, call = %state.call.id, "the tool crashed: {}", redaction::text(&reason, Keys::Text));
    tracing::debug!(
        target: "toolhold::crash",
        plugin,
        call = %state.call.id,
        "{}\nit printed: {}",
        neutral(&format!("{error:?}")),
        redaction::text(&neutral(cut(printed.trim(), MAX_LOGGED_OUTPUT)), Keys::Text),
    );

    let mut failure =
        Failure::new(Category::PermanentFailure, format!("the tool crashed: {reason}"))
            .with_code("crash");
    failure.content.extend(last_words(state));
    failure
}

/// Returns the end of a guest's standard error, without secrets. A cut text begins with a whole
/// line.
fn last_words(state: &CallState) -> Option<Content> {
    // Secrets are redacted in a longer text before the cut. After the cut, only half of a secret
    // may be left, which no pattern matches.
    let end = state.call.stderr.end(REDACTED_STDERR);
    let without_secrets = state.capabilities.http.without_secrets(end);
    let redacted = redaction::text(&neutral(without_secrets.trim()), Keys::Text).into_owned();

    let earliest_start = redacted.len().saturating_sub(LAST_WORDS);
    // The cut must not divide a character.
    let start = redacted.ceil_char_boundary(earliest_start);
    let mut shown = &redacted[start..];
    let is_cut = start > 0;
    if is_cut && let Some((_, whole_lines)) = shown.split_once('\n') {
        shown = whole_lines;
    }
    if shown.is_empty() {
        return None;
    }
    Some(Content::text(format!("The end of the tool's standard error:\n{shown}")))
}

/// Puts the emitted parts before the content of a failure, so that they aren't lost. Returns a
/// successful outcome unchanged.
pub(crate) fn with_emitted(outcome: Outcome, emitted: &Emitted) -> Outcome {
    let mut failure = match outcome {
        Ok(output) => return Ok(output),
        Err(failure) => failure,
    };
    let mut parts = take_emitted(emitted);
    if !parts.is_empty() {
        parts.append(&mut failure.content);
        failure.content = parts;
    }
    Err(failure)
}

/// Puts the emitted parts before the content of a successful outcome. Returns a failure unchanged.
pub(crate) fn after_emitted(outcome: Outcome, emitted: &Emitted) -> Outcome {
    let mut output = outcome?;
    let mut parts = take_emitted(emitted);
    parts.append(&mut output.content);
    output.content = parts;
    Ok(output)
}

/// Redacts secrets in a guest's answer. The guest may have decoded or joined parts of responses,
/// and the host couldn't see the secrets in these parts.
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

/// Changes every string of a value, including field names.
fn change_strings(value: &mut Value, change: &impl Fn(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(values) => {
            for value in values {
                change_strings(value, change);
            }
        }
        Value::Object(fields) => {
            for (mut name, mut value) in std::mem::take(fields) {
                change(&mut name);
                change_strings(&mut value, change);
                fields.insert(name, value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Adds the host's reason for a failed request or write, which the guest doesn't know.
pub(crate) fn with_obstacle(outcome: Outcome, state: &CallState) -> Outcome {
    let mut failure = match outcome {
        Ok(output) => return Ok(output),
        Err(failure) => failure,
    };
    let is_permanent = failure.category == Category::PermanentFailure;
    // A failure with a suggestion already names its limit.
    let lacks_limit = failure.category == Category::Timeout && failure.suggestion.is_none();
    match state.capabilities.http.take_obstacle() {
        Some(Obstacle::TimeLimit(bound)) if lacks_limit => {
            failure.message = format!("{} ({bound})", failure.message);
        }
        Some(Obstacle::Setup(reason)) if is_permanent => {
            failure.message = reason;
            failure.code = Some("host".into());
            failure.suggestion = Some("Run `toolhold doctor` to see what to fix.".to_owned());
        }
        _ => {}
    }
    if is_permanent && state.files.reached_write_limit() {
        add_write_limit(&mut failure, &state.call.watch.table);
    }
    Err(failure)
}

/// Adds to a failure that the call has reached its limit of written bytes.
fn add_write_limit(failure: &mut Failure, table: &OwnTable) {
    failure.message = format!(
        "{} (the call has reached its limit of written bytes: `written_mib`)",
        failure.message
    );
    if failure.suggestion.is_none() {
        failure.suggestion = Some(format!(
            "To let a call write more, for example, {}",
            table.lines("written_mib = 4096")
        ));
    }
}

/// Adds the denial if a listing left out an entry and the tool then failed. The tool doesn't know
/// that a rule was the reason.
fn with_left_out_denial(failure: Failure, report: &Report) -> Failure {
    let is_not_permitted = failure.category == Category::PermanentFailure
        && failure.code.as_deref() == Some("not-permitted");
    if !is_not_permitted {
        return failure;
    }
    let mut entries = report.entries();
    let left_out = &mut entries.left_out;
    let denial = if let Some(denial) = left_out.denied.take() {
        denial
    } else if let Some((denial, _count)) = left_out.asked.take() {
        // An entry that needs approval may be the reason.
        denial
    } else {
        return failure;
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
/// prevent this.
pub(crate) fn with_denial(
    outcome: Outcome,
    state: &mut CallState,
    arguments: &Value,
    definition: &Definition,
    report: &Report,
) -> Outcome {
    let (file_denial, file_denials) = state.files.denials().take();
    let refused_requests = state.capabilities.http.take_refused();
    // The suggestion is about a denied request, so it doesn't fit the denial of a file.
    let suggestion =
        if file_denial.is_none() { refused_requests.suggestion.map(str::to_owned) } else { None };
    let denial = file_denial.or(refused_requests.first);
    if let Some(denial) = &denial {
        let mut entries = report.entries();
        entries.denials += file_denials + refused_requests.count;
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
    // Leave out the tool's message if it only repeats the denial. A tool that got the denial from a
    // standard interface knows only an error code, so its message adds nothing either.
    let only_repeats_denial =
        failure.message.contains(&text) || failure.code.as_deref() == Some("not-permitted");
    let message = if only_repeats_denial {
        text
    } else {
        format!("{text} (The tool said: {})", failure.message)
    };
    Err(Failure {
        category: Category::PolicyBlocked,
        code: None,
        message,
        suggestion,
        denial: Some(*denial),
        ..failure
    })
}

fn is_stop(failure: &Failure) -> bool {
    matches!(failure.code.as_deref(), Some("cpu_budget" | "memory_limit" | "result_limit"))
        || matches!(failure.category, Category::Timeout | Category::Cancelled)
}

/// Checks whether the denied action was on a path in the call's arguments. The text of an action
/// ends with its path.
fn is_about_subject(denial: &Denial, arguments: &Value, definition: &Definition) -> bool {
    for subject in &definition.subjects {
        if subject.kind.is_path()
            && let Some(argument) = arguments.pointer(&subject.pointer)
            && let Some(path) = argument.as_str()
            && denial.action.ends_with(path)
        {
            return true;
        }
    }
    false
}
