//! Removes tables from an MCP client's TOML file. Other text stays.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};
use toml_edit::{Document, DocumentMut, Item, Table, TableLike, TomlError};

use crate::client_files::error::ClientFileError;
use crate::client_files::values::toml_values;

/// Removes tables from the table at `path`. The comment directly above a table is removed too.
/// Returns the new text.
///
/// # Errors
///
/// Returns an error if the text isn't TOML or values outside of the tables would change.
pub fn without_tables(
    before: &str,
    path: &[&str],
    names: &[String],
) -> Result<String, ClientFileError> {
    let mut expected = toml_values(before)?;
    let mut table = Some(&mut expected);
    for key in path {
        table = table.and_then(|table| table.get_mut(key));
    }
    if let Some(entries) = table.and_then(Value::as_object_mut) {
        entries.retain(|name, _| !names.contains(name));
    }
    remove_empty_tables(&mut expected, path);

    let without_lines = remove_lines(before, path, names)?;
    if has_values(&without_lines, &expected, path) {
        return Ok(without_lines);
    }
    // If several tables are in one line, the removal of lines removes too much.
    let without_values = remove_values(before, path, names)?;
    if has_values(&without_values, &expected, path) {
        return Ok(without_values);
    }
    Err(ClientFileError::TakeOut { what: "tables", table: path.join(".") })
}

/// Checks whether a text has the expected values. Empty tables at `path` are ignored.
fn has_values(text: &str, expected: &Value, path: &[&str]) -> bool {
    let Ok(mut values) = toml_values(text) else { return false };
    remove_empty_tables(&mut values, path);
    values == *expected
}

/// Removes the tables on `path` that are empty, the innermost table first. Two texts can differ in
/// them without any other change, because a table without a header disappears from the text
/// together with its last entry.
fn remove_empty_tables(values: &mut Value, path: &[&str]) {
    let Some((key, inner_path)) = path.split_first() else { return };
    let Some(object) = values.as_object_mut() else { return };
    if let Some(inner) = object.get_mut(*key) {
        remove_empty_tables(inner, inner_path);
        if inner.as_object().is_some_and(Map::is_empty) {
            object.remove(*key);
        }
    }
}

/// Removes the tables `names` without the comments above these tables.
fn remove_values(before: &str, path: &[&str], names: &[String]) -> Result<String, TomlError> {
    let mut document: DocumentMut = before.parse()?;
    let mut table: Option<&mut dyn TableLike> = Some(document.as_table_mut());
    for key in path {
        let item = table.and_then(|table| table.get_mut(key));
        table = item.and_then(|item| item.as_table_like_mut());
    }
    if let Some(table) = table {
        for name in names {
            table.remove(name);
        }
    }
    Ok(document.to_string())
}

/// Removes the lines of the tables, and the comments directly above.
fn remove_lines(before: &str, path: &[&str], names: &[String]) -> Result<String, TomlError> {
    let ranges = lines_of_tables(before, path, names)?;
    let lines: Vec<&str> = before.split_inclusive('\n').collect();
    // Whether the line with the same index is removed.
    let mut is_removed = vec![false; lines.len()];
    for range in ranges {
        let mut comment_start = *range.start();
        while comment_start > 0 && lines[comment_start - 1].trim_start().starts_with('#') {
            comment_start -= 1;
        }
        is_removed[comment_start..=*range.end()].fill(true);
    }
    mark_double_empty_lines(&lines, &mut is_removed);

    let mut kept_text = String::new();
    for (line, is_removed) in lines.iter().zip(is_removed) {
        if !is_removed {
            kept_text.push_str(line);
        }
    }
    Ok(kept_text)
}

/// Returns the line ranges of the tables `names`, which are inside of the table at `path`.
fn lines_of_tables(
    text: &str,
    path: &[&str],
    names: &[String],
) -> Result<Vec<RangeInclusive<usize>>, TomlError> {
    let document = Document::parse(text)?;
    let mut table: Option<&dyn TableLike> = Some(document.as_table());
    for key in path {
        table = table.and_then(|table| table.get(key)).and_then(Item::as_table_like);
    }
    let mut ranges = Vec::new();
    if let Some(table) = table {
        for name in names {
            if let Some(item) = table.get(name) {
                find_lines(item, text, &mut ranges);
            }
        }
    }
    Ok(ranges)
}

/// Marks an empty line above removed lines as removed, if an empty line also follows the removed
/// lines. Otherwise two empty lines would be left.
fn mark_double_empty_lines(lines: &[&str], is_removed: &mut [bool]) {
    // The loop goes upwards, so the removed lines below each line are already marked.
    for line in (0..lines.len()).rev() {
        let mut next_kept = line + 1;
        while is_removed.get(next_kept) == Some(&true) {
            next_kept += 1;
        }
        let is_above_removed = !is_removed[line] && next_kept > line + 1;
        if is_above_removed && is_empty_line(lines, line) && is_empty_line(lines, next_kept) {
            is_removed[line] = true;
        }
    }
}

