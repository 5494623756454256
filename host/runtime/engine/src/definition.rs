//! Checks the tools that a plugin lists, and refuses a definition that is invalid or too large.

use std::collections::BTreeSet;

use serde_json::Value;
use toolhold_component::schema;
use toolhold_contract::text::{cut, neutral, neutral_json, neutral_line};
use toolhold_contract::{
    Access, Annotations, ChangeArguments, Definition, PreviewArguments, Role, Subject, SubjectKind,
    ToolArgument,
};

use crate::guest::bindings::exports::toolhold::tool::tools;
use crate::guest::convert::MAX_META;
use crate::limits::{MAX_DESCRIPTION, MAX_TOOL_NAME, MAX_TOOLS};
use crate::plugin::{LoadedPlugin, Tool};

/// Most subjects of one tool.
const MAX_SUBJECTS: usize = 32;
/// Most arguments with which the host does more than to pass them on.
const MAX_ARGUMENTS: usize = 64;
/// Most other names of a tool or an argument, and most bytes of one.
const MAX_ALIASES: usize = 16;
const MAX_NAME: usize = 128;
/// Most values with which a call only reads, of one argument.
const MAX_VALUES: usize = 64;

/// Checks and converts the definitions of a plugin's tools.
///
/// # Errors
///
/// What is wrong with one.
pub(crate) fn convert_tools(
    plugin: &LoadedPlugin,
    definitions: Vec<tools::Definition>,
) -> Result<Vec<Tool>, String> {
    if definitions.len() > MAX_TOOLS {
        return Err(format!("it offers {} tools; the limit is {MAX_TOOLS}", definitions.len()));
    }
    let mut tools: Vec<Tool> = Vec::new();
    for definition in definitions {
        let guest_name = definition.name.clone();
        let shown = neutral_line(cut(&guest_name, 80));
        let tool = convert_tool(plugin, definition)
            .map_err(|reason| format!("its tool `{shown}`: {reason}"))?;
        if tools.iter().any(|other| other.guest_name == tool.guest_name) {
            return Err(format!("it offers the tool `{shown}` twice"));
        }
        tools.push(tool);
    }
    Ok(tools)
}

fn convert_tool(plugin: &LoadedPlugin, definition: tools::Definition) -> Result<Tool, String> {
    let guest_name = definition.name;
    let well_formed = (1..=MAX_TOOL_NAME).contains(&guest_name.len())
        && guest_name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-');
    if !well_formed {
        return Err(format!("its name has to be 1 to {MAX_TOOL_NAME} characters of [a-z0-9_-]"));
    }
    if definition.description.len() > MAX_DESCRIPTION {
        return Err(format!(
            "its description is {} bytes; the limit is {MAX_DESCRIPTION}",
            definition.description.len()
        ));
    }
    if definition.subjects.len() > MAX_SUBJECTS {
        return Err(format!(
            "it has {} subjects; the limit is {MAX_SUBJECTS}",
            definition.subjects.len()
        ));
    }
    let input_schema = schema::parse(&definition.input_schema)
        .map_err(|reason| format!("its input schema {reason}"))?;
    if input_schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err(
            "its input schema isn't the schema of an object: it needs `\"type\": \"object\"`"
                .into(),
        );
    }
    let arguments = convert_arguments(definition.arguments, &input_schema)?;
    let output_schema = definition.output_schema.as_deref().map(schema::parse).transpose();
    let meta: Option<Value> = definition
        .meta
        .as_deref()
        .filter(|text| text.len() <= MAX_META)
        .and_then(|text| serde_json::from_str(text).ok())
        .map(neutral_json);
    let definition = Definition {
        name: guest_name,
        title: definition.title.map(|title| neutral_line(cut(&title, 128))),
        description: neutral(&definition.description).into_owned(),
        input_schema,
        output_schema: output_schema.map_err(|reason| format!("its output schema {reason}"))?,
        annotations: annotations(&definition.promises),
        subjects: definition.subjects.into_iter().map(convert_subject).collect::<Result<_, _>>()?,
        arguments,
        preview: definition.preview.and_then(convert_preview),
        text_for_models: definition.answers_in.as_deref() == Some("text"),
        fence: definition.fence.map(|tag| neutral_line(cut(&tag, 38))),
        aliases: names(&definition.aliases),
        foreign: false,
        unlisted: false,
        meta,
    };
    Ok(plugin.named(definition))
}

fn convert_subject(subject: tools::Subject) -> Result<Subject, String> {
    if !subject.pointer.starts_with('/') || subject.pointer.len() > 256 {
        return Err(
            "a subject's pointer has to begin with `/` (RFC 6901) and have at most 256 bytes"
                .into(),
        );
    }
    let kind = match subject.kind.as_str() {
        "path" => SubjectKind::Path,
        "name" => SubjectKind::Name,
        "url" => SubjectKind::Url,
        "command" => SubjectKind::Command,
        _ => SubjectKind::Text,
    };
    // Every access except `read` counts as a write.
    let access = if subject.access == "read" { Access::Read } else { Access::Write };
    Ok(Subject { pointer: subject.pointer, kind, access })
}

/// How a tool behaves by what it promises. Without a promise, the strictest.
fn annotations(promises: &[String]) -> Annotations {
    let promises = |name: &str| promises.iter().any(|promise| promise == name);
    Annotations {
        read_only: promises("read-only"),
        destructive: !promises("additive"),
        idempotent: promises("idempotent"),
        open_world: !promises("closed-world"),
        cacheable: promises("cacheable"),
    }
}

