//! Suggests names of the project that are like one that is defined nowhere.

use std::time::Instant;

use code_model::{Kind, Parsed, words};
use toolhold_sdk::HostError;
use toolhold_sdk::index;

use crate::chunks;
use crate::files::Files;
use crate::indexed_project::Project;
use crate::sources::Filter;

/// Names that are suggested.
const MOST: usize = 3;

/// Documents that are looked at.
const MAX_DOCUMENTS: usize = 50_000;

/// The longest name that is compared. The comparison takes quadratic time.
const MAX_NAME: usize = 64;

/// The names in the project that are most like `name`, the nearest first, among those that the
/// filter lets through. Each stands in a file that was read for it: the index may still have names
/// of files that may no longer be read.
///
/// # Errors
///
/// The index can't be read.
pub(crate) fn names(
    project: &Project,
    name: &str,
    filter: &Filter,
    until: Instant,
) -> Result<Vec<String>, HostError> {
    let wanted: Vec<char> = words::whole(name).chars().collect();
    let mut near: Vec<(usize, String)> = Vec::new();
    if !(2..=MAX_NAME).contains(&wanted.len()) {
        return Ok(Vec::new());
    }
    for entry in index::list(&project.prefix()).take(MAX_DOCUMENTS) {
        let entry = entry?;
        let file = project.file_of(&entry.key).filter(|file| filter.allows_file(&file.path));
        let Some(file) = file else { continue };
        if !chunks::is_definitions(&entry.key) {
            continue;
        }
        if Instant::now() > until {
            break;
        }
        // Its text isn't kept: there may be very many files.
        let mut is_there = None;
        for name in Parsed::decode_names(&entry.data).unwrap_or_default() {
            // Most are too short for a closer look.
            if name.len() * 3 < wanted.len() * 2 {
                continue;
            }
            let other: Vec<char> = words::whole(name).chars().collect();
            if other.len().abs_diff(wanted.len()) * 3 > wanted.len() || other.len() > MAX_NAME {
                continue;
            }
            let distance = distance(&wanted, &other);
            let is_near = distance * 3 <= wanted.len();
            if is_near
                && near.iter().all(|(_, one)| *one != name)
                && is_of_kind(&entry.data, name, filter.kind)
                && *is_there.get_or_insert_with(|| Files::default().text(project, file).is_some())
            {
                near.push((distance, name.to_owned()));
            }
        }
        near.sort();
        near.truncate(MOST);
    }
    Ok(near.into_iter().map(|(_, name)| name).collect())
}

/// Whether the data of a document has a definition of that kind with the name.
fn is_of_kind(data: &[u8], name: &str, kind: Option<Kind>) -> bool {
    kind.is_none_or(|kind| {
        let mut all = chunks::definitions(data).into_iter();
        all.any(|one| one.kind == kind && one.name == name)
    })
}

/// How many letters have to be changed, added, left out or exchanged with the next one.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (row, one) in a.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, other) in b.iter().enumerate() {
            let mut best = (last[column] + usize::from(one != other))
                .min(last[column + 1] + 1)
                .min(next[column] + 1);
            let crossed = row > 0 && column > 0 && *one == b[column - 1] && a[row - 1] == *other;
            if crossed {
                best = best.min(before[column - 1] + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut last, next);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_typing_errors() {
        let between = |a: &str, b: &str| {
            distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>())
        };
        assert_eq!(between("load", "load"), 0);
        assert_eq!(between("load", "laod"), 1);
        assert_eq!(between("load", "loads"), 1);
        assert_eq!(between("", "abc"), 3);
        assert_eq!(between("kitten", "sitting"), 3);
    }
}
