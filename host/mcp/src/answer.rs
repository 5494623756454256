//! Answers as the protocol has them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use berth_host::{Answer, Body, Category, Content, Denial, Failure, Output};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock, MetaObject, ProtocolVersion, Resource, ResourceContents};
use serde_json::{Map, Value, json};

use crate::tools;

/// What a client is told that would refuse the answer without a structured one.
const NOT_STRUCTURED: &str = "The call was made. Its answer has no structured part, which this tool's output schema promises, because that is \
    too long or the tool gave none; what there is follows. Don't make the call again for it.";

/// Where the protocol's `_meta` says what Berth has to tell beside the answer.
const META: &str = "berth";

/// What the client gets for a call. A failure is a tool's result too, so that the model learns of it; only a name that no tool has is the
/// protocol's error. `promised`: the client was told that a structured answer has a schema. Without one, it would refuse the whole: so it gets
/// an error, which may be without.
///
/// # Errors
///
/// There is no such tool.
pub(crate) fn result(answer: Answer, promised: bool, version: Option<&ProtocolVersion>) -> Result<CallToolResult, ErrorData> {
    let Answer { id, outcome, cached, truncated, .. } = answer;
    let mut told = Map::new();
    told.insert("call".to_owned(), json!(id));
    if cached {
        told.insert("cached".to_owned(), json!(true));
    }
    if truncated {
        told.insert("truncated".to_owned(), json!(true));
    }
    let mut result = match outcome {
        Ok(Output { content, structured, meta }) => {
            add(&mut told, meta);
            let mut result = CallToolResult::success(blocks(content));
            result.structured_content = structured.filter(|value| fits(value, version));
            if promised && result.structured_content.is_none() {
                result.is_error = Some(true);
                result.content.insert(0, ContentBlock::text(NOT_STRUCTURED));
            }
            result
        }
        Err(failure) if failure.category == Category::ToolNotFound => {
            let suggestion = failure.suggestion.map_or_else(String::new, |suggestion| format!(". {suggestion}"));
            return Err(ErrorData::invalid_params(format!("{}{suggestion}", failure.message), None));
        }
        Err(failure) => {
            let feedback = failure.feedback();
            let Failure { category, code, content, structured, meta, denial, retry_after, .. } = failure;
            add(&mut told, meta);
            told.insert("category".to_owned(), json!(category.as_str()));
            told.extend(code.map(|code| ("code".to_owned(), json!(code))));
            told.extend(retry_after.map(|wait| ("retry_after_ms".to_owned(), json!(wait.as_millis()))));
            told.extend(denial.map(|denial| ("denial".to_owned(), denied(denial))));
            let mut parts = vec![ContentBlock::text(feedback)];
            parts.extend(blocks(content));
            let mut result = CallToolResult::error(parts);
            result.structured_content = structured.filter(|value| fits(value, version));
            result
        }
    };
    let mut meta = MetaObject::new();
    meta.0.insert(META.to_owned(), Value::Object(told));
    result.meta = Some(meta);
    Ok(result)
}

/// Whether a client of that revision takes such a value.
fn fits(value: &Value, version: Option<&ProtocolVersion>) -> bool {
    value.is_object() || tools::takes_any_value(version)
}

/// What the tool has to tell, under the keys that it chose. Those of Berth come later, and win.
fn add(told: &mut Map<String, Value>, meta: Option<Value>) {
    if let Some(Value::Object(fields)) = meta {
        told.insert("tool".to_owned(), Value::Object(fields));
    }
}

fn denied(denial: Denial) -> Value {
    let Denial { capability, action, rule, place, remedy } = denial;
    json!({ "capability": capability, "action": action, "rule": rule, "place": place, "remedy": remedy })
}

fn blocks(parts: Vec<Content>) -> Vec<ContentBlock> {
    parts.into_iter().enumerate().map(|(at, part)| block(at, part)).collect()
}

fn block(at: usize, part: Content) -> ContentBlock {
    let Content { body, media_type, .. } = part;
    match body {
        Body::Text(text) => ContentBlock::text(text),
        Body::Link(uri) => {
            let mut link = Resource::new(uri.clone(), uri);
            link.mime_type = media_type;
            ContentBlock::resource_link(link)
        }
        Body::Bytes(bytes) => {
            let (data, media_type) = (STANDARD.encode(bytes), media_type.unwrap_or_else(|| "application/octet-stream".to_owned()));
            if media_type.starts_with("image/") {
                ContentBlock::image(data, media_type)
            } else if media_type.starts_with("audio/") {
                ContentBlock::audio(data, media_type)
            } else {
                let uri = format!("berth://answer/part/{at}");
                ContentBlock::resource(ResourceContents::blob(data, uri).with_mime_type(media_type))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_host::CallId;

    #[test]
    fn a_client_that_was_promised_a_structured_answer_gets_one_or_an_error() {
        let told = |structured: Option<Value>, promised: bool| {
            let outcome = Ok(Output { structured, ..Output::text("what there is") });
            let answer = Answer {
                id: CallId("1".into()),
                tool: None,
                outcome,
                decision: None,
                approval: None,
                cached: false,
                truncated: false,
                provider: None,
                filtered: None,
                steps: Vec::new(),
            };
            let result = result(answer, promised, None).expect("the tool is there");
            let text = serde_json::to_string(&result.content).expect("is JSON");
            assert!(text.contains("what there is"), "{text}");
            (result.is_error, result.structured_content.is_some(), text.contains("The call was made."))
        };
        let (object, list) = (json!({ "a": 1 }), json!([1]));
        assert_eq!(told(Some(object.clone()), true), (Some(false), true, false));
        assert_eq!(told(None, true), (Some(true), false, true));
        assert_eq!(told(Some(list), true), (Some(true), false, true), "no revision before 2026-07-28 has it");
        assert_eq!(told(None, false), (Some(false), false, false));
    }
}
