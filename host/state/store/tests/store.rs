//! What a store promises, against SQLite itself.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use toolhold_contract::CancellationToken;
use toolhold_store::{
    Entry, KeyValue, MAX_CHANGES, MAX_KEY, MAX_PAGE, MAX_VALUE, Quota, Stop, Store, StoreError,
};

const QUOTA: Quota = Quota { bytes: 64 << 20, keys: 10_000 };

fn stop() -> Stop {
    Stop { deadline: Instant::now() + Duration::from_secs(60), cancel: CancellationToken::new() }
}

fn open(folder: &Path) -> Store {
    Store::named(folder, "notes", QUOTA)
}

/// A folder whose parent exists. The store creates it.
fn folder() -> (tempfile::TempDir, std::path::PathBuf) {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("stores");
    (root, path)
}

fn put<'a>(key: &'a str, value: &'a [u8]) -> KeyValue<'a> {
    KeyValue { key, value: Some(value) }
}

fn delete(key: &str) -> KeyValue<'_> {
    KeyValue { key, value: None }
}

fn set(store: &Store, key: &str, value: &[u8]) {
    assert!(store.write(&[], &[put(key, value)], &stop()).expect("it is written"));
}

#[test]
fn value_outlives_the_store() {
    let (_root, folder) = folder();
    set(&open(&folder), "a", b"\0\xff");
    let store = open(&folder);
    assert_eq!(store.get("a", &stop()).expect("it is read"), Some(b"\0\xff".to_vec()));
    assert_eq!(store.get("b", &stop()).expect("it is read"), None);
    assert!(store.write(&[], &[delete("a"), delete("b")], &stop()).expect("it is written"));
    assert_eq!(store.get("a", &stop()).expect("it is read"), None);
    assert_eq!(store.used(&stop()).expect("it is read"), Quota { bytes: 0, keys: 0 });
}

#[test]
fn other_plugin_has_another_store() {
    let (_root, folder) = folder();
    set(&open(&folder), "a", b"1");
    let other = Store::named(&folder, "other", QUOTA);
    assert_eq!(other.get("a", &stop()).expect("it is read"), None);
}

#[test]
fn name_that_leads_elsewhere_is_refused() {
    let (root, folder) = folder();
    for name in ["", "../up", "a/b", ".", "UPPER", "a\0b"] {
        Store::named(&folder, name, QUOTA).get("a", &stop()).expect_err(name);
    }
    assert!(!root.path().join("up.db").exists());
}

#[test]
fn write_happens_as_a_whole_or_not_at_all() {
    let (_root, folder) = folder();
    let store = open(&folder);
    set(&store, "a", b"1");
    let changes = [put("a", b"2"), put("b", b"2")];
    for expected in [
        &[put("a", b"0")][..],
        &[delete("a")],
        &[put("b", b"")],
        &[put("a", b"1"), put("missing", b"x")],
    ] {
        assert!(!store.write(expected, &changes, &stop()).expect("it is decided"));
        assert_eq!(store.get("a", &stop()).expect("it is read"), Some(b"1".to_vec()));
        assert_eq!(store.get("b", &stop()).expect("it is read"), None);
    }
    let expected = [put("a", b"1"), delete("b")];
    assert!(store.write(&expected, &changes, &stop()).expect("it is decided"));
    assert_eq!(store.get("b", &stop()).expect("it is read"), Some(b"2".to_vec()));
}

