//! Ranks documents by words, by a vector, or by both.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};

use rusqlite::{Connection, params};

use crate::StoreError;
use crate::index::best::{Best, Scored};
use crate::index::filter::Filter;
use crate::index::{
    COMMON, IndexHit, IndexQuery, MAX_HITS, MAX_WORDS, Totals, check_prefix, check_size,
    check_tags, check_vector, text, words, write,
};

/// The limit of documents in the selection of words, instead of [`COMMON`], if few documents have
/// the query's tags.
const COMMON_IN_FEW: usize = 100_000;

/// The number of vectors that can be read in their order while one vector is looked up.
const LOOKUP_COST: u64 = 8;

/// Least number of documents that each ranking should have before two rankings are merged.
const MERGED: usize = 100;

/// The constant of reciprocal rank fusion. A document gets `1 / (RANK + position)` from each
/// ranking.
const RANK: f64 = 60.0;

pub(crate) fn check(query: &IndexQuery<'_>) -> Result<(), StoreError> {
    check_size(query.words.len(), MAX_WORDS, "the words of the query")?;
    check_tags(query.tags)?;
    check_prefix(query.prefix)?;
    check_vector(query.vector)
}

/// Returns the best documents for a query. A query without words and a vector gets the latest
/// documents.
pub(crate) fn search(
    connection: &Connection,
    query: &IndexQuery<'_>,
) -> Result<Vec<IndexHit>, StoreError> {
    let limit = query.limit.clamp(1, MAX_HITS);
    let filter = Filter::new(connection, query)?;
    let totals = Totals::read(connection)?;
    let no_document_passes = filter.candidates.as_ref().is_some_and(HashSet::is_empty);
    if no_document_passes || totals.used.documents == 0 {
        return Ok(Vec::new());
    }
    if query.words.is_empty() && query.vector.is_none() {
        return find_latest(connection, &filter, limit);
    }

    // A document that is beyond the limit in both rankings may be among the best after the merge.
    let depth = if query.vector.is_some() { limit.max(MERGED) } else { limit };
    let by_words = if query.words.is_empty() {
        Vec::new()
    } else {
        rank_by_words(connection, query, &filter, totals, depth)?
    };
    let by_vector = match query.vector {
        Some(vector) => rank_by_vector(connection, vector, query.near, &filter, totals, depth)?,
        None => Vec::new(),
    };
    let mut hits = merge_rankings(&by_words, &by_vector);
    hits.truncate(limit);
    hits.into_iter().map(|hit| hit.with_key(connection)).collect()
}

struct Found {
    scored: Scored,
    by_words: bool,
    by_vector: bool,
}

impl Found {
    fn with_key(self, connection: &Connection) -> Result<IndexHit, StoreError> {
        let key = connection
            .prepare_cached("SELECT key FROM documents WHERE id = ?1")?
            .query_row([self.scored.id], |row| text(row, 0))?;
        let Self { scored, by_words, by_vector } = self;
        Ok(IndexHit { key, score: scored.score, by_words, by_vector })
    }
}

/// Merges the rankings. Scores of words and vectors can't be compared, so two rankings are merged
/// by the positions of the documents (reciprocal rank fusion). A single ranking keeps its scores.
fn merge_rankings(by_words: &[Scored], by_vector: &[Scored]) -> Vec<Found> {
    let has_both = !by_words.is_empty() && !by_vector.is_empty();
    let mut found: HashMap<i64, Found> = HashMap::new();
    for (ranking, is_words) in [(by_words, true), (by_vector, false)] {
        for (position, document) in ranking.iter().enumerate() {
            let Scored { id, score } = *document;
            let hit = found.entry(id).or_insert(Found {
                scored: Scored { id, score: 0.0 },
                by_words: false,
                by_vector: false,
            });
            hit.scored.score += if has_both { 1.0 / (RANK + 1.0 + position as f64) } else { score };
            if is_words {
                hit.by_words = true;
            } else {
                hit.by_vector = true;
            }
        }
    }
    let mut hits: Vec<Found> = found.into_values().collect();
    hits.sort_unstable_by_key(|hit| Reverse(hit.scored));
    hits
}

/// Ranks documents by words, with BM25.
fn rank_by_words(
    connection: &Connection,
    query: &IndexQuery<'_>,
    filter: &Filter<'_>,
    totals: Totals,
    depth: usize,
) -> Result<Vec<Scored>, StoreError> {
    let terms = select_rarest(connection, words::terms(query.words), filter, totals)?;
    if terms.is_empty() {
        return Ok(Vec::new());
    }
    let mut expression = format!("({{text parts}} : ({}))", terms.join(" OR "));
    if let Some(tag_expression) = &filter.tag_expression {
        expression = format!("{tag_expression} AND {expression}");
    }
    // Parts of identifiers have less weight than words. Tags have no weight.
    let mut statement = connection.prepare_cached(
        "SELECT rowid, bm25(words, 1.0, 0.5, 0.0) FROM words WHERE words MATCH ?1
         ORDER BY rowid DESC",
    )?;
    let mut rows = statement.query([expression])?;
    let mut best = Best::new(depth);
    let mut ranked = 0;
    // If a word is common, only the latest documents with the word are ranked.
    while ranked < COMMON
        && let Some(row) = rows.next()?
    {
        let id = row.get(0)?;
        if filter.excludes(id) {
            continue;
        }
        ranked += 1;
        // FTS5 gives the best document the lowest number, so the number is negated.
        let scored = Scored { id, score: -row.get::<_, f64>(1)? };
        if best.takes(scored) && filter.passes(connection, id)? {
            best.add(scored);
        }
    }
    Ok(best.into_sorted())
}

