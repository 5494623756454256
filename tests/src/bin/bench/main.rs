//! Berth against what a user would otherwise run: each figure is a ratio of two measurements from the same run.
//!
//! `cargo xtask bench` builds this in release and runs it. A rival that isn't installed leaves its row empty and says how to get it; a
//! target that was measured and missed makes the exit code 1. So does, with `--compare`, a row that got worse by more than the noise.

mod calls;
mod compare;
mod counted;
mod files;
mod filters;
mod governed;
mod kept;
mod loaded;
mod mcp;
mod measure;
mod noise;
mod process;
mod sandbox;
mod search;
mod shape;
mod shell;
mod swap;
mod table;
mod tree;
mod web;

use std::path::PathBuf;
use std::process::ExitCode;

use compare::{Before, Programs};
use table::{Row, Verdict};

/// What the benches need to know of the machine and the build.
pub(crate) struct Setting {
    /// The root of the repository, with everything built.
    repository: PathBuf,
    /// Files that are made once and kept: `target/bench`.
    scratch: PathBuf,
}

/// Runs of each program by default: with so many, all have to agree for a change to be more than noise.
const PAIRS: usize = 7;

/// A group of rows that share their preparation.
struct Group {
    names: &'static [&'static str],
    measure: fn(&Setting) -> Result<Vec<Row>, String>,
}

const GROUPS: [Group; 14] = [
    Group { names: &["echo", "ready", "throughput"], measure: calls::measure },
    Group { names: &["governed", "durable"], measure: governed::measure },
    Group { names: &["grep", "find"], measure: search::measure },
    Group { names: &["read"], measure: files::measure },
    Group { names: &["kept"], measure: kept::measure },
    Group { names: &["process"], measure: process::measure },
    Group { names: &["shell"], measure: shell::measure },
    Group { names: &["web"], measure: web::measure },
    Group { names: &["filters"], measure: filters::measure },
    Group { names: &["memory"], measure: loaded::memory },
    Group { names: &["plugins"], measure: loaded::plugins },
    Group { names: &["redact", "overflow"], measure: shape::measure },
    Group { names: &["swap"], measure: swap::measure },
    Group { names: &["mcp"], measure: mcp::measure },
];

