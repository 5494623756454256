//! The results of the benches, as a table for people and as JSON for programs.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use crate::measure::median_ratio;

/// The version of the JSON: it changes when the meaning of a figure changes, so that old and new
/// aren't compared.
pub(crate) const FORMAT: u64 = 1;

/// One thing that was measured.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// Chooses the row on the command line.
    pub(crate) name: &'static str,
    pub(crate) what: String,
    /// The figure of each round, or of each of several runs; their median counts. Empty if it
    /// couldn't be measured.
    pub(crate) samples: Vec<f64>,
    pub(crate) unit: Unit,
    pub(crate) target: Target,
    /// Toolhold's time, for people.
    pub(crate) ours: String,
    /// The rival's time, or the reason why there is none.
    pub(crate) rival: String,
}

/// The unit of `value`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Unit {
    /// Toolhold's time to the rival's.
    Ratio,
    Mebibytes,
    Microseconds,
    Milliseconds,
    /// A million bytes a second.
    MegabytesPerSecond,
}

/// The target of a value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// Only reported; less is better.
    Lower,
    /// Only reported; more is better.
    Higher,
}

/// The result of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Verdict {
    Reached,
    Missed,
    Reported,
    NotMeasured,
}

impl Row {
    /// A row without a figure, and why.
    pub(crate) fn not_measured(
        name: &'static str,
        what: &str,
        unit: Unit,
        target: Target,
        why: String,
    ) -> Row {
        Row {
            name,
            what: what.to_owned(),
            samples: Vec::new(),
            unit,
            target,
            ours: String::new(),
            rival: why,
        }
    }

    /// The subject of the target.
    pub(crate) fn value(&self) -> Option<f64> {
        if self.samples.is_empty() { None } else { Some(median_ratio(self.samples.clone())) }
    }

    pub(crate) fn verdict(&self) -> Verdict {
        match (self.value(), self.target) {
            (None, _) => Verdict::NotMeasured,
            (Some(_), Target::Lower | Target::Higher) => Verdict::Reported,
            (Some(value), Target::AtMost(most)) if value <= most => Verdict::Reached,
            (Some(value), Target::AtLeast(least)) if value >= least => Verdict::Reached,
            _ => Verdict::Missed,
        }
    }

    /// Reduces the rounds of one run to their median.
    pub(crate) fn keep_median(&mut self) {
        self.samples = self.value().into_iter().collect();
    }

    /// A row that [`as_json`] wrote.
    pub(crate) fn parse(row: &Value) -> Option<Row> {
        let text = |key: &str| Some(row[key].as_str()?.to_owned());
        let target = match (row["comparison"].as_str(), row["better"].as_str()?) {
            (Some("at most"), "lower") => Target::AtMost(row["target"].as_f64()?),
            (Some("at least"), "higher") => Target::AtLeast(row["target"].as_f64()?),
            (None, "lower") => Target::Lower,
            (None, "higher") => Target::Higher,
            _ => return None,
        };
        Some(Row {
            // Lives as long as the program, which parses a few.
            name: text("name")?.leak(),
            what: text("what")?,
            samples: row["samples"].as_array()?.iter().map(Value::as_f64).collect::<Option<_>>()?,
            unit: Unit::parse(row["unit"].as_str()?)?,
            target,
            ours: text("toolhold")?,
            rival: text("rival")?,
        })
    }

    fn json(&self) -> Value {
        let (comparison, target) = match self.target {
            Target::AtMost(most) => (Some("at most"), Some(most)),
            Target::AtLeast(least) => (Some("at least"), Some(least)),
            Target::Lower | Target::Higher => (None, None),
        };
        json!({
            "name": self.name,
            "what": self.what,
            "value": self.value(),
            "samples": self.samples,
            "unit": self.unit.word(),
            "better": if self.target.is_more_better() { "higher" } else { "lower" },
            "comparison": comparison,
            "target": target,
            "verdict": self.verdict().word(),
            "toolhold": self.ours,
            "rival": self.rival,
        })
    }
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Reached => "reached",
            Verdict::Missed => "missed",
            Verdict::Reported => "reported",
            Verdict::NotMeasured => "not measured",
        }
    }
}

impl Target {
    pub(crate) fn is_more_better(self) -> bool {
        matches!(self, Target::AtLeast(_) | Target::Higher)
    }

    /// The same figure where it is not judged.
    pub(crate) fn reported(self) -> Target {
        if self.is_more_better() { Target::Higher } else { Target::Lower }
    }
}

impl Unit {
    const ALL: [Unit; 5] = [
        Unit::Ratio,
        Unit::Mebibytes,
        Unit::Microseconds,
        Unit::Milliseconds,
        Unit::MegabytesPerSecond,
    ];

