//! The last step before the answer: bounded, and without what could steer a terminal, a log or a model.

use std::time::Duration;

use berth_contract::text::{cut, neutral_json, neutral_line, neutral_owned};
use berth_contract::{Body, Content, Denial, Outcome};

use crate::facts::Facts;

/// Bytes of a failure's message.
const MAX_MESSAGE: usize = 8192;

/// The longest wait that a tool can ask for.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// Shapes an outcome: at most `limit` bytes of content.
pub(crate) fn shaped(_facts: &mut Facts, outcome: Outcome, limit: usize) -> Outcome {
    bounded(outcome, limit)
}

fn bounded(outcome: Outcome, limit: usize) -> Outcome {
    match outcome {
        Ok(mut output) => {
            output.content = contents(output.content, limit);
            output.structured = output.structured.map(neutral_json);
            output.meta = output.meta.map(neutral_json);
            Ok(output)
        }
        Err(mut failure) => {
            failure.message = neutral_owned(cut(&failure.message, MAX_MESSAGE).to_owned());
            failure.suggestion = failure.suggestion.map(neutral_owned);
            failure.content = contents(failure.content, limit);
            failure.structured = failure.structured.map(neutral_json);
            failure.meta = failure.meta.map(neutral_json);
            failure.retry_after = failure.retry_after.map(|wait| wait.min(MAX_WAIT));
            failure.denial = failure.denial.map(|denial| {
                let line = |text: String| neutral_line(cut(&text, MAX_MESSAGE));
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

fn contents(parts: Vec<Content>, limit: usize) -> Vec<Content> {
    let mut left = limit;
    let mut shaped = Vec::with_capacity(parts.len());
    let mut parts = parts.into_iter();
    for part in parts.by_ref() {
        if part.len() > left {
            shaped.extend(cut_part(part, left, parts.len()));
            break;
        }
        left -= part.len();
        shaped.push(part.neutralised());
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
        Body::Text(text) => vec![Content { body: Body::Text(cut(&text, left).to_owned()), ..part }.neutralised(), Content::text(note)],
        Body::Bytes(_) | Body::Link(_) => vec![Content::text(note)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_contract::Output;

    #[test]
    fn an_answer_is_bounded_and_says_so() {
        let output = Output { content: vec![Content::text("abc"), Content::text("defgh"), Content::text("i")], ..Output::default() };
        let shaped = bounded(Ok(output), 5).expect("is an output");
        assert_eq!(shaped.joined_text(), "abc\nde\n[cut: this part had 5 bytes, and 1 more parts followed]");
    }

    #[test]
    fn nothing_in_an_answer_steers_a_terminal() {
        let output = Output { structured: Some(serde_json::json!({ "a\u{1b}": ["\u{202e}x"] })), ..Output::text("\u{1b}]0;x\u{7}") };
        let shaped = bounded(Ok(output), 100).expect("is an output");
        assert_eq!(shaped.joined_text(), "\u{fffd}]0;x\u{fffd}");
        assert_eq!(shaped.structured, Some(serde_json::json!({ "a\u{fffd}": ["\u{fffd}x"] })));
    }
}
