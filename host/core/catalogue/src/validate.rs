//! Checks arguments against a tool's schema, before the tool runs.

use std::sync::Arc;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{ValidationError, Validator};
use serde_json::{Map, Value};
use toolhold_contract::text::{cut, neutral_line};
use toolhold_contract::{Category, Definition, Failure};
use toolhold_engine::object_forms;

use crate::catalogue::Tool;
use crate::coerce::coerce;

/// Maximum number of problems in one failure. Further problems are omitted.
const MAX_PROBLEMS: usize = 5;

/// Maximum length of one problem in bytes. A longer problem is cut.
const MAX_PROBLEM: usize = 300;

/// Maximum number of arguments that a failure lists.
const MAX_LISTED: usize = 40;

/// Minimum similarity of a suggested argument name.
const SIMILAR: f64 = 0.75;

/// Converts the arguments to the form that rules check: names a bare text, removes a model's
/// thoughts, replaces aliases with the real names, and splits absolute globs.
///
/// # Errors
///
/// Returns an error if an argument has two names in one call, because rules could check only one of
/// the two values.
pub fn normalize(definition: &Definition, arguments: &mut Arc<Value>) -> Result<(), Failure> {
    // A bare text in place of JSON becomes one argument of the tool.
    if arguments.is_string()
        && let Some(bare) = definition.bare_argument()
    {
        let value = Arc::make_mut(arguments);
        let text = value.take();
        *value = Value::Object(Map::from_iter([(bare.to_owned(), text)]));
    }
    drop_thoughts(arguments);
    for (alias, argument) in definition.argument_aliases() {
        if arguments.get(alias).is_none() {
            continue;
        }
        let Value::Object(fields) = Arc::make_mut(arguments) else { continue };
        if fields.contains_key(argument) {
            let message = format!(
                "`{argument}` is given more than once, the second time as `{}`",
                neutral_line(cut(alias, MAX_PROBLEM))
            );
            return Err(Failure::new(Category::InvalidParameters, message)
                .with_suggestion(format!("Pass `{argument}` only once.")));
        }
        if let Some(value) = fields.remove(alias) {
            fields.insert(argument.to_owned(), value);
        }
    }
    for (pattern, folder) in definition.pattern_bases() {
        split_absolute_glob(arguments, pattern, folder);
    }
    Ok(())
}

const THOUGHTS: &str = "_tafc_think";

/// Removes the arguments that contain a model's thoughts, which some clients make the model add. No
/// tool gets these arguments, because the audit log doesn't show them.
fn drop_thoughts(arguments: &mut Arc<Value>) {
    let Value::Object(fields) = &**arguments else { return };
    if !fields.keys().any(|key| is_thought(key)) {
        return;
    }
    if let Value::Object(fields) = Arc::make_mut(arguments) {
        fields.retain(|key, _| !is_thought(key));
    }
}

/// Checks whether an argument contains thoughts. Models write the name in any case.
fn is_thought(argument: &str) -> bool {
    argument.get(..THOUGHTS.len()).is_some_and(|start| start.eq_ignore_ascii_case(THOUGHTS))
}

/// Splits an absolute glob before its first wildcard, if the call has no folder argument. The first
/// part becomes the folder argument, because the folder is the subject of the call. `pattern` and
/// `folder` are the names of both arguments.
fn split_absolute_glob(arguments: &mut Arc<Value>, pattern: &str, folder: &str) {
    let Some(Value::String(glob)) = arguments.get(pattern) else { return };
    let has_folder = !matches!(arguments.get(folder), None | Some(Value::Null));
    if !glob.starts_with('/') || has_folder {
        return;
    }

    let first_wildcard = glob.find(['*', '?', '[', '{', '\\']).unwrap_or(glob.len());
    // The glob starts with a slash, so a last slash always exists.
    let last_slash = glob[..first_wildcard].rfind('/').unwrap_or(0);
    let folder_end = if last_slash == 0 { "/".len() } else { last_slash };
    let base = glob[..folder_end].to_owned();
    let relative_glob = format!("./{}", &glob[last_slash + "/".len()..]);
    if let Value::Object(fields) = Arc::make_mut(arguments) {
        fields.insert(folder.to_owned(), Value::String(base));
        fields.insert(pattern.to_owned(), Value::String(relative_glob));
    }
}

