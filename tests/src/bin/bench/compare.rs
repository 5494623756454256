//! Compares figures with older ones: from a file of `--json`, or of another build of this program
//! that is measured in turn with this one.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::noise::Change;
use crate::table::{FORMAT, Row, align};

/// What the figures are compared with.
#[derive(Debug)]
pub(crate) enum Before {
    File(Vec<Row>),
    /// Another build of this program.
    Program(PathBuf),
}

/// The comparison of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Verdict {
    Better,
    Worse,
    WithinNoise,
    /// Too few figures to estimate the noise.
    Unknown,
}

/// A row of both.
pub(crate) struct Compared {
    before: Row,
    after: Row,
    change: Change,
}

impl Before {
    /// Opens what `--compare` names.
    ///
    /// # Errors
    ///
    /// It is neither, or its figures can't be compared with those of this program on this machine.
    pub(crate) fn open(path: &Path, machine: &str) -> Result<Before, String> {
        let failed = |error: std::io::Error| format!("can't read {}: {error}", path.display());
        let mut first = [0; 4];
        let read =
            fs::File::open(path).and_then(|mut file| file.read(&mut first)).map_err(failed)?;
        if first[..read] == *b"\x7fELF" {
            return Ok(Before::Program(path.canonicalize().map_err(failed)?));
        }
        let bytes = fs::read(path).map_err(failed)?;
        let figures = serde_json::from_slice(&bytes)
            .map_err(|error| format!("it is neither what `--json` writes ({error}) nor a program"))
            .and_then(|figures| parse(&figures, machine));
        figures
            .map(Before::File)
            .map_err(|error| format!("can't compare with {}: {error}", path.display()))
    }
}

/// The rows of figures that this program, or another build of it, wrote on this machine: one figure
/// for each run.
fn parse(figures: &Value, machine: &str) -> Result<Vec<Row>, String> {
    match &figures["format"] {
        format if format.as_u64() == Some(FORMAT) => {}
        Value::Null => {
            return Err(format!(
                "it has no `format`; this program compares format {FORMAT}: measure anew with it"
            ));
        }
        other => {
            return Err(format!(
                "its format is {other}; this program compares format {FORMAT}: measure anew with it"
            ));
        }
    }
    match figures["machine"].as_str() {
        Some(of) if of == machine => {}
        of => {
            return Err(format!(
                "it was measured on `{}`; this machine is `{machine}`",
                of.unwrap_or("?")
            ));
        }
    }
    let rows = figures["rows"].as_array().ok_or("it has no `rows`")?;
    let mut rows: Vec<Row> = rows
        .iter()
        .map(|row| Row::parse(row).ok_or(format!("a row in it is incomplete: {row}")))
        .collect::<Result<_, _>>()?;
    if figures["runs"] == 1 {
        // Rounds of a single run differ less than runs do.
        rows.iter_mut().for_each(Row::keep_median);
    }
    Ok(rows)
}

/// The rows that both have, and reasons for the others of the second.
pub(crate) fn compare(
    before: &[Row],
    after: Vec<Row>,
    change: impl Fn(&[f64], &[f64]) -> Option<Change>,
) -> (Vec<Compared>, Vec<String>) {
    let (mut compared, mut left_out) = (Vec::new(), Vec::new());
    for after in after {
        let before = before.iter().find(|before| is_same(before, &after));
        let both = before.filter(|before| !before.samples.is_empty() && !after.samples.is_empty());
        match both
            .and_then(|before| Some((before.clone(), change(&before.samples, &after.samples)?)))
        {
            Some((before, change)) => compared.push(Compared { before, after, change }),
            None => left_out.push(after.what),
        }
    }
    (compared, left_out)
}

/// How figures of different times have changed.
pub(crate) fn runs(before: &[f64], after: &[f64]) -> Option<Change> {
    Some(Change::of_runs(before, after))
}

