//! What an index notes for a database elsewhere that has its vectors too.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use toolhold_contract::CancellationToken;
use toolhold_store::Stop;
use toolhold_store::index::{Document, DocumentIndex, IndexQuery, IndexQuota, UnsentVector, group};

/// The group of most keys.
const P: &str = "c/p/";

fn stop() -> Stop {
    Stop { deadline: Instant::now() + Duration::from_secs(60), cancel: CancellationToken::new() }
}

fn open(folder: &Path) -> DocumentIndex {
    let quota = IndexQuota { bytes: 256 << 20, documents: 1_000_000 };
    DocumentIndex::named(folder, "code", quota, true)
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("indexes");
    (root, path)
}

fn put(index: &DocumentIndex, key: &str, vector: &[i8]) {
    let vector = Some(vector.to_vec()).filter(|vector| !vector.is_empty());
    let document = Document { key: key.to_owned(), vector, ..Document::default() };
    index.put(&[document], &stop()).expect("it is written");
}

fn unsent(index: &DocumentIndex, numbers: usize) -> Vec<UnsentVector> {
    index.unsent(numbers, P, 100, &stop()).expect("it is read")
}

/// The vectors that aren't sent.
fn vectors(index: &DocumentIndex, numbers: usize) -> Vec<Option<Vec<i8>>> {
    unsent(index, numbers).into_iter().map(|one| one.vector).collect()
}

fn send_all(index: &DocumentIndex, numbers: usize) {
    index.sent(&unsent(index, numbers), &stop()).expect("it is noted");
}

#[test]
fn group_is_two_parts_of_a_key() {
    for (key, expected) in [
        ("c/one/file/w1-2", Some("c/one/")),
        ("c/one/", Some("c/one/")),
        ("c/one", None),
        ("", None),
        ("//", Some("//")),
    ] {
        assert_eq!(group(key), expected, "{key}");
    }
}

#[test]
fn nothing_is_noted_without_a_database() {
    let (_root, folder) = folder();
    let index = open(&folder);
    put(&index, "c/p/a", &[1, 2]);
    assert_eq!(unsent(&index, 2), []);
    let mirror = index.mirror(2, P, "here", &stop()).expect("it is read");
    assert_eq!((mirror.vectors, mirror.unsent, mirror.is_begun), (1, 0, false));
    assert_eq!(mirror.secret.len(), 32);
}

#[test]
fn changes_are_noted_until_they_are_sent() {
    let (_root, folder) = folder();
    let index = open(&folder);
    put(&index, "c/p/a", &[1, 2]);
    put(&index, "c/p/b", &[1, 2, 3]);
    index.begin_mirror(2, P, "here", &stop()).expect("it begins");
    let first = unsent(&index, 2);
    assert_eq!(first[0].vector, Some(vec![1, 2]));
    send_all(&index, 2);
    // In the next process as well.
    drop(index);
    let index = open(&folder);
    assert_eq!(unsent(&index, 2), []);
    put(&index, "c/p/a", &[3, 4]);
    put(&index, "c/p/c", &[5, 6]);
    put(&index, "c/p/d", &[]);
    let changes = vectors(&index, 2);
    assert_eq!(changes.len(), 3, "{changes:?}");
    assert!(changes.contains(&None) && changes.contains(&Some(vec![3, 4])), "{changes:?}");
    send_all(&index, 2);
    index.delete_prefix("c/p/", &stop()).expect("they are deleted");
    assert_eq!(vectors(&index, 2), [None, None]);
    let mirror = index.mirror(2, P, "here", &stop()).expect("it is read");
    assert_eq!((mirror.vectors, mirror.unsent, mirror.is_begun), (0, 2, true));
    // Elsewhere, all begins anew.
    let other = index.mirror(2, P, "there", &stop()).expect("it is read");
    assert_eq!((other.secret == mirror.secret, other.is_begun), (true, false));
}

#[test]
fn change_while_another_is_sent_stays() {
    let (_root, folder) = folder();
    let (index, other) = (open(&folder), open(&folder));
    index.begin_mirror(2, P, "here", &stop()).expect("it begins");
    put(&index, "c/p/a", &[1, 2]);
    let sending = unsent(&index, 2);
    other.delete(&["c/p/a".to_owned()], &stop()).expect("it is deleted");
    index.sent(&sending, &stop()).expect("it is noted");
    assert_eq!(vectors(&index, 2), [None]);
}

#[test]
fn write_that_fails_notes_nothing() {
    let (_root, folder) = folder();
    let quota = IndexQuota { bytes: 1000, documents: 1 };
    let index = DocumentIndex::named(&folder, "code", quota, true);
    index.begin_mirror(2, P, "here", &stop()).expect("it begins");
    put(&index, "c/p/a", &[1, 2]);
    send_all(&index, 2);
    let more =
        Document { key: "c/p/b".to_owned(), vector: Some(vec![1, 2]), ..Document::default() };
    index.put(&[more], &stop()).expect_err("it is one too many");
    assert_eq!(unsent(&index, 2), []);
}