/// Converts the arguments of a call to the types of the tool's schema, and validates them. `limit`
/// is the maximum length of the arguments as JSON in bytes.
///
/// # Errors
///
/// Returns an error if the arguments are too large, or don't match the schema.
pub fn arguments(tool: &Tool, arguments: &mut Arc<Value>, limit: usize) -> Result<(), Failure> {
    let size = json_size(arguments, limit);
    if size > limit {
        let advice = if tool.definition.takes_attachments() {
            "; send larger content as an attachment"
        } else {
            ""
        };
        let message = format!("the arguments are larger than {limit} bytes{advice}");
        return Err(Failure::new(Category::InvalidParameters, message));
    }
    if !arguments.is_object() {
        return Err(Failure::new(Category::TypeMismatch, "the arguments have to be a JSON object"));
    }
    // The validator can't be interrupted, so its work is limited in advance.
    if !tool.cost().allows(arguments) {
        let message = format!(
            "the arguments have too many values, or levels, to check against the schema of `{}`",
            tool.definition.name
        );
        return Err(Failure::new(Category::InvalidParameters, message)
            .with_suggestion("Ask for less at once."));
    }
    let validator = tool.validator()?;
    // The arguments aren't shared yet, so `make_mut` doesn't copy them.
    coerce(&tool.definition.input_schema, Arc::make_mut(arguments));
    if validator.is_valid(arguments) {
        return Ok(());
    }
    Err(schema_mismatch(tool, validator, arguments))
}

/// Returns the failure with the problems of the arguments. The first problem determines the
/// category.
fn schema_mismatch(tool: &Tool, validator: &Validator, arguments: &Value) -> Failure {
    let Definition { name, input_schema, .. } = &*tool.definition;
    let problems: Vec<_> = validator.iter_errors(arguments).take(MAX_PROBLEMS).collect();
    let category = match problems.first().map(ValidationError::kind) {
        Some(ValidationErrorKind::Type { .. }) => Category::TypeMismatch,
        _ => Category::InvalidParameters,
    };
    let descriptions: Vec<String> =
        problems.iter().map(|problem| describe(problem, input_schema, "argument")).collect();
    let message =
        format!("the arguments don't match the schema of `{name}`: {}", descriptions.join("; "));
    Failure::new(category, message).with_suggestion(describe_arguments(input_schema))
}

/// Describes a problem and its position, without a large value. `noun` is the word for a property,
/// such as `argument`.
pub(crate) fn describe(problem: &ValidationError<'_>, schema: &Value, noun: &str) -> String {
    let place = problem.instance_path().to_string();
    let text = match problem.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let shown = unexpected.iter().take(MAX_PROBLEMS);
            let names: Vec<String> = shown.map(|name| with_similar_name(name, schema)).collect();
            format!("there is no {noun} {}", names.join(", "))
        }
        ValidationErrorKind::Required { property } => format!("{property} is missing"),
        ValidationErrorKind::Enum { options } => format!("the value has to be one of {options}"),
        ValidationErrorKind::Type { kind: TypeKind::Single(kind) } => {
            format!("the value has to be of type {kind}")
        }
        ValidationErrorKind::OneOfNotValid { .. } | ValidationErrorKind::AnyOf { .. } => {
            match forms_at(problem.schema_path().as_str(), schema) {
                Some(forms) => format!("the value has to have one of the forms {forms}"),
                None => problem.masked().to_string(),
            }
        }
        _ => problem.masked().to_string(),
    };
    if place.is_empty() {
        return neutral_line(cut(&text, MAX_PROBLEM));
    }
    let text_with_place = format!("{}: {text}", place.trim_start_matches('/'));
    neutral_line(cut(&text_with_place, MAX_PROBLEM))
}

/// Returns the forms of the choice that contains `keyword`, a pointer into the schema. Returns
/// `None` if no form can be described.
fn forms_at(keyword: &str, schema: &Value) -> Option<String> {
    let (choice, _keyword) = keyword.rsplit_once('/')?;
    object_forms(schema.pointer(choice)?)
}

/// Returns an unknown name, with the most similar argument name if any is similar.
fn with_similar_name(name: &str, schema: &Value) -> String {
    let scored = property_names(schema).map(|known| (strsim::jaro_winkler(known, name), known));
    let closest = scored.max_by(|(score_a, _), (score_b, _)| score_a.total_cmp(score_b));
    match closest {
        Some((score, known)) if score >= SIMILAR => {
            format!("`{name}` (did you mean `{known}`?)")
        }
        _ => format!("`{name}`"),
    }
}

fn property_names(schema: &Value) -> impl Iterator<Item = &String> {
    schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys)
}

/// Lists the arguments in a schema, and says which of them are required.
fn describe_arguments(schema: &Value) -> String {
    let none_required = Vec::new();
    let required = schema.get("required").and_then(Value::as_array).unwrap_or(&none_required);
    let mut shown: Vec<String> = Vec::new();
    for name in property_names(schema).take(MAX_LISTED) {
        if required.iter().any(|required_name| required_name == name) {
            shown.push(format!("{name} (required)"));
        } else {
            shown.push(name.clone());
        }
    }
    if shown.is_empty() {
        "The tool takes no arguments.".to_owned()
    } else {
        format!("The tool's arguments: {}.", shown.join(", "))
    }
}

/// Returns the approximate length of a value as JSON in bytes. Counting stops soon after `limit`.
fn json_size(value: &Value, limit: usize) -> usize {
    /// The assumed length of a number.
    const NUMBER: usize = 8;
    match value {
        Value::Null | Value::Bool(_) => "false".len(),
        Value::Number(_) => NUMBER,
        Value::String(text) => text.len() + "\"\"".len(),
        Value::Array(items) => {
            let item_sizes = items.iter().map(|item| json_size(item, limit) + ",".len());
            bounded_sum(item_sizes, limit)
        }
        Value::Object(fields) => {
            let field_sizes = fields
                .iter()
                .map(|(key, item)| key.len() + "\"\":,".len() + json_size(item, limit));
            bounded_sum(field_sizes, limit)
        }
    }
}

