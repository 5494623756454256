//! Records which vectors of an index an external database has.
//!
//! The index has all vectors, and a list of the changes that the database lacks. Both are written
//! in one transaction, so no vector is lost if the database is wiped, unavailable or replaced.

use rusqlite::{Connection, TransactionBehavior, params};

use crate::index::{DocumentIndex, text};
use crate::{Stop, StoreError};

/// Most recorded changes, in addition to two for each vector. Above the limit, the changes are
/// dropped, and the database gets all vectors again.
const MAX_UNSENT: u64 = 1_000_000;

/// The tables. `mirrors` has a row for each length of vectors that a database has. Only changes of
/// vectors with these lengths are recorded.
pub(crate) const TABLES: &str = "
    CREATE TABLE mirrors (numbers INTEGER PRIMARY KEY, place TEXT NOT NULL) STRICT;
    CREATE TABLE unsent (
        change INTEGER PRIMARY KEY AUTOINCREMENT, id INTEGER NOT NULL UNIQUE,
        numbers INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX unsent_numbers ON unsent (numbers, change);
    CREATE TABLE secret (one INTEGER PRIMARY KEY CHECK (one = 1), text TEXT NOT NULL) STRICT;
    INSERT INTO secret VALUES (1, lower(hex(randomblob(16))))";

/// Replaces the tables with tables that have a row for each [group], because a database gets only
/// the groups that were searched with it. `vector_counts` has the number of vectors in each group,
/// so that a search doesn't count them. If the group of a change is empty, the vector was removed.
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

/// The state of an external database for a [group]'s vectors of one length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// A random text that identifies this index.
    pub secret: String,
    /// The number of vectors in the index.
    pub vectors: u64,
    /// The number of changes that the database lacks. The changes may include removed vectors of
    /// other groups.
    pub unsent: u64,
    /// Whether the database has received vectors at this place.
    pub is_begun: bool,
}

/// A change that the database lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsentVector {
    change: i64,
    /// The number of the document.
    pub id: i64,
    /// The vector. `None` if the document no longer has a vector of this length.
    pub vector: Option<Vec<i8>>,
}

/// Returns the first two parts of a key, with their slashes. A group is all documents with this
/// prefix. Returns `None` if the key has fewer slashes.
pub fn group(key: &str) -> Option<&str> {
    let (end, _) = key.match_indices('/').nth(1)?;
    Some(&key[..=end])
}

impl DocumentIndex {
    /// Returns the state of the external database at `place`, for the vectors of a [group] with the
    /// length `numbers`.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be read, or if the operation is stopped.
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

    /// Records that the database at `place` has no vectors of a [group] with the length `numbers`.
    /// The database then gets all these vectors again.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be written, or the operation is stopped. Nothing is
    /// changed then.
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

    /// Returns at most `limit` changes of a [group]'s vectors, the oldest first. The changes
    /// include removed vectors of other groups, because a removed vector has no group.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be read, or if the operation is stopped.
    pub fn unsent(
        &self,
        numbers: usize,
        group: &str,
        limit: usize,
        stop: &Stop,
    ) -> Result<Vec<UnsentVector>, StoreError> {
        self.database.run(stop, |connection| {
            // A removed vector has an empty `part`.
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

    /// Records that the database has these changes. If a vector has changed again in the meantime,
    /// its new change stays.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be written, or the operation is stopped. Nothing is
    /// changed then.
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

/// Records a new or removed vector of a document. `numbers` is the length of the vector.
/// `is_gone` means that the vector was removed.
pub(crate) fn record_change(
    connection: &Connection,
    key: &str,
    id: i64,
    numbers: usize,
    is_gone: bool,
) -> Result<(), StoreError> {
    let Some(group) = group(key) else { return Ok(()) };
    let count_change = if is_gone { -1 } else { 1 };
    connection
        .prepare_cached(
            "INSERT INTO vector_counts VALUES (?1, ?2, ?3)
             ON CONFLICT DO UPDATE SET vectors = vectors + ?3",
        )?
        .execute(params![numbers, group, count_change])?;
    // A removed vector is recorded without a group, so that each database gets the change.
    let part = if is_gone { "" } else { group };
    // Changes of groups without a database aren't recorded.
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO unsent (id, numbers, part) SELECT ?1, ?2, ?4
             WHERE EXISTS (SELECT 1 FROM mirrors WHERE numbers = ?2 AND part = ?3)",
        )?
        .execute(params![id, numbers, group, part])?;
    Ok(())
}

/// Forgets the databases if the list of changes is too long. The limit grows with the number of
/// `vectors` in the index.
pub(crate) fn limit_changes(connection: &Connection, vectors: u64) -> Result<(), StoreError> {
    let max_changes = MAX_UNSENT.saturating_add(vectors.saturating_mul(2));
    let forgotten = connection
        .prepare_cached(
            "DELETE FROM mirrors
             WHERE (SELECT max(change) FROM unsent) - (SELECT min(change) FROM unsent) > ?1",
        )?
        .execute([max_changes])?;
    if forgotten > 0 {
        connection.execute("DELETE FROM unsent", [])?;
    }
    Ok(())
}
