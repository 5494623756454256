//! Makes the JSON Schemas of arguments and answers from Rust types.

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

/// The JSON Schema (2020-12) of `T`. It has no references. It also lacks the name of the type,
/// which doesn't help a model.
pub fn for_type<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("title");
    tidy(&mut schema);
    schema
}

/// The JSON Schema of arguments, in the forms that every model provider accepts: one type for each
/// argument, no null, and a list of values instead of a choice where possible. An optional argument
/// may be left out. The host removes arguments that are null.
pub fn for_arguments<T: JsonSchema>() -> Schema {
    let mut schema = for_type::<T>();
    simplify(&mut schema);
    schema
}

/// Removes details of Rust: the line breaks of comments and the bits of numbers.
fn tidy(schema: &mut Schema) {
    join_lines(schema);
    // JSON Schema has no format `uint32`; clients warn about it.
    let types = schema
        .get("type")
        .map(|types| types.as_array().map_or(std::slice::from_ref(types), Vec::as_slice))
        .unwrap_or_default();
    if types.iter().any(|name| name == "integer" || name == "number") {
        schema.remove("format");
    }
    transform_subschemas(&mut tidy, schema);
}

/// Gives a schema one type and removes null, from the innermost schema outwards.
fn simplify(schema: &mut Schema) {
    transform_subschemas(&mut simplify, schema);
    let Some(fields) = schema.as_object_mut() else { return };
    if let Some(Value::Array(types)) = fields.get_mut("type") {
        types.retain(|name| name != "null");
        if let [one] = &mut types[..] {
            let one = one.take();
            fields.insert("type".to_owned(), one);
        }
    }
    if fields.get("default").is_some_and(Value::is_null) {
        fields.remove("default");
    }
    if let Some(value) = fields.remove("const") {
        fields.insert("enum".to_owned(), json!([value]));
    }
    if let Some(Value::Array(values)) = fields.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    for key in ["oneOf", "anyOf"] {
        if let Some(Value::Array(forms)) = fields.remove(key) {
            let forms = forms
                .into_iter()
                .filter(|form| form.get("type").is_none_or(|name| name != "null"))
                .collect();
            join_forms(fields, forms);
        }
    }
    // Some providers accept no other keyword next to `anyOf`.
    if fields.contains_key("anyOf")
        && let Some(Value::String(text)) = fields.remove("description")
        && let Some(Value::Object(first)) =
            fields.get_mut("anyOf").and_then(|forms| forms.get_mut(0))
    {
        add_description(first, &text);
    }
}

/// Merges the alternatives `forms` into their schema.
fn join_forms(fields: &mut Map<String, Value>, mut forms: Vec<Value>) {
    if let [Value::Object(only)] = &mut forms[..] {
        if let Some(Value::String(text)) = only.remove("description") {
            add_description(fields, &text);
        }
        for (key, value) in std::mem::take(only) {
            fields.entry(key).or_insert(value);
        }
        return;
    }
    if let Some(values) = values_of(&forms) {
        let descriptions: Vec<String> = forms.iter().filter_map(describe_form).collect();
        if !descriptions.is_empty() {
            add_description(fields, &descriptions.join("\n"));
        }
        fields.insert("type".to_owned(), forms[0]["type"].clone());
        fields.insert("enum".to_owned(), Value::Array(values));
        return;
    }
    fields.insert("anyOf".to_owned(), Value::Array(forms));
}

/// The values of all alternatives. `None` unless each is a list of values, all of one type.
fn values_of(forms: &[Value]) -> Option<Vec<Value>> {
    let mut values = Vec::new();
    for form in forms {
        let list = form["enum"].as_array()?;
        if !form["type"].is_string() || form["type"] != forms[0]["type"] {
            return None;
        }
        values.extend(list.iter().cloned());
    }
    Some(values)
}

/// The description of an alternative with its value. `None` if it lacks a value or a description.
fn describe_form(form: &Value) -> Option<String> {
    let value = form["enum"].get(0)?;
    let text = form["description"].as_str()?;
    Some(format!("{value}: {text}"))
}

/// Appends a line to the description of a schema.
fn add_description(fields: &mut Map<String, Value>, more: &str) {
    let text = match fields.get("description").and_then(Value::as_str) {
        Some(text) => format!("{text}\n{more}"),
        None => more.to_owned(),
    };
    fields.insert("description".to_owned(), json!(text));
}

/// Joins the lines of each paragraph of a description. The line breaks of a comment mean nothing to
/// a model.
fn join_lines(schema: &mut Schema) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        let paragraphs: Vec<String> =
            text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect();
        *text = paragraphs.join("\n\n");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::{Value, json};

    #[derive(Deserialize, schemars::JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Arguments {
        /// Where
        /// it is.
        ///
        /// Absolute.
        path: String,
        /// How many.
        #[serde(default)]
        limit: Option<u32>,
        /// How.
        mode: Option<Mode>,
        /// What.
        select: Option<Select>,
        /// Names.
        names: Option<BTreeMap<String, Option<f64>>>,
    }

    /// A way.
    #[derive(Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Mode {
        /// With care.
        Slow,
        Fast,
        /// At once.
        Now,
    }

    #[derive(Deserialize, schemars::JsonSchema)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only its schema is used")]
    enum Select {
        One(String),
        Many(Vec<u8>),
    }

    #[test]
    fn schema_has_doc_comments_and_refuses_unknown_fields() {
        let schema = super::for_type::<Arguments>().to_value();
        assert_eq!(schema["type"], "object");
        assert_eq!(
            schema["properties"]["path"],
            json!({ "description": "Where it is.\n\nAbsolute.", "type": "string" })
        );
        assert_eq!(schema["required"], json!(["path"]));
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema.get("title"), None);
        assert_eq!(schema.get("$schema"), None);
        assert_eq!(
            schema["properties"]["limit"]["type"],
            json!(["integer", "null"]),
            "an answer may have null there"
        );
        assert!(!schema.to_string().contains("format"), "{schema}");
    }

    #[test]
    fn arguments_have_one_type_each_and_no_null() {
        let schema = super::for_arguments::<Arguments>().to_value();
        assert_eq!(schema["required"], json!(["path"]));
        let number = |least: u8| json!({ "type": "integer", "minimum": least, "maximum": 255 });
        let expected: [(&str, Value); 5] = [
            ("path", json!({ "type": "string", "description": "Where it is.\n\nAbsolute." })),
            ("limit", json!({ "type": "integer", "minimum": 0, "description": "How many." })),
            (
                "mode",
                json!({ "type": "string", "enum": ["fast", "slow", "now"], "description": "How.\nA way.\n\"slow\": With care.\n\"now\": At once." }),
            ),
            (
                "select",
                json!({ "anyOf": [{ "type": "string", "description": "What." }, { "type": "array", "items": number(0) }] }),
            ),
            (
                "names",
                json!({ "type": "object", "additionalProperties": { "type": "number" }, "description": "Names." }),
            ),
        ];
        for (name, expected) in expected {
            assert_eq!(schema["properties"][name], expected, "{name}");
        }
    }
}