/// How figures that were taken in turn have changed. Nothing where one is missing.
pub(crate) fn pairs(before: &[f64], after: &[f64]) -> Option<Change> {
    let pairs: Vec<(f64, f64)> = before.iter().copied().zip(after.iter().copied()).collect();
    (before.len() == after.len()).then(|| Change::of_pairs(&pairs))
}

fn is_same(one: &Row, other: &Row) -> bool {
    (one.name, &one.what, one.unit) == (other.name, &other.what, other.unit)
}

/// A build of this program, the clone whose plugins it measures, and what it measured.
pub(crate) struct Program {
    path: PathBuf,
    root: PathBuf,
    pub(crate) rows: Vec<Row>,
}

impl Program {
    /// This build.
    pub(crate) fn this(repository: &Path) -> Result<Program, String> {
        let path = std::env::current_exe()
            .map_err(|error| format!("this program can't find itself: {error}"))?;
        Ok(Program { path, root: repository.to_owned(), rows: Vec::new() })
    }

    /// Another build. A build in a `target/release` with plugins beside it measures those,
    /// otherwise this clone's.
    pub(crate) fn other(path: PathBuf, repository: &Path) -> Program {
        let root = path
            .ancestors()
            .nth(3)
            .filter(|root| root.join("target/plugins").is_dir())
            .unwrap_or(repository)
            .to_owned();
        Program { path, root, rows: Vec::new() }
    }

    /// Measures a group of rows once, in a process of its own, and adds the figures to what there
    /// is.
    pub(crate) fn run(&mut self, group: &str, scratch: &Path, machine: &str) -> Result<(), String> {
        let folder = tempfile::tempdir_in(scratch)
            .map_err(|error| format!("no folder for figures: {error}"))?;
        let file = folder.path().join("figures.json");
        let mut command = Command::new(&self.path);
        command
            .arg("--repository")
            .arg(&self.root)
            .args(["--runs", "1", "--json"])
            .arg(&file)
            .arg(group);
        let ended = command
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("can't start {}: {error}", self.path.display()))?;
        // It also fails if a target is missed, which doesn't matter here.
        let bytes = fs::read(&file).map_err(|_| {
            let said = String::from_utf8_lossy(&ended.stderr);
            format!(
                "{} wrote no figures of `{group}` ({}): {}",
                self.path.display(),
                ended.status,
                said.trim()
            )
        })?;
        let figures = serde_json::from_slice(&bytes)
            .map_err(|error| error.to_string())
            .and_then(|figures| parse(&figures, machine));
        for row in figures
            .map_err(|error| format!("can't compare with {}: {error}", self.path.display()))?
        {
            match self.rows.iter_mut().find(|known| is_same(known, &row)) {
                Some(known) => known.samples.extend(row.samples),
                None => self.rows.push(row),
            }
        }
        Ok(())
    }
}

impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} with the plugins of {}", self.path.display(), self.root.display())
    }
}

impl Compared {
    pub(crate) fn verdict(&self) -> Verdict {
        match self.change.is_more_than_noise() {
            None => Verdict::Unknown,
            Some(false) => Verdict::WithinNoise,
            Some(true) if (self.change.ratio > 1.0) == self.after.target.is_more_better() => {
                Verdict::Better
            }
            Some(true) => Verdict::Worse,
        }
    }

    fn cells(&self) -> [String; 8] {
        let shown = |row: &Row| row.value().map_or_else(String::new, |value| row.unit.show(value));
        let percent = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
        let both = |before: &str, after: &str| {
            if before.is_empty() && after.is_empty() {
                String::new()
            } else {
                format!("{before} → {after}")
            }
        };
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
            self.change.noise.map_or("?".to_owned(), |(low, high)| {
                format!("{} … {}", percent(low), percent(high))
            }),
            verdict.to_owned(),
            self.after.what.clone(),
            both(&self.before.ours, &self.after.ours),
            both(&self.before.rival, &self.after.rival),
        ]
    }
}

