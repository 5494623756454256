//! Encodes OTLP messages as Protocol Buffers or as JSON.
//!
//! Existing crates add a code generator and a runtime, which is too much for a few messages.

use serde_json::{Map, Value as Json, json};

/// The fields of a message. Each field has its number for Protocol Buffers, its name for JSON, and
/// its value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Message(Vec<(u32, &'static str, Value)>);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Bool(bool),
    /// `int64`.
    Int(i64),
    /// `uint32` and enumerations.
    Number(u32),
    /// `fixed64`.
    Fixed(u64),
    /// `sfixed64`.
    SignedFixed(i64),
    Double(f64),
    /// An identifier, which is hexadecimal in JSON.
    Id(Vec<u8>),
    Message(Message),
    Messages(Vec<Message>),
    /// `repeated fixed64`.
    FixedList(Vec<u64>),
    /// `repeated double`.
    DoubleList(Vec<f64>),
}

/// The wire types of Protocol Buffers.
const VARINT: u32 = 0;
const BITS_64: u32 = 1;
const BYTES: u32 = 2;
const BITS_32: u32 = 5;

/// The bits of the wire type in the key before a field. The key's other bits are the number of the
/// field.
const TYPE_BITS: u32 = 3;
const TYPE_MASK: u64 = 0x7;

/// The bits of the number in each byte of a varint. The highest bit of a byte says whether a byte
/// follows.
const VARINT_BITS: u32 = 7;
const VARINT_MASK: u8 = 0x7f;
const VARINT_CONTINUES: u8 = 0x80;

/// The bytes of the longest varint, which has 64 bits.
const MAX_VARINT: u32 = 10;

impl Message {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a field, which has `number` in Protocol Buffers and `name` in JSON.
    pub(crate) fn with(mut self, number: u32, name: &'static str, value: Value) -> Self {
        self.0.push((number, name, value));
        self
    }

    pub(crate) fn with_message(self, number: u32, name: &'static str, value: Self) -> Self {
        self.with(number, name, Value::Message(value))
    }

    pub(crate) fn with_all(self, number: u32, name: &'static str, values: Vec<Self>) -> Self {
        self.with(number, name, Value::Messages(values))
    }

    /// Adds a text field, which has `number` in Protocol Buffers and `name` in JSON.
    pub(crate) fn with_text(
        self,
        number: u32,
        name: &'static str,
        value: impl Into<String>,
    ) -> Self {
        self.with(number, name, Value::Text(value.into()))
    }

    pub(crate) fn to_protobuf(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut Vec<u8>) {
        for (number, _, value) in &self.0 {
            value.write(*number, out);
        }
    }

    pub(crate) fn to_json(&self) -> Json {
        let fields = self.0.iter().map(|(_, name, value)| ((*name).to_owned(), value.to_json()));
        Json::Object(fields.collect::<Map<_, _>>())
    }
}

impl Value {
    /// Writes the value as the protobuf field `number`.
    fn write(&self, number: u32, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => bytes(number, text.as_bytes(), out),
            Self::Id(id) => bytes(number, id, out),
            Self::Bool(value) => varint_field(number, (*value).into(), out),
            Self::Int(value) => varint_field(number, value.cast_unsigned(), out),
            Self::Number(value) => varint_field(number, (*value).into(), out),
            Self::Fixed(value) => bits_64(number, value.to_le_bytes(), out),
            Self::SignedFixed(value) => bits_64(number, value.to_le_bytes(), out),
            Self::Double(value) => bits_64(number, value.to_le_bytes(), out),
            Self::Message(message) => bytes(number, &message.to_protobuf(), out),
            Self::Messages(messages) => {
                for message in messages {
                    bytes(number, &message.to_protobuf(), out);
                }
            }
            // A list of numbers is packed into one field.
            Self::FixedList(values) => {
                let packed: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                bytes(number, &packed, out);
            }
            Self::DoubleList(values) => {
                let packed: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                bytes(number, &packed, out);
            }
        }
    }

    /// Converts the value to JSON. As Protocol Buffers define, integers of 64 bits become strings.
    fn to_json(&self) -> Json {
        match self {
            Self::Text(text) => json!(text),
            Self::Bool(value) => json!(value),
            Self::Int(value) | Self::SignedFixed(value) => json!(value.to_string()),
            Self::Number(value) => json!(value),
            Self::Fixed(value) => json!(value.to_string()),
            Self::Double(value) => json!(value),
            Self::Id(id) => json!(id.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
            Self::Message(message) => message.to_json(),
            Self::Messages(messages) => messages.iter().map(Message::to_json).collect(),
            Self::FixedList(values) => values.iter().map(u64::to_string).collect(),
            Self::DoubleList(values) => values.iter().copied().collect(),
        }
    }
}

