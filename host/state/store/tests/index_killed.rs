//! A process that is killed in the middle of its writes: what it was told is written is there.

mod killing;

use std::path::Path;
use std::time::{Duration, Instant};

use killing::kill_after;
use toolhold_contract::CancellationToken;
use toolhold_store::Stop;
use toolhold_store::index::{Document, DocumentIndex, IndexQuery, IndexQuota};

/// The variable that names the folder to a writer.
const FOLDER: &str = "TOOLHOLD_INDEX_TEST_FOLDER";

fn open(folder: &Path) -> DocumentIndex {
    let quota = IndexQuota { bytes: 256 << 20, documents: 1_000_000 };
    DocumentIndex::named(folder, "killed", quota, false)
}

fn stop() -> Stop {
    Stop { deadline: Instant::now() + Duration::from_secs(60), cancel: CancellationToken::new() }
}

/// The number in the text of a document.
fn number(index: &DocumentIndex, key: &str) -> u64 {
    let found = index.get(&[key.to_owned()], &stop()).expect("it is read").pop().flatten();
    let text = found.map(|document| document.text).unwrap_or_default();
    text.split(' ').next().and_then(|count| count.parse().ok()).unwrap_or_default()
}

/// The process that is killed. It writes without an end.
fn write_on(folder: &Path) {
    let index = open(folder);
    let from = number(&index, "first");
    for count in from + 1.. {
        // Many words and vectors, so that a kill often comes in the middle of a write. Old
        // documents are replaced, so words are deleted too.
        let document = |key: String| {
            let words: String =
                (0..50).map(|word| format!("w{} ", count * 31 % 997 + word)).collect();
            let text = format!("{count} round{count} {words}");
            Document { key, text, vector: Some(vec![1; 64]), ..Document::default() }
        };
        let others = (0..100).map(|other| document(format!("other/{other}")));
        let mut documents = vec![document("first".to_owned())];
        documents.extend(others);
        documents.push(document("last".to_owned()));
        index.put(&documents, &stop()).expect("it is written");
        println!("written {count}");
    }
}

/// Kills a writer `times` times, each at another moment of its work.
fn kill(times: u64) {
    let root = tempfile::tempdir().expect("a temporary folder");
    let folder = root.path().join("indexes");
    let mut written = 0;
    for round in 0..times {
        // After some writes and a piece of one more.
        let acknowledged = kill_after(
            "soak_acknowledged_document_survives_a_kill",
            &[(FOLDER, folder.as_os_str())],
            "written ",
            round % 5 + 1,
            Duration::from_micros(round * 97 % 4000),
        );
        let acknowledged = acknowledged.expect("it has written");
        let index = open(&folder);
        let (first, last) = (number(&index, "first"), number(&index, "last"));
        assert_eq!(first, last, "a write is whole");
        assert!(first >= acknowledged, "{first} is there, but {acknowledged} was acknowledged");
        assert!(first > written, "each round adds something");
        assert_eq!(index.used(&stop()).expect("it is read").documents, 102);
        // The words and the vectors are those of the documents.
        let round = format!("round{first}");
        let vector = vec![1; 64];
        for query in [
            IndexQuery { words: &round, limit: 1000, ..IndexQuery::default() },
            IndexQuery { vector: Some(&vector), limit: 1000, ..IndexQuery::default() },
        ] {
            let hits = index.search(&query, &stop()).expect("it is searched");
            assert_eq!(hits.len(), 102, "{query:?}");
        }
        let before = format!("round{}", first - 1);
        let query = IndexQuery { words: &before, limit: 1000, ..IndexQuery::default() };
        assert!(index.search(&query, &stop()).expect("it is searched").is_empty());
        written = first;
    }
}

#[test]
fn soak_acknowledged_document_survives_a_kill() {
    match std::env::var_os(FOLDER) {
        Some(folder) => write_on(Path::new(&folder)),
        None => kill(if std::env::var_os("TOOLHOLD_SOAK").is_some() { 250 } else { 20 }),
    }
}