    fn word(self) -> &'static str {
        match self {
            Unit::Ratio => "ratio",
            Unit::Mebibytes => "MiB",
            Unit::Microseconds => "µs",
            Unit::Milliseconds => "ms",
            Unit::MegabytesPerSecond => "MB/s",
        }
    }

    fn parse(word: &str) -> Option<Unit> {
        Unit::ALL.into_iter().find(|unit| unit.word() == word)
    }

    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Unit::Ratio if value < 0.1 => format!("{value:.3} ×"),
            Unit::Ratio => format!("{value:.2} ×"),
            Unit::Mebibytes if value < 1.0 => format!("{value:.2} MiB"),
            Unit::Mebibytes => format!("{value:.1} MiB"),
            Unit::Microseconds => format!("{value:.0} µs"),
            Unit::Milliseconds if value < 10.0 => format!("{value:.2} ms"),
            Unit::Milliseconds => format!("{value:.0} ms"),
            Unit::MegabytesPerSecond => format!("{value:.0} MB/s"),
        }
    }
}

/// The rows under their headings, figures first.
pub(crate) fn show(rows: &[Row]) -> String {
    let mut lines =
        vec![["measured", "to reach", "verdict", "what", "toolhold", "against"].map(str::to_owned)];
    for row in rows {
        let target = match row.target {
            Target::AtMost(most) => format!("≤ {}", row.unit.show(most)),
            Target::AtLeast(least) => format!("≥ {}", row.unit.show(least)),
            Target::Lower | Target::Higher => String::new(),
        };
        let value = row.value().map_or("–".to_owned(), |value| row.unit.show(value));
        lines.push([
            value,
            target,
            row.verdict().word().to_owned(),
            row.what.clone(),
            row.ours.clone(),
            row.rival.clone(),
        ]);
    }
    align(&lines, 2)
}

/// Lines of cells in columns, the first so many of which hold figures.
pub(crate) fn align<const COLUMNS: usize>(lines: &[[String; COLUMNS]], figures: usize) -> String {
    let width = |column: usize| {
        lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default()
    };
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut table = String::new();
    for line in lines {
        let mut text = String::new();
        for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
            // Figures are compared by their last digits, words by their first.
            let written = if column < figures {
                write!(text, "{cell:>width$}  ")
            } else {
                write!(text, "{cell:<width$}  ")
            };
            written.expect("a string takes what is written to it");
        }
        table.push_str(text.trim_end());
        table.push('\n');
    }
    table
}

/// The rows, where they were measured, and in how many runs.
pub(crate) fn as_json(rows: &[Row], machine: &str, runs: usize) -> Value {
    json!({ "format": FORMAT, "machine": machine, "runs": runs, "rows": rows.iter().map(Row::json).collect::<Vec<_>>() })
}

/// A time in the unit that suits it.
pub(crate) fn show_time(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    match micros {
        ..10.0 => format!("{micros:.1} µs"),
        ..1_000.0 => format!("{micros:.0} µs"),
        ..100_000.0 => format!("{:.1} ms", micros / 1e3),
        _ => format!("{:.0} ms", micros / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(value: Option<f64>, target: Target) -> Row {
        let samples = value.into_iter().collect();
        Row {
            name: "x",
            what: "a thing".into(),
            samples,
            unit: Unit::Ratio,
            target,
            ours: "1 ms".into(),
            rival: "2 ms".into(),
        }
    }

    #[test]
    fn a_verdict_follows_from_value_and_target() {
        let cases = [
            (Some(0.5), Target::AtMost(0.5), Verdict::Reached),
            (Some(0.6), Target::AtMost(0.5), Verdict::Missed),
            (Some(15.0), Target::AtLeast(15.0), Verdict::Reached),
            (Some(14.9), Target::AtLeast(15.0), Verdict::Missed),
            (Some(f64::NAN), Target::AtMost(1.0), Verdict::Missed),
            (Some(1.0), Target::Lower, Verdict::Reported),
            (None, Target::AtMost(1.0), Verdict::NotMeasured),
        ];
        for (value, target, expected) in cases {
            assert_eq!(row(value, target).verdict(), expected, "{value:?}");
        }
    }

    #[test]
    fn the_table_puts_figures_first_and_aligns() {
        let table = show(&[
            row(Some(0.0123), Target::AtMost(1.0 / 30.0)),
            row(None, Target::AtLeast(15.0)),
        ]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[1], " 0.012 ×  ≤ 0.033 ×  reached       a thing  1 ms      2 ms");
        assert_eq!(lines[2], "       –  ≥ 15.00 ×  not measured  a thing  1 ms      2 ms");
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        for target in [Target::AtMost(0.5), Target::AtLeast(15.0), Target::Lower, Target::Higher] {
            for value in [None, Some(1.5)] {
                let written = row(value, target).json();
                assert_eq!(Row::parse(&written).expect("it is whole").json(), written);
            }
        }
        let mut other = row(None, Target::AtMost(1.0)).json();
        other["better"] = "higher".into();
        assert!(Row::parse(&other).is_none());
    }

    #[test]
    fn times_are_shown_in_the_unit_that_suits_them() {
        let cases = [
            (1_500, "1.5 µs"),
            (150_000, "150 µs"),
            (1_500_000, "1.5 ms"),
            (250_000_000, "250 ms"),
        ];
        for (nanos, expected) in cases {
            assert_eq!(show_time(Duration::from_nanos(nanos)), expected);
        }
    }
}
