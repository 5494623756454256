//! Converts the answer of a call to MCP.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock, MetaObject, Resource, ResourceContents};
use serde_json::{Map, Value, json};
use toolhold_core::config::Structured;
use toolhold_core::{Answer, Body, Category, Content, Definition, Denial, Failure, Snapshot};

use crate::{meta, tools};

/// The error for a client that refuses an answer without a structured part.
const NOT_STRUCTURED: &str = "The call was made. The answer has no structured part, although this \
                              tool has an output schema: the structured part is too long, or the \
                              tool returned none. The rest of the answer follows. Don't repeat the \
                              call for the structured part.\n";

/// Text of an answer without output. Some model APIs refuse empty or blank texts.
const NOTHING: &str = "(no output)";

/// Text of an answer that contains only white space.
const BLANK: &str = "(only white space)";

/// Key in the protocol's `_meta` for Toolhold's data.
pub(crate) const META: &str = toolhold_core::NAME;

/// Converts the answer to a call of `tool`. A failure becomes a tool's result, because models don't
/// see errors of the protocol. A client that needs a structured answer gets an error in place of a
/// success without one, because it refuses such a success.
///
/// # Errors
///
/// Returns an error if the tool doesn't exist.
pub(crate) fn result(
    answer: Answer,
    tool: Option<&Definition>,
    structured: Structured,
) -> Result<CallToolResult, ErrorData> {
    let structured_tool = tool.filter(|tool| tools::sends_structured(tool, structured));
    let value = structured_tool.and_then(|tool| answer.structured_for_model(tool));
    let is_promised = structured_tool.is_some_and(|tool| tool.output_schema.is_some());
    let replacement = text_for_blank(&answer, tool, value.as_ref());
    let Answer { id, outcome, cached, truncated, snapshot, .. } = answer;

    let mut host_meta = Map::new();
    host_meta.insert("call".to_owned(), json!(id));
    if cached {
        host_meta.insert("cached".to_owned(), json!(true));
    }
    if truncated {
        host_meta.insert("truncated".to_owned(), json!(true));
    }
    if let Some(Snapshot { paths, bytes, lost }) = snapshot {
        let snapshot = json!({ "paths": paths, "bytes": bytes, "lost": lost });
        host_meta.insert("snapshot".to_owned(), snapshot);
    }

    let mut tool_meta = Map::new();
    let mut result = match outcome {
        Ok(output) => {
            divide_meta(output.meta, &mut host_meta, &mut tool_meta);
            if value.is_none() && is_promised {
                CallToolResult::error(join_texts(NOT_STRUCTURED.to_owned(), output.content))
            } else if let Some(text) = replacement {
                CallToolResult::success(vec![ContentBlock::text(text)])
            } else {
                CallToolResult::success(blocks(output.content))
            }
        }
        Err(failure) if failure.category == Category::ToolNotFound => {
            let message = match failure.suggestion {
                Some(suggestion) => format!("{}. {suggestion}", failure.message),
                None => failure.message,
            };
            return Err(ErrorData::invalid_params(message, None));
        }
        Err(failure) => {
            let feedback = failure.feedback();
            let Failure { category, code, content, meta, denial, retry_after, .. } = failure;
            divide_meta(meta, &mut host_meta, &mut tool_meta);
            host_meta.insert("category".to_owned(), json!(category.as_str()));
            if let Some(code) = code {
                host_meta.insert("code".to_owned(), json!(code));
            }
            if let Some(wait) = retry_after {
                host_meta.insert("retry_after_ms".to_owned(), json!(wait.as_millis()));
            }
            if let Some(denial) = denial {
                host_meta.insert("denial".to_owned(), denial_value(denial));
            }
            CallToolResult::error(join_texts(feedback, content))
        }
    };

    result.structured_content = value;
    let mut meta = MetaObject::new();
    meta.0.extend(tool_meta);
    meta.0.insert(META.to_owned(), Value::Object(host_meta));
    result.meta = Some(meta);
    Ok(result)
}

/// Returns a text for a successful answer whose texts are all empty or blank, because some model
/// APIs refuse blank texts. Returns `None` for other answers.
fn text_for_blank(
    answer: &Answer,
    tool: Option<&Definition>,
    sent_value: Option<&Value>,
) -> Option<String> {
    let content = &answer.outcome.as_ref().ok()?.content;
    if !is_blank(content) {
        return None;
    }
    if let Some(text) = value_as_text(answer, tool, sent_value) {
        return Some(text);
    }
    let is_empty = content.iter().all(Content::is_empty);
    let text = if is_empty { NOTHING } else { BLANK };
    Some(text.to_owned())
}

