//! Converts between the contract's types in WIT and in Rust. A guest's JSON is parsed only here.

use std::time::Duration;

use serde_json::Value;
use toolhold_contract::text::{cut, cut_at_word, neutral};
use toolhold_contract::{Body, Category, Content, Failure, HOST_CODES, Outcome, Output};

use crate::guest::bindings::toolhold::host::types::Error;
use crate::guest::bindings::toolhold::tool::types;

/// Longest message or suggestion of a failure in bytes. Longer texts are cut.
const MAX_MESSAGE: usize = 4096;

/// Longest `meta` in bytes. A longer `meta` of a part is dropped. An answer with a longer `meta`
/// fails.
pub(crate) const MAX_META: usize = 64 * 1024;

/// Bytes that a part needs in addition to its content. They limit the number of empty parts.
pub(crate) const PART_OVERHEAD: usize = 64;

/// Most commas and brackets in a structured value. A parsed value takes many times the memory of
/// its text. An answer with more commas and brackets fails.
const MAX_VALUES: usize = 1_000_000;

/// Longest code or media type in bytes.
const MAX_WORD: usize = 128;

/// Converts a guest's answer. An answer of more than `limit` bytes becomes a failure.
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

/// Parses the `meta` of an answer. Keys of the host are dropped.
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

fn is_host_key(key: &str) -> bool {
    key.starts_with("toolhold:")
}

/// Converts a guest's failure. Invalid JSON and exceeded limits are errors.
fn convert_failure(failure: types::Failure) -> Result<Failure, Failure> {
    let suggestion =
        failure.suggestion.map(|text| neutral(cut_at_word(&text, MAX_MESSAGE)).into_owned());
    Ok(Failure {
        category: convert_category(failure.category),
        code: failure.code.filter(|code| is_code(code)),
        message: neutral(cut_at_word(&failure.message, MAX_MESSAGE)).into_owned(),
        suggestion,
        retry_after: failure.retry_after_ms.map(Duration::from_millis),
        content: convert_contents(failure.content),
        structured: parse_json(failure.structured, "structured output")?,
        denial: None,
        meta: convert_meta(failure.meta)?,
        by_tool: true,
    })
}

/// Checks whether a text can be an error code. Models read codes outside of fences, so a code must
/// not be a sentence.
fn is_code(text: &str) -> bool {
    (1..=MAX_WORD).contains(&text.len())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "_.-".contains(letter))
        && !HOST_CODES.contains(&text)
}

/// Converts a part. Returns `None` for a part of an unknown kind. Control characters are removed
/// later, when the part leaves the host.
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

/// Parses the `meta` of a part. Keys of the host and invalid JSON are dropped.
fn part_meta(text: &str) -> Option<Value> {
    if text.len() > MAX_META {
        return None;
    }
    let mut meta: Value = serde_json::from_str(text).ok()?;
    if let Value::Object(fields) = &mut meta {
        fields.retain(|key, value| {
            // Plugins may set this key of the host, because the key only makes the treatment
            // stricter.
            let is_allowed_claim = key == Content::UNTRUSTED && *value == Value::Bool(true);
            is_allowed_claim || !is_host_key(key)
        });
    }
    Some(meta)
}

/// Returns a media type without its parameters. An invalid media type is replaced, because an
/// untrusted server may have chosen it, and readers trust text outside of the content.
fn check_media_type(written: &str) -> String {
    let without_parameters = match written.split_once(';') {
        Some((without_parameters, _)) => without_parameters,
        None => written,
    };
    let media_type = cut(without_parameters.trim(), MAX_WORD);
    match media_type.split_once('/') {
        Some((top, sub)) if is_token(top) && is_token(sub) => media_type.to_owned(),
        _ => "application/octet-stream".to_owned(),
    }
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
}

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
    body + meta + media_type + PART_OVERHEAD
}

/// Returns the size of an answer. `json` contains its structured output and `meta`.
fn answer_size(parts: &[types::Content], json: [&Option<String>; 2]) -> usize {
    let parts_size: usize = parts.iter().map(part_size).sum();
    let json_size: usize = json.into_iter().flatten().map(String::len).sum();
    parts_size + json_size
}

/// Parses a JSON text of an answer. `what` names the text in errors.
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

/// Estimates the number of values in a JSON text without parsing: the commas and the opening
/// brackets outside of strings.
fn count_values(text: &str) -> usize {
    let mut count = 0;
    let mut in_string = false;
    let mut is_escaped = false;
    for byte in text.bytes() {
        if is_escaped {
            is_escaped = false;
            continue;
        }
        match byte {
            b'\\' => is_escaped = in_string,
            b'"' => in_string = !in_string,
            b'[' | b'{' | b',' if !in_string => count += 1,
            _ => {}
        }
    }
    count
}

/// Converts a guest's category. A guest must not claim decisions of the host, so the categories of
/// these decisions become `PermanentFailure`.
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

pub(crate) fn host_error(code: &str, message: impl Into<String>) -> Error {
    Error { code: code.to_owned(), message: message.into(), meta: None }
}

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
