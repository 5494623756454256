//! Makes a tool's arguments from the words of a command line, or from JSON on stdin.

use std::io::Read as _;

use serde_json::{Map, Value};
use toolhold_core::{Definition, Host};

use crate::shown;

/// The most bytes of stdin: the host's limit, and room for spaces and line ends.
const MAX_STDIN: u64 = 4 * 1024 * 1024;

/// The most nested references and alternatives of a schema that are followed. Plugins write the
/// schemas, so a schema may be recursive.
const MAX_DEPTH: usize = 16;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ArgumentsError {
    #[error(
        "the arguments are either one JSON object (`-`: on stdin) or KEY=VALUE pairs, not both"
    )]
    JsonAndPairs,
    #[error(
        "the JSON on stdin is too large; the limit is 4 MiB{}",
        if *attaches { ATTACH } else { "" }
    )]
    LongStdin { attaches: bool },
    #[error("stdin is empty; with `-`, write the arguments to stdin as one JSON object")]
    EmptyStdin,
    #[error("stdin can't be read: {0}")]
    Stdin(std::io::Error),
    #[error("the arguments have to be a JSON object: '{{\"key\": \"value\"}}'")]
    NotAnObject,
    #[error("the arguments are not JSON: {0}")]
    NotJson(serde_json::Error),
    #[error("`{word}` isn't of the form KEY=VALUE{}", did_you_mean_pair(meant.as_deref(), word))]
    NotAPair { word: String, meant: Option<String> },
    #[error(
        "the tool has no argument `{key}`.{} The arguments are: {}",
        near.as_ref().map(|near| format!(" Did you mean `{near}`?")).unwrap_or_default(),
        if known.is_empty() { "none" } else { known.as_str() }
    )]
    Unknown { key: String, near: Option<String>, known: String },
    #[error("`{key}` is given {count} times, but takes only one value")]
    Repeated { key: String, count: usize },
    #[error("`{key}` takes {}, not `{value}`", types.join(" or "))]
    Type { key: String, types: Vec<&'static str>, value: String },
}

const ATTACH: &str = "; use --attach FILE for large content";

fn did_you_mean_pair(key: Option<&str>, word: &str) -> String {
    match key {
        Some(key) => format!("; did you mean `{key}={}`?", shown::shell_word(word)),
        None => String::new(),
    }
}

/// Parses the words after the tool's name: a JSON object, `-` for JSON on stdin, or `KEY=VALUE`.
pub(crate) fn arguments(
    words: &[String],
    tool: &str,
    host: &Host,
) -> Result<Value, ArgumentsError> {
    match words {
        [word] if word == "-" => {
            let attaches = host.tool(tool).is_some_and(|definition| definition.takes_attachments());
            from_json(&read_stdin(attaches)?)
        }
        [word] if word.trim_start().starts_with('{') => from_json(word),
        [first, _, ..] if first == "-" || first.trim_start().starts_with('{') => {
            Err(ArgumentsError::JsonAndPairs)
        }
        words => match host.tool(tool) {
            Some(definition) => from_words(&definition, words),
            // The host has a better error for an unknown tool, so it gets the call with any
            // arguments.
            None => Ok(Value::Object(serde_json::Map::new())),
        },
    }
}

/// Reads JSON from stdin. If the tool takes attachments (`attaches`), an error can suggest
/// `--attach`.
fn read_stdin(attaches: bool) -> Result<String, ArgumentsError> {
    let mut text = String::new();
    // One byte more than the limit shows that the text is too long.
    match std::io::stdin().lock().take(MAX_STDIN + 1).read_to_string(&mut text) {
        Ok(length) if length as u64 > MAX_STDIN => Err(ArgumentsError::LongStdin { attaches }),
        Ok(_) if text.trim().is_empty() => Err(ArgumentsError::EmptyStdin),
        Ok(_) => Ok(text),
        Err(error) => Err(ArgumentsError::Stdin(error)),
    }
}

