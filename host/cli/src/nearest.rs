/// The candidate that `word` was probably meant to be: few letters away, or one that holds it or
/// begins it.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
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
    fn the_nearest_is_found_and_nothing_far() {
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
