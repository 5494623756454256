//! Figures held against those from before: of a file that `--json` wrote, or of another build of this program, measured in turn with this one.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::measure::median_ratio;
use crate::noise::Change;
use crate::table::{FORMAT, Unit, align};

/// What the figures are held against.
#[derive(Debug)]
pub(crate) enum Before {
    File(Vec<Figure>),
    /// Another build of this program.
    Program(PathBuf),
}

/// A row as JSON has it.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    pub(crate) name: String,
    what: String,
    unit: Unit,
    is_more_better: bool,
    samples: Vec<f64>,
    berth: String,
    rival: String,
}

/// What has become of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Verdict {
    Better,
    Worse,
    WithinNoise,
    /// Too few figures to know the noise.
    Unknown,
}

/// A row of both.
pub(crate) struct Compared {
    before: Figure,
    after: Figure,
    change: Change,
}

impl Before {
    /// Opens what `--compare` names.
    ///
    /// # Errors
    ///
    /// It is neither, or figures that can't be held against those of this program on this machine.
    pub(crate) fn open(path: &Path, machine: &str) -> Result<Before, String> {
        let failed = |error: std::io::Error| format!("can't read {}: {error}", path.display());
        let mut first = [0; 4];
        let read = fs::File::open(path).and_then(|mut file| file.read(&mut first)).map_err(failed)?;
        if first[..read] == *b"\x7fELF" {
            return Ok(Before::Program(path.canonicalize().map_err(failed)?));
        }
        let bytes = fs::read(path).map_err(failed)?;
        let figures = serde_json::from_slice(&bytes)
            .map_err(|error| format!("it is neither what `--json` writes ({error}) nor a program"))
            .and_then(|figures| parse(&figures, machine));
        figures.map(Before::File).map_err(|error| format!("can't compare with {}: {error}", path.display()))
    }
}

/// The rows of figures that this program, or another build of it, wrote on this machine.
pub(crate) fn parse(figures: &Value, machine: &str) -> Result<Vec<Figure>, String> {
    match &figures["format"] {
        format if format.as_u64() == Some(FORMAT) => {}
        Value::Null => return Err(format!("it has no `format`; this program compares format {FORMAT}: measure anew with it")),
        other => return Err(format!("its format is {other}; this program compares format {FORMAT}: measure anew with it")),
    }
    match figures["machine"].as_str() {
        Some(of) if of == machine => {}
        of => return Err(format!("it was measured on `{}`; this machine is `{machine}`", of.unwrap_or("?"))),
    }
    let rows = figures["rows"].as_array().ok_or("it has no `rows`")?;
    rows.iter().map(|row| figure(row).ok_or(format!("a row in it is incomplete: {row}"))).collect()
}

fn figure(row: &Value) -> Option<Figure> {
    let text = |key: &str| Some(row[key].as_str()?.to_owned());
    Some(Figure {
        name: text("name")?,
        what: text("what")?,
        unit: Unit::parse(row["unit"].as_str()?)?,
        is_more_better: match row["better"].as_str()? {
            "higher" => true,
            "lower" => false,
            _ => return None,
        },
        samples: row["samples"].as_array()?.iter().map(Value::as_f64).collect::<Option<_>>()?,
        berth: text("berth")?,
        rival: text("rival")?,
    })
}

/// The rows that two runs have in common, and those of the second one that have nothing to be held against.
pub(crate) fn runs(before: &[Figure], after: Vec<Figure>) -> (Vec<Compared>, Vec<String>) {
    let (mut compared, mut left_out) = (Vec::new(), Vec::new());
    for after in after {
        match partner(before, &after) {
            Some(before) => {
                let change = Change::of_runs(&before.samples, &after.samples);
                compared.push(Compared { before: before.clone(), after, change });
            }
            None => left_out.push(after.what),
        }
    }
    (compared, left_out)
}

/// The same row, if both have figures.
fn partner<'a>(others: &'a [Figure], figure: &Figure) -> Option<&'a Figure> {
    let is_same = |other: &&Figure| (&other.name, &other.what, other.unit) == (&figure.name, &figure.what, figure.unit);
    others.iter().find(is_same).filter(|other| !other.samples.is_empty() && !figure.samples.is_empty())
}

/// The two programs of a comparison, each with the clone whose plugins it measures.
pub(crate) struct Programs {
    pub(crate) before: (PathBuf, PathBuf),
    pub(crate) after: (PathBuf, PathBuf),
    pub(crate) machine: String,
}

