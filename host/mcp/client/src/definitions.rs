//! Decides which tools of an upstream server are offered, and checks their structured answers.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use rmcp::model::{Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Value, json};
use toolhold_core::config::McpServer;
use toolhold_core::text::{cut, neutral_json, neutral_line, neutral_owned};
use toolhold_core::{Annotations, Definition, SchemaCost, compile_schema};

use crate::naming::{
    MAX_DESCRIPTION, MAX_NAME, MAX_TITLE, is_reserved, offered_name, printable_name,
};
use crate::pins::{PinnedTool, Pins, SizeError};
use crate::{MAX_DEFINITION_BYTES, MAX_TOOLS};

/// Most values in a schema after references are resolved.
const MAX_WEIGHT: usize = 20_000;

#[derive(Clone)]
pub(crate) struct OfferedTool {
    pub(crate) definition: Arc<Definition>,
    /// The tool's name at the server.
    pub(crate) own_name: String,
    pub(crate) digest: String,
    /// Checks a structured answer. Made at the first answer, because compiling a schema takes time.
    answer_check: Arc<OnceLock<AnswerCheck>>,
}

type AnswerCheck = Box<dyn Fn(&Value) -> bool + Send + Sync>;

impl OfferedTool {
    /// Checks a structured answer against the output schema. An answer with too many values or
    /// levels doesn't fit. Blocks for a while.
    pub(crate) fn fits(&self, answer: &Value) -> bool {
        let Some(schema) = &self.definition.output_schema else { return true };
        let check = self.answer_check.get_or_init(|| compile_answer_check(schema));
        check(answer)
    }
}

fn compile_answer_check(schema: &Value) -> AnswerCheck {
    let cost = SchemaCost::from_schema(schema);
    match compile_schema(schema) {
        Ok(schema) => Box::new(move |answer| cost.allows(answer) && schema.is_valid(answer)),
        Err(_) => Box::new(|_| false),
    }
}

/// Returns the tools of a server that the host offers. Also returns the names of the approved tools
/// that it can't offer, with the reasons. Tools that `table` doesn't choose are in neither list.
pub(crate) fn offered_tools(
    server: &str,
    pins: &Pins,
    table: &McpServer,
) -> (Vec<OfferedTool>, Vec<(String, String)>) {
    let mut left_out = Vec::new();
    let mut names: BTreeMap<String, Vec<&PinnedTool>> = BTreeMap::new();
    for pin in &pins.tools {
        if !is_chosen(&pin.name, table) {
            continue;
        }
        let Some(name) = offered_name(server, &pin.name) else {
            let reason = format!("the tool's name is too long; the limit is {MAX_NAME} characters");
            left_out.push((printable_name(&pin.name), reason));
            continue;
        };
        if is_reserved(&pins.offers, server, &name) {
            let reason =
                format!("the name `{name}` is reserved for the server's prompts and resources");
            left_out.push((printable_name(&pin.name), reason));
            continue;
        }
        names.entry(name).or_default().push(pin);
    }

    let mut offered = Vec::new();
    for (name, pins) in names {
        let [pin] = pins[..] else {
            let reason = format!("{} tools would have the name `{name}`", pins.len());
            left_out.extend(pins.iter().map(|pin| (printable_name(&pin.name), reason.clone())));
            continue;
        };
        offered.push(OfferedTool {
            definition: Arc::new(definition(name, pin, table.trust_annotations)),
            own_name: pin.name.clone(),
            digest: pin.digest.clone(),
            answer_check: Arc::default(),
        });
    }
    (offered, left_out)
}

/// Checks whether `tools` of a server's table choose a tool. `tool` is the name at the server.
fn is_chosen(tool: &str, table: &McpServer) -> bool {
    table.tools.is_empty() || table.tools.iter().any(|pattern| pattern.matches(tool))
}

/// Returns the entries of `tools` in a server's table that match no approved tool.
pub(crate) fn unmatched_patterns<'t>(pins: &Pins, table: &'t McpServer) -> Vec<&'t str> {
    let mut unmatched = Vec::new();
    for pattern in &table.tools {
        if !pins.tools.iter().any(|pin| pattern.matches(&pin.name)) {
            unmatched.push(pattern.as_str());
        }
    }
    unmatched
}