#[test]
fn pages_are_sorted_by_bytes_and_bounded() {
    let (_root, folder) = folder();
    let store = open(&folder);
    let keys = ["a", "a/1", "a/10", "a/2", "a/\u{e9}", "a/\u{10ffff}", "a0", "b", "%", "_"];
    for key in keys {
        set(&store, key, key.as_bytes());
    }
    let below = |prefix: &str, limit: usize| {
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let page = store.list(prefix, cursor.as_deref(), limit, &stop()).expect("it is listed");
            assert!(page.entries.len() <= limit);
            found.extend(page.entries.into_iter().map(|entry| entry.key));
            cursor = page.cursor;
            if cursor.is_none() {
                return found;
            }
        }
    };
    for limit in [1, 2, 3, 1000] {
        assert_eq!(below("a/", limit), ["a/1", "a/10", "a/2", "a/\u{e9}", "a/\u{10ffff}"]);
        assert_eq!(below("", limit).len(), keys.len());
    }
    assert!(below("a/3", 10).is_empty());
    assert_eq!(below("%", 10), ["%"]);

    let large = vec![7; MAX_VALUE];
    for number in 0..6 {
        set(&store, &format!("large/{number}"), &large);
    }
    let page = store.list("large/", None, 1000, &stop()).expect("it is listed");
    let bytes = |entries: &[Entry]| entries.iter().map(|entry| entry.value.len()).sum::<usize>();
    assert!(bytes(&page.entries) <= MAX_PAGE && page.cursor.is_some());
    let rest = store.list("large/", page.cursor.as_deref(), 1000, &stop()).expect("it is listed");
    assert_eq!(page.entries.len() + rest.entries.len(), 6);
}

#[test]
fn limits_of_keys_values_and_writes_hold() {
    let (_root, folder) = folder();
    let store = open(&folder);
    let invalid = |changes: &[KeyValue<'_>]| {
        let error = store.write(&[], changes, &stop()).expect_err("it is refused");
        assert!(matches!(error, StoreError::Invalid(_)), "{error}");
    };
    let long = "k".repeat(MAX_KEY + 1);
    invalid(&[put("", b"")]);
    invalid(&[put(&long, b"")]);
    invalid(&[put("a", &vec![0; MAX_VALUE + 1])]);
    invalid(&vec![put("a", b""); MAX_CHANGES + 1]);
    store.get("", &stop()).expect_err("an empty key");
    store.list(&long, None, 1, &stop()).expect_err("a long prefix");
    assert_eq!(store.used(&stop()).expect("it is read").keys, 0);
    let longest = "k".repeat(MAX_KEY);
    set(&store, &longest, &vec![1; MAX_VALUE]);
    assert_eq!(store.get(&longest, &stop()).expect("it is read").map(|v| v.len()), Some(MAX_VALUE));
}

#[test]
fn quota_of_bytes_and_keys_holds_and_a_full_store_can_shrink() {
    let (_root, folder) = folder();
    let quota = Quota { bytes: 100, keys: 3 };
    let store = Store::named(&folder, "notes", quota);
    let refused = |changes: &[KeyValue<'_>], what: &str| {
        let error = store.write(&[], changes, &stop()).expect_err("it is refused").to_string();
        assert!(error.contains(what), "{error}");
    };
    set(&store, "a", &[0; 99]);
    refused(&[put("b", b"")], "101 bytes; the limit is 100");
    refused(&[put("a", &[0; 100])], "101 bytes; the limit is 100");
    assert_eq!(store.used(&stop()).expect("it is read"), Quota { bytes: 100, keys: 1 });
    set(&store, "a", &[]);
    set(&store, "b", &[]);
    set(&store, "c", &[]);
    refused(&[put("d", b"")], "4 keys; the limit is 3");
    assert!(store.write(&[], &[delete("a"), put("d", b"")], &stop()).expect("one goes, one comes"));
    drop(store);
    let smaller = Quota { bytes: 2, keys: 1 };
    let store = Store::named(&folder, "notes", smaller);
    assert!(store.write(&[], &[delete("b")], &stop()).expect("a full store can shrink"));
    store.write(&[], &[put("e", b"")], &stop()).expect_err("but not grow");
}

