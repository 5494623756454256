//! Decides which documents a query may find, by tags and by the prefix of keys.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::StoreError;
use crate::index::{COMMON, IndexQuery, text, words};

/// The filter of a query: tags, and the prefix of keys.
#[derive(Debug)]
pub(crate) struct Filter<'a> {
    tags: &'a [String],
    prefix: &'a str,
    /// The documents that pass, if they are few. Otherwise, each document is looked up when it is
    /// found.
    pub(crate) few: Option<HashSet<i64>>,
    /// The tags in the syntax of FTS5, if few documents have all of them.
    pub(crate) narrow: Option<String>,
}

impl<'a> Filter<'a> {
    pub(crate) fn new(connection: &Connection, query: &IndexQuery<'a>) -> Result<Self, StoreError> {
        let mut filter = Self { tags: query.tags, prefix: query.prefix, few: None, narrow: None };
        if !filter.tags.is_empty() {
            let tokens: Vec<String> = filter.tags.iter().map(|tag| words::tag_token(tag)).collect();
            let expression = format!("(tags : ({}))", tokens.join(" AND "));
            let mut statement = connection
                .prepare_cached("SELECT rowid FROM words WHERE words MATCH ?1 LIMIT ?2")?;
            let rows = statement.query_map(params![expression, COMMON + 1], |row| row.get(0))?;
            let tagged = rows.collect::<Result<HashSet<i64>, _>>()?;
            if tagged.len() <= COMMON {
                filter.few = Some(tagged);
                filter.narrow = Some(expression);
            }
        }
        if !filter.prefix.is_empty() {
            let mut statement = connection
                .prepare_cached("SELECT key, id FROM documents WHERE key >= ?1 ORDER BY key")?;
            let mut rows = statement.query([filter.prefix.as_bytes()])?;
            let mut below = HashSet::new();
            while below.len() <= COMMON
                && let Some(row) = rows.next()?
                && text(row, 0)?.starts_with(filter.prefix)
            {
                below.insert(row.get(1)?);
            }
            if below.len() <= COMMON {
                filter.few = Some(match filter.few.take() {
                    Some(tagged) => tagged.intersection(&below).copied().collect(),
                    None => below,
                });
            }
        }
        Ok(filter)
    }

    /// Checks whether a document is already known not to pass, without a lookup.
    pub(crate) fn excludes(&self, id: i64) -> bool {
        self.few.as_ref().is_some_and(|few| !few.contains(&id))
    }

    /// Checks whether a document passes.
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
        let Some((key, tags)) = document else { return Ok(false) };
        Ok(key.starts_with(self.prefix) && self.tags.iter().all(|tag| tags.contains(tag)))
    }
}
