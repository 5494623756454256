//! Writes a value as TOML on one line, without terminal control characters.

use serde_json::Value;
use toolhold_contract::text::neutral;

/// Writes a value as TOML on one line, without terminal control characters.
pub fn inline(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let written: Vec<String> = items.iter().map(inline).collect();
            format!("[{}]", written.join(", "))
        }
        Value::Object(table) => {
            let pairs: Vec<String> = table
                .iter()
                .map(|(key, value)| format!("{} = {}", quote_key(key), inline(value)))
                .collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        // JSON's escapes are also valid in TOML, but JSON leaves some terminal control characters
        // as they are. `escape` escapes these.
        Value::String(_) => value.to_string().chars().map(escape).collect(),
        other => other.to_string(),
    }
}

fn quote_key(key: &str) -> String {
    let is_bare = !key.is_empty()
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if is_bare { key.to_owned() } else { inline(&Value::String(key.to_owned())) }
}

fn escape(c: char) -> String {
    let text = c.to_string();
    if neutral(&text) == text { text } else { format!("\\U{:08X}", u32::from(c)) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_written_as_toml() {
        let check = |value: Value, expected: &str| assert_eq!(inline(&value), expected);
        check(json!(30), "30");
        check(json!(["a\"b", true]), r#"["a\"b", true]"#);
        check(json!({ "path": "b", "access": "read" }), r#"{ path = "b", access = "read" }"#);
        check(json!({ "a b": "\n" }), r#"{ "a b" = "\n" }"#);
        check(json!("\u{1b}[31m\u{202e}\u{7f}"), r#""\u001b[31m\U0000202E\U0000007F""#);
    }
}
