//! Changes settings in the text of an MCP client's file, or takes a change back, and keeps the rest
//! of the text, comments too.
//!
//! The new text is parsed again and must have exactly the expected values; otherwise the change is
//! refused.

use jsonc_parser::cst::{CstArray, CstObject};
use serde_json::{Map, Value};
use toml_edit::{Array, DocumentMut, Item, Table, TableLike};

use crate::client_files::edit::{json_input, new_table_prefix, toml_value};
use crate::client_files::error::ClientFileError;
use crate::client_files::known::Format;
use crate::client_files::remove::without_tables;
use crate::client_files::settings::Setting;
use crate::client_files::values::{json_values, parse_json, toml_values};

/// Puts settings into the text of a file. Returns the new text.
///
/// # Errors
///
/// The obstacle, with its line.
pub fn set(format: Format, before: &str, settings: &[Setting]) -> Result<String, ClientFileError> {
    let old = values(format, before)?;
    let mut new = old.clone();
    for setting in settings {
        put(&mut new, &setting.keys, &setting.value)
            .ok_or_else(|| ClientFileError::NotAnObject { table: setting.keys.join(".") })?;
    }
    update(format, before, &old, &new)
}

/// Takes a change of a file back: everything that differs between `before` and `after` becomes as
/// before, unless somebody has changed it again since. Returns the new text.
///
/// # Errors
///
/// The obstacle, with its line.
pub fn revert(
    format: Format,
    now: &str,
    before: &str,
    after: &str,
) -> Result<String, ClientFileError> {
    let old = values(format, now)?;
    let before = values(format, before)?;
    let after = values(format, after)?;
    let new = reverted(&old, Some(&before), &after).unwrap_or_else(|| Value::Object(Map::new()));
    update(format, now, &old, &new)
}

fn values(format: Format, text: &str) -> Result<Value, ClientFileError> {
    match format {
        Format::Json => json_values(text),
        Format::Toml => toml_values(text),
    }
}

/// Puts a value at a path of keys. Returns `None` if a value on the path isn't an object.
fn put(values: &mut Value, keys: &[String], value: &Value) -> Option<()> {
    let (key, below) = keys.split_first()?;
    // In opencode, a word in place of the rules is the rule for all tools.
    if let Value::String(rule) = &*values {
        *values = Value::Object(Map::from_iter([("*".to_owned(), Value::from(rule.as_str()))]));
    }
    let object = values.as_object_mut()?;
    if !below.is_empty() {
        let inner = object.entry(key).or_insert_with(|| Value::Object(Map::new()));
        return put(inner, below, value);
    }
    match (object.get_mut(key), value) {
        (Some(Value::Array(items)), Value::Array(added)) => {
            for item in added {
                if !items.contains(item) {
                    items.push(item.clone());
                }
            }
        }
        _ => drop(object.insert(key.clone(), value.clone())),
    }
    Some(())
}

/// Returns the value without the change from `before` to `after`. Returns `None` if the value goes.
fn reverted(now: &Value, before: Option<&Value>, after: &Value) -> Option<Value> {
    if now == after {
        return before.cloned();
    }
    match (now, after) {
        (Value::Object(now), Value::Object(after)) => {
            let object = reverted_object(now, before, after);
            let is_gone = before.is_none() && object.is_empty();
            (!is_gone).then_some(Value::Object(object))
        }
        (Value::Array(now), Value::Array(after)) => {
            let old = before.and_then(Value::as_array);
            let mut items = Vec::new();
            for item in now {
                let is_added =
                    after.contains(item) && !old.is_some_and(|items| items.contains(item));
                if !is_added {
                    items.push(item.clone());
                }
            }
            let is_gone = before.is_none() && items.is_empty();
            (!is_gone).then_some(Value::Array(items))
        }
        // Somebody has changed it since.
        _ => Some(now.clone()),
    }
}

fn reverted_object(
    now: &Map<String, Value>,
    before: Option<&Value>,
    after: &Map<String, Value>,
) -> Map<String, Value> {
    let mut object = Map::new();
    for (key, value) in now {
        let old = before.and_then(|before| before.get(key));
        let kept = match after.get(key) {
            Some(changed) if old != Some(changed) => reverted(value, old, changed),
            _ => Some(value.clone()),
        };
        if let Some(kept) = kept {
            object.insert(key.clone(), kept);
        }
    }
    // The values that the change took out.
    for (key, value) in before.and_then(Value::as_object).into_iter().flatten() {
        if !after.contains_key(key) && !now.contains_key(key) {
            object.insert(key.clone(), value.clone());
        }
    }
    object
}

