//! Suggests names like a path that doesn't exist.

use toolhold_sdk::Failure;
use toolhold_sdk::search::{self, Kind, Scope};

/// The greatest number of entries of a directory that are compared.
const MAX_ENTRIES: u32 = 2_000;

/// The greatest number of names that are suggested.
const MAX_NAMES: usize = 3;

/// The longest name that is compared. The comparison takes quadratic time.
const MAX_LENGTH: usize = 100;

/// Adds names like `path` to a failure that says that `path` is missing.
pub(crate) fn suggest_names(failure: Failure, path: &str) -> Failure {
    if failure.code.as_deref() == Some("not-found") {
        failure.with_suggestion(suggestion(path))
    } else {
        failure
    }
}

/// Advice on what to try instead of `path`, which doesn't exist.
fn suggestion(path: &str) -> String {
    let (parent, name) = match path.trim_end_matches('/').rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some(split) => split,
        None => return "Use find_path to find it.".to_owned(),
    };
    let scope = Scope { root: parent.to_owned(), max_depth: Some(1), ..Scope::default() };
    let Ok(found) = search::find(&scope, MAX_ENTRIES) else {
        return format!("Its directory {parent} is missing too. Use find_path to find it.");
    };
    let base = parent.trim_end_matches('/');
    if found.items.iter().any(|entry| {
        entry.kind == Kind::Symlink
            && entry.path.strip_prefix(base).and_then(|path| path.strip_prefix('/')) == Some(name)
    }) {
        return "It is a symbolic link, and its target is missing.".to_owned();
    }
    let names =
        found.items.iter().filter_map(|entry| entry.path.strip_prefix(base)?.strip_prefix('/'));
    let near = nearest(name, names);
    if near.is_empty() {
        return format!("{parent} has no similar name. Use find_path to find it.");
    }
    let near: Vec<String> = near.into_iter().map(|name| format!("{base}/{name}")).collect();
    format!("Did you mean {}?", near.join(" or "))
}

/// The names that are most similar to `name`, the most similar first.
fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted: Vec<char> = name.to_lowercase().chars().collect();
    if wanted.len() > MAX_LENGTH {
        return Vec::new();
    }
    let mut near: Vec<(usize, &str)> = names
        .filter_map(|other| {
            let letters: Vec<char> = other.to_lowercase().chars().take(MAX_LENGTH + 1).collect();
            if letters.len() > MAX_LENGTH {
                return None;
            }
            // Another extension counts like one typing error.
            let distance = if stem(name) == stem(other) { 1 } else { distance(&wanted, &letters) };
            (distance <= 1 + wanted.len() / 4).then_some((distance, other))
        })
        .collect();
    near.sort();
    // A name with three typing errors is noise if there is one with a single error.
    let farthest = near.first().map_or(0, |(nearest, _)| nearest + 1);
    near.into_iter()
        .take_while(|(distance, _)| *distance <= farthest)
        .take(MAX_NAMES)
        .map(|(_, name)| name)
        .collect()
}

fn stem(name: &str) -> String {
    name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_lowercase()
}

/// The number of letters that have to be inserted, deleted or changed (Levenshtein).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let change = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_single_letters() {
        let distance = |a: &str, b: &str| {
            distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>())
        };
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("same", "same"), 0);
    }

    #[test]
    fn similar_names_are_found() {
        let names = ["main.rs", "README.md", "mian.rs", "lib.rs", "main.py", "unrelated"];
        assert_eq!(nearest("main.js", names.into_iter()), ["main.py", "main.rs"]);
        assert_eq!(nearest("mian.py", names.into_iter()), ["mian.rs", "main.py"]);
        assert_eq!(nearest("readme.md", names.into_iter()), ["README.md"]);
        assert_eq!(nearest("smal.txt", ["mid.txt", "small.txt"].into_iter()), ["small.txt"]);
        assert!(nearest("zzz", names.into_iter()).is_empty());
        assert!(nearest(&"x".repeat(200), ["x"].into_iter()).is_empty());
    }

    #[test]
    fn broken_link_is_not_suggested_for_itself() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("link");
        std::os::unix::fs::symlink("nowhere", &path).unwrap();
        assert_eq!(
            suggestion(path.to_str().unwrap()),
            "It is a symbolic link, and its target is missing."
        );
    }

    #[test]
    fn missing_directory_is_named() {
        assert!(suggestion("/no/such/dir/file").contains("/no/such/dir is missing too"));
    }
}
