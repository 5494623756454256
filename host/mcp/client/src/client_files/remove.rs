//! Takes tables out of the text of an MCP client's TOML file, and leaves the rest as it is.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};
use toml_edit::{Document, DocumentMut, Item, TableLike, TomlError};

use crate::client_files::error::ClientFileError;
use crate::client_files::values::toml_values;

/// The text without the tables of these names in the table at `path`. The comment directly above a
/// table belongs to it; a comment that ends with an empty line doesn't.
///
/// # Errors
///
/// The text isn't TOML, with the line; or something else would change.
pub fn without_tables(
    before: &str,
    path: &[&str],
    names: &[String],
) -> Result<String, ClientFileError> {
    let mut wanted = toml_values(before)?;
    let mut servers = Some(&mut wanted);
    for key in path {
        servers = servers.and_then(|table| table.get_mut(key));
    }
    if let Some(servers) = servers.and_then(Value::as_object_mut) {
        servers.retain(|name, _| !names.contains(name));
    }
    without_empty(&mut wanted, path);
    let after = by_lines(before, path, names)?;
    if has_values(&after, &wanted, path) {
        return Ok(after);
    }
    // Several tables are in one line.
    let after = by_values(before, path, names)?;
    if has_values(&after, &wanted, path) {
        Ok(after)
    } else {
        Err(ClientFileError::TakeOut { what: "tables", table: path.join(".") })
    }
}

/// Whether a text has the wanted values, apart from empty tables at `path`.
fn has_values(text: &str, wanted: &Value, path: &[&str]) -> bool {
    toml_values(text).is_ok_and(|mut values| {
        without_empty(&mut values, path);
        values == *wanted
    })
}

/// Removes empty tables at `path`: an implicit table ends with its last entry.
fn without_empty(values: &mut Value, path: &[&str]) {
    let Some((key, rest)) = path.split_first() else { return };
    let Some(object) = values.as_object_mut() else { return };
    if let Some(inner) = object.get_mut(*key) {
        without_empty(inner, rest);
        if inner.as_object().is_some_and(Map::is_empty) {
            object.remove(*key);
        }
    }
}

fn by_values(before: &str, path: &[&str], names: &[String]) -> Result<String, TomlError> {
    let mut document: DocumentMut = before.parse()?;
    let mut table: Option<&mut dyn TableLike> = Some(document.as_table_mut());
    for key in path {
        table =
            table.and_then(|table| table.get_mut(key)).and_then(|item| item.as_table_like_mut());
    }
    if let Some(table) = table {
        for name in names {
            table.remove(name);
        }
    }
    Ok(document.to_string())
}

fn by_lines(before: &str, path: &[&str], names: &[String]) -> Result<String, TomlError> {
    let document = Document::parse(before)?;
    let mut table: Option<&dyn TableLike> = Some(document.as_table());
    for key in path {
        table = table.and_then(|table| table.get(key)).and_then(Item::as_table_like);
    }
    let mut own = Vec::new();
    for item in names.iter().filter_map(|name| table?.get(name)) {
        lines(item, before, &mut own);
    }
    let lines: Vec<&str> = before.split_inclusive('\n').collect();
    let mut is_removed = vec![false; lines.len()];
    for range in &own {
        for at in range.clone() {
            is_removed[at] = true;
        }
        let mut start = *range.start();
        while start > 0 && lines[start - 1].trim_start().starts_with('#') {
            start -= 1;
            is_removed[start] = true;
        }
    }
    // An empty line on each side would become two.
    for at in (0..lines.len()).rev() {
        let mut next = at + 1;
        while is_removed.get(next) == Some(&true) {
            next += 1;
        }
        if next > at + 1
            && !is_removed[at]
            && is_empty_line(&lines, at)
            && is_empty_line(&lines, next)
        {
            is_removed[at] = true;
        }
    }
    let kept = lines.iter().zip(is_removed).filter(|(_, is_removed)| !is_removed);
    Ok(kept.map(|(line, _)| *line).collect())
}

fn is_empty_line(lines: &[&str], at: usize) -> bool {
    lines.get(at).is_none_or(|line| line.trim().is_empty())
}

/// Finds the lines of an entry: the lines of each of its tables, and of each value elsewhere.
fn lines(item: &Item, text: &str, found: &mut Vec<RangeInclusive<usize>>) {
    match item {
        Item::None => {}
        Item::Value(value) => {
            if let Some(span) = value.span() {
                let last = span.end.max(span.start + 1) - 1;
                found.push(line_of(text, span.start)..=line_of(text, last));
            }
        }
        Item::ArrayOfTables(tables) => {
            for table in tables {
                lines(&Item::Table(table.clone()), text, found);
            }
        }
        Item::Table(table) => {
            let mut body = Vec::new();
            let mut further = Vec::new();
            for (_, item) in table {
                let is_own = match item {
                    Item::Value(_) => true,
                    Item::Table(inner) => inner.is_dotted(),
                    _ => false,
                };
                lines(item, text, if is_own { &mut body } else { &mut further });
            }
            match table.span() {
                // From its head to its last value.
                Some(head) if !head.is_empty() && !table.is_implicit() && !table.is_dotted() => {
                    let start = line_of(text, head.start);
                    let last_of_head = line_of(text, head.end - 1);
                    let ends = body.iter().map(|range| *range.end());
                    found.push(start..=ends.fold(last_of_head, usize::max));
                }
                _ => found.append(&mut body),
            }
            found.append(&mut further);
        }
    }
}

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
