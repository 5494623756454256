//! The definitions of 0.1. What was agreed on in keys of `meta`, and by names of arguments, becomes
//! the fields of today, so that nothing behind the adapter knows those keys and names.

use serde_json::{Map, Value};

use super::bindings::exports::berth::tool::tools as old;
use crate::guest::bindings::exports::berth::tool::tools as now;
use crate::guest::convert::MAX_META;

/// Most other names that count: of arguments with such names, and of each of them.
const MAX_ALIASES: usize = 16;

/// Most bytes of a schema, which is refused later if it is longer.
const MAX_SCHEMA: usize = 64 * 1024;

/// The prefix of the keys that became fields.
const PREFIX: &str = "berth:";

/// Converts a definition.
pub(super) fn convert(definition: old::Definition) -> now::Definition {
    let meta = object(definition.meta.as_deref().filter(|text| text.len() <= MAX_META));
    let schema = object(Some(&*definition.input_schema).filter(|text| text.len() <= MAX_SCHEMA));
    let subject = |subject: old::Subject| now::Subject {
        pointer: subject.pointer,
        kind: subject.kind,
        access: subject.access,
    };
    let (own, others): (Map<_, _>, Map<_, _>) =
        meta.clone().into_iter().partition(|(key, _)| key.starts_with(PREFIX));
    now::Definition {
        name: definition.name,
        aliases: texts(own.get("berth:aliases")),
        title: definition.title,
        description: definition.description,
        input_schema: definition.input_schema,
        output_schema: definition.output_schema,
        promises: promises(definition.annotations),
        subjects: definition.subjects.into_iter().map(subject).collect(),
        arguments: arguments(&own, &schema),
        preview: own.get("berth:preview").and_then(preview),
        answers_in: own.get("berth:answers-in").and_then(Value::as_str).map(str::to_owned),
        fence: definition.fence,
        meta: (!others.is_empty()).then(|| Value::Object(others).to_string()),
    }
}

/// Whether a filter says in its `meta` that it gets only outputs that no other filter matches.
pub(super) fn is_fallback(meta: Option<&str>) -> bool {
    object(meta).get("berth:fallback") == Some(&Value::Bool(true))
}

fn promises(annotations: old::Annotations) -> Vec<String> {
    let old::Annotations { read_only, destructive, idempotent, open_world, cacheable } =
        annotations;
    let all = [
        (read_only, "read-only"),
        (!destructive, "additive"),
        (idempotent, "idempotent"),
        (!open_world, "closed-world"),
        (cacheable, "cacheable"),
    ];
    all.into_iter().filter(|(holds, _)| *holds).map(|(_, name)| name.to_owned()).collect()
}

/// The arguments with a meaning, in the order of the schema.
fn arguments(meta: &Map<String, Value>, schema: &Map<String, Value>) -> Vec<now::Argument> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Vec::new();
    };
    let key = |key: &str| meta.get(key);
    let aliases: Vec<(&str, Vec<String>)> = key("berth:argument-aliases")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .take(MAX_ALIASES)
        .map(|(name, names)| (name.as_str(), texts(Some(names))))
        .collect();
    let bare = key("berth:bare-argument").and_then(Value::as_str);
    let glob = key("berth:pattern-base").and_then(Value::as_object).and_then(|pair| {
        let (pattern, base) = pair.iter().next()?;
        let base = base.as_str().filter(|base| properties.contains_key(*base))?;
        Some((pattern.as_str(), base))
    });
    let reading = key("berth:reads-when").and_then(Value::as_object).and_then(reads_when);
    let attaches = mentions_attachments(&Value::Object(schema.clone()));
    let mut found = Vec::new();
    for (name, property) in properties {
        let mut roles: Vec<&str> = Vec::new();
        match name.as_str() {
            "timeout" => roles.push("timeout"),
            "network" => roles.push("network"),
            _ => {}
        }
        if attaches && (mentions_attachments(property) || property.get("$ref").is_some()) {
            roles.push("attachment");
        }
        if bare == Some(name) {
            roles.push("text");
        }
        let base = glob.filter(|(pattern, _)| pattern == name).map(|(_, base)| base.to_owned());
        if base.is_some() {
            roles.push("glob");
        }
        let names = aliases.iter().find(|(argument, _)| argument == name);
        let values = reading.iter().flatten().find(|(argument, _)| argument == name);
        let argument = now::Argument {
            name: name.clone(),
            aliases: names.map(|(_, names)| names.clone()).unwrap_or_default(),
            roles: roles.into_iter().map(str::to_owned).collect(),
            base,
            reads_with: values.map(|(_, values)| values.clone()).unwrap_or_default(),
            meta: None,
        };
        if !(argument.aliases.is_empty()
            && argument.roles.is_empty()
            && argument.reads_with.is_empty())
        {
            found.push(argument);
        }
    }
    // A condition on something that isn't an argument never held, so no call only read.
    let conditions = found.iter().filter(|argument| !argument.reads_with.is_empty()).count();
    if reading.is_none_or(|reading| reading.len() != conditions) {
        found.iter_mut().for_each(|argument| argument.reads_with.clear());
    }
    found
}

