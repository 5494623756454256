//! Checks, writes and deletes documents of an index in the database.

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::StoreError;
use crate::index::{
    Document, MAX_DATA, MAX_TEXT, MAX_WRITE, Totals, check_count, check_key, check_size,
    check_tags, check_vector, mirror, words,
};

pub(crate) fn check(documents: &[Document]) -> Result<(), StoreError> {
    check_count(documents.len(), "documents")?;
    for document in documents {
        check_key(&document.key)?;
        check_size(document.text.len(), MAX_TEXT, "a text")?;
        check_size(document.data.len(), MAX_DATA, "the data of a document")?;
        check_tags(&document.tags)?;
        check_vector(document.vector.as_deref())?;
    }
    let bytes: usize = documents.iter().map(Document::bytes).sum();
    check_size(bytes, MAX_WRITE, "a write")
}

/// Writes a document in place of the document with the same key, and updates `totals`.
pub(crate) fn put(
    connection: &Connection,
    document: &Document,
    totals: &mut Totals,
) -> Result<(), StoreError> {
    delete(connection, &document.key, totals)?;
    let size = u64::try_from(document.bytes()).unwrap_or(u64::MAX);
    let mut tags = String::new();
    for tag in &document.tags {
        tags.push_str(tag);
        tags.push('\0');
    }
    connection
        .prepare_cached(
            "INSERT INTO documents (key, size, tags, data, text) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            document.key.as_bytes(),
            size,
            tags.as_bytes(),
            document.data,
            document.text
        ])?;
    let id = connection.last_insert_rowid();
    let tags: Vec<String> = document.tags.iter().map(|tag| words::tag_token(tag)).collect();
    connection
        .prepare_cached("INSERT INTO words (rowid, text, parts, tags) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![id, document.text, words::parts(&document.text), tags.join(" ")])?;
    if let Some(vector) = &document.vector {
        let numbers: Vec<u8> = vector.iter().map(|number| number.cast_unsigned()).collect();
        connection
            .prepare_cached("INSERT INTO vectors (id, norm, numbers) VALUES (?1, ?2, ?3)")?
            .execute(params![id, norm(vector), numbers])?;
        let is_gone = false;
        mirror::record_change(connection, &document.key, id, numbers.len(), is_gone)?;
        totals.vectors += 1;
    }
    totals.used.bytes = totals.used.bytes.saturating_add(size);
    totals.used.documents += 1;
    Ok(())
}

pub(crate) fn delete(
    connection: &Connection,
    key: &str,
    totals: &mut Totals,
) -> Result<(), StoreError> {
    let old: Option<(i64, u64)> = connection
        .prepare_cached("SELECT id, size FROM documents WHERE key = ?1")?
        .query_row([key.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((id, size)) = old else { return Ok(()) };
    connection.prepare_cached("DELETE FROM documents WHERE id = ?1")?.execute([id])?;
    connection.prepare_cached("DELETE FROM words WHERE rowid = ?1")?.execute([id])?;
    let vector_length: Option<usize> = connection
        .prepare_cached("DELETE FROM vectors WHERE id = ?1 RETURNING length(numbers)")?
        .query_row([id], |row| row.get(0))
        .optional()?;
    if let Some(vector_length) = vector_length {
        let is_gone = true;
        mirror::record_change(connection, key, id, vector_length, is_gone)?;
        totals.vectors = totals.vectors.saturating_sub(1);
    }
    totals.used.bytes = totals.used.bytes.saturating_sub(size);
    totals.used.documents = totals.used.documents.saturating_sub(1);
    Ok(())
}

pub(crate) fn norm(vector: &[i8]) -> f64 {
    let squares: u64 = vector.iter().map(|number| u64::from(number.unsigned_abs()).pow(2)).sum();
    // The value is at most 4,096 times 2^14. `f64` represents it exactly.
    (squares as f64).sqrt()
}