/// Formats the structured answer as text, even if the client gets no structured `sent_value`.
/// Returns `None` if the tool also answers in text, or if the structured answer is missing.
fn value_as_text(
    answer: &Answer,
    tool: Option<&Definition>,
    sent_value: Option<&Value>,
) -> Option<String> {
    let tool = tool?;
    if tool.output_schema.is_some() && tool.answers_in_text() {
        return None;
    }
    match sent_value {
        Some(value) => Some(value.to_string()),
        None => Some(answer.structured_for_model(tool)?.to_string()),
    }
}

fn is_blank(parts: &[Content]) -> bool {
    parts.iter().all(|part| part.as_text().is_some_and(|text| text.trim().is_empty()))
}

/// Converts the parts of a failed answer. All texts are joined in the first part, because some
/// clients show models no other part.
fn join_texts(mut text: String, parts: Vec<Content>) -> Vec<ContentBlock> {
    let mut parts_without_text = Vec::new();
    for part in parts {
        let Some(part_text) = part.as_text() else {
            parts_without_text.push(part);
            continue;
        };
        if !part_text.trim().is_empty() {
            text.push('\n');
            text.push_str(part_text);
        }
    }
    let mut joined = vec![ContentBlock::text(text)];
    joined.extend(blocks(parts_without_text));
    joined
}

/// Adds the host's keys in `meta` to `host_meta`, and the tool's keys to `tool_meta`. Drops keys
/// that are reserved for the protocol.
fn divide_meta(
    meta: Option<Value>,
    host_meta: &mut Map<String, Value>,
    tool_meta: &mut Map<String, Value>,
) {
    let Some(Value::Object(fields)) = meta else { return };
    let mut host_fields = Map::new();
    for (key, value) in fields {
        // Only the host adds keys with this prefix. The runtime removes such keys of tools.
        if key.starts_with("toolhold:") {
            host_fields.insert(key, value);
        } else if !meta::is_reserved(&key) {
            tool_meta.insert(key, value);
        }
    }
    if !host_fields.is_empty() {
        host_meta.insert("tool".to_owned(), Value::Object(host_fields));
    }
}

fn denial_value(denial: Denial) -> Value {
    let Denial { capability, action, rule, place, remedy } = denial;
    json!({ "capability": capability, "action": action, "rule": rule, "place": place, "remedy": remedy })
}

/// Converts the parts. Empty and blank texts are left out.
fn blocks(parts: Vec<Content>) -> Vec<ContentBlock> {
    let shown =
        parts.into_iter().filter(|part| part.as_text().is_none_or(|text| !text.trim().is_empty()));
    shown.enumerate().map(|(at, part)| block(at, part)).collect()
}

