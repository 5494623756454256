//! The memory of a process that searches, and how long it takes: 20,000 documents with vectors in
//! the ordinary test, 100,000 in the soak.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use toolhold_contract::CancellationToken;
use toolhold_store::Stop;
use toolhold_store::index::{Document, DocumentIndex, IndexQuery, IndexQuota};

/// The variable that names the folder to a searcher.
const FOLDER: &str = "TOOLHOLD_INDEX_TEST_LEAN";

/// Most KiB of a process that searches.
const MOST: u64 = 60 * 1024;

const DIMENSIONS: usize = 384;

fn open(folder: &Path) -> DocumentIndex {
    let quota = IndexQuota { bytes: 1 << 30, documents: 1_000_000 };
    DocumentIndex::named(folder, "lean", quota, true)
}

fn stop() -> Stop {
    Stop { deadline: Instant::now() + Duration::from_secs(600), cancel: CancellationToken::new() }
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn vector(state: &mut u64) -> Vec<i8> {
    (0..DIMENSIONS).map(|_| (random(state) % 255) as i8).collect()
}

/// Words of which some are in a tenth of the documents.
fn words(state: &mut u64, count: usize) -> String {
    let word = |_| {
        let uniform = random(state) as f64 / f64::from(1_u32 << 31);
        format!("w{} ", (uniform.powi(3) * 20_000.0) as u32 + 3)
    };
    (0..count).map(word).collect()
}

/// The process that searches. It prints its times and its peak.
fn search(folder: &Path) {
    let index = open(folder);
    let mut state = 99;
    for kind in ["words", "vector", "both"] {
        let mut times: Vec<Duration> = (0..31)
            .map(|_| {
                let (words, vector) = (words(&mut state, 4), vector(&mut state));
                let query = IndexQuery {
                    words: if kind == "vector" { "" } else { &words },
                    vector: (kind != "words").then_some(&vector[..]),
                    limit: 5,
                    ..IndexQuery::default()
                };
                let started = Instant::now();
                index.search(&query, &stop()).expect("it is searched");
                started.elapsed()
            })
            .collect();
        times.sort_unstable();
        println!("time {kind}: p50 {:?}, slowest {:?}", times[times.len() / 2], times[30]);
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("it is read");
    let peak = status.lines().find(|line| line.starts_with("VmHWM:")).expect("it is there");
    println!("peak {}", peak.split_whitespace().nth(1).expect("a number"));
}

#[test]
fn soak_search_takes_little_memory() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return search(Path::new(&folder));
    }
    let count: u32 = if std::env::var_os("TOOLHOLD_SOAK").is_some() { 100_000 } else { 20_000 };
    let root = tempfile::tempdir().expect("a temporary folder");
    let folder = root.path().join("indexes");
    let (index, mut state) = (open(&folder), 1);
    for batch in 0..count / 1000 {
        let documents: Vec<Document> = (0..1000)
            .map(|number| Document {
                key: format!("{}", batch * 1000 + number),
                text: words(&mut state, 30),
                vector: Some(vector(&mut state)),
                ..Document::default()
            })
            .collect();
        index.put(&documents, &stop()).expect("they are written");
    }
    let searched = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "soak_search_takes_little_memory", "--nocapture"])
        .env(FOLDER, &folder)
        .output()
        .expect("the searcher starts");
    let told = String::from_utf8_lossy(&searched.stdout);
    let lines = told.lines().map(str::trim);
    lines.clone().filter(|line| line.starts_with("time ")).for_each(|line| println!("{line}"));
    let peak = lines.filter_map(|line| line.strip_prefix("peak ")).next().expect("it tells");
    println!("{count} documents, peak {peak} KiB");
    assert!(peak.parse::<u64>().expect("a number") <= MOST, "{peak} KiB");
}
