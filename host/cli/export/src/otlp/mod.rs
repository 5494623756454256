//! The common parts of OTLP messages: attributes, the resource, and the items that a receiver
//! refuses.

pub(crate) mod encoding;
pub(crate) mod logs;
pub(crate) mod metrics;
pub(crate) mod traces;

use self::encoding::{Message, Read, Value, fields};
use crate::names;

/// Shown bytes of a receiver's text.
const MAX_SAID: usize = 300;

/// Returns an attribute.
pub(crate) fn attribute(name: impl Into<String>, value: Value) -> Message {
    Message::new().with_text(1, "key", name).with_message(2, "value", any(value))
}

/// Returns an attribute that is a text.
pub(crate) fn text(name: impl Into<String>, value: impl Into<String>) -> Message {
    attribute(name, Value::Text(value.into()))
}

/// Returns a value of any type.
pub(crate) fn any(value: Value) -> Message {
    let (number, name) = match &value {
        Value::Text(_) => (1, "stringValue"),
        Value::Bool(_) => (2, "boolValue"),
        Value::Double(_) => (4, "doubleValue"),
        _ => (3, "intValue"),
    };
    Message::new().with(number, name, value)
}

/// Returns the resource that sends the data: this program on this machine.
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

/// Returns the part of this program that sends.
pub(crate) fn scope(name: &str) -> Message {
    Message::new().with_text(1, "name", name).with_text(2, "version", env!("CARGO_PKG_VERSION"))
}

/// The items that a receiver refused although it accepted the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The number of items.
    pub(crate) count: u64,
    /// The receiver's reason, on one line.
    pub(crate) why: String,
}

/// Reads the refused items from the answer to a request. Returns `None` if no item was refused.
/// Also returns `None` for an invalid answer, because the status already says that the request was
/// accepted.
pub(crate) fn refused(answer: &[u8]) -> Option<Refused> {
    let partial_success = fields(answer).flatten().find_map(|field| match field {
        (1, Read::Bytes(bytes)) => Some(bytes),
        _ => None,
    })?;
    let mut refused = Refused { count: 0, why: String::new() };
    for field in fields(partial_success).flatten() {
        match field {
            (1, Read::Number(count)) => refused.count = count,
            (2, Read::Bytes(bytes)) => {
                let message = String::from_utf8_lossy(bytes);
                let shown = toolhold_core::text::cut(&message, MAX_SAID);
                refused.why = toolhold_core::text::neutral_line(shown);
            }
            _ => {}
        }
    }
    (refused.count > 0).then_some(refused)
}
