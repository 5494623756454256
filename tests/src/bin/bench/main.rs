//! Toolhold against the programs that a user would run otherwise: each figure is a ratio of two
//! measurements from the same run.
//!
//! `cargo xtask bench` builds this in release and runs it. A missing rival leaves its row empty
//! with advice on how to get it; a missed target makes the exit code 1. So does, with `--compare`,
//! a row that got worse by more than the noise.

mod agent;
mod calls;
mod code;
mod compare;
mod counted;
mod develop;
mod diagnostics;
mod files;
mod governed;
mod hosts;
mod install;
mod jobs;
mod kept;
mod languages;
mod loaded;
mod mcp;
mod measure;
mod noise;
mod principals;
mod process;
mod recalled;
mod sandbox;
mod search;
mod serving;
mod shape;
mod shell;
mod stored;
mod swap;
mod table;
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
#[path = "../../../terminal.rs"]
mod terminal;
mod timed;
mod tree;
mod typed;

use std::path::PathBuf;
use std::process::ExitCode;

use compare::{Before, Program};
use table::{Row, Verdict};

/// Facts about the machine and the build for the benches.
pub(crate) struct Setting {
    /// The root of the repository, with everything built.
    repository: PathBuf,
    /// Files that are created once and kept: `target/bench`.
    scratch: PathBuf,
}

/// Runs of each program by default if figures are stored or compared.
const RUNS: usize = 7;

/// A group of rows that share their preparation.
struct Group {
    names: &'static [&'static str],
    measure: fn(&Setting) -> Result<Vec<Row>, String>,
}

const GROUPS: [Group; 25] = [
    Group { names: &["echo", "ready", "throughput"], measure: calls::measure },
    Group { names: &["governed", "durable"], measure: governed::measure },
    Group { names: &["grep", "find"], measure: search::measure },
    Group { names: &["read"], measure: files::measure },
    Group { names: &["kept"], measure: kept::measure },
    Group { names: &["typed"], measure: typed::measure },
    Group { names: &["store"], measure: stored::measure },
    Group { names: &["recalled"], measure: recalled::measure },
    Group { names: &["languages"], measure: languages::measure },
    Group { names: &["develop"], measure: develop::measure },
    Group { names: &["install"], measure: install::measure },
    Group { names: &["process"], measure: process::measure },
    Group { names: &["shell"], measure: shell::measure },
    Group { names: &["hosts"], measure: hosts::measure },
    Group { names: &["diagnostics"], measure: diagnostics::measure },
    Group { names: &["jobs"], measure: jobs::measure },
    Group { names: &["memory"], measure: loaded::memory },
    Group { names: &["plugins"], measure: loaded::plugins },
    Group { names: &["principals"], measure: principals::measure },
    Group { names: &["redact", "overflow"], measure: shape::measure },
    Group { names: &["swap"], measure: swap::measure },
    Group { names: &["mcp"], measure: mcp::measure },
    Group { names: &["servers"], measure: mcp::behind::measure },
    Group { names: &["agent"], measure: agent::measure },
    Group { names: &["code"], measure: code::measure },
];

fn main() -> ExitCode {
    toolhold_core::helper_hook();
    let result = match Arguments::parse(std::env::args().skip(1)) {
        Ok(Arguments { counted: Some((case, cache)), repository, .. }) => {
            counted::calls(&repository, &case, &cache).map(|()| ExitCode::SUCCESS)
        }
        Ok(Arguments { serve_badly: Some(kind), .. }) => {
            mcp::serve_badly(&kind).map(|()| ExitCode::SUCCESS)
        }
        Ok(Arguments { ask: Some([scheme, address, path]), .. }) => {
            hosts::ask(&scheme, &address, &path).map(|()| ExitCode::SUCCESS)
        }
        Ok(Arguments { echo_lines: true, .. }) => mcp::echo_lines().map(|()| ExitCode::SUCCESS),
        Ok(arguments) => run(&arguments),
        Err(message) => Err(message),
    };
    result.unwrap_or_else(|message| {
        eprintln!("error: {message}");
        ExitCode::FAILURE
    })
}

fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    // Absolute, as the paths that tools are given.
    let repository = arguments
        .repository
        .canonicalize()
        .map_err(|error| format!("{}: {error}", arguments.repository.display()))?;
    let setting = Setting { scratch: repository.join("target/bench"), repository };
    std::fs::create_dir_all(&setting.scratch)
        .map_err(|error| format!("can't create {}: {error}", setting.scratch.display()))?;
    let machine = machine();
    let mut groups: Vec<&Group> = GROUPS.iter().filter(|group| arguments.wants(group)).collect();
    // An error in the comparison is reported before anything is measured.
    let before =
        arguments.compare.as_deref().map(|path| Before::open(path, &machine)).transpose()?;
    let several = arguments.json.is_some() || before.is_some();
    let runs = arguments.runs.unwrap_or(if several { RUNS } else { 1 });
    let before = match before {
        Some(Before::Program(_)) if arguments.json.is_some() => {
            return Err(
                "--json writes the figures of one program; with --compare PROGRAM there are two"
                    .to_owned(),
            );
        }
        Some(Before::Program(other)) => {
            let other = Program::other(other, &setting.repository);
            return in_turn(other, &groups, runs, &setting, &machine);
        }
        Some(Before::File(rows)) => Some(rows),
        None => None,
    };
    if let Some(before) = before.as_ref().filter(|_| arguments.names.is_empty()) {
        groups.retain(|group| before.iter().any(|row| group.names.contains(&row.name)));
    }
    let mut rows = measure(&groups, runs, &setting, &machine)?;
    println!("\n{machine}\n\n{}", table::show(&rows));
    if let Some(file) = &arguments.json {
        let json = format!("{:#}\n", table::as_json(&rows, &machine, runs));
        std::fs::write(file, json)
            .map_err(|error| format!("can't write {}: {error}", file.display()))?;
    }
    let missed = rows.iter().any(|row| row.verdict() == Verdict::Missed);
    if runs == 1 {
        rows.iter_mut().for_each(Row::keep_median);
    }
    match before {
        Some(before) => Ok(report(&compare::compare(&before, rows, compare::runs))),
        None if missed => Ok(ExitCode::FAILURE),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Measures in this process, or in a process of its own for each of several runs.
fn measure(
    groups: &[&Group],
    runs: usize,
    setting: &Setting,
    machine: &str,
) -> Result<Vec<Row>, String> {
    let mut this = Program::this(&setting.repository)?;
    for group in groups {
        eprintln!(
            "measure {}{}",
            group.names.join(", "),
            if runs > 1 { format!(", {runs} times") } else { String::new() }
        );
        if runs == 1 {
            this.rows.extend((group.measure)(setting)?);
        } else {
            (0..runs).try_for_each(|_| this.run(group.names[0], &setting.scratch, machine))?;
        }
    }
    Ok(this.rows)
}

/// Two programs, group by group, and in each group in turn.
fn in_turn(
    mut before: Program,
    groups: &[&Group],
    runs: usize,
    setting: &Setting,
    machine: &str,
) -> Result<ExitCode, String> {
    let mut now = Program::this(&setting.repository)?;
    println!("before: {before}\nnow: {now}\n{machine}, {runs} pairs of runs");
    for group in groups {
        eprintln!("measure {}, {runs} times with each", group.names.join(", "));
        for pair in 0..runs {
            // A B, B A, A B, …: slow changes of the machine favour neither.
            let (first, second) =
                if pair % 2 == 0 { (&mut before, &mut now) } else { (&mut now, &mut before) };
            first.run(group.names[0], &setting.scratch, machine)?;
            second.run(group.names[0], &setting.scratch, machine)?;
        }
    }
    Ok(report(&compare::compare(&before.rows, now.rows, compare::pairs)))
}

/// Prints the comparison of the rows.
fn report((compared, left_out): &(Vec<compare::Compared>, Vec<String>)) -> ExitCode {
    println!("\n{}", compare::show(compared));
    left_out
        .iter()
        .for_each(|what| println!("not compared, since not each run of both has a figure: {what}"));
    let worse = compared.iter().any(|row| row.verdict() == compare::Verdict::Worse);
    if worse { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[derive(Default)]
struct Arguments {
    repository: PathBuf,
    json: Option<PathBuf>,
    /// The figures, or the other program, to compare with.
    compare: Option<PathBuf>,
    /// Runs of each program, each in its own process unless there is only one.
    runs: Option<usize>,
    /// Make the calls of a case between marks, with compiled code in a folder, for a program that
    /// counts; and nothing else.
    counted: Option<(String, PathBuf)>,
    /// Be a bad server of this kind, and nothing else.
    serve_badly: Option<String>,
    /// Time requests to a host, at a port, for a path, and nothing else.
    ask: Option<[String; 3]>,
    /// Say lines back, and nothing else.
    echo_lines: bool,
    names: Vec<String>,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
        let mut arguments = Arguments { repository: ".".into(), ..Arguments::default() };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--repository" => arguments.repository = value()?.into(),
                "--json" => arguments.json = Some(value()?.into()),
                "--compare" => arguments.compare = Some(value()?.into()),
                "--runs" => {
                    let runs = value()?
                        .parse()
                        .ok()
                        .filter(|runs| (1..=100).contains(runs))
                        .ok_or("--runs takes a number from 1 to 100")?;
                    arguments.runs = Some(runs);
                }
                "--counted" => {
                    arguments.counted = Some((
                        value()?,
                        words.next().ok_or("--counted needs a folder, too")?.into(),
                    ));
                }
                "--serve-badly" => arguments.serve_badly = Some(value()?),
                "--ask" => arguments.ask = Some([value()?, value()?, value()?]),
                "--echo-lines" => arguments.echo_lines = true,
                name if GROUPS.iter().any(|group| group.names.contains(&name)) => {
                    arguments.names.push(name.to_owned());
                }
                other => {
                    let known: Vec<_> =
                        GROUPS.iter().flat_map(|group| group.names).copied().collect();
                    return Err(format!(
                        "`{other}` is no bench and no flag; there are {}, --json FILE, --compare FILE | PROGRAM and --runs N",
                        known.join(", ")
                    ));
                }
            }
        }
        Ok(arguments)
    }

    fn wants(&self, group: &Group) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| group.names.contains(&name.as_str()))
    }
}

/// The machine of the figures.
fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let details = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = details
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or(std::env::consts::ARCH, |found| found.1);
    format!("{processors} × {model}")
}

#[cfg(test)]
mod tests {
    use super::Arguments;

    fn parse(words: &[&str]) -> Result<Arguments, String> {
        Arguments::parse(words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn arguments_choose_rows_and_files() {
        let arguments = parse(&["--json", "out.json", "echo", "--repository", "x"]).unwrap();
        assert_eq!(arguments.json.as_deref(), Some("out.json".as_ref()));
        assert_eq!((arguments.names, arguments.repository), (vec!["echo".to_owned()], "x".into()));
        let arguments = parse(&["--compare", "before", "--runs", "9"]).unwrap();
        assert_eq!(
            (arguments.compare.as_deref(), arguments.runs),
            (Some("before".as_ref()), Some(9))
        );
    }

    #[test]
    fn mistakes_are_refused() {
        for words in [
            &["--json"][..],
            &["nothing"],
            &["--loaded"],
            &["--compare"],
            &["--runs", "0"],
            &["--runs", "101"],
            &["--runs", "x"],
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }
}