/// Returns the length of the entries and their brackets. Counting stops after `limit`.
fn bounded_sum(sizes: impl Iterator<Item = usize>, limit: usize) -> usize {
    let mut total = "[]".len();
    for size in sizes {
        total += size;
        if total > limit {
            break;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_are_counted() {
        assert!(json_size(&json!(vec!["x".repeat(100); 100]), 1000) > 1000);
    }

    use toolhold_contract::{Role, ToolArgument};

    #[track_caller]
    fn check_rename(given: Value, expected: Option<Value>) {
        let properties =
            json!({ "command": { "type": "string" }, "timeout": { "type": "integer" } });
        let mut definition =
            Definition::new("bash", "runs", json!({ "type": "object", "properties": properties }));
        let aliases = ["cmd", "sh"].map(str::to_owned).to_vec();
        definition.arguments =
            vec![ToolArgument { aliases, ..ToolArgument::with_role("command", Role::Text) }];
        let mut arguments = Arc::new(given.clone());
        let renamed = normalize(&definition, &mut arguments);
        match expected {
            Some(expected) => assert_eq!((renamed, &*arguments), (Ok(()), &expected), "{given}"),
            None => assert_eq!(
                renamed.expect_err("the argument is given twice").category,
                Category::InvalidParameters,
                "{given}"
            ),
        }
    }

    #[test]
    fn argument_aliases_are_renamed() {
        let command = json!({ "command": "ls" });
        for given in [command.clone(), json!({ "cmd": "ls" }), json!({ "sh": "ls" }), json!("ls")] {
            check_rename(given, Some(command.clone()));
        }
        check_rename(
            json!({ "timeout": 5, "cmd": "ls" }),
            Some(json!({ "timeout": 5, "command": "ls" })),
        );
        // A model's thoughts go nowhere.
        check_rename(json!({ "cmd": "ls", "_tafc_think": "hm" }), Some(command.clone()));
        check_rename(json!({ "cmd": "ls", "_TAFC_Think": "hm" }), Some(command.clone()));
        check_rename(json!({ "command": "ls", "_tafc_think_2": { "a": 1 } }), Some(command));
        // These aren't aliases. The schema decides on them.
        for other in [
            json!({ "CMD": "ls" }),
            json!({ "a": { "cmd": "ls" } }),
            json!(["ls"]),
            json!(5),
            json!({}),
        ] {
            check_rename(other.clone(), Some(other));
        }
    }

    #[test]
    fn folder_of_absolute_glob_becomes_an_argument() {
        let properties = json!({ "pattern": { "type": "string" }, "path": { "type": "string" } });
        let mut definition = Definition::new(
            "find_path",
            "finds",
            json!({ "type": "object", "properties": properties }),
        );
        let base = Some("path".to_owned());
        definition.arguments =
            vec![ToolArgument { base, ..ToolArgument::with_role("pattern", Role::Glob) }];
        for (given, expected) in [
            (json!({ "pattern": "/a/b/*.rs" }), json!({ "path": "/a/b", "pattern": "./*.rs" })),
            (json!({ "pattern": "/a/b", "path": null }), json!({ "path": "/a", "pattern": "./b" })),
            (json!({ "pattern": "/a/b/" }), json!({ "path": "/a/b", "pattern": "./" })),
            (json!({ "pattern": "/*" }), json!({ "path": "/", "pattern": "./*" })),
            (json!({ "pattern": "/a/{b,c}/d" }), json!({ "path": "/a", "pattern": "./{b,c}/d" })),
            (json!({ "pattern": "/é/[x]" }), json!({ "path": "/é", "pattern": "./[x]" })),
            (json!({ "pattern": "/a/\\*b/*" }), json!({ "path": "/a", "pattern": "./\\*b/*" })),
            (json!({ "pattern": "src/*.rs" }), json!({ "pattern": "src/*.rs" })),
            (
                json!({ "pattern": "/a/*", "path": "/a" }),
                json!({ "pattern": "/a/*", "path": "/a" }),
            ),
            (json!({ "pattern": 5 }), json!({ "pattern": 5 })),
            (json!([]), json!([])),
        ] {
            let mut arguments = Arc::new(given.clone());
            normalize(&definition, &mut arguments).expect("no argument is given twice");
            assert_eq!(*arguments, expected, "{given}");
        }
    }

    #[test]
    fn argument_under_two_names_is_refused() {
        check_rename(json!({ "command": "ls", "cmd": "rm x" }), None);
        check_rename(json!({ "cmd": "ls", "sh": "rm x" }), None);
        check_rename(json!({ "command": null, "cmd": "rm x" }), None);
    }
}
