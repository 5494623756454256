//! Converts between the contract's types in WIT and in Rust. A guest's JSON is parsed only here.
//! Invalid JSON fails the call.

use std::time::Duration;

use serde_json::Value;
use toolhold_contract::text::{cut, cut_at_word, neutral};
use toolhold_contract::{Body, Category, Content, Failure, HOST_CODES, Outcome, Output};

use crate::guest::bindings::toolhold::host::types::Error;
use crate::guest::bindings::toolhold::tool::types;

/// Most bytes of a failure's message or suggestion.
const MESSAGE: usize = 4096;

/// Most bytes of the `meta` of a part or a tool.
pub(crate) const MAX_META: usize = 64 * 1024;

/// Most commas and brackets in a structured value. A parsed value takes many times the memory of
/// its text.
const MAX_VALUES: usize = 1_000_000;

/// Most bytes of a code, a media type or another short word.
const WORD: usize = 128;

/// Converts a guest's answer into the host's outcome, within `limit` bytes.
pub(crate) fn outcome(answer: Result<types::Output, types::Failure>, limit: usize) -> Outcome {
    let size = match &answer {
        Ok(output) => answer_size(&output.content, [&output.structured, &output.meta]),
        Err(failure) => answer_size(&failure.content, [&failure.structured, &failure.meta]),
    };
    if size > limit {
        let message = format!("the tool's answer is {size} bytes; the limit is {limit}");
        return Err(Failure::new(Category::PermanentFailure, message).with_code("result_limit"));
    }
    match answer {
        Ok(output) => Ok(Output {
            content: convert_contents(output.content),
            structured: parse_json(output.structured, "structured output")?,
            meta: convert_meta(output.meta)?,
        }),
        Err(failure) => Err(convert_failure(failure)?),
    }
}

/// Parses the `meta` of an answer, and drops the keys that only the host may use.
fn convert_meta(text: Option<String>) -> Result<Option<Value>, Failure> {
    let size = text.as_ref().map_or(0, String::len);
    if size > MAX_META {
        let message = format!("the tool's meta is {size} bytes; the limit is {MAX_META}");
        return Err(Failure::new(Category::PermanentFailure, message).with_code("result_limit"));
    }
    let Some(meta) = parse_json(text, "meta")? else { return Ok(None) };
    let Value::Object(mut fields) = meta else {
        let message = "the tool's meta isn't a JSON object";
        return Err(Failure::new(Category::PermanentFailure, message).with_code("bad_answer"));
    };
    fields.retain(|key, _| !is_host_key(key));
    if fields.is_empty() {
        return Ok(None);
    }
    Ok(Some(Value::Object(fields)))
}

/// Checks whether a key of `meta` is the host's own.
fn is_host_key(key: &str) -> bool {
    key.starts_with("toolhold:")
}

fn convert_failure(failure: types::Failure) -> Result<Failure, Failure> {
    let suggestion =
        failure.suggestion.map(|text| neutral(cut_at_word(&text, MESSAGE)).into_owned());
    Ok(Failure {
        category: convert_category(failure.category),
        code: failure.code.filter(|code| is_code(code)),
        message: neutral(cut_at_word(&failure.message, MESSAGE)).into_owned(),
        suggestion,
        retry_after: failure.retry_after_ms.map(Duration::from_millis),
        content: convert_contents(failure.content),
        structured: parse_json(failure.structured, "structured output")?,
        denial: None,
        meta: convert_meta(failure.meta)?,
        by_tool: true,
    })
}

/// Checks whether a text may be a guest's error code. Sentences are refused, since models read
/// codes outside of fences.
fn is_code(text: &str) -> bool {
    (1..=WORD).contains(&text.len())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "_.-".contains(letter))
        && !HOST_CODES.contains(&text)
}

/// Converts a part of an answer, or returns `None` if its kind is unknown. The part is neutralised
/// later, when it leaves the host.
pub(crate) fn content(content: types::Content) -> Option<Content> {
    let body = match content.body {
        types::Body::Text(text) => Body::Text(text),
        types::Body::Bytes(bytes) => Body::Bytes(bytes),
        types::Body::Link(uri) => Body::Link(uri),
        types::Body::Other(_) => return None,
    };
    let meta = content.meta.as_deref().and_then(part_meta);
    let media_type = content.media_type.as_deref().map(check_media_type);
    Some(Content { body, media_type, meta })
}

/// Parses the `meta` of a part, and drops the keys that only the host may use. `meta` is optional,
/// so invalid JSON returns `None`.
fn part_meta(text: &str) -> Option<Value> {
    if text.len() > MAX_META {
        return None;
    }
    let mut meta: Value = serde_json::from_str(text).ok()?;
    if let Value::Object(fields) = &mut meta {
        fields.retain(|key, value| {
            // A plugin may set this key of the host, since it only makes the treatment of an answer
            // stricter.
            let is_allowed_claim = key == Content::UNTRUSTED && *value == Value::Bool(true);
            is_allowed_claim || !is_host_key(key)
        });
    }
    Some(meta)
}

