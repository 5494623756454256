//! What somebody meant who wrote an unknown word.

/// The candidate that `word` probably means: it differs by few letters, or one contains or begins
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
