//! What became of a call.

use std::sync::Arc;

use berth_contract::text::{cut, neutral, neutral_line};
use berth_contract::{Category, Content, Definition, Failure, Outcome, Report};
use berth_egress::Obstacle;
use berth_redaction::{self as redaction, Keys};
use serde_json::Value;
use wasmtime::{Store, Trap};
use wasmtime_wasi::I32Exit;

use crate::guest::http::part_without_secrets;
use crate::guest::state::{CallState, Emitted, take_emitted};
use crate::watch::Watch;

/// Why a guest ended without an answer: what stopped it, or how it broke down.
pub(crate) fn failure(
    watch: &Watch,
    error: &wasmtime::Error,
    store: &Store<CallState>,
    plugin: &Arc<str>,
) -> Failure {
    watch.stopped_by().unwrap_or_else(|| of_error(error, store.data(), plugin))
}

/// Why a guest broke down. Its backtrace and last words go to the log, not to the model.
fn of_error(error: &wasmtime::Error, state: &CallState, plugin: &str) -> Failure {
    if state.memory.refused() {
        return Failure::new(
            Category::PermanentFailure,
            "the tool needed more memory than it may have and was stopped",
        )
        .with_code("memory_limit")
        .with_suggestion("Ask for less at once; the bound is `memory_mib` in [tools.limits].");
    }
    let reason = match (error.downcast_ref::<I32Exit>(), error.downcast_ref::<Trap>()) {
        (Some(exit), _) => format!("it ended itself with exit code {}", exit.0),
        (None, Some(trap)) => trap.to_string(),
        (None, None) => error.root_cause().to_string(),
    };
    let last_words =
        state.http.without_secrets([state.call.stderr.text(), state.call.stdout.text()].join("\n"));
    let reason = neutral_line(cut(&reason, 1024));
    tracing::warn!(target: "berth::crash", plugin, call = %state.call.id, "the tool crashed: {}", redaction::text(&reason, Keys::Text));
    tracing::debug!(
        target: "berth::crash",
        plugin,
        call = %state.call.id,
        "{}\nit printed: {}",
        neutral(&format!("{error:?}")),
        redaction::text(&neutral(cut(last_words.trim(), 16 * 1024)), Keys::Text),
    );
    Failure::new(Category::PermanentFailure, format!("the tool crashed: {reason}"))
        .with_code("crash")
}

/// Puts what a call emitted before the rest of a failure: a call that was cut off answers with it.
/// A tool that comes to an end has said in its answer what it wanted to say.
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

/// Takes secrets out of what a guest made of the answers that it got: it may have put together or
/// unpacked what the host didn't see whole.
pub(crate) fn without_secrets(outcome: Outcome, state: &CallState) -> Outcome {
    let Some(egress) = state.http.egress().filter(|egress| egress.knows_secrets()) else {
        return outcome;
    };
    let text = |text: &mut String| {
        if let Some(without) = egress.without_secrets(text) {
            *text = without;
        }
    };
    let content = |parts: &mut Vec<Content>| {
        parts.iter_mut().for_each(|part| part_without_secrets(part, egress));
    };
    match outcome {
        Ok(mut output) => {
            content(&mut output.content);
            output
                .structured
                .iter_mut()
                .chain(&mut output.meta)
                .for_each(|value| strings(value, &text));
            Ok(output)
        }
        Err(mut failure) => {
            text(&mut failure.message);
            failure.suggestion.iter_mut().for_each(text);
            content(&mut failure.content);
            failure
                .structured
                .iter_mut()
                .chain(&mut failure.meta)
                .for_each(|value| strings(value, &text));
            Err(failure)
        }
    }
}

/// Every string of a value, and the names in it.
fn strings(value: &mut Value, change: &impl Fn(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(values) => values.iter_mut().for_each(|value| strings(value, change)),
        Value::Object(fields) => {
            let all = std::mem::take(fields);
            fields.extend(all.into_iter().map(|(mut name, mut value)| {
                change(&mut name);
                strings(&mut value, change);
                (name, value)
            }));
        }
        _ => {}
    }
}

/// What the operator can do about a request that failed no guest knows, so the host says it.
pub(crate) fn with_obstacle(outcome: Outcome, state: &CallState) -> Outcome {
    outcome.map_err(|mut failure| {
        match state.http.take_obstacle() {
            // What the host stopped says by which bound already.
            Some(Obstacle::Late(bound))
                if failure.category == Category::Timeout && failure.suggestion.is_none() =>
            {
                failure.message = format!("{} ({bound})", failure.message);
            }
            Some(Obstacle::Setup(reason)) if failure.category == Category::PermanentFailure => {
                failure.message = reason;
                failure.code = Some("host".into());
                failure.suggestion = Some("`berth doctor` says how to fix it.".to_owned());
            }
            _ => {}
        }
        failure
    })
}

/// A tool that does not go on since a listing left something out can't know why. Where it was for a
/// rule about calls, the host says so.
fn for_what_was_left_out(failure: Failure, report: &Report) -> Failure {
    if failure.category != Category::PermanentFailure
        || failure.code.as_deref() != Some("not-permitted")
    {
        return failure;
    }
    let mut told = report.entries();
    let left_out = &mut told.left_out;
    let Some(denial) =
        left_out.denied.take().or_else(|| left_out.asked.take().map(|(denial, _)| denial))
    else {
        return failure;
    };
    let message = format!("{denial} (The tool said: {})", failure.message);
    told.denials += 1;
    told.denial.get_or_insert_with(|| denial.clone());
    Failure {
        category: Category::PolicyBlocked,
        code: None,
        message,
        denial: Some(denial),
        ..failure
    }
}

/// The host remembers its denials: a failure that may have come from one says so, whatever the
/// guest made of it (invariant 5).
pub(crate) fn with_denial(
    outcome: Outcome,
    state: &mut CallState,
    arguments: &Value,
    definition: &Definition,
    report: &Report,
) -> Outcome {
    let (of_files, files) = state.files.denials().take();
    let (of_requests, requests) = state.http.take_refused();
    let (denial, count) = (of_files.or(of_requests), files + requests);
    if let Some(denial) = &denial {
        let mut told = report.entries();
        told.denials += count;
        told.denial.get_or_insert_with(|| (**denial).clone());
    }
    let failure = match outcome {
        Err(failure) => failure,
        ok => return ok,
    };
    let Some(denial) = denial else { return Err(for_what_was_left_out(failure, report)) };
    let host_stopped_it =
        matches!(failure.code.as_deref(), Some("cpu_budget" | "memory_limit" | "result_limit"))
            || matches!(failure.category, Category::Timeout | Category::Cancelled);
    let of_a_subject = || {
        let named = definition.subjects.iter().filter(|subject| subject.kind.is_path());
        let named = named.filter_map(|subject| arguments.pointer(&subject.pointer)?.as_str());
        named.into_iter().any(|path| denial.action.ends_with(path))
    };
    if host_stopped_it || (failure.category != Category::PermanentFailure && !of_a_subject()) {
        return Err(failure);
    }
    let told = denial.to_string();
    // A tool that passes the refusal on has nothing to add to it. One that is told of it by a
    // standard interface alone says so by its code.
    let repeats =
        failure.message.contains(&told) || failure.code.as_deref() == Some("not-permitted");
    let message =
        if repeats { told } else { format!("{told} (The tool said: {})", failure.message) };
    Err(Failure {
        category: Category::PolicyBlocked,
        code: None,
        message,
        suggestion: None,
        denial: Some(*denial),
        ..failure
    })
}
