//! Makes OTLP spans.

use std::time::{Duration, SystemTime};

use super::encoding::{Message, Value};
use super::{resource, scope};
use crate::names;
use crate::time::nanos;

/// `SPAN_KIND_INTERNAL`: work within one service.
const INTERNAL: u32 = 1;

/// `STATUS_CODE_ERROR`.
const ERROR: u32 = 2;

#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) trace: [u8; 16],
    pub(crate) id: [u8; 8],
    pub(crate) parent: Option<[u8; 8]>,
    pub(crate) name: String,
    pub(crate) start: SystemTime,
    pub(crate) took: Duration,
    pub(crate) attributes: Vec<Message>,
    pub(crate) events: Vec<(&'static str, Vec<Message>)>,
    pub(crate) failed: bool,
}

/// Makes an `ExportTraceServiceRequest`. OTLP defines the numbers and names of the fields.
pub(crate) fn request(spans: &[Span], instance: &str) -> Message {
    let spans = spans.iter().map(message).collect();
    let scope_spans = Message::new()
        .with_message(1, "scope", scope(names::CALLS_SCOPE))
        .with_all(2, "spans", spans);
    let scopes = vec![scope_spans];
    let resource_spans = Message::new().with_message(1, "resource", resource(instance)).with_all(
        2,
        "scopeSpans",
        scopes,
    );
    Message::new().with_all(1, "resourceSpans", vec![resource_spans])
}

/// Makes the message for a span. Events get the time of the span's end, because their own time is
/// unknown. OTLP defines the numbers and names of the fields.
fn message(span: &Span) -> Message {
    // The sum overflows only for an impossible time.
    let end = span.start.checked_add(span.took).unwrap_or(span.start);
    let trace = Value::Id(span.trace.to_vec());
    let id = Value::Id(span.id.to_vec());
    let mut message = Message::new().with(1, "traceId", trace).with(2, "spanId", id);
    if let Some(parent) = span.parent {
        message = message.with(4, "parentSpanId", Value::Id(parent.to_vec()));
    }

    let mut events = Vec::new();
    for (name, attributes) in &span.events {
        let event = Message::new()
            .with(1, "timeUnixNano", Value::Fixed(nanos(end)))
            .with_text(2, "name", *name)
            .with_all(3, "attributes", attributes.clone());
        events.push(event);
    }
    message = message
        .with_text(5, "name", &*span.name)
        .with(6, "kind", Value::Number(INTERNAL))
        .with(7, "startTimeUnixNano", Value::Fixed(nanos(span.start)))
        .with(8, "endTimeUnixNano", Value::Fixed(nanos(end)))
        .with_all(9, "attributes", span.attributes.clone())
        .with_all(11, "events", events);
    if span.failed {
        let status = Message::new().with(3, "code", Value::Number(ERROR));
        message = message.with_message(15, "status", status);
    }
    message
}
