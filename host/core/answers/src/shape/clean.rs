//! Removes control characters and secrets from an outcome, and limits its length. An outcome that
//! takes too long is withheld.

use std::time::Duration;

use serde_json::Value;
use toolhold_contract::text::{counted, cut, neutral_json, neutral_line, neutral_owned};
use toolhold_contract::{Body, CancellationToken, Category, Content, Denial, Failure, Outcome};
use toolhold_redaction::{self as redaction, Keys};

use super::sources::Source;
use crate::blocking::{AT_ONCE, blocking};
use crate::terminal::Kind;

/// Maximum length of a failure's message in bytes. A longer message is cut.
const MAX_MESSAGE: usize = 8192;

/// Maximum for [`Failure::retry_after`].
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// Time limit for cleaning a long answer. The longest answer needs only a small part of this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time limit for cleaning after a cancellation. The answer isn't withheld at once, because the
/// output so far is still useful.
const GRACE: Duration = Duration::from_secs(2);

/// Cleans an outcome. Returns the outcome and whether a part was omitted. A long outcome is cleaned
/// on another thread with a time limit.
pub(super) async fn clean_in_time(
    outcome: Outcome,
    source: Option<Source>,
    kind: Kind,
    limit: usize,
    cancel: &CancellationToken,
) -> (Outcome, bool) {
    if !is_long(&outcome) {
        return clean(outcome, source, kind, limit);
    }
    let cleaned =
        run_in_time(move || clean(outcome, source, kind, limit), PATIENCE, GRACE, cancel).await;
    match cleaned {
        Ok(result) => result,
        Err(withheld) => (Err(withheld), false),
    }
}

/// Runs a function for at most the time `patience`, or `grace` after a cancellation.
///
/// # Errors
///
/// Returns an error if the work took too long.
async fn run_in_time<R: Send + 'static>(
    run: impl FnOnce() -> R + Send + 'static,
    patience: Duration,
    grace: Duration,
    cancel: &CancellationToken,
) -> Result<R, Failure> {
    let mut running = std::pin::pin!(blocking(run));
    let waited = tokio::time::timeout(patience, cancel.run_until_cancelled(running.as_mut()));
    let (category, why) = match waited.await {
        Ok(Some(result)) => return Ok(result),
        Ok(None) => match tokio::time::timeout(grace, running).await {
            Ok(result) => return Ok(result),
            Err(_) => (
                Category::Cancelled,
                "the call was cancelled before the scan of the answer for secrets",
            ),
        },
        Err(_) => (Category::Timeout, "scanning the answer for secrets took too long"),
    };
    let message = format!("{why}, so the answer is withheld; the tool's effects remain");
    Err(Failure::new(category, message)
        .with_code("withheld")
        .with_suggestion("Ask for less at once."))
}

/// Checks whether an outcome has too much text for the current thread.
fn is_long(outcome: &Outcome) -> bool {
    let mut length = 0;
    let (content, structured, meta) = match outcome {
        Ok(output) => (&output.content, &output.structured, &output.meta),
        Err(failure) => {
            length += failure_length(failure);
            (&failure.content, &failure.structured, &failure.meta)
        }
    };
    for part in content {
        length += part.len() + part.media_type.as_ref().map_or(0, String::len);
    }
    if length > AT_ONCE {
        return true;
    }
    let part_metas = content.iter().map(|part| &part.meta);
    let mut values = [structured, meta].into_iter().chain(part_metas).flatten();
    values.any(|value| is_longer(value, AT_ONCE))
}

fn failure_length(failure: &Failure) -> usize {
    let Failure { message, suggestion, code, denial, .. } = failure;
    let mut length = message.len();
    length += suggestion.as_ref().map_or(0, String::len);
    length += code.as_ref().map_or(0, String::len);
    if let Some(denial) = denial {
        length += denial.action.len() + denial.rule.len() + denial.remedy.len();
    }
    length
}

/// Checks whether a value has more than `threshold` characters as JSON, without serialising it.
pub(super) fn is_longer(value: &Value, threshold: usize) -> bool {
    threshold != usize::MAX && remaining_after(value, threshold).is_none()
}

/// Subtracts the characters of a value's JSON from `available`. Returns `None` if the JSON has more
/// characters than `available`.
fn remaining_after(value: &Value, available: usize) -> Option<usize> {
    match value {
        Value::String(text) => available.checked_sub("\"\"".len() + text.chars().count()),
        Value::Array(items) => {
            let mut remaining = available.checked_sub("[]".len())?;
            for item in items {
                remaining = remaining_after(item, remaining)?.checked_sub(",".len())?;
            }
            Some(remaining)
        }
        Value::Object(fields) => {
            let mut remaining = available.checked_sub("{}".len())?;
            for (key, field) in fields {
                let after_field = remaining_after(field, remaining)?;
                remaining = after_field.checked_sub("\"\":,".len() + key.chars().count())?;
            }
            Some(remaining)
        }
        // `false` is the longest of the remaining values, except for some numbers.
        _ => available.checked_sub("false".len()),
    }
}