#[test]
fn stopped_operation_changes_nothing() {
    let (_root, folder) = folder();
    let store = open(&folder);
    let late = Stop { deadline: Instant::now(), ..stop() };
    let cancelled = stop();
    cancelled.cancel.cancel();
    for stop in [late, cancelled] {
        let error = store.write(&[], &[put("a", b"1")], &stop).expect_err("it is stopped");
        assert!(matches!(error, StoreError::Stopped), "{error}");
    }
    assert_eq!(store.get("a", &stop()).expect("it is read"), None);
}

#[test]
fn writers_in_several_connections_lose_nothing() {
    let (_root, folder) = folder();
    let add = || {
        let store = open(&folder);
        for _ in 0..50 {
            loop {
                let old = store.get("count", &stop()).expect("it is read");
                let number = old.as_deref().map_or(0, |text| {
                    std::str::from_utf8(text).expect("it is text").parse().expect("a number")
                });
                let new = (number + 1_u32).to_string();
                let expected = [KeyValue { key: "count", value: old.as_deref() }];
                let changes = [put("count", new.as_bytes())];
                if store.write(&expected, &changes, &stop()).expect("it is decided") {
                    break;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(add)).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("it ends well"));
    });
    assert_eq!(open(&folder).get("count", &stop()).expect("it is read"), Some(b"200".to_vec()));
}

#[test]
fn first_users_of_a_new_file_wait_for_each_other() {
    for _ in 0..20 {
        let (_root, folder) = folder();
        let together = Barrier::new(4);
        std::thread::scope(|scope| {
            for key in ["a", "b", "c", "d"] {
                let (folder, together) = (&folder, &together);
                scope.spawn(move || {
                    let store = open(folder);
                    together.wait();
                    set(&store, key, b"1");
                });
            }
        });
        assert_eq!(open(&folder).used(&stop()).expect("it is read").keys, 4);
    }
}

#[test]
fn damaged_or_foreign_file_is_named_and_kept() {
    let (_root, folder) = folder();
    set(&open(&folder), "a", b"1");
    let file = folder.join("notes.db");
    for content in [&b"not a database, but long enough to be one: "[..], &[0xff; 8192]] {
        std::fs::write(&file, content.repeat(100)).expect("the file is written");
        let error = open(&folder).get("a", &stop()).expect_err("it is refused").to_string();
        assert!(error.contains("notes.db") && error.contains("move the file"), "{error}");
        assert_eq!(std::fs::read(&file).expect("it is there"), content.repeat(100));
    }
}

#[test]
fn folder_that_others_may_enter_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_root, folder) = folder();
    set(&open(&folder), "a", b"1");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    let error = open(&folder).get("a", &stop()).expect_err("it is refused").to_string();
    assert!(error.contains("chmod go-rwx"), "{error}");
    let named = format!("{} can't be used", folder.display());
    assert!(error.contains(&named), "the folder is named, and no file in it: {error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A store is a sorted map.
    #[test]
    fn store_is_a_sorted_map(
        steps in prop::collection::vec(
            ("[ab%_]{1,3}", prop::option::of(prop::collection::vec(any::<u8>(), 0..9))), 1..40,
        ),
        prefix in "[ab%]{0,2}",
    ) {
        let (_root, folder) = folder();
        let store = open(&folder);
        let mut model = BTreeMap::new();
        for (key, value) in &steps {
            let change = KeyValue { key, value: value.as_deref() };
            prop_assert!(store.write(&[], &[change], &stop()).expect("it is written"));
            match value {
                Some(value) => model.insert(key.clone(), value.clone()),
                None => model.remove(key),
            };
        }
        let page = store.list(&prefix, None, 1000, &stop()).expect("it is listed");
        let expected = model.iter().filter(|(key, _)| key.starts_with(&*prefix));
        let expected: Vec<_> = expected
            .map(|(key, value)| Entry { key: key.clone(), value: value.clone() })
            .collect();
        prop_assert_eq!(page.entries, expected);
        let bytes = model.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        let used = Quota { bytes: bytes as u64, keys: model.len() as u64 };
        prop_assert_eq!(store.used(&stop()).expect("it is read"), used);
    }
}
