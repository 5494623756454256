//! Tools as the protocol has them.

use std::borrow::Cow;
use std::sync::Arc;

use berth_host::{Definition, Host, Session};
use rmcp::ErrorData;
use rmcp::model::{JsonObject, ListToolsResult, ProtocolVersion, Tool, ToolAnnotations};
use serde_json::Value;

/// Tools on one page.
const PAGE: usize = 100;

/// For how long a client may take a list for what there is, in milliseconds. One that listens hears of a change at once.
const FRESH: u64 = 60_000;

/// The tools that a session is offered.
///
/// # Errors
///
/// What is remembered of the session can't be read.
pub(crate) fn of(host: &Host, session: &Session) -> Result<Vec<Arc<Definition>>, ErrorData> {
    let offered = host.tools_for(session).map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(offered.into_iter().map(|offered| offered.definition).collect())
}

/// A page of the tools, from behind the one that `cursor` names.
///
/// # Errors
///
/// The cursor is none that was given out, or its tool is gone.
pub(crate) fn page(
    tools: &[Arc<Definition>],
    cursor: Option<&str>,
    version: Option<&ProtocolVersion>,
) -> Result<ListToolsResult, ErrorData> {
    let from = match cursor {
        None => 0,
        Some(name) => tools
            .iter()
            .position(|tool| tool.name == name)
            .map(|at| at + 1)
            .ok_or_else(|| ErrorData::invalid_params("no such cursor: the list has changed; begin again without one", None))?,
    };
    let page = &tools[from..tools.len().min(from + PAGE)];
    let next = (from + page.len() < tools.len()).then(|| page.last().map(|tool| tool.name.clone())).flatten();
    let mut result = ListToolsResult::with_all_items(page.iter().map(|tool| self::tool(tool, version)).collect());
    result.next_cursor = next;
    result.ttl_ms = Some(FRESH);
    Ok(result)
}

/// Whether a client of that revision takes any value for a structured one. Before 2026-07-28, it has to be an object, and clients refuse the
/// whole list for a schema of something else.
pub(crate) fn takes_any_value(version: Option<&ProtocolVersion>) -> bool {
    version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

/// The schema of a tool's structured answers, as far as a client of that revision is told of one. Then it refuses an answer without.
pub(crate) fn promised<'d>(definition: &'d Definition, version: Option<&ProtocolVersion>) -> Option<&'d Value> {
    definition.output_schema.as_ref().filter(|schema| takes_any_value(version) || schema["type"] == "object")
}

/// A tool as the protocol has it in that revision.
pub(crate) fn tool(definition: &Definition, version: Option<&ProtocolVersion>) -> Tool {
    let annotations = definition.annotations;
    let hints = ToolAnnotations::from_raw(
        definition.title.clone(),
        Some(annotations.read_only),
        Some(annotations.destructive && !annotations.read_only),
        Some(annotations.idempotent || annotations.read_only),
        Some(annotations.open_world),
    );
    let description = Cow::Owned(definition.description.clone());
    let mut tool = Tool::new_with_raw(definition.name.clone(), Some(description), object(&definition.input_schema));
    tool.title.clone_from(&definition.title);
    tool.output_schema = promised(definition, version).map(object);
    tool.with_annotations(hints)
}

/// A schema. The host takes none that is no object.
fn object(schema: &Value) -> Arc<JsonObject> {
    Arc::new(schema.as_object().cloned().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tools(count: usize) -> Vec<Arc<Definition>> {
        (0..count).map(|at| Arc::new(Definition::new(format!("tool-{at:03}"), "does it", json!({ "type": "object" })))).collect()
    }

    #[test]
    fn pages_follow_each_other_and_leave_nothing_out() {
        for count in [0, 1, PAGE, PAGE + 1, 3 * PAGE] {
            let tools = tools(count);
            let (mut seen, mut cursor) = (Vec::new(), None::<String>);
            loop {
                let page = page(&tools, cursor.as_deref(), None).expect("the cursor is right");
                assert!(page.tools.len() <= PAGE);
                seen.extend(page.tools.into_iter().map(|tool| tool.name.into_owned()));
                cursor = page.next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
            assert!(seen.iter().eq(tools.iter().map(|tool| &tool.name)), "{count}");
        }
        assert!(page(&tools(3), Some("elsewhere"), None).is_err());
    }

    #[test]
    fn what_only_reads_neither_destroys_nor_minds_being_repeated() {
        let mut definition = Definition::new("look", "looks", json!({ "type": "object" }));
        definition.annotations.read_only = true;
        let hints = tool(&definition, None).annotations.expect("has hints");
        assert_eq!((hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint), (Some(true), Some(false), Some(true)));
    }
    #[test]
    fn a_client_is_told_only_of_schemas_that_its_revision_has() {
        let mut definition = Definition::new("count", "counts", json!({ "type": "object" }));
        for (schema, old, new) in
            [(json!({ "type": "object" }), true, true), (json!({ "type": "array" }), false, true), (json!({}), false, true)]
        {
            definition.output_schema = Some(schema.clone());
            for (version, told) in [(None, old), (Some(ProtocolVersion::V_2025_11_25), old), (Some(ProtocolVersion::V_2026_07_28), new)] {
                assert_eq!(tool(&definition, version.as_ref()).output_schema.is_some(), told, "{schema} {version:?}");
            }
        }
    }
}
