//! Converts the tools to MCP, and decides whether a client gets structured answers.

use std::borrow::Cow;
use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::{JsonObject, ListToolsResult, Tool, ToolAnnotations};
use serde_json::Value;
use toolhold_core::config::Structured;
use toolhold_core::{Definition, Host, Session, structured_schema};

/// Maximum number of tools on a page. Pages are large, because some clients read only the first
/// page.
const PAGE_SIZE: usize = 1_000;

/// Number formats in the schemas of Rust types.
const NUMBER_FORMATS: [&str; 9] =
    ["uint", "uint8", "uint16", "uint32", "uint64", "int32", "int64", "float", "double"];

/// Milliseconds for which a client may cache the list. Connected clients are notified of changes.
const CACHE_MILLISECONDS: u64 = 60_000;

/// Returns the tools that `session` may use.
///
/// # Errors
///
/// Returns an error if the state of the session can't be read.
pub(crate) fn list(host: &Host, session: &Session) -> Result<Vec<Arc<Definition>>, ErrorData> {
    let offered_tools = host
        .tools_for(session)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(offered_tools.into_iter().map(|tool| tool.definition).collect())
}

/// Returns a page of tools. `cursor` is the name of the last tool on the previous page.
///
/// # Errors
///
/// Returns an error if no tool has the name in `cursor`.
pub(crate) fn page(
    tools: &[Arc<Definition>],
    cursor: Option<&str>,
    structured: Structured,
) -> Result<ListToolsResult, ErrorData> {
    let start = match cursor {
        None => 0,
        Some(name) => {
            let position = tools.iter().position(|tool| tool.name == name);
            let Some(last_of_page_before) = position else {
                return Err(ErrorData::invalid_params(
                    "the cursor isn't valid, because the list has changed; start again without a \
                     cursor",
                    None,
                ));
            };
            last_of_page_before + 1
        }
    };
    let end = tools.len().min(start + PAGE_SIZE);
    let page = &tools[start..end];
    let items = page.iter().map(|tool| self::tool(tool, structured)).collect();
    let mut result = ListToolsResult::with_all_items(items);
    if end < tools.len() {
        result.next_cursor = page.last().map(|tool| tool.name.clone());
    }
    result.ttl_ms = Some(CACHE_MILLISECONDS);
    Ok(result)
}

pub(crate) fn sends_structured(tool: &Definition, structured: Structured) -> bool {
    match structured {
        Structured::Auto => !tool.answers_in_text(),
        Structured::Always => true,
        Structured::Never => false,
    }
}

/// Converts a tool. Without structured answers, the output schema is left out, because clients
/// refuse unstructured answers of a tool with an output schema.
pub(crate) fn tool(definition: &Definition, structured: Structured) -> Tool {
    let description = Cow::Owned(definition.description.clone());
    let is_own_schema = is_built_in(definition) && !names_dialect(&definition.input_schema);
    let schema = if is_own_schema {
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

/// Returns only the hints that differ from the protocol's defaults. A read-only tool gets no other
/// hint about changes, because such hints mean nothing for a tool that changes nothing. A built-in
/// tool gets no title, because its title only repeats its name.
fn hints(definition: &Definition) -> ToolAnnotations {
    let annotations = definition.annotations;
    let mut hints = ToolAnnotations::default();
    if !is_built_in(definition) {
        hints.title.clone_from(&definition.title);
    }
    if annotations.read_only {
        hints.read_only_hint = Some(true);
    } else {
        if !annotations.destructive {
            hints.destructive_hint = Some(false);
        }
        if annotations.idempotent {
            hints.idempotent_hint = Some(true);
        }
    }
    if !annotations.open_world {
        hints.open_world_hint = Some(false);
    }
    hints
}

/// Checks whether a tool is built in. All other tools have `__` in their names.
fn is_built_in(definition: &Definition) -> bool {
    !definition.name.contains("__")
}

/// Checks for `$schema`. Built-in tools don't set it, so a schema with `$schema` comes from an
/// embedding program and is sent unchanged.
fn names_dialect(schema: &Value) -> bool {
    schema.get("$schema").is_some()
}

/// Returns a schema without the keywords that tell a model nothing. The host still checks arguments
/// against the complete schema.
fn without_noise(schema: &Value) -> Value {
    let fields = match schema {
        Value::Object(fields) => fields,
        Value::Array(items) => return items.iter().map(without_noise).collect(),
        other => return other.clone(),
    };
    let mut shorter_schema = JsonObject::new();
    for (key, value) in fields {
        if is_noise(key, value) {
            continue;
        }
        let value = match (&**key, value) {
            ("properties" | "$defs" | "definitions", Value::Object(named)) => {
                named.iter().map(|(name, schema)| (name.clone(), without_noise(schema))).collect()
            }
            ("default" | "const" | "enum" | "examples", _) => value.clone(),
            _ => without_noise(value),
        };
        shorter_schema.insert(key.clone(), value);
    }
    Value::Object(shorter_schema)
}

/// Checks whether a keyword of a schema tells a model nothing.
fn is_noise(key: &str, value: &Value) -> bool {
    match key {
        "title" => value.is_string(),
        "additionalProperties" => *value == false,
        "minimum" => *value == 0 || *value == 1,
        "format" => value.as_str().is_some_and(|format| NUMBER_FORMATS.contains(&format)),
        _ => false,
    }
}

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
        for count in [0, 1, PAGE_SIZE, PAGE_SIZE + 1, 3 * PAGE_SIZE] {
            let tools = tools(count);
            let (mut seen, mut cursor) = (Vec::new(), None::<String>);
            loop {
                let page =
                    page(&tools, cursor.as_deref(), Structured::Auto).expect("the cursor is right");
                assert!(page.tools.len() <= PAGE_SIZE);
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
