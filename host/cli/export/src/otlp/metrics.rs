//! Makes OTLP metrics.

use std::time::SystemTime;

use super::encoding::{Message, Value};
use super::{resource, scope};
use crate::names;
use crate::time::nanos;

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`: sums since the start.
const CUMULATIVE: u32 = 2;

/// The time that metrics cover.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) start: SystemTime,
    pub(crate) now: SystemTime,
}

/// A value with its attributes.
pub(crate) type Point = (Vec<Message>, u64);

pub(crate) struct Histogram {
    pub(crate) attributes: Vec<Message>,
    /// The number of values in each bucket. The last bucket has no upper bound.
    pub(crate) buckets: Vec<u64>,
    pub(crate) sum: f64,
}

impl Span {
    /// Makes a metric of numbers that only grow, or returns `None` if there are no numbers.
    pub(crate) fn counter(
        self,
        name: &str,
        unit: &str,
        description: &str,
        points: Vec<Point>,
    ) -> Option<Message> {
        let sum = Message::new()
            .with_all(1, "dataPoints", self.points(points)?)
            .with(2, "aggregationTemporality", Value::Number(CUMULATIVE))
            .with(3, "isMonotonic", Value::Bool(true));
        Some(metric(name, unit, description).with_message(7, "sum", sum))
    }

    /// Makes a metric of numbers that grow and shrink, or returns `None` if there are no numbers.
    pub(crate) fn gauge(
        self,
        name: &str,
        unit: &str,
        description: &str,
        points: Vec<Point>,
    ) -> Option<Message> {
        let gauge = Message::new().with_all(1, "dataPoints", self.points(points)?);
        Some(metric(name, unit, description).with_message(5, "gauge", gauge))
    }

    /// Makes a metric of distributions, or returns `None` if there are no values. OTLP defines the
    /// numbers and names of the fields.
    pub(crate) fn histogram(
        self,
        name: &str,
        unit: &str,
        description: &str,
        bounds: &[f64],
        values: Vec<Histogram>,
    ) -> Option<Message> {
        if values.is_empty() {
            return None;
        }
        let mut points = Vec::new();
        for value in values {
            let point = Message::new()
                .with_all(9, "attributes", value.attributes)
                .with(2, "startTimeUnixNano", Value::Fixed(nanos(self.start)))
                .with(3, "timeUnixNano", Value::Fixed(nanos(self.now)))
                .with(4, "count", Value::Fixed(value.buckets.iter().sum()))
                .with(5, "sum", Value::Double(value.sum))
                .with(6, "bucketCounts", Value::FixedList(value.buckets))
                .with(7, "explicitBounds", Value::DoubleList(bounds.to_vec()));
            points.push(point);
        }
        let temporality = Value::Number(CUMULATIVE);
        let histogram = Message::new().with_all(1, "dataPoints", points).with(
            2,
            "aggregationTemporality",
            temporality,
        );
        Some(metric(name, unit, description).with_message(9, "histogram", histogram))
    }

    /// Makes a `NumberDataPoint` for each point, or returns `None` if there are no points. OTLP
    /// defines the numbers and names of the fields.
    fn points(self, points: Vec<Point>) -> Option<Vec<Message>> {
        if points.is_empty() {
            return None;
        }
        let mut messages = Vec::new();
        for (attributes, value) in points {
            // The field has only 63 bits for the number.
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            let message = Message::new()
                .with_all(7, "attributes", attributes)
                .with(2, "startTimeUnixNano", Value::Fixed(nanos(self.start)))
                .with(3, "timeUnixNano", Value::Fixed(nanos(self.now)))
                .with(6, "asInt", Value::SignedFixed(value));
            messages.push(message);
        }
        Some(messages)
    }
}

/// Makes an `ExportMetricsServiceRequest`. OTLP defines the numbers and names of the fields.
pub(crate) fn request(metrics: Vec<Message>, instance: &str) -> Message {
    let scope_metrics = Message::new()
        .with_message(1, "scope", scope(names::CALLS_SCOPE))
        .with_all(2, "metrics", metrics);
    let scopes = vec![scope_metrics];
    let resource_metrics = Message::new().with_message(1, "resource", resource(instance)).with_all(
        2,
        "scopeMetrics",
        scopes,
    );
    Message::new().with_all(1, "resourceMetrics", vec![resource_metrics])
}

fn metric(name: &str, unit: &str, description: &str) -> Message {
    Message::new()
        .with_text(1, "name", name)
        .with_text(2, "description", description)
        .with_text(3, "unit", unit)
}