/// Returns the words to search. If very many documents have the words, only the rarest words are
/// used, because words such as `the` slow the search down.
fn select_rarest(
    connection: &Connection,
    terms: Vec<String>,
    filter: &Filter<'_>,
    totals: Totals,
) -> Result<Vec<String>, StoreError> {
    let common = u64::try_from(COMMON).unwrap_or(u64::MAX);
    let is_small_index = totals.used.documents <= common;
    if is_small_index {
        return Ok(terms);
    }
    let max_documents = if filter.tag_expression.is_some() { COMMON_IN_FEW } else { COMMON };
    let mut statement = connection.prepare_cached(
        "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ?1 LIMIT ?2)",
    )?;
    // Words without documents aren't searched.
    let mut counted = Vec::new();
    for term in terms {
        let expression = format!("{{text parts}} : {term}");
        let count: usize =
            statement.query_row(params![expression, max_documents + 1], |row| row.get(0))?;
        if count > 0 {
            counted.push((count, term));
        }
    }

    // The rarest words come first. The first word is always used.
    counted.sort_by_key(|(count, _)| *count);
    let mut found_documents = 0;
    let mut selected = Vec::new();
    for (count, term) in counted {
        found_documents += count;
        if found_documents > max_documents && !selected.is_empty() {
            break;
        }
        selected.push(term);
    }
    Ok(selected)
}

/// Ranks documents by the cosine of their vectors. Negative values and vectors of another length
/// are left out.
fn rank_by_vector(
    connection: &Connection,
    vector: &[i8],
    near: Option<&[i64]>,
    filter: &Filter<'_>,
    totals: Totals,
    depth: usize,
) -> Result<Vec<Scored>, StoreError> {
    if totals.vectors == 0 {
        return Ok(Vec::new());
    }
    let mut ranking = VectorRanking {
        connection,
        filter,
        vector,
        norm: write::norm(vector),
        best: Best::new(depth),
    };
    // A set removes repeated documents.
    let selected: Option<BTreeSet<i64>> = match (near, &filter.candidates) {
        (Some(near), _) => Some(near.iter().copied().collect()),
        // Looking up a few vectors is faster than reading all vectors.
        (None, Some(candidates)) if candidates.len() as u64 * LOOKUP_COST < totals.vectors => {
            Some(candidates.iter().copied().collect())
        }
        _ => None,
    };
    match selected {
        Some(ids) => {
            let mut statement =
                connection.prepare_cached("SELECT norm, numbers FROM vectors WHERE id = ?1")?;
            for id in ids {
                let mut rows = statement.query([id])?;
                if let Some(row) = rows.next()? {
                    let numbers = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
                    ranking.add(id, numbers, row.get(0)?)?;
                }
            }
        }
        None => {
            let mut statement =
                connection.prepare_cached("SELECT id, norm, numbers FROM vectors")?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let id = row.get(0)?;
                let numbers = row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
                ranking.add(id, numbers, row.get(1)?)?;
            }
        }
    }
    Ok(ranking.best.into_sorted())
}

struct VectorRanking<'a> {
    connection: &'a Connection,
    filter: &'a Filter<'a>,
    vector: &'a [i8],
    norm: f64,
    best: Best,
}

impl VectorRanking<'_> {
    /// Compares a document's vector, and adds the document if it belongs to the best. The score is
    /// the cosine of the angle between both vectors.
    fn add(&mut self, id: i64, numbers: &[u8], norm: f64) -> Result<(), StoreError> {
        if numbers.len() != self.vector.len() {
            return Ok(());
        }
        let product_of_norms = self.norm * norm;
        // A vector of zeros has no direction.
        let score = if product_of_norms > 0.0 {
            f64::from(dot(self.vector, numbers)) / product_of_norms
        } else {
            0.0
        };
        let scored = Scored { id, score };
        if score > 0.0 && self.best.takes(scored) && self.filter.passes(self.connection, id)? {
            self.best.add(scored);
        }
        Ok(())
    }
}

fn dot(a: &[i8], b: &[u8]) -> i32 {
    // The sum fits, because it is at most 4,096 times 2^14.
    a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(b.cast_signed())).sum()
}

fn find_latest(
    connection: &Connection,
    filter: &Filter<'_>,
    limit: usize,
) -> Result<Vec<IndexHit>, StoreError> {
    if let Some(candidates) = &filter.candidates {
        // Looking up a few documents is faster than reading all documents.
        return find_latest_of(candidates, connection, filter, limit);
    }
    let mut hits = Vec::new();
    let mut statement =
        connection.prepare_cached("SELECT id, key FROM documents ORDER BY id DESC")?;
    let mut rows = statement.query([])?;
    while hits.len() < limit
        && let Some(row) = rows.next()?
    {
        if filter.passes(connection, row.get(0)?)? {
            let key = text(row, 1)?;
            hits.push(IndexHit { key, score: 0.0, by_words: false, by_vector: false });
        }
    }
    Ok(hits)
}

fn find_latest_of(
    candidates: &HashSet<i64>,
    connection: &Connection,
    filter: &Filter<'_>,
    limit: usize,
) -> Result<Vec<IndexHit>, StoreError> {
    let mut hits = Vec::new();
    // The latest documents have the highest IDs.
    let mut ids: Vec<i64> = candidates.iter().copied().collect();
    ids.sort_unstable_by_key(|id| Reverse(*id));
    for id in ids {
        if hits.len() < limit && filter.passes(connection, id)? {
            let scored = Scored { id, score: 0.0 };
            let hit = Found { scored, by_words: false, by_vector: false };
            hits.push(hit.with_key(connection)?);
        }
    }
    Ok(hits)
}
