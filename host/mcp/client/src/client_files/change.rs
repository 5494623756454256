//! Changes settings in an MCP client's file, or reverts a change. Other text and comments stay.
//!
//! The new text is parsed, and the change is refused if any value isn't as expected.

use jsonc_parser::cst::{CstArray, CstObject};
use serde_json::{Map, Value};
use toml_edit::{Array, DocumentMut, Item, Table, TableLike};

use crate::client_files::edit::{json_input, new_table_prefix, toml_value};
use crate::client_files::error::ClientFileError;
use crate::client_files::known::Format;
use crate::client_files::remove::without_tables;
use crate::client_files::settings::Setting;
use crate::client_files::values::{json_values, parse_json, toml_values};

/// Puts settings into a file's text. Returns the new text.
///
/// # Errors
///
/// Returns an error if the text is invalid, a value on the path of a setting isn't an object, or
/// values outside of the settings would change.
pub fn set(format: Format, before: &str, settings: &[Setting]) -> Result<String, ClientFileError> {
    let old = values(format, before)?;
    let mut new = old.clone();
    for setting in settings {
        put(&mut new, &setting.keys, &setting.value)
            .ok_or_else(|| ClientFileError::NotAnObject { table: setting.keys.join(".") })?;
    }
    update(format, before, &old, &new)
}

/// Reverts the change from `before` to `after` in the text `now`. Values that were changed again
/// since then stay. Returns the new text.
///
/// # Errors
///
/// Returns an error if a text is invalid or values besides the reverted values would change.
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

/// Puts a value at the path `keys`. Returns `None` if a value on the path isn't an object.
fn put(values: &mut Value, keys: &[String], value: &Value) -> Option<()> {
    let (key, inner_keys) = keys.split_first()?;
    // In opencode's file, a single rule for all tools can be in place of the object. Convert it to
    // an object, in which this rule has the key `*`.
    if let Value::String(rule) = &*values {
        *values = Value::Object(Map::from_iter([("*".to_owned(), Value::from(rule.as_str()))]));
    }
    let object = values.as_object_mut()?;
    if !inner_keys.is_empty() {
        let inner = object.entry(key).or_insert_with(|| Value::Object(Map::new()));
        return put(inner, inner_keys, value);
    }
    if let (Some(Value::Array(items)), Value::Array(added)) = (object.get_mut(key), value) {
        // A list keeps its items and gets the missing items.
        for item in added {
            if !items.contains(item) {
                items.push(item.clone());
            }
        }
    } else {
        object.insert(key.clone(), value.clone());
    }
    Some(())
}

/// Reverts the change of the value `now`. Returns `None` if the value must be removed.
fn reverted(now: &Value, before: Option<&Value>, after: &Value) -> Option<Value> {
    if now == after {
        return before.cloned();
    }
    match (now, after) {
        (Value::Object(now), Value::Object(after)) => {
            let object = reverted_object(now, before, after);
            // The change made this object, and nothing was added to the object since then, so it is
            // removed.
            if before.is_none() && object.is_empty() {
                return None;
            }
            Some(Value::Object(object))
        }
        (Value::Array(now), Value::Array(after)) => {
            let old_items = before.and_then(Value::as_array).map(Vec::as_slice);
            let items = reverted_list(now, old_items, after);
            // The change made this list, and nothing was added to the list since then, so it is
            // removed.
            if before.is_none() && items.is_empty() {
                return None;
            }
            Some(Value::Array(items))
        }
        // The value was changed again.
        _ => Some(now.clone()),
    }
}

/// Removes the items that the change from `before` to `after` has added to the list `now`.
fn reverted_list(now: &[Value], before: Option<&[Value]>, after: &[Value]) -> Vec<Value> {
    let mut items = Vec::new();
    for item in now {
        let was_there = before.is_some_and(|before| before.contains(item));
        let is_from_change = after.contains(item) && !was_there;
        if !is_from_change {
            items.push(item.clone());
        }
    }
    items
}

/// Reverts the change from `before` to `after` in the object `now`. Returns the resulting object.
fn reverted_object(
    now: &Map<String, Value>,
    before: Option<&Value>,
    after: &Map<String, Value>,
) -> Map<String, Value> {
    let mut object = Map::new();
    for (key, value) in now {
        let old = before.and_then(|before| before.get(key));
        let new_value = match after.get(key) {
            Some(changed) if old != Some(changed) => reverted(value, old, changed),
            // The change didn't concern this value.
            _ => Some(value.clone()),
        };
        if let Some(new_value) = new_value {
            object.insert(key.clone(), new_value);
        }
    }
    if let Some(Value::Object(before)) = before {
        for (key, value) in before {
            let was_removed_by_change = !after.contains_key(key);
            let was_added_again = now.contains_key(key);
            if was_removed_by_change && !was_added_again {
                object.insert(key.clone(), value.clone());
            }
        }
    }
    object
}

