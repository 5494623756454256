//! Lists the tools in pages, in the form of MCP, and decides whether a client gets structured
//! answers.

use std::borrow::Cow;
use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::{JsonObject, ListToolsResult, Tool, ToolAnnotations};
use serde_json::Value;
use toolhold_core::config::Structured;
use toolhold_core::{Definition, Host, Session, structured_schema};

/// Tools on one page. Some clients read one page alone.
const PAGE: usize = 1_000;

/// Milliseconds for which a client may cache a list. A client that listens is told of changes at
/// once.
const FRESH: u64 = 60_000;

/// Returns the tools for a session.
///
/// # Errors
///
/// The state of the session can't be read.
pub(crate) fn list(host: &Host, session: &Session) -> Result<Vec<Arc<Definition>>, ErrorData> {
    let offered = host
        .tools_for(session)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(offered.into_iter().map(|offered| offered.definition).collect())
}

/// Returns a page of the tools after the one that `cursor` names.
///
/// # Errors
///
/// The cursor isn't valid, or its tool is gone.
pub(crate) fn page(
    tools: &[Arc<Definition>],
    cursor: Option<&str>,
    structured: Structured,
) -> Result<ListToolsResult, ErrorData> {
    let start = match cursor {
        None => 0,
        Some(name) => {
            let last = tools.iter().position(|tool| tool.name == name).ok_or_else(|| {
                ErrorData::invalid_params(
                    "no such cursor: the list has changed; start again without a cursor",
                    None,
                )
            })?;
            last + 1
        }
    };
    let end = tools.len().min(start + PAGE);
    let page = &tools[start..end];
    let items = page.iter().map(|tool| self::tool(tool, structured)).collect();
    let mut result = ListToolsResult::with_all_items(items);
    if end < tools.len() {
        result.next_cursor = page.last().map(|tool| tool.name.clone());
    }
    result.ttl_ms = Some(FRESH);
    Ok(result)
}

/// Checks whether a client gets a tool's structured answers.
pub(crate) fn sends_structured(tool: &Definition, structured: Structured) -> bool {
    match structured {
        Structured::Auto => !tool.answers_in_text(),
        Structured::Always => true,
        Structured::Never => false,
    }
}

/// Converts a tool to the protocol's form. A schema of structured answers is a promise: clients
/// refuse an answer without one.
pub(crate) fn tool(definition: &Definition, structured: Structured) -> Tool {
    let annotations = definition.annotations;
    let hints = ToolAnnotations::from_raw(
        definition.title.clone(),
        Some(annotations.read_only),
        Some(annotations.destructive && !annotations.read_only),
        Some(annotations.idempotent || annotations.read_only),
        Some(annotations.open_world),
    );
    let description = Cow::Owned(definition.description.clone());
    let mut tool = Tool::new_with_raw(
        definition.name.clone(),
        Some(description),
        object(&definition.input_schema),
    );
    tool.title.clone_from(&definition.title);
    if sends_structured(definition, structured) {
        tool.output_schema = structured_schema(definition).as_ref().map(object);
    }
    tool.with_annotations(hints)
}

/// Converts a schema. The host only accepts objects.
fn object(schema: &Value) -> Arc<JsonObject> {
    Arc::new(schema.as_object().cloned().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tools(count: usize) -> Vec<Arc<Definition>> {
        (0..count)
            .map(|at| {
                Arc::new(Definition::new(
                    format!("tool-{at:03}"),
                    "does it",
                    json!({ "type": "object" }),
                ))
            })
            .collect()
    }

    #[test]
    fn pages_are_in_order_and_complete() {
        for count in [0, 1, PAGE, PAGE + 1, 3 * PAGE] {
            let tools = tools(count);
            let (mut seen, mut cursor) = (Vec::new(), None::<String>);
            loop {
                let page =
                    page(&tools, cursor.as_deref(), Structured::Auto).expect("the cursor is right");
                assert!(page.tools.len() <= PAGE);
                seen.extend(page.tools.into_iter().map(|tool| tool.name.into_owned()));
                cursor = page.next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
            assert!(seen.iter().eq(tools.iter().map(|tool| &tool.name)), "{count}");
        }
        assert!(page(&tools(3), Some("elsewhere"), Structured::Auto).is_err());
    }

    #[test]
    fn reading_tool_is_not_destructive_and_idempotent() {
        let mut definition = Definition::new("look", "looks", json!({ "type": "object" }));
        definition.annotations.read_only = true;
        let hints = tool(&definition, Structured::Auto).annotations.expect("has hints");
        assert_eq!(
            (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint),
            (Some(true), Some(false), Some(true))
        );
    }

    #[test]
    fn schema_is_advertised_if_structured_answers_are_sent() {
        let plain = Definition::new("count", "counts", json!({ "type": "object" }));
        let value = Definition { output_schema: Some(json!({ "type": "array" })), ..plain.clone() };
        let text = Definition { text_for_models: true, ..value.clone() };
        use Structured::{Always, Auto, Never};
        for (definition, structured, sends, promises) in [
            (&plain, Auto, false, false),
            (&plain, Always, true, false),
            (&plain, Never, false, false),
            (&value, Auto, true, true),
            (&value, Always, true, true),
            (&value, Never, false, false),
            (&text, Auto, false, false),
            (&text, Always, true, true),
            (&text, Never, false, false),
        ] {
            assert_eq!(
                sends_structured(definition, structured),
                sends,
                "{definition:?} {structured:?}"
            );
            let schema = tool(definition, structured).output_schema;
            assert_eq!(schema.is_some(), promises, "{definition:?} {structured:?}");
            // Revisions before 2026-07-28 don't know it.
            assert!(schema.is_none_or(|schema| schema["type"] == "object"));
        }
    }
}
