//! A process that is killed in the middle of its writes: what it was told is written is there.

mod killing;

use std::path::Path;
use std::time::{Duration, Instant};

use killing::kill_after;
use toolhold_contract::CancellationToken;
use toolhold_store::{KeyValue, Quota, Stop, Store};

/// The variable that names the folder to a writer.
const FOLDER: &str = "TOOLHOLD_STORE_TEST_FOLDER";

fn open(folder: &Path) -> Store {
    let quota = Quota { bytes: 64 << 20, keys: 10_000 };
    Store::named(folder, "killed", quota)
}

fn stop() -> Stop {
    Stop { deadline: Instant::now() + Duration::from_secs(60), cancel: CancellationToken::new() }
}

fn number(store: &Store, key: &str) -> u64 {
    let value = store.get(key, &stop()).expect("it is read");
    value.map_or(0, |value| {
        std::str::from_utf8(&value).expect("it is text").parse().expect("it is a number")
    })
}

/// The process that is killed. It writes without an end.
fn write_on(folder: &Path) {
    let store = open(folder);
    let from = number(&store, "first");
    for count in from + 1.. {
        let text = count.to_string();
        // A write of many pages, so that a kill often comes in the middle of it.
        let large = text.repeat(500_000 / text.len());
        let put = |key, value| KeyValue { key, value: Some(value) };
        let changes = [
            put("first", text.as_bytes()),
            put("large", large.as_bytes()),
            put("last", text.as_bytes()),
        ];
        assert!(store.write(&[], &changes, &stop()).expect("it is written"));
        println!("written {count}");
    }
}

/// Kills a writer `times` times, each at another moment of its work.
fn kill(times: u64) {
    let root = tempfile::tempdir().expect("a temporary folder");
    let folder = root.path().join("stores");
    let mut written = 0;
    for round in 0..times {
        // After some writes and a piece of one more.
        let acknowledged = kill_after(
            "soak_acknowledged_write_survives_a_kill",
            &[(FOLDER, folder.as_os_str())],
            "written ",
            round % 5 + 1,
            Duration::from_micros(round * 97 % 4000),
        );
        let acknowledged = acknowledged.expect("it has written");
        let store = open(&folder);
        let (first, last) = (number(&store, "first"), number(&store, "last"));
        assert_eq!(first, last, "a write is whole");
        assert!(first >= acknowledged, "{first} is there, but {acknowledged} was acknowledged");
        assert!(first > written, "each round adds something");
        let large = store.get("large", &stop()).expect("it is read").expect("it is there");
        let whole = first.to_string().repeat(500_000 / first.to_string().len());
        assert!(large == whole.as_bytes(), "the large value isn't whole");
        written = first;
    }
}

#[test]
fn soak_acknowledged_write_survives_a_kill() {
    match std::env::var_os(FOLDER) {
        Some(folder) => write_on(Path::new(&folder)),
        None => kill(if std::env::var_os("TOOLHOLD_SOAK").is_some() { 500 } else { 25 }),
    }
}