fn main() -> ExitCode {
    berth_host::helper_hook();
    let result = match Arguments::parse(std::env::args().skip(1)) {
        Ok(Arguments { loaded: Some(copies), repository, .. }) => loaded::child(&repository, copies).map(|()| ExitCode::SUCCESS),
        Ok(Arguments { counted: Some((case, cache)), repository, .. }) => {
            counted::calls(&repository, &case, &cache).map(|()| ExitCode::SUCCESS)
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
    let repository = arguments.repository.canonicalize().map_err(|error| format!("{}: {error}", arguments.repository.display()))?;
    let setting = Setting { scratch: repository.join("target/bench"), repository };
    std::fs::create_dir_all(&setting.scratch).map_err(|error| format!("can't create {}: {error}", setting.scratch.display()))?;
    let machine = machine();
    let mut groups: Vec<&Group> = GROUPS.iter().filter(|group| arguments.wants(group)).collect();
    // What can't be compared is said before anything is measured.
    let before = match arguments.compare.as_deref().map(|path| Before::open(path, &machine)).transpose()? {
        Some(Before::Program(_)) if arguments.json.is_some() => {
            return Err("--json writes the figures of one program; with --compare PROGRAM there are two".to_owned());
        }
        Some(Before::Program(other)) => {
            let programs = Programs::new(other, &setting.repository, machine)?;
            return in_pairs(&programs, &groups, arguments.pairs.unwrap_or(PAIRS), &setting);
        }
        _ if arguments.pairs.is_some() => return Err("--pairs goes with --compare PROGRAM".to_owned()),
        Some(Before::File(figures)) => Some(figures),
        None => None,
    };
    if let Some(figures) = before.as_ref().filter(|_| arguments.names.is_empty()) {
        groups.retain(|group| figures.iter().any(|figure| group.names.contains(&&*figure.name)));
    }
    let mut rows = Vec::new();
    for group in groups {
        eprintln!("measure {}", group.names.join(", "));
        rows.extend((group.measure)(&setting)?);
    }
    println!("\n{machine}\n\n{}", table::show(&rows));
    let json = table::as_json(&rows, &machine);
    if let Some(file) = &arguments.json {
        std::fs::write(file, format!("{json:#}\n")).map_err(|error| format!("can't write {}: {error}", file.display()))?;
    }
    if let Some(before) = before {
        let (compared, left_out) = compare::runs(&before, compare::parse(&json, &machine)?);
        return Ok(told(&compared, &left_out));
    }
    let missed = rows.iter().any(|row| row.verdict() == Verdict::Missed);
    Ok(if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Two programs, group by group, and in each group in turn.
fn in_pairs(programs: &Programs, groups: &[&Group], pairs: usize, setting: &Setting) -> Result<ExitCode, String> {
    let (mut compared, mut left_out) = (Vec::new(), Vec::new());
    for (of, (program, root)) in [("before", &programs.before), ("now", &programs.after)] {
        println!("{of}: {} with the plugins of {}", program.display(), root.display());
    }
    println!("{}, {pairs} pairs of runs", programs.machine);
    for group in groups {
        eprintln!("measure {} {pairs} times with each", group.names.join(", "));
        let (rows, without) = programs.compare(group.names[0], pairs, &setting.scratch)?;
        compared.extend(rows);
        left_out.extend(without);
    }
    Ok(told(&compared, &left_out))
}

/// Prints what has become of the rows.
fn told(compared: &[compare::Compared], left_out: &[String]) -> ExitCode {
    println!("\n{}", compare::show(compared));
    left_out.iter().for_each(|what| println!("not compared, since only one of both has a figure: {what}"));
    let worse = compared.iter().any(|row| row.verdict() == compare::Verdict::Worse);
    if worse { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[derive(Default)]
struct Arguments {
    repository: PathBuf,
    json: Option<PathBuf>,
    /// The figures, or the other program, to hold this one's against.
    compare: Option<PathBuf>,
    /// So many runs of each program.
    pairs: Option<usize>,
    /// Measure this process with so many plugins loaded, and nothing else.
    loaded: Option<usize>,
    /// Make calls of a case between marks, with what is compiled in a folder, for who counts what they do; and nothing else.
    counted: Option<(String, PathBuf)>,
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
                "--pairs" => {
                    let pairs = value()?.parse().ok().filter(|pairs| *pairs > 0).ok_or("--pairs takes a number from 1")?;
                    arguments.pairs = Some(pairs);
                }
                "--counted" => arguments.counted = Some((value()?, words.next().ok_or("--counted needs a folder, too")?.into())),
                "--loaded" => arguments.loaded = Some(value()?.parse().map_err(|error| format!("--loaded takes a number: {error}"))?),
                "--echo-lines" => arguments.echo_lines = true,
                name if GROUPS.iter().any(|group| group.names.contains(&name)) => arguments.names.push(name.to_owned()),
                other => {
                    let known: Vec<_> = GROUPS.iter().flat_map(|group| group.names).copied().collect();
                    return Err(format!(
                        "`{other}` is no bench and no flag; there are {}, --json FILE, --compare FILE | PROGRAM and --pairs N",
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

/// What the figures were measured on.
fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let details = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        details.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map_or(std::env::consts::ARCH, |found| found.1);
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
        let arguments = parse(&["--compare", "before", "--pairs", "9"]).unwrap();
        assert_eq!((arguments.compare.as_deref(), arguments.pairs), (Some("before".as_ref()), Some(9)));
    }

    #[test]
    fn mistakes_are_refused() {
        for words in [&["--json"][..], &["nothing"], &["--loaded", "many"], &["--compare"], &["--pairs", "0"], &["--pairs", "x"]] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }
}
