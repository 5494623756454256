//! Adds or removes servers in an MCP client's file. Other text stays.
//!
//! The new text is parsed, and the change is refused if any value isn't as expected.

use jsonc_parser::cst::{CstInputValue, CstObject};
use serde_json::{Map, Value};
use toml_edit::{DocumentMut, Item, Table, TableLike};

use crate::client_files::error::ClientFileError;
use crate::client_files::known::Format;
use crate::client_files::remove::without_tables;
use crate::client_files::values::{json_values, parse_json, toml_values};

/// Fields that say how to reach a server. Such a field is removed if the new entry lacks it.
const TRANSPORT_FIELDS: [&str; 8] =
    ["type", "command", "args", "url", "serverUrl", "httpUrl", "headers", "bearer_token_env_var"];

/// Adds or changes a server in a file's text. Returns the new text.
///
/// # Errors
///
/// Returns an error if the text is invalid or values outside of the server's entry would change.
pub fn edit(
    format: Format,
    before: &str,
    table: &str,
    name: &str,
    entry: &Value,
) -> Result<String, ClientFileError> {
    match format {
        Format::Json => edit_json(before, table, name, entry),
        Format::Toml => edit_toml(before, table, name, entry),
    }
}

/// Adds or changes a server in a JSON text. Unchanged parts of the text stay.
fn edit_json(
    before: &str,
    table: &str,
    name: &str,
    entry: &Value,
) -> Result<String, ClientFileError> {
    let root = parse_json(before)?;
    let old_values = json_values(before)?;
    let expected =
        with_server(old_values.clone(), table, name, entry).ok_or_else(|| not_an_object(table))?;
    if old_values == expected {
        return Ok(before.to_owned());
    }

    let servers = root
        .object_value_or_create()
        .and_then(|object| object.object_value_or_create(table))
        .ok_or_else(|| not_an_object(table))?;
    put_json(&servers, name, entry);
    let mut after = root.to_string();
    if !after.ends_with('\n') {
        after.push('\n');
    }

    match parse_json(&after)?.to_serde_value() {
        Some(values) if values == expected => Ok(after),
        _ => Err(ClientFileError::PutJson { table: table.to_owned(), name: name.to_owned() }),
    }
}

/// Adds or changes the entry of a server in the table `servers`.
fn put_json(servers: &CstObject, name: &str, entry: &Value) {
    let Some(property) = servers.get(name) else {
        servers.append(name, json_input(entry));
        return;
    };
    match property.object_value() {
        Some(old_entry) => change_json(&old_entry, entry),
        None => property.set_value(json_input(entry)),
    }
}

/// Removes servers from a file's text. Returns the new text.
///
/// # Errors
///
/// Returns an error if the text is invalid or values outside of the servers would change.
pub fn without(
    format: Format,
    before: &str,
    table: &str,
    names: &[String],
) -> Result<String, ClientFileError> {
    match format {
        Format::Json => without_json(before, table, names),
        Format::Toml => without_tables(before, &[table], names),
    }
}

/// Removes servers from a JSON text.
fn without_json(before: &str, table: &str, names: &[String]) -> Result<String, ClientFileError> {
    let mut expected = json_values(before)?;
    if let Some(servers) = expected.get_mut(table).and_then(Value::as_object_mut) {
        servers.retain(|name, _| !names.contains(name));
    }
    let root = parse_json(before)?;
    if let Some(object) = root.object_value()
        && let Some(servers) = object.object_value(table)
    {
        for property in servers.properties() {
            if property.decoded_name().is_some_and(|name| names.contains(&name)) {
                property.remove();
            }
        }
    }
    let after = root.to_string();
    match json_values(&after) {
        Ok(values) if values == expected => Ok(after),
        _ => Err(ClientFileError::TakeOut { what: "servers", table: table.to_owned() }),
    }
}

