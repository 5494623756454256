//! Statistics of the audit log, tool by tool and filter by filter.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toolhold_contract::HostError;

use super::chain;
use super::trail::Trail;

/// The statistics of one tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ToolStats {
    /// The tool's full name. An empty name counts calls of names that no tool has.
    pub tool: String,
    /// All calls.
    pub calls: u64,
    /// Failed calls, without denied calls.
    pub failures: u64,
    /// Calls that a rule or a person refused.
    pub denials: u64,
    /// Calls that needed approval, whatever the answer was.
    pub asks: u64,
    /// Network requests, including denied requests.
    pub requests: u64,
    /// The median time of the calls in milliseconds, without the time of a person.
    pub p50_ms: f64,
    /// The 99th percentile of the time in milliseconds, without the time of a person.
    pub p99_ms: f64,
}

impl Trail {
    /// Counts the calls of each tool, ordered by name. Durations are nearest-rank percentiles.
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
        let mut finished = Vec::new();
        for (tool, (stats, mut times)) in tools {
            times.sort_unstable_by(f32::total_cmp);
            finished.push(ToolStats {
                tool,
                p50_ms: percentile(&times, 50),
                p99_ms: percentile(&times, 99),
                ..stats
            });
        }
        Ok(finished)
    }
}

/// The figures of the filters.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FilterStats {
    /// The filters that omitted a part of an answer, separated by commas.
    pub filters: String,
    /// The number of answers.
    pub answers: u64,
    /// Lines before and after.
    pub lines: [u64; 2],
    /// Bytes before and after.
    pub bytes: [u64; 2],
    /// Answers with full confidence of the filters.
    pub full: u64,
    /// Answers of which the filters omitted the middle without analysing it.
    pub partial: u64,
    /// Answers that the filters didn't recognise.
    pub fallback: u64,
}

impl FilterStats {
    /// Returns the percentage of omitted lines.
    pub fn percent(&self) -> f64 {
        let [before, after] = self.lines.map(|lines| lines as f64);
        if before > 0.0 { (1.0 - after / before).max(0.0) * 100.0 } else { 0.0 }
    }

    /// Estimated saved tokens, at four bytes a token.
    pub fn tokens_saved(&self) -> u64 {
        self.bytes[0].saturating_sub(self.bytes[1]) / 4
    }
}

impl Trail {
    /// Counts the omissions of filters, ordered by name.
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
                stats.lines[0] += totals.whole_lines;
                stats.lines[1] += totals.shown_lines;
                stats.bytes[0] += totals.whole_bytes;
                stats.bytes[1] += totals.shown_bytes;
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
    /// Calls `see` for each command that ran, with at most 256 bytes of the command and the number
    /// of output bytes. For a filtered output, this number counts all bytes. Otherwise it counts
    /// the bytes of the answer.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] with the file if the log can't be read.
    pub fn command_outputs(&self, see: &mut dyn FnMut(&str, u64)) -> Result<(), HostError> {
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
                    see(&command.text, whole_bytes.unwrap_or(bytes));
                }
            })?;
        }
        Ok(())
    }
}

/// The record of a call of a command.
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

/// The record of a filtered answer.
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

/// A request, or the number of requests that aren't listed.
#[derive(Deserialize)]
struct Egress {
    tool: Option<String>,
    more_requests: Option<u64>,
}

/// The key that is counted by.
#[derive(Deserialize)]
struct Outcome {
    tool: Option<String>,
    result: String,
    error_category: Option<String>,
    error_code: Option<String>,
    approved_by: Option<String>,
    duration_ms: f32,
    /// The time for which the call waited for a person.
    #[serde(default)]
    waited_ms: f32,
}

impl Outcome {
    /// Returns the time of the call itself.
    fn own_ms(&self) -> f32 {
        (self.duration_ms - self.waited_ms).max(0.0)
    }

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

/// Returns the nearest-rank percentile, or 0 if there are no values.
fn percentile(sorted: &[f32], percent: usize) -> f64 {
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    let Some(time) = sorted.get(index) else { return 0.0 };
    // The result is rounded like the entries, so that it doesn't look more precise.
    (f64::from(*time) * 1000.0).round() / 1000.0
}

impl ToolStats {
    /// Returns the median time.
    pub fn p50(&self) -> Duration {
        Duration::from_secs_f64(self.p50_ms / 1000.0)
    }

    /// Returns the 99th percentile of the time.
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
