//! Many documents: 20,000 in the ordinary test, a million in the soak.

use std::time::{Duration, Instant};

use toolhold_contract::CancellationToken;
use toolhold_store::Stop;
use toolhold_store::index::{Document, DocumentIndex, IndexQuery, IndexQuota};

fn stop() -> Stop {
    Stop { deadline: Instant::now() + Duration::from_secs(600), cancel: CancellationToken::new() }
}

/// A word of a vocabulary, in which low numbers are common.
fn word(state: &mut u64) -> String {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let uniform = (*state >> 33) as f64 / f64::from(1_u32 << 31);
    format!("w{}", (uniform.powi(4) * 50_000.0) as u32)
}

#[test]
fn soak_many_documents_are_kept_and_found() {
    let count: u32 = if std::env::var_os("TOOLHOLD_SOAK").is_some() { 1_000_000 } else { 20_000 };
    let root = tempfile::tempdir().expect("a temporary folder");
    let quota = IndexQuota { bytes: 8 << 30, documents: u64::from(count) };
    let index = DocumentIndex::named(root.path().join("indexes"), "many", quota, true);
    let mut state = 1;
    for batch in 0..count / 1000 {
        let documents: Vec<Document> = (0..1000)
            .map(|number| {
                let number = batch * 1000 + number;
                let words: Vec<String> = (0..30).map(|_| word(&mut state)).collect();
                Document {
                    key: format!("project{}/{number}", number % 10),
                    text: format!("{} unique{number}", words.join(" ")),
                    tags: vec![format!("tenth:{}", number % 10)],
                    ..Document::default()
                }
            })
            .collect();
        index.put(&documents, &stop()).expect("they are written");
    }
    assert_eq!(index.used(&stop()).expect("it is read").documents, u64::from(count));
    let mut slowest = Duration::ZERO;
    for number in (0..count).step_by(count as usize / 50) {
        let words = format!("w0 w1 what unique{number} w7");
        let tags = [format!("tenth:{}", number % 10)];
        let prefix = format!("project{}/", number % 10);
        for query in [
            IndexQuery { words: &words, limit: 5, ..IndexQuery::default() },
            IndexQuery { words: &words, limit: 5, prefix: &prefix, ..IndexQuery::default() },
            IndexQuery { words: &words, limit: 5, tags: &tags, ..IndexQuery::default() },
        ] {
            let started = Instant::now();
            let hits = index.search(&query, &stop()).expect("it is searched");
            slowest = slowest.max(started.elapsed());
            assert_eq!(hits[0].key, format!("{prefix}{number}"), "{query:?}");
        }
    }
    let started = Instant::now();
    let (mut seen, mut cursor) = (0, None);
    loop {
        let page = index.list("", cursor.as_deref(), 100, &stop()).expect("it is read");
        seen += page.entries.len();
        match page.cursor {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    let listed = started.elapsed();
    assert_eq!(seen, count as usize);
    println!("listing {count} documents took {listed:?}");
    // No page reads those before it.
    assert!(listed < Duration::from_millis(u64::from(count)), "{listed:?}");
    println!("the slowest search of {count} documents took {slowest:?}");
    // A hundred times what it takes on a quiet machine.
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
}