/// Changes a text with the values `old` so that it has the values `new`.
fn update(format: Format, text: &str, old: &Value, new: &Value) -> Result<String, ClientFileError> {
    if old == new {
        return Ok(text.to_owned());
    }
    let old = old.as_object().ok_or_else(not_an_object)?;
    let target = new.as_object().ok_or_else(not_an_object)?;
    let after = match format {
        Format::Json => update_json(text, old, target)?,
        Format::Toml => update_toml(text, old, target)?,
    };
    match values(format, &after) {
        Ok(values) if values == *new => Ok(after),
        _ => Err(ClientFileError::Settings),
    }
}

fn not_an_object() -> ClientFileError {
    ClientFileError::NotAnObject { table: "settings".to_owned() }
}

fn update_json(
    text: &str,
    old: &Map<String, Value>,
    new: &Map<String, Value>,
) -> Result<String, ClientFileError> {
    let root = parse_json(text)?;
    let object = root.object_value_or_create().ok_or_else(not_an_object)?;
    update_object(&object, old, new);
    let mut after = root.to_string();
    if !after.ends_with('\n') {
        after.push('\n');
    }
    Ok(after)
}

fn update_object(object: &CstObject, old: &Map<String, Value>, new: &Map<String, Value>) {
    for property in object.properties() {
        let is_kept = property.decoded_name().is_some_and(|name| new.contains_key(&name));
        if !is_kept {
            property.remove();
        }
    }
    for (key, value) in new {
        let Some(property) = object.get(key) else {
            object.append(key, json_input(value));
            continue;
        };
        match (old.get(key), value) {
            (Some(old), new) if old == new => {}
            (Some(Value::Object(old)), Value::Object(new)) => match property.object_value() {
                Some(inner) => update_object(&inner, old, new),
                None => property.set_value(json_input(value)),
            },
            (Some(Value::Array(old)), Value::Array(new)) => match property.array_value() {
                Some(array) => update_array(&array, old, new),
                None => property.set_value(json_input(value)),
            },
            _ => property.set_value(json_input(value)),
        }
    }
}

/// Removes the items that are gone, and appends the new ones.
fn update_array(array: &CstArray, old: &[Value], new: &[Value]) {
    for element in array.elements() {
        if element.to_serde_value().is_some_and(|item| !new.contains(&item)) {
            element.remove();
        }
    }
    for item in new {
        if !old.contains(item) {
            array.append(json_input(item));
        }
    }
}

fn update_toml(
    text: &str,
    old: &Map<String, Value>,
    new: &Map<String, Value>,
) -> Result<String, ClientFileError> {
    let mut text = text.to_owned();
    // Tables go with the comments directly above them, and no others.
    let gone = gone_tables(old, new);
    if !gone.is_empty() {
        text = without_tables(&text, &[], &gone)?;
    }
    for (key, value) in new {
        let Some(inner) = old.get(key).and_then(Value::as_object) else { continue };
        let Some(left) = value.as_object() else { continue };
        let gone = gone_tables(inner, left);
        if !gone.is_empty() {
            text = without_tables(&text, &[key.as_str()], &gone)?;
        }
    }
    let mut document: DocumentMut = text.parse()?;
    let prefix = new_table_prefix(&document);
    let mut has_new_table = false;
    for (key, value) in new {
        if document.contains_key(key) || !value.is_object() {
            continue;
        }
        let mut table = Table::new();
        table.decor_mut().set_prefix(if has_new_table { "\n" } else { prefix.as_str() });
        document.insert(key, Item::Table(table));
        has_new_table = true;
    }
    if has_new_table {
        document.set_trailing("");
    }
    update_table(document.as_table_mut(), new);
    Ok(document.to_string())
}

/// Returns the names of the tables that are in `old` and not in `new`.
fn gone_tables(old: &Map<String, Value>, new: &Map<String, Value>) -> Vec<String> {
    let mut gone = Vec::new();
    for (name, value) in old {
        if value.is_object() && !new.contains_key(name) {
            gone.push(name.clone());
        }
    }
    gone
}

fn update_table(table: &mut dyn TableLike, new: &Map<String, Value>) {
    let keys: Vec<String> = table.iter().map(|(key, _)| key.to_owned()).collect();
    for key in keys {
        if !new.contains_key(&key) {
            table.remove(&key);
        }
    }
    for (key, value) in new {
        match (table.get_mut(key), value) {
            (Some(item), Value::Object(new)) if item.is_table_like() => {
                if let Some(inner) = item.as_table_like_mut() {
                    update_table(inner, new);
                }
            }
            (Some(Item::Value(old)), new) if !is_same(old, new) => {
                let decor = old.decor().clone();
                *old = toml_value(new);
                *old.decor_mut() = decor;
            }
            (Some(_), _) => {}
            (None, new) => drop(table.insert(key, Item::Value(toml_value(new)))),
        }
    }
}

