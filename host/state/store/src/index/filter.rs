//! Filters documents by tags and by the prefix of their keys.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::StoreError;
use crate::index::{COMMON, IndexQuery, text, words};

#[derive(Debug)]
pub(crate) struct Filter<'a> {
    tags: &'a [String],
    prefix: &'a str,
    /// The matching documents, if they are few. If it is `None`, each found document is looked up.
    pub(crate) candidates: Option<HashSet<i64>>,
    /// The tags in the syntax of FTS5, if few documents match them.
    pub(crate) tag_expression: Option<String>,
}

impl<'a> Filter<'a> {
    /// Prepares the filter. If only a few documents match the tags or the prefix, looks these
    /// documents up now, so that other documents are excluded without a query.
    pub(crate) fn new(connection: &Connection, query: &IndexQuery<'a>) -> Result<Self, StoreError> {
        let mut filter =
            Self { tags: query.tags, prefix: query.prefix, candidates: None, tag_expression: None };
        if !filter.tags.is_empty() {
            let tokens: Vec<String> = filter.tags.iter().map(|tag| words::tag_token(tag)).collect();
            let expression = format!("(tags : ({}))", tokens.join(" AND "));
            if let Some(tagged) = find_tagged(connection, &expression)? {
                filter.candidates = Some(tagged);
                filter.tag_expression = Some(expression);
            }
        }
        if !filter.prefix.is_empty()
            && let Some(with_prefix) = find_with_prefix(connection, filter.prefix)?
        {
            filter.candidates = Some(match filter.candidates.take() {
                Some(tagged) => tagged.intersection(&with_prefix).copied().collect(),
                None => with_prefix,
            });
        }
        Ok(filter)
    }

    /// Checks whether a document isn't one of the candidates, which needs no query of the database.
    pub(crate) fn excludes(&self, id: i64) -> bool {
        self.candidates.as_ref().is_some_and(|candidates| !candidates.contains(&id))
    }

    /// Checks whether a document has all tags, and a key with the prefix.
    pub(crate) fn passes(&self, connection: &Connection, id: i64) -> Result<bool, StoreError> {
        if self.excludes(id) {
            return Ok(false);
        }
        if self.tags.is_empty() && self.prefix.is_empty() {
            return Ok(true);
        }
        let document = connection
            .prepare_cached("SELECT key, tags FROM documents WHERE id = ?1")?
            .query_row([id], |row| Ok((text(row, 0)?, crate::index::tags(row, 1)?)))
            .optional()?;
        // The document may have been deleted.
        let Some((key, tags)) = document else { return Ok(false) };
        let has_tags = self.tags.iter().all(|tag| tags.contains(tag));
        Ok(has_tags && key.starts_with(self.prefix))
    }
}

/// Returns the documents that an expression of FTS5 finds, or `None` if there are more than
/// [`COMMON`] documents.
fn find_tagged(
    connection: &Connection,
    expression: &str,
) -> Result<Option<HashSet<i64>>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT rowid FROM words WHERE words MATCH ?1 LIMIT ?2")?;
    // One document above the limit shows that there are too many documents.
    let rows = statement.query_map(params![expression, COMMON + 1], |row| row.get(0))?;
    let tagged = rows.collect::<Result<HashSet<i64>, _>>()?;
    if tagged.len() > COMMON {
        return Ok(None);
    }
    Ok(Some(tagged))
}

/// Returns the documents whose keys have the prefix, or `None` if there are more than [`COMMON`]
/// documents.
fn find_with_prefix(
    connection: &Connection,
    prefix: &str,
) -> Result<Option<HashSet<i64>>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT key, id FROM documents WHERE key >= ?1 ORDER BY key")?;
    let mut rows = statement.query([prefix.as_bytes()])?;
    // The keys are sorted, so the keys with the prefix come first.
    let mut with_prefix = HashSet::new();
    while let Some(row) = rows.next()?
        && text(row, 0)?.starts_with(prefix)
    {
        with_prefix.insert(row.get(1)?);
        if with_prefix.len() > COMMON {
            return Ok(None);
        }
    }
    Ok(Some(with_prefix))
}