/// Parses `KEY=VALUE` words, or a single word without a key. A key may be an alias. A value stays a
/// string if the schema accepts strings.
fn from_words(definition: &Definition, words: &[String]) -> Result<Value, ArgumentsError> {
    let schema = &definition.input_schema;
    if let [word] = words
        && let Some(argument) = bare_argument(definition, word)
    {
        let mut arguments = Map::new();
        arguments.insert(argument.to_owned(), convert_values(schema, argument, &[word])?);
        return Ok(Value::Object(arguments));
    }

    let mut values_by_key: Vec<(&str, Vec<&str>)> = Vec::new();
    for word in words {
        let (typed_key, value) = match word.split_once('=') {
            Some((key, value)) if !key.is_empty() => (key, value),
            _ => return Err(not_a_pair(schema, word)),
        };
        let mut aliases = definition.argument_aliases();
        let key = match aliases.find(|(alias, _)| *alias == typed_key) {
            Some((_, argument)) => argument,
            None => typed_key,
        };
        match values_by_key.iter_mut().find(|(earlier_key, _)| *earlier_key == key) {
            Some((_, values)) => values.push(value),
            None => values_by_key.push((key, vec![value])),
        }
    }

    let mut arguments = Map::new();
    for (key, values) in values_by_key {
        arguments.insert(key.to_owned(), convert_values(schema, key, &values)?);
    }
    Ok(Value::Object(arguments))
}

/// Returns the argument for a single word without a key: the tool's main argument, or its only
/// required argument.
fn bare_argument<'d>(definition: &'d Definition, word: &str) -> Option<&'d str> {
    // The word is probably a misplaced option.
    if word.starts_with('-') {
        return None;
    }
    let schema = &definition.input_schema;
    let key = word.split_once('=').map(|(key, _)| key);
    if let Some(bare) = definition.bare_argument() {
        // `FOO=1 make` is a command and not an argument `FOO`.
        let Some(key) = key else { return Some(bare) };
        let is_property = schema["properties"].get(key).is_some();
        let is_alias = definition.argument_aliases().any(|(alias, _)| alias == key);
        return if is_property || is_alias { None } else { Some(bare) };
    }

    // `KEY=VALUE` already names its argument.
    if key.is_some_and(is_name) {
        return None;
    }
    match schema["required"].as_array().map(Vec::as_slice) {
        Some([only_name]) => only_name.as_str(),
        _ => None,
    }
}

fn is_name(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
}

fn from_json(text: &str) -> Result<Value, ArgumentsError> {
    match serde_json::from_str(text) {
        Ok(object @ Value::Object(_)) => Ok(object),
        Ok(_) => Err(ArgumentsError::NotAnObject),
        Err(error) => Err(ArgumentsError::NotJson(error)),
    }
}

/// Converts the values of an argument to types of its schema. Several values become a list.
fn convert_values(schema: &Value, key: &str, values: &[&str]) -> Result<Value, ArgumentsError> {
    let additional = &schema["additionalProperties"];
    let property = match schema["properties"].get(key) {
        Some(property) => property,
        None if *additional == Value::Bool(false) => return Err(unknown(schema, key)),
        None => additional,
    };
    let accepts = AcceptedTypes::for_schema(property, schema);
    let accepts_list = accepts.array || accepts.is_any();
    let [value] = values else {
        if !accepts_list {
            return Err(ArgumentsError::Repeated { key: key.to_owned(), count: values.len() });
        }
        let mut elements = Vec::new();
        for value in values {
            elements.push(convert_element(&accepts, schema, key, value)?);
        }
        return Ok(Value::Array(elements));
    };

    // If the schema accepts lists but no strings, a single value becomes a list.
    let is_json_list = value.trim_start().starts_with('[');
    if accepts.array && !accepts.string && !is_json_list {
        return Ok(Value::Array(vec![convert_element(&accepts, schema, key, value)?]));
    }
    accepts.convert(value).ok_or_else(|| type_error(key, &accepts, value))
}

/// Converts a value to a type that the elements of a list may have. `list` has the accepted types
/// of the list itself.
fn convert_element(
    list: &AcceptedTypes<'_>,
    schema: &Value,
    key: &str,
    value: &str,
) -> Result<Value, ArgumentsError> {
    let accepts = match list.items {
        Some(items) => AcceptedTypes::for_schema(items, schema),
        // Without `items`, the elements may have any type.
        None => AcceptedTypes::default(),
    };
    accepts.convert(value).ok_or_else(|| type_error(key, &accepts, value))
}

#[derive(Debug, Default)]
struct AcceptedTypes<'a> {
    string: bool,
    integer: bool,
    number: bool,
    boolean: bool,
    null: bool,
    object: bool,
    array: bool,
    items: Option<&'a Value>,
}

