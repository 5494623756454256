//! Makes and compares vectors of entries, where the operator chose a model that makes them.
//!
//! An entry with a vector has a tag that names the model, so vectors of another model are never
//! compared. An entry without that tag is found by its words, and gets its vector when its user
//! saves something.

use toolhold_sdk::embeddings;
use toolhold_sdk::index::{self, Document, Hit, Query};
use toolhold_sdk::{Caller, HostError};

use crate::entry::{self, Origin};
use crate::scope::Scope;

/// Bytes of a text that become its vector. Many models read no more.
const MAX_TEXT: usize = 1500;

/// Entries that get their vectors while another one is saved.
const LATER: usize = 32;

/// Entries that are looked through for such ones, in each scope.
const LISTED: usize = 20_000;

/// The least nearness of an entry, as a cosine. An entry that is farther away is about something
/// else.
const LEAST: f64 = 0.2;

/// Reciprocal rank fusion: an entry gets `1 / (RANK + its place)` from each ranking.
const RANK: f64 = 60.0;

/// Gives a document the vector of its content. Returns why it has none, if there is a model.
pub(crate) fn add_to(document: &mut Document, content: &str) -> Option<String> {
    let model = embeddings::model()?;
    match embeddings::embed(&[cut(content)]) {
        Ok(mut vectors) => {
            set(document, &model, vectors.pop());
            None
        }
        Err(error) => Some(error.message),
    }
}

/// Gives vectors to some of the caller's entries that have none of the model. Returns how many are
/// left, as far as they were looked for.
pub(crate) fn make_later_ones(caller: &Caller) -> Result<usize, HostError> {
    let Some(model) = embeddings::model() else { return Ok(0) };
    let tag = tag(&model);
    let mut missing = Vec::new();
    for scope in Scope::ALL {
        for entry in index::list(&scope.prefix(caller)).take(LISTED) {
            let entry = entry?;
            if !entry.tags.contains(&tag) {
                missing.push(entry.key);
            }
        }
    }
    let keys = &missing[..missing.len().min(LATER)];
    let found: Vec<Document> = index::get(keys)?.into_iter().flatten().collect();
    let texts: Vec<String> = found.iter().map(|document| cut(content(document))).collect();
    if texts.is_empty() {
        return Ok(0);
    }
    let Ok(vectors) = embeddings::embed(&texts) else { return Ok(missing.len()) };
    let made = vectors.len();
    // Meanwhile, one may have been changed or deleted.
    let now = index::get(keys)?.into_iter().flatten();
    let documents = now.filter_map(|mut document| {
        let place = found.iter().position(|known| *known == document)?;
        set(&mut document, &model, vectors.get(place).cloned());
        Some(document)
    });
    index::put(documents.collect())?;
    Ok(missing.len().saturating_sub(made))
}

/// The vector of a query, with the tag of the entries that it can be compared with. `Ok(None)`:
/// there is no model, or nothing is asked.
pub(crate) fn of_query(words: &str) -> Result<Option<(Vec<i8>, String)>, String> {
    let Some(model) = embeddings::model() else { return Ok(None) };
    if words.is_empty() {
        return Ok(None);
    }
    let vectors = embeddings::embed(&[cut(words)]).map_err(|error| error.message)?;
    Ok(vectors.into_iter().next().map(|vector| (vector, tag(&model))))
}

/// The entries of a scope that are near a vector, the nearest first.
pub(crate) fn near(vector: &[i8], tag: &str, query: &Query) -> Result<Vec<Hit>, HostError> {
    let query = Query { words: String::new(), vector: Some(vector.to_vec()), ..query.clone() };
    let hits = index::search(query.tagged(tag))?;
    Ok(hits.into_iter().filter(|hit| hit.score >= LEAST).collect())
}

/// One ranking of two, each of which has the best first.
pub(crate) fn merged(
    by_words: Vec<(Scope, Hit)>,
    by_vector: Vec<(Scope, Hit)>,
) -> Vec<(Scope, Hit)> {
    let mut all: Vec<(Scope, Hit)> = Vec::new();
    for ranking in [by_words, by_vector] {
        for (place, (scope, hit)) in ranking.into_iter().enumerate() {
            #[expect(clippy::cast_precision_loss, reason = "there are few hits")]
            let score = 1.0 / (RANK + 1.0 + place as f64);
            match all.iter_mut().find(|(_, known)| known.key == hit.key) {
                Some((_, known)) => {
                    known.score += score;
                    known.by_words |= hit.by_words;
                    known.by_vector |= hit.by_vector;
                }
                None => all.push((scope, Hit { score, ..hit })),
            }
        }
    }
    all.sort_by(|(_, a), (_, b)| b.score.total_cmp(&a.score));
    all
}

fn set(document: &mut Document, model: &str, vector: Option<Vec<i8>>) {
    document.tags.retain(|tag| !tag.starts_with("vector:"));
    if vector.is_some() {
        document.tags.push(tag(model));
    }
    document.vector = vector;
}

/// The tag of entries with a vector of a model.
fn tag(model: &str) -> String {
    format!("vector:{model}")
}

fn content(document: &Document) -> &str {
    let keyed = serde_json::from_slice(&document.data).is_ok_and(|origin: Origin| origin.keyed);
    entry::content(&document.text, keyed)
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT)].to_owned()
}
