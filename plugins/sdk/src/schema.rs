//! JSON Schemas from types.

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// The JSON Schema (2020-12) of `T`, whole: without references, and without the name of the type, which tells a model nothing.
pub fn of<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("title");
    join_lines(&mut schema);
    schema
}

/// Makes one line of each paragraph of a description: where a comment was wrapped means nothing to a model.
fn join_lines(schema: &mut Schema) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        let paragraphs: Vec<String> = text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect();
        *text = paragraphs.join("\n\n");
    }
    transform_subschemas(&mut join_lines, schema);
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Deserialize, schemars::JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Arguments {
        /// Where
        /// it is.
        ///
        /// Absolute.
        path: String,
        /// How many.
        #[serde(default)]
        limit: Option<u32>,
    }

    #[test]
    fn doc_comments_describe_and_unknown_fields_are_refused() {
        let schema = super::of::<Arguments>().to_value();
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["properties"]["path"], json!({ "description": "Where it is.\n\nAbsolute.", "type": "string" }));
        assert_eq!(schema["required"], json!(["path"]));
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema.get("title"), None);
        assert_eq!(schema.get("$schema"), None);
    }
}
