//! The log under everything that can happen to it: processes that are killed, and people who change
//! it.

mod mapping;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;
use toolhold_config::{Folders, Inputs, load};

use crate::log::{Bounds, Log};
use crate::{Audit, EntryOrigin, Trail, Verification, files};

/// A log in a folder of its own.
pub(crate) struct Scene {
    root: TempDir,
    bounds: Bounds,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(u64::MAX, 0)
    }

    pub(crate) fn with(file: u64, keep: u64) -> Self {
        Self {
            root: TempDir::new().expect("a temporary folder is made"),
            bounds: Bounds { file, keep, durable: false },
        }
    }

    /// A log with the records 1 (the log's own) to `count + 1`.
    pub(crate) fn with_records(count: usize) -> Self {
        let scene = Self::new();
        scene.append(count);
        scene
    }

    pub(crate) fn folders(&self) -> Folders {
        Folders::inside(self.root.path())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folders().data.join(files::FOLDER).join(name)
    }

    /// As another process.
    pub(crate) fn open(&self) -> Log {
        Log::open(&self.folders().data, self.bounds).expect("the log opens")
    }

    /// As another process, which ends then.
    pub(crate) fn append(&self, count: usize) {
        let mut log = self.open();
        (0..count).for_each(|number| log.append(&body(number)).expect("it is recorded"));
    }

    pub(crate) fn trail(&self) -> Trail {
        Trail::open(&self.folders()).expect("the log is readable")
    }

    pub(crate) fn verify(&self) -> Verification {
        self.trail().verify(None).expect("the log is readable")
    }

    #[track_caller]
    pub(crate) fn holds(&self, records: u64) -> Verification {
        let found = self.verify();
        assert!(found.holds() && found.records == records, "{found:?}");
        found
    }

    /// The problems, as `place: what`.
    pub(crate) fn problems(&self) -> Vec<String> {
        let problems = self.verify().problems;
        let place = |line: Option<u64>| line.map(|line| format!(":{line}")).unwrap_or_default();
        problems
            .into_iter()
            .map(|problem| format!("{}{}: {}", problem.file, place(problem.line), problem.found))
            .collect()
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("the file is there")
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).expect("the file is written");
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        String::from_utf8(self.read("audit.jsonl"))
            .expect("it is text")
            .lines()
            .map(|line| format!("{line}\n"))
            .collect()
    }
}

/// A unique record.
fn body(number: usize) -> Vec<u8> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let unique = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{{\"ts\":\"2026-03-01T12:00:00.000001Z\",\"kind\":\"outcome\",\"call\":\"c-{number}\",\"unique\":{unique},\"number\":{number}")
        .into_bytes()
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder is made");
    for entry in fs::read_dir(from).expect("the folder is there").flatten() {
        fs::copy(entry.path(), to.join(entry.file_name())).expect("a file is copied");
    }
}

#[test]
fn written_records_verify_and_are_found() {
    let scene = Scene::with_records(3);
    scene.append(2);
    scene.holds(6);
    let trail = scene.trail();
    let head = trail.head().expect("it is whole").expect("there is one");
    assert_eq!(head.seq, 6);
    assert!(trail.verify(Some(&head.hash)).expect("it is readable").holds());
    assert_eq!(trail.of_call("c-1").expect("it is readable").len(), 2);
    assert!(trail.of_call("c-").expect("it is readable").is_empty());
    let last: Vec<u64> = trail
        .last(3)
        .expect("it is readable")
        .iter()
        .filter_map(|record| record["seq"].as_u64())
        .collect();
    assert_eq!(last, [4, 5, 6]);
    assert_eq!(trail.last(100).expect("it is readable").len(), 6);
    assert!(trail.last(0).expect("it is readable").is_empty());
}

#[test]
fn empty_log_is_valid_and_reading_creates_nothing() {
    let scene = Scene::new();
    let trail = scene.trail();
    assert_eq!(trail.head().expect("nothing is missing"), None);
    assert!(trail.verify(None).expect("it is readable").holds());
    assert!(!trail.verify(Some(&"0".repeat(64))).expect("it is readable").holds());
    assert_eq!(fs::read_dir(scene.root.path()).expect("it is there").count(), 0);
}

