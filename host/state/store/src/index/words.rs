//! Splits texts and queries into words, and identifiers such as `parseUrl` into their parts.

/// Most words of a query. Further words are ignored.
const MAX_TERMS: usize = 32;

/// Returns the words of a query in the syntax of FTS5, with identifiers and their parts. Each word
/// is quoted and has only letters, digits and `_`, so a query can't contain operators.
pub(crate) fn terms(words: &str) -> Vec<String> {
    let mut terms = Vec::new();
    for identifier in words.split(|c: char| !c.is_alphanumeric() && c != '_') {
        let name = identifier.trim_matches('_');
        if name.is_empty() {
            continue;
        }
        add_term(&mut terms, name);
        for word in name.split('_').filter(|word| !word.is_empty()) {
            add_term(&mut terms, word);
            for piece in pieces(word) {
                add_term(&mut terms, piece);
            }
        }
    }
    terms
}

fn add_term(terms: &mut Vec<String>, word: &str) {
    let term = format!("\"{}\"", word.to_lowercase());
    if terms.len() < MAX_TERMS && !terms.contains(&term) {
        terms.push(term);
    }
}

/// Returns the parts of the words in a text. For `parseUrl`, the result is `parse Url `.
pub(crate) fn parts(text: &str) -> String {
    let mut parts = String::new();
    for word in text.split(|c: char| !c.is_alphanumeric()) {
        for piece in pieces(word) {
            parts.push_str(piece);
            parts.push(' ');
        }
    }
    parts
}

/// Splits a word in camel case into its parts, and a word of a script without spaces into pairs of
/// letters. Returns nothing for a word with only one part.
fn pieces(word: &str) -> Vec<&str> {
    // A word in ASCII without capitals after its first letter has only one part.
    if word.bytes().skip(1).all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return Vec::new();
    }
    let mut pieces = camel_case_parts(word);
    if word.is_ascii() {
        return pieces;
    }
    // In a script without spaces, pairs of letters replace a part of several letters.
    pieces.retain(|part| {
        let has_one_letter = part.chars().nth(1).is_none();
        has_one_letter || !part.starts_with(is_unspaced)
    });
    let letters = word.char_indices();
    for ((start, first), (second_start, second)) in letters.clone().zip(letters.skip(1)) {
        if is_unspaced(first) && is_unspaced(second) {
            let pair_end = second_start + second.len_utf8();
            pieces.push(&word[start..pair_end]);
        }
    }
    pieces
}

/// Checks for Chinese, Japanese and Korean letters.
fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3134f}')
}

/// Splits a word in camel case or in several scripts. Returns nothing for a word with only one
/// part.
fn camel_case_parts(word: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut before = None::<char>;
    let mut letters = word.char_indices().peekable();
    while let Some((index, letter)) = letters.next() {
        let next_is_lower = letters.peek().is_some_and(|(_, next)| next.is_lowercase());
        if let Some(before) = before {
            // The `U` of `parseUrl`.
            let is_after_lower = letter.is_uppercase() && before.is_lowercase();
            // The `S` of `HTTPServer`.
            let is_after_capitals = letter.is_uppercase() && before.is_uppercase() && next_is_lower;
            let is_other_script = is_unspaced(letter) != is_unspaced(before);
            if is_after_lower || is_after_capitals || is_other_script {
                parts.push(&word[start..index]);
                start = index;
            }
        }
        before = Some(letter);
    }
    let is_split = start > 0;
    if is_split {
        parts.push(&word[start..]);
    }
    parts
}

/// Returns a tag as one word: its bytes as hexadecimal digits between `t` and `0`. The word ends
/// with a digit, because the stemmer of the index doesn't change such words.
pub(crate) fn tag_token(tag: &str) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let mut token = String::with_capacity(2 * tag.len() + "t0".len());
    token.push('t');
    for byte in tag.bytes() {
        token.push(DIGITS[usize::from(byte >> 4)]);
        token.push(DIGITS[usize::from(byte & 15)]);
    }
    token.push('0');
    token
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_have_no_syntax() {
        assert_eq!(terms("a OR \"b\" NEAR(c*)"), ["\"a\"", "\"or\"", "\"b\"", "\"near\"", "\"c\""]);
        assert!(terms("\"'*^:-()\0 __ ").is_empty());
        assert_eq!(terms("Größe größe"), ["\"größe\""]);
    }

    #[test]
    fn identifiers_have_parts() {
        assert_eq!(terms("parse_url"), ["\"parse_url\"", "\"parse\"", "\"url\""]);
        assert_eq!(terms("parseUrl"), ["\"parseurl\"", "\"parse\"", "\"url\""]);
        assert_eq!(parts("fn parseUrl(x: HTTPServer2) no Parts"), "parse Url HTTP Server2 ");
    }

    #[test]
    fn text_without_spaces_has_pairs_of_letters() {
        assert_eq!(parts("検索索引。API設計"), "検索 索索 索引 API 設計 ");
        assert_eq!(terms("索引"), ["\"索引\""]);
        assert_eq!(terms("索引を"), ["\"索引を\"", "\"索引\"", "\"引を\""]);
        assert_eq!((parts("größe 猫"), parts("A猫b")), (String::new(), "A 猫 b ".to_owned()));
    }

    proptest! {
        #[test]
        fn any_query_is_words_alone(words in any::<String>()) {
            for term in terms(&words) {
                let inner = term.strip_prefix('"').and_then(|term| term.strip_suffix('"'));
                let inner = inner.expect("it is a string");
                prop_assert!(!inner.is_empty());
                prop_assert!(!inner.contains(|c: char| c == '"' || c == '\0' || c.is_whitespace()));
            }
        }

        #[test]
        fn parts_are_never_much_longer(text in any::<String>()) {
            prop_assert!(parts(&text).len() <= 3 * text.len());
        }
    }
}
