//! Lists the tools in pages, in the form of MCP, and decides whether a client gets structured
//! answers.

use std::borrow::Cow;
use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::{JsonObject, ListToolsResult, Tool, ToolAnnotations};
use serde_json::Value;
use toolhold_core::config::Structured;
use toolhold_core::{Definition, Host, Session, structured_schema};

/// Tools on one page. Some clients read only one page.
const PAGE: usize = 1_000;

/// Formats of numbers, which are those of Rust's types.
const NUMBER_FORMATS: [&str; 9] =
    ["uint", "uint8", "uint16", "uint32", "uint64", "int32", "int64", "float", "double"];

/// Milliseconds for which a client may cache a list. A client that listens is notified of changes
/// at once.
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

/// Returns the page of the tools after the tool that `cursor` names.
///
/// # Errors
///
/// Returns an error if the cursor isn't valid, or if its tool no longer exists.
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

/// Converts a tool to the protocol's form. A schema of structured answers is a promise, because
/// clients refuse an answer without a structured part.
pub(crate) fn tool(definition: &Definition, structured: Structured) -> Tool {
    let description = Cow::Owned(definition.description.clone());
    let schema = if is_built_in(definition) && !names_dialect(&definition.input_schema) {
        object(&without_noise(&definition.input_schema))
    } else {
        object(&definition.input_schema)
    };
    let mut tool = Tool::new_with_raw(definition.name.clone(), Some(description), schema);
    if sends_structured(definition, structured) {
        tool.output_schema = structured_schema(definition).as_ref().map(object);
    }
    tool.with_annotations(hints(definition))
}

/// Returns the hints that differ from the protocol's defaults. A tool that only reads has no other
/// hint about its changes. The title of a built-in tool, whose name has no `__`, says no more than
/// the name.
fn hints(definition: &Definition) -> ToolAnnotations {
    let annotations = definition.annotations;
    let mut hints = ToolAnnotations::default();
    if !is_built_in(definition) {
        hints.title.clone_from(&definition.title);
    }
    if annotations.read_only {
        hints.read_only_hint = Some(true);
    } else {
        hints.destructive_hint = (!annotations.destructive).then_some(false);
        hints.idempotent_hint = annotations.idempotent.then_some(true);
    }
    hints.open_world_hint = (!annotations.open_world).then_some(false);
    hints
}

/// Checks whether a tool is built in. The names of other tools have `__`.
fn is_built_in(definition: &Definition) -> bool {
    !definition.name.contains("__")
}

/// Checks whether a schema names its dialect, as no schema of a built-in tool does. The schema is
/// then the choice of a program that embeds Toolhold, and stays as it is.
fn names_dialect(schema: &Value) -> bool {
    schema.get("$schema").is_some()
}

/// Returns a schema of arguments of a built-in tool without the keywords that tell a model nothing. The host checks
/// the arguments against the whole schema.
fn without_noise(schema: &Value) -> Value {
    let Value::Object(fields) = schema else {
        return match schema {
            Value::Array(items) => items.iter().map(without_noise).collect(),
            other => other.clone(),
        };
    };
    let mut kept = JsonObject::new();
    for (key, value) in fields {
        let is_noise = match &**key {
            "title" => value.is_string(),
            "additionalProperties" => *value == false,
            "minimum" => *value == 0 || *value == 1,
            "format" => NUMBER_FORMATS.contains(&value.as_str().unwrap_or_default()),
            _ => false,
        };
        if is_noise {
            continue;
        }
        let value = match (&**key, value) {
            // The keys are names of arguments.
            ("properties" | "$defs" | "definitions", Value::Object(named)) => {
                named.iter().map(|(name, schema)| (name.clone(), without_noise(schema))).collect()
            }
            // The values are data.
            ("default" | "const" | "enum" | "examples", _) => value.clone(),
            _ => without_noise(value),
        };
        kept.insert(key.clone(), value);
    }
    Value::Object(kept)
}

/// Converts a schema. The host only accepts objects.
fn object(schema: &Value) -> Arc<JsonObject> {
    Arc::new(schema.as_object().cloned().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolhold_core::Annotations;

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
    fn hints_that_are_the_default_are_left_out() {
        let mut definition = Definition::new("look", "looks", json!({ "type": "object" }));
        definition.annotations.read_only = true;
        definition.annotations.open_world = false;
        let hints = tool(&definition, Structured::Auto).annotations.expect("has hints");
        assert_eq!(json!(hints), json!({ "readOnlyHint": true, "openWorldHint": false }));
        definition.annotations = Annotations {
            read_only: false,
            destructive: true,
            idempotent: false,
            open_world: true,
            cacheable: false,
        };
        let hints = tool(&definition, Structured::Auto).annotations.expect("has hints");
        assert_eq!(json!(hints), json!({}));
        definition.annotations.destructive = false;
        definition.annotations.idempotent = true;
        let hints = tool(&definition, Structured::Auto).annotations.expect("has hints");
        assert_eq!(json!(hints), json!({ "destructiveHint": false, "idempotentHint": true }));
    }

    #[test]
    fn title_of_another_server_is_kept() {
        let title = Some("Look at it".to_owned());
        let own = Definition { title, ..Definition::new("look", "looks", json!({})) };
        let other = Definition { name: "git__look".to_owned(), ..own.clone() };
        assert_eq!(hints(&own).title, None);
        assert_eq!(hints(&other).title.as_deref(), Some("Look at it"));
    }

    #[test]
    fn noise_of_a_schema_is_left_out_and_arguments_with_such_names_stay() {
        let schema = json!({
            "title": "Arguments",
            "type": "object",
            "properties": {
                "title": { "type": "string", "title": "Title", "default": { "title": "x" } },
                "format": { "type": "string", "format": "date" },
                "minimum": { "type": "integer", "format": "uint32", "minimum": 1, "maximum": 9 },
                "open": { "type": "object", "additionalProperties": { "format": "double" } },
            },
            "additionalProperties": false,
        });
        let expected = json!({
            "type": "object",
            "properties": {
                "title": { "type": "string", "default": { "title": "x" } },
                "format": { "type": "string", "format": "date" },
                "minimum": { "type": "integer", "maximum": 9 },
                "open": { "type": "object", "additionalProperties": {} },
            },
        });
        assert_eq!(without_noise(&schema), expected);
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