#[test]
fn parallel_writers_make_one_chain() {
    let scene = Scene::with(4096, 0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| scene.append(100));
        }
    });
    let found = scene.verify();
    assert!(found.holds(), "{found:?}");
    assert!(found.files > 10, "{found:?}");
    let trail = scene.trail();
    assert!((0..100).all(|number| trail.of_call(&format!("c-{number}")).expect("it is readable").len() == 4));
}

#[test]
fn every_changed_byte_is_found() {
    let scene = Scene::with_records(3);
    for name in ["audit.jsonl", "head", "key"] {
        let bytes = scene.read(name);
        for at in 0..bytes.len() {
            for change in [1, 0x20, 0x80] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                scene.write(name, &changed);
                assert!(
                    !scene.verify().holds(),
                    "byte {at} of {name}: {:?} became {:?}",
                    bytes[at] as char,
                    changed[at] as char
                );
            }
        }
        scene.write(name, &bytes);
    }
    scene.holds(4);
}

#[test]
fn only_the_changed_record_is_reported() {
    let scene = Scene::with_records(4);
    let lines = scene.lines();
    let changed = |change: &dyn Fn(&str) -> String| {
        let mut changed = lines.clone();
        changed[2] = change(&lines[2]);
        scene.write("audit.jsonl", changed.concat().as_bytes());
        scene.problems()
    };
    assert_eq!(
        changed(&|line| line.replace("\"number\":1", "\"number\":7")),
        ["audit.jsonl:3: record 3 was changed"]
    );
    let hash = |line: &str| {
        if line.ends_with("0\"}\n") {
            line.replace("0\"}", "1\"}")
        } else {
            format!("{}0\"}}\n", &line[..line.len() - 4])
        }
    };
    assert_eq!(changed(&hash), ["audit.jsonl:3: record 3 was changed"]);
    assert_eq!(
        changed(&|_| "{}\n".to_owned()),
        ["audit.jsonl:3: this line isn't a record", "audit.jsonl:4: missing before record 4: 3"]
    );
}

#[test]
fn missing_doubled_and_moved_records_are_reported() {
    let scene = Scene::with_records(5);
    let lines = scene.lines();
    let check = |order: &[usize], expected: &[&str]| {
        let reordered: String = order.iter().map(|&at| lines[at].as_str()).collect();
        scene.write("audit.jsonl", reordered.as_bytes());
        let expected: Vec<String> =
            expected.iter().map(|&problem| format!("audit.jsonl{problem}")).collect();
        assert_eq!(scene.problems()[..expected.len()], expected, "{order:?}");
        assert!(!expected.is_empty());
    };
    check(&[0, 1, 3, 4, 5], &[":3: missing before record 4: 3"]);
    check(&[0, 1, 4, 5], &[":3: missing before record 5: 3 to 4"]);
    check(&[0, 1, 2, 2, 3, 4, 5], &[":4: record 3 is in the wrong place; record 4 belongs here"]);
    check(
        &[0, 1, 3, 2, 4, 5],
        &[
            ":3: missing before record 4: 3",
            ":4: record 3 is in the wrong place; record 5 belongs here",
        ],
    );
    check(&[0, 1, 2, 3, 4], &[": the end is cut off: the last record is 5, and there were 6"]);
    check(&[1, 2, 3, 4, 5], &[":1: the file lacks the first entry that every file of the log has"]);
    check(&[], &[": the end is cut off: the last record is 0, and there were 6"]);
}

#[test]
fn inserted_lines_are_found() {
    let scene = Scene::with_records(3);
    let lines = scene.lines();
    // A record of another log, which has the same number.
    let other = Scene::with_records(3);
    for foreign in ["\n", "x\n", "{}\n", other.lines()[2].as_str()] {
        for at in 0..lines.len() {
            let mut more = lines.clone();
            more.insert(at, foreign.to_owned());
            scene.write("audit.jsonl", more.concat().as_bytes());
            assert!(!scene.verify().holds(), "{foreign:?} before line {}", at + 1);
        }
    }
}

