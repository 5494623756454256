//! JSON in one form, so that what means the same has the same digest.

use serde_json::Value;

/// `value` as bytes: the same for values that are equal, whatever order their keys stand in, and different for all others.
///
/// Every value begins with its type, and every text and list with its length, so that no two can run into each other. A whole number and a
/// fraction differ, as they do in JSON text.
pub fn canonical(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    put(value, &mut bytes);
    bytes
}

fn put(value: &Value, bytes: &mut Vec<u8>) {
    match value {
        Value::Null => bytes.push(b'n'),
        Value::Bool(false) => bytes.push(b'f'),
        Value::Bool(true) => bytes.push(b't'),
        Value::Number(number) => put_text(b'#', &number.to_string(), bytes),
        Value::String(text) => put_text(b'"', text, bytes),
        Value::Array(items) => {
            put_length(b'[', items.len(), bytes);
            items.iter().for_each(|item| put(item, bytes));
        }
        Value::Object(fields) => {
            put_length(b'{', fields.len(), bytes);
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_unstable_by_key(|(key, _)| *key);
            for (key, value) in fields {
                put_text(b'"', key, bytes);
                put(value, bytes);
            }
        }
    }
}

fn put_text(kind: u8, text: &str, bytes: &mut Vec<u8>) {
    put_length(kind, text.len(), bytes);
    bytes.extend_from_slice(text.as_bytes());
}

fn put_length(kind: u8, length: usize, bytes: &mut Vec<u8>) {
    bytes.push(kind);
    bytes.extend_from_slice(&(length as u64).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<u8> {
        canonical(&serde_json::from_str(text).expect("it is JSON"))
    }

    #[test]
    fn the_order_of_keys_does_not_matter() {
        assert_eq!(of(r#"{"a":1,"b":{"x":[1,2],"y":null}}"#), of(r#"{ "b": {"y":null, "x":[1,2]}, "a":1 }"#));
    }

    #[test]
    fn what_differs_has_another_form() {
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
                assert_ne!(of(one), of(other), "{one} and {other}");
            }
        }
    }
}
