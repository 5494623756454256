//! Records which vectors of an index an external database already has.
//!
//! The index has all vectors, and a list of the changes that the database doesn't have yet. The
//! list is written together with the vectors. So no data is lost if the database is wiped,
//! unavailable or replaced by another one.

use rusqlite::{Connection, TransactionBehavior, params};

use crate::index::{DocumentIndex, text};
use crate::{Stop, StoreError};

/// The most recorded changes, in addition to two for each vector. A database that isn't used until
/// then gets all vectors again.
const MAX_UNSENT: u64 = 1_000_000;

/// The tables. `mirrors` has a row for each vector length that a database has, with the database's
/// place. Without such a row, no changes are recorded.
pub(crate) const TABLES: &str = "
    CREATE TABLE mirrors (numbers INTEGER PRIMARY KEY, place TEXT NOT NULL) STRICT;
    CREATE TABLE unsent (
        change INTEGER PRIMARY KEY AUTOINCREMENT, id INTEGER NOT NULL UNIQUE,
        numbers INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX unsent_numbers ON unsent (numbers, change);
    CREATE TABLE secret (one INTEGER PRIMARY KEY CHECK (one = 1), text TEXT NOT NULL) STRICT;
    INSERT INTO secret VALUES (1, lower(hex(randomblob(16))))";

/// The same tables with a separate row for each [group], because a database only gets the vectors
/// of groups that were searched with it. The numbers of vectors are stored too, so that no search
/// has to count them. A change without a group is a removed vector.
pub(crate) const GROUPS: &str = "
    DROP TABLE mirrors;
    DROP TABLE unsent;
    CREATE TABLE mirrors (
        numbers INTEGER NOT NULL, part TEXT NOT NULL, place TEXT NOT NULL,
        PRIMARY KEY (numbers, part)
    ) STRICT;
    CREATE TABLE unsent (
        change INTEGER PRIMARY KEY AUTOINCREMENT, id INTEGER NOT NULL UNIQUE,
        numbers INTEGER NOT NULL, part TEXT NOT NULL
    ) STRICT;
    CREATE INDEX unsent_parts ON unsent (numbers, part, change);
    CREATE TABLE vector_counts (
        numbers INTEGER NOT NULL, part TEXT NOT NULL, vectors INTEGER NOT NULL,
        PRIMARY KEY (numbers, part)
    ) STRICT;
    INSERT INTO vector_counts
    SELECT length(numbers), CAST(substr(key, 1, first + second) AS TEXT), count(*) FROM (
        SELECT *, instr(substr(key, first + 1), x'2f') AS second FROM (
            SELECT key, numbers, instr(key, x'2f') AS first FROM documents JOIN vectors USING (id)
        )
    ) WHERE first > 0 AND second > 0 GROUP BY 1, 2";

/// The state of an external database for the vectors of one length and [group].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// A random text that is unique for this index.
    pub secret: String,
    /// The vectors that the index has.
    pub vectors: u64,
    /// The number of changes that the database doesn't have yet. They may include removed vectors
    /// of other groups.
    pub unsent: u64,
    /// Whether the database already got vectors at this place.
    pub is_begun: bool,
}

/// A change that a database elsewhere doesn't have yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsentVector {
    change: i64,
    /// The number of the document.
    pub id: i64,
    /// The document's vector. `None` if the document no longer has a vector of this length.
    pub vector: Option<Vec<i8>>,
}

/// Returns the first two parts of a key, each with its `/`. Documents with this prefix form a
/// group. Returns `None` if the key has fewer than two such parts.
pub fn group(key: &str) -> Option<&str> {
    let (end, _) = key.match_indices('/').nth(1)?;
    Some(&key[..=end])
}

