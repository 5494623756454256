//! The audit on its way to other systems: whole, verifiable there, and without a delay of calls.

mod collector;
mod otlp;
mod telemetry;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use toolhold_core::audit::Trail;
use toolhold_core::config::Folders;

use crate::support::{Cli, Ended, not_tried, toolhold};

/// Exporters that are killed.
const KILLS: u64 = 8;

/// A folder in which `caller` makes calls, and whose log is exported.
struct Scene {
    root: TempDir,
}

impl Scene {
    fn new() -> Self {
        Self { root: TempDir::new().expect("a temporary folder is made") }
    }

    fn folders(&self) -> Folders {
        Folders::inside(self.root.path())
    }

    fn audit(&self, name: &str) -> PathBuf {
        self.folders().data.join("audit").join(name)
    }

    /// Calls by 8 callers at a time, each with this number of rounds of two calls. Files of the log
    /// have a mebibyte.
    fn caller(&self, rounds: usize) -> Command {
        let mut caller = Command::new(env!("CARGO_BIN_EXE_caller"));
        caller.arg(self.root.path()).args(["1", &rounds.to_string()]);
        caller.env_clear().env("HOME", self.root.path()).stdout(Stdio::null());
        caller
    }

    fn calls(&self, rounds: usize) {
        let ended = self.caller(rounds).status().expect("the caller starts");
        assert!(ended.success());
    }

    fn command(&self, line: &[&str]) -> Command {
        let folders = self.folders();
        let mut command = Command::new(toolhold());
        command.args(["audit", "export"]).args(line).current_dir(self.root.path()).env_clear();
        command
            .env("HOME", self.root.path())
            .env("TOOLHOLD_CONFIG_DIR", self.root.path().join("config"))
            .env("TOOLHOLD_DATA_DIR", folders.data)
            .stdin(Stdio::null());
        command
    }

    fn export(&self, line: &[&str]) -> Ended {
        Ended::from_output(self.command(line).output().expect("toolhold starts"))
    }

    /// Exports until it is killed.
    fn follow(&self, line: &[&str]) -> Running {
        let mut command = self.command(line);
        command.arg("--follow").stdout(Stdio::piped()).stderr(Stdio::null());
        Running(command.spawn().expect("toolhold starts"))
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.root.path().join(name)).unwrap_or_default()
    }

    /// The number of records in the log.
    fn records(&self) -> u64 {
        let trail = Trail::open(&self.folders()).expect("the log is readable");
        trail.head().expect("the log is whole").expect("there is a record").seq
    }
}

/// A process that is killed.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::yield_now();
    }
}

/// The program of the documentation that verifies an export. `None`, with a notice, without Python.
fn verified(export: &str, key: &Path) -> Option<Result<String, String>> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/audit.md");
    let page = fs::read_to_string(page).expect("the page is readable");
    let program = page.split("```python\n").nth(1).and_then(|rest| rest.split("```").next());
    let file = tempfile::NamedTempFile::new().expect("a file is made");
    fs::write(file.path(), export).expect("it is written");
    let input = fs::File::open(file.path()).expect("it is there");
    let mut python = Command::new("python3");
    // Without any package.
    python.args(["-I", "-S", "-c", program.expect("it has the program")]).arg(key);
    let Ok(ended) = python.stdin(input).output() else {
        not_tried("python3");
        return None;
    };
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    assert!(ended.stderr.is_empty(), "{}", text(ended.stderr));
    Some(if ended.status.success() { Ok(text(ended.stdout)) } else { Err(text(ended.stdout)) })
}

/// How often each record is in an export, by its number.
fn numbers(export: &str) -> BTreeMap<u64, usize> {
    let mut numbers = BTreeMap::new();
    let lines = export.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    for number in lines.filter_map(|line| line["seq"].as_u64()) {
        *numbers.entry(number).or_default() += 1;
    }
    numbers
}

/// The logs in an export as lines of JSON for OpenTelemetry.
fn logs(export: &str) -> Vec<Value> {
    let requests = export.lines().map(|line| serde_json::from_str(line).expect("it is JSON"));
    requests.flat_map(|request: Value| otlp::items(&request, collector::LOGS)).collect()
}

