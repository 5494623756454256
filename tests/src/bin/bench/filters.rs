//! Filters: the engine in the sandbox against the same engine outside, and the time that filters
//! add to an answer.

use std::fmt::Write;
use std::fs::File;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use toolhold_core::{Audience, Content, FilterInput, FilterVerdict, Request};

use crate::Setting;
use crate::measure::{Compared, in_turn, median, time};
use crate::sandbox::{ECHO, Sandbox};
use crate::table::{Row, Target, Unit, show_time};

const ROUNDS: usize = 15;
const HOSTILE_ROUNDS: usize = 5;

/// Bytes of the log.
const LOG: usize = 10_000_000;

/// Number of measurements for a median.
const CALLS: usize = 2001;

/// The rule for logs.
const RULE: &str = "log-dedup";

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let home = setting.scratch.join("filters");
    let large = [
        "tools.limits.result_mib=64",
        "tools.limits.memory_mib=512",
        "tools.autonomy=full",
        "audit.keep=1",
    ];
    let sandbox = Sandbox::with_builtins(&setting.repository, &home, &setting.scratch, &large)?;
    let mut rows = engine(&sandbox, setting)?;
    rows.push(hostile(&sandbox)?);
    rows.push(short(&sandbox)?);
    rows.push(unmatched(setting, &home)?);
    Ok(rows)
}

fn input(text: &str) -> FilterInput {
    FilterInput {
        tool: "bash".to_owned(),
        exit_code: Some(0),
        content: vec![Content::text(text)],
        ..FilterInput::default()
    }
}

/// The result of a filter on a text, and its time.
fn filtered(sandbox: &Sandbox, rule: &str, text: &str) -> Result<(String, Duration), String> {
    let input = input(text);
    let began = Instant::now();
    let verdict = sandbox.runtime().block_on(sandbox.host().try_filter(rule, input));
    let took = began.elapsed();
    match verdict.map_err(|failure| format!("{rule}: {}", failure.message))? {
        FilterVerdict::Replace { content, .. } => {
            Ok((content.iter().filter_map(Content::as_text).collect(), took))
        }
        other => Err(format!("{rule} makes {other:?} of it")),
    }
}

fn engine(sandbox: &Sandbox, setting: &Setting) -> Result<Vec<Row>, String> {
    let log = log();
    let file = setting.scratch.join("filters.log");
    std::fs::write(&file, &log)
        .map_err(|error| format!("can't write {}: {error}", file.display()))?;
    let rival = setting.repository.join("plugins/target/release/examples/filter");
    let (left, _) = filtered(sandbox, RULE, &log)?;
    if natively(&rival, &file)? != left.as_bytes() {
        return Err("the engine makes something else of the log outside of the sandbox".to_owned());
    }
    let ours = || filtered(sandbox, RULE, &log).map(|(_, took)| took);
    let Compared { ours, rival, ratios } =
        in_turn(ROUNDS, ours, || time(|| natively(&rival, &file).map(black_box)))?;
    let speed = |took: Duration| log.len() as f64 / 1e6 / took.as_secs_f64().max(1e-9);
    let each = |took: Duration| format!("{} ({:.0} MB/s)", show_time(took), speed(took));
    let row = |what: &str, samples: Vec<f64>, unit: Unit, target: Target, rival: String| Row {
        name: "filters",
        what: what.to_owned(),
        samples,
        unit,
        target,
        ours: each(ours),
        rival,
    };
    Ok(vec![
        row(
            "filter, a log of 10 MB, against the same engine natively",
            ratios,
            Unit::Ratio,
            Target::AtMost(2.0),
            each(rival),
        ),
        row(
            "filter, a log of 10 MB",
            vec![ours.as_secs_f64() * 1e3],
            Unit::Milliseconds,
            Target::AtMost(300.0),
            String::new(),
        ),
    ])
}

fn natively(filter: &Path, file: &Path) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", filter.display());
    let input = File::open(file).map_err(failed)?;
    let output = Command::new(filter)
        .arg(RULE)
        .stdin(Stdio::from(input))
        .stderr(Stdio::inherit())
        .output()
        .map_err(failed)?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(format!("{} failed", filter.display()))
    }
}

/// Rules with every strategy, and the repetitions of hostile text.
const RULES: [&str; 8] = [
    "cargo-test",
    "cargo-clippy",
    "git-status",
    "git-diff",
    "git-transfer",
    "log-dedup",
    "grep-rg",
    "make",
];
const MANY: usize = 20_000;