/// The values of arguments with which a call only reads, as JSON. `None` if there are none, or if
/// one isn't a list for an argument: fewer conditions would be weaker ones.
fn reads_when(when: &Map<String, Value>) -> Option<Vec<(String, Vec<String>)>> {
    let condition = |(pointer, values): (&String, &Value)| {
        let name = pointer.strip_prefix('/').filter(|name| !name.contains(['/', '~']))?;
        let values: Vec<String> = values.as_array()?.iter().map(Value::to_string).collect();
        (!values.is_empty()).then(|| (name.to_owned(), values))
    };
    when.iter().map(condition).collect()
}

fn mentions_attachments(schema: &Value) -> bool {
    schema.to_string().contains("\"$attachment\"")
}

fn preview(written: &Value) -> Option<now::Preview> {
    let name = |key: &str| written.get(key).and_then(Value::as_str).map(str::to_owned);
    Some(now::Preview {
        file: name("file")?,
        content: name("content"),
        old: name("old"),
        new: name("new"),
        all: name("all"),
    })
}

fn texts(list: Option<&Value>) -> Vec<String> {
    let all = list.and_then(Value::as_array).into_iter().flatten().take(MAX_ALIASES);
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn object(text: Option<&str>) -> Map<String, Value> {
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn converted(meta: &Value, properties: &Value) -> now::Definition {
        convert(old::Definition {
            name: "old".to_owned(),
            title: None,
            description: String::new(),
            input_schema: json!({ "type": "object", "properties": properties }).to_string(),
            output_schema: None,
            annotations: old::Annotations {
                read_only: false,
                destructive: true,
                idempotent: false,
                open_world: true,
                cacheable: false,
            },
            subjects: Vec::new(),
            fence: None,
            meta: Some(meta.to_string()),
        })
    }

    fn shown(argument: &now::Argument) -> (&str, Vec<&str>, Vec<&str>) {
        let roles = argument.roles.iter().map(String::as_str).collect();
        (&argument.name, roles, argument.aliases.iter().map(String::as_str).collect())
    }

    #[test]
    fn names_with_a_meaning_and_keys_of_meta_become_fields() {
        let meta = json!({
            "berth:aliases": ["read", 5],
            "berth:argument-aliases": { "command": ["cmd"], "missing": ["x"] },
            "berth:bare-argument": "command",
            "berth:pattern-base": { "pattern": "path" },
            "berth:answers-in": "text",
            "berth:preview": { "file": "path", "content": "command" },
            "example.com/own": 1,
        });
        let attachment = json!({ "properties": { "$attachment": {} } });
        let properties = json!({
            "command": {}, "timeout": {}, "network": {}, "pattern": {}, "path": {}, "file": attachment,
        });
        let definition = converted(&meta, &properties);
        let arguments: Vec<_> = definition.arguments.iter().map(shown).collect();
        assert_eq!(
            arguments,
            [
                ("command", vec!["text"], vec!["cmd"]),
                ("timeout", vec!["timeout"], vec![]),
                ("network", vec!["network"], vec![]),
                ("pattern", vec!["glob"], vec![]),
                ("file", vec!["attachment"], vec![]),
            ]
        );
        assert_eq!(definition.arguments[3].base.as_deref(), Some("path"));
        assert_eq!(definition.aliases, ["read"]);
        assert_eq!(definition.answers_in.as_deref(), Some("text"));
        let preview = definition.preview.expect("it has one");
        assert_eq!((&*preview.file, preview.content.as_deref()), ("path", Some("command")));
        assert_eq!(definition.meta.as_deref(), Some(r#"{"example.com/own":1}"#));
        assert_eq!(definition.promises, Vec::<String>::new());
    }

    #[test]
    fn conditions_for_reading_count_together_or_not_at_all() {
        let properties = json!({ "method": {}, "body": {} });
        let conditions = |when: Value| {
            let definition = converted(&json!({ "berth:reads-when": when }), &properties);
            definition.arguments.iter().map(|argument| argument.reads_with.len()).sum::<usize>()
        };
        assert_eq!(conditions(json!({ "/method": ["GET", "HEAD"] })), 2);
        assert_eq!(conditions(json!({ "/method": ["GET"], "/body": [""] })), 2);
        for one_is_wrong in [
            json!({ "/method": ["GET"], "/nothing": ["x"] }),
            json!({ "/method": ["GET"], "/body": [] }),
            json!({ "/method": ["GET"], "/body/deep": ["x"] }),
            json!({ "/method": "GET" }),
        ] {
            assert_eq!(conditions(one_is_wrong.clone()), 0, "{one_is_wrong}");
        }
    }

    #[test]
    fn filter_is_a_fallback_only_by_true() {
        for (meta, fallback) in [
            (None, false),
            (Some("{"), false),
            (Some(r#"{"berth:fallback":true}"#), true),
            (Some(r#"{"berth:fallback":"yes"}"#), false),
        ] {
            assert_eq!(is_fallback(meta), fallback, "{meta:?}");
        }
    }
}