#[test]
fn truncated_log_is_found_even_after_new_records() {
    let scene = Scene::with_records(2);
    let whole = scene.read("audit.jsonl");
    let head = scene.read("head");
    for length in 0..whole.len() {
        scene.write("audit.jsonl", &whole[..length]);
        scene.write("head", &head);
        assert!(!scene.verify().holds(), "cut to {length} bytes");
        scene.append(1);
        // If only the line end was cut off, it is written again.
        assert_eq!(
            scene.verify().holds(),
            length == whole.len() - 1,
            "cut to {length} bytes, and gone on"
        );
    }
}

#[test]
fn older_state_of_the_log_is_found_by_a_hash_stored_elsewhere() {
    let scene = Scene::with_records(2);
    let (own, kept) = (scene.path(""), scene.root.path().join("kept"));
    copy_folder(&own, &kept);
    scene.append(2);
    let head = scene.trail().head().expect("it is whole").expect("there is one").hash;
    let earlier = scene.trail();
    assert!(earlier.verify(Some(&head)).expect("it is readable").holds());
    copy_folder(&kept, &own);
    scene.holds(3);
    let found = scene.trail().verify(Some(&head)).expect("it is readable");
    assert!(!found.holds() && found.problems[0].found.contains(&head), "{found:?}");
    scene.append(5);
    assert!(!scene.trail().verify(Some(&head)).expect("it is readable").holds());
}

#[test]
fn record_ahead_of_the_head_is_continued() {
    let scene = Scene::with_records(2);
    let head = scene.read("head");
    scene.append(2);
    scene.write("head", &head);
    scene.holds(5);
    scene.append(1);
    let found = scene.holds(6);
    assert!(found.torn.is_empty(), "{found:?}");
}

#[test]
fn incomplete_record_is_recognised_and_can_t_be_forged() {
    let scene = Scene::with_records(2);
    let (before, head) = (scene.read("audit.jsonl"), scene.read("head"));
    scene.append(1);
    let record = scene.read("audit.jsonl")[before.len()..].to_vec();
    for length in 1..record.len() {
        scene.write("audit.jsonl", &[&before, &record[..length]].concat());
        scene.write("head", &head);
        // Complete except for the line end.
        let whole = length == record.len() - 1;
        let found = scene.holds(if whole { 4 } else { 3 });
        assert_eq!(found.torn.len(), usize::from(!whole), "{length} bytes: {found:?}");
        scene.append(2);
        let found = scene.holds(if whole { 6 } else { 5 });
        assert_eq!(found.torn.len(), usize::from(!whole), "{length} bytes: {found:?}");
        if !whole {
            let mut changed = scene.read("audit.jsonl");
            changed[before.len() + length / 2] ^= 1;
            scene.write("audit.jsonl", &changed);
            assert!(!scene.verify().holds(), "byte {} of {length}", length / 2);
        }
    }
    // Killed again and again.
    scene.write("audit.jsonl", &[&before[..], b"{\"ts\":\"2\n{\"\n\n{\"ts\""].concat());
    scene.write("head", &head);
    scene.append(1);
    scene.holds(4);
}

#[test]
fn inserted_line_is_not_shown_or_taken_for_an_incomplete_record() {
    let scene = Scene::with_records(2);
    let forged = b"{\"ts\":\"2026-01-01T00:00:00.000000Z\",\"kind\":\"outcome\",\"call\":\"f0rged-1\",\"tool\":\"delete_path\"}";
    for end in [&b"\n"[..], b""] {
        scene.write("audit.jsonl", &[&scene.read("audit.jsonl")[..], forged, end].concat());
        assert!(!scene.verify().holds());
        scene.append(1);
        let found = scene.verify();
        assert!(
            found.problems.iter().any(|problem| problem.found.contains("this line isn't a record")),
            "{found:?}"
        );
        assert_eq!(
            scene.trail().of_call("f0rged-1").expect("it is readable"),
            Vec::<serde_json::Value>::new()
        );
        assert!(
            scene
                .trail()
                .last(100)
                .expect("it is readable")
                .iter()
                .all(|record| record["tool"] != "delete_path")
        );
    }
}