#[test]
fn receiver_verifies_an_export_with_the_standard_library_of_python() {
    let scene = Scene::new();
    scene.calls(30);
    let export = scene.export(&[]).ends(0).stdout;
    let key = scene.audit("key");
    let Some(found) = verified(&export, &key) else { return };
    let records = scene.records();
    assert_eq!(found, Ok(format!("{records} records, complete\n")));
    let secret = fs::read(&key).expect("there is a key");
    let secret: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(!export.contains(&secret), "the key stays here");

    let lines: Vec<&str> = export.lines().collect();
    let with = |change: &dyn Fn(&mut Vec<String>)| {
        let mut changed: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        change(&mut changed);
        verified(&(changed.join("\n") + "\n"), &key).expect("there is Python")
    };
    let changed = with(&|lines| lines[5] = lines[5].replace("\"number\":", "\"number\":1"));
    assert!(changed.as_ref().is_err_and(|why| why.contains("record 5 was changed")), "{changed:?}");
    let removed = with(&|lines| drop(lines.remove(5)));
    assert!(removed.as_ref().is_err_and(|why| why.contains("record 6")), "{removed:?}");
    let moved = with(&|lines| lines.swap(5, 6));
    assert!(moved.is_err(), "{moved:?}");
    let later = with(&|lines| drop(lines.drain(0..5)));
    assert!(later.is_err() || lines.len() < 5, "{later:?}");
    let cut = with(&|lines| lines.truncate(6));
    assert_eq!(cut, Ok("5 records, to be continued\n".to_owned()));
    let other = Scene::new();
    other.calls(1);
    let wrong = verified(&export, &other.audit("key")).expect("there is Python");
    assert!(wrong.is_err_and(|why| why.contains("another key")));
}

#[test]
fn killed_exporter_goes_on_over_turned_files_without_a_loss() {
    let scene = Scene::new();
    let file = scene.root.path().join("siem.jsonl");
    let length = || fs::metadata(&file).map_or(0, |file| file.len());
    for kill in 0..KILLS {
        let mut caller = scene.caller(50).spawn().expect("the caller starts");
        let begun = length();
        let exporter = scene.follow(&["--to", "siem.jsonl"]);
        // At another place of its work each time.
        until("it exports", || length() > begun + kill * 104_729 % 500_000);
        drop(exporter);
        assert!(caller.wait().expect("it ends").success());
    }
    scene.export(&["--to", "siem.jsonl"]).ends(0);
    let export = scene.file("siem.jsonl");
    let (numbers, records) = (numbers(&export), scene.records());
    assert!(numbers.keys().copied().eq(1..=records), "a record is missing of {records}");
    let repeated = numbers.values().filter(|count| **count > 1).count() as u64;
    assert!(repeated <= KILLS * 512, "{repeated} of {records} came again");
    let files = fs::read_dir(scene.audit("")).expect("it is there").count();
    assert!(files > 4, "{files} files");
    if let Some(found) = verified(&export, &scene.audit("key")) {
        // A line that was cut by a kill came again, whole.
        let wrong = found.err().unwrap_or_default();
        let others =
            wrong.lines().filter(|line| line.contains("line") && !line.ends_with("is cut"));
        assert_eq!(others.count(), 0, "{wrong}");
    }
}

#[test]
fn export_to_a_file_continues_and_says_what_is_missing() {
    let scene = Scene::new();
    scene.calls(2);
    scene.export(&["--to", "a.jsonl"]).ends(0);
    let first = scene.records();
    scene.export(&["--to", "a.jsonl"]).ends(0);
    assert_eq!(numbers(&scene.file("a.jsonl")).values().sum::<usize>() as u64, first);
    scene.calls(2);
    scene.export(&["--to", "a.jsonl"]).ends(0);
    let both = numbers(&scene.file("a.jsonl"));
    assert!(both.keys().copied().eq(1..=scene.records()) && both.values().all(|count| *count == 1));
    // Another form is another export.
    scene.export(&["--to", "a.otlp", "--format", "otlp"]).ends(0);
    assert_eq!(logs(&scene.file("a.otlp")).len() as u64, scene.records());
    scene.export(&["--to", "a.jsonl", "--again"]).ends(0);
    assert!(numbers(&scene.file("a.jsonl")).values().all(|count| *count == 2));

    // One at a time, and never through a link.
    let running = scene.follow(&["--to", "a.jsonl"]);
    scene.calls(1);
    let last = scene.records();
    until("it follows", || numbers(&scene.file("a.jsonl")).contains_key(&last));
    let refused = scene.export(&["--to", "a.jsonl"]).ends(4);
    assert!(refused.stderr.contains("another `toolhold audit export`"), "{}", refused.stderr);
    drop(running);
    fs::write(scene.root.path().join("precious"), "text").expect("it is written");
    std::os::unix::fs::symlink("precious", scene.root.path().join("link")).expect("it is made");
    scene.export(&["--to", "link"]).ends(4);
    assert_eq!(scene.file("precious"), "text");

    // A log that isn't the one that was exported.
    fs::remove_dir_all(scene.audit("")).expect("it is removed");
    scene.calls(1);
    let refused = scene.export(&["--to", "a.jsonl"]).ends(4);
    assert!(refused.stderr.contains("--again"), "{}", refused.stderr);
    scene.export(&["--to", "a.jsonl", "--again"]).ends(0);
}

