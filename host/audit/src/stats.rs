//! What the records come to, tool by tool.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_contract::HostError;
use serde::{Deserialize, Serialize};

use super::chain;
use super::trail::Trail;

/// What was recorded of one tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ToolStats {
    /// The tool's full name. Empty: of names that no tool has.
    pub tool: String,
    /// Calls, however they ended.
    pub calls: u64,
    /// Those that failed, refusals not among them.
    pub failures: u64,
    /// Those that a rule or a person refused.
    pub denials: u64,
    /// Those that a person was to be asked for, whatever became of it.
    pub asks: u64,
    /// Requests to the network, those that were refused among them.
    pub requests: u64,
    /// The time that half of the calls took at most, in milliseconds. What a person took to answer
    /// is not counted.
    pub p50_ms: f64,
    /// The time that 99 of 100 calls took at most, in milliseconds.
    pub p99_ms: f64,
}

impl Trail {
    /// Counts the calls of each tool, in the order of their names. Half of them or more were that
    /// quick, and so on.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`], naming the file.
    pub fn stats(&self) -> Result<Vec<ToolStats>, HostError> {
        let mut tools: BTreeMap<String, (ToolStats, Vec<f32>)> = BTreeMap::new();
        for log in self.files() {
            self.each_line(log, |line| {
                match chain::kind(line) {
                    b"outcome" => {}
                    b"egress" => {
                        let Ok(Egress { tool, more_requests }) = serde_json::from_slice(line)
                        else {
                            return;
                        };
                        tools.entry(tool.unwrap_or_default()).or_default().0.requests +=
                            more_requests.unwrap_or(1);
                        return;
                    }
                    _ => return,
                }
                let Ok(record) = serde_json::from_slice::<Outcome>(line) else { return };
                let (stats, times) =
                    tools.entry(record.tool.clone().unwrap_or_default()).or_default();
                record.count(stats);
                times.push(record.own_ms());
            })?;
        }
        let finished = |(tool, (stats, mut times)): (String, (ToolStats, Vec<f32>))| {
            times.sort_unstable_by(f32::total_cmp);
            ToolStats {
                tool,
                p50_ms: percentile(&times, 50),
                p99_ms: percentile(&times, 99),
                ..stats
            }
        };
        Ok(tools.into_iter().map(finished).collect())
    }
}

/// What was recorded of the filters of answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FilterStats {
    /// The filters that an answer went through and that left something out, with commas between
    /// them.
    pub filters: String,
    /// Those answers.
    pub answers: u64,
    /// Their lines, before and after.
    pub lines: [u64; 2],
    /// Their bytes, before and after.
    pub bytes: [u64; 2],
    /// How many of them the filters were sure of.
    pub full: u64,
    /// Of how many they left out what stood in the middle, whatever that was.
    pub partial: u64,
    /// How many they did not recognise.
    pub fallback: u64,
}

impl FilterStats {
    /// How many hundredths of the lines were left out.
    pub fn percent(&self) -> f64 {
        let [before, after] = self.lines.map(|lines| lines as f64);
        if before > 0.0 { (1.0 - after / before).max(0.0) * 100.0 } else { 0.0 }
    }

    /// Tokens that were saved, estimated: four bytes are taken for one.
    pub fn tokens_saved(&self) -> u64 {
        self.bytes[0].saturating_sub(self.bytes[1]) / 4
    }
}

impl Trail {
    /// Counts what filters left out, in the order of their names.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`], naming the file.
    pub fn filter_stats(&self) -> Result<Vec<FilterStats>, HostError> {
        let mut all: BTreeMap<String, FilterStats> = BTreeMap::new();
        for log in self.files() {
            self.each_line(log, |line| {
                if chain::kind(line) != b"outcome" {
                    return;
                }
                let Ok(FilterTotals {
                    filtered_by: Some(filters),
                    filter_confidence,
                    whole_lines,
                    shown_lines,
                    whole_bytes,
                    shown_bytes,
                }) = serde_json::from_slice(line)
                else {
                    return;
                };
                let stats = all
                    .entry(filters.clone())
                    .or_insert_with(|| FilterStats { filters, ..FilterStats::default() });
                stats.answers += 1;
                for (sum, more) in [
                    (&mut stats.lines, [whole_lines, shown_lines]),
                    (&mut stats.bytes, [whole_bytes, shown_bytes]),
                ] {
                    sum[0] += more[0];
                    sum[1] += more[1];
                }
                match filter_confidence.as_deref() {
                    Some("full") => stats.full += 1,
                    Some("partial") => stats.partial += 1,
                    _ => stats.fallback += 1,
                }
            })?;
        }
        Ok(all.into_values().collect())
    }
}

/// What is recorded of an answer that was filtered.
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

/// A request, or several of which nothing more is told.
#[derive(Deserialize)]
struct Egress {
    tool: Option<String>,
    more_requests: Option<u64>,
}

/// What is counted by.
#[derive(Deserialize)]
struct Outcome {
    tool: Option<String>,
    result: String,
    error_category: Option<String>,
    error_code: Option<String>,
    approved_by: Option<String>,
    duration_ms: f32,
    /// How much of it a person took to answer.
    #[serde(default)]
    waited_ms: f32,
}

impl Outcome {
    /// What the call itself took.
    fn own_ms(&self) -> f32 {
        (self.duration_ms - self.waited_ms).max(0.0)
    }

    fn count(&self, stats: &mut ToolStats) {
        let waits = self.error_category.as_deref() == Some("confirmation_required");
        let refused_by_a_person = self.error_code.as_deref() == Some("denied_by_user");
        stats.calls += 1;
        stats.failures += u64::from(!matches!(self.result.as_str(), "success" | "blocked"));
        stats.denials += u64::from(self.error_category.as_deref() == Some("policy_blocked"));
        stats.asks += u64::from(waits || refused_by_a_person || self.approved_by.is_some());
    }
}

/// The value that so many hundredths of them reach at most.
fn percentile(sorted: &[f32], hundredths: usize) -> f64 {
    let place = (sorted.len() * hundredths).div_ceil(100).saturating_sub(1);
    // Rounded as it was recorded, so that it doesn't look more precise than it is.
    sorted.get(place).map_or(0.0, |time| (f64::from(*time) * 1000.0).round() / 1000.0)
}

impl ToolStats {
    /// The same as a time.
    pub fn p50(&self) -> Duration {
        Duration::from_secs_f64(self.p50_ms / 1000.0)
    }

    /// The same as a time.
    pub fn p99(&self) -> Duration {
        Duration::from_secs_f64(self.p99_ms / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_waiting_for_a_person_is_not_the_call_s() {
        let own = |text: &str| serde_json::from_str::<Outcome>(text).expect("a record").own_ms();
        assert!(
            (own(r#"{"result":"success","duration_ms":60010.5,"waited_ms":60000.0}"#) - 10.5).abs()
                < 0.01
        );
        assert!((own(r#"{"result":"success","duration_ms":10.5}"#) - 10.5).abs() < 0.01);
    }

    #[test]
    fn percentiles_are_values_that_there_were() {
        let times: Vec<f32> = (1..=200).map(|number| number as f32).collect();
        assert!((percentile(&times, 50) - 100.0).abs() < 1e-9);
        assert!((percentile(&times, 99) - 198.0).abs() < 1e-9);
        assert!((percentile(&[0.012], 99) - 0.012).abs() < 1e-9);
        assert!(percentile(&[], 50).abs() < 1e-9);
    }
}
