//! Statistics of the audit log by tool and by filter.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toolhold_contract::HostError;

use super::chain;
use super::trail::Trail;

/// The statistics of one tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ToolStats {
    /// The tool's full name. Calls of unknown tools have an empty name.
    pub tool: String,
    /// All calls.
    pub calls: u64,
    /// Failed calls, without denied calls.
    pub failures: u64,
    /// Calls that a rule or a person denied.
    pub denials: u64,
    /// Calls that needed approval, with any answer.
    pub asks: u64,
    /// Network requests, including denied requests.
    pub requests: u64,
    /// The median duration in milliseconds, without waiting for a person.
    pub p50_ms: f64,
    /// The 99th percentile of the duration in milliseconds, without waiting for a person.
    pub p99_ms: f64,
}

impl Trail {
    /// Counts the calls of each tool, sorted by name. Percentiles use the nearest-rank method.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] with the file if the log can't be read.
    pub fn stats(&self) -> Result<Vec<ToolStats>, HostError> {
        let mut tools: BTreeMap<String, (ToolStats, Vec<f32>)> = BTreeMap::new();
        for log in self.files() {
            self.each_line(log, |line| match chain::kind(line) {
                b"outcome" => {
                    let Ok(record) = serde_json::from_slice::<Outcome>(line) else { return };
                    let tool = record.tool.clone().unwrap_or_default();
                    let (stats, times) = tools.entry(tool).or_default();
                    record.count(stats);
                    times.push(record.own_ms());
                }
                b"egress" => {
                    let Ok(record) = serde_json::from_slice::<Egress>(line) else { return };
                    let tool = record.tool.unwrap_or_default();
                    let (stats, _) = tools.entry(tool).or_default();
                    stats.requests += record.more_requests.unwrap_or(1);
                }
                _ => {}
            })?;
        }
        let mut all_stats = Vec::new();
        for (tool, (stats, times)) in tools {
            all_stats.push(with_percentiles(tool, stats, times));
        }
        Ok(all_stats)
    }
}

/// The statistics of the answers that the same filters shortened.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FilterStats {
    /// The filters that shortened an answer, separated by commas.
    pub filters: String,
    /// The number of answers.
    pub answers: u64,
    /// Number of lines before and after filtering.
    pub lines: [u64; 2],
    /// Number of bytes before and after filtering.
    pub bytes: [u64; 2],
    /// Answers with [`Confidence::Full`](toolhold_contract::Confidence::Full).
    pub full: u64,
    /// Answers with [`Confidence::Partial`](toolhold_contract::Confidence::Partial).
    pub partial: u64,
    /// Answers with [`Confidence::Fallback`](toolhold_contract::Confidence::Fallback).
    pub fallback: u64,
}

impl FilterStats {
    /// Returns the percentage of omitted lines.
    pub fn percent(&self) -> f64 {
        let [before, after] = self.lines.map(|lines| lines as f64);
        if before > 0.0 { (1.0 - after / before).max(0.0) * 100.0 } else { 0.0 }
    }

    /// Returns an estimate of the saved tokens, at four bytes a token.
    pub fn tokens_saved(&self) -> u64 {
        self.bytes[0].saturating_sub(self.bytes[1]) / 4
    }
}

impl Trail {
    /// Counts the effect of filters, sorted by name.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] with the file if the log can't be read.
    pub fn filter_stats(&self) -> Result<Vec<FilterStats>, HostError> {
        let mut all: BTreeMap<String, FilterStats> = BTreeMap::new();
        for log in self.files() {
            self.each_line(log, |line| {
                if chain::kind(line) != b"outcome" {
                    return;
                }
                let Ok(totals) = serde_json::from_slice::<FilterTotals>(line) else { return };
                let Some(filters) = totals.filtered_by else { return };
                let stats = all
                    .entry(filters.clone())
                    .or_insert_with(|| FilterStats { filters, ..FilterStats::default() });
                stats.answers += 1;
                let [lines_before, lines_after] = &mut stats.lines;
                *lines_before += totals.whole_lines;
                *lines_after += totals.shown_lines;
                let [bytes_before, bytes_after] = &mut stats.bytes;
                *bytes_before += totals.whole_bytes;
                *bytes_after += totals.shown_bytes;
                match totals.filter_confidence.as_deref() {
                    Some("full") => stats.full += 1,
                    Some("partial") => stats.partial += 1,
                    _ => stats.fallback += 1,
                }
            })?;
        }
        Ok(all.into_values().collect())
    }
}

