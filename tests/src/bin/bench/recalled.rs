//! Searching in 100,000 memories, against the same query by Python's SQLite with FTS5.

use std::cell::Cell;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use toolhold_core::{project_id, user_id};
use toolhold_store::Stop;
use toolhold_store::index::{Document, DocumentIndex, IndexQuota};

use crate::Setting;
use crate::measure::{find_program, median, output_of, percentile};
use crate::sandbox::Sandbox;
use crate::table::{Row, Target, Unit, show_time};

const ENTRIES: u32 = 100_000;
const QUERIES: usize = 101;

/// Builds the rival's table of the lines of a file, and prints the times of queries in seconds.
const RIVAL: &str = r#"
import sqlite3, sys, time
texts, queries, path = sys.argv[1:]
base = sqlite3.connect(path)
base.execute("CREATE VIRTUAL TABLE t USING fts5(text, tokenize='porter unicode61')")
base.executemany("INSERT INTO t VALUES (?)", ((line,) for line in open(texts)))
base.commit()
for line in open(queries):
    words = " OR ".join(f'"{word}"' for word in line.split())
    start = time.perf_counter()
    base.execute("SELECT rowid, text FROM t WHERE t MATCH ? ORDER BY rank LIMIT 5", (words,)).fetchall()
    print(time.perf_counter() - start)
"#;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let what = "memory_search in 100,000 entries, the whole call, p50";
    let home = tempfile::tempdir_in(&setting.scratch)
        .map_err(|error| format!("no folder for a home: {error}"))?;
    let wrong = |error: std::io::Error| format!("{}: {error}", home.path().display());
    let work = home.path().join("work");
    std::fs::create_dir(&work).map_err(wrong)?;
    let state = Cell::new(1);
    let texts: Vec<String> = (0..ENTRIES).map(|_| words(&state, 30)).collect();
    let queries: Vec<String> = (0..QUERIES).map(|_| words(&state, 4)).collect();
    fill(home.path(), &work, &texts)?;
    let settings = ["tools.result_cache.enabled=false", "audit.keep=1"];
    let sandbox = Sandbox::with_builtins(&setting.repository, home.path(), &work, &settings)?;
    let mut times = Vec::with_capacity(QUERIES);
    for query in &queries {
        let started = Instant::now();
        let answer = sandbox.call_and_wait("memory_search", json!({ "query": query }))?;
        times.push(started.elapsed());
        let found = answer.joined_text();
        if !found.starts_with("Found 5 memories") {
            return Err(format!("{query}: {found}"));
        }
    }
    let slow = percentile(&times, 95);
    let rival = match find_program("python3") {
        Some(python) => show_time(ask_rival(&python, home.path(), &texts, &queries)?),
        None => "not measured: python3 is not installed".to_owned(),
    };
    Ok(vec![Row {
        name: "recalled",
        what: what.to_owned(),
        samples: vec![median(times.clone()).as_secs_f64() * 1000.0],
        unit: Unit::Milliseconds,
        target: Target::AtMost(10.0),
        ours: format!("{}, p95 {}", show_time(median(times)), show_time(slow)),
        rival: format!("Python's SQLite {rival}"),
    }])
}

/// Words, of which the first of the vocabulary are in many texts.
fn words(state: &Cell<u64>, count: usize) -> String {
    let mut text = String::new();
    for _ in 0..count {
        let next = state.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.set(next);
        let uniform = (next >> 33) as f64 / f64::from(1_u32 << 31);
        let _ = write!(text, "w{} ", (uniform.powi(3) * 20_000.0) as u32);
    }
    text
}

/// Writes the entries as the tool does, but without waiting for the disk.
fn fill(home: &Path, work: &Path, texts: &[String]) -> Result<(), String> {
    let work = work.canonicalize().map_err(|error| error.to_string())?;
    let folder = toolhold_core::config::Folders::inside(home).data.join("indexes");
    let quota = IndexQuota { bytes: 1 << 30, documents: u64::from(ENTRIES) };
    let index = DocumentIndex::named(folder, "memory", quota, true);
    let prefix = format!("project/{}/{}", user_id(None), project_id(&work));
    let data = json!({
        "time": 0, "call": "", "front_end": "bench", "version": "0", "category": "core",
        "untrusted": false,
    });
    for (batch, texts) in texts.chunks(1000).enumerate() {
        let document = |(number, text): (usize, &String)| Document {
            key: format!("{prefix}/{}", batch * 1000 + number),
            text: text.clone(),
            tags: vec!["category:core".to_owned()],
            data: data.to_string().into_bytes(),
            vector: None,
        };
        let documents: Vec<Document> = texts.iter().enumerate().map(document).collect();
        let stop =
            Stop { deadline: Instant::now() + Duration::from_secs(60), cancel: Default::default() };
        index.put(&documents, &stop).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn ask_rival(
    python: &Path,
    home: &Path,
    texts: &[String],
    queries: &[String],
) -> Result<Duration, String> {
    let [lines, asked, file] = ["texts", "queries", "rival.db"].map(|name| home.join(name));
    for (path, all) in [(&lines, texts), (&asked, queries)] {
        std::fs::write(path, all.join("\n")).map_err(|error| error.to_string())?;
    }
    let mut command = Command::new(python);
    let told = output_of(command.args(["-c", RIVAL]).args([lines, asked, file]))?;
    let seconds = String::from_utf8_lossy(&told).into_owned();
    let times = seconds.lines().filter_map(|line| line.parse().ok()).map(Duration::from_secs_f64);
    Ok(median(times.collect()))
}
