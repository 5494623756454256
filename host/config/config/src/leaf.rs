//! Checks each value of a configuration separately, to find every problem with its line. Merges
//! the values of all sources.

use serde::Deserialize;
use toml::Value;
use toolhold_redaction::{self as redaction, Keys};

use toolhold_config_keys::is_in_secrets;

use super::keys::{advice, dotted, dotted_name, similar_key, split_limit};
use super::removed::successor;
use super::{ConfigValues, Problem, Source};

/// Strings with fewer bytes aren't treated as secrets.
const MIN_SECRET: usize = 4;

/// A value as it was written. A table with keys is split into its values, so the value is a table
/// only if the table is empty.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) path: Vec<String>,
    /// The value.
    pub(super) value: Value,
    /// The source of each part of the path.
    pub(super) sources: Vec<Source>,
    /// The source of each element of a list.
    pub(super) elements: Vec<Source>,
    /// The old name of the key, if the user wrote the old name.
    pub(super) renamed: Option<&'static str>,
}

impl Leaf {
    pub(super) fn new(path: Vec<String>, value: Value, source: &Source) -> Self {
        // Only a list has elements.
        let element_count = value.as_array().map_or(0, Vec::len);
        Self {
            sources: vec![source.clone(); path.len()],
            elements: vec![source.clone(); element_count],
            path,
            value,
            renamed: None,
        }
    }

    /// Returns the same value with the path without its first `depth` parts.
    pub(super) fn below(&self, depth: usize) -> Self {
        Self {
            path: self.path[depth..].to_vec(),
            sources: self.sources[depth..].to_vec(),
            ..self.clone()
        }
    }

    pub(super) fn source(&self) -> Source {
        self.sources.last().cloned().unwrap_or_default()
    }

    /// Finds the problems of this value alone.
    pub(super) fn problems(&self) -> Vec<Problem> {
        self.numbered_problems().into_iter().map(|(_, problem)| problem).collect()
    }

    /// Returns the problems of this value. The elements of a list are read separately, and each
    /// problem comes with the index of its element.
    pub(super) fn numbered_problems(&self) -> Vec<(Option<usize>, Problem)> {
        if let Some((name, limited)) = split_limit(&self.path) {
            let depth = self.path.len() - limited.len();
            let mut numbered = self.below(depth).numbered_problems();
            for (_, problem) in &mut numbered {
                let name = dotted_name(name);
                problem.message = format!("in [principals.{name}], {}", problem.message);
            }
            return numbered;
        }
        let mut numbered = Vec::new();
        match &self.value {
            Value::Array(items) if !items.is_empty() => {
                for (index, (item, source)) in items.iter().zip(&self.elements).enumerate() {
                    let problems = self.probe(Value::Array(vec![item.clone()]), source);
                    numbered.extend(problems.into_iter().map(|problem| (Some(index), problem)));
                }
            }
            value => {
                let problems = self.probe(value.clone(), &self.source());
                numbered.extend(problems.into_iter().map(|problem| (None, problem)));
            }
        }
        numbered
    }

    /// Reads a configuration with only this value, and returns the problems.
    fn probe(&self, value: Value, source: &Source) -> Vec<Problem> {
        let mut unknown = Vec::new();
        let document = nested(&self.path, value);
        let result: Result<ConfigValues, _> =
            serde_ignored::deserialize(document, |path| unknown.push(path_parts(&path)));

        let mut problems: Vec<Problem> =
            unknown.iter().map(|path| self.unknown_key(path, source)).collect();
        if let Err(error) = result {
            let message = format!("`{}`: {}", dotted(&self.path), error.message());
            problems.push(Problem::new(source.clone(), message));
        }
        if is_in_secrets(&self.path) {
            let secrets = secret_texts(&self.value);
            for problem in &mut problems {
                for secret in &secrets {
                    problem.message = problem.message.replace(secret, "…");
                }
                // A message may also show a part of a secret, so it is redacted, too.
                let message = std::mem::take(&mut problem.message);
                problem.message = redaction::owned(message, Keys::Settings);
            }
        }
        problems
    }

