//! A memory with many entries: the plugin, the command and the limits, with their times and the
//! memory that they take.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;
use toolhold_contract::CancellationToken;
use toolhold_store::Stop;
use toolhold_store::index::{Document, DocumentIndex, IndexQuota};

use crate::mcp::client::{Client, MODERN, text};
use crate::support::Cli;

/// Documents that are written at once.
const BATCH: u32 = 1000;

fn stop() -> Stop {
    Stop { deadline: Instant::now() + Duration::from_secs(600), cancel: CancellationToken::new() }
}

/// A word of a vocabulary, in which low numbers are common.
fn word(state: &mut u64) -> String {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let uniform = (*state >> 33) as f64 / f64::from(1_u32 << 31);
    format!("w{}", (uniform.powi(4) * 50_000.0) as u32)
}

/// The most memory that a process has held.
fn peak_mib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = line.expect("the kernel tells the peak").trim().trim_end_matches(" kB");
    peak.parse::<u64>().expect("the peak is a number") / 1024
}

/// Fills the memory up to `count` entries, in the form of the one that the plugin has saved.
fn fill(cli: &Cli, count: u32) {
    let quota = IndexQuota { bytes: 8 << 30, documents: u64::from(count) };
    let folder = cli.root.path().join("data/indexes");
    let index = DocumentIndex::named(folder, "memory", quota, false);
    let first = index.list("", None, 1, &stop()).expect("it is read").entries.remove(0).key;
    let saved = index.get(std::slice::from_ref(&first), &stop()).expect("it is read").remove(0);
    let saved = saved.expect("it is there");
    let prefix = first.strip_suffix("first").expect("its key is last").to_owned();
    let mut state = 1;
    let mut made = 1;
    while made < count {
        let numbers = made..count.min(made + BATCH);
        made = numbers.end;
        let documents: Vec<Document> = numbers
            .map(|number| {
                let words: Vec<String> = (0..30).map(|_| word(&mut state)).collect();
                let tags = saved.tags.iter().map(|tag| match tag.strip_prefix("content:") {
                    Some(_) => format!("content:{number:032x}"),
                    None => tag.clone(),
                });
                Document {
                    key: format!("{prefix}m-{number}"),
                    text: format!("{} unique{number}", words.join(" ")),
                    tags: tags.collect(),
                    ..saved.clone()
                }
            })
            .collect();
        index.put(&documents, &stop()).expect("they are written");
    }
}

#[test]
fn soak_memory_of_many_entries_is_found_listed_and_bounded() {
    let is_soak = std::env::var_os("TOOLHOLD_SOAK").is_some();
    let mib: u32 = if is_soak { 640 } else { 4 };
    // The limit of entries that belongs to the limit of MiB.
    let count = mib * 100_000 / 64;
    let cli = Cli::new();
    cli.configure(&format!("[tools.memory]\nindex_mib = {mib}\n"));
    cli.run(&["call", "memory_save", "content=The first fact", "key=first"]).ends(0);
    let started = Instant::now();
    fill(&cli, count);
    println!("{count} entries are written in {:?}", started.elapsed());

    let mut client = Client::new(&cli, &[], MODERN, false);
    let (mut slowest, mut all, mut searches) = (Duration::ZERO, Duration::ZERO, 0);
    for number in (1..count).step_by(count as usize / 50) {
        for (query, limit) in
            [(format!("what of unique{number} w7"), 5), (format!("w0 w1 unique{number}"), 20)]
        {
            let started = Instant::now();
            let found = client.call("memory_search", json!({ "query": query, "limit": limit }));
            let took = started.elapsed();
            (slowest, all, searches) = (slowest.max(took), all + took, searches + 1);
            let found = text(&found);
            assert!(found.contains(&format!("m-{number} ")), "{query}: {found}");
        }
    }
    let mean = all / searches;
    println!("a memory_search takes {mean:?}, the slowest of {searches} {slowest:?}");
    // The memory is full: nothing more is saved, and what is there can change and be forgotten.
    let save = |client: &mut Client, key: &str, content: &str| {
        let started = Instant::now();
        let said = client.call("memory_save", json!({ "key": key, "content": content }));
        (said["isError"] == true, text(&said), started.elapsed())
    };
    let (refused, why, _) = save(&mut client, "one-more", "One fact more");
    assert!(refused && why.contains(&format!("the limit is {count}")), "{why}");
    let (refused, why, took) = save(&mut client, "first", "The first fact has changed");
    assert!(!refused, "{why}");
    println!("a memory_save takes {took:?}");
    assert_ne!(client.call("memory_forget", json!({ "key": "m-1" }))["isError"], true);
    let (refused, why, _) = save(&mut client, "one-more", "One fact more");
    assert!(!refused, "{why}");
    let peak = peak_mib(client.pid());
    println!("the server held {peak} MiB at most");
    drop(client);

    // People page through it.
    let started = Instant::now();
    let found = cli.run(&["memory", "search", "--limit", "1000"]).ends(0).stdout;
    println!("toolhold memory search lists the latest in {:?}", started.elapsed());
    assert_eq!(found.lines().count(), 2000);
    let started = Instant::now();
    let found = cli.run(&["memory", "search", "unique17"]).ends(0).stdout;
    println!("toolhold memory search finds one in {:?}", started.elapsed());
    assert!(found.starts_with("m-17 "), "{found}");
    let started = Instant::now();
    let shown = cli.run(&["memory", "show", "m-17"]).ends(0).stdout;
    println!("toolhold memory show takes {:?}", started.elapsed());
    assert!(shown.contains("unique17"), "{shown}");
    let started = Instant::now();
    let mut export = cli.command(&["memory", "export"]);
    let mut export = export.stdout(Stdio::piped()).spawn().expect("toolhold starts");
    let lines = BufReader::new(export.stdout.take().expect("it is piped")).lines();
    let (mut seen, mut peak_of_export) = (0, 0);
    for line in lines {
        line.expect("it is text");
        seen += 1;
        if seen % (count / 10) == 0 && seen < count {
            peak_of_export = peak_mib(export.id()).max(peak_of_export);
        }
    }
    assert!(export.wait().expect("it ends").success());
    assert_eq!(seen, count);
    println!("toolhold memory export takes {:?}, and {peak_of_export} MiB", started.elapsed());

    // Far more than on a quiet machine, and far less than if all entries were held at once.
    assert!(slowest < Duration::from_secs(10), "{slowest:?}");
    assert!(peak < 400 && peak_of_export < 200, "{peak} and {peak_of_export} MiB");
}