#[test]
fn only_what_is_named_is_compared() {
    let (_root, folder) = folder();
    let index = open(&folder);
    for (key, vector) in [("c/p/a", [1, 2]), ("c/p/b", [2, 1]), ("c/q/c", [1, 2])] {
        put(&index, key, &vector);
    }
    index.begin_mirror(2, P, "here", &stop()).expect("it begins");
    index.begin_mirror(2, "c/q/", "here", &stop()).expect("it begins");
    let other = index.unsent(2, "c/q/", 100, &stop()).expect("it is read");
    let all = unsent(&index, 2).into_iter().chain(other);
    let ids: Vec<i64> = all.map(|one| one.id).collect();
    assert_eq!(ids.len(), 3);
    let found = |near: &[i64]| -> Vec<String> {
        let query = IndexQuery {
            vector: Some(&[1, 2]),
            prefix: "c/p/",
            near: Some(near),
            limit: 10,
            ..IndexQuery::default()
        };
        let hits = index.search(&query, &stop()).expect("it is searched");
        hits.into_iter().map(|hit| hit.key).collect()
    };
    assert_eq!(found(&[]), [""; 0]);
    assert_eq!(found(&[i64::MAX, -1, 0]), [""; 0]);
    assert_eq!(found(&ids[1..]), ["c/p/b"]);
    // The prefix counts, and what is named twice is one hit.
    assert_eq!(found(&[&ids[..], &ids[..]].concat()), ["c/p/a", "c/p/b"]);
}

#[test]
fn vectors_of_other_groups_are_not_sent() {
    let (_root, folder) = folder();
    let index = open(&folder);
    put(&index, "c/p/a", &[1, 2]);
    put(&index, "c/q/b", &[1, 2]);
    index.begin_mirror(2, P, "here", &stop()).expect("it begins");
    put(&index, "c/q/c", &[3, 4]);
    put(&index, "c/p/d", &[5, 6]);
    assert_eq!(vectors(&index, 2), [Some(vec![1, 2]), Some(vec![5, 6])]);
    send_all(&index, 2);
    index.begin_mirror(2, "c/q/", "here", &stop()).expect("it begins");
    assert_eq!(vectors(&index, 2), []);
    // But that one of them is gone is said at once: its group may not be searched again.
    let other = index.unsent(2, "c/q/", 100, &stop()).expect("it is read");
    index.sent(&other, &stop()).expect("it is noted");
    index.delete_prefix("c/q/", &stop()).expect("they are deleted");
    assert_eq!(vectors(&index, 2), [None, None]);
}

#[test]
fn vectors_of_each_length_are_counted() {
    let (_root, folder) = folder();
    let index = open(&folder);
    let counts = || {
        [2, 3].map(|numbers| index.mirror(numbers, P, "here", &stop()).expect("it is read").vectors)
    };
    assert_eq!(counts(), [0, 0]);
    for (key, vector) in [
        ("c/p/a", &[1, 2][..]),
        ("c/p/b", &[1, 2]),
        ("c/p/c", &[1, 2, 3]),
        ("c/p/d", &[]),
        ("c/q/e", &[1, 2]),
        ("c/f", &[1, 2]),
    ] {
        put(&index, key, vector);
    }
    assert_eq!(counts(), [2, 1]);
    // Another length, another vector of the same one, none any more, and a key that isn't there.
    put(&index, "c/p/a", &[1, 2, 3]);
    put(&index, "c/p/b", &[2, 1]);
    put(&index, "c/p/c", &[]);
    index.delete(&["c/p/d".to_owned(), "c/p/x".to_owned()], &stop()).expect("it is deleted");
    assert_eq!(counts(), [1, 1]);
    assert_eq!(index.delete_prefix("", &stop()).expect("all are deleted"), 5);
    assert_eq!(counts(), [0, 0]);
}

#[test]
fn too_many_changes_are_forgotten() {
    let (_root, folder) = folder();
    let index = open(&folder);
    index.begin_mirror(2, P, "here", &stop()).expect("it begins");
    put(&index, "c/p/a", &[1, 2]);
    let file = Connection::open(index.path()).expect("it opens");
    file.execute("UPDATE unsent SET change = -2000000", []).expect("it is long ago");
    put(&index, "c/p/b", &[1, 2]);
    let mirror = index.mirror(2, P, "here", &stop()).expect("it is read");
    assert_eq!((mirror.unsent, mirror.is_begun), (0, false));
}

#[test]
fn file_of_an_older_version_is_upgraded() {
    let (_root, folder) = folder();
    let index = open(&folder);
    for key in ["c/p/a", "c/q/b", "c/p", "c"] {
        put(&index, key, &[1, 2]);
    }
    let path = index.path();
    drop(index);
    let old = Connection::open(&path).expect("it opens");
    old.execute_batch(
        "DROP TABLE mirrors; DROP TABLE unsent; DROP TABLE secret; DROP TABLE vector_counts;
         PRAGMA user_version = 1;",
    )
    .expect("it is as it was");
    drop(old);
    // Several processes may do that at once.
    let secrets: BTreeSet<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mirror = open(&folder).mirror(2, P, "here", &stop()).expect("it is read");
                    assert_eq!(mirror.vectors, 1);
                    mirror.secret
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
    });
    assert_eq!(secrets.len(), 1);
    let newer = Connection::open(&path).expect("it opens");
    newer.execute_batch("PRAGMA user_version = 4").expect("it is written");
    let error = open(&folder).used(&stop()).expect_err("it is newer").to_string();
    assert!(error.contains("version 4; this Toolhold reads version 3"), "{error}");
}