impl Programs {
    /// This program and another one. Of what lies in a `target/release` that has plugins beside it, it measures those, else this clone's.
    pub(crate) fn new(other: PathBuf, repository: &Path, machine: String) -> Result<Programs, String> {
        let this = std::env::current_exe().map_err(|error| format!("this program can't find itself: {error}"))?;
        let root = other.ancestors().nth(3).filter(|root| root.join("target/plugins").is_dir()).unwrap_or(repository).to_owned();
        Ok(Programs { before: (other, root), after: (this, repository.to_owned()), machine })
    }

    /// Has both measure a group of rows so many times, in turn, and compares the medians of each pair of runs.
    pub(crate) fn compare(&self, group: &str, pairs: usize, scratch: &Path) -> Result<(Vec<Compared>, Vec<String>), String> {
        let mut taken: Vec<(Figure, Figure, Vec<(f64, f64)>)> = Vec::new();
        let mut left_out = Vec::new();
        for pair in 0..pairs {
            // A B, B A, A B, …: what changes slowly favours neither.
            let (before, after) = if pair % 2 == 0 {
                let before = self.run(&self.before, group, scratch)?;
                (before, self.run(&self.after, group, scratch)?)
            } else {
                let after = self.run(&self.after, group, scratch)?;
                (self.run(&self.before, group, scratch)?, after)
            };
            for after in after {
                let Some(before) = partner(&before, &after) else {
                    left_out.push(after.what);
                    continue;
                };
                let values = (median_ratio(before.samples.clone()), median_ratio(after.samples.clone()));
                match taken.iter_mut().find(|(_, known, _)| known.what == after.what) {
                    Some((_, _, all)) => all.push(values),
                    None => taken.push((before.clone(), after, vec![values])),
                }
            }
        }
        left_out.sort_unstable();
        left_out.dedup();
        let compared = taken.into_iter().map(|(before, after, pairs)| {
            let change = Change::of_pairs(&pairs);
            let (of_before, of_after) = pairs.into_iter().unzip();
            Compared { before: Figure { samples: of_before, ..before }, after: Figure { samples: of_after, ..after }, change }
        });
        Ok((compared.collect(), left_out))
    }

    fn run(&self, (program, repository): &(PathBuf, PathBuf), group: &str, scratch: &Path) -> Result<Vec<Figure>, String> {
        let folder = tempfile::tempdir_in(scratch).map_err(|error| format!("no folder for figures: {error}"))?;
        let file = folder.path().join("figures.json");
        let mut command = Command::new(program);
        command.arg("--repository").arg(repository).arg("--json").arg(&file).arg(group);
        let ended = command.stdin(Stdio::null()).output().map_err(|error| format!("can't start {}: {error}", program.display()))?;
        // It also fails where a target is missed, of which nothing is said here.
        let bytes = fs::read(&file).map_err(|_| {
            let said = String::from_utf8_lossy(&ended.stderr);
            format!("{} wrote no figures of `{group}` ({}): {}", program.display(), ended.status, said.trim())
        })?;
        let figures = serde_json::from_slice(&bytes).map_err(|error| error.to_string()).and_then(|figures| parse(&figures, &self.machine));
        figures.map_err(|error| format!("can't compare with {}: {error}", program.display()))
    }
}

impl Compared {
    pub(crate) fn verdict(&self) -> Verdict {
        match self.change.is_more_than_noise() {
            None => Verdict::Unknown,
            Some(false) => Verdict::WithinNoise,
            Some(true) if (self.change.ratio > 1.0) == self.after.is_more_better => Verdict::Better,
            Some(true) => Verdict::Worse,
        }
    }

    fn cells(&self) -> [String; 8] {
        let shown = |figure: &Figure| figure.unit.show(median_ratio(figure.samples.clone()));
        let percent = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
        let both =
            |before: &str, after: &str| if before.is_empty() && after.is_empty() { String::new() } else { format!("{before} → {after}") };
        let verdict = match self.verdict() {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::WithinNoise => "within the noise",
            Verdict::Unknown => "too few to tell",
        };
        [
            shown(&self.before),
            shown(&self.after),
            percent(self.change.ratio),
            self.change.noise.map_or("?".to_owned(), |(low, high)| format!("{} … {}", percent(low), percent(high))),
            verdict.to_owned(),
            self.after.what.clone(),
            both(&self.before.berth, &self.after.berth),
            both(&self.before.rival, &self.after.rival),
        ]
    }
}

