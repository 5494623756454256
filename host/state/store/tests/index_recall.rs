//! How well words alone find facts for questions that are phrased differently.
//!
//! The facts are made of templates, so that each has distractors: others of the same kind about
//! something else. A question shares its subject with the fact, and not its sentence.

use std::time::{Duration, Instant};

use toolhold_contract::CancellationToken;
use toolhold_store::Stop;
use toolhold_store::index::{Document, DocumentIndex, IndexQuery, IndexQuota};

fn stop() -> Stop {
    Stop { deadline: Instant::now() + Duration::from_secs(60), cancel: CancellationToken::new() }
}

/// A fact about a subject, and a question whose answer it is.
struct Template {
    fact: &'static str,
    question: &'static str,
}

const TEMPLATES: [Template; 10] = [
    Template {
        fact: "To deploy the {} service, run `make ship-{}` on the main branch.",
        question: "What's the command for deploying {}?",
    },
    Template {
        fact: "The {} tests are flaky because of the clock; rerun them once.",
        question: "Why do the tests of {} fail now and then?",
    },
    Template {
        fact: "Anna owns {}; ask her before changing its API.",
        question: "Who is responsible for {}?",
    },
    Template {
        fact: "{} stores its data in PostgreSQL 16, in the schema of the same name.",
        question: "Which database does {} use?",
    },
    Template {
        fact: "We decided to keep {} in Rust and not to rewrite it in Go.",
        question: "What language did we choose for {}?",
    },
    Template {
        fact: "The user prefers small pull requests when working on {}.",
        question: "How large should a PR for {} be?",
    },
    Template {
        fact: "{} listens on port 8{} in development.",
        question: "On what port can I reach {} locally?",
    },
    Template {
        fact: "Releases of {} happen every second Tuesday, after the changelog is reviewed.",
        question: "When do we release {}?",
    },
    Template {
        fact: "The outage of {} in March was caused by an expired certificate.",
        question: "What went wrong with {} this spring?",
    },
    Template {
        fact: "Logs of {} are kept for thirty days in the bucket archive-{}.",
        question: "For how long can I read old log files of {}?",
    },
];

const SUBJECTS: [&str; 20] = [
    "billing",
    "checkout",
    "search",
    "ingest",
    "gateway",
    "mailer",
    "scheduler",
    "profile",
    "catalogue",
    "inventory",
    "payments",
    "reports",
    "uploads",
    "webhooks",
    "sessions",
    "exports",
    "recommendations",
    "moderation",
    "translation",
    "telemetry",
];

/// Further ways to ask, whose words are not those of the fact.
const PARAPHRASES: [(&str, usize, &str); 5] = [
    ("how is the mailer rolled out", 0, "mailer"),
    ("the person to talk to about the gateway's interface", 2, "gateway"),
    ("retention of the logs for uploads", 9, "uploads"),
    ("did we want to port ingest to another language", 4, "ingest"),
    ("release day of the catalogue", 7, "catalogue"),
];

#[test]
fn words_alone_find_facts_for_differently_phrased_questions() {
    let plain = recall_at_5(|_, text| text);
    // The memory puts keys before its texts. Those that say nothing take nothing away.
    let keyed = recall_at_5(|number, text| format!("note-{number}\n{text}"));
    assert!(keyed >= plain, "{keyed} with keys, {plain} without");
}

/// How many of the questions find their fact among the first five. `form`: the text of a fact, by
/// its number.
fn recall_at_5(form: impl Fn(usize, String) -> String) -> usize {
    let root = tempfile::tempdir().expect("a temporary folder");
    let quota = IndexQuota { bytes: 64 << 20, documents: 10_000 };
    let index = DocumentIndex::named(root.path().join("indexes"), "recall", quota, false);
    let mut documents = Vec::new();
    for (kind, template) in TEMPLATES.iter().enumerate() {
        for subject in SUBJECTS {
            let text = form(documents.len(), template.fact.replace("{}", subject));
            documents.push(Document {
                key: format!("{kind}/{subject}"),
                text,
                ..Document::default()
            });
        }
    }
    assert_eq!(documents.len(), 200);
    index.put(&documents, &stop()).expect("they are written");
    let mut questions: Vec<(String, String)> = Vec::new();
    for (kind, template) in TEMPLATES.iter().enumerate() {
        for subject in SUBJECTS.iter().skip(kind % 2).step_by(2) {
            questions.push((template.question.replace("{}", subject), format!("{kind}/{subject}")));
        }
    }
    let paraphrases = PARAPHRASES.iter();
    questions
        .extend(paraphrases.map(|(question, kind, subject)| {
            ((*question).to_owned(), format!("{kind}/{subject}"))
        }));
    let found = |at: usize| {
        let is_found = |(question, key): &&(String, String)| {
            let query = IndexQuery { words: question, limit: at, ..IndexQuery::default() };
            let hits = index.search(&query, &stop()).expect("it is searched");
            hits.iter().any(|hit| hit.key == *key)
        };
        questions.iter().filter(is_found).count()
    };
    let (first, five, all) = (found(1), found(5), questions.len());
    println!("recall@1 {first}/{all}, recall@5 {five}/{all}");
    assert_eq!(all, 105);
    assert!(five >= RECALL_AT_5, "recall@5 is {five}/{all}");
    five
}

/// Questions of 105 whose fact is among the first five: what it reaches.
const RECALL_AT_5: usize = 85;
