//! Describes the configuration from its schema, for the template and the documentation.

use serde_json::Value;

/// A table of the configuration, with its keys.
#[derive(Clone, Debug, PartialEq)]
pub struct TableDescription {
    /// The table's dotted key. `NAME` is a placeholder for a name that the operator chooses.
    pub path: String,
    /// The purpose of the table.
    pub description: String,
    /// The keys of the table. Tables inside the table have their own descriptions.
    pub keys: Vec<KeyDescription>,
}

/// A value of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyDescription {
    /// The key's name in the table. `NAME` is a placeholder for a name that the operator chooses.
    pub name: String,
    /// The accepted values, as a phrase.
    pub takes: String,
    /// The key's default. `None` if the default comes from another key or the environment.
    pub default: Option<Value>,
    /// An example value, for a key without a default.
    pub example: Option<Value>,
    /// The default entries or an example, for a key whose name the operator chooses.
    pub entries: Vec<(String, Value)>,
    /// The meaning of the key. Empty if the table's description explains the key.
    pub description: String,
}

/// Describes every table and key in the order of definition. Deprecated keys are left out.
pub fn describe() -> Vec<TableDescription> {
    let schema = super::keys::schema();
    let mut tables = Vec::new();
    for (name, property) in properties(&schema) {
        describe_table(&schema, property, name, &mut tables);
    }
    tables
}

/// Describes a table, and then the tables inside it. `root` is the schema of the whole
/// configuration.
fn describe_table(root: &Value, schema: &Value, path: &str, tables: &mut Vec<TableDescription>) {
    let target = resolve(root, schema);
    let chosen = &target["additionalProperties"];
    if chosen.is_object() && resolve(root, chosen)["type"] != "object" {
        // The operator chooses the names of the values, so the table's description is about each
        // value.
        let description = text(&schema["description"]).unwrap_or_default();
        let key = describe_chosen_key(root, schema, chosen);
        tables.push(TableDescription { path: path.to_owned(), description, keys: vec![key] });
        return;
    }
    if chosen.is_object() {
        // The operator chooses the names of the inner tables, which all have the same keys. So one
        // inner table is described under the name `NAME`.
        let mut inner = chosen.clone();
        inner["description"] = schema["description"].clone();
        if let Some(example) = schema["examples"][0].as_object()
            && let Some(first) = example.values().next()
        {
            inner["examples"] = serde_json::json!([first]);
        }
        return describe_table(root, &inner, &format!("{path}.NAME"), tables);
    }

    let description =
        text(&schema["description"]).or_else(|| text(&target["description"])).unwrap_or_default();
    let (inner_tables, values): (Vec<_>, Vec<_>) =
        properties(target).partition(|(_, property)| resolve(root, property)["type"] == "object");
    let keys = values.into_iter().map(|(name, property)| KeyDescription {
        name: name.to_owned(),
        takes: describe_type(root, property),
        default: property.get("default").cloned(),
        example: property["examples"].get(0).cloned(),
        entries: Vec::new(),
        description: text(&property["description"]).unwrap_or_default(),
    });
    tables.push(TableDescription { path: path.to_owned(), description, keys: keys.collect() });
    for (name, property) in inner_tables {
        describe_table(root, property, &format!("{path}.{name}"), tables);
    }
}

/// Describes a key whose name the operator chooses. `table` is the schema of the key's table.
fn describe_chosen_key(root: &Value, table: &Value, schema: &Value) -> KeyDescription {
    // An empty default shows no entry, so the first example is used then.
    let entries = match table["default"].as_object() {
        Some(default) if !default.is_empty() => default.clone(),
        _ => table["examples"][0].as_object().cloned().unwrap_or_default(),
    };
    KeyDescription {
        name: "NAME".to_owned(),
        takes: describe_type(root, schema),
        default: None,
        example: None,
        entries: entries.into_iter().collect(),
        description: String::new(),
    }
}

/// Returns the properties of a schema. Deprecated properties are left out.
fn properties(schema: &Value) -> impl Iterator<Item = (&str, &Value)> {
    schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, property)| property["deprecated"] != true)
        .map(|(name, property)| (name.as_str(), property))
}

fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let Some(reference) = schema["$ref"].as_str() else { return schema };
    root.pointer(reference.trim_start_matches('#')).unwrap_or(schema)
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// Describes the values that a schema allows, for people.
fn describe_type(root: &Value, schema: &Value) -> String {
    let schema = resolve(root, schema);
    for key in ["anyOf", "oneOf"] {
        if let Some(forms) = schema[key].as_array() {
            // An optional key may be null in the schema. TOML has no null, so this form is left
            // out.
            let forms = forms.iter().filter(|form| form["type"] != "null");
            return forms.map(|form| describe_type(root, form)).collect::<Vec<_>>().join(" or ");
        }
    }
    if let Some(only) = schema.get("const") {
        return format!("`{only}`");
    }
    // An optional value has several types: first its own type, then `null`.
    let type_name = match &schema["type"] {
        Value::Array(names) => names.first().and_then(Value::as_str),
        name => name.as_str(),
    };
    match type_name {
        Some("integer") => format!("a whole number{}", bounds(schema)),
        Some("number") => format!("a number{}", bounds(schema)),
        Some("string") => "a string".to_owned(),
        Some("boolean") => "`true` or `false`".to_owned(),
        Some("array") => format!("a list, each {}", describe_type(root, &schema["items"])),
        Some("object") => {
            let fields: Vec<String> = properties(schema)
                .map(|(name, field)| format!("`{name}` ({})", describe_type(root, field)))
                .collect();
            format!("a table of {}", fields.join(" and "))
        }
        other => format!("a value of the type {}", other.unwrap_or("any")),
    }
}

/// Describes the range of a number, for people.
fn bounds(schema: &Value) -> String {
    match [&schema["minimum"], &schema["maximum"]] {
        [Value::Null, Value::Null] => String::new(),
        [least, Value::Null] => format!(" of at least {least}"),
        [Value::Null, most] => format!(" of at most {most}"),
        [least, most] => format!(" from {least} to {most}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::known;
    use super::*;

    #[test]
    fn every_key_is_described_in_words() {
        let tables = describe();
        // `[tools.authorization]` is deprecated.
        for key in known()
            .iter()
            .filter(|key| !key.table && !key.in_list && key.path[1] != "authorization")
        {
            let (name, table) = key.path.split_last().expect("a key has a name");
            let table = table.join(".").replace('*', "NAME");
            let described = tables.iter().find(|known| known.path == table).and_then(|table| {
                table.keys.iter().find(|key| key.name == name.replace('*', "NAME"))
            });
            let described = described.unwrap_or_else(|| panic!("{key:?} is not described"));
            let has_words = !described.description.is_empty() || described.name == "NAME";
            assert!(has_words && !described.takes.contains("of the type"), "{described:?}");
        }
    }
}