impl<'a> AcceptedTypes<'a> {
    fn for_schema(schema: &'a Value, root: &'a Value) -> Self {
        let mut accepts = Self::default();
        accepts.add(schema, root, 0);
        accepts
    }

    /// Adds the types that a schema accepts. References refer to parts of `root`. `depth` is the
    /// number of references and alternatives around the schema.
    fn add(&mut self, schema: &'a Value, root: &'a Value, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        if let Some(reference) = schema["$ref"].as_str()
            && let Some(pointer) = reference.strip_prefix('#')
            && let Some(target) = root.pointer(pointer)
        {
            self.add(target, root, depth + 1);
        }
        match &schema["type"] {
            Value::String(name) => self.add_type(name),
            Value::Array(names) => {
                for name in names.iter().filter_map(Value::as_str) {
                    self.add_type(name);
                }
            }
            // A schema without a type accepts the types of its listed values.
            _ => {
                let values = schema["enum"].as_array().into_iter().flatten();
                for value in values.chain(schema.get("const")) {
                    self.add_type(type_of(value));
                }
            }
        }
        if !schema["items"].is_null() {
            self.items = Some(&schema["items"]);
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            for alternative in schema[key].as_array().into_iter().flatten() {
                self.add(alternative, root, depth + 1);
            }
        }
    }

    fn add_type(&mut self, name: &str) {
        match name {
            "string" => self.string = true,
            "integer" => self.integer = true,
            "number" => self.number = true,
            "boolean" => self.boolean = true,
            "null" => self.null = true,
            "object" => self.object = true,
            "array" => self.array = true,
            // The schema is invalid, so this name is ignored.
            _ => {}
        }
    }

    fn is_any(&self) -> bool {
        self.names().is_empty()
    }