/// Returns `text` with its values changed from `old` to `new`.
fn update(format: Format, text: &str, old: &Value, new: &Value) -> Result<String, ClientFileError> {
    if old == new {
        return Ok(text.to_owned());
    }
    let old_fields = old.as_object().ok_or_else(not_an_object)?;
    let new_fields = new.as_object().ok_or_else(not_an_object)?;
    let new_text = match format {
        Format::Json => update_json(text, old_fields, new_fields)?,
        Format::Toml => update_toml(text, old_fields, new_fields)?,
    };
    match values(format, &new_text) {
        Ok(values) if values == *new => Ok(new_text),
        _ => Err(ClientFileError::Settings),
    }
}

fn not_an_object() -> ClientFileError {
    ClientFileError::NotAnObject { table: "settings".to_owned() }
}

/// Changes the values of a JSON text from `old` to `new`. Unchanged values and comments stay.
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

/// Changes the properties of `object` from `old` to `new`. Unchanged properties keep their text.
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
        let old_value = old.get(key);
        if old_value == Some(value) {
            continue;
        }
        if let (Some(Value::Object(old)), Value::Object(new)) = (old_value, value)
            && let Some(inner_object) = property.object_value()
        {
            update_object(&inner_object, old, new);
        } else if let (Some(Value::Array(old)), Value::Array(new)) = (old_value, value)
            && let Some(array) = property.array_value()
        {
            update_array(&array, old, new);
        } else {
            property.set_value(json_input(value));
        }
    }
}

/// Removes the items that aren't in `new`, and appends the items that aren't in `old`.
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

/// Changes the values of a TOML text from `old` to `new`. Unchanged values and their comments stay.
fn update_toml(
    text: &str,
    old: &Map<String, Value>,
    new: &Map<String, Value>,
) -> Result<String, ClientFileError> {
    let mut text = text.to_owned();
    // The lines of removed tables are removed from the text, with the comments directly above.
    let removed = names_of_removed_tables(old, new);
    if !removed.is_empty() {
        text = without_tables(&text, &[], &removed)?;
    }
    for (key, value) in new {
        let Some(old_inner) = old.get(key).and_then(Value::as_object) else { continue };
        let Some(new_inner) = value.as_object() else { continue };
        let removed_inner = names_of_removed_tables(old_inner, new_inner);
        if !removed_inner.is_empty() {
            text = without_tables(&text, &[key.as_str()], &removed_inner)?;
        }
    }

    let mut document: DocumentMut = text.parse()?;
    add_empty_tables(&mut document, new);
    update_table(document.as_table_mut(), new);
    Ok(document.to_string())
}

/// Adds an empty table at the end of the document for each object in `new` that has no table.
fn add_empty_tables(document: &mut DocumentMut, new: &Map<String, Value>) {
    let first_prefix = new_table_prefix(document);
    let mut has_new_table = false;
    for (key, value) in new {
        if document.contains_key(key) || !value.is_object() {
            continue;
        }
        let mut table = Table::new();
        let prefix = if has_new_table { "\n" } else { first_prefix.as_str() };
        table.decor_mut().set_prefix(prefix);
        document.insert(key, Item::Table(table));
        has_new_table = true;
    }
    if has_new_table {
        // The comments from the end of the document are now in the prefix of the first new table.
        document.set_trailing("");
    }
}

/// Returns the names of tables that are in `old` but not in `new`.
fn names_of_removed_tables(old: &Map<String, Value>, new: &Map<String, Value>) -> Vec<String> {
    let mut names = Vec::new();
    for (name, value) in old {
        if value.is_object() && !new.contains_key(name) {
            names.push(name.clone());
        }
    }
    names
}

/// Changes the values of a table to `new`.
fn update_table(table: &mut dyn TableLike, new: &Map<String, Value>) {
    let keys: Vec<String> = table.iter().map(|(key, _)| key.to_owned()).collect();
    for key in keys {
        if !new.contains_key(&key) {
            table.remove(&key);
        }
    }
    for (key, new_value) in new {
        let Some(item) = table.get_mut(key) else {
            table.insert(key, Item::Value(toml_value(new_value)));
            continue;
        };
        if let Value::Object(inner_values) = new_value
            && let Some(inner_table) = item.as_table_like_mut()
        {
            update_table(inner_table, inner_values);
        } else if let Item::Value(old_value) = item
            && !is_same(old_value, new_value)
        {
            // Keep the decor, because it contains the comments next to the value.
            let decor = old_value.decor().clone();
            *old_value = toml_value(new_value);
            *old_value.decor_mut() = decor;
        }
    }
}

/// Returns whether a TOML value is the same as a JSON value. Floats and dates are never changed, so
/// they are the same as any value.
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
