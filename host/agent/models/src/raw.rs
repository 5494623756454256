//! Stores JSON byte for byte, and reads single fields.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// A JSON value with its original bytes. It is serialised as a string, which keeps the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct RawJson(Box<str>);

impl RawJson {
    /// Stores a JSON value as text. Unpaired surrogates are replaced, because parsers refuse them.
    ///
    /// # Errors
    ///
    /// Fails if the text isn't one JSON value.
    pub fn new(text: impl Into<String>) -> Result<Self, serde_json::Error> {
        let text = text.into();
        serde_json::from_str::<&RawValue>(&text)?;
        Ok(Self(readable(text.trim_ascii()).into()))
    }

    /// Stores the JSON of a value.
    pub fn from_value(value: &serde_json::Value) -> Self {
        Self(value.to_string().into())
    }

    /// Returns the JSON.
    pub fn get(&self) -> &str {
        &self.0
    }

    pub(crate) fn fields(&self) -> Fields<'_> {
        Fields::parse(&self.0).unwrap_or_default()
    }
}

impl From<&RawValue> for RawJson {
    fn from(value: &RawValue) -> Self {
        Self(readable(value.get()).into())
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::new(text).map_err(|error| de::Error::custom(format!("the stored JSON: {error}")))
    }
}

/// Replaces the escapes of unpaired surrogates by `\ufffd`, because parsers refuse unpaired
/// surrogates.
pub(crate) fn readable(json: &str) -> Cow<'_, str> {
    if !json.contains("\\ud") && !json.contains("\\uD") {
        return json.into();
    }
    let mut repaired = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        repaired.push_str(before);
        let length = match (escaped_unit(escape, 0), escaped_unit(escape, UNIT_BYTES)) {
            // A high and a low surrogate.
            (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => 2 * UNIT_BYTES,
            // An unpaired surrogate.
            (Some(0xd800..0xe000), _) => {
                repaired.push_str("\\ufffd");
                rest = &escape[UNIT_BYTES..];
                continue;
            }
            (Some(_), _) => UNIT_BYTES,
            // Any other escape is a backslash and one character.
            (None, _) => "\\".len() + escape[1..].chars().next().map_or(0, char::len_utf8),
        };
        repaired.push_str(&escape[..length]);
        rest = &escape[length..];
    }
    repaired.push_str(rest);
    repaired.into()
}

/// The bytes of an escape such as `\ud83d`.
const UNIT_BYTES: usize = 6;

/// Returns the number of an escape such as `\ud83d` at `at`, if there is one.
fn escaped_unit(json: &str, at: usize) -> Option<u16> {
    let digits = json.get(at..)?.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok()
}

/// The fields of a JSON object in their order.
///
/// Values are parsed when they are used. `null` and a value of an unexpected type count as missing,
/// because some servers write `null` for missing fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields<'j>(Vec<(Cow<'j, str>, &'j RawValue)>);

impl<'j> Fields<'j> {
    pub(crate) fn parse(text: &'j str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Parses an object, or the first object in a list, because Gemini sends errors in a list.
    pub(crate) fn parse_first(text: &'j str) -> Option<Self> {
        if let Some(fields) = Self::parse(text) {
            return Some(fields);
        }
        let list: Vec<&RawValue> = serde_json::from_str(text).ok()?;
        Self::parse(list.first()?.get())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &'j RawValue)> {
        self.0.iter().map(|(key, value)| (&**key, *value))
    }

    /// Returns the original value of a field. If a name is repeated, the last field applies.
    pub(crate) fn raw(&self, name: &str) -> Option<&'j RawValue> {
        let (_, value) = self.0.iter().rev().find(|(key, _)| key == name)?;
        if value.get() == "null" { None } else { Some(*value) }
    }

    pub(crate) fn text(&self, name: &str) -> Option<Cow<'j, str>> {
        self.raw(name).and_then(string)
    }

    pub(crate) fn nonempty_text(&self, name: &str) -> Option<Cow<'j, str>> {
        self.text(name).filter(|text| !text.is_empty())
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        number(self.raw(name)?)
    }

    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.raw(name).is_some_and(|value| value.get() == "true")
    }

    pub(crate) fn object(&self, name: &str) -> Option<Fields<'j>> {
        self.raw(name).and_then(|value| Self::parse(value.get()))
    }

    pub(crate) fn items(&self, name: &str) -> Vec<&'j RawValue> {
        self.raw(name).map(items).unwrap_or_default()
    }
}