impl DocumentIndex {
    /// Returns the state of the database at `place` for the vectors of a [group] with this length.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be read, or the operation is stopped.
    pub fn mirror(
        &self,
        numbers: usize,
        group: &str,
        place: &str,
        stop: &Stop,
    ) -> Result<Mirror, StoreError> {
        self.database.run(stop, |connection| {
            let transaction = connection.transaction()?;
            let mirror = transaction
                .prepare_cached(
                    "SELECT text,
                        ifnull((SELECT vectors FROM vector_counts
                            WHERE numbers = ?1 AND part = ?2), 0),
                        (SELECT count(*) FROM unsent WHERE numbers = ?1 AND part IN ('', ?2)),
                        EXISTS (SELECT 1 FROM mirrors
                            WHERE numbers = ?1 AND part = ?2 AND place = ?3)
                     FROM secret",
                )?
                .query_row(params![numbers, group, place], |row| {
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

    /// Records that the database at `place` has no vectors of a [group] with this length, so that
    /// it gets all of them.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be written, or the operation is stopped. Nothing is then
    /// changed.
    pub fn begin_mirror(
        &self,
        numbers: usize,
        group: &str,
        place: &str,
        stop: &Stop,
    ) -> Result<(), StoreError> {
        self.database.run(stop, |connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction.execute(
                "DELETE FROM unsent WHERE numbers = ?1 AND part = ?2",
                params![numbers, group],
            )?;
            let mut statement = transaction
                .prepare_cached("SELECT id, key FROM documents WHERE key >= ?1 ORDER BY key")?;
            let mut rows = statement.query([group.as_bytes()])?;
            while let Some(row) = rows.next()?
                && text(row, 1)?.starts_with(group)
            {
                transaction
                    .prepare_cached(
                        "INSERT OR REPLACE INTO unsent (id, numbers, part)
                         SELECT id, ?2, ?3 FROM vectors WHERE id = ?1 AND length(numbers) = ?2",
                    )?
                    .execute(params![row.get::<_, i64>(0)?, numbers, group])?;
            }
            drop(rows);
            drop(statement);
            transaction.execute(
                "INSERT OR REPLACE INTO mirrors VALUES (?1, ?2, ?3)",
                params![numbers, group, place],
            )?;
            transaction.commit()?;
            Ok(())
        })
    }

    /// Returns the first changes of vectors of a [group] with this length, at most `limit`. The
    /// changes include removed vectors of other groups.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be read, or the operation is stopped.
    pub fn unsent(
        &self,
        numbers: usize,
        group: &str,
        limit: usize,
        stop: &Stop,
    ) -> Result<Vec<UnsentVector>, StoreError> {
        self.database.run(stop, |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT change, unsent.id, vectors.numbers FROM unsent
                 LEFT JOIN vectors
                    ON part != '' AND vectors.id = unsent.id AND length(vectors.numbers) = ?1
                 WHERE unsent.numbers = ?1 AND part IN ('', ?2) ORDER BY change LIMIT ?3",
            )?;
            let rows = statement.query_map(params![numbers, group, limit], |row| {
                let numbers: Option<Vec<u8>> = row.get(2)?;
                let vector =
                    numbers.map(|numbers| numbers.into_iter().map(u8::cast_signed).collect());
                Ok(UnsentVector { change: row.get(0)?, id: row.get(1)?, vector })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// Records that the database has these changes. If a vector changed again meanwhile, its new
    /// change isn't removed.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be written, or the operation is stopped. Nothing is then
    /// changed.
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

/// Records that a document got a vector, or no longer has one.
pub(crate) fn note(
    connection: &Connection,
    key: &str,
    id: i64,
    numbers: usize,
    is_gone: bool,
) -> Result<(), StoreError> {
    let Some(group) = group(key) else { return Ok(()) };
    connection
        .prepare_cached(
            "INSERT INTO vector_counts VALUES (?1, ?2, ?3)
             ON CONFLICT DO UPDATE SET vectors = vectors + ?3",
        )?
        .execute(params![numbers, group, if is_gone { -1 } else { 1 }])?;
    // Changes are only recorded if a database has the group.
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO unsent (id, numbers, part) SELECT ?1, ?2, ?4
             WHERE EXISTS (SELECT 1 FROM mirrors WHERE numbers = ?2 AND part = ?3)",
        )?
        .execute(params![id, numbers, group, if is_gone { "" } else { group }])?;
    Ok(())
}

/// Removes the state of the databases if they lack too many changes.
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
