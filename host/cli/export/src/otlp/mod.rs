//! The common parts of OTLP messages, and the items that a receiver refused.

pub(crate) mod encoding;
pub(crate) mod logs;
pub(crate) mod metrics;
pub(crate) mod traces;

use self::encoding::{Message, Read, Value, fields};
use crate::names;

/// The most bytes of the receiver's reason.
const MAX_SAID: usize = 300;

pub(crate) fn attribute(name: impl Into<String>, value: Value) -> Message {
    Message::new().with_text(1, "key", name).with_message(2, "value", any(value))
}

pub(crate) fn text(name: impl Into<String>, value: impl Into<String>) -> Message {
    attribute(name, Value::Text(value.into()))
}

pub(crate) fn texts(name: impl Into<String>, values: impl Iterator<Item = String>) -> Message {
    let values = values.map(|value| any(Value::Text(value))).collect();
    attribute(name, Value::Message(Message::new().with_all(1, "values", values)))
}

pub(crate) fn count(name: impl Into<String>, value: u64) -> Message {
    // The field has only 63 bits for the number.
    attribute(name, Value::Int(i64::try_from(value).unwrap_or(i64::MAX)))
}

/// Makes an `AnyValue`, whose only field depends on the type of the value.
pub(crate) fn any(value: Value) -> Message {
    let (number, name) = match &value {
        Value::Text(_) => (1, "stringValue"),
        Value::Bool(_) => (2, "boolValue"),
        Value::Double(_) => (4, "doubleValue"),
        // The only message is a list.
        Value::Message(_) => (5, "arrayValue"),
        // All other attributes are integers.
        _ => (3, "intValue"),
    };
    Message::new().with(number, name, value)
}

/// Describes this program and this machine.
pub(crate) fn resource(instance: &str) -> Message {
    let mut attributes = vec![
        text(names::SERVICE_NAME, names::SERVICE),
        text(names::SERVICE_VERSION, env!("CARGO_PKG_VERSION")),
        text(names::SERVICE_INSTANCE, instance),
    ];
    if let Some(host) = crate::machine::host_name() {
        attributes.push(text(names::HOST_NAME, host));
    }
    Message::new().with_all(1, "attributes", attributes)
}

/// Describes the sending part of the program.
pub(crate) fn scope(name: &str) -> Message {
    Message::new().with_text(1, "name", name).with_text(2, "version", env!("CARGO_PKG_VERSION"))
}

/// The refused items of a request that was otherwise accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) count: u64,
    /// The receiver's reason, on one line.
    pub(crate) why: String,
}

/// Reads the answer to an accepted request. Returns `None` if no item was refused, or if the answer
/// is invalid.
pub(crate) fn refused(answer: &[u8]) -> Option<Refused> {
    // Field 1 is `partial_success`.
    let partial_success = fields(answer).flatten().find_map(|field| match field {
        (1, Read::Bytes(bytes)) => Some(bytes),
        _ => None,
    })?;

    // Field 1 is the number of refused items, and field 2 is the reason.
    let mut refused = Refused { count: 0, why: String::new() };
    for field in fields(partial_success).flatten() {
        match field {
            (1, Read::Number(count)) => refused.count = count,
            (2, Read::Bytes(bytes)) => {
                let message = String::from_utf8_lossy(bytes);
                let shown = toolhold_core::text::cut(&message, MAX_SAID);
                refused.why = toolhold_core::text::neutral_line(shown);
            }
            // A later version of OTLP may add fields.
            _ => {}
        }
    }
    if refused.count == 0 { None } else { Some(refused) }
}
