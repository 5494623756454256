//! Finds the name that an unknown word probably means, and a name that looks like another.

/// The candidate that `word` probably means: they differ by few letters, or one contains or begins
/// the other.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let bound = (word.chars().count() / 3).max(1);
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, candidate)| {
            *distance <= bound || word.len() >= 3 && candidate.contains(word)
        })
        .min()
        .map(|(_, candidate)| candidate)
}

/// Letters that look alike in common fonts, and the letter that stands for them.
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

/// Another name that looks like this one, such as `mine` for `m1ne`.
pub fn look_alike<'a>(name: &str, others: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let looks = skeleton(name);
    others.into_iter().find(|other| *other != name && skeleton(other) == looks)
}

/// The name as it looks: letters that look alike are one, and hyphens are left out.
fn skeleton(name: &str) -> String {
    let plain: String = name.chars().filter(|letter| *letter != '-').collect();
    ALIKE.iter().fold(plain, |name, (seen, taken_for)| name.replace(seen, taken_for))
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