/// Neutralises and redacts an outcome, and cuts it to `limit` bytes. Returns the outcome and
/// whether a part was omitted.
fn clean(outcome: Outcome, source: Option<Source>, kind: Kind, limit: usize) -> (Outcome, bool) {
    let mut truncated = false;
    let keys = source.map(Source::keys);
    let outcome = match outcome {
        Ok(mut output) => {
            output.content = bounded(contents(output.content, source, kind), limit, &mut truncated);
            output.structured = output.structured.map(|value| clean_json(value, keys, kind));
            output.meta = output.meta.map(|value| clean_json(value, keys, kind));
            Ok(output)
        }
        Err(mut failure) => {
            failure.message = shortened(clean_text(failure.message, keys));
            failure.suggestion = failure.suggestion.map(|text| clean_text(text, keys));
            failure.code = failure.code.map(|text| clean_text(text, keys));
            failure.content =
                bounded(contents(failure.content, source, kind), limit, &mut truncated);
            failure.structured = failure.structured.map(|value| clean_json(value, keys, kind));
            failure.meta = failure.meta.map(|value| clean_json(value, keys, kind));
            failure.retry_after = failure.retry_after.map(|wait| wait.min(MAX_WAIT));
            failure.denial = failure.denial.map(|denial| clean_denial(denial, keys));
            Err(failure)
        }
    };
    (outcome, truncated)
}

fn clean_json(value: Value, keys: Option<Keys>, kind: Kind) -> Value {
    let value = neutral_json(shown(value, kind));
    match keys {
        Some(keys) => redaction::json(value, keys),
        None => value,
    }
}

fn clean_denial(denial: Denial, keys: Option<Keys>) -> Denial {
    Denial {
        capability: clean_line(&denial.capability, keys),
        action: clean_line(&denial.action, keys),
        rule: clean_line(&denial.rule, keys),
        place: clean_line(&denial.place, keys),
        // The remedy may contain several lines.
        remedy: shortened(clean_text(denial.remedy, keys)),
    }
}

fn clean_line(text: &str, keys: Option<Keys>) -> String {
    shortened(redacted(neutral_line(text), keys))
}

fn clean_text(text: String, keys: Option<Keys>) -> String {
    redacted(neutral_owned(text), keys)
}

fn redacted(text: String, keys: Option<Keys>) -> String {
    match keys {
        Some(keys) => redaction::owned(text, keys),
        None => text,
    }
}

/// Cleans a value like the text of an answer. Arrays and objects are only cleaned in a program's
/// output.
fn shown(value: Value, kind: Kind) -> Value {
    match value {
        Value::String(text) => Value::String(kind.shown(text)),
        Value::Array(items) if kind == Kind::Lines => {
            Value::Array(items.into_iter().map(|item| shown(item, kind)).collect())
        }
        Value::Object(fields) if kind == Kind::Lines => Value::Object(
            fields.into_iter().map(|(name, field)| (name, shown(field, kind))).collect(),
        ),
        value => value,
    }
}

fn shortened(mut text: String) -> String {
    text.truncate(cut(&text, MAX_MESSAGE).len());
    text
}

/// Neutralises and redacts the parts. Also redacts secrets that continue in the next part.
fn contents(parts: Vec<Content>, source: Option<Source>, kind: Kind) -> Vec<Content> {
    let mut cleaned = Vec::with_capacity(parts.len());
    for mut part in parts {
        if let Body::Text(text) = &mut part.body {
            *text = kind.shown(std::mem::take(text));
        }
        let neutral = part.neutralised();
        cleaned.push(match source {
            Some(source) => source.part(neutral),
            None => neutral,
        });
    }
    if let Some(source) = source {
        let texts = cleaned.iter_mut().filter_map(|part| match &mut part.body {
            Body::Text(text) => Some(text),
            _ => None,
        });
        redaction::across(&mut texts.collect::<Vec<_>>(), source.keys());
    }
    cleaned
}

/// Limits the parts to `limit` bytes. The part at the limit is cut, and later parts are omitted.
fn bounded(parts: Vec<Content>, limit: usize, truncated: &mut bool) -> Vec<Content> {
    let mut bytes_left = limit;
    let mut kept = Vec::with_capacity(parts.len());
    let mut later_parts = parts.into_iter();
    while let Some(part) = later_parts.next() {
        if part.len() > bytes_left {
            *truncated = true;
            kept.extend(cut_part(part, bytes_left, later_parts.len()));
            break;
        }
        bytes_left -= part.len();
        kept.push(part);
    }
    kept
}