impl Trail {
    /// Calls `visit` for each recorded command, with the recorded command and the number of output
    /// bytes before filtering.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] with the file if the log can't be read.
    pub fn command_outputs(&self, visit: &mut dyn FnMut(&str, u64)) -> Result<(), HostError> {
        for log in self.files() {
            self.each_line(log, |line| {
                if chain::kind(line) != b"outcome" {
                    return;
                }
                let Ok(CommandTotals { subjects, bytes, whole_bytes }) =
                    serde_json::from_slice(line)
                else {
                    return;
                };
                if let Some(command) = subjects.iter().find(|subject| subject.kind == "command") {
                    visit(&command.text, whole_bytes.unwrap_or(bytes));
                }
            })?;
        }
        Ok(())
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CommandTotals {
    subjects: Vec<SubjectText>,
    bytes: u64,
    whole_bytes: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SubjectText {
    kind: String,
    text: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FilterTotals {
    filtered_by: Option<String>,
    filter_confidence: Option<String>,
    whole_lines: u64,
    shown_lines: u64,
    whole_bytes: u64,
    shown_bytes: u64,
}

/// The fields of a network request, or the number of unlisted requests.
#[derive(Deserialize)]
struct Egress {
    tool: Option<String>,
    more_requests: Option<u64>,
}

#[derive(Deserialize)]
struct Outcome {
    tool: Option<String>,
    result: String,
    error_category: Option<String>,
    error_code: Option<String>,
    approved_by: Option<String>,
    duration_ms: f32,
    #[serde(default)]
    waited_ms: f32,
}

impl Outcome {
    fn own_ms(&self) -> f32 {
        (self.duration_ms - self.waited_ms).max(0.0)
    }

    /// Adds the call to the counts of its tool.
    fn count(&self, stats: &mut ToolStats) {
        let category = self.error_category.as_deref();
        let is_failure = !matches!(self.result.as_str(), "success" | "blocked");
        let waits_for_approval = category == Some("confirmation_required");
        let was_refused_by_person = self.error_code.as_deref() == Some("denied_by_user");
        let was_approved = self.approved_by.is_some();
        stats.calls += 1;
        stats.failures += u64::from(is_failure);
        stats.denials += u64::from(category == Some("policy_blocked"));
        stats.asks += u64::from(waits_for_approval || was_refused_by_person || was_approved);
    }
}

/// Adds the name of the tool, and the percentiles of the times of its calls.
fn with_percentiles(tool: String, stats: ToolStats, mut times: Vec<f32>) -> ToolStats {
    times.sort_unstable_by(f32::total_cmp);
    ToolStats { tool, p50_ms: percentile(&times, 50), p99_ms: percentile(&times, 99), ..stats }
}

/// Returns the nearest-rank percentile, or 0 without values.
fn percentile(sorted: &[f32], percent: usize) -> f64 {
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    let Some(time) = sorted.get(index) else { return 0.0 };
    // Durations in the log have three decimals.
    (f64::from(*time) * 1000.0).round() / 1000.0
}

impl ToolStats {
    /// Returns the median duration.
    pub fn p50(&self) -> Duration {
        Duration::from_secs_f64(self.p50_ms / 1000.0)
    }

    /// Returns the 99th percentile of the duration.
    pub fn p99(&self) -> Duration {
        Duration::from_secs_f64(self.p99_ms / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_person_is_not_call_time() {
        let own = |text: &str| serde_json::from_str::<Outcome>(text).expect("a record").own_ms();
        assert!(
            (own(r#"{"result":"success","duration_ms":60010.5,"waited_ms":60000.0}"#) - 10.5).abs()
                < 0.01
        );
        assert!((own(r#"{"result":"success","duration_ms":10.5}"#) - 10.5).abs() < 0.01);
    }

    #[test]
    fn percentiles_are_measured_values() {
        let times: Vec<f32> = (1..=200).map(|number| number as f32).collect();
        assert!((percentile(&times, 50) - 100.0).abs() < 1e-9);
        assert!((percentile(&times, 99) - 198.0).abs() < 1e-9);
        assert!((percentile(&[0.012], 99) - 0.012).abs() < 1e-9);
        assert!(percentile(&[], 50).abs() < 1e-9);
    }
}