/// Returns whether the line at an index is empty. The end of the text is like an empty line.
fn is_empty_line(lines: &[&str], index: usize) -> bool {
    lines.get(index).is_none_or(|line| line.trim().is_empty())
}

/// Adds the line ranges of an entry to `ranges`.
fn find_lines(item: &Item, text: &str, ranges: &mut Vec<RangeInclusive<usize>>) {
    match item {
        Item::None => {}
        Item::Value(value) => {
            if let Some(span) = value.span() {
                // The end of a span is exclusive, and an empty span has no last byte.
                let last_byte = span.end.saturating_sub(1).max(span.start);
                ranges.push(line_of(text, span.start)..=line_of(text, last_byte));
            }
        }
        Item::ArrayOfTables(tables) => {
            for table in tables {
                find_table_lines(table, text, ranges);
            }
        }
        Item::Table(table) => find_table_lines(table, text, ranges),
    }
}

/// Adds the line ranges of a table and of its inner tables to `ranges`.
fn find_table_lines(table: &Table, text: &str, ranges: &mut Vec<RangeInclusive<usize>>) {
    // The lines of the values below the table's header.
    let mut body = Vec::new();
    // The lines of the tables inside that have their own header.
    let mut inner_tables = Vec::new();
    for (_, item) in table {
        let is_in_body = match item {
            Item::Value(_) => true,
            Item::Table(inner) => inner.is_dotted(),
            _ => false,
        };
        let lines = if is_in_body { &mut body } else { &mut inner_tables };
        find_lines(item, text, lines);
    }

    let has_header = !table.is_implicit() && !table.is_dotted();
    match table.span() {
        Some(header) if has_header && !header.is_empty() => {
            let first_line = line_of(text, header.start);
            let mut last_line = line_of(text, header.end - 1);
            for range in &body {
                last_line = last_line.max(*range.end());
            }
            ranges.push(first_line..=last_line);
        }
        // Without a header, only the values have lines.
        _ => ranges.append(&mut body),
    }
    ranges.append(&mut inner_tables);
}

/// Returns the number of the line with the byte at `offset`. The first line has the number 0.
fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn gives(before: &str, after: &str) {
        let names = ["a".to_owned()];
        let left = without_tables(before, &["s"], &names).expect("it is TOML");
        assert_eq!(left, after, "{before}");
    }

    #[test]
    fn only_the_comment_directly_above_a_table_goes_with_it() {
        gives("# header\n\n# about a\n# more\n[s.a]\nx = 1\n", "# header\n");
        gives(
            "# header\n\n# about a\n[s.a] # so\nx = 1 # y\n# inside\n\ny = 2\n\n# about b\n[s.b]\n",
            "# header\n\n# about b\n[s.b]\n",
        );
        gives("# header\n\n[s.a]\nx = 1\n[t]\n", "# header\n\n[t]\n");
        gives(
            "[s.b]\nx = 1\n\n# behind b\n\n[s.a]\nx = \"\"\"\n# text\n\"\"\"\n# above b.y\n[s.b.y]\n",
            "[s.b]\nx = 1\n\n# behind b\n\n# above b.y\n[s.b.y]\n",
        );
        // What lies between two of its tables, too.
        gives(
            "k = 1\n[s.a]\nx = 1\n\n# a list\n\n# about its env\n[s.a.env]\nK = 'v'\n[[s.a.l]]\n# the end\n",
            "k = 1\n\n# a list\n\n# the end\n",
        );
    }

    #[test]
    fn tables_are_found_in_each_spelling() {
        gives("[s]\n# b\nb.x = 1\n# a\na.x = 1\na.y = [\n  2,\n]\n", "[s]\n# b\nb.x = 1\n");
        gives("[s]\n# header\n\na = { x = 1 }\nb = {}\n", "[s]\n# header\n\nb = {}\n");
        gives("# mine\ns = { a = { x = 1 }, b = {} } # so\n", "# mine\ns = { b = {} } # so\n");
        gives("[s.a.env]\nK = 'v'\n[t]\n", "[t]\n");
        gives("k = 1\r\n\r\n# a\r\n[s.a]\r\nx = 1\r\n", "k = 1\r\n");
        gives("x = '''\n# text'''\n[s.a]\n", "x = '''\n# text'''\n");
        gives("s = 1\n", "s = 1\n");
        assert!(without_tables("[", &["s"], &[]).is_err());
    }
}