/// Returns the first `limit` bytes of a part, and a notice. `omitted_parts` is the number of
/// omitted parts after this part.
fn cut_part(part: Content, limit: usize, omitted_parts: usize) -> Vec<Content> {
    let size = part.len();
    let note = if omitted_parts == 0 {
        format!("[cut: this part had {size} bytes]")
    } else {
        let followed = counted(omitted_parts, "more part");
        format!("[cut: this part had {size} bytes, and {followed} followed]")
    };
    match part.body {
        Body::Text(text) => {
            let beginning = cut(&text, limit).to_owned();
            vec![Content { body: Body::Text(beginning), ..part }, Content::text(note)]
        }
        Body::Bytes(_) | Body::Link(_) => vec![Content::text(note)],
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;
    use serde_json::json;
    use toolhold_contract::Output;
    use toolhold_redaction::Keys;

    fn clean_output(output: Output, limit: usize) -> (Output, bool) {
        let (shaped, truncated) =
            clean(Ok(output), Some(Source::One(Keys::Text)), Kind::Stored, limit);
        (shaped.expect("is an output"), truncated)
    }

    #[test]
    fn length_counts_all_parts_of_an_answer() {
        let long = "x".repeat(AT_ONCE);
        assert!(!is_long(&Ok(Output::text("x".repeat(AT_ONCE)))));
        assert!(is_long(&Ok(Output::text(format!("{long}x")))));
        assert!(is_long(&Ok(Output { structured: Some(json!([long])), ..Output::default() })));
        assert!(is_long(&Ok(Output { meta: Some(json!({ "a": long })), ..Output::default() })));
        let part = Content { meta: Some(json!([long])), ..Content::text("") };
        assert!(is_long(&Ok(Output { content: vec![part], ..Output::default() })));
        assert!(is_long(&Err(Failure::new(Category::Timeout, format!("{long}x")))));
    }

    #[test]
    fn slow_shaping_withholds_the_answer_and_delays_no_call() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let cancel = CancellationToken::new();
            for (text, at_once) in
                [("token=hunter22\n".to_owned(), true), ("token=hunter22\n".repeat(10_000), false)]
            {
                let mut cleaning = std::pin::pin!(clean_in_time(
                    Ok(Output::text(text)),
                    Some(Source::One(Keys::Text)),
                    Kind::Stored,
                    usize::MAX,
                    &cancel
                ));
                let polled = cleaning.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert_eq!(polled.is_ready(), at_once, "others may run meanwhile");
                if !at_once {
                    let (outcome, _) = cleaning.await;
                    assert!(
                        !outcome.expect("it is done in time").joined_text().contains("hunter22")
                    );
                }
            }
            // Nothing is sent before the end, so neither finishes.
            for (patience, cancelled, category) in
                [(Duration::ZERO, false, Category::Timeout), (PATIENCE, true, Category::Cancelled)]
            {
                let (send, receive) = std::sync::mpsc::channel::<()>();
                let cancel = CancellationToken::new();
                if cancelled {
                    cancel.cancel();
                }
                let run = move || receive.recv().is_ok();
                let withheld = run_in_time(run, patience, Duration::ZERO, &cancel)
                    .await
                    .expect_err("it isn't done");
                assert_eq!(
                    (withheld.category, withheld.code.as_deref()),
                    (category, Some("withheld")),
                    "{withheld:?}"
                );
                drop(send);
            }
            // A cancelled call still returns its output so far.
            let cancel = CancellationToken::new();
            cancel.cancel();
            assert_eq!(
                run_in_time(|| 1, PATIENCE, GRACE, &cancel).await.expect("it is done in time"),
                1
            );
        });
    }

    #[test]
    fn answer_is_bounded_with_a_notice() {
        let content = vec![Content::text("abc"), Content::text("defgh"), Content::text("i")];
        let (shaped, truncated) = clean_output(Output { content, ..Output::default() }, 5);
        assert_eq!(
            shaped.joined_text(),
            "abc\nde\n[cut: this part had 5 bytes, and 1 more part followed]"
        );
        assert!(truncated);
    }

    #[test]
    fn answers_never_steer_a_terminal() {
        let output = Output {
            structured: Some(json!({ "a\u{1b}": ["\u{202e}x"] })),
            ..Output::text("\u{1b}]0;x\u{7}")
        };
        let (shaped, truncated) = clean_output(output, 100);
        assert_eq!(shaped.joined_text(), "\u{fffd}]0;x\u{fffd}");
        assert_eq!(shaped.structured, Some(json!({ "a\u{fffd}": ["\u{fffd}x"] })));
        assert!(!truncated);
    }

    #[test]
    fn length_of_a_value_is_about_that_of_its_text() {
        let value = json!({ "a": ["x".repeat(100), 1, null, true], "b": {} });
        let length = value.to_string().len();
        assert!(
            is_longer(&value, length - 20)
                && !is_longer(&value, length + 20)
                && !is_longer(&value, usize::MAX)
        );
    }
}
