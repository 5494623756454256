//! Reading while the log grows, is turned, and is changed.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::tests::Scene;

fn open(scene: &Scene, from: ReadFrom) -> Result<RecordReader, HostError> {
    RecordReader::open(&scene.folders(), from)
}

fn after(position: &LogPosition) -> ReadFrom {
    ReadFrom::Position(position.clone())
}

fn from_start(scene: &Scene) -> RecordReader {
    open(scene, after(&LogPosition::default())).expect("the log is readable")
}

fn read(reader: &mut RecordReader) -> Vec<LogRecord> {
    let mut all = Vec::new();
    loop {
        let records = reader.read(7).expect("the log is readable");
        assert!(records.len() <= 7);
        if records.is_empty() {
            return all;
        }
        all.extend(records);
    }
}

/// Each record is intact and follows the one before.
#[track_caller]
fn check(records: &[LogRecord], first: u64, last: u64) {
    let numbers: Vec<u64> = records.iter().map(|record| record.position.seq).collect();
    assert_eq!(numbers, (first..=last).collect::<Vec<_>>());
    assert!(records.iter().all(|record| record.intact && record.missing == 0), "{records:?}");
    assert!(records.windows(2).all(|pair| pair[1].previous == pair[0].position.hash));
}

#[test]
fn every_record_is_read_once_over_the_ends_of_files() {
    let scene = Scene::with(2048, 0);
    scene.append(100);
    let mut reader = from_start(&scene);
    let first = read(&mut reader);
    let last = scene.trail().head().expect("it is whole").expect("there is one").seq;
    check(&first, 1, last);
    assert!(last > 110, "files were turned: {last}");
    // More than one file is turned before it is read again.
    scene.append(50);
    let more = read(&mut reader);
    let end = scene.trail().head().expect("it is whole").expect("there is one").seq;
    check(&more, last + 1, end);
    // From any place of it on.
    for record in first.iter().step_by(7) {
        let mut reader = open(&scene, after(&record.position)).expect("the log is readable");
        check(&read(&mut reader), record.position.seq + 1, end);
    }
}

#[test]
fn reader_keeps_up_with_writers_that_turn_files() {
    let scene = Scene::with(2048, 0);
    let done = AtomicBool::new(false);
    let records = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2).map(|_| scope.spawn(|| scene.append(300))).collect();
        let reading = scope.spawn(|| {
            let (mut reader, mut all) = (from_start(&scene), Vec::new());
            loop {
                let last_look = done.load(Ordering::SeqCst);
                all.extend(read(&mut reader));
                if last_look {
                    return all;
                }
                reader.wait(Duration::from_millis(5)).expect("the log is watched");
            }
        });
        writers.into_iter().for_each(|writer| writer.join().expect("it writes"));
        done.store(true, Ordering::SeqCst);
        reading.join().expect("it reads")
    });
    let end = scene.trail().head().expect("it is whole").expect("there is one").seq;
    check(&records, 1, end);
    assert!(scene.verify().files > 10);
}

#[test]
fn log_that_begins_later_is_found() {
    let scene = Scene::new();
    let mut reader = from_start(&scene);
    assert_eq!(read(&mut reader), []);
    assert_eq!(reader.key_id().expect("nothing is wrong"), None);
    assert!(open(&scene, after(&LogPosition { seq: 3, ..LogPosition::default() })).is_err());
    scene.append(2);
    check(&read(&mut reader), 1, 3);
    let id = reader.key_id().expect("it is readable").expect("there is a key");
    assert_eq!(id.len(), 16);
}

#[test]
fn changed_records_are_read_and_told_apart() {
    let scene = Scene::new();
    scene.append(5);
    let lines = scene.lines();
    let flags = |order: &[usize], change: &dyn Fn(&str) -> String| {
        let text: String = order
            .iter()
            .map(|&at| if at == 3 { change(&lines[at]) } else { lines[at].clone() })
            .collect();
        scene.write("audit.jsonl", text.as_bytes());
        let records = read(&mut from_start(&scene));
        records
            .iter()
            .map(|record| (record.position.seq, record.intact, record.missing))
            .collect::<Vec<_>>()
    };
    let same = |line: &str| line.to_owned();
    let changed = flags(&[0, 1, 2, 3, 4], &|line| line.replace("\"number\":2", "\"number\":9"));
    assert_eq!(changed, [(1, true, 0), (2, true, 0), (3, true, 0), (4, false, 0), (5, true, 0)]);
    let removed = flags(&[0, 1, 2, 4], &same);
    assert_eq!(removed, [(1, true, 0), (2, true, 0), (3, true, 0), (5, false, 1)]);
    let moved = flags(&[0, 2, 1], &same);
    assert!(!moved[1].1 && !moved[2].1, "{moved:?}");
}