/// The rows under their headings, figures first.
pub(crate) fn show(rows: &[Compared]) -> String {
    let mut lines = vec![
        ["before", "now", "change", "noise", "verdict", "what", "toolhold", "against"]
            .map(str::to_owned),
    ];
    lines.extend(rows.iter().map(Compared::cells));
    align(&lines, 4)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::table::{Target, Unit, as_json};

    fn row(name: &'static str, samples: &[f64], target: Target) -> Row {
        let (ours, rival) = ("1 ms".to_owned(), "2 ms".to_owned());
        Row {
            name,
            what: format!("a {name}"),
            samples: samples.to_vec(),
            unit: Unit::Ratio,
            target,
            ours,
            rival,
        }
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
                let (compared, _) =
                    compare(&[row("x", before, target)], vec![row("x", after, target)], runs);
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
        let before = [row("x", &[1.0], Target::Lower), row("empty", &[], Target::Lower)];
        let after = vec![
            row("y", &[1.0], Target::Lower),
            row("x", &[1.5], Target::Lower),
            row("empty", &[1.0], Target::Lower),
        ];
        let (compared, left_out) = compare(&before, after, runs);
        assert_eq!((compared.len(), left_out), (1, vec!["a y".to_owned(), "a empty".to_owned()]));
        let table = show(&compared);
        let line = table.lines().nth(1).expect("a row");
        assert_eq!(
            line,
            "1.00 ×  1.50 ×  +50.0 %      ?  too few to tell  a x   1 ms → 1 ms  2 ms → 2 ms"
        );
        // If one run has no figure, the pairs aren't known.
        let (compared, left_out) = compare(
            &[row("x", &[1.0; 7], Target::Lower)],
            vec![row("x", &[1.0; 6], Target::Lower)],
            pairs,
        );
        assert_eq!((compared.len(), left_out.len()), (0, 1));
    }

    #[test]
    fn rounds_of_one_run_are_one_figure() {
        let rows = [row("x", &[1.0, 2.0, 9.0], Target::Lower)];
        let samples = |runs: usize| {
            parse(&as_json(&rows, "here", runs), "here").expect("it is whole")[0].samples.clone()
        };
        assert_eq!((samples(1), samples(3)), (vec![2.0], vec![1.0, 2.0, 9.0]));
    }

    #[test]
    fn figures_of_another_machine_or_format_are_refused() {
        let whole = as_json(&[row("x", &[1.0], Target::Lower)], "here", 1);
        let refused =
            |figures: &Value, machine: &str| parse(figures, machine).expect_err("it is refused");
        assert_eq!(refused(&whole, "there"), "it was measured on `here`; this machine is `there`");
        let other = |key: &str, value: Value| {
            let mut other = whole.clone();
            other[key] = value;
            other
        };
        assert!(
            refused(&other("format", json!(FORMAT + 1)), "here")
                .starts_with(&format!("its format is {}; ", FORMAT + 1))
        );
        assert!(refused(&other("format", Value::Null), "here").starts_with("it has no `format`"));
        assert!(
            refused(&other("rows", json!([{ "name": "x" }])), "here")
                .starts_with("a row in it is incomplete")
        );
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
        let whole = as_json(&[row("x", &[1.0], Target::Lower)], "here", 1).to_string();
        assert!(
            matches!(opened(whole.as_bytes()), Ok(Before::File(figures)) if figures.len() == 1)
        );
        assert!(matches!(opened(b"\x7fELF and so on"), Ok(Before::Program(_))));
        for neither in [&b"#!/bin/sh\n"[..], b"", b"\x7f"] {
            let error = opened(neither).expect_err("it is neither");
            assert!(
                error.contains("neither what `--json` writes") && error.contains("figures"),
                "{error}"
            );
        }
        assert!(
            Before::open(&folder.path().join("nothing"), "here")
                .expect_err("it isn't there")
                .starts_with("can't read")
        );
    }
}