    fn names(&self) -> Vec<&'static str> {
        let all = [
            (self.string, "a string"),
            (self.integer, "a whole number"),
            (self.number, "a number"),
            (self.boolean, "true or false"),
            (self.object, "a JSON object"),
            (self.array, "a list (repeat the key)"),
            (self.null, "null"),
        ];
        let mut names = Vec::new();
        for (is_accepted, name) in all {
            if is_accepted {
                names.push(name);
            }
        }
        names
    }

    /// Converts `text` to an accepted type, or returns `None` if this is impossible.
    fn convert(&self, text: &str) -> Option<Value> {
        if self.string {
            return Some(Value::from(text));
        }
        let json = serde_json::from_str(text).ok();
        // Text that isn't JSON stays a string.
        if self.is_any() {
            return Some(json.unwrap_or_else(|| Value::from(text)));
        }
        let value = json?;
        let is_accepted = match &value {
            Value::Null => self.null,
            Value::Bool(_) => self.boolean,
            Value::Number(number) if number.is_f64() => self.number,
            Value::Number(_) => self.number || self.integer,
            // If strings are accepted, the function has already returned.
            Value::String(_) => false,
            Value::Array(_) => self.array,
            Value::Object(_) => self.object,
        };
        if is_accepted { Some(value) } else { None }
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn type_error(key: &str, accepts: &AcceptedTypes<'_>, value: &str) -> ArgumentsError {
    let key = key.to_owned();
    let value = value.to_owned();
    ArgumentsError::Type { key, types: accepts.names(), value }
}

fn not_a_pair(schema: &Value, word: &str) -> ArgumentsError {
    let first_required = schema["required"].get(0).and_then(Value::as_str);
    ArgumentsError::NotAPair { word: word.to_owned(), meant: first_required.map(str::to_owned) }
}

fn unknown(schema: &Value, key: &str) -> ArgumentsError {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let known: Vec<&str> = properties.map(|(name, _)| name.as_str()).collect();
    let near = crate::nearest::nearest(key, known.iter().copied()).map(str::to_owned);
    ArgumentsError::Unknown { key: key.to_owned(), near, known: known.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolhold_core::ToolArgument;

    use super::*;

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": { "type": "string" },
                "limit": { "type": ["integer", "null"], "minimum": 0 },
                "share": { "type": "number" },
                "all": { "type": "boolean" },
                "include": { "type": "array", "items": { "type": "string" } },
                "lines": { "anyOf": [{ "type": "array", "items": { "type": "integer" } }, { "type": "null" }] },
                "mode": { "$ref": "#/$defs/Mode" },
                "either": { "type": ["string", "integer"] },
                "extra": { "type": "object" },
                "free": true,
                "endless": { "$ref": "#/properties/endless" }
            },
            "required": ["path"],
            "additionalProperties": false,
            "$defs": { "Mode": { "oneOf": [{ "const": "content" }, { "const": "files" }] } }
        })
    }

    fn convert(words: &[&str]) -> Result<Value, ArgumentsError> {
        let mut definition = Definition::new("tool", "does it", schema());
        let (name, aliases) = ("limit".to_owned(), ["max", "path"].map(str::to_owned).to_vec());
        definition.arguments = vec![ToolArgument { name, aliases, ..ToolArgument::default() }];
        from_words(&definition, &words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn words_become_the_types_of_the_schema() {
        let check = |words: &[&str], expected: Value| {
            assert_eq!(convert(words).expect("they are valid"), expected, "{words:?}");
        };
        check(&[], json!({}));
        check(&["path=a=b"], json!({ "path": "a=b" }));
        check(&["path="], json!({ "path": "" }));
        check(&["path=5"], json!({ "path": "5" }));
        check(&["path={\"a\":1}"], json!({ "path": "{\"a\":1}" }));
        check(
            &["limit=10", "all=true", "share=0.5"],
            json!({ "limit": 10, "all": true, "share": 0.5 }),
        );
        check(&["README.md"], json!({ "path": "README.md" }));
        check(&["a b/c=d"], json!({ "path": "a b/c=d" }));
        check(&["max=10", "path=a"], json!({ "limit": 10, "path": "a" }));
        check(&["limit=null"], json!({ "limit": null }));
        check(&["limit=18446744073709551615"], json!({ "limit": u64::MAX }));
        check(&["share=2"], json!({ "share": 2 }));
        check(&["include=*.rs"], json!({ "include": ["*.rs"] }));
        check(&["include=*.rs", "include=5"], json!({ "include": ["*.rs", "5"] }));
        check(&["include=[\"a\", \"b\"]"], json!({ "include": ["a", "b"] }));
        check(&["lines=1", "lines=2"], json!({ "lines": [1, 2] }));
        check(&["mode=files"], json!({ "mode": "files" }));
        check(&["either=5"], json!({ "either": "5" }));
        check(&["extra={\"a\": [1]}"], json!({ "extra": { "a": [1] } }));
        check(&["free=5"], json!({ "free": 5 }));
        check(&["free=plain"], json!({ "free": "plain" }));
        check(&["endless=x"], json!({ "endless": "x" }));
    }

    #[test]
    fn invalid_words_are_explained() {
        let check = |words: &[&str], expected: &str| {
            let error = convert(words).expect_err("they are invalid");
            assert_eq!(error.to_string(), expected, "{words:?}");
        };
        check(&["a b", "limit=1"], "`a b` isn't of the form KEY=VALUE; did you mean `path='a b'`?");
        check(&["=x"], "`=x` isn't of the form KEY=VALUE; did you mean `path==x`?");
        check(&["limit=ten"], "`limit` takes a whole number or null, not `ten`");
        check(&["limit=1.5"], "`limit` takes a whole number or null, not `1.5`");
        check(&["all=yes"], "`all` takes true or false, not `yes`");
        check(&["extra=[1]"], "`extra` takes a JSON object, not `[1]`");
        check(&["path=a", "path=b"], "`path` is given 2 times, but takes only one value");
        check(&["lines=x"], "`lines` takes a whole number, not `x`");
        let known = "path, limit, share, all, include, lines, mode, either, extra, free, endless";
        check(
            &["pth=x"],
            &format!(
                "the tool has no argument `pth`. Did you mean `path`? The arguments are: {known}"
            ),
        );
    }

    #[test]
    fn json_arguments_are_not_converted() {
        let object = from_json("{\"limit\": \"10\"}").expect("it is an object");
        assert_eq!(object, json!({ "limit": "10" }));
        let is_refused = |text: &str, reason: &str| {
            from_json(text).is_err_and(|error| error.to_string().contains(reason))
        };
        assert!(is_refused("[1]", "JSON object"));
        assert!(is_refused("{\"a\": }", "line 1 column 7"));
    }
}