/// Puts the fields of `entry` into `old_entry`. Removes old transport fields, such as `url`.
fn change_json(old_entry: &CstObject, entry: &Value) {
    let Some(entry) = entry.as_object() else { return };
    for property in old_entry.properties() {
        let Some(name) = property.decoded_name() else { continue };
        if TRANSPORT_FIELDS.contains(&name.as_str()) && !entry.contains_key(&name) {
            property.remove();
        }
    }
    for (key, value) in entry {
        if let Some(property) = old_entry.get(key) {
            property.set_value(json_input(value));
        } else {
            old_entry.append(key, json_input(value));
        }
    }
}

/// Adds a server's entry to `table` in the values of a file, or changes the entry like
/// [`change_json`]. Returns `None` if the values or the table aren't an object.
fn with_server(mut values: Value, table: &str, name: &str, entry: &Value) -> Option<Value> {
    let root = values.as_object_mut()?;
    let servers = root.entry(table).or_insert_with(|| Value::Object(Map::new())).as_object_mut()?;
    if let Some(Value::Object(old_fields)) = servers.get_mut(name)
        && let Value::Object(new_fields) = entry
    {
        old_fields.retain(|key, _| {
            let is_transport_field = TRANSPORT_FIELDS.contains(&key.as_str());
            let is_outdated = is_transport_field && !new_fields.contains_key(key);
            !is_outdated
        });
        old_fields.extend(new_fields.clone());
    } else {
        servers.insert(name.to_owned(), entry.clone());
    }
    Some(values)
}

fn not_an_object(table: &str) -> ClientFileError {
    ClientFileError::NotAnObject { table: table.to_owned() }
}

/// Converts a value for the library that edits JSON.
pub(crate) fn json_input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(bool) => CstInputValue::Bool(*bool),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(values) => CstInputValue::Array(values.iter().map(json_input).collect()),
        Value::Object(fields) => CstInputValue::Object(
            fields.iter().map(|(key, value)| (key.clone(), json_input(value))).collect(),
        ),
    }
}

/// Adds or changes a server in a TOML text. Unchanged parts of the text stay.
fn edit_toml(
    before: &str,
    table: &str,
    name: &str,
    entry: &Value,
) -> Result<String, ClientFileError> {
    let old_values = toml_values(before)?;
    let expected =
        with_server(old_values.clone(), table, name, entry).ok_or_else(|| not_an_object(table))?;
    if old_values == expected {
        return Ok(before.to_owned());
    }

    let mut document: DocumentMut = before.parse()?;
    let table_prefix = new_table_prefix(&document);
    let mut new_servers = Table::new();
    // The table of the servers needs no header of its own.
    new_servers.set_implicit(true);
    let item = document.entry(table).or_insert(Item::Table(new_servers));
    let is_in_one_line = item.is_inline_table();
    let servers = item.as_table_like_mut().ok_or_else(|| not_an_object(table))?;
    match servers.get_mut(name).and_then(Item::as_table_like_mut) {
        Some(old_entry) => change_toml(old_entry, entry),
        None if is_in_one_line => drop(servers.insert(name, Item::Value(toml_value(entry)))),
        None => {
            let mut new_entry = Table::new();
            change_toml(&mut new_entry, entry);
            new_entry.decor_mut().set_prefix(table_prefix);
            servers.insert(name, Item::Table(new_entry));
            // The comments at the end are now above the new table.
            document.set_trailing("");
        }
    }

    let after = document.to_string();
    match toml_values(&after) {
        Ok(values) if values == expected => Ok(after),
        _ => Err(ClientFileError::PutToml { table: table.to_owned(), name: name.to_owned() }),
    }
}

/// Returns the text above an appended table, including the comments at the end of `document`.
pub fn new_table_prefix(document: &DocumentMut) -> String {
    // A `DocumentMut` owns its text, so `as_str` returns `Some`.
    let comments = document.trailing().as_str().unwrap_or_default().trim_end();
    if !comments.is_empty() {
        return format!("{comments}\n\n");
    }
    if document.is_empty() { String::new() } else { "\n".to_owned() }
}

