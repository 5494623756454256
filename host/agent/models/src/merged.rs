//! Joins JSON objects that arrive in pieces. The bytes of values stay unchanged, and strings are
//! joined without decoding their escapes.

use std::fmt::Write as _;

use serde_json::value::RawValue;

use crate::raw::{Fields, RawJson, items, string_content};

/// The fields of list items that arrive in pieces. Each piece repeats the other fields.
const FIELDS_IN_PIECES: [&str; 6] = ["arguments", "content", "data", "summary", "text", "thinking"];

#[derive(Clone, Debug, Default)]
pub(crate) struct Merged(Vec<(String, Value)>);

#[derive(Clone, Debug)]
enum Value {
    Raw(String),
    Text(String),
    /// The items with an `index`, and the other items.
    List(Vec<Merged>, Vec<String>),
}

impl Merged {
    pub(crate) fn new(fields: &Fields<'_>) -> Self {
        let mut merged = Self::default();
        for (key, value) in fields.iter() {
            merged.set(key, value);
        }
        merged
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(key, _)| key.as_str())
    }

    /// Checks whether a field has a value other than `null`.
    pub(crate) fn has(&self, key: &str) -> bool {
        for (known, value) in &self.0 {
            if known == key {
                return match value {
                    Value::Raw(raw) => raw != "null",
                    Value::Text(_) | Value::List(..) => true,
                };
            }
        }
        false
    }

    /// Sets a field to a value, which may be the first piece of a string or a list.
    pub(crate) fn set(&mut self, key: &str, value: &RawValue) {
        let value = if let Some(text) = string_content(value) {
            Value::Text(text.to_owned())
        } else if value.get().starts_with('[') {
            let mut list = Value::List(Vec::new(), Vec::new());
            list.extend(value);
            list
        } else {
            Value::Raw(value.get().to_owned())
        };
        self.put(key, value);
    }

    pub(crate) fn set_text(&mut self, key: &str, text: &str) {
        let quoted = serde_json::Value::from(text).to_string();
        self.put(key, Value::Text(quoted[1..quoted.len() - 1].to_owned()));
    }

    pub(crate) fn set_json(&mut self, key: &str, json: String) {
        self.put(key, Value::Raw(json));
    }

    /// Adds a piece of a field. Strings and lists are extended. Other values replace the earlier
    /// value, except `null`.
    pub(crate) fn add(&mut self, key: &str, value: &RawValue) {
        if value.get() == "null" && self.get_mut(key).is_some() {
            return;
        }
        match (self.get_mut(key), string_content(value)) {
            (Some(Value::Text(text)), Some(more)) => text.push_str(more),
            (Some(list @ Value::List(..)), _) if value.get().starts_with('[') => list.extend(value),
            _ => self.set(key, value),
        }
    }

    /// Adds an item to the list in a field. A value that isn't a list is replaced by a list.
    pub(crate) fn push(&mut self, key: &str, item: &RawValue) {
        if !matches!(self.get_mut(key), Some(Value::List(..))) {
            self.put(key, Value::List(Vec::new(), Vec::new()));
        }
        if let Some(list) = self.get_mut(key) {
            list.push(item);
        }
    }

    pub(crate) fn json(&self) -> RawJson {
        let mut json = String::new();
        self.write(&mut json);
        // This fails only for a text that ended within an escape. An empty object then replaces the
        // invalid JSON.
        RawJson::new(json).unwrap_or_else(|_| RawJson::from_value(&serde_json::json!({})))
    }

    fn write(&self, out: &mut String) {
        out.push('{');
        for (index, (key, value)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(out, "{comma}{}:", serde_json::Value::from(key.as_str()));
            match value {
                Value::Raw(raw) => out.push_str(raw),
                // The text still has its escapes.
                Value::Text(text) => {
                    let _ = write!(out, "\"{text}\"");
                }
                Value::List(indexed, other) => {
                    let mut comma = "";
                    out.push('[');
                    for item in indexed {
                        out.push_str(comma);
                        item.write(out);
                        comma = ",";
                    }
                    for item in other {
                        out.push_str(comma);
                        out.push_str(item);
                        comma = ",";
                    }
                    out.push(']');
                }
            }
        }
        out.push('}');
    }

    fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.0.iter_mut().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    fn put(&mut self, key: &str, value: Value) {
        match self.get_mut(key) {
            Some(known) => *known = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }
}

impl Value {
    fn extend(&mut self, list: &RawValue) {
        for item in items(list) {
            self.push(item);
        }
    }

    /// Adds an item to a list, or joins the item with the earlier item of the same `index`.
    fn push(&mut self, item: &RawValue) {
        let Self::List(indexed, other) = self else { return };
        let fields = Fields::parse(item.get()).unwrap_or_default();
        let Some(index) = fields.number("index") else {
            return other.push(item.get().to_owned());
        };
        let Some(known) = indexed.iter_mut().find(|known| known.index() == Some(index)) else {
            return indexed.push(Merged::new(&fields));
        };
        for (key, value) in fields.iter() {
            if FIELDS_IN_PIECES.contains(&key) {
                known.add(key, value);
            } else if value.get() != "null" {
                known.set(key, value);
            }
        }
    }
}

impl Merged {
    fn index(&self) -> Option<u64> {
        self.0.iter().find_map(|(key, value)| match value {
            Value::Raw(raw) if key == "index" => raw.parse().ok(),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(pieces: &[&str]) -> String {
        let mut merged = Merged::default();
        for piece in pieces {
            let fields = Fields::parse(piece).expect("it is an object");
            for (key, value) in fields.iter() {
                merged.add(key, value);
            }
        }
        merged.json().get().to_owned()
    }

    #[test]
    fn pieces_are_joined_in_their_own_bytes() {
        let whole = merged(&[
            r#"{"a":"x\u00e9\ud83d","n":1.0,"o":{"k" : 1},"z":null}"#,
            r#"{"a":"\ude00\/é","n":2.50,"o":{},"z":null,"a b":[1, {"q":2}]}"#,
            r#"{"a b":[ 3 ],"n":null}"#,
        ]);
        assert_eq!(
            whole,
            r#"{"a":"x\u00e9\ud83d\ude00\/é","n":2.50,"o":{},"z":null,"a b":[1,{"q":2},3]}"#
        );
    }

    #[test]
    fn list_items_with_an_index_are_merged() {
        let whole = merged(&[
            r#"{"d":[{"type":"reasoning.text","text":"ha","index":0,"signature":null}]}"#,
            r#"{"d":[{"type":"reasoning.text","text":"ha","index":0,"signature":"s"}]}"#,
            r#"{"d":[{"type":"reasoning.encrypted","data":"abc","index":1}]}"#,
        ]);
        assert_eq!(
            whole,
            r#"{"d":[{"type":"reasoning.text","text":"haha","index":0,"signature":"s"},{"type":"reasoning.encrypted","data":"abc","index":1}]}"#
        );
    }
}
