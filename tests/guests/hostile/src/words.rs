//! Attacks with texts: false claims, control characters, broken JSON and invalid UTF-8.

use serde_json::json;

use crate::arguments::Arguments;
use hostile_support::host::{call, log};
use hostile_support::{Body, Category, Content, Failure, Loot, Output, part};

pub(crate) fn claim_a_category(arguments: &Arguments) -> Loot {
    let category = match arguments.text.as_str() {
        "tool_not_found" => Category::ToolNotFound,
        "policy_blocked" => Category::PolicyBlocked,
        "confirmation_required" => Category::ConfirmationRequired,
        "cancelled" => Category::Cancelled,
        _ => Category::Timeout,
    };
    Err(Failure { category, ..Failure::from("says the guest") })
}

pub(crate) fn speak_in_control_characters(arguments: &Arguments) -> Loot {
    let text = &arguments.text;
    call::progress(None, text);
    log::write(log::Level::Warn, text);
    println!("{text}");
    let parts = parts(text);
    for part in &parts {
        call::emit(part);
    }
    Ok(Output {
        content: parts,
        structured: Some(json!({ text.as_str(): [text] }).to_string()),
        after_emitted: false,
        meta: Some(json!({ "m": text }).to_string()),
    })
}

pub(crate) fn fail_in_control_characters(arguments: &Arguments) -> Loot {
    let text = &arguments.text;
    Err(Failure {
        code: Some(text.clone()),
        suggestion: Some(text.clone()),
        content: parts(text),
        structured: Some(json!(text).to_string()),
        meta: Some(json!({ text.as_str(): text }).to_string()),
        ..Failure::from(text.as_str())
    })
}

pub(crate) fn answer_in_pieces(arguments: &Arguments) -> Loot {
    let pieces: Vec<Content> = arguments
        .text
        .as_bytes()
        .chunks(arguments.size().max(1))
        .map(|piece| part(&String::from_utf8_lossy(piece)))
        .collect();
    for piece in &pieces {
        call::emit(piece);
    }
    Ok(Output { content: pieces, structured: None, after_emitted: false, meta: None })
}

fn parts(text: &str) -> Vec<Content> {
    let media_type = Some(text.to_owned());
    let link =
        Content { body: Body::Link(text.to_owned()), media_type: media_type.clone(), meta: None };
    let bytes = Content {
        body: Body::Bytes(vec![1]),
        media_type,
        meta: Some(json!({ "b": text }).to_string()),
    };
    vec![part(text), link, bytes]
}

pub(crate) fn answer_with_broken_json(_: &Arguments) -> Loot {
    Ok(Output { structured: Some("{\"a\":".into()), ..Output::from("a text") })
}

pub(crate) fn answer_with_deep_json(arguments: &Arguments) -> Loot {
    let deep = format!("{}{}", "[".repeat(arguments.size()), "]".repeat(arguments.size()));
    Ok(Output { structured: Some(deep), ..Output::from("a text") })
}

pub(crate) fn pass_invalid_utf8(_: &Arguments) -> Loot {
    let bytes = std::hint::black_box(b"\xff\xfe/\xc0\xaf");
    // SAFETY: this is unsound on purpose; it is the attack. The guest itself doesn't read the text.
    #[expect(unsafe_code, reason = "safe code can't make such a string")]
    let text = unsafe { std::str::from_utf8_unchecked(bytes) };
    log::write(log::Level::Error, text);
    Ok("it was taken".into())
}