/// Checks whether a value of TOML is this value of JSON. Values of other kinds, such as dates, are
/// never changed.
fn is_same(old: &toml_edit::Value, new: &Value) -> bool {
    match (old, new) {
        (toml_edit::Value::String(old), Value::String(new)) => old.value() == new,
        (toml_edit::Value::Boolean(old), Value::Bool(new)) => old.value() == new,
        (toml_edit::Value::Integer(old), Value::Number(new)) => new.as_i64() == Some(*old.value()),
        (toml_edit::Value::Array(old), Value::Array(new)) => is_same_array(old, new),
        (toml_edit::Value::Float(_) | toml_edit::Value::Datetime(_), _) => true,
        _ => false,
    }
}

fn is_same_array(old: &Array, new: &[Value]) -> bool {
    old.len() == new.len() && old.iter().zip(new).all(|(old, new)| is_same(old, new))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn setting(keys: &[&str], value: Value) -> Setting {
        Setting { keys: keys.iter().map(|&key| key.to_owned()).collect(), value }
    }

    #[track_caller]
    fn sets(format: Format, before: &str, settings: &[Setting], expected: &str) {
        let after = set(format, before, settings).expect("it is changed");
        assert_eq!(after, expected);
        assert_eq!(set(format, &after, settings).expect("it is there"), after, "it is done once");
    }

    #[test]
    fn settings_keep_the_rest_of_the_file() {
        let allow = [setting(&["permissions", "allow"], json!(["mcp__toolhold"]))];
        sets(
            Format::Json,
            "{\n  // mine\n  \"permissions\": {\n    \"allow\": [\n      \"Bash(ls)\" // so\n    ]\n  }\n}\n",
            &allow,
            "{\n  // mine\n  \"permissions\": {\n    \"allow\": [\n      \"Bash(ls)\", // so\n      \"mcp__toolhold\"\n    ]\n  }\n}\n",
        );
        let rule = [setting(&["permission", "toolhold_*"], json!("allow"))];
        let after = set(Format::Json, "{ \"permission\": \"ask\" }", &rule).expect("is changed");
        assert_eq!(
            json_values(&after).expect("it is JSON"),
            json!({ "permission": { "*": "ask", "toolhold_*": "allow" } })
        );
        let codex = [
            setting(&["web_search"], json!("disabled")),
            setting(&["features", "shell_tool"], json!(false)),
        ];
        sets(
            Format::Toml,
            "# mine\nmodel = \"x\" # so\n\n[mcp_servers.a]\ncommand = \"a\"\n",
            &codex,
            "# mine\nmodel = \"x\" # so\nweb_search = \"disabled\"\n\n[mcp_servers.a]\ncommand = \"a\"\n\n[features]\nshell_tool = false\n",
        );
        assert!(set(Format::Json, "{ \"permissions\": 7 }", &allow).is_err());
    }

    #[test]
    fn change_is_taken_back_from_a_file_that_was_edited_since() {
        let before = "{ \"list\": [\"a\"], \"gone\": 1 }";
        let after = "{ \"list\": [\"a\", \"ours\"], \"servers\": { \"ours\": { \"x\": 1 } } }";
        let now = "{\n  // theirs\n  \"list\": [\"a\", \"ours\", \"theirs\"],\n  \"servers\": { \"ours\": { \"x\": 1 }, \"theirs\": {} }\n}\n";
        let left = revert(Format::Json, now, before, after).expect("it is taken back");
        assert!(left.contains("// theirs"), "{left}");
        assert_eq!(
            json_values(&left).expect("it is JSON"),
            json!({ "list": ["a", "theirs"], "servers": { "theirs": {} }, "gone": 1 })
        );
        let changed = "{ \"list\": [\"a\", \"ours\"], \"servers\": { \"ours\": { \"x\": 2 } } }";
        let left = revert(Format::Json, changed, before, after).expect("it is taken back");
        assert_eq!(
            json_values(&left).expect("it is JSON")["servers"],
            json!({ "ours": { "x": 2 } }),
            "a value that was changed since stays"
        );
    }

    #[test]
    fn tables_of_toml_are_taken_back_with_their_comments_kept() {
        let before = "model = \"x\"\n";
        let settings = [setting(&["features", "shell_tool"], json!(false))];
        let after = set(Format::Toml, before, &settings).expect("it is changed");
        let now = format!("{after}\n# theirs\n\n[mcp_servers.b]\ncommand = \"b\"\n");
        assert_eq!(
            revert(Format::Toml, &now, before, &after).expect("it is taken back"),
            "model = \"x\"\n\n# theirs\n\n[mcp_servers.b]\ncommand = \"b\"\n"
        );
    }
}