#[test]
fn files_rotate_and_old_ones_are_removed_if_configured() {
    let scene = Scene::with(2048, 0);
    scene.append(40);
    let found = scene.verify();
    assert!(found.holds() && found.files > 4 && found.records > 45, "{found:?}");
    assert!(files(&scene).iter().all(|(_, size)| *size <= 2048), "{:?}", files(&scene));
    let calls = scene
        .trail()
        .last(1000)
        .expect("it is readable")
        .iter()
        .filter(|record| record["kind"] == "outcome")
        .count();
    assert_eq!(calls, 40);

    let scene = Scene::with(2048, 2);
    scene.append(40);
    let names: Vec<String> = files(&scene).into_iter().map(|(name, _)| name).collect();
    assert!(names.len() == 3 && names[0] != "audit.000001.jsonl", "{names:?}");
    assert!(scene.verify().holds(), "{:?}", scene.verify());
    // Every record that is removed without a note is missed.
    for name in &names {
        let bytes = scene.read(name);
        fs::remove_file(scene.path(name)).expect("it is removed");
        assert!(!scene.verify().holds(), "{name} is missed");
        scene.write(name, &bytes);
    }
    assert!(scene.verify().holds(), "{:?}", scene.verify());
}

fn files(scene: &Scene) -> Vec<(String, u64)> {
    let entries = fs::read_dir(scene.path("")).expect("it is there").flatten();
    let mut files: Vec<(String, u64)> = entries
        .filter_map(|entry| {
            Some((entry.file_name().into_string().ok()?, entry.metadata().ok()?.len()))
        })
        .filter(|(name, _)| name.ends_with(".jsonl"))
        .collect();
    files.sort();
    files
}

#[test]
fn process_killed_during_rotation_leaves_a_valid_log() {
    // Until the next record would start another file.
    let full = || {
        let scene = Scene::with(2048, 0);
        let mut log = scene.open();
        while fs::metadata(scene.path("audit.jsonl")).map_or(0, |found| found.len()) < 1600 {
            log.append(&body(0)).expect("it is recorded");
        }
        scene
    };
    let scene = full();
    let (log, head) = (scene.read("audit.jsonl"), scene.read("head"));
    scene.append(3);
    let ended = scene.read("audit.000001.jsonl");
    assert!(ended.starts_with(&log) && ended.len() > log.len(), "it was ended");
    let next = scene.read("audit.jsonl");
    let begin = next.iter().position(|byte| *byte == b'\n').expect("it has a line") + 1;

    // The record that ends the file is written, but not the head.
    let check = |name: &str, prepare: &dyn Fn(&Scene)| {
        for entry in fs::read_dir(scene.path("")).expect("it is there").flatten() {
            if entry.file_name() != "key" {
                fs::remove_file(entry.path()).expect("it is removed");
            }
        }
        prepare(&scene);
        assert!(scene.verify().holds(), "{name}: {:?}", scene.verify());
        let before = scene.verify().records;
        scene.append(1);
        let found = scene.verify();
        assert!(found.holds() && found.records > before, "{name}, gone on: {found:?}");
        assert_eq!(files(&scene).len(), 2, "{name}");
    };
    check("ended, and the head is older", &|scene| {
        scene.write("audit.jsonl", &ended);
        scene.write("head", &head);
    });
    check("ended and renamed, and the head is older", &|scene| {
        scene.write("audit.000001.jsonl", &ended);
        scene.write("audit.jsonl", &next[..begin]);
        scene.write("head", &head);
    });
    check("the first record of the next file is torn", &|scene| {
        scene.write("audit.000001.jsonl", &ended);
        scene.write("audit.jsonl", &next[..begin / 2]);
        scene.write("head", &head_at(&scene.read("audit.000001.jsonl"), 2));
    });
    check("the next file is empty", &|scene| {
        scene.write("audit.000001.jsonl", &ended);
        scene.write("head", &head_at(&ended, 2));
    });
}

