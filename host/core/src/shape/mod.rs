//! The last step before the answer: without what could steer a terminal, a log or a model, without secrets, and bounded.

mod sources;

use std::time::Duration;

use berth_contract::text::{cut, neutral_json, neutral_line, neutral_owned};
use berth_contract::{Body, Content, Denial, Outcome};
use serde_json::Value;

use crate::facts::Facts;
use crate::redact;
use sources::Source;

/// Bytes of a failure's message.
const MAX_MESSAGE: usize = 8192;

/// The longest wait that a tool can ask for.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// Shapes an outcome: at most `limit` bytes of content.
pub(crate) fn shaped(facts: &mut Facts, outcome: Outcome, limit: usize) -> Outcome {
    clean(outcome, &Source::of(facts), limit)
}

/// Neutralised, redacted and bounded, in this order: what hides characters in a secret is gone before it is looked for, and no cut makes a
/// part of one that nobody recognises.
fn clean(outcome: Outcome, source: &Source, limit: usize) -> Outcome {
    let keys = source.keys();
    let json = |value: Value| redact::json(neutral_json(value), keys);
    match outcome {
        Ok(mut output) => {
            output.content = bounded(contents(output.content, source), limit);
            output.structured = output.structured.map(json);
            output.meta = output.meta.map(json);
            Ok(output)
        }
        Err(mut failure) => {
            let text = |text: String| redact::owned(neutral_owned(text), keys);
            failure.message = shortened(text(failure.message));
            failure.suggestion = failure.suggestion.map(text);
            failure.code = failure.code.map(text);
            failure.content = bounded(contents(failure.content, source), limit);
            failure.structured = failure.structured.map(json);
            failure.meta = failure.meta.map(json);
            failure.retry_after = failure.retry_after.map(|wait| wait.min(MAX_WAIT));
            failure.denial = failure.denial.map(|denial| {
                let line = |text: String| shortened(redact::owned(neutral_line(&text), keys));
                Denial {
                    capability: line(denial.capability),
                    action: line(denial.action),
                    rule: line(denial.rule),
                    place: line(denial.place),
                    remedy: line(denial.remedy),
                }
            });
            Err(failure)
        }
    }
}

fn shortened(mut text: String) -> String {
    text.truncate(cut(&text, MAX_MESSAGE).len());
    text
}

/// The parts, each neutralised and redacted, and what begins in one and ends in another.
fn contents(parts: Vec<Content>, source: &Source) -> Vec<Content> {
    let mut parts: Vec<Content> = parts.into_iter().map(|part| redacted(part.neutralised(), source)).collect();
    let texts = parts.iter_mut().filter_map(|part| if let Body::Text(text) = &mut part.body { Some(text) } else { None });
    redact::across(&mut texts.collect::<Vec<_>>());
    parts
}

fn redacted(mut part: Content, source: &Source) -> Content {
    if let (Body::Text(text), Source::Lines) = (&mut part.body, source) {
        if let std::borrow::Cow::Owned(marked) = source.redacted(text) {
            *text = marked;
        }
        return part;
    }
    redact::content(part, source.keys())
}

fn bounded(parts: Vec<Content>, limit: usize) -> Vec<Content> {
    let mut left = limit;
    let mut shaped = Vec::with_capacity(parts.len());
    let mut parts = parts.into_iter();
    for part in parts.by_ref() {
        if part.len() > left {
            shaped.extend(cut_part(part, left, parts.len()));
            break;
        }
        left -= part.len();
        shaped.push(part);
    }
    shaped
}

/// What is left of a part that is too large: the beginning of a text, and a note.
fn cut_part(part: Content, left: usize, more: usize) -> Vec<Content> {
    let size = part.len();
    let note = match more {
        0 => format!("[cut: this part had {size} bytes]"),
        _ => format!("[cut: this part had {size} bytes, and {more} more parts followed]"),
    };
    match part.body {
        Body::Text(text) => vec![Content { body: Body::Text(cut(&text, left).to_owned()), ..part }, Content::text(note)],
        Body::Bytes(_) | Body::Link(_) => vec![Content::text(note)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::Keys;
    use berth_contract::Output;

    #[test]
    fn an_answer_is_bounded_and_says_so() {
        let output = Output { content: vec![Content::text("abc"), Content::text("defgh"), Content::text("i")], ..Output::default() };
        let shaped = clean(Ok(output), &Source::One(Keys::Text), 5).expect("is an output");
        assert_eq!(shaped.joined_text(), "abc\nde\n[cut: this part had 5 bytes, and 1 more parts followed]");
    }

    #[test]
    fn nothing_in_an_answer_steers_a_terminal() {
        let output = Output { structured: Some(serde_json::json!({ "a\u{1b}": ["\u{202e}x"] })), ..Output::text("\u{1b}]0;x\u{7}") };
        let shaped = clean(Ok(output), &Source::One(Keys::Text), 100).expect("is an output");
        assert_eq!(shaped.joined_text(), "\u{fffd}]0;x\u{fffd}");
        assert_eq!(shaped.structured, Some(serde_json::json!({ "a\u{fffd}": ["\u{fffd}x"] })));
    }
}
