//! The first and the later calls of the example plugin of each language, which count the words of a
//! file.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::Setting;
use crate::measure::median;
use crate::sandbox::Sandbox;
use crate::table::{Row, Target, Unit, show_time};

/// The languages with an example. Others are measured too if `cargo xtask bench` has built one.
const LANGUAGES: [&str; 3] = ["rust", "python", "javascript"];

/// Starts with compiled code, and calls after the first.
const STARTS: usize = 5;
const CALLS: usize = 100;

const TOOL: &str = "word-count__word_count";

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let folder = setting.repository.join("target/plugins/languages");
    let mut languages: Vec<String> = LANGUAGES.map(str::to_owned).into();
    let built = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut others: Vec<String> = built
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".wasm")?.to_owned()))
        .filter(|name| !LANGUAGES.contains(&&**name))
        .collect();
    others.sort();
    languages.extend(others);
    let mut rows = Vec::new();
    for language in languages {
        rows.extend(of_language(setting, &language, &folder.join(format!("{language}.wasm")))?);
    }
    Ok(rows)
}

fn of_language(setting: &Setting, language: &str, file: &Path) -> Result<Vec<Row>, String> {
    let first = format!("word_count in {language}, first call, not compiled before");
    let next = format!("word_count in {language}, first call of a host, compiled before, p50");
    let warm = format!("word_count in {language}, later calls, p50");
    if !file.exists() {
        let why = format!("{} is missing: see what `cargo xtask bench` says", file.display());
        let missing = |what: &str, unit| {
            Row::not_measured("languages", what, unit, Target::Lower, why.clone())
        };
        return Ok(vec![
            missing(&first, Unit::Milliseconds),
            missing(&next, Unit::Milliseconds),
            missing(&warm, Unit::Microseconds),
        ]);
    }
    let home = tempfile::tempdir_in(&setting.scratch)
        .map_err(|error| format!("no folder for a home: {error}"))?;
    let counted = home.path().join("notes.txt");
    std::fs::write(&counted, "one two\nthree\n")
        .map_err(|error| format!("can't write {}: {error}", counted.display()))?;
    let start = || started(home.path(), file, &counted);
    let (not_compiled, _) = start()?;
    let mut times = Vec::with_capacity(STARTS);
    let mut last = None;
    for _ in 0..STARTS {
        let (time, sandbox) = start()?;
        times.push(time);
        last = Some(sandbox);
    }
    let sandbox = last.ok_or("nothing was started")?;
    let mut calls = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let begin = Instant::now();
        count(&sandbox, &counted)?;
        calls.push(begin.elapsed());
    }
    let millis = |time: &Duration| time.as_secs_f64() * 1e3;
    let row = |what: String, samples, unit, ours| Row {
        name: "languages",
        what,
        samples,
        unit,
        target: Target::Lower,
        ours,
        rival: String::new(),
    };
    let size = std::fs::metadata(file).map_or(0, |found| found.len());
    let size = format!("a component of {:.1} MB", size as f64 / 1e6);
    let compiled = times.iter().map(millis).collect();
    Ok(vec![
        row(first, vec![millis(&not_compiled)], Unit::Milliseconds, size),
        row(next, compiled, Unit::Milliseconds, String::new()),
        row(
            warm,
            calls.iter().map(|time| time.as_secs_f64() * 1e6).collect(),
            Unit::Microseconds,
            show_time(median(calls)),
        ),
    ])
}

/// From the start of a host without other plugins to its first answer, and the host.
fn started(home: &Path, file: &Path, counted: &Path) -> Result<(Duration, Sandbox), String> {
    let settings = [
        format!("plugins.word-count.path={}", quoted(file)),
        "plugins.word-count.reload=trust".to_owned(),
        format!("plugins.word-count.allowed_paths=[{}]", quoted(home)),
        "tools.result_cache.enabled=false".to_owned(),
        "audit.keep=1".to_owned(),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let begin = Instant::now();
    let sandbox = Sandbox::without_builtins(home, &settings)?;
    count(&sandbox, counted)?;
    Ok((begin.elapsed(), sandbox))
}

fn count(sandbox: &Sandbox, counted: &Path) -> Result<(), String> {
    let answer = sandbox.structured(TOOL, json!({ "path": counted }))?;
    if answer == json!({ "lines": 2, "words": 3, "bytes": 14 }) {
        Ok(())
    } else {
        Err(format!("{TOOL} answered {answer}"))
    }
}

/// A path as a value of TOML.
fn quoted(path: &Path) -> String {
    json!(PathBuf::from(path)).to_string()
}
