//! Counts calls, failures and durations for metrics, in bounded memory.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use toolhold_core::ObservedCall;

use super::call::{Refusal, outcome};
use crate::names;
use crate::otlp::encoding::Message;
use crate::otlp::metrics::{Histogram, Span};
use crate::otlp::text;

/// The most tools, or rules, with a count of their own. The others are counted together.
const MAX_NAMES: usize = 500;

/// The upper bounds of the buckets, in seconds.
const BOUNDS: [f64; 12] =
    [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 600.0];

/// The result of a successful call. Failed calls have a category.
const SUCCESS: &str = "success";

pub(super) struct Counts {
    start: SystemTime,
    tools: HashMap<String, ToolCounts>,
    denials: BTreeMap<&'static str, HashMap<String, u64>>,
    approvals: BTreeMap<&'static str, u64>,
}

#[derive(Default)]
struct ToolCounts {
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

    /// Counts a call, its refusal and its approval.
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

    /// Counts a call after its caller stopped waiting.
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
                "Duration of calls, including the wait for approval",
                &BOUNDS,
                durations.collect(),
            ),
            span.counter(
                names::DENIED,
                "{call}",
                "Calls with a denial, by rule",
                denials.collect(),
            ),
            span.counter(
                names::APPROVALS,
                "{call}",
                "Calls that a person approved, by the scope of the approval",
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
                "Spans that were not sent, because the receiver was slow or unreachable",
                vec![(vec![text(names::SIGNAL, "traces")], dropped)],
            ),
        ];
        metrics.into_iter().flatten().collect()
    }
}

/// Returns each count with its key as the attribute `name`.
fn by_word(name: &'static str, counts: &BTreeMap<&'static str, u64>) -> Vec<(Vec<Message>, u64)> {
    counts.iter().map(|(word, count)| (vec![text(name, *word)], *count)).collect()
}

/// Returns the count of `name`. If there are already too many names, a new name gets the common
/// count of all others.
fn named<'a, T: Default>(counts: &'a mut HashMap<String, T>, name: &str) -> &'a mut T {
    let is_one_too_many = !counts.contains_key(name) && counts.len() >= MAX_NAMES;
    let counted_name = if is_one_too_many { names::OTHER } else { name };
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
