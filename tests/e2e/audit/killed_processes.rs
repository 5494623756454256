//! Processes that are killed at any moment: every answered call has its record, and the log stays
//! valid.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;
use toolhold_core::audit::Trail;
use toolhold_core::config::Folders;

/// Killed processes, by this number of threads, in pairs that write to one log; and pairs before
/// another log is started.
const KILLS: usize = 1000;
const THREADS: usize = 2;
const PAIRS_OF_A_LOG: usize = 10;

/// Lines that a process prints before it is killed, and the longest time after them in
/// microseconds.
const MOST_LINES: u64 = 60;
const MOST_MICROS: u64 = 400;

/// Reproducible numbers that look random (Knuth's multiplier).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[test]
fn thousand_killed_processes_lose_no_record_of_an_answered_call() {
    let seed =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64);
    let killed = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    logs_of_killed_processes(
                        Numbers(seed.wrapping_add(thread as u64)),
                        KILLS / THREADS,
                    )
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| panic!("with the seed {seed}")))
            .sum::<usize>()
    });
    assert_eq!(killed, KILLS);
}

fn logs_of_killed_processes(mut numbers: Numbers, kills: usize) -> usize {
    let mut killed = 0;
    let (mut answered, mut torn, mut files) = (0, 0, 0);
    while killed < kills {
        let folder = TempDir::new().expect("a temporary folder is made");
        for _ in 0..PAIRS_OF_A_LOG.min((kills - killed).div_ceil(2)) {
            let lines = killed_pair(folder.path(), &mut numbers);
            killed += 2;
            answered += lines.iter().filter(|line| line.starts_with("answered")).count();
            check(folder.path(), &lines);
        }
        let found = Trail::open(&Folders::inside(folder.path()))
            .and_then(|trail| trail.verify(None))
            .expect("the log is readable");
        torn += found.torn.len();
        files += found.files;
    }
    assert!(answered > kills, "the processes worked: {answered} calls were answered");
    // Printed with `--nocapture`.
    println!("{killed} killed, {answered} calls answered, {torn} records torn, {files} files");
    killed
}

/// Two processes that write to one log, each killed at its own moment. Returns everything that they
/// printed.
fn killed_pair(folder: &Path, numbers: &mut Numbers) -> Vec<String> {
    let mut moments =
        || (numbers.below(MOST_LINES), Duration::from_micros(numbers.below(MOST_MICROS)));
    let pair = [moments(), moments()];
    std::thread::scope(|scope| {
        let killed = pair.map(|(lines, micros)| scope.spawn(move || killed(folder, lines, micros)));
        killed.into_iter().flat_map(|killed| killed.join().expect("it is killed")).collect()
    })
}

fn killed(folder: &Path, lines: u64, micros: Duration) -> Vec<String> {
    let mut caller = Command::new(env!("CARGO_BIN_EXE_caller"));
    caller.arg(folder).arg("1").env_clear().env("HOME", folder);
    let mut child = caller.stdout(Stdio::piped()).spawn().expect("the caller starts");
    let mut output = BufReader::new(child.stdout.take().expect("it has an output"));
    let mut printed = String::new();
    for _ in 0..=lines {
        assert!(
            output.read_line(&mut printed).expect("it is text") > 0,
            "the caller ended by itself after {printed:?}"
        );
    }
    let until = Instant::now() + micros;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
    child.kill().and_then(|()| child.wait()).expect("it is killed");
    output.read_to_string(&mut printed).expect("it is text");
    printed.lines().map(str::to_owned).collect()
}

/// Every answered call has its outcome, every effect its intent, and the log is valid.
fn check(folder: &Path, lines: &[String]) {
    let (intents, outcomes) = recorded(folder);
    for line in lines {
        let (what, id) = line.split_once(' ').unwrap_or_else(|| panic!("half a line: {line:?}"));
        let recorded = if what == "ran" { intents.contains(id) } else { outcomes.contains(id) };
        assert!(recorded, "{line}: it is not recorded");
    }
}

/// The calls with an intent and those with an outcome, in a valid log.
fn recorded(folder: &Path) -> (BTreeSet<String>, BTreeSet<String>) {
    let trail = Trail::open(&Folders::inside(folder)).expect("the log is readable");
    let found = trail.verify(None).expect("the log is readable");
    assert!(found.holds(), "{found:#?}");
    let records = trail.last(usize::MAX).expect("the log is readable");
    let ids = |kind: &str| -> BTreeSet<String> {
        records
            .iter()
            .filter(|record| record["kind"] == kind)
            .filter_map(|record| Some(record["call"].as_str()?.to_owned()))
            .collect()
    };
    (ids("intent"), ids("outcome"))
}

/// The output of a caller whose files are limited to a few kilobytes, like on a full disk.
fn on_a_full_disk(folder: &Path, blocks: &str) -> Vec<String> {
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &script, env!("CARGO_BIN_EXE_caller")])
        .arg(folder)
        .args(["1", "10"])
        .env_clear()
        .env("HOME", folder);
    let output = shell.stdin(Stdio::null()).output().expect("a shell starts");
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    stdout.lines().map(str::to_owned).collect()
}

#[test]
fn on_a_full_disk_nothing_takes_effect_that_is_not_recorded() {
    let folder = TempDir::new().expect("a temporary folder is made");
    let ids = |lines: &[String], what: &str| -> BTreeSet<String> {
        let of = lines.iter().filter_map(|line| {
            line.strip_prefix(what)?.split([' ', ':']).nth(1).map(str::to_owned)
        });
        of.collect()
    };
    for blocks in ["16", "17", "24"] {
        let lines = on_a_full_disk(folder.path(), blocks);
        let stopped: Vec<&String> =
            lines.iter().filter(|line| line.starts_with("stopped")).collect();
        assert!(stopped.len() > 20, "the disk was full: {lines:?}");
        for line in stopped {
            let whole = line.contains("because writing the audit log failed: ")
                && line.contains("audit.jsonl: File too large");
            assert!(line.contains(": act: ") && whole, "{line}");
        }
        assert!(ids(&lines, "answered").len() > 70, "what only reads goes on: {lines:?}");
        let (intents, _) = recorded(folder.path());
        let ran = ids(&lines, "ran");
        assert!(ran.is_subset(&intents), "{ran:?} is not within {intents:?}");
    }
    // With room again, everything is recorded again.
    let lines = on_a_full_disk(folder.path(), "unlimited");
    assert!(lines.iter().all(|line| !line.starts_with("stopped")), "{lines:?}");
    check(folder.path(), &lines);
}
