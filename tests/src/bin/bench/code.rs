//! `search_code` on a million lines: the first index against Universal Ctags and against the same
//! parsers outside of any sandbox, an update after one edit, and queries.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Setting;
use crate::measure::{find_program, median, output_of, time};
use crate::sandbox::Sandbox;
use crate::table::{Row, Target, Unit, show_time};

/// Lines of the tree.
const LINES: usize = 1_000_000;

/// Rounds of a whole index, of an update and of a query.
const INDEXES: usize = 3;
const UPDATES: usize = 15;
const QUERIES: usize = 50;

/// More time than an index takes, so that one call makes all of it.
const SETTINGS: [&str; 5] = [
    "tools.call=600",
    "tools.limits.cpu_secs=600",
    "index.update_secs=600",
    "index.max_mib=4096",
    "tools.result_cache.enabled=false",
];

const NO_CTAGS: &str = "Universal Ctags is not installed: apt-get install universal-ctags";

const NO_NATIVE: &str =
    "the comparison of plugins/grammars isn't built: cargo xtask bench does that";

const TAGS: &str = "code";

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let tree = setting.scratch.join("million-lines");
    let what = match sources(&tree)? {
        (lines, files) if lines >= LINES => format!("{lines} lines of Rust in {files} files"),
        (lines, _) => {
            let why = format!("the cargo registry of this machine has only {lines} lines of Rust");
            let target = Target::AtMost(8.0);
            return Ok(vec![Row::not_measured(TAGS, "index", Unit::Ratio, target, why)]);
        }
    };
    let native = setting.repository.join("plugins/target/release/compare");
    let (mut ours, mut ctags, mut natively) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..INDEXES {
        let home = home(setting)?;
        let sandbox = Sandbox::with_builtins(&setting.repository, home.path(), &tree, &SETTINGS)?;
        ours.push(time(|| index(&sandbox))?);
        if is_universal() {
            ctags.push(time(|| output_of(&mut tags(&tree, home.path())))?);
        }
        if native.is_file() {
            natively.push(time(|| output_of(Command::new(&native).arg("--time").arg(&tree)))?);
        }
    }
    let home = home(setting)?;
    let sandbox = Sandbox::with_builtins(&setting.repository, home.path(), &tree, &SETTINGS)?;
    index(&sandbox)?;
    let updates = updates(&sandbox, &tree)?;
    let queries = queries(&sandbox)?;
    let first = format!("the first index of {what}");
    let compared = |ours: &[Duration], rival: &[Duration], name: &str, most: f64, why: &str| {
        let target = Target::AtMost(most);
        if rival.is_empty() {
            return Row::not_measured(TAGS, &first, Unit::Ratio, target, why.to_owned());
        }
        let ratio =
            |(ours, rival): (&Duration, &Duration)| ours.as_secs_f64() / rival.as_secs_f64();
        Row {
            name: TAGS,
            what: first.clone(),
            samples: ours.iter().zip(rival).map(ratio).collect(),
            unit: Unit::Ratio,
            target,
            ours: show_time(median(ours.to_vec())),
            rival: format!("{name} {}", show_time(median(rival.to_vec()))),
        }
    };
    let milliseconds = |what: String, times: Vec<Duration>, most: f64| Row {
        name: TAGS,
        what,
        samples: times.iter().map(|time| time.as_secs_f64() * 1000.0).collect(),
        unit: Unit::Milliseconds,
        target: Target::AtMost(most),
        ours: show_time(median(times)),
        rival: String::new(),
    };
    Ok(vec![
        compared(&ours, &ctags, "ctags -R", 8.0, NO_CTAGS),
        compared(&ours, &natively, "the same parsers natively", 1.5, NO_NATIVE),
        milliseconds(format!("a call after an edit of one file, {what}"), updates, 20.0),
        milliseconds(format!("a call that finds a symbol, {what}, p50"), queries, 10.0),
    ])
}