#[test]
fn changed_record_is_exported_and_marked() {
    let scene = Scene::new();
    scene.calls(2);
    let log = scene.audit("audit.jsonl");
    let text = fs::read_to_string(&log).expect("it is readable");
    let changed = text.replacen("\"result\":\"success\"", "\"result\":\"blocked\"", 1);
    assert_ne!(text, changed);
    fs::write(&log, &changed).expect("it is written");
    let export = scene.export(&["--format", "otlp"]).ends(4);
    let logs = logs(&export.stdout);
    let is_broken =
        |log: &&Value| otlp::attribute(log, "toolhold.chain").as_deref() == Some("broken");
    let marked: Vec<&Value> = logs.iter().filter(is_broken).collect();
    assert_eq!(marked.len(), 1, "{}", export.stdout);
    assert_eq!(marked[0]["severityText"], "FATAL", "{}", marked[0]);
    assert!(export.stderr.contains("was changed"), "{}", export.stderr);
    assert_eq!(logs.len(), changed.lines().count());
}

#[test]
fn reader_that_reads_nothing_delays_no_call_and_takes_no_memory() {
    let scene = Scene::new();
    scene.calls(300);
    let mut running = scene.follow(&[]);
    let status = || fs::read_to_string(format!("/proc/{}/status", running.0.id()));
    until("the exporter waits for its reader", || {
        status().is_ok_and(|status| status.contains("State:\tS"))
    });
    let begun = Instant::now();
    scene.calls(300);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let status = status().expect("it still runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it has one");
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().expect("it is a number");
    let log = fs::read_dir(scene.audit("")).expect("it is there").flatten();
    let log: u64 = log.map(|file| file.metadata().map_or(0, |file| file.len())).sum();
    assert!(log > 4 << 20, "{log} bytes were recorded");
    assert!(peak < 100 << 10, "{peak} KiB");
    // When it reads again, it gets everything.
    let mut out = running.0.stdout.take().expect("it has an output");
    let (mut export, mut part, records) = (Vec::new(), [0; 65536], scene.records());
    let last = format!("\"seq\":{records},");
    until("the rest comes", || {
        let read = out.read(&mut part).expect("it is readable");
        export.extend_from_slice(&part[..read]);
        String::from_utf8_lossy(&export[export.len().saturating_sub(4096)..]).contains(&last)
    });
    assert!(numbers(&String::from_utf8_lossy(&export)).keys().copied().eq(1..=records));
}

#[test]
fn removed_format_is_refused_with_its_successors() {
    let refused = Cli::new().run(&["audit", "export", "--format", "cef"]).ends(2);
    for part in ["`--format cef` was removed", "jsonl", "docs/enterprise.md", "otlp"] {
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
    }
}

#[test]
fn wrong_words_are_usage_errors() {
    let cli = Cli::new();
    for line in [
        &["audit", "export", "--since", "yesterday"][..],
        &["audit", "export", "--format", "xml"],
        &["audit", "export", "--endpoint", "http://127.0.0.1:1"],
    ] {
        cli.run(line).ends(2);
    }
    // Nothing is recorded, so nothing is exported.
    let ended = cli.run(&["audit", "export"]).ends(0);
    assert_eq!(ended.stdout, "");
}
