//! Makes OTLP metrics from counters, gauges and histograms. Sums and histograms start when this
//! process starts.

use std::time::SystemTime;

use super::encoding::{Message, Value};
use super::{resource, scope};
use crate::names;
use crate::time::nanos;

/// The kind of a sum since the start: `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u32 = 2;

/// The time span of metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) start: SystemTime,
    pub(crate) now: SystemTime,
}

/// A value with its attributes.
pub(crate) type Point = (Vec<Message>, u64);

/// A histogram with its attributes.
pub(crate) struct Histogram {
    pub(crate) attributes: Vec<Message>,
    /// The number of values in each bucket. There is one bucket more than there are bounds.
    pub(crate) buckets: Vec<u64>,
    pub(crate) sum: f64,
}

impl Span {
    /// Makes a metric of numbers that only grow. Returns `None` if there is no number.
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

    /// Makes a metric of numbers that increase and decrease. Returns `None` if there are no
    /// numbers.
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

    /// Makes a metric with the number of values in each bucket. Returns `None` if there are no
    /// histograms.
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
        let points = values.into_iter().map(|value| {
            Message::new()
                .with_all(9, "attributes", value.attributes)
                .with(2, "startTimeUnixNano", Value::Fixed(nanos(self.start)))
                .with(3, "timeUnixNano", Value::Fixed(nanos(self.now)))
                .with(4, "count", Value::Fixed(value.buckets.iter().sum()))
                .with(5, "sum", Value::Double(value.sum))
                .with(6, "bucketCounts", Value::FixedList(value.buckets))
                .with(7, "explicitBounds", Value::DoubleList(bounds.to_vec()))
        });
        let points = points.collect();
        let histogram = Message::new().with_all(1, "dataPoints", points).with(
            2,
            "aggregationTemporality",
            Value::Number(CUMULATIVE),
        );
        Some(metric(name, unit, description).with_message(9, "histogram", histogram))
    }

    /// Makes the points of a metric. Returns `None` if there are no points, because a metric needs
    /// at least one point.
    fn points(self, points: Vec<Point>) -> Option<Vec<Message>> {
        if points.is_empty() {
            return None;
        }
        let points = points.into_iter().map(|(attributes, value)| {
            Message::new()
                .with_all(7, "attributes", attributes)
                .with(2, "startTimeUnixNano", Value::Fixed(nanos(self.start)))
                .with(3, "timeUnixNano", Value::Fixed(nanos(self.now)))
                .with(6, "asInt", Value::SignedFixed(i64::try_from(value).unwrap_or(i64::MAX)))
        });
        Some(points.collect())
    }
}

/// Returns a request with metrics: `ExportMetricsServiceRequest`.
pub(crate) fn request(metrics: Vec<Message>, instance: &str) -> Message {
    let scope_metrics = Message::new()
        .with_message(1, "scope", scope(names::CALLS_SCOPE))
        .with_all(2, "metrics", metrics);
    let resource_metrics = Message::new().with_message(1, "resource", resource(instance)).with_all(
        2,
        "scopeMetrics",
        vec![scope_metrics],
    );
    Message::new().with_all(1, "resourceMetrics", vec![resource_metrics])
}

fn metric(name: &str, unit: &str, description: &str) -> Message {
    Message::new()
        .with_text(1, "name", name)
        .with_text(2, "description", description)
        .with_text(3, "unit", unit)
}
