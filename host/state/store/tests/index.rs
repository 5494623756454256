//! What an index promises.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use toolhold_contract::CancellationToken;
use toolhold_store::index::{
    Document, DocumentIndex, IndexHit, IndexQuery, IndexQuota, MAX_DATA, MAX_DOCUMENTS, MAX_HITS,
    MAX_KEY, MAX_TAG, MAX_TAGS, MAX_TEXT, MAX_VECTOR, MAX_WORDS, MAX_WRITE, PendingWrite,
};
use toolhold_store::{Stop, StoreError};

const QUOTA: IndexQuota = IndexQuota { bytes: 256 << 20, documents: 1_000_000 };

fn stop() -> Stop {
    Stop { deadline: Instant::now() + Duration::from_secs(60), cancel: CancellationToken::new() }
}

fn open(folder: &Path) -> DocumentIndex {
    DocumentIndex::named(folder, "notes", QUOTA, false)
}

/// A folder whose parent exists. The index creates it.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = root.path().join("indexes");
    (root, path)
}

fn document(key: &str, text: &str) -> Document {
    Document { key: key.to_owned(), text: text.to_owned(), ..Document::default() }
}

fn tagged(key: &str, text: &str, tags: &[&str]) -> Document {
    let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
    Document { tags, ..document(key, text) }
}

fn with_vector(key: &str, vector: &[i8]) -> Document {
    Document { vector: Some(vector.to_vec()), ..document(key, "") }
}

fn put(index: &DocumentIndex, documents: &[Document]) {
    index.put(documents, &stop()).expect("it is written");
}

fn hits(index: &DocumentIndex, query: &IndexQuery<'_>) -> Vec<IndexHit> {
    index.search(query, &stop()).expect("it is searched")
}

