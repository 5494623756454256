//! Derives the verdict of a review (`ALLOW` or `DENY`) from the model's answer or error.

use toolhold_core::ReviewVerdict;
use toolhold_core::text::{cut, neutral_line};
use toolhold_models::{Block, FinishReason, ModelAnswer, ModelError, ModelErrorKind};

/// Most bytes of an unclear answer that are quoted in the reason.
const MAX_SHOWN: usize = 200;

/// Reads the verdict in an answer.
///
/// Only the text `ALLOW`, with or without white space around it, allows the call. Any other text
/// denies the call, because text in the call may have misled the model.
pub(crate) fn verdict(answer: &ModelAnswer) -> ReviewVerdict {
    match &answer.stop {
        FinishReason::End => {}
        FinishReason::Length | FinishReason::ContextFull => {
            return deny("the model's answer was cut, so the answer isn't valid");
        }
        FinishReason::Refused(_) => return deny("the model refused to judge the call"),
        FinishReason::Calls | FinishReason::Paused | FinishReason::Other(_) => {
            return deny("the model's answer is incomplete, so the answer isn't valid");
        }
    }
    if answer.calls().next().is_some() {
        return deny("the model called a tool instead of answering");
    }
    let texts: Vec<&str> = answer.blocks.iter().filter_map(text_of).collect();
    let [text] = texts[..] else {
        return deny("the model gave several answers, or none");
    };
    verdict_in_text(text.trim_ascii())
}

fn verdict_in_text(text: &str) -> ReviewVerdict {
    let (first_line, other_lines) = text.split_once('\n').unwrap_or((text, ""));
    match first_line.trim_ascii() {
        "ALLOW" if other_lines.is_empty() => ReviewVerdict::Allow,
        "DENY" => match other_lines.trim_ascii() {
            "" => deny("the model gives no reason"),
            reason => deny(reason),
        },
        _ => {
            let shown = neutral_line(cut(text, MAX_SHOWN));
            ReviewVerdict::Deny(format!("the model answered neither ALLOW nor DENY: {shown}"))
        }
    }
}

fn deny(reason: &str) -> ReviewVerdict {
    ReviewVerdict::Deny(reason.to_owned())
}

/// Returns the text of a block unless the text is blank. Thinking doesn't count as text.
fn text_of(block: &Block) -> Option<&str> {
    match block {
        Block::Text { text, .. } if !text.trim_ascii().is_empty() => Some(text),
        _ => None,
    }
}

/// Returns the verdict for a request without an answer. The call is denied if its text may have
/// caused the error, for example by making the request too long. Other errors, for example of the
/// network, are failures of the review.
pub(crate) fn without_answer(error: &ModelError) -> ReviewVerdict {
    match error.kind {
        ModelErrorKind::Context
        | ModelErrorKind::Refused
        | ModelErrorKind::Cap
        | ModelErrorKind::Malformed => {
            ReviewVerdict::Deny(format!("there is no valid answer: {error}"))
        }
        _ => ReviewVerdict::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use toolhold_models::{ModelCall, TokenUsage, WireFormat};

    use super::*;

    fn text(text: &str) -> Block {
        Block::Text { text: text.to_owned(), raw: None }
    }

    fn answer(blocks: Vec<Block>, stop: FinishReason) -> ModelAnswer {
        ModelAnswer {
            provider: "judge".to_owned(),
            format: WireFormat::Chat,
            model: "small".to_owned(),
            blocks,
            stop,
            usage: TokenUsage::default(),
        }
    }

    fn judged(said: &str) -> ReviewVerdict {
        verdict(&answer(vec![text(said)], FinishReason::End))
    }

    fn denied(verdict: &ReviewVerdict) -> bool {
        matches!(verdict, ReviewVerdict::Deny(_))
    }

    #[test]
    fn only_the_exact_word_allows() {
        for said in ["ALLOW", " ALLOW\n", "\r\n\tALLOW\r\n"] {
            assert_eq!(judged(said), ReviewVerdict::Allow, "{said:?}");
        }
        for said in [
            "",
            " ",
            "ALLOW.",
            "ALLOW this",
            "ALLOW\nDENY",
            "ALLOW\nsince it only reads",
            "allow",
            "Allow",
            "DENY",
            "DENY\nALLOW",
            "DENY ALLOW",
            "deny",
            "**ALLOW**",
            "`ALLOW`",
            "```\nALLOW\n```",
            "\"ALLOW\"",
            "{\"verdict\":\"ALLOW\"}",
            "ALLOW ALLOW",
            "ALLOW\0",
            "ALLOW\u{200b}",
            "\u{feff}ALLOW",
            "ALLOW\u{a0}",
            "A\u{200d}LLOW",
            "\u{ff21}LLOW",
            "АLLOW",
            "ERLAUBT",
            "ERLAUBEN",
            "允许",
            "ALLOWED",
            "NOT ALLOW",
            "ALLOW\u{2028}DENY",
        ] {
            assert!(denied(&judged(said)), "{said:?}");
        }
    }

    #[test]
    fn reason_of_a_denial_is_what_follows() {
        assert_eq!(judged("DENY\nIt writes."), ReviewVerdict::Deny("It writes.".to_owned()));
        assert_eq!(
            judged("DENY \r\n It\nwrites.\n"),
            ReviewVerdict::Deny("It\nwrites.".to_owned())
        );
    }

    #[test]
    fn thinking_is_no_answer_and_several_answers_are_none() {
        let thinking = |text: &str| Block::Thinking { text: text.to_owned(), raw: None };
        let judged = |blocks| verdict(&answer(blocks, FinishReason::End));
        assert!(denied(&judged(vec![thinking("ALLOW")])));
        assert_eq!(judged(vec![thinking("DENY"), text("ALLOW")]), ReviewVerdict::Allow);
        assert!(denied(&judged(vec![thinking("ALLOW"), text("DENY")])));
        for (one, other) in [("ALLOW", "ALLOW"), ("ALLOW", "DENY"), ("AL", "LOW")] {
            assert!(denied(&judged(vec![text(one), text(other)])), "{one} {other}");
        }
        let call = Block::Call(ModelCall {
            id: "c".to_owned(),
            name: "ALLOW".to_owned(),
            arguments: "{}".to_owned(),
            raw: None,
        });
        assert!(denied(&judged(vec![text("ALLOW"), call])));
    }

    #[test]
    fn answer_that_did_not_end_does_not_count() {
        for stop in [
            FinishReason::Calls,
            FinishReason::Length,
            FinishReason::ContextFull,
            FinishReason::Refused(String::new()),
            FinishReason::Paused,
            FinishReason::Other("x".to_owned()),
        ] {
            assert!(denied(&verdict(&answer(vec![text("ALLOW")], stop.clone()))), "{stop:?}");
        }
    }
}