/// The head before the first record of a file and after the last record of the file before.
fn head_at(before: &[u8], file: u64) -> Vec<u8> {
    let line = before
        .strip_suffix(b"\n")
        .expect("it ends with a line")
        .rsplit(|byte| *byte == b'\n')
        .next()
        .expect("there is one");
    let record: serde_json::Value = serde_json::from_slice(line).expect("it is JSON");
    let (seq, hash) = (
        record["seq"].as_u64().expect("it has a number"),
        record["hash"].as_str().expect("it has a hash"),
    );
    format!("1 file {file:012} end {:016} seq {seq:020} ended 0 hash {hash}\n", 0).into_bytes()
}

#[test]
fn lost_head_is_recorded_for_good() {
    for lost in [&b""[..], b"\0\0\0\0", b"1 file 1"] {
        let scene = Scene::with_records(3);
        scene.write("head", lost);
        assert!(!scene.verify().holds());
        scene.append(2);
        let found = scene.verify();
        assert_eq!(found.records, 7, "{found:?}");
        assert_eq!(
            scene.problems(),
            [
                "audit.jsonl:5: the file `head` was lost before this record: earlier records may be missing"
            ]
        );
    }
}

#[test]
fn emptied_log_is_recorded_for_good() {
    let removed =
        |scene: &Scene, name: &str| fs::remove_file(scene.path(name)).expect("it is removed");
    let emptied = |scene: &Scene, name: &str| scene.write(name, b"");
    for gone in [&removed as &dyn Fn(&Scene, &str), &emptied] {
        let scene = Scene::with_records(3);
        gone(&scene, "audit.jsonl");
        gone(&scene, "head");
        assert_eq!(
            scene.problems(),
            ["head: the file and all records are missing: the log was emptied"]
        );
        assert!(!scene.trail().verify_newest().expect("it is readable").holds());
        scene.append(2);
        let found = scene.problems();
        assert_eq!(
            found,
            [
                "audit.jsonl:2: the file `head` was lost before this record: earlier records may be missing"
            ]
        );
    }
    // Before the first record, a head says so.
    let scene = Scene::new();
    drop(scene.open());
    assert_eq!((scene.verify().records, scene.problems()), (0, Vec::new()));
    assert_eq!(scene.trail().head().expect("nothing is missing"), None);
}

#[test]
fn lost_key_is_not_replaced_beside_a_log() {
    let scene = Scene::with_records(1);
    let key = scene.read("key");
    assert_eq!(key.len(), 32);
    for damaged in [&key[..31], &[&key[..], b"x"].concat(), b""] {
        scene.write("key", damaged);
        assert!(
            Log::open(&scene.folders().data, scene.bounds)
                .is_err_and(|error| error.to_string().contains("`key` is damaged"))
        );
    }
    fs::remove_file(scene.path("key")).expect("it is removed");
    assert!(
        Log::open(&scene.folders().data, scene.bounds)
            .is_err_and(|error| error.to_string().contains("`key` is missing"))
    );
    assert!(Trail::open(&scene.folders()).is_err_and(|error| {
        error.to_string().contains("`key`, the key of the records, is missing")
    }));
}

#[test]
fn folder_that_others_can_enter_is_not_trusted() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::with_records(1);
    fs::set_permissions(scene.path(""), fs::Permissions::from_mode(0o755))
        .expect("its mode is set");
    let error =
        Log::open(&scene.folders().data, scene.bounds).err().expect("others may enter").to_string();
    assert!(error.contains("chmod go-rwx"), "{error}");
}