fn found(index: &DocumentIndex, words: &str) -> Vec<String> {
    let query = IndexQuery { words, limit: 10, ..IndexQuery::default() };
    hits(index, &query).into_iter().map(|hit| hit.key).collect()
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn document_outlives_the_index_and_is_replaced_and_deleted() {
    let (_root, folder) = folder();
    let whole = Document {
        vector: Some(vec![1, -128, 127]),
        data: b"\0\xff".to_vec(),
        ..tagged("a", "red fox", &["x", "y z"])
    };
    put(&open(&folder), std::slice::from_ref(&whole));
    let index = open(&folder);
    let keys = strings(&["b", "a"]);
    assert_eq!(index.get(&keys, &stop()).expect("it is read"), [None, Some(whole)]);
    put(&index, &[document("a", "blue whale")]);
    assert!(found(&index, "fox").is_empty());
    assert_eq!(found(&index, "whale"), ["a"]);
    index.delete(&keys, &stop()).expect("it is deleted");
    assert!(found(&index, "whale").is_empty());
    assert_eq!(index.used(&stop()).expect("it is read"), IndexQuota::default());
}

#[test]
fn words_rank_and_have_no_syntax() {
    let (_root, folder) = folder();
    let index = open(&folder);
    put(
        &index,
        &[
            document("one", "The quick brown fox"),
            document("both", "a fox and a hedgehog"),
            document("other", "something else, NOT the animal"),
        ],
    );
    assert_eq!(found(&index, "fox hedgehog"), ["both", "one"]);
    assert_eq!(found(&index, "foxes!"), ["one", "both"]);
    assert_eq!(found(&index, "not")[..1], ["other"]);
    for words in
        ["\"", "*", "text:", "fox) OR (", "NEAR", "-", "^fox\"", "{text}:\0", "OR", "a AND"]
    {
        found(&index, words);
    }
    assert_eq!(found(&index, "fox* hedgehog AND \"nothing"), ["both", "one"]);
    assert!(found(&index, "*!\"").is_empty());
    // Without words, the latest come first.
    assert_eq!(found(&index, ""), ["other", "both", "one"]);
}

#[test]
fn identifiers_are_found_whole_and_by_their_parts() {
    let (_root, folder) = folder();
    let index = open(&folder);
    put(
        &index,
        &[
            document("camel", "fn parseUrl(x: u8)"),
            document("snake", "fn parse_url(x: u8)"),
            document("far", "a url that others have to parse"),
            document("http", "struct HTTPServerConfig"),
        ],
    );
    assert_eq!(found(&index, "parseUrl")[0], "camel");
    let snake = found(&index, "parse_url");
    assert_eq!(snake[0], "snake", "{snake:?}");
    for words in ["parse url", "url"] {
        let mut all = found(&index, words);
        all.sort();
        assert_eq!(all, ["camel", "far", "snake"], "{words}");
    }
    assert_eq!(found(&index, "server config"), ["http"]);
}

#[test]
fn words_are_found_where_a_text_has_no_spaces() {
    let (_root, folder) = folder();
    let index = open(&folder);
    let texts = [("ja", "この関数は検索索引を更新します"), ("zh", "更新搜索引擎的缓存")];
    put(&index, &texts.map(|(key, text)| document(key, text)));
    for (words, expected) in [
        ("検索索引", &["ja", "zh"][..]),
        ("更新", &["ja", "zh"]),
        ("缓存", &["zh"]),
        ("関数 更新", &["ja", "zh"]),
        ("猫", &[]),
    ] {
        let mut found = found(&index, words);
        found.truncate(2);
        assert_eq!(found.len(), expected.len(), "{words}: {found:?}");
        assert!(expected.first().is_none_or(|_| words != "検索索引" || found[0] == "ja"));
    }
}

#[test]
fn tags_and_prefix_are_exact() {
    let (_root, folder) = folder();
    let index = open(&folder);
    // Stemmed, some of them would be the same word, and some have letters of a query's syntax.
    let tags = ["jumped", "jump", "Jump", "a b", "a", "b", "x\" OR y", "%", "é", "e"];
    for (number, tag) in tags.iter().enumerate() {
        put(&index, &[tagged(&format!("k{}/{number}", number % 2), "same words", &[tag])]);
    }
    for (number, tag) in tags.iter().enumerate() {
        let tags = strings(&[tag]);
        for words in ["", "words"] {
            let query = IndexQuery { words, tags: &tags, limit: 10, ..IndexQuery::default() };
            let keys: Vec<String> = hits(&index, &query).into_iter().map(|hit| hit.key).collect();
            assert_eq!(keys, [format!("k{}/{number}", number % 2)], "{tag}");
        }
    }
    let query = IndexQuery { words: "same", prefix: "k1/", limit: 10, ..IndexQuery::default() };
    assert!(hits(&index, &query).iter().all(|hit| hit.key.starts_with("k1/")));
    assert_eq!(hits(&index, &query).len(), 5);
    // A tag isn't a word.
    assert!(found(&index, "jumped").is_empty());
}

#[test]
fn vectors_rank_alone_and_with_words() {
    let (_root, folder) = folder();
    let index = open(&folder);
    put(
        &index,
        &[
            with_vector("near", &[100, 1, 0]),
            with_vector("far", &[1, 100, 0]),
            with_vector("away", &[-100, 0, 0]),
            with_vector("nowhere", &[0, 0, 0]),
            document("words", "apple"),
            Document { text: "apple".into(), ..with_vector("both", &[90, 20, 0]) },
        ],
    );
    let vector = [127, 0, 0];
    let query = IndexQuery { vector: Some(&vector), limit: 10, ..IndexQuery::default() };
    let all = hits(&index, &query);
    let keys: Vec<&str> = all.iter().map(|hit| hit.key.as_str()).collect();
    assert_eq!(keys, ["near", "both", "far"]);
    assert!(all[0].score > 0.99 && all[0].by_vector && !all[0].by_words);
    let both = hits(&index, &IndexQuery { words: "apple", ..query });
    assert_eq!((both[0].key.as_str(), both[0].by_words, both[0].by_vector), ("both", true, true));
    assert!(both.iter().any(|hit| hit.key == "words" && !hit.by_vector));
    // Those of another length are of another model, and aren't compared.
    put(&index, &[with_vector("new", &[1, 2])]);
    assert_eq!(hits(&index, &query).len(), 3);
    let short = IndexQuery { vector: Some(&vector[..2]), ..query };
    let keys: Vec<String> = hits(&index, &short).into_iter().map(|hit| hit.key).collect();
    assert_eq!(keys, ["new"]);
}

#[test]
fn filter_holds_for_many_documents_and_for_few() {
    let (_root, folder) = folder();
    let index = open(&folder);
    // More than are looked up at once, so the broad tag is checked hit by hit.
    for batch in 0..26_u32 {
        let documents: Vec<Document> = (0..1000)
            .map(|number| {
                let number = batch * 1000 + number;
                let tags: &[&str] = match number % 1000 {
                    0 => &["broad", "narrow"],
                    1..900 => &["broad"],
                    _ => &["rest"],
                };
                let place = if number % 100 == 7 { "few" } else { "many" };
                let mut one = tagged(&format!("{place}/{number}"), "common word", tags);
                if number % 1000 == 0 {
                    one.text.push_str(" rare");
                }
                one.vector = Some(vec![if number % 3 == 0 { 100 } else { 50 }, 50]);
                one
            })
            .collect();
        put(&index, &documents);
    }
    let vector = [1_i8, 0];
    for (tags, prefix, least) in [
        (&["broad"][..], "", 500),
        (&["narrow"], "", 26),
        (&["broad", "narrow"], "", 26),
        (&["rest"], "many/", 500),
        (&["broad"], "few/", 200),
        (&[], "few/", 260),
        (&["narrow", "rest"], "", 0),
        (&["unknown"], "", 0),
    ] {
        let tags = strings(tags);
        for (words, vector) in [
            ("common", None),
            ("word same", None),
            ("", Some(&vector[..])),
            ("", None),
            ("common", Some(&vector[..])),
        ] {
            let query = IndexQuery { words, tags: &tags, prefix, vector, near: None, limit: 500 };
            let all = hits(&index, &query);
            assert!(all.len() >= least.min(500), "{tags:?} {prefix} {words}: {}", all.len());
            let keys: Vec<String> = all.iter().map(|hit| hit.key.clone()).collect();
            for one in index.get(&keys, &stop()).expect("they are read").into_iter().flatten() {
                assert!(one.key.starts_with(prefix), "{}", one.key);
                assert!(tags.iter().all(|tag| one.tags.contains(tag)), "{one:?}");
            }
        }
    }
    // The rare word decides, though the common one is in every document.
    let query = IndexQuery { words: "common rare", limit: 26, ..IndexQuery::default() };
    assert!(hits(&index, &query).iter().all(|hit| hit.key.ends_with("000") || hit.key == "many/0"));
    // A query that no document can satisfy quickly still ends at its deadline.
    let late = Stop { deadline: Instant::now(), cancel: CancellationToken::new() };
    assert!(matches!(index.search(&query, &late), Err(StoreError::Stopped)));
    let cancel = CancellationToken::new();
    cancel.cancel();
    let cancelled = Stop { cancel, ..stop() };
    assert!(matches!(index.delete_prefix("", &cancelled), Err(StoreError::Stopped)));
    let mut left = 26_000;
    loop {
        let deleted = index.delete_prefix("", &stop()).expect("they are deleted");
        assert!(deleted <= 10_000);
        left -= deleted;
        if deleted == 0 {
            break;
        }
    }
    assert_eq!((left, index.used(&stop()).expect("it is read").documents), (0, 0));
}

#[test]
fn listing_has_all_pages_in_order() {
    let (_root, folder) = folder();
    let index = open(&folder);
    let documents: Vec<Document> =
        (0..25).map(|n| tagged(&format!("a/{n:02}"), "x", &["t"])).collect();
    put(&index, &documents);
    put(&index, &[document("b", "x")]);
    let (mut keys, mut cursor) = (Vec::new(), None);
    loop {
        let page = index.list("a/", cursor.as_deref(), 10, &stop()).expect("it is listed");
        assert!(page.entries.len() <= 10 && page.entries.iter().all(|one| one.tags == ["t"]));
        keys.extend(page.entries.into_iter().map(|one| one.key));
        let Some(next) = page.cursor else { break };
        cursor = Some(next);
    }
    assert_eq!(keys, documents.iter().map(|one| one.key.clone()).collect::<Vec<_>>());
}

#[test]
fn pending_write_comes_before_all_that_follows() {
    let (_root, folder) = folder();
    let quota = IndexQuota { bytes: 4 << 20, documents: 100 };
    let derived = Arc::new(DocumentIndex::named(&folder, "notes", quota, true));
    let many = |count: usize, word: &str| -> Vec<Document> {
        let text = format!("{word} {}", "filler ".repeat(2_000));
        (0..count).map(|number| document(&format!("{word}{number}"), &text)).collect()
    };
    let begun = derived.begin_put(many(40, "first"), &stop()).expect("it begins");
    assert_eq!(found(&derived, "first").len(), 10, "a search comes after it");
    begun.expect("it is large, so it goes on").wait().expect("it is written");
    // What may not fit is answered at once, as are small writes and those to other indexes.
    let replaced = derived.begin_put(many(70, "first"), &stop()).expect("it fits");
    assert!(replaced.is_none());
    let over = derived.begin_put(many(60, "second"), &stop());
    assert!(matches!(over, Err(StoreError::Limit(_))), "{over:?}");
    assert_eq!(found(&derived, "second"), [""; 0]);
    assert!(derived.begin_put(many(1, "small"), &stop()).expect("it fits").is_none());
    let kept = Arc::new(DocumentIndex::named(&folder, "kept", quota, false));
    assert!(kept.begin_put(many(40, "first"), &stop()).expect("it fits").is_none());
    // A write whose call ends writes all of it or nothing.
    let ending = stop();
    let begun = derived.begin_put(many(25, "third"), &ending).expect("it begins");
    ending.cancel.cancel();
    let result = begun.map_or(Ok(()), PendingWrite::wait);
    let written = found(&derived, "third").len();
    assert!(matches!((&result, written), (Ok(()), 10) | (Err(StoreError::Stopped), 0)));
}

#[test]
fn limits_are_kept_and_nothing_changes_beyond_them() {
    let (_root, folder) = folder();
    let index =
        DocumentIndex::named(&folder, "notes", IndexQuota { bytes: 4 << 20, documents: 3 }, false);
    let long = |length: usize| "k".repeat(length);
    let many_tags = vec!["t".to_owned(); MAX_TAGS + 1];
    for wrong in [
        document("", "x"),
        document(&long(MAX_KEY + 1), "x"),
        document("a", &long(MAX_TEXT + 1)),
        Document { data: vec![0; MAX_DATA + 1], ..document("a", "") },
        Document { tags: many_tags.clone(), ..document("a", "") },
        tagged("a", "", &[&long(MAX_TAG + 1)]),
        tagged("a", "", &[""]),
        tagged("a", "", &["x\0y"]),
        with_vector("a", &[]),
        with_vector("a", &vec![1; MAX_VECTOR + 1]),
    ] {
        let result = index.put(&[document("ok", "fine"), wrong], &stop());
        assert!(matches!(result, Err(StoreError::Invalid(_))), "{result:?}");
    }
    let many = vec![document("a", "x"); MAX_DOCUMENTS + 1];
    assert!(matches!(index.put(&many, &stop()), Err(StoreError::Invalid(_))));
    let large = vec![document("a", &long(MAX_TEXT)); MAX_WRITE / MAX_TEXT];
    assert!(matches!(index.put(&large, &stop()), Err(StoreError::Invalid(_))));
    let all: Vec<Document> = (0..4).map(|n| document(&format!("k{n}"), "x")).collect();
    let over = index.put(&all, &stop());
    assert!(
        matches!(&over, Err(StoreError::Limit(why)) if why.contains("4 documents")),
        "{over:?}"
    );
    let over = index.put(&large[..4], &stop());
    assert!(over.is_ok(), "the same key counts once: {over:?}");
    let large: Vec<Document> =
        (0..3).map(|n| document(&format!("k{n}"), &long(MAX_TEXT))).collect();
    let over = index.put(&large, &stop());
    assert!(matches!(&over, Err(StoreError::Limit(why)) if why.contains("bytes")), "{over:?}");
    assert_eq!(index.used(&stop()).expect("it is read").documents, 1);
    let words = long(MAX_WORDS + 1);
    let vector = vec![1; MAX_VECTOR + 1];
    for query in [
        IndexQuery { words: &words, ..IndexQuery::default() },
        IndexQuery { tags: &many_tags, ..IndexQuery::default() },
        IndexQuery { prefix: &words, ..IndexQuery::default() },
        IndexQuery { vector: Some(&vector), ..IndexQuery::default() },
    ] {
        assert!(matches!(index.search(&query, &stop()), Err(StoreError::Invalid(_))));
    }
    let most = IndexQuery { limit: usize::MAX, ..IndexQuery::default() };
    assert!(hits(&index, &most).len() <= MAX_HITS);
}

#[test]
fn file_stays_within_its_bound() {
    let (_root, folder) = folder();
    let quota = IndexQuota { bytes: 1 << 20, documents: 1000 };
    let index = DocumentIndex::named(&folder, "notes", quota, false);
    let mut state = 7_u64;
    let mut word = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        format!("w{:x}", state >> 40)
    };
    for round in 0..200 {
        let text: Vec<String> = (0..300).map(|_| word()).collect();
        // It fits again and again, since old ones go.
        put(&index, &[document(&format!("k{}", round % 300), &text.join(" "))]);
        if round % 300 > 250 {
            index.delete_prefix("", &stop()).expect("they are deleted");
        }
        if index.used(&stop()).expect("it is read").bytes > 900 << 10 {
            index.delete_prefix("", &stop()).expect("they are deleted");
        }
    }
    let size = std::fs::metadata(index.path()).expect("the file is there").len();
    assert!(size <= 4 * quota.bytes + 1024 * quota.documents, "{size}");
}