pub(crate) fn items(value: &RawValue) -> Vec<&RawValue> {
    serde_json::from_str(value.get()).unwrap_or_default()
}

/// Reads a number of at least 0. Floats are rounded down, because some servers write integers as
/// floats.
fn number(value: &RawValue) -> Option<u64> {
    let text = value.get();
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let float: f64 = text.parse().ok()?;
    if float >= 0.0 { Some(float as u64) } else { None }
}

/// Decodes a JSON string. An unpaired surrogate becomes U+FFFD, because the string is read as
/// bytes. Returns `None` if the value isn't a string.
pub(crate) fn string(value: &RawValue) -> Option<Cow<'_, str>> {
    struct Text;
    impl<'de> Visitor<'de> for Text {
        type Value = Cow<'de, str>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }

        fn visit_borrowed_bytes<E: de::Error>(self, bytes: &'de [u8]) -> Result<Self::Value, E> {
            Ok(String::from_utf8_lossy(bytes))
        }

        fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
            Ok(Cow::Owned(String::from_utf8_lossy(bytes).into_owned()))
        }
    }
    if !value.get().starts_with('"') {
        return None;
    }
    serde_json::Deserializer::from_str(value.get()).deserialize_bytes(Text).ok()
}

/// Returns the characters between the quotes, without decoding.
pub(crate) fn string_content(value: &RawValue) -> Option<&str> {
    value.get().strip_prefix('"')?.strip_suffix('"')
}

impl<'de: 'j, 'j> Deserialize<'de> for Fields<'j> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some((Key(key), value)) = map.next_entry()? {
                    fields.push((key, value));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// A field's name. Only names with escapes are copied.
#[derive(Deserialize)]
struct Key<'j>(#[serde(borrow)] Cow<'j, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_they_were_written() {
        let text = r#" {"a": {"x" : 1.0}, "n":null,"\u0062":"\ud83d","n2":[1, {}],"a":"é\n"} "#;
        let fields = Fields::parse(text).expect("it is an object");
        assert_eq!(fields.text("a").as_deref(), Some("é\n"));
        assert_eq!(fields.iter().next().map(|(_, raw)| raw.get()), Some(r#"{"x" : 1.0}"#));
        assert!(fields.raw("n").is_none() && fields.raw("other").is_none());
        assert!(fields.text("b").is_some_and(|text| text.contains('\u{fffd}')));
        let items: Vec<&str> = fields.items("n2").iter().map(|item| item.get()).collect();
        assert_eq!(items, ["1", "{}"]);
        for other in ["[]", "1", "{", "", "{}x"] {
            assert!(Fields::parse(other).is_none(), "{other}");
        }
    }

    #[test]
    fn numbers_are_read_in_every_form() {
        let fields = Fields::parse(r#"{"a":7,"b":7.9,"c":"7","d":-1,"e":1e300}"#).expect("is one");
        assert_eq!((fields.number("a"), fields.number("b")), (Some(7), Some(7)));
        assert_eq!((fields.number("c"), fields.number("d")), (None, None));
        assert_eq!(fields.number("e"), Some(u64::MAX));
    }

    #[test]
    fn half_a_surrogate_pair_is_replaced_and_nothing_else() {
        for (written, readable) in [
            (r#""\ud83d\ude00\u00e9""#, r#""\ud83d\ude00\u00e9""#),
            (r#""\ud83d""#, r#""\ufffd""#),
            (r#""a\uD83Dé\ude00\\ud83d""#, r#""a\ufffdé\ufffd\\ud83d""#),
            (r#""\ud83d\ud83d\ude00\n""#, r#""\ufffd\ud83d\ude00\n""#),
        ] {
            let raw = RawJson::new(written).expect("it is JSON");
            assert_eq!(raw.get(), readable);
            serde_json::from_str::<String>(raw.get()).expect("it can be read");
        }
    }

    #[test]
    fn raw_json_survives_being_stored() {
        let raw = RawJson::new(" {\"b\" :\n[1,  2.50],\"a\":\"\\u00e9\"}\n").expect("it is JSON");
        let stored = serde_json::to_string(&raw).expect("it is stored");
        assert!(!stored.contains('\n'), "it stays on one line");
        let read: RawJson = serde_json::from_str(&stored).expect("it is read");
        assert_eq!(read.get(), "{\"b\" :\n[1,  2.50],\"a\":\"\\u00e9\"}");
        assert!(serde_json::from_str::<RawJson>("\"{\"").is_err());
        assert!(RawJson::new("{} {}").is_err());
    }
}
