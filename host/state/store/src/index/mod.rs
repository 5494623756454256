//! The index of a plugin: writes, lists and searches documents within a quota.
//!
//! Each plugin has an SQLite file in Toolhold's own data folder. Words are searched with FTS5.
//! Vectors are compared one by one, or an external database selects near vectors. Several processes
//! may use an index at the same time.
//!
//! A guest can't inject SQL: all statements are constants of this crate, and a guest's data is only
//! bound as a parameter. Words of a query consist of letters, digits and `_`.

mod best;
mod filter;
mod mirror;
mod pending;
mod search;
mod words;
mod write;

use std::path::PathBuf;

use rusqlite::{Connection, OptionalExtension as _, Row, TransactionBehavior, params};

use crate::{Database, DatabaseForm, Stop, StoreError, exceeds};

pub use mirror::{Mirror, UnsentVector, group};
pub use pending::PendingWrite;

/// Most bytes of a key. An empty key is refused.
pub const MAX_KEY: usize = 512;
/// Most bytes of a text.
pub const MAX_TEXT: usize = 1 << 20;
/// Most tags of a document, and of a query.
pub const MAX_TAGS: usize = 16;
/// Most bytes of a tag. An empty tag is refused.
pub const MAX_TAG: usize = 256;
/// Most numbers of a vector.
pub const MAX_VECTOR: usize = 4096;
/// Most bytes of data.
pub const MAX_DATA: usize = 64 * 1024;
/// Most documents or keys of one operation.
pub const MAX_DOCUMENTS: usize = 1000;
/// Most bytes of the documents of one write.
pub const MAX_WRITE: usize = 8 << 20;
/// Most bytes of the documents of one read. A single document may be larger.
pub const MAX_PAGE: usize = 4 << 20;
/// Most documents that are deleted by a prefix at once. Further documents stay.
pub const MAX_DELETED: usize = 10_000;
/// Most bytes of the words of a query.
pub const MAX_WORDS: usize = 4096;
/// Most hits of a query.
pub const MAX_HITS: usize = 1000;

/// Most documents that are ranked by words, or listed for a filter.
const COMMON: usize = 20_000;

/// The limits of a plugin's documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexQuota {
    /// The bytes of all documents, with their keys, tags, vectors and data.
    pub bytes: u64,
    /// The number of documents.
    pub documents: u64,
}

/// A document. Its limits are constants of this crate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// The document's key.
    pub key: String,
    /// The text that is searched for words.
    pub text: String,
    /// Exact words for filters. A tag with a NUL is refused.
    pub tags: Vec<String>,
    /// The vector. It is compared only with vectors of the same length.
    pub vector: Option<Vec<i8>>,
    /// Data that is stored and not searched.
    pub data: Vec<u8>,
}

impl Document {
    fn bytes(&self) -> usize {
        let tags: usize = self.tags.iter().map(|tag| tag.len() + 1).sum();
        let vector = self.vector.as_ref().map_or(0, Vec::len);
        self.key.len() + self.text.len() + tags + vector + self.data.len()
    }
}

/// A document in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentEntry {
    /// The document's key.
    pub key: String,
    /// The document's tags.
    pub tags: Vec<String>,
    /// Data that is stored with the document.
    pub data: Vec<u8>,
}

/// A page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentPage {
    /// The documents, sorted by the bytes of their keys.
    pub entries: Vec<DocumentEntry>,
    /// The start of the next page. `None` for the last page.
    pub cursor: Option<String>,
}

/// A search. A search without words and a vector finds the latest documents.
#[derive(Clone, Copy, Debug, Default)]
pub struct IndexQuery<'a> {
    /// The words. All characters except letters, digits and `_` are separators.
    pub words: &'a str,
    /// Tags that each hit has.
    pub tags: &'a [String],
    /// The prefix of each hit's key.
    pub prefix: &'a str,
    /// The vector whose near vectors are found.
    pub vector: Option<&'a [i8]>,
    /// The numbers of the documents whose vectors are compared. Unknown numbers are ignored. `None`
    /// means all documents.
    pub near: Option<&'a [i64]>,
    /// The most hits, up to [`MAX_HITS`].
    pub limit: usize,
}

/// A document that a query found.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexHit {
    /// The document's key.
    pub key: String,
    /// The score. A higher score is better. Scores of different queries can't be compared.
    pub score: f64,
    /// Whether the document was found by its words.
    pub by_words: bool,
    /// Whether the document was found by its vector.
    pub by_vector: bool,
}

/// Identifies an index in the header of its file: `berI`.
const APPLICATION: i32 = 0x6265_7249;

/// Bytes in the file for each document, in addition to its content.
const BYTES_PER_DOCUMENT: u64 = 1024;

