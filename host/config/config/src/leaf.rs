//! Checks each value of a configuration on its own, so that every problem is found with its place,
//! and merges the values of all sources.

use serde::Deserialize;
use toml::Value;
use toolhold_redaction::{self as redaction, Keys};

use toolhold_config_keys::is_in_secrets;

use super::keys::{advice, dotted, near};
use super::removed::successor;
use super::{ConfigValues, Problem, Source};

/// Texts with fewer bytes than this aren't secrets.
const SHORT: usize = 4;

/// A written value that isn't a table, or is an empty table.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    /// The key's path from the root.
    pub(super) path: Vec<String>,
    /// Never a table with keys.
    pub(super) value: Value,
    /// The source of each part of the path.
    pub(super) sources: Vec<Source>,
    /// The source of each element, if the value is a list.
    pub(super) elements: Vec<Source>,
    /// The key's old name, if it was written by that name.
    pub(super) renamed: Option<&'static str>,
}

impl Leaf {
    /// A value with a single source.
    pub(super) fn new(path: Vec<String>, value: Value, source: &Source) -> Self {
        let elements = value.as_array().map_or(0, Vec::len);
        Self {
            sources: vec![source.clone(); path.len()],
            elements: vec![source.clone(); elements],
            path,
            value,
            renamed: None,
        }
    }

    /// The source of the value.
    pub(super) fn source(&self) -> Source {
        self.sources.last().cloned().unwrap_or_default()
    }

    /// The problems of this value on its own.
    pub(super) fn problems(&self) -> Vec<Problem> {
        self.numbered_problems().into_iter().map(|(_, problem)| problem).collect()
    }

    /// The same, each with the number of its element if the value is a list.
    pub(super) fn numbered_problems(&self) -> Vec<(Option<usize>, Problem)> {
        match &self.value {
            Value::Array(items) if !items.is_empty() => {
                let each = items.iter().zip(&self.elements).enumerate();
                let problems = each.flat_map(|(at, (item, source))| {
                    let found = self.probe(Value::Array(vec![item.clone()]), source);
                    found.into_iter().map(move |problem| (Some(at), problem))
                });
                problems.collect()
            }
            value => {
                let found = self.probe(value.clone(), &self.source());
                found.into_iter().map(|problem| (None, problem)).collect()
            }
        }
    }

    /// Reads a configuration that has only this value.
    fn probe(&self, value: Value, source: &Source) -> Vec<Problem> {
        let mut unknown = Vec::new();
        let document = nested(&self.path, value);
        let read: Result<ConfigValues, _> =
            serde_ignored::deserialize(document, |path| unknown.push(parts(&path)));
        let mut problems: Vec<Problem> = unknown
            .into_iter()
            .map(|path| {
                if let Some(successor) = successor(&path) {
                    let message = format!("`{}` was removed: {successor}", dotted(&path));
                    return Problem::new(self.source_at(&path, source), message);
                }
                // A foreign key is known by its whole path, a misspelt table by its name.
                let whole = if path.len() < self.path.len() { &self.path } else { &path };
                // One letter too few is likelier than another agent's configuration.
                let (path, advice) = if let Some(near) = near(&path) {
                    (&path, near)
                } else if let Some(foreign) = crate::migration::advice(whole) {
                    (whole, foreign)
                } else {
                    (&path, advice(&path))
                };
                let message = format!("unknown key `{}`; {advice}", dotted(path));
                Problem::new(self.source_at(path, source), message)
            })
            .collect();
        if let Err(error) = read {
            problems.push(Problem::new(
                source.clone(),
                format!("`{}`: {}", dotted(&self.path), error.message()),
            ));
        }
        if is_in_secrets(&self.path) {
            let written = texts(&self.value);
            for problem in &mut problems {
                let message =
                    written.iter().fold(std::mem::take(&mut problem.message), |message, text| {
                        message.replace(text, "…")
                    });
                // A message may also show a part of the value.
                problem.message = redaction::owned(message, Keys::Settings);
            }
        }
        problems
    }

    /// The source of a part of the path, or `source` for a part below the value.
    fn source_at(&self, path: &[String], source: &Source) -> Source {
        if path.len() > self.path.len() {
            return source.clone();
        }
        self.sources.get(path.len() - 1).unwrap_or(source).clone()
    }
}

/// Values that don't fit together.
#[derive(Debug, thiserror::Error)]
pub(super) enum MergeError {
    #[error("`{0}` is a table in one source and a value in another")]
    Table(String),
    #[error("{}", .0.message())]
    Value(#[from] toml::de::Error),
}

/// The configuration with the values of `leaves`. Later leaves win.
pub(super) fn merge(leaves: &[Leaf]) -> Result<ConfigValues, MergeError> {
    Ok(ConfigValues::deserialize(Value::Table(document(leaves)?))?)
}

/// The values of `leaves` as one TOML document. Later leaves win.
pub(super) fn document(leaves: &[Leaf]) -> Result<toml::Table, MergeError> {
    let mut root = toml::Table::new();
    for leaf in leaves {
        let Some((last, tables)) = leaf.path.split_last() else { continue };
        let mut table = &mut root;
        for name in tables {
            let below =
                table.entry(name.clone()).or_insert_with(|| Value::Table(toml::Table::new()));
            table = below.as_table_mut().ok_or_else(|| MergeError::Table(dotted(&leaf.path)))?;
        }
        // An empty table doesn't remove the values of another source.
        if leaf.value.is_table() && table.contains_key(last) {
            continue;
        }
        table.insert(last.clone(), leaf.value.clone());
    }
    Ok(root)
}

/// The texts in a value that may be secrets, plain and as messages quote them.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) if text.len() < SHORT => Vec::new(),
        Value::String(text) => {
            let quoted = format!("{text:?}");
            vec![text.clone(), quoted[1..quoted.len() - 1].to_owned()]
        }
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Table(table) => table.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

fn nested(path: &[String], value: Value) -> Value {
    path.iter()
        .rev()
        .fold(value, |value, part| Value::Table(toml::Table::from_iter([(part.clone(), value)])))
}

fn parts(path: &serde_ignored::Path<'_>) -> Vec<String> {
    use serde_ignored::Path;
    let (parent, part) = match path {
        Path::Root => return Vec::new(),
        Path::Seq { parent, index } => (parent, Some(index.to_string())),
        Path::Map { parent, key } => (parent, Some(key.clone())),
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => (parent, None),
    };
    let mut parts = parts(parent);
    parts.extend(part);
    parts
}
