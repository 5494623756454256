//! A plugin's store against SQLite alone, with the same settings and the same folder.

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior, params};
use serde_json::json;

use crate::Setting;
use crate::measure::{Compared, in_turn, median};
use crate::sandbox::Sandbox;
use crate::table::{Row, Target, Unit, show_time};

const ROUNDS: usize = 15;

/// Operations of a round. A write waits for the disk.
const READS: usize = 100;
const WRITES: usize = 20;

/// What each value begins with. A write of the value that is there already would write nothing.
const VALUE: &str = "a value of some length, as notes and counters have: ";

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let home = tempfile::tempdir_in(&setting.scratch)
        .map_err(|error| format!("no folder for a home: {error}"))?;
    let component = setting.repository.join("target/plugins/hostile-store.wasm");
    let path = format!("plugins.hostile-store.path={}", json!(component));
    let settings = [
        &*path,
        "plugins.hostile-store.reload=trust",
        "plugins.hostile-store.store_mib=16",
        "tools.result_cache.enabled=false",
        "tools.autonomy=full",
        "audit.keep=1",
    ];
    let sandbox = Sandbox::governed(&setting.repository, home.path(), &settings)?;
    let alone = open(&home.path().join("alone.db")).map_err(|error| format!("SQLite: {error}"))?;
    let count = Cell::new(0);
    let new_value = || {
        count.set(count.get() + 1);
        format!("{VALUE}{}", count.get())
    };
    let put = compare(
        WRITES,
        |number| {
            let arguments = json!({ "key": format!("key/{number}"), "value": new_value() });
            sandbox.call_and_wait("hostile-store__put", arguments).map(drop)
        },
        |number| {
            let written = write(&alone, &format!("key/{number}"), &new_value());
            written.map_err(|error| error.to_string())
        },
    )?;
    let get = compare(
        READS,
        |number| {
            let arguments = json!({ "key": format!("key/{}", number % WRITES) });
            let answer = sandbox.call_and_wait("hostile-store__get", arguments)?;
            let text = answer.joined_text();
            if text.starts_with(VALUE) { Ok(()) } else { Err(text) }
        },
        |number| {
            let value = read(&alone, &format!("key/{}", number % WRITES));
            let value = value.map_err(|error| error.to_string())?;
            let is_right = value.starts_with(VALUE.as_bytes());
            if is_right { Ok(()) } else { Err("another value".to_owned()) }
        },
    )?;
    Ok(vec![
        row("a plugin writes a key into its store, on disk, the whole call, p50", put),
        row("a plugin reads a key of its store, the whole call, p50", get),
    ])
}

fn row(what: &str, Compared { ours, rival, ratios }: Compared) -> Row {
    Row {
        name: "store",
        what: what.to_owned(),
        samples: ratios,
        unit: Unit::Ratio,
        target: Target::Lower,
        ours: show_time(ours),
        rival: format!("SQLite alone {}", show_time(rival)),
    }
}

fn compare(
    count: usize,
    ours: impl Fn(usize) -> Result<(), String>,
    rival: impl Fn(usize) -> Result<(), String>,
) -> Result<Compared, String> {
    in_turn(ROUNDS, || p50(count, &ours), || p50(count, &rival))
}

/// The median time of operations with the numbers 0, 1, ….
fn p50(count: usize, operation: impl Fn(usize) -> Result<(), String>) -> Result<Duration, String> {
    let mut times = Vec::with_capacity(count);
    for number in 0..count {
        let start = Instant::now();
        operation(number)?;
        times.push(start.elapsed());
    }
    Ok(median(times))
}

/// A file as `toolhold-store` opens its own.
fn open(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "journal_size_limit", 4 << 20)?;
    connection.execute_batch(
        "CREATE TABLE entries (key BLOB PRIMARY KEY, value BLOB NOT NULL) STRICT;",
    )?;
    Ok(connection)
}

/// The statement of `toolhold-store`, without its count of what the plugin keeps.
fn write(connection: &Connection, key: &str, value: &str) -> rusqlite::Result<()> {
    let transaction =
        rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    transaction
        .prepare_cached(
            "INSERT INTO entries (key, value) VALUES (?1, ?2)
             ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        )?
        .execute(params![key.as_bytes(), value.as_bytes()])?;
    transaction.commit()
}

fn read(connection: &Connection, key: &str) -> rusqlite::Result<Vec<u8>> {
    connection
        .prepare_cached("SELECT value FROM entries WHERE key = ?1")?
        .query_row([key.as_bytes()], |row| row.get(0))
}