fn key(number: u32, wire: u32, out: &mut Vec<u8>) {
    varint((number << TYPE_BITS | wire).into(), out);
}

fn varint_field(number: u32, value: u64, out: &mut Vec<u8>) {
    key(number, VARINT, out);
    varint(value, out);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value > u64::from(VARINT_MASK) {
        let lowest_bits = (value & u64::from(VARINT_MASK)) as u8;
        out.push(lowest_bits | VARINT_CONTINUES);
        value >>= VARINT_BITS;
    }
    out.push(value as u8);
}

fn bits_64(number: u32, value: [u8; 8], out: &mut Vec<u8>) {
    key(number, BITS_64, out);
    out.extend_from_slice(&value);
}

fn bytes(number: u32, value: &[u8], out: &mut Vec<u8>) {
    key(number, BYTES, out);
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Returns the numbers and values of a message's fields. If bytes are invalid, the last item is
/// `None`.
pub(crate) fn fields(mut rest: &[u8]) -> impl Iterator<Item = Option<(u64, Read<'_>)>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = read_field(&mut rest);
        if field.is_none() {
            // The iterator ends after this item.
            rest = &[];
        }
        Some(field)
    })
}

/// Reads a protobuf field, and removes its bytes from `rest`. Returns `None` if the bytes are
/// invalid.
fn read_field<'a>(rest: &mut &'a [u8]) -> Option<(u64, Read<'a>)> {
    let key = read_varint(rest)?;
    let wire_type = u32::try_from(key & TYPE_MASK).ok()?;
    let value = match wire_type {
        VARINT => Read::Number(read_varint(rest)?),
        BITS_64 => Read::Number(u64::from_le_bytes(take_array(rest)?)),
        BITS_32 => Read::Number(u32::from_le_bytes(take_array(rest)?).into()),
        BYTES => {
            let length = usize::try_from(read_varint(rest)?).ok()?;
            Read::Bytes(take(rest, length)?)
        }
        _ => return None,
    };
    Some((key >> TYPE_BITS, value))
}

fn take_array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    take(rest, N)?.first_chunk().copied()
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(bytes)
}

/// Reads a varint, and removes its bytes from `rest`. Returns `None` if the bytes are invalid.
fn read_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for index in 0..MAX_VARINT {
        let [byte]: [u8; 1] = take_array(rest)?;
        value |= u64::from(byte & VARINT_MASK) << (VARINT_BITS * index);
        let continues = byte & VARINT_CONTINUES != 0;
        if !continues {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_the_specification_shows() {
        let written = |value: Value| Message::new().with(1, "x", value).to_protobuf();
        assert_eq!(written(Value::Number(150)), [0x08, 0x96, 0x01]);
        assert_eq!(written(Value::Text("testing".to_owned())), b"\x0a\x07testing");
        assert_eq!(
            written(Value::Int(-2))[1..],
            [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]
        );
        let inner = Message::new().with(1, "y", Value::Number(150));
        assert_eq!(Message::new().with_message(3, "x", inner).to_protobuf(), [0x1a, 3, 8, 0x96, 1]);
        let far = Message::new().with(16, "x", Value::Bool(true));
        assert_eq!(far.to_protobuf(), [0x80, 0x01, 1]);
    }

    #[test]
    fn json_has_long_numbers_as_text_and_identifiers_in_hexadecimal() {
        let message = Message::new()
            .with(1, "int", Value::Int(-5))
            .with(2, "time", Value::Fixed(u64::MAX))
            .with(3, "id", Value::Id(vec![0, 0xab]))
            .with(4, "kind", Value::Number(3));
        assert_eq!(
            message.to_json(),
            json!({ "int": "-5", "time": "18446744073709551615", "id": "00ab", "kind": 3 })
        );
    }

    #[test]
    fn reading_gives_what_was_written_and_stops_at_damage() {
        let message = Message::new()
            .with(1, "a", Value::Int(i64::MAX))
            .with_text(2, "b", "text")
            .with(3, "c", Value::Fixed(7));
        let bytes = message.to_protobuf();
        let read: Vec<_> = fields(&bytes).collect();
        assert_eq!(
            read,
            [
                Some((1, Read::Number(i64::MAX.cast_unsigned()))),
                Some((2, Read::Bytes(b"text"))),
                Some((3, Read::Number(7))),
            ]
        );
        for length in 0..bytes.len() {
            assert!(fields(&bytes[..length]).count() <= 3);
        }
        assert_eq!(fields(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x").last(), Some(None));
        assert_eq!(fields(&[0xff; 20]).collect::<Vec<_>>(), [None]);
    }
}