/// Converts what the host does with arguments. What it would do with something that isn't an
/// argument would never happen, so that is the author's mistake.
fn convert_arguments(
    written: Vec<tools::Argument>,
    schema: &Value,
) -> Result<Vec<ToolArgument>, String> {
    if written.len() > MAX_ARGUMENTS {
        return Err(format!(
            "it describes {} arguments; the limit is {MAX_ARGUMENTS}",
            written.len()
        ));
    }
    let mut arguments: Vec<ToolArgument> = Vec::with_capacity(written.len());
    for argument in written {
        let shown = neutral_line(cut(&argument.name, 80));
        let argument = convert_argument(argument, schema)
            .map_err(|reason| format!("its argument `{shown}`: {reason}"))?;
        if arguments.iter().any(|other| other.name == argument.name) {
            return Err(format!("it describes the argument `{shown}` twice"));
        }
        arguments.push(argument);
    }
    Ok(arguments)
}

fn convert_argument(written: tools::Argument, schema: &Value) -> Result<ToolArgument, String> {
    let is_argument = |name: &str| {
        schema.get("properties").is_some_and(|properties| properties.get(name).is_some())
    };
    let tools::Argument { name, aliases, roles, base, reads_with, meta: _ } = written;
    if !is_argument(&name) {
        return Err("it isn't a property of the input schema".to_owned());
    }
    if aliases.len() > MAX_ALIASES {
        return Err(format!("it has {} other names; the limit is {MAX_ALIASES}", aliases.len()));
    }
    if reads_with.len() > MAX_VALUES {
        return Err(format!(
            "it has {} values with which a call only reads; the limit is {MAX_VALUES}",
            reads_with.len()
        ));
    }
    if let Some(base) = base.as_deref().filter(|base| !is_argument(base)) {
        let base = neutral_line(cut(base, 80));
        return Err(format!("its base `{base}` isn't a property of the input schema"));
    }
    let roles: BTreeSet<Role> = roles.iter().filter_map(|role| Role::from_name(role)).collect();
    if roles.contains(&Role::Glob) && base.is_none() {
        return Err("it has the role `glob` and no base".to_owned());
    }
    let value = |text: &String| {
        serde_json::from_str(text)
            .map_err(|error| format!("a value with which a call only reads isn't JSON: {error}"))
    };
    let reads_with = reads_with.iter().map(value).collect::<Result<_, _>>()?;
    Ok(ToolArgument { name, aliases: names(&aliases), roles, base, reads_with })
}

/// The names of arguments that say what a call changes. `None` if they don't say it.
fn convert_preview(written: tools::Preview) -> Option<PreviewArguments> {
    let tools::Preview { file, content, old, new, all } = written;
    let change = match (content, old, new) {
        (Some(content), None, None) => ChangeArguments::Whole(content),
        (None, Some(old), Some(new)) => ChangeArguments::Part { old, new, all },
        _ => return None,
    };
    Some(PreviewArguments { file, change })
}

fn names(written: &[String]) -> Vec<String> {
    written.iter().take(MAX_ALIASES).map(|name| neutral_line(cut(name, MAX_NAME))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tool_without_promises_is_the_strictest() {
        let promise = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            annotations(&names)
        };
        assert_eq!(promise(&[]), Annotations::default());
        assert_eq!(promise(&["harmless", "destructive", "Additive"]), Annotations::default());
        let all = promise(&["read-only", "additive", "idempotent", "closed-world", "cacheable"]);
        assert_eq!(
            all,
            Annotations {
                read_only: true,
                destructive: false,
                idempotent: true,
                open_world: false,
                cacheable: true
            }
        );
    }

    fn argument(name: &str) -> tools::Argument {
        tools::Argument {
            name: name.to_owned(),
            aliases: Vec::new(),
            roles: Vec::new(),
            base: None,
            reads_with: Vec::new(),
            meta: None,
        }
    }

    #[test]
    fn argument_has_to_be_one_and_within_limits() {
        let schema = json!({ "properties": { "a": {}, "b": {} } });
        let refused = |written: tools::Argument, reason: &str| {
            let error = convert_arguments(vec![written], &schema).expect_err("it is refused");
            assert!(error.contains(reason), "{error}");
        };
        refused(argument("c\u{1b}"), "isn't a property");
        let many = vec!["x".to_owned(); MAX_ALIASES + 1];
        refused(tools::Argument { aliases: many, ..argument("a") }, "17 other names");
        let many = vec!["1".to_owned(); MAX_VALUES + 1];
        refused(tools::Argument { reads_with: many, ..argument("a") }, "65 values");
        let glob = || tools::Argument { roles: vec!["glob".to_owned()], ..argument("a") };
        refused(glob(), "no base");
        refused(tools::Argument { base: Some("c".to_owned()), ..glob() }, "base `c` isn't");
        let value = vec!["{".to_owned()];
        refused(tools::Argument { reads_with: value, ..argument("a") }, "isn't JSON");
        let twice = convert_arguments(vec![argument("a"), argument("a")], &schema);
        assert!(twice.expect_err("it is refused").contains("twice"));
        let many = (0..=MAX_ARGUMENTS).map(|_| argument("a")).collect();
        assert!(convert_arguments(many, &schema).expect_err("it is refused").contains("limit"));
    }

    #[test]
    fn unknown_roles_are_ignored() {
        let schema = json!({ "properties": { "a": {}, "b": {} } });
        let roles = ["timeout", "later", "glob"].map(str::to_owned).to_vec();
        let written = tools::Argument { roles, base: Some("b".to_owned()), ..argument("a") };
        let converted = convert_arguments(vec![written], &schema).expect("it is right");
        assert_eq!(converted[0].roles, BTreeSet::from([Role::Timeout, Role::Glob]));
    }
}
