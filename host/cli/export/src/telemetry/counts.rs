//! Counts calls, failures and durations by tool for the metrics of `[telemetry]`. Each call is
//! counted immediately, so no call is lost. The memory is limited, whatever the calls are.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use toolhold_core::ObservedCall;

use super::call::{Refusal, outcome};
use crate::names;
use crate::otlp::encoding::Message;
use crate::otlp::metrics::{Histogram, Span};
use crate::otlp::text;

/// The most tools and rules that are counted by name. All others are counted together.
const MAX_NAMES: usize = 500;

/// The upper bounds of the buckets in seconds, from a built-in tool to the longest call.
const BOUNDS: [f64; 12] =
    [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 600.0];

/// The result of a call that succeeded, in place of a category.
const SUCCESS: &str = "success";

/// The counts since the start.
pub(super) struct Counts {
    start: SystemTime,
    tools: HashMap<String, ToolCounts>,
    denials: BTreeMap<&'static str, HashMap<String, u64>>,
    approvals: BTreeMap<&'static str, u64>,
}

#[derive(Default)]
struct ToolCounts {
    /// By category.
    results: BTreeMap<&'static str, u64>,
    buckets: [u64; BOUNDS.len() + 1],
    seconds: f64,
}

impl Counts {
    pub(super) fn new() -> Self {
        Self {
            start: SystemTime::now(),
            tools: HashMap::new(),
            denials: BTreeMap::new(),
            approvals: BTreeMap::new(),
        }
    }

    /// Counts a call.
    pub(super) fn call(&mut self, call: &ObservedCall<'_>) {
        let result = outcome(call.answer).unwrap_or(SUCCESS);
        self.result(call.answer.tool.as_deref(), result, call.took);
        if let Some(refusal) = Refusal::first_of(call.answer) {
            let rules = self.denials.entry(refusal.gate).or_default();
            *named(rules, &refusal.rule) += 1;
        }
        if let Some(approval) = &call.answer.approval {
            *self.approvals.entry(approval.scope.as_str()).or_default() += 1;
        }
    }

    /// Counts a call whose caller stopped waiting.
    pub(super) fn dropped(&mut self, tool: Option<&str>, took: Duration) {
        self.result(tool, toolhold_core::Category::Cancelled.as_str(), took);
    }

    fn result(&mut self, tool: Option<&str>, result: &'static str, took: Duration) {
        let seconds = took.as_secs_f64();
        let counts = named(&mut self.tools, tool.unwrap_or(names::OTHER));
        *counts.results.entry(result).or_default() += 1;
        counts.buckets[BOUNDS.partition_point(|bound| *bound < seconds)] += 1;
        counts.seconds += seconds;
    }

    /// Returns the metrics.
    pub(super) fn metrics(
        &self,
        plugins: &BTreeMap<&'static str, u64>,
        dropped: u64,
    ) -> Vec<Message> {
        let span = Span { start: self.start, now: SystemTime::now() };
        let calls = self.tools.iter().flat_map(|(tool, counts)| {
            counts.results.iter().map(move |(result, count)| {
                let mut attributes =
                    vec![text(names::OPERATION, names::EXECUTE_TOOL), text(names::TOOL, tool)];
                if *result != SUCCESS {
                    attributes.push(text(names::ERROR_TYPE, *result));
                }
                (attributes, *count)
            })
        });
        let durations = self.tools.iter().map(|(tool, counts)| Histogram {
            attributes: vec![text(names::OPERATION, names::EXECUTE_TOOL), text(names::TOOL, tool)],
            buckets: counts.buckets.to_vec(),
            sum: counts.seconds,
        });
        let denials = self.denials.iter().flat_map(|(gate, rules)| {
            rules.iter().map(|(rule, count)| {
                (vec![text(names::GATE, *gate), text(names::RULE, rule)], *count)
            })
        });
        let metrics = [
            span.counter(names::CALLS, "{call}", "Calls that ended", calls.collect()),
            span.histogram(
                names::DURATION,
                "s",
                "How long calls took, waiting for persons included",
                &BOUNDS,
                durations.collect(),
            ),
            span.counter(
                names::DENIED,
                "{call}",
                "Calls with a refusal, by rule",
                denials.collect(),
            ),
            span.counter(
                names::APPROVALS,
                "{call}",
                "Calls that a person approved, by how long it holds",
                by_word(names::APPROVAL_SCOPE, &self.approvals),
            ),
            span.gauge(
                names::PLUGINS,
                "{plugin}",
                "Plugins, by state",
                by_word(names::STATE, plugins),
            ),
            span.counter(
                names::DROPPED,
                "{span}",
                "Spans that were not sent, since the receiver was slow or gone",
                vec![(vec![text(names::SIGNAL, "traces")], dropped)],
            ),
        ];
        metrics.into_iter().flatten().collect()
    }
}

/// Returns the counts. Each count has its key as the attribute `name`.
fn by_word(name: &'static str, counts: &BTreeMap<&'static str, u64>) -> Vec<(Vec<Message>, u64)> {
    counts.iter().map(|(word, count)| (vec![text(name, *word)], *count)).collect()
}

/// Returns the count of a name. Copies the name only if the name is new.
fn named<'a, T: Default>(counts: &'a mut HashMap<String, T>, name: &str) -> &'a mut T {
    let is_one_too_many = !counts.contains_key(name) && counts.len() >= MAX_NAMES;
    let counted_name = if is_one_too_many { names::OTHER } else { name };
    if !counts.contains_key(counted_name) {
        counts.insert(counted_name.to_owned(), T::default());
    }
    counts.entry(counted_name.to_owned()).or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded() {
        let mut counts = Counts::new();
        for number in 0..5 * MAX_NAMES {
            counts.dropped(Some(&format!("tool-{number}")), Duration::from_millis(1));
        }
        assert_eq!(counts.tools.len(), MAX_NAMES + 1);
        let all: u64 = counts.tools.values().flat_map(|tool| tool.results.values()).sum();
        assert_eq!(all, 5 * MAX_NAMES as u64);
        assert_eq!(counts.tools[names::OTHER].results["cancelled"], 4 * MAX_NAMES as u64);
    }

    #[test]
    fn durations_lie_in_their_buckets() {
        let mut counts = Counts::new();
        for millis in [0, 1, 2, 700_000] {
            counts.dropped(None, Duration::from_millis(millis));
        }
        let tool = &counts.tools[names::OTHER];
        assert_eq!(tool.buckets, [1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert!((tool.seconds - 700.003).abs() < 1e-6);
    }
}
