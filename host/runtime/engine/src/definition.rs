//! Checks the definitions of a plugin's tools.

use std::collections::BTreeSet;

use serde_json::Value;
use toolhold_component::schema::{self, SchemaError};
use toolhold_contract::text::{cut, neutral, neutral_json, neutral_line};
use toolhold_contract::{
    Access, Annotations, ChangeArguments, Definition, PreviewArguments, Role, Subject, SubjectKind,
    ToolArgument,
};

use crate::guest::bindings::exports::toolhold::tool::tools;
use crate::guest::convert::MAX_META;
use crate::limits::{MAX_DESCRIPTION, MAX_NAME_IN_ERROR, MAX_TOOL_NAME, MAX_TOOLS};
use crate::plugin::{LoadedPlugin, Tool};

/// Most subjects of a tool. A tool with more is refused.
const MAX_SUBJECTS: usize = 32;
/// Most bytes of a subject's pointer. A tool with a longer pointer is refused.
const MAX_POINTER: usize = 256;
/// Most described arguments of a tool. A tool with more is refused.
const MAX_ARGUMENTS: usize = 64;
/// Most aliases of a tool or an argument, and most bytes of an alias. Further aliases of a tool are
/// dropped, and longer aliases are cut.
const MAX_ALIASES: usize = 16;
const MAX_NAME: usize = 128;
/// Most values of an argument that make a call read-only. A tool with more is refused.
const MAX_VALUES: usize = 64;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolListError {
    #[error("the plugin offers {0} tools; the limit is {MAX_TOOLS}")]
    TooMany(usize),
    #[error("the plugin offers the tool `{0}` twice")]
    Twice(String),
    #[error("the tool `{name}`: {error}")]
    Tool { name: String, error: ToolError },
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    #[error("the name has to be 1 to {MAX_TOOL_NAME} characters of [a-z0-9_-]")]
    Name,
    #[error("the description is {0} bytes; the limit is {MAX_DESCRIPTION}")]
    LongDescription(usize),
    #[error("the tool has {0} subjects; the limit is {MAX_SUBJECTS}")]
    ManySubjects(usize),
    #[error("a subject's pointer has to start with `/` (RFC 6901) and have at most 256 bytes")]
    Pointer,
    #[error("the {what} schema {error}")]
    Schema { what: &'static str, error: SchemaError },
    #[error("the input schema isn't the schema of an object: `\"type\": \"object\"` is missing")]
    NotAnObject,
    #[error("the definition describes {0} arguments; the limit is {MAX_ARGUMENTS}")]
    ManyArguments(usize),
    #[error("the definition describes the argument `{0}` twice")]
    ArgumentTwice(String),
    #[error("the argument `{name}`: {error}")]
    Argument { name: String, error: ArgumentError },
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ArgumentError {
    #[error("the argument isn't a property of the input schema")]
    NoProperty,
    #[error("the argument has {0} aliases; the limit is {MAX_ALIASES}")]
    ManyAliases(usize),
    #[error("the argument has {0} values for read-only calls; the limit is {MAX_VALUES}")]
    ManyValues(usize),
    #[error("the base `{0}` isn't a property of the input schema")]
    Base(String),
    #[error("the argument has the role `glob`, but no base")]
    GlobWithoutBase,
    #[error("a value for read-only calls isn't JSON: {0}")]
    Value(#[from] serde_json::Error),
}

pub(crate) fn convert_tools(
    plugin: &LoadedPlugin,
    definitions: Vec<tools::Definition>,
) -> Result<Vec<Tool>, ToolListError> {
    if definitions.len() > MAX_TOOLS {
        return Err(ToolListError::TooMany(definitions.len()));
    }
    let mut tools: Vec<Tool> = Vec::new();
    for definition in definitions {
        let name = neutral_line(cut(&definition.name, MAX_NAME_IN_ERROR));
        let tool = match convert_tool(plugin, definition) {
            Ok(tool) => tool,
            Err(error) => return Err(ToolListError::Tool { name, error }),
        };
        if tools.iter().any(|other| other.guest_name == tool.guest_name) {
            return Err(ToolListError::Twice(name));
        }
        tools.push(tool);
    }
    Ok(tools)
}

fn convert_tool(plugin: &LoadedPlugin, definition: tools::Definition) -> Result<Tool, ToolError> {
    if !is_well_formed_name(&definition.name, MAX_TOOL_NAME) {
        return Err(ToolError::Name);
    }
    if definition.description.len() > MAX_DESCRIPTION {
        return Err(ToolError::LongDescription(definition.description.len()));
    }
    if definition.subjects.len() > MAX_SUBJECTS {
        return Err(ToolError::ManySubjects(definition.subjects.len()));
    }
    let input_schema = schema::parse(&definition.input_schema)
        .map_err(|error| ToolError::Schema { what: "input", error })?;
    if input_schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err(ToolError::NotAnObject);
    }
    let arguments = convert_arguments(definition.arguments, &input_schema)?;
    let output_schema = definition
        .output_schema
        .as_deref()
        .map(schema::parse)
        .transpose()
        .map_err(|error| ToolError::Schema { what: "output", error })?;
    let subjects =
        definition.subjects.into_iter().map(convert_subject).collect::<Result<_, _>>()?;

    let converted = Definition {
        name: definition.name,
        title: definition.title.map(|title| neutral_line(cut(&title, 128))),
        description: neutral(&definition.description).into_owned(),
        input_schema,
        output_schema,
        annotations: annotations(&definition.promises),
        // The contract has no promise for this.
        says_destructive: false,
        subjects,
        arguments,
        preview: definition.preview.and_then(convert_preview),
        text_for_models: definition.answers_in.as_deref() == Some("text"),
        fence: definition.fence.map(|tag| neutral_line(cut(&tag, 38))),
        aliases: convert_aliases(&definition.aliases),
        foreign: false,
        unlisted: false,
        meta: definition.meta.as_deref().and_then(convert_meta),
    };
    Ok(plugin.make_tool(converted))
}

pub(crate) fn is_well_formed_name(name: &str, max: usize) -> bool {
    (1..=max).contains(&name.len())
        && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

/// Parses metadata. Metadata that is too long or isn't JSON is dropped.
fn convert_meta(text: &str) -> Option<Value> {
    if text.len() > MAX_META {
        return None;
    }
    serde_json::from_str(text).ok().map(neutral_json)
}

fn convert_subject(subject: tools::Subject) -> Result<Subject, ToolError> {
    if !subject.pointer.starts_with('/') || subject.pointer.len() > MAX_POINTER {
        return Err(ToolError::Pointer);
    }
    let kind = match subject.kind.as_str() {
        "path" => SubjectKind::Path,
        "name" => SubjectKind::Name,
        "url" => SubjectKind::Url,
        "command" => SubjectKind::Command,
        _ => SubjectKind::Text,
    };
    // Unknown kinds of access are treated as writes.
    let access = if subject.access == "read" { Access::Read } else { Access::Write };
    Ok(Subject { pointer: subject.pointer, kind, access })
}

/// Converts the promises of a tool's author. `additive` means that the tool isn't destructive, and
/// `closed-world` is the opposite of `open_world`.
fn annotations(promises: &[String]) -> Annotations {
    Annotations {
        read_only: has_promise(promises, "read-only"),
        destructive: !has_promise(promises, "additive"),
        idempotent: has_promise(promises, "idempotent"),
        open_world: !has_promise(promises, "closed-world"),
        cacheable: has_promise(promises, "cacheable"),
    }
}

fn has_promise(promises: &[String], name: &str) -> bool {
    promises.iter().any(|promise| promise == name)
}

/// Converts the descriptions of arguments. Two descriptions must not have the same name.
fn convert_arguments(
    descriptions: Vec<tools::Argument>,
    schema: &Value,
) -> Result<Vec<ToolArgument>, ToolError> {
    if descriptions.len() > MAX_ARGUMENTS {
        return Err(ToolError::ManyArguments(descriptions.len()));
    }
    let mut arguments: Vec<ToolArgument> = Vec::with_capacity(descriptions.len());
    for argument in descriptions {
        let name = neutral_line(cut(&argument.name, MAX_NAME_IN_ERROR));
        let converted = match convert_argument(argument, schema) {
            Ok(converted) => converted,
            Err(error) => return Err(ToolError::Argument { name, error }),
        };
        if arguments.iter().any(|other| other.name == converted.name) {
            return Err(ToolError::ArgumentTwice(name));
        }
        arguments.push(converted);
    }
    Ok(arguments)
}

/// Converts the description of an argument. `schema` must have the argument, because a rule of the
/// user would never apply to an argument that no call has.
fn convert_argument(
    description: tools::Argument,
    schema: &Value,
) -> Result<ToolArgument, ArgumentError> {
    let tools::Argument { name, aliases, roles, base, reads_with, meta: _ } = description;
    if !is_argument(schema, &name) {
        return Err(ArgumentError::NoProperty);
    }
    if aliases.len() > MAX_ALIASES {
        return Err(ArgumentError::ManyAliases(aliases.len()));
    }
    if reads_with.len() > MAX_VALUES {
        return Err(ArgumentError::ManyValues(reads_with.len()));
    }
    if let Some(base) = &base
        && !is_argument(schema, base)
    {
        return Err(ArgumentError::Base(neutral_line(cut(base, MAX_NAME_IN_ERROR))));
    }

    // Unknown roles are dropped.
    let roles: BTreeSet<Role> = roles.iter().filter_map(|role| Role::from_name(role)).collect();
    if roles.contains(&Role::Glob) && base.is_none() {
        return Err(ArgumentError::GlobWithoutBase);
    }
    let mut read_only_values: Vec<Value> = Vec::with_capacity(reads_with.len());
    for json in &reads_with {
        read_only_values.push(serde_json::from_str(json)?);
    }
    Ok(ToolArgument { name, aliases: convert_aliases(&aliases), roles, base, read_only_values })
}

fn is_argument(schema: &Value, name: &str) -> bool {
    schema.get("properties").is_some_and(|properties| properties.get(name).is_some())
}

/// Converts the names of the arguments that describe exactly one change of a file.
fn convert_preview(preview: tools::Preview) -> Option<PreviewArguments> {
    let tools::Preview { file, content, old, new, all } = preview;
    let change = match (content, old, new) {
        (Some(content), None, None) => ChangeArguments::Whole(content),
        (None, Some(old), Some(new)) => ChangeArguments::Part { old, new, all },
        // An argument is missing, or the arguments describe both kinds of change.
        _ => return None,
    };
    Some(PreviewArguments { file, change })
}

fn convert_aliases(written: &[String]) -> Vec<String> {
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
            assert!(error.to_string().contains(reason), "{error}");
        };
        refused(argument("c\u{1b}"), "isn't a property");
        let many = vec!["x".to_owned(); MAX_ALIASES + 1];
        refused(tools::Argument { aliases: many, ..argument("a") }, "17 aliases");
        let many = vec!["1".to_owned(); MAX_VALUES + 1];
        refused(tools::Argument { reads_with: many, ..argument("a") }, "65 values");
        let glob = || tools::Argument { roles: vec!["glob".to_owned()], ..argument("a") };
        refused(glob(), "no base");
        refused(tools::Argument { base: Some("c".to_owned()), ..glob() }, "base `c` isn't");
        let value = vec!["{".to_owned()];
        refused(tools::Argument { reads_with: value, ..argument("a") }, "isn't JSON");
        let twice = convert_arguments(vec![argument("a"), argument("a")], &schema);
        assert!(twice.expect_err("it is refused").to_string().contains("twice"));
        let many = convert_arguments(vec![argument("a"); MAX_ARGUMENTS + 1], &schema);
        assert!(many.expect_err("it is refused").to_string().contains("limit"));
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