/// `words` stores no content, because its rows refer to `documents`.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS documents (
        id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, size INTEGER NOT NULL,
        tags BLOB NOT NULL, data BLOB NOT NULL, text TEXT NOT NULL
    ) STRICT;
    CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(
        text, parts, tags, content='', contentless_delete=1, tokenize='porter unicode61'
    );
    CREATE TABLE IF NOT EXISTS vectors (
        id INTEGER PRIMARY KEY, norm REAL NOT NULL, numbers BLOB NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS totals (
        one INTEGER PRIMARY KEY CHECK (one = 1), bytes INTEGER NOT NULL,
        documents INTEGER NOT NULL, vectors INTEGER NOT NULL
    ) STRICT;
    INSERT OR IGNORE INTO totals VALUES (1, 0, 0, 0);
    PRAGMA application_id = 0x62657249;
    PRAGMA user_version = 1;";

/// The index of a plugin. The first operation opens or creates its file. All operations block.
#[derive(Debug)]
pub struct DocumentIndex {
    database: Database,
    quota: IndexQuota,
    is_derived: bool,
}

impl DocumentIndex {
    /// Makes the index of a plugin in a folder of Toolhold. `name` is the plugin's name,
    /// `[a-z0-9-]`. With `is_derived`, the documents can be created again, and a write doesn't wait
    /// for the disk.
    pub fn named(
        folder: impl Into<PathBuf>,
        name: impl Into<String>,
        quota: IndexQuota,
        is_derived: bool,
    ) -> Self {
        let form = DatabaseForm {
            application: APPLICATION,
            tables: TABLES,
            upgrades: &[mirror::TABLES, mirror::GROUPS],
            // The longest value is the result of `words::parts`, which is up to three times as long
            // as the text, because pairs of letters overlap.
            longest: 3 * MAX_TEXT,
            // The documents need their own size once. Their words need about the same size again,
            // and twice more while FTS5 merges them.
            bytes: quota
                .bytes
                .saturating_mul(4)
                .saturating_add(quota.documents.saturating_mul(BYTES_PER_DOCUMENT)),
            is_derived,
        };
        Self { database: Database::named(folder, name, form), quota, is_derived }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> PathBuf {
        self.database.path()
    }

    /// Writes all documents or none. A document replaces the document with the same key. The
    /// documents are on disk when this function returns, unless the index is derived.
    ///
    /// # Errors
    ///
    /// Returns an error if a document isn't valid, the quota is exhausted, the file can't be
    /// written, or the operation is stopped. Nothing is changed then.
    pub fn put(&self, documents: &[Document], stop: &Stop) -> Result<(), StoreError> {
        self.write(documents, stop, || {})
    }

    /// Writes documents like [`put`](Self::put). Calls `on_begun` when only the disk or `stop` can
    /// still make the write fail. If the documents may exceed the quota, doesn't call it.
    fn write(
        &self,
        documents: &[Document],
        stop: &Stop,
        on_begun: impl FnOnce(),
    ) -> Result<(), StoreError> {
        write::check(documents)?;
        self.change(stop, |connection, totals| {
            if totals.has_room_for(documents, self.quota) {
                on_begun();
            }
            for document in documents {
                write::put(connection, document, totals)?;
            }
            Ok(())
        })
    }

    /// Deletes all documents or none. Missing documents are ignored.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`put`](Self::put).
    pub fn delete(&self, keys: &[String], stop: &Stop) -> Result<(), StoreError> {
        check_count(keys.len(), "keys")?;
        for key in keys {
            check_key(key)?;
        }
        self.change(stop, |connection, totals| {
            for key in keys {
                write::delete(connection, key, totals)?;
            }
            Ok(())
        })
    }

    /// Deletes the first [`MAX_DELETED`] documents whose keys begin with `prefix`, and returns
    /// their number.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`put`](Self::put).
    pub fn delete_prefix(&self, prefix: &str, stop: &Stop) -> Result<usize, StoreError> {
        check_prefix(prefix)?;
        self.change(stop, |connection, totals| {
            let mut statement = connection
                .prepare_cached("SELECT key FROM documents WHERE key >= ?1 ORDER BY key")?;
            let mut keys = Vec::new();
            let mut rows = statement.query([prefix.as_bytes()])?;
            while keys.len() < MAX_DELETED
                && let Some(row) = rows.next()?
            {
                let key = text(row, 0)?;
                if !key.starts_with(prefix) {
                    break;
                }
                keys.push(key);
            }
            for key in &keys {
                write::delete(connection, key, totals)?;
            }
            Ok(keys.len())
        })
    }

    /// Returns the documents with these keys, in the order of the keys. A missing document is
    /// `None`.
    ///
    /// # Errors
    ///
    /// Returns an error if a key isn't valid, the documents have more than [`MAX_PAGE`] bytes, the
    /// file can't be read, or the operation is stopped.
    pub fn get(&self, keys: &[String], stop: &Stop) -> Result<Vec<Option<Document>>, StoreError> {
        check_count(keys.len(), "keys")?;
        for key in keys {
            check_key(key)?;
        }
        self.database.run(stop, |connection| {
            let transaction = connection.transaction()?;
            let mut statement = transaction.prepare_cached(
                "SELECT key, tags, data, text, numbers FROM documents LEFT JOIN vectors USING (id)
                 WHERE key = ?1",
            )?;
            let mut documents = Vec::new();
            let mut bytes = 0;
            for key in keys {
                let document = statement.query_row([key.as_bytes()], read_document).optional()?;
                bytes += document.as_ref().map_or(0, Document::bytes);
                // A single document may be larger.
                if bytes > MAX_PAGE && keys.len() > 1 {
                    return Err(StoreError::Limit(format!(
                        "the documents have more than {MAX_PAGE} bytes; ask for fewer at once"
                    )));
                }
                documents.push(document);
            }
            Ok(documents)
        })
    }

    /// Returns a page of the documents whose keys begin with `prefix`, without texts and vectors. A
    /// page ends at `limit` or [`MAX_DOCUMENTS`] documents, or at [`MAX_PAGE`] bytes. `cursor` is
    /// the start of the page, from the previous page.
    ///
    /// # Errors
    ///
    /// Fails if the prefix or cursor is too long, if the file can't be read, or if the operation is
    /// stopped.
    pub fn list(
        &self,
        prefix: &str,
        cursor: Option<&str>,
        limit: usize,
        stop: &Stop,
    ) -> Result<DocumentPage, StoreError> {
        let after = cursor.unwrap_or_default();
        check_prefix(prefix)?;
        check_prefix(after)?;
        let limit = limit.clamp(1, MAX_DOCUMENTS);
        self.database.run(stop, |connection| {
            // SQLite uses its index for only one lower bound, so `max` combines the bounds. With
            // two bounds, SQLite might choose the prefix and read all earlier keys again. The `+`
            // keeps the second condition from being such a bound.
            let mut statement = connection.prepare_cached(
                "SELECT key, tags, data FROM documents
                 WHERE key >= max(?1, ?2) AND +key > ?2 ORDER BY key",
            )?;
            let mut rows = statement.query(params![prefix.as_bytes(), after.as_bytes()])?;
            let mut entries = Vec::<DocumentEntry>::new();
            let mut bytes = 0;
            while let Some(row) = rows.next()? {
                let key = text(row, 0)?;
                if !key.starts_with(prefix) {
                    break;
                }
                let entry = DocumentEntry { key, tags: tags(row, 1)?, data: row.get(2)? };
                bytes += entry.key.len() + entry.data.len();
                bytes += entry.tags.iter().map(String::len).sum::<usize>();
                if entries.len() == limit || (bytes > MAX_PAGE && !entries.is_empty()) {
                    let cursor = entries.last().map(|last| last.key.clone());
                    return Ok(DocumentPage { entries, cursor });
                }
                entries.push(entry);
            }
            Ok(DocumentPage { entries, cursor: None })
        })
    }

    /// Returns the best documents for a query, the best first. Of equal documents, the later
    /// document comes first. If very many documents contain the words, only the rarest words are
    /// used.
    ///
    /// # Errors
    ///
    /// Fails if the query isn't valid, if the file can't be read, or if the operation is stopped.
    pub fn search(&self, query: &IndexQuery<'_>, stop: &Stop) -> Result<Vec<IndexHit>, StoreError> {
        search::check(query)?;
        self.database.run(stop, |connection| {
            // All statements must see the same state.
            let transaction = connection.transaction()?;
            search::search(&transaction, query)
        })
    }

    /// Returns the number of documents and their bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be read, or the operation is stopped.
    pub fn used(&self, stop: &Stop) -> Result<IndexQuota, StoreError> {
        self.database.run(stop, |connection| Ok(Totals::read(connection)?.used))
    }

    fn change<T>(
        &self,
        stop: &Stop,
        change: impl FnOnce(&Connection, &mut Totals) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.database.run(stop, |connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let totals_before = Totals::read(&transaction)?;
            let mut totals = totals_before;
            let result = change(&transaction, &mut totals)?;
            mirror::limit_changes(&transaction, totals.vectors)?;
            totals.check(totals_before.used, self.quota)?;
            totals.write(&transaction)?;
            transaction.commit()?;
            Ok(result)
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct Totals {
    used: IndexQuota,
    vectors: u64,
}

impl Totals {
    fn read(connection: &Connection) -> Result<Self, StoreError> {
        let mut statement =
            connection.prepare_cached("SELECT bytes, documents, vectors FROM totals")?;
        let totals = statement.query_row([], |row| {
            let used = IndexQuota { bytes: row.get(0)?, documents: row.get(1)? };
            Ok(Self { used, vectors: row.get(2)? })
        })?;
        Ok(totals)
    }

    fn write(&self, connection: &Connection) -> Result<(), StoreError> {
        let Self { used, vectors } = *self;
        connection
            .prepare_cached("UPDATE totals SET bytes = ?1, documents = ?2, vectors = ?3")?
            .execute(params![used.bytes, used.documents, vectors])?;
        Ok(())
    }

    /// Checks whether the documents fit into the quota even if they are all new.
    fn has_room_for(&self, documents: &[Document], quota: IndexQuota) -> bool {
        let size: usize = documents.iter().map(Document::bytes).sum();
        let bytes = u64::try_from(size).unwrap_or(u64::MAX);
        let count = u64::try_from(documents.len()).unwrap_or(u64::MAX);
        self.used.bytes.saturating_add(bytes) <= quota.bytes
            && self.used.documents.saturating_add(count) <= quota.documents
    }

    /// Checks that a change stays within the quota. A change that makes the index smaller is always
    /// allowed.
    fn check(&self, before: IndexQuota, quota: IndexQuota) -> Result<(), StoreError> {
        if exceeds(self.used.bytes, before.bytes, quota.bytes) {
            return Err(StoreError::Limit(format!(
                "the index would have {} bytes; the limit is {}",
                self.used.bytes, quota.bytes
            )));
        }
        if exceeds(self.used.documents, before.documents, quota.documents) {
            return Err(StoreError::Limit(format!(
                "the index would have {} documents; the limit is {}",
                self.used.documents, quota.documents
            )));
        }
        Ok(())
    }
}

/// Reads a row with the key, the tags, the data, the text and the vector.
fn read_document(row: &Row<'_>) -> rusqlite::Result<Document> {
    let vector: Option<Vec<u8>> = row.get(4)?;
    Ok(Document {
        key: text(row, 0)?,
        tags: tags(row, 1)?,
        data: row.get(2)?,
        text: row.get(3)?,
        vector: vector.map(|bytes| bytes.into_iter().map(u8::cast_signed).collect()),
    })
}

fn text(row: &Row<'_>, column: usize) -> rusqlite::Result<String> {
    Ok(String::from_utf8_lossy(row.get_ref(column)?.as_blob()?).into_owned())
}

/// Reads the tags of a document. In the column, a NUL follows each tag.
fn tags(row: &Row<'_>, column: usize) -> rusqlite::Result<Vec<String>> {
    let joined_tags = text(row, column)?;
    Ok(joined_tags.split_terminator('\0').map(str::to_owned).collect())
}

fn check_count(count: usize, what: &str) -> Result<(), StoreError> {
    if count > MAX_DOCUMENTS {
        let why = format!("there are {count} {what}; the limit is {MAX_DOCUMENTS}");
        return Err(StoreError::Invalid(why));
    }
    Ok(())
}

fn check_key(key: &str) -> Result<(), StoreError> {
    match key.len() {
        0 => Err(StoreError::Invalid("a key is empty; it needs 1 byte or more".into())),
        size => check_size(size, MAX_KEY, "a key"),
    }
}

fn check_prefix(prefix: &str) -> Result<(), StoreError> {
    check_size(prefix.len(), MAX_KEY, "a prefix or cursor")
}

fn check_size(size: usize, limit: usize, what: &str) -> Result<(), StoreError> {
    if size > limit {
        let why = format!("{what} is {size} bytes; the limit is {limit}");
        return Err(StoreError::Invalid(why));
    }
    Ok(())
}

fn check_tags(tags: &[String]) -> Result<(), StoreError> {
    if tags.len() > MAX_TAGS {
        return Err(StoreError::Invalid(format!(
            "there are {} tags; the limit is {MAX_TAGS}",
            tags.len()
        )));
    }
    for tag in tags {
        if tag.is_empty() || tag.contains('\0') {
            return Err(StoreError::Invalid("a tag is empty or has a NUL".into()));
        }
        check_size(tag.len(), MAX_TAG, "a tag")?;
    }
    Ok(())
}

/// Checks the length of a vector. A document may have no vector.
fn check_vector(vector: Option<&[i8]>) -> Result<(), StoreError> {
    match vector {
        Some([]) => Err(StoreError::Invalid("a vector is empty; it needs 1 number or more".into())),
        Some(vector) if vector.len() > MAX_VECTOR => Err(StoreError::Invalid(format!(
            "a vector has {} numbers; the limit is {MAX_VECTOR}",
            vector.len()
        ))),
        _ => Ok(()),
    }
}