/// A folder for Toolhold's own files.
fn home(setting: &Setting) -> Result<tempfile::TempDir, String> {
    tempfile::tempdir_in(&setting.scratch).map_err(|error| format!("no folder for a home: {error}"))
}

/// One call, after which everything is indexed.
fn index(sandbox: &Sandbox) -> Result<(), String> {
    let found = search(sandbox, json!({ "symbol": "main" }))?;
    if found["complete"] == Value::Bool(true) && found["hits"] != json!([]) {
        return Ok(());
    }
    Err(format!("the index isn't complete: {} files are waiting", found["waiting_files"]))
}

fn search(sandbox: &Sandbox, arguments: Value) -> Result<Value, String> {
    sandbox.structured("search_code", arguments)
}

/// The times of calls that find what was just written.
fn updates(sandbox: &Sandbox, tree: &Path) -> Result<Vec<Duration>, String> {
    let file = tree.join("edited.rs");
    (0..UPDATES)
        .map(|number| {
            let name = format!("edited_{number}");
            let functions: String = (0..100).map(|other| format!("fn f{other}() {{}}\n")).collect();
            fs::write(&file, format!("{functions}fn {name}() {{}}\n"))
                .map_err(|error| format!("{}: {error}", file.display()))?;
            time(|| {
                let found = search(sandbox, json!({ "symbol": name }))?;
                let line = &found["hits"][0]["line"];
                if *line == json!(101) {
                    Ok(())
                } else {
                    Err(format!("{name} isn't found: {found}"))
                }
            })
        })
        .collect()
}

/// The times of calls with names that the tree has once or often.
fn queries(sandbox: &Sandbox) -> Result<Vec<Duration>, String> {
    const NAMES: [&str; 5] = ["new", "from_str", "TryFrom", "poll_next", "edited_3"];
    (0..QUERIES)
        .map(|number| {
            let start = Instant::now();
            search(sandbox, json!({ "symbol": NAMES[number % NAMES.len()] }))?;
            Ok(start.elapsed())
        })
        .collect()
}

fn tags(tree: &Path, home: &Path) -> Command {
    let mut command = Command::new("ctags");
    command.arg("-R").arg("-f").arg(home.join("tags")).arg(tree);
    command
}

/// Whether `ctags` is Universal Ctags, which knows Rust.
fn is_universal() -> bool {
    find_program("ctags").is_some()
        && output_of(Command::new("ctags").arg("--version"))
            .is_ok_and(|text| String::from_utf8_lossy(&text).contains("Universal Ctags"))
}

/// Copies sources from cargo's registry until the tree has enough lines. Returns its lines and
/// files.
fn sources(tree: &Path) -> Result<(usize, usize), String> {
    let count = tree.with_extension("counted");
    if let Some(known) = fs::read_to_string(&count).ok().as_deref().and_then(numbers) {
        return Ok(known);
    }
    let _ = fs::remove_dir_all(tree);
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let registry = home.unwrap_or_default().join("registry/src");
    let (mut lines, mut files) = (0, 0);
    let mut folders = vec![registry.clone()];
    while let Some(folder) = folders.pop().filter(|_| lines < LINES) {
        let mut entries: Vec<PathBuf> = fs::read_dir(&folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let Ok(text) = fs::read_to_string(&path) else { continue };
                if text.len() > 300_000 || lines >= LINES {
                    continue;
                }
                let copy = tree.join(path.strip_prefix(&registry).unwrap_or(&path));
                copy.parent()
                    .map_or(Ok(()), fs::create_dir_all)
                    .and_then(|()| fs::write(&copy, &text))
                    .map_err(|error| format!("{}: {error}", copy.display()))?;
                lines += text.lines().count();
                files += 1;
            }
        }
    }
    fs::write(&count, format!("{lines} {files}")).map_err(|error| error.to_string())?;
    Ok((lines, files))
}

fn numbers(text: &str) -> Option<(usize, usize)> {
    let (lines, files) = text.split_once(' ')?;
    Some((lines.parse().ok()?, files.parse().ok()?))
}
