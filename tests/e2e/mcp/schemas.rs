//! The catalogue for clients, against the documented subsets of JSON Schema of model providers. A
//! client passes the schemas on, and a provider that refuses one refuses the whole request.

use serde_json::{Map, Value, json};

use super::client::{Client, LEGACY};
use crate::support::Cli;

/// The tools in a client's list, with every schema.
fn catalogue() -> Vec<Value> {
    let cli = Cli::asking();
    let mut client = Client::new(&cli, &["--set", "serve.structured=always"], LEGACY, false);
    let tools = client.request("tools/list", json!({}))["tools"]
        .as_array()
        .expect("there are tools")
        .clone();
    assert!(tools.len() >= 15, "every built-in tool: {}", tools.len());
    tools
}

/// Checks every schema in a schema, with its place.
fn each(schema: &Value, place: &str, look: &mut impl FnMut(&str, &Map<String, Value>)) {
    let fields = match schema {
        Value::Object(fields) => fields,
        // Anything, in an answer or as a further property.
        Value::Bool(_) => return,
        other => panic!("{place}: {other} is no schema"),
    };
    look(place, fields);
    for key in ["properties", "$defs"] {
        for (name, inner) in fields.get(key).and_then(Value::as_object).into_iter().flatten() {
            each(inner, &format!("{place}.{name}"), look);
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get(key) {
            each(inner, &format!("{place}.{key}"), look);
        }
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        for (at, inner) in
            fields.get(key).and_then(Value::as_array).into_iter().flatten().enumerate()
        {
            each(inner, &format!("{place}.{key}.{at}"), look);
        }
    }
}

/// Checks every schema of arguments.
fn each_input(mut look: impl FnMut(&str, &Map<String, Value>)) {
    for tool in catalogue() {
        each(&tool["inputSchema"], tool["name"].as_str().expect("a name"), &mut look);
    }
}

#[test]
fn gemini_takes_every_schema_of_arguments() {
    // The fields of its `Schema`, a message of Protocol Buffers: any other field is refused.
    const FIELDS: [&str; 22] = [
        "type",
        "format",
        "title",
        "description",
        "nullable",
        "enum",
        "maxItems",
        "minItems",
        "properties",
        "required",
        "minProperties",
        "maxProperties",
        "minLength",
        "maxLength",
        "pattern",
        "example",
        "anyOf",
        "propertyOrdering",
        "default",
        "items",
        "minimum",
        "maximum",
    ];
    each_input(|place, schema| {
        let unknown: Vec<&String> = schema
            .keys()
            .filter(|key| !FIELDS.contains(&key.as_str()) && *key != "additionalProperties")
            .collect();
        assert!(unknown.is_empty(), "{place}: {unknown:?}");
        if schema.contains_key("anyOf") {
            assert_eq!(schema.len(), 1, "{place}: nothing stands beside `anyOf`");
            return;
        }
        let kind =
            schema["type"].as_str().unwrap_or_else(|| panic!("{place}: one type: {schema:?}"));
        assert!(
            ["string", "integer", "number", "boolean", "array", "object"].contains(&kind),
            "{place}: {kind}"
        );
        assert_eq!(schema.contains_key("items"), kind == "array", "{place}: {schema:?}");
        if let Some(values) = schema.get("enum") {
            let texts = values.as_array().is_some_and(|values| values.iter().all(Value::is_string));
            assert!(kind == "string" && texts, "{place}: {schema:?}");
        }
        if let Some(format) = schema.get("format").and_then(Value::as_str) {
            let known = match kind {
                "string" => ["enum", "date-time"],
                "integer" => ["int32", "int64"],
                _ => ["float", "double"],
            };
            assert!(known.contains(&format), "{place}: {format}");
        }
        for name in schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            assert!(
                schema["properties"].get(name).is_some(),
                "{place}: `{name}` is required, and no property"
            );
        }
    });
}