/// Checks a media type, and returns only its two short words, without parameters. An untrusted
/// server may have written it, but readers trust it, since it is outside of the part.
fn check_media_type(written: &str) -> String {
    let essence = cut(written.split(';').next().unwrap_or_default().trim(), WORD);
    match essence.split_once('/') {
        Some((top, sub)) if is_token(top) && is_token(sub) => essence.to_owned(),
        _ => "application/octet-stream".to_owned(),
    }
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
}

/// Converts a part for a guest.
pub(crate) fn content_for_guest(content: Content) -> types::Content {
    let body = match content.body {
        Body::Text(text) => types::Body::Text(text),
        Body::Bytes(bytes) => types::Body::Bytes(bytes),
        Body::Link(uri) => types::Body::Link(uri),
    };
    types::Content {
        body,
        media_type: content.media_type,
        meta: content.meta.map(|meta| meta.to_string()),
    }
}

fn convert_contents(parts: Vec<types::Content>) -> Vec<Content> {
    parts.into_iter().filter_map(content).collect()
}

/// Returns the size of a part for the limit of an answer. Even an empty part has a size.
pub(crate) fn part_size(part: &types::Content) -> usize {
    let body = match &part.body {
        types::Body::Text(text) | types::Body::Link(text) => text.len(),
        types::Body::Bytes(bytes) => bytes.len(),
        types::Body::Other((kind, value)) => kind.len() + value.len(),
    };
    let meta = part.meta.as_ref().map_or(0, String::len);
    let media_type = part.media_type.as_ref().map_or(0, String::len);
    body + meta + media_type + 64
}

/// Returns the size of an answer. `json`: its structured output and its `meta`.
fn answer_size(parts: &[types::Content], json: [&Option<String>; 2]) -> usize {
    let parts_size: usize = parts.iter().map(part_size).sum();
    let json_size: usize = json.into_iter().flatten().map(String::len).sum();
    parts_size + json_size
}

fn parse_json(text: Option<String>, what: &str) -> Result<Option<Value>, Failure> {
    let Some(text) = text else { return Ok(None) };
    if count_values(&text) > MAX_VALUES {
        let message =
            format!("the tool's {what} has more than {MAX_VALUES} values, which is the limit");
        return Err(Failure::new(Category::PermanentFailure, message).with_code("result_limit"));
    }
    let value: Value = serde_json::from_str(&text).map_err(|error| {
        let message = format!("the tool's {what} isn't valid JSON: {error}");
        Failure::new(Category::PermanentFailure, message).with_code("bad_answer")
    })?;
    Ok(Some(value))
}

/// Counts the commas and the opening brackets outside the strings of a JSON text.
fn count_values(text: &str) -> usize {
    let mut count = 0;
    let mut in_string = false;
    let mut escaped = false;
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'[' | b'{' | b',' if !in_string => count += 1,
            _ => {}
        }
    }
    count
}

/// Converts a guest's category, except the categories that only the host may use (invariant 5).
fn convert_category(category: types::Category) -> Category {
    match category {
        types::Category::InvalidParameters => Category::InvalidParameters,
        types::Category::TypeMismatch => Category::TypeMismatch,
        types::Category::RateLimited => Category::RateLimited,
        types::Category::ServerError => Category::ServerError,
        types::Category::NetworkError => Category::NetworkError,
        types::Category::Timeout => Category::Timeout,
        types::Category::PermanentFailure
        | types::Category::ToolNotFound
        | types::Category::PolicyBlocked
        | types::Category::ConfirmationRequired
        | types::Category::Cancelled => Category::PermanentFailure,
    }
}

/// Makes the guest's error for a function of the host that did nothing.
pub(crate) fn host_error(code: &str, message: impl Into<String>) -> Error {
    Error { code: code.to_owned(), message: message.into(), meta: None }
}

/// Converts a category for a guest.
pub(crate) fn category_for_guest(category: Category) -> types::Category {
    match category {
        Category::ToolNotFound => types::Category::ToolNotFound,
        Category::InvalidParameters => types::Category::InvalidParameters,
        Category::TypeMismatch => types::Category::TypeMismatch,
        Category::PolicyBlocked => types::Category::PolicyBlocked,
        Category::ConfirmationRequired => types::Category::ConfirmationRequired,
        Category::PermanentFailure => types::Category::PermanentFailure,
        Category::Cancelled => types::Category::Cancelled,
        Category::RateLimited => types::Category::RateLimited,
        Category::ServerError => types::Category::ServerError,
        Category::NetworkError => types::Category::NetworkError,
        Category::Timeout => types::Category::Timeout,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_strings() {
        for (text, count) in
            [("1", 0), ("[1,2]", 2), (r#"{"a,b":["[{,","\"," ,"\\"]}"#, 4), (r#"",,,""#, 0)]
        {
            assert_eq!(count_values(text), count, "{text}");
        }
    }
}