#[test]
fn two_processes_share_an_index() {
    let (_root, folder) = folder();
    let (one, other) = (open(&folder), open(&folder));
    std::thread::scope(|scope| {
        for (index, name) in [(&one, "a"), (&other, "b")] {
            scope.spawn(move || {
                for number in 0..50 {
                    put(index, &[document(&format!("{name}{number}"), "shared words")]);
                }
            });
        }
    });
    assert_eq!(one.used(&stop()).expect("it is read").documents, 100);
    let query = IndexQuery { words: "shared", limit: 1000, ..IndexQuery::default() };
    assert_eq!(hits(&other, &query).len(), 100);
}

#[test]
fn damaged_and_foreign_files_are_refused_and_left() {
    let (_root, folder) = folder();
    put(&open(&folder), &[document("a", "x")]);
    let file = open(&folder).path();
    std::fs::write(&file, vec![7; 8192]).expect("it is damaged");
    let result = open(&folder).get(&strings(&["a"]), &stop());
    assert!(matches!(&result, Err(StoreError::Unavailable { .. })), "{result:?}");
    assert_eq!(std::fs::read(&file).expect("it is read"), vec![7; 8192]);
    // The store of a plugin is no index.
    std::fs::remove_file(&file).expect("it is removed");
    let quota = toolhold_store::Quota { bytes: 1 << 20, keys: 10 };
    let store = toolhold_store::Store::named(&folder, "notes", quota);
    store.get("a", &stop()).expect("it is made");
    let result = open(&folder).get(&strings(&["a"]), &stop());
    assert!(matches!(&result, Err(StoreError::Unavailable { .. })), "{result:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_query_is_answered(words in any::<String>(), tag in "[^\0]{1,20}", text in any::<String>()) {
        let (_root, folder) = folder();
        let index = open(&folder);
        let text = text.replace('\0', " ");
        put(&index, &[tagged("k", &text, &[&tag])]);
        let tags = [tag];
        let query = IndexQuery { words: &words, tags: &tags, limit: 3, ..IndexQuery::default() };
        prop_assert!(hits(&index, &query).len() <= 1);
    }
}