/// Puts the fields of `entry` into `old_entry`. Removes old transport fields, such as `url`.
fn change_toml(old_entry: &mut dyn TableLike, entry: &Value) {
    let Some(entry) = entry.as_object() else { return };
    for field in TRANSPORT_FIELDS {
        if !entry.contains_key(field) {
            old_entry.remove(field);
        }
    }
    for (key, value) in entry {
        if let Some(old_value) = old_entry.get_mut(key).and_then(Item::as_value_mut) {
            // Keep the decor, because it contains the comments next to the value.
            let decor = old_value.decor().clone();
            *old_value = toml_value(value);
            *old_value.decor_mut() = decor;
        } else {
            old_entry.insert(key, Item::Value(toml_value(value)));
        }
    }
}

/// Converts a value to TOML. Null becomes an empty string, because TOML has no null. A float
/// becomes zero, because entries and settings contain only integers.
pub(crate) fn toml_value(value: &Value) -> toml_edit::Value {
    match value {
        Value::Null => "".into(),
        Value::Bool(bool) => (*bool).into(),
        Value::Number(number) => number.as_i64().unwrap_or_default().into(),
        Value::String(text) => text.as_str().into(),
        Value::Array(values) => toml_edit::Value::Array(values.iter().map(toml_value).collect()),
        Value::Object(fields) => toml_edit::Value::InlineTable(
            fields.iter().map(|(key, value)| (key.as_str(), toml_value(value))).collect(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry() -> Value {
        json!({ "command": "/usr/bin/toolhold", "args": ["serve"] })
    }

    #[track_caller]
    fn gives(before: &str, after: &str) {
        let edited = json_of(before).unwrap_or_else(|why| panic!("{why}: {before}"));
        assert_eq!(edited, after);
        assert_eq!(json_of(&edited).expect("it is changed"), after, "it is done once");
    }

    fn json_of(before: &str) -> Result<String, ClientFileError> {
        edit_json(before, "mcpServers", "toolhold", &entry())
    }

    #[test]
    fn rest_of_a_file_is_kept() {
        let own = "\"toolhold\": {\n      \"command\": \"/usr/bin/toolhold\",\n      \"args\": [\"serve\"]\n    }";
        gives("", &format!("{{\n  \"mcpServers\": {{\n    {own}\n  }}\n}}\n"));
        // A trailing comma is written only if the file has them.
        let with_commas = own.replace("\"serve\"]\n", "\"serve\"],\n");
        let before = "{\n  // mine\n  \"theme\": \"x\", /* so */\n  \"mcpServers\": {\n    \"other\": { \"command\": \"o\" }, // it\n";
        gives(&format!("{before}  }},\n}}\n"), &format!("{before}    {with_commas},\n  }},\n}}\n"));
        gives(
            "{ \"mcpServers\": { \"toolhold\": { \"command\": \"old\", \"args\": [\"serve\"], \"env\": { \"A\": \"b\" } } } }\n",
            "{ \"mcpServers\": { \"toolhold\": { \"command\": \"/usr/bin/toolhold\", \"args\": [\"serve\"], \"env\": { \"A\": \"b\" } } } }\n",
        );
        gives(
            "{ \"mcpServers\": { \"toolhold\": { \"command\": \"/usr/bin/toolhold\", \"args\": [\"serve\"] } } }",
            "{ \"mcpServers\": { \"toolhold\": { \"command\": \"/usr/bin/toolhold\", \"args\": [\"serve\"] } } }",
        );
    }

    #[test]
    fn new_transport_replaces_the_old_one() {
        let before = "{ \"mcpServers\": { \"toolhold\": { \"url\": \"http://x\", \"headers\": {}, \"disabled\": true } } }";
        let after: Value =
            serde_json::from_str(&json_of(before).expect("it is changed")).expect("it is JSON");
        assert_eq!(
            after["mcpServers"]["toolhold"],
            json!({ "disabled": true, "command": "/usr/bin/toolhold", "args": ["serve"] })
        );
    }

    #[test]
    fn servers_are_taken_out_and_the_rest_is_kept() {
        let names = ["a".to_owned(), "c".to_owned()];
        let before = "{\n  // mine\n  \"mcpServers\": {\n    \"a\": { \"command\": \"x\" },\n    \"b\": {}, // stays\n    \"c\": {}\n  }\n}\n";
        let after = without(Format::Json, before, "mcpServers", &names).expect("it is changed");
        assert!(after.contains("// mine") && after.contains("// stays"), "{after}");
        let left = json_values(&after).expect("it is JSON");
        assert_eq!(left, json!({ "mcpServers": { "b": {} } }));
        let none = without(Format::Json, "{}", "mcpServers", &names).expect("it is JSON");
        assert_eq!(none, "{}");
        let before = "# mine\nx = 1\n[mcp_servers.a]\ncommand = \"x\"\n[mcp_servers.a.env]\nK = \"v\"\n[mcp_servers.b]\n";
        let after = without(Format::Toml, before, "mcp_servers", &names).expect("it is changed");
        assert_eq!(after, "# mine\nx = 1\n[mcp_servers.b]\n");
        let last = "x = 1\n[mcp_servers.a]\ncommand = \"x\"\n";
        let none = without(Format::Toml, last, "mcp_servers", &names).expect("it is TOML");
        assert_eq!(none, "x = 1\n");
    }

    #[test]
    fn unreadable_file_is_refused_with_its_line() {
        for (wrong, line) in [
            ("{\n  \"a\": 1,\n  b\n}", "line 3"),
            ("{\n\"a\": 'x' }", "line 2"),
            ("{\n\"a\": 1", "line 1"),
        ] {
            let why = json_of(wrong).expect_err(wrong).to_string();
            assert!(why.starts_with(line), "{wrong}: {why}");
        }
        for wrong in ["[]", "7", "{ \"mcpServers\": [] }"] {
            assert!(json_of(wrong).is_err(), "{wrong}");
        }
        assert!(
            json_of("{ \"mcpServers\": {}, \"mcpServers\": { \"x\": {} } }").is_err(),
            "which of the two counts?"
        );
        assert!(json_of(&"[".repeat(100_000)).is_err());
        let why = edit_toml("a = 1\nb = \n", "mcp_servers", "toolhold", &entry())
            .expect_err("it is no TOML");
        assert!(why.to_string().starts_with("line 2"), "{why}");
    }

    #[test]
    fn new_transport_replaces_the_old_one_in_toml() {
        let before = "[mcp_servers.toolhold] # mine\ncommand = \"old\" # here\nurl = \"http://x\"\nenabled = true\n\n[mcp_servers.other]\n";
        assert_eq!(
            edit_toml(before, "mcp_servers", "toolhold", &entry()).expect("it is changed"),
            "[mcp_servers.toolhold] # mine\ncommand = \"/usr/bin/toolhold\" # here\nenabled = true\nargs = [\"serve\"]\n\n[mcp_servers.other]\n"
        );
    }

    #[test]
    fn table_is_appended() {
        let of = |before: &str| edit_toml(before, "mcp_servers", "toolhold", &entry());
        let own = "[mcp_servers.toolhold]\ncommand = \"/usr/bin/toolhold\"\nargs = [\"serve\"]\n";
        assert_eq!(of("").expect("it is put in"), own);
        let before = "# mine\nmodel = \"x\" # so\n[mcp_servers.other]\ncommand = \"o\"";
        let after = of(before).expect("it is put behind");
        assert_eq!(after, format!("{before}\n\n{own}"));
        assert_eq!(of(&after).expect("it is there"), after, "it is done once");
        assert!(of("mcp_servers = 3\n").is_err());
        assert_eq!(
            of("mcp_servers = { other = { command = \"o\" } } # so\n").expect("it is put in"),
            "mcp_servers = { other = { command = \"o\" } , toolhold = { command = \"/usr/bin/toolhold\", args = [\"serve\"] } } # so\n"
        );
        assert_eq!(
            of("a = 1\n\n# the end").expect("it is put in"),
            format!("a = 1\n\n# the end\n\n{own}")
        );
        let odd = json!({ "command": "a\"b\\c\nd", "args": [] });
        let odd = edit_toml("", "mcp_servers", "toolhold", &odd).expect("it can be written");
        assert_eq!(
            ::toml::from_str::<::toml::Table>(&odd).expect("it is TOML")["mcp_servers"]["toolhold"]
                ["command"]
                .as_str(),
            Some("a\"b\\c\nd")
        );
    }
}
