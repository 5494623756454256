//! Finds similar names.

/// One wrong letter is allowed for each three letters.
const LETTERS_PER_ERROR: usize = 3;

/// The least bytes of a word that is searched in names, because too many names contain a shorter
/// word.
const MIN_PART: usize = 3;

/// Returns the most similar candidate that differs from `word` in few letters, or contains `word`.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let max_distance = (word.chars().count() / LETTERS_PER_ERROR).max(1);
    let mut similar = Vec::new();
    for candidate in candidates {
        let distance = strsim::damerau_levenshtein(word, candidate);
        let has_word = word.len() >= MIN_PART && candidate.contains(word);
        if distance <= max_distance || has_word {
            similar.push((distance, candidate));
        }
    }
    let (_, nearest) = similar.into_iter().min()?;
    Some(nearest)
}

/// Letters that look like other letters in common fonts.
const ALIKE: [(&str, &str); 12] = [
    ("rn", "m"),
    ("vv", "w"),
    ("cl", "d"),
    ("0", "o"),
    ("1", "l"),
    ("i", "l"),
    ("3", "e"),
    ("4", "a"),
    ("5", "s"),
    ("7", "t"),
    ("8", "b"),
    ("9", "g"),
];

/// Returns a name that looks like `name`, such as `mine` for `m1ne`.
pub fn look_alike<'a>(name: &str, others: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let own_skeleton = skeleton(name);
    others.into_iter().find(|other| *other != name && skeleton(other) == own_skeleton)
}

/// Removes hyphens, and replaces letters that look alike by the same letter.
fn skeleton(name: &str) -> String {
    let mut skeleton = name.replace('-', "");
    for (letters, stand_in) in ALIKE {
        skeleton = skeleton.replace(letters, stand_in);
    }
    skeleton
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_candidate_is_found_and_far_ones_are_not() {
        let check = |word: &str, expected: Option<&str>| {
            assert_eq!(
                nearest(word, ["read", "write", "find_path", "list_directory"].into_iter()),
                expected,
                "{word}"
            );
        };
        check("raed", Some("read"));
        check("find", Some("find_path"));
        check("list_dir", Some("list_directory"));
        check("bash", None);
        check("xy", None);
    }
}