/// Converts a part of an answer. `index` is the index of the part in the answer.
pub(crate) fn block(index: usize, part: Content) -> ContentBlock {
    let Content { body, media_type, .. } = part;
    match body {
        Body::Text(text) => ContentBlock::text(text),
        Body::Link(uri) => {
            let mut link = Resource::new(uri.clone(), uri);
            link.mime_type = media_type;
            ContentBlock::resource_link(link)
        }
        Body::Bytes(bytes) => {
            let data = STANDARD.encode(bytes);
            let media_type = media_type.unwrap_or_else(|| "application/octet-stream".to_owned());
            if media_type.starts_with("image/") {
                ContentBlock::image(data, media_type)
            } else if media_type.starts_with("audio/") {
                ContentBlock::audio(data, media_type)
            } else {
                let uri = format!("toolhold://answer/part/{index}");
                ContentBlock::resource(ResourceContents::blob(data, uri).with_mime_type(media_type))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_core::{CallId, Outcome, Output, Remainder};

    fn tool(schema: Option<Value>) -> Definition {
        Definition {
            output_schema: schema,
            ..Definition::new("look", "looks", json!({ "type": "object" }))
        }
    }

    fn result_of(outcome: Outcome, tool: &Definition, structured: Structured) -> CallToolResult {
        let answer = Answer {
            id: CallId("1".into()),
            tool: None,
            outcome,
            decision: None,
            approval: None,
            cached: false,
            truncated: false,
            untrusted: false,
            notices: vec!["mind this".to_owned()],
            rest: Some(Remainder { id: "h00".to_owned(), offset: 7 }),
            provider: None,
            filtered: None,
            snapshot: None,
            report: std::sync::Arc::default(),
            steps: Vec::new(),
        };
        result(answer, Some(tool), structured).expect("the tool is there")
    }

    fn texts(result: &CallToolResult) -> Vec<String> {
        result
            .content
            .iter()
            .filter_map(|block| block.as_text().map(|text| text.text.clone()))
            .collect()
    }

    #[test]
    fn promised_structured_answer_is_sent_or_an_error() {
        let told = |structured: Option<Value>, tool: &Definition, key: Structured| {
            let result =
                result_of(Ok(Output { structured, ..Output::text("what there is") }), tool, key);
            let texts = texts(&result);
            assert!(texts.len() == 1 && texts[0].ends_with("what there is"), "{texts:?}");
            (result.is_error, result.structured_content, texts[0].starts_with("The call was made."))
        };
        let host =
            json!({ "a": 1, "notices": ["mind this"], "rest": { "id": "h00", "offset": 7 } });
        let object = || Some(json!({ "a": 1 }));
        let promises = tool(Some(json!({ "type": "object" })));
        assert_eq!(
            told(object(), &promises, Structured::Auto),
            (Some(false), Some(host.clone()), false)
        );
        assert_eq!(told(None, &promises, Structured::Auto), (Some(true), None, true));
        assert_eq!(told(Some(json!([1])), &promises, Structured::Auto), (Some(true), None, true));
        assert_eq!(told(object(), &promises, Structured::Never), (Some(false), None, false));
        assert_eq!(told(None, &tool(None), Structured::Auto), (Some(false), None, false));
        assert_eq!(told(object(), &tool(None), Structured::Auto), (Some(false), None, false));
        let mut text = host;
        text["text"] = json!("what there is");
        assert_eq!(
            told(object(), &tool(None), Structured::Always),
            (Some(false), Some(text), false)
        );
    }

    #[test]
    fn success_has_non_blank_content() {
        let content = |content: Vec<Content>,
                       structured: Option<Value>,
                       tool: &Definition,
                       key: Structured| {
            texts(&result_of(Ok(Output { content, structured, meta: None }), tool, key))
        };
        let (plain, promises) = (tool(None), tool(Some(json!({ "type": "object" }))));
        let text = Definition { text_for_models: true, ..promises.clone() };
        let blank = || vec![Content::text(""), Content::text("\n \n")];
        let value = || Some(json!({ "a": 1 }));
        let said = r#"{"a":1,"notices":["mind this"],"rest":{"id":"h00","offset":7}}"#;
        for key in [Structured::Auto, Structured::Always, Structured::Never] {
            assert_eq!(content(Vec::new(), None, &plain, key), [NOTHING]);
            assert_eq!(content(vec![Content::text("")], None, &plain, key), [NOTHING]);
            assert_eq!(content(blank(), None, &plain, key), [BLANK]);
            assert_eq!(content(Vec::new(), value(), &text, key), [NOTHING]);
            for tool in [&plain, &promises] {
                assert_eq!(content(blank(), value(), tool, key), [said]);
            }
            assert_eq!(
                content([blank(), vec![Content::text("x")]].concat(), value(), &plain, key),
                ["x"]
            );
        }
        let image = || Content {
            body: Body::Bytes(vec![1]),
            media_type: Some("image/png".to_owned()),
            meta: None,
        };
        let result = result_of(
            Ok(Output { content: vec![image(), Content::text("")], ..Output::default() }),
            &plain,
            Structured::Auto,
        );
        assert!(result.content.len() == 1 && result.content[0].as_image().is_some(), "{result:?}");
    }

    #[test]
    fn failure_is_complete_in_its_first_text() {
        let image = Content {
            body: Body::Bytes(vec![1]),
            media_type: Some("image/png".to_owned()),
            meta: None,
        };
        let mut failure = Failure::new(Category::PermanentFailure, "it broke");
        failure.content =
            vec![Content::text("first\n"), image, Content::text(""), Content::text("second")];
        let feedback = failure.feedback();
        let result = result_of(Err(failure), &tool(None), Structured::Auto);
        assert_eq!(texts(&result), [format!("{feedback}\nfirst\n\nsecond")]);
        assert_eq!(result.content.len(), 2);
    }
}
