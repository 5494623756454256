//! What a database elsewhere has of the vectors of an index.
//!
//! The index keeps all vectors, and a list of the changes that the database doesn't have yet. The
//! list is written together with the vectors. So the database can be wiped, be down or be another
//! one, and nothing is lost.

use berth_store::{Stop, StoreError};
use rusqlite::{Connection, TransactionBehavior, params};

use crate::{DocumentIndex, text};

/// Changes that are kept beside two for each vector. A database that wasn't asked meanwhile gets
/// all vectors anew.
const MAX_UNSENT: u64 = 1_000_000;

/// The tables. `mirrors` has a row for each length of vectors that a database has got, and where it
/// is. Without one, no changes are kept.
pub(crate) const TABLES: &str = "
    CREATE TABLE mirrors (numbers INTEGER PRIMARY KEY, place TEXT NOT NULL) STRICT;
    CREATE TABLE unsent (
        change INTEGER PRIMARY KEY AUTOINCREMENT, id INTEGER NOT NULL UNIQUE,
        numbers INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX unsent_numbers ON unsent (numbers, change);
    CREATE TABLE secret (one INTEGER PRIMARY KEY CHECK (one = 1), text TEXT NOT NULL) STRICT;
    INSERT INTO secret VALUES (1, lower(hex(randomblob(16))))";

/// How far a database elsewhere has the vectors of one length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// A random text, which no other index has.
    pub secret: String,
    /// Vectors of this length that the index has.
    pub vectors: u64,
    /// Changes that the database doesn't have yet.
    pub unsent: u64,
    /// Whether it has got vectors at this place before.
    pub is_begun: bool,
}

/// A change that a database elsewhere doesn't have yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsentVector {
    change: i64,
    /// The number of the document.
    pub id: i64,
    /// The [group] of its key, and its vector. `None`: it has no vector of this length any more.
    pub vector: Option<(String, Vec<i8>)>,
}

/// The first two parts of a key, each with its `/`. All documents with a prefix that has them are
/// in the same group. `None`: it has no two parts.
pub fn group(key: &str) -> Option<&str> {
    let (end, _) = key.match_indices('/').nth(1)?;
    Some(&key[..=end])
}

impl DocumentIndex {
    /// How far the database at `place` has the vectors with so many numbers.
    ///
    /// # Errors
    ///
    /// A file that can't be read, or the stop.
    pub fn mirror(&self, numbers: usize, place: &str, stop: &Stop) -> Result<Mirror, StoreError> {
        self.database.run(stop, |connection| {
            let transaction = connection.transaction()?;
            let mirror = transaction
                .prepare_cached(
                    "SELECT text,
                        (SELECT count(*) FROM vectors WHERE length(numbers) = ?1),
                        (SELECT count(*) FROM unsent WHERE numbers = ?1),
                        EXISTS (SELECT 1 FROM mirrors WHERE numbers = ?1 AND place = ?2)
                     FROM secret",
                )?
                .query_row(params![numbers, place], |row| {
                    Ok(Mirror {
                        secret: row.get(0)?,
                        vectors: row.get(1)?,
                        unsent: row.get(2)?,
                        is_begun: row.get(3)?,
                    })
                })?;
            Ok(mirror)
        })
    }

    /// Notes that the database at `place` has none of the vectors with so many numbers, and gets
    /// all of them.
    ///
    /// # Errors
    ///
    /// A file that can't be written, or the stop. Nothing has changed then.
    pub fn begin_mirror(&self, numbers: usize, place: &str, stop: &Stop) -> Result<(), StoreError> {
        self.database.run(stop, |connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction.execute("DELETE FROM unsent WHERE numbers = ?1", [numbers])?;
            transaction.execute(
                "INSERT OR REPLACE INTO unsent (id, numbers)
                 SELECT id, length(numbers) FROM vectors WHERE length(numbers) = ?1",
                [numbers],
            )?;
            transaction.execute(
                "INSERT OR REPLACE INTO mirrors VALUES (?1, ?2)",
                params![numbers, place],
            )?;
            transaction.commit()?;
            Ok(())
        })
    }

    /// The first changes of vectors with so many numbers, at most `limit`.
    ///
    /// # Errors
    ///
    /// A file that can't be read, or the stop.
    pub fn unsent(
        &self,
        numbers: usize,
        limit: usize,
        stop: &Stop,
    ) -> Result<Vec<UnsentVector>, StoreError> {
        self.database.run(stop, |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT change, unsent.id, key, vectors.numbers FROM unsent
                 LEFT JOIN vectors ON vectors.id = unsent.id AND length(vectors.numbers) = ?1
                 LEFT JOIN documents ON documents.id = vectors.id
                 WHERE unsent.numbers = ?1 ORDER BY change LIMIT ?2",
            )?;
            let rows = statement.query_map(params![numbers, limit], |row| {
                let numbers: Option<Vec<u8>> = row.get(3)?;
                let vector = numbers.map(|numbers| {
                    let key = text(row, 2)?;
                    let vector = numbers.into_iter().map(u8::cast_signed).collect();
                    Ok::<_, rusqlite::Error>((group(&key).unwrap_or_default().to_owned(), vector))
                });
                Ok(UnsentVector {
                    change: row.get(0)?,
                    id: row.get(1)?,
                    vector: vector.transpose()?,
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// Notes that the database has these changes. One that changed again meanwhile stays.
    ///
    /// # Errors
    ///
    /// A file that can't be written, or the stop. Nothing has changed then.
    pub fn sent(&self, changes: &[UnsentVector], stop: &Stop) -> Result<(), StoreError> {
        self.database.run(stop, |connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for UnsentVector { change, .. } in changes {
                transaction
                    .prepare_cached("DELETE FROM unsent WHERE change = ?1")?
                    .execute([change])?;
            }
            transaction.commit()?;
            Ok(())
        })
    }
}

/// Notes that the vector of a document changed, if a database has vectors.
pub(crate) fn note(connection: &Connection, id: i64, numbers: usize) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO unsent (id, numbers)
             SELECT ?1, ?2 WHERE EXISTS (SELECT 1 FROM mirrors)",
        )?
        .execute(params![id, numbers])?;
    Ok(())
}

/// Forgets what a database has if there are too many changes that it doesn't have.
pub(crate) fn bound(connection: &Connection, vectors: u64) -> Result<(), StoreError> {
    let most = MAX_UNSENT.saturating_add(vectors.saturating_mul(2));
    let forgotten = connection
        .prepare_cached(
            "DELETE FROM mirrors
             WHERE (SELECT max(change) FROM unsent) - (SELECT min(change) FROM unsent) > ?1",
        )?
        .execute([most])?;
    if forgotten > 0 {
        connection.execute("DELETE FROM unsent", [])?;
    }
    Ok(())
}