/// Pins tools. Also returns the names of tools that can't be pinned, with the reasons.
pub(crate) fn pin_tools(tools: &[Tool]) -> (Vec<PinnedTool>, Vec<(String, String)>) {
    let mut pins: Vec<PinnedTool> = Vec::new();
    let mut left_out = Vec::new();
    for tool in tools {
        let pin = PinnedTool::new(tool);
        match check_tool(tool, &pin, &pins) {
            Ok(()) => pins.push(pin),
            Err(error) => left_out.push((printable_name(&tool.name), error.to_string())),
        }
    }
    (pins, left_out)
}

#[derive(Debug, thiserror::Error)]
enum ToolError {
    #[error("the server has more than {MAX_TOOLS} tools, the limit")]
    TooMany,
    #[error(transparent)]
    Size(#[from] SizeError),
    #[error("another tool has this name")]
    SameName,
    #[error("the input schema isn't the schema of an object")]
    NotAnObject,
    #[error("the input schema has more than {MAX_WEIGHT} values, the limit")]
    HeavyInput,
    #[error("the output schema has more than {MAX_WEIGHT} values, the limit")]
    HeavyOutput,
    #[error("the input schema can't be used: {0}")]
    Input(String),
    #[error("the output schema can't be used: {0}")]
    Output(String),
}

/// Checks whether a tool can be pinned together with the earlier `pins`.
fn check_tool(tool: &Tool, pin: &PinnedTool, pins: &[PinnedTool]) -> Result<(), ToolError> {
    if pins.len() >= MAX_TOOLS {
        return Err(ToolError::TooMany);
    }
    pin.check_size(pins, MAX_DEFINITION_BYTES)?;
    if pins.iter().any(|known| known.name == pin.name) {
        return Err(ToolError::SameName);
    }
    check_schemas(tool)
}

/// Checks that a tool's schemas are valid, and not too heavy for a validator.
fn check_schemas(tool: &Tool) -> Result<(), ToolError> {
    let input = portable(Value::Object((*tool.input_schema).clone()));
    if input.get("type").is_some_and(|kind| kind != "object") {
        return Err(ToolError::NotAnObject);
    }
    if is_heavy(&input) {
        return Err(ToolError::HeavyInput);
    }
    let mut output = None;
    if let Some(schema) = &tool.output_schema {
        let portable_schema = portable(Value::Object((**schema).clone()));
        if is_heavy(&portable_schema) {
            return Err(ToolError::HeavyOutput);
        }
        output = Some(portable_schema);
    }

    compile_schema(&neutral_json(input)).map_err(|error| ToolError::Input(error.to_string()))?;
    if let Some(output) = output {
        compile_schema(&neutral_json(output))
            .map_err(|error| ToolError::Output(error.to_string()))?;
    }
    Ok(())
}

fn is_heavy(schema: &Value) -> bool {
    SchemaCost::from_schema(schema).weight > MAX_WEIGHT
}

/// Converts a schema to a form that every client accepts: an object, with an object for each
/// property. Some clients refuse the whole list of tools if a single schema has another form.
fn portable(mut schema: Value) -> Value {
    let Value::Object(fields) = &mut schema else { return schema };
    for key in ["properties", "required"] {
        if fields.get(key).is_some_and(Value::is_null) {
            fields.shift_remove(key);
        }
    }
    fields.entry("type").or_insert_with(|| Value::from("object"));
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        for schema in properties.values_mut() {
            match schema {
                // The empty schema allows any value.
                Value::Bool(true) | Value::Null => *schema = json!({}),
                // This schema allows no value.
                Value::Bool(false) => *schema = json!({ "not": {} }),
                _ => {}
            }
        }
    }
    schema
}

/// The used parts of a definition.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Listed {
    title: Option<String>,
    description: Option<String>,
    input_schema: Value,
    output_schema: Option<Value>,
    annotations: Option<ToolAnnotations>,
}

