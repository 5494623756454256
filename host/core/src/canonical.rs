//! Arguments in one form, whatever the order in which a caller wrote them.

use std::fmt::Write;

use serde_json::Value;

/// A JSON value as text: without spaces, the keys of every object in the order of their bytes. Equal values have equal texts.
pub(crate) fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_unstable_by_key(|(key, _)| *key);
            text.push('{');
            for (index, (key, value)) in fields.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                // Writing into a `String` does not fail.
                let _ = write!(text, "{}:", serde_json::json!(key));
                write(value, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write(item, text);
            }
            text.push(']');
        }
        plain => {
            let _ = write!(text, "{plain}");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_order_of_keys_makes_no_difference_and_everything_else_does() {
        let one = json!({ "b": [{ "d": 1, "c": "x\"y\n" }, null], "a": true });
        let other = json!({ "a": true, "b": [{ "c": "x\"y\n", "d": 1 }, null] });
        assert_eq!(canonical(&one), r#"{"a":true,"b":[{"c":"x\"y\n","d":1},null]}"#);
        assert_eq!(canonical(&one), canonical(&other));
        for different in [json!({ "a": true, "b": [null, { "c": "x\"y\n", "d": 1 }] }), json!({ "a": true }), json!({ "a": "true" })] {
            assert_ne!(canonical(&one), canonical(&different));
        }
    }
}