    /// Makes the problem of an unknown key. `source` is the source of the value or its element.
    fn unknown_key(&self, path: &[String], source: &Source) -> Problem {
        if let Some(successor) = successor(path) {
            let message = format!("`{}` was removed: {successor}", dotted(path));
            return Problem::new(self.source_at(path, source), message);
        }
        // `path` may end at an unknown table. A key of another agent is recognised only by its
        // whole path.
        let whole_key: &[String] = if path.len() < self.path.len() { &self.path } else { path };
        // A misspelling is more likely than a key of another agent, so it is checked first.
        let (shown, hint) = if let Some(similar) = similar_key(path) {
            (path, similar)
        } else if let Some(foreign) = crate::migration::advice(whole_key) {
            (whole_key, foreign)
        } else {
            (path, advice(path))
        };
        let message = format!("unknown key `{}`; {hint}", dotted(shown));
        Problem::new(self.source_at(shown, source), message)
    }

    /// Returns the source of the part where `path` ends. Returns `source` for the root, and for a
    /// part below the value.
    fn source_at(&self, path: &[String], source: &Source) -> Source {
        let Some(index) = path.len().checked_sub(1) else { return source.clone() };
        self.sources.get(index).unwrap_or(source).clone()
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum MergeError {
    #[error("`{0}` is a table in one file or variable, and a value in another")]
    Table(String),
    #[error("{}", .0.message())]
    Value(#[from] toml::de::Error),
}

/// Later leaves have precedence.
pub(super) fn merge(leaves: &[Leaf]) -> Result<ConfigValues, MergeError> {
    let document = Value::Table(document(leaves)?);
    Ok(ConfigValues::deserialize(document)?)
}

/// Joins the values into one TOML document. Later leaves have precedence.
pub(super) fn document(leaves: &[Leaf]) -> Result<toml::Table, MergeError> {
    let mut root = toml::Table::new();
    for leaf in leaves {
        let Some((last, tables)) = leaf.path.split_last() else { continue };
        let mut table = &mut root;
        for name in tables {
            let entry =
                table.entry(name.clone()).or_insert_with(|| Value::Table(toml::Table::new()));
            table = entry.as_table_mut().ok_or_else(|| MergeError::Table(dotted(&leaf.path)))?;
        }
        // An empty table doesn't remove the values of another source.
        if leaf.value.is_table() && table.contains_key(last) {
            continue;
        }
        table.insert(last.clone(), leaf.value.clone());
    }
    Ok(root)
}

/// Returns the strings in a value, which may be secrets. An error message may quote a string, so
/// each string is also returned with the escapes of a quotation.
fn secret_texts(value: &Value) -> Vec<String> {
    match value {
        // A short string also occurs in other words, which would be hidden with it.
        Value::String(text) if text.len() < MIN_SECRET => Vec::new(),
        Value::String(text) => {
            let quoted = format!("{text:?}");
            // The first and the last byte are the quotation marks.
            let escaped = quoted[1..quoted.len() - 1].to_owned();
            vec![text.clone(), escaped]
        }
        Value::Array(items) => items.iter().flat_map(secret_texts).collect(),
        Value::Table(table) => table.values().flat_map(secret_texts).collect(),
        // Numbers, booleans and dates aren't secrets.
        _ => Vec::new(),
    }
}

/// Puts a value into tables, one inside the other, with the names in `path`.
fn nested(path: &[String], value: Value) -> Value {
    let mut nested = value;
    for part in path.iter().rev() {
        let mut table = toml::Table::new();
        table.insert(part.clone(), nested);
        nested = Value::Table(table);
    }
    nested
}

/// Returns the names and indexes in a path, the outermost first.
fn path_parts(path: &serde_ignored::Path<'_>) -> Vec<String> {
    use serde_ignored::Path;
    let (parent, part) = match path {
        Path::Root => return Vec::new(),
        Path::Seq { parent, index } => (parent, Some(index.to_string())),
        Path::Map { parent, key } => (parent, Some(key.clone())),
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => (parent, None),
    };
    let mut parts = path_parts(parent);
    parts.extend(part);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_the_given_source() {
        let leaf = Leaf::new(vec!["tools".to_owned()], Value::Boolean(true), &Source::Default);
        assert_eq!(leaf.source_at(&[], &Source::TaskBounds), Source::TaskBounds);
    }
}