/// The further rules of strict mode (no other properties, all properties required, optional ones
/// nullable) are applied by its clients.
#[test]
fn openai_takes_every_schema_of_arguments_in_strict_mode() {
    const KEYWORDS: [&str; 15] = [
        "type",
        "description",
        "title",
        "enum",
        "anyOf",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "minItems",
        "maxItems",
        "pattern",
        "minimum",
        "maximum",
        "multipleOf",
    ];
    // Objects with unknown fields, and a default that decides whether a call only reads: these two
    // tools aren't strict.
    const NOT_STRICT: [(&str, &str); 4] = [
        ("http_request.headers", "additionalProperties"),
        ("http_request.json", "additionalProperties"),
        ("http_request.method", "default"),
        ("web_scrape.select.anyOf.1", "additionalProperties"),
    ];
    let mut not_strict = Vec::new();
    each_input(|place, schema| {
        assert!(place.matches('.').count() <= 10, "{place}: nested too deep");
        let keywords = schema.keys().map(String::as_str).filter(|key| !KEYWORDS.contains(key));
        let open = schema.get("type").is_some_and(|kind| kind == "object")
            && schema.get("additionalProperties").is_some_and(|others| *others != json!(false));
        let open = open.then_some("additionalProperties").into_iter();
        not_strict
            .extend(keywords.chain(open).map(|keyword| (place.to_owned(), keyword.to_owned())));
    });
    not_strict.sort();
    assert_eq!(
        not_strict,
        NOT_STRICT.map(|(place, keyword)| (place.to_owned(), keyword.to_owned()))
    );
}

/// Each byte is read by the model in every conversation.
#[test]
fn catalogue_of_the_built_in_tools_is_small() {
    let cli = Cli::new();
    let mut client = Client::new(&cli, &[], LEGACY, false);
    let answer = client.request("tools/list", json!({}));
    assert!(answer.get("nextCursor").is_none(), "some clients read one page alone");
    let bytes = answer["tools"].to_string().len();
    assert!(bytes <= 16 * 1024, "{bytes} bytes");
    let tools = answer["tools"].as_array().expect("there are tools");
    assert!(tools.len() >= 24, "{} tools", tools.len());
}

#[test]
fn anthropic_takes_every_tool() {
    let is_name = |name: &str, more: &[u8]| {
        (1..=64).contains(&name.len())
            && name.bytes().all(|byte| {
                byte.is_ascii_alphanumeric() || b"_-".contains(&byte) || more.contains(&byte)
            })
    };
    for tool in catalogue() {
        let (name, schema) = (tool["name"].as_str().expect("a name"), &tool["inputSchema"]);
        assert!(is_name(name, b""), "{name}");
        assert_eq!(schema["type"], "object", "{name}");
        assert!(
            ["anyOf", "oneOf", "allOf"].iter().all(|key| schema.get(*key).is_none()),
            "{name}: none of them at the top"
        );
        let names: Vec<&String> =
            schema["properties"].as_object().expect("it has properties").keys().collect();
        assert!(names.iter().all(|name| is_name(name, b".")), "{name}: {names:?}");
    }
}

/// Clients in TypeScript compile every schema of an answer when they list the tools, and warn of
/// each format that they don't know.
#[test]
fn schemas_use_standard_formats_only() {
    const FORMATS: [&str; 17] = [
        "date-time",
        "date",
        "time",
        "duration",
        "email",
        "idn-email",
        "hostname",
        "idn-hostname",
        "ipv4",
        "ipv6",
        "uri",
        "uri-reference",
        "iri",
        "iri-reference",
        "uuid",
        "json-pointer",
        "regex",
    ];
    let mut answers = 0;
    for tool in catalogue() {
        let name = tool["name"].as_str().expect("a name");
        let mut look = |place: &str, schema: &Map<String, Value>| {
            let format = schema.get("format").and_then(Value::as_str);
            assert!(format.is_none_or(|format| FORMATS.contains(&format)), "{place}: {format:?}");
        };
        each(&tool["inputSchema"], name, &mut look);
        if let Some(schema) = tool.get("outputSchema") {
            answers += 1;
            assert_eq!(schema["type"], "object", "{name}");
            assert!(
                schema["properties"]["notices"]["items"]["type"] == "string"
                    && schema["properties"]["rest"].is_object(),
                "{name}"
            );
            each(schema, name, &mut look);
        }
    }
    assert_eq!(
        answers, 5,
        "bash, web_scrape, http_request, search_code and diagnostics promise a value where it is asked for"
    );
}