/// Makes the host's definition of a tool from the tool's approved definition.
fn definition(name: String, pin: &PinnedTool, trust_annotations: bool) -> Definition {
    // Toolhold wrote the approved definition, so its parsing fails only after a change by hand.
    let listed: Listed = serde_json::from_str(&pin.definition).unwrap_or_default();
    let is_neutral = has_neutral_strings(&pin.definition);
    let raw_description = listed.description.unwrap_or_default();
    let description = neutral_owned(cut(&raw_description, MAX_DESCRIPTION).to_owned());
    let input_schema = neutral_schema(listed.input_schema, is_neutral);
    let mut definition = Definition::new(name, description, input_schema);
    definition.title = listed.title.map(|title| neutral_line(cut(&title, MAX_TITLE)));
    definition.output_schema =
        listed.output_schema.map(|schema| neutral_schema(schema, is_neutral));
    definition.foreign = true;

    let claimed = listed.annotations.unwrap_or_default();
    let says_read_only = claimed.read_only_hint == Some(true);
    // A tool that says it is destructive gets a warning even if the server's annotations aren't
    // trusted. A tool that also says it is read-only gets none, because it would destroy nothing.
    definition.says_destructive = claimed.destructive_hint == Some(true) && !says_read_only;
    if trust_annotations {
        definition.annotations = annotations(claimed);
    }
    definition
}

/// Converts a schema to its offered form. If `is_neutral` is true, the strings of the schema need
/// no change, and a scan of the schema is skipped.
fn neutral_schema(schema: Value, is_neutral: bool) -> Value {
    portable(if is_neutral { schema } else { neutral_json(schema) })
}

/// Returns whether all strings of a JSON text consist of ASCII characters, line ends and tabs. Line
/// ends and tabs between the values may cause a wrong `false`, which only costs a needless scan.
fn has_neutral_strings(text: &str) -> bool {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let is_clean = match byte {
            // Other escapes stand for control characters or for characters outside of ASCII.
            b'\\' => matches!(bytes.next(), Some(b'"' | b'\\' | b'/' | b'n' | b't')),
            byte => matches!(byte, b' '..=b'~'),
        };
        if !is_clean {
            return false;
        }
    }
    true
}