/// Outputs on which a rule with more than linear time would take long. The slowest one counts.
fn hostile(sandbox: &Sandbox) -> Result<Row, String> {
    let texts = [
        "error",
        "0 errors, ",
        "Error ",
        "exit ",
        "\n",
        " \n\t\n",
        "a\nb\n",
        "    at f (a.js:1:1)\n",
        "error: no\n  --> a.rs:1:1\n",
        "a.c:1:1: warning: no\n",
        "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n+a\n",
        "\tmodified: a\nUntracked files:\n",
        "test a ... ok\n---- a stdout ----\n",
    ]
    .map(|text| text.repeat(MANY));
    let mut rounds = Vec::with_capacity(HOSTILE_ROUNDS);
    for _ in 0..HOSTILE_ROUNDS {
        let mut speeds = Vec::with_capacity(RULES.len() * texts.len());
        for rule in RULES {
            for text in &texts {
                let input = input(text);
                let took = time(|| {
                    sandbox
                        .runtime()
                        .block_on(sandbox.host().try_filter(rule, input))
                        .map_err(|failure| failure.message)
                })?;
                speeds.push((
                    text.len() as f64 / 1e6 / took.as_secs_f64().max(1e-9),
                    rule,
                    text.lines().next().unwrap_or_default(),
                ));
            }
        }
        rounds.push(
            speeds
                .into_iter()
                .min_by(|(one, ..), (other, ..)| one.total_cmp(other))
                .ok_or("there are no hostile outputs")?,
        );
    }
    let (_, rule, line) = rounds[0];
    Ok(Row {
        name: "filters",
        what: format!("filter, the slowest of {} hostile outputs", RULES.len() * texts.len()),
        samples: rounds.iter().map(|(speed, ..)| *speed).collect(),
        unit: Unit::MegabytesPerSecond,
        target: Target::Higher,
        ours: format!("`{rule}` on {:?}", line.chars().take(20).collect::<String>()),
        rival: String::new(),
    })
}

/// A short output on a filter that has run once before.
fn short(sandbox: &Sandbox) -> Result<Row, String> {
    let mut text = String::from("running 20 tests\n");
    (0..20).for_each(|number| {
        writeln!(text, "test cart::holds_{number} ... ok")
            .expect("a string takes what is written to it");
    });
    text.push_str("\ntest result: ok. 20 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n");
    let times = (0..CALLS)
        .map(|_| filtered(sandbox, "cargo-test", &text).map(|(_, took)| took))
        .collect::<Result<_, _>>()?;
    Ok(micros("filter, an output of 23 lines", median(times), 50.0, String::new()))
}

/// The time that filters add to an answer that none matches: shaping with filters less shaping
/// without.
fn unmatched(setting: &Setting, home: &Path) -> Result<Row, String> {
    let with = Sandbox::governed(&setting.repository, home, &["audit.keep=1"])?;
    let without =
        Sandbox::governed(&setting.repository, home, &["audit.keep=1", "tools.filters.chain=[]"])?;
    let text = "a line of an output that no filter fits\n".repeat(50);
    let shaped = |sandbox: &Sandbox| {
        let request =
            Request { audience: Audience::Model, ..Request::new(ECHO, json!({ "text": text })) };
        let answer = sandbox.runtime().block_on(sandbox.host().call(request));
        let step = answer.steps.iter().find(|step| step.name == "shape").map(|step| step.time);
        step.ok_or_else(|| "the answer was not shaped".to_owned())
    };
    let (mut ours, mut rival) = (Vec::with_capacity(CALLS), Vec::with_capacity(CALLS));
    for _ in 0..CALLS {
        ours.push(shaped(&with)?);
        rival.push(shaped(&without)?);
    }
    let (ours, rival) = (median(ours), median(rival));
    let row = micros(
        "an answer that no filter fits, against no filters",
        ours.saturating_sub(rival),
        5.0,
        show_time(rival),
    );
    Ok(Row { ours: show_time(ours), ..row })
}

fn micros(what: &str, took: Duration, most: f64, rival: String) -> Row {
    let samples = vec![took.as_secs_f64() * 1e6];
    let (what, unit, target) = (what.to_owned(), Unit::Microseconds, Target::AtMost(most));
    Row { name: "filters", what, samples, unit, target, ours: show_time(took), rival }
}

/// A server's log: most lines are like the one before but for the time, the request and the
/// address.
fn log() -> String {
    let mut log = String::with_capacity(LOG + 256);
    for number in 0_u64.. {
        if log.len() >= LOG {
            break;
        }
        let (second, id) = (number / 40, number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let time = format!(
            "2026-03-{:02}T{:02}:{:02}:{:02}.{:03}Z",
            second / 86_400 % 28 + 1,
            second / 3600 % 24,
            second / 60 % 60,
            second % 60,
            number % 1000
        );
        let line = match number / 20 % 5 {
            0 => format!(
                "INFO  shop::api request {id:016x} from 10.0.{}.{} took {} ms",
                number % 7,
                number % 200,
                number % 90
            ),
            1 => format!(
                "DEBUG shop::db pool connection {} handed out after {} us",
                number % 32,
                number % 900
            ),
            2 => format!(
                "INFO  shop::cart item {} added to cart {:08x}-0000-4000-8000-{:012x}",
                number % 5000,
                id >> 32,
                id & 0xffff_ffff
            ),
            3 => format!("WARN  shop::cache entry {id:x} is older than {} s", number % 3600),
            _ => format!("INFO  shop::mail message {number} queued"),
        };
        writeln!(log, "{time} {line}").expect("a string takes what is written to it");
    }
    log
}
