//! Writes equal JSON values as equal texts.

use std::fmt::Write;

use serde_json::Value;

/// Writes `value` as JSON text without spaces. The keys of each object are sorted by their bytes.
///
/// Equal values have equal texts, whatever the order of their keys. Different values have different
/// texts. `1` and `1.0` are different.
pub fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write_value(value, &mut text);
    text
}

/// Appends a value to `text`. Writing into a `String` can't fail, so the results are ignored.
fn write_value(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_unstable_by_key(|(key, _)| *key);
            text.push('{');
            for (index, (key, value)) in fields.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                let _ = write!(text, "{}:", serde_json::json!(key));
                write_value(value, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_value(item, text);
            }
            text.push(']');
        }
        scalar => {
            let _ = write!(text, "{scalar}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical_text(text: &str) -> String {
        canonical(&serde_json::from_str(text).expect("valid JSON"))
    }

    #[test]
    fn order_of_keys_does_not_matter() {
        assert_eq!(
            canonical_text(r#"{"a":1,"b":{"x":[1,2],"y":null}}"#),
            canonical_text(r#"{ "b": {"y":null, "x":[1,2]}, "a":1 }"#)
        );
    }

    #[test]
    fn different_values_have_different_forms() {
        let all = [
            "null",
            "false",
            "true",
            "0",
            "1",
            "1.0",
            "-1",
            "\"\"",
            "\"1\"",
            "\"null\"",
            "[]",
            "{}",
            "[null]",
            "[[]]",
            "[1,2]",
            "[2,1]",
            "[12]",
            "[\"1,2\"]",
            "[\"a\",\"b\"]",
            "[\"ab\"]",
            "[\"ab\",\"\"]",
            "{\"a\":1}",
            "{\"a\":\"1\"}",
            "{\"a\":[1]}",
            "{\"a\":1,\"b\":1}",
            "[\"a\",1]",
            "{\"ab\":1}",
            "{\"\":{}}",
            "[[],[]]",
            "[[[]]]",
            "18446744073709551615",
            "1e300",
        ];
        for (index, one) in all.iter().enumerate() {
            for other in &all[index + 1..] {
                assert_ne!(canonical_text(one), canonical_text(other), "{one} and {other}");
            }
        }
    }
}