#[test]
fn file_that_begins_otherwise_is_an_error_and_no_empty_log() {
    let scene = Scene::new();
    scene.append(3);
    let lines = scene.lines();
    for first in [lines[0].replacen('{', "X", 1), lines[0].replace("begin", "begiX"), String::new()]
    {
        let text = first + &lines[1..].concat();
        scene.write("audit.jsonl", text.as_bytes());
        let told = open(&scene, after(&LogPosition::default())).err().expect("it is refused");
        assert!(told.to_string().contains("lacks the first entry"), "{told}");
    }
    // A file that is replaced while it is read.
    scene.write("audit.jsonl", lines.concat().as_bytes());
    let mut reader = from_start(&scene);
    read(&mut reader);
    fs::rename(scene.path("audit.jsonl"), scene.path("aside")).expect("it is there");
    scene.write("audit.jsonl", lines[1..].concat().as_bytes());
    assert!(reader.read(7).is_err_and(|error| error.to_string().contains("lacks the first entry")));
}

#[test]
fn files_that_keep_removed_are_counted() {
    let scene = Scene::with(2048, 2);
    scene.append(10);
    let position = read(&mut from_start(&scene))[4].position.clone();
    scene.append(100);
    let mut reader = open(&scene, after(&position)).expect("the log is readable");
    let records = read(&mut reader);
    assert!(records[0].intact && records[0].missing > 20, "{:?}", records[0]);
    assert_eq!(records[0].position.seq, position.seq + records[0].missing + 1);
    let end = scene.trail().head().expect("it is whole").expect("there is one").seq;
    check(&records[1..], records[0].position.seq + 1, end);
}

#[test]
fn position_of_another_log_is_refused() {
    let scene = Scene::new();
    scene.append(5);
    let records = read(&mut from_start(&scene));
    let wrong = [
        LogPosition { seq: 99, hash: records[2].position.hash.clone() },
        LogPosition { seq: 3, hash: records[3].position.hash.clone() },
        LogPosition { seq: 3, hash: "x".to_owned() },
        LogPosition { seq: 3, hash: "0".repeat(64) },
    ];
    for position in wrong {
        let error = open(&scene, after(&position)).err().expect("it is refused").to_string();
        assert!(error.contains("record"), "{error}");
    }
    // A log that lost its end while it was read.
    let mut reader = from_start(&scene);
    read(&mut reader);
    let file = fs::OpenOptions::new().write(true).open(scene.path("audit.jsonl"));
    file.and_then(|file| file.set_len(100)).expect("it is cut");
    assert!(reader.read(7).is_err_and(|error| error.to_string().contains("the end of file")));
}

#[test]
fn time_passes_over_earlier_records() {
    let scene = Scene::with(2048, 0);
    // Each at the same time, in 2026, beside the log's own records of today.
    scene.append(40);
    let all = read(&mut from_start(&scene));
    let now = SystemTime::now() + Duration::from_secs(5);
    assert_eq!(read(&mut open(&scene, ReadFrom::Time(now)).expect("it is readable")), []);
    let early = ReadFrom::Time(SystemTime::UNIX_EPOCH);
    assert_eq!(read(&mut open(&scene, early).expect("it is readable")), all);
    // The day after these records, and before today.
    let between = ReadFrom::Time(SystemTime::UNIX_EPOCH + Duration::from_secs(1_772_409_600));
    let later = read(&mut open(&scene, between).expect("it is readable"));
    let own = all.iter().filter(|record| matches!(chain::kind(&record.line), b"begin" | b"end"));
    assert_eq!(later, own.cloned().collect::<Vec<_>>());
    assert!(later.len() > 4 && later.iter().all(|record| record.intact));
}

#[test]
fn unfinished_line_is_read_when_it_is_finished() {
    let scene = Scene::new();
    scene.append(2);
    let (whole, head) = (scene.read("audit.jsonl"), scene.read("head"));
    scene.append(1);
    let more = scene.read("audit.jsonl");
    let mut reader = from_start(&scene);
    scene.write("audit.jsonl", &more[..whole.len() + 20]);
    check(&read(&mut reader), 1, 3);
    // The writer was killed there; the next one goes on.
    scene.write("head", &head);
    scene.append(1);
    check(&read(&mut reader), 4, 4);
}