/// Converts a trusted server's annotations of a tool. The MCP specification defines the value of a
/// missing annotation.
fn annotations(claimed: ToolAnnotations) -> Annotations {
    let read_only = claimed.read_only_hint.unwrap_or(false);
    Annotations {
        read_only,
        destructive: !read_only && claimed.destructive_hint.unwrap_or(true),
        idempotent: claimed.idempotent_hint.unwrap_or(false),
        open_world: claimed.open_world_hint.unwrap_or(true),
        // The protocol has no hint for cacheable results.
        cacheable: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(tools: &[Value]) -> Vec<Tool> {
        tools.iter().map(|tool| serde_json::from_value(tool.clone()).expect("a tool")).collect()
    }

    fn pins_with(tools: &[PinnedTool]) -> Pins {
        Pins { tools: tools.to_vec(), ..Pins::default() }
    }

    fn named(name: &str) -> Value {
        json!({ "name": name, "description": "x", "inputSchema": { "type": "object" } })
    }

    #[test]
    fn names_fit_or_are_left_out() {
        let long = "x".repeat(60);
        let (pins, none) = pin_tools(&tools(&[
            named("Read.File"),
            named("get_time"),
            named("get time"),
            named(&long),
            named("é"),
        ]));
        assert_eq!(none, []);
        let (offered, left_out) = offered_tools("time", &pins_with(&pins), &McpServer::default());
        let names: Vec<&str> = offered.iter().map(|tool| &*tool.definition.name).collect();
        assert_eq!(names, ["time___", "time__read_file"]);
        let left: Vec<&str> = left_out.iter().map(|(name, _)| &**name).collect();
        assert_eq!(left, [&long, "get_time", "get time"]);
    }

    #[test]
    fn hostile_definitions_are_left_out_and_the_others_stay() {
        let exploding = {
            let mut all = serde_json::Map::new();
            for level in 0..30 {
                let next = format!("#/$defs/{}", level + 1);
                all.insert(
                    level.to_string(),
                    json!({ "anyOf": [{ "$ref": next }, { "$ref": next }] }),
                );
            }
            all.insert("30".to_owned(), json!({ "type": "string" }));
            json!({ "name": "explodes", "inputSchema": { "type": "object", "$defs": all, "properties": { "a": { "$ref": "#/$defs/0" } } } })
        };
        let (pins, left_out) = pin_tools(&tools(&[
            named("good"),
            named("good"),
            json!({
                "name": "large",
                "description": "x".repeat(MAX_DEFINITION_BYTES),
                "inputSchema": { "type": "object" }
            }),
            json!({ "name": "invalid", "inputSchema": { "type": "object", "properties": 7 } }),
            json!({ "name": "list", "inputSchema": { "type": "array" } }),
            json!({ "name": "elsewhere", "inputSchema": { "type": "object", "properties": { "a": { "$ref": "https://example.com/x" } } } }),
            exploding,
        ]));
        assert_eq!(pins.iter().map(|pin| &*pin.name).collect::<Vec<_>>(), ["good"], "{left_out:?}");
        assert_eq!(left_out.len(), 6);
        let million: Vec<Value> = (0..1000).map(|number| named(&number.to_string())).collect();
        let (pins, left_out) = pin_tools(&tools(&million));
        assert_eq!((pins.len(), left_out.len()), (MAX_TOOLS, 1000 - MAX_TOOLS));
    }

    #[test]
    fn odd_schemas_become_those_of_objects() {
        let text = json!({ "type": "string" });
        for (odd, expected) in [
            (json!({}), json!({ "type": "object" })),
            (json!({ "$schema": "x" }), json!({ "$schema": "x", "type": "object" })),
            (
                json!({ "properties": { "a": true, "b": false, "c": null, "d": text } }),
                json!({ "type": "object", "properties": { "a": {}, "b": { "not": {} }, "c": {}, "d": text } }),
            ),
            (json!({ "anyOf": [{}] }), json!({ "type": "object", "anyOf": [{}] })),
            (json!({ "properties": null, "required": null }), json!({ "type": "object" })),
            (json!({ "type": "string" }), json!({ "type": "string" })),
        ] {
            assert_eq!(portable(odd.clone()), expected, "{odd}");
        }
        let odd = json!({ "name": "a", "inputSchema": {}, "outputSchema": { "properties": { "x": true } } });
        let (pins, left_out) = pin_tools(&tools(&[odd]));
        assert_eq!(left_out, []);
        let (offered, _) = offered_tools("s", &pins_with(&pins), &McpServer::default());
        let definition = &offered[0].definition;
        assert_eq!(definition.input_schema, json!({ "type": "object" }));
        let output = definition.output_schema.as_ref().expect("it has one");
        assert_eq!(*output, json!({ "type": "object", "properties": { "x": {} } }));
    }

    #[test]
    fn texts_are_neutral_and_claims_dont_count() {
        let tool = json!({
            "name": "a",
            "title": "\u{1b}[2Jx",
            "description": "\u{202e}evil",
            "inputSchema": { "type": "object", "properties": { "\u{1b}b": { "description": "\u{7}" } } },
            "annotations": { "readOnlyHint": true, "idempotentHint": true },
        });
        let (pins, _) = pin_tools(&tools(&[tool]));
        let (offered, _) = offered_tools("s", &pins_with(&pins), &McpServer::default());
        let definition = &offered[0].definition;
        let text = serde_json::to_string(&**definition).expect("JSON");
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{7}']) && !text.contains("\\u"), "{text}");
        assert!(definition.foreign);
        assert_eq!(definition.annotations, Annotations::default());
        let trusting = McpServer { trust_annotations: true, ..McpServer::default() };
        let trusted = &offered_tools("s", &pins_with(&pins), &trusting).0[0].definition.annotations;
        assert!(trusted.read_only && trusted.idempotent && !trusted.destructive);
    }
}
