//! The tables of `[principals]`: their order, and the callers that they match.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toolhold_config_keys::{McpServer, Narrowing, Principal};
use toolhold_policy::files::OwnFolder;

use super::keys::{PRINCIPALS, rule, split_limit};
use super::leaf::Leaf;
use super::{AllowedPath, Source, Who};

/// The entry of `models` for all providers.
pub(crate) const ALL_MODELS: &str = "*";

/// The caller whose rights a configuration has.
#[derive(Clone, Debug)]
pub struct AppliedPrincipal {
    /// The name of the table of `[principals]`.
    pub name: String,
    /// The caller.
    pub who: Who,
    /// The caller's working directory: the first directory of the table, by its real path.
    pub directory: PathBuf,
    /// The operator's working directory, where the operator's relative paths start.
    pub operator_directory: PathBuf,
    /// The operator's servers, limited by the ceilings. The operator has approved them, and not the
    /// caller's, which have fewer grants.
    pub(crate) servers: BTreeMap<String, McpServer>,
    /// The operator's own paths. They include the files of secrets that the caller doesn't use.
    pub(crate) protected: Vec<OwnFolder>,
}

/// The tables of `[principals]`, in the order in which they are compared with a caller.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables(pub(crate) Vec<Table>);

/// One table of `[principals]`.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) name: String,
    /// The first line of the table.
    pub(crate) source: Source,
    pub(crate) principal: Principal,
    /// The limits, with paths such as `tools.call`.
    pub(crate) limits: Vec<Leaf>,
}

impl Tables {
    /// Collects the tables of `leaves`, which have the `values`. The tables of the user's file come
    /// first, then those of the organisation's file, then those of variables and flags.
    pub(crate) fn new(
        leaves: &[Leaf],
        values: &BTreeMap<String, Principal>,
        user_file: &Path,
    ) -> Self {
        let mut tables = Vec::new();
        for (name, principal) in values {
            let path = [PRINCIPALS.to_owned(), name.clone()];
            let mut first = None;
            let mut limits: BTreeMap<&[String], Leaf> = BTreeMap::new();
            for leaf in leaves.iter().filter(|leaf| leaf.path.starts_with(&path)) {
                let source = &leaf.sources[path.len() - 1];
                let position = position(source, user_file);
                match &first {
                    Some((known, _)) if *known <= position => {}
                    _ => first = Some((position, source.clone())),
                }
                if let Some((_, limited)) = split_limit(&leaf.path) {
                    // A later source has precedence.
                    limits.insert(limited, leaf.below(path.len()));
                }
            }
            // Each value comes from a leaf.
            let Some((position, source)) = first else { continue };
            let limits = limits.into_values().collect();
            let table = Table { name: name.clone(), source, principal: principal.clone(), limits };
            tables.push((position, table));
        }
        tables.sort_by_key(|(position, _)| *position);
        Self(tables.into_iter().map(|(_, table)| table).collect())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Table> {
        self.0.iter()
    }

    /// Returns the table with this name.
    pub(crate) fn named(&self, name: &str) -> Option<&Table> {
        self.0.iter().find(|table| table.name == name)
    }

    /// Returns the first table that matches the caller.
    pub(crate) fn matching(&self, who: &Who) -> Option<&Table> {
        self.0.iter().find(|table| matches(&table.principal, who))
    }
}

impl Table {
    /// Returns the dotted name of the table.
    pub(crate) fn key(&self) -> String {
        format!("{PRINCIPALS}.{}", self.name)
    }

    pub(crate) fn lists_model(&self, provider: &str) -> bool {
        let mut models = self.principal.models.iter();
        models.any(|model| model == ALL_MODELS || model == provider)
    }

    /// Returns the granted directories of all lists, with the path of the list.
    pub(crate) fn directories(&self) -> impl Iterator<Item = (&[String], AllowedPath, Source)> {
        let lists = self.limits.iter().filter(|leaf| is_directory_list(&leaf.path));
        lists.flat_map(|leaf| {
            let items = leaf.value.as_array().into_iter().flatten().zip(&leaf.elements);
            items.filter_map(move |(item, source)| {
                // An invalid element was refused before.
                let directory = AllowedPath::deserialize(item.clone()).ok()?;
                Some((leaf.path.as_slice(), directory, source.clone()))
            })
        })
    }
}

/// Returns the position of a table: the kind of its source, and its line.
fn position(source: &Source, user_file: &Path) -> (u8, usize) {
    match source {
        Source::File { path, line } if path == user_file => (0, *line),
        Source::File { line, .. } => (1, *line),
        _ => (2, 0),
    }
}

/// Checks whether a table matches a caller: each list that isn't empty has an entry that fits.
fn matches(principal: &Principal, who: &Who) -> bool {
    let Principal { issuer, subject, group, client, .. } = principal;
    (issuer.is_empty() || issuer.contains(&who.issuer))
        && has_match(subject, std::slice::from_ref(&who.subject))
        && has_match(group, &who.groups)
        && has_match(client, who.client.as_slice())
}

fn has_match(patterns: &[String], texts: &[String]) -> bool {
    patterns.is_empty()
        || patterns.iter().any(|pattern| texts.iter().any(|text| fits(pattern, text)))
}

/// Checks whether a pattern matches the whole text. Case matters, because two subjects may differ
/// only in case.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    // The part after the last `*`.
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(inner) = text.strip_prefix(start).and_then(|inner| inner.strip_suffix(end)) else {
        return false;
    };
    let mut remaining = inner;
    for part in middle.split('*') {
        let Some((_, after)) = remaining.split_once(part) else { return false };
        remaining = after;
    }
    true
}

pub(crate) fn is_directory_list(path: &[String]) -> bool {
    matches!(rule(path), Some(Narrowing::Directories))
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn star_matches_any_text_and_case_matters() {
        for (pattern, text, expected) in [
            ("dev", "dev", true),
            ("dev", "Dev", false),
            ("dev", "dev2", false),
            ("git-*", "git-", true),
            ("git-*", "git-a*b", true),
            ("git-*", "agit-a", false),
            ("*", "", true),
            ("*@example.org", "anna@example.org", true),
            ("*@example.org", "anna@example.org.evil", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "acb", false),
            ("ab*bc", "abc", false),
            ("a**c", "abc", true),
            ("", "x", false),
        ] {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
    }
}