#[test]
fn removing_the_current_file_leaves_a_gap() {
    let scene = Scene::new();
    let mut log = scene.open();
    (0..3).for_each(|number| log.append(&body(number)).expect("it is recorded"));
    fs::remove_file(scene.path("audit.jsonl")).expect("it is removed");
    log.append(&body(3)).expect_err("the file is gone");
    log.append(&body(4)).expect("another is there");
    let problems = scene.problems();
    assert!(
        problems.iter().any(|problem| problem.contains("missing before record")),
        "{problems:?}"
    );
}

/// A log whose lock is kept, as by a process that writes one record after the other.
fn kept_log(scene: &Scene) -> Log {
    let mut log = scene.open();
    for number in 0..17 {
        assert!(!log.can_hold(), "after {number} records");
        log.append(&body(number)).expect("it is recorded");
    }
    assert!(log.can_hold());
    log.hold();
    log.append(&body(0)).expect("it is recorded");
    assert!(!log.can_hold());
    log
}

#[test]
fn kept_lock_loses_no_record_if_the_process_is_killed() {
    let scene = Scene::new();
    let mut log = kept_log(&scene);
    let head = scene.read("head");
    (0..5).for_each(|number| log.append(&body(number)).expect("it is recorded"));
    assert_eq!(scene.read("head"), head, "the head is written when the lock is given back");
    // What a process that is killed here leaves.
    let killed = Scene::with_records(1);
    copy_folder(&scene.path(""), &killed.path(""));
    drop(log);
    let records = scene.verify().records;
    scene.holds(records);
    assert_ne!(scene.read("head"), head);
    for scene in [&scene, &killed] {
        scene.holds(records);
        scene.append(2);
        scene.holds(records + 2);
    }
}

#[test]
fn cut_is_found_after_the_lock_is_given_back() {
    let scene = Scene::new();
    let mut log = kept_log(&scene);
    (0..5).for_each(|number| log.append(&body(number)).expect("it is recorded"));
    log.release().expect("the head is written");
    let lines = scene.lines();
    for left in [lines.len() - 1, lines.len() - 5] {
        scene.write("audit.jsonl", lines[..left].concat().as_bytes());
        assert_eq!(
            scene.problems(),
            [format!(
                "audit.jsonl: the end is cut off: the last record is {left}, and there were {}",
                lines.len()
            )]
        );
    }
    // Cut while it was kept: the next record doesn't follow.
    let scene = Scene::new();
    let mut log = kept_log(&scene);
    let lines = scene.lines();
    scene.write("audit.jsonl", lines[..lines.len() - 1].concat().as_bytes());
    log.append(&body(0)).expect("it is recorded");
    drop(log);
    assert!(!scene.verify().holds());
}

#[test]
fn files_rotate_while_the_lock_is_kept() {
    let scene = Scene::with(4096, 0);
    let mut log = kept_log(&scene);
    (0..100).for_each(|number| log.append(&body(number)).expect("it is recorded"));
    drop(log);
    let found = scene.verify();
    assert!(found.holds() && found.files > 3, "{found:?}");
    scene.append(1);
    assert!(scene.verify().holds());
}

#[test]
fn processes_that_write_one_record_after_the_other_share_the_log() {
    const RECORDS: usize = 3000;
    let scene = Scene::new();
    let config = load(&scene.folders(), &Inputs::default()).expect("the defaults are valid");
    let folders = scene.folders();
    let audit = || Audit::new(&config, &folders.data, EntryOrigin::new("test", &folders));
    let writers = [audit(), audit(), audit()];
    let write = |audit: &Audit, count: usize| {
        let settings = audit.settings.expect("the record is on");
        for number in 0..count {
            audit.append(settings, |_| body(number)).expect("it is recorded");
        }
    };
    // Alone, then all at the same time.
    write(&writers[0], RECORDS);
    std::thread::scope(|scope| {
        writers.iter().for_each(|audit| drop(scope.spawn(|| write(audit, RECORDS))));
    });
    // A reader and another writer wait for the lock, which nobody keeps for long.
    scene.holds(4 * RECORDS as u64 + 1);
    write(&writers[0], RECORDS);
    scene.append(1);
    scene.holds(5 * RECORDS as u64 + 2);
}