/// The rows under their headings, figures first.
pub(crate) fn show(rows: &[Compared]) -> String {
    let mut lines = vec![["before", "now", "change", "noise", "verdict", "what", "berth", "against"].map(str::to_owned)];
    lines.extend(rows.iter().map(Compared::cells));
    align(&lines, 4)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::table::{Row, Target, as_json};

    fn row(name: &'static str, samples: &[f64], target: Target) -> Row {
        let (ours, rival) = ("1 ms".to_owned(), "2 ms".to_owned());
        Row { name, what: format!("a {name}"), samples: samples.to_vec(), unit: Unit::Ratio, target, ours, rival }
    }

    fn figures(rows: &[Row]) -> Vec<Figure> {
        parse(&as_json(rows, "here"), "here").expect("it is whole")
    }

    #[test]
    fn what_is_better_follows_from_the_target() {
        let (few, many) = ([1.0, 1.1, 1.2, 1.1, 1.0], [2.0, 2.1, 2.2, 2.1, 2.0]);
        let cases = [
            (Target::AtMost(1.0), Verdict::Worse),
            (Target::Lower, Verdict::Worse),
            (Target::AtLeast(1.0), Verdict::Better),
            (Target::Higher, Verdict::Better),
            (Target::AtLeast(1.0).reported(), Verdict::Better),
            (Target::AtMost(1.0).reported(), Verdict::Worse),
        ];
        for (target, expected) in cases {
            let of = |before: &[f64], after: &[f64]| {
                let (compared, _) = runs(&figures(&[row("x", before, target)]), figures(&[row("x", after, target)]));
                compared[0].verdict()
            };
            assert_eq!(of(&few, &many), expected);
            assert_ne!(of(&many, &few), expected);
            assert_eq!(of(&few, &few), Verdict::WithinNoise);
            assert_eq!(of(&few[..1], &many[..1]), Verdict::Unknown);
        }
    }

    #[test]
    fn rows_without_a_partner_are_told() {
        let before = figures(&[row("x", &[1.0], Target::Lower), row("empty", &[], Target::Lower)]);
        let after = [row("y", &[1.0], Target::Lower), row("x", &[1.5], Target::Lower), row("empty", &[1.0], Target::Lower)];
        let (compared, left_out) = runs(&before, figures(&after));
        assert_eq!((compared.len(), left_out), (1, vec!["a y".to_owned(), "a empty".to_owned()]));
        let table = show(&compared);
        let line = table.lines().nth(1).expect("a row");
        assert_eq!(line, "1.00 ×  1.50 ×  +50.0 %      ?  too few to tell  a x   1 ms → 1 ms  2 ms → 2 ms");
    }

    #[test]
    fn figures_of_another_machine_or_format_are_refused() {
        let whole = as_json(&[row("x", &[1.0], Target::Lower)], "here");
        let refused = |figures: &Value, machine: &str| parse(figures, machine).expect_err("it is refused");
        assert_eq!(refused(&whole, "there"), "it was measured on `here`; this machine is `there`");
        let other = |key: &str, value: Value| {
            let mut other = whole.clone();
            other[key] = value;
            other
        };
        assert!(refused(&other("format", json!(FORMAT + 1)), "here").starts_with(&format!("its format is {}; ", FORMAT + 1)));
        assert!(refused(&other("format", Value::Null), "here").starts_with("it has no `format`"));
        assert!(refused(&other("rows", json!([{ "name": "x" }])), "here").starts_with("a row in it is incomplete"));
        assert!(refused(&json!([]), "here").starts_with("it has no `format`"));
    }

    #[test]
    fn a_file_is_told_from_a_program() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("figures");
        let opened = |bytes: &[u8]| {
            fs::write(&file, bytes).expect("it is written");
            Before::open(&file, "here")
        };
        let whole = as_json(&[row("x", &[1.0], Target::Lower)], "here").to_string();
        assert!(matches!(opened(whole.as_bytes()), Ok(Before::File(figures)) if figures.len() == 1));
        assert!(matches!(opened(b"\x7fELF and so on"), Ok(Before::Program(_))));
        for neither in [&b"#!/bin/sh\n"[..], b"", b"\x7f"] {
            let error = opened(neither).expect_err("it is neither");
            assert!(error.contains("neither what `--json` writes") && error.contains("figures"), "{error}");
        }
        assert!(Before::open(&folder.path().join("nothing"), "here").expect_err("it isn't there").starts_with("can't read"));
    }
}
