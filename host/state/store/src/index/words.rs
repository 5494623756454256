//! Splits texts and queries into the words of the full-text index, including the parts of
//! identifiers such as `parseUrl`.

/// The most words of a query that are used.
const MAX_TERMS: usize = 32;

/// Returns the words of a query in the syntax of FTS5. Each word is a string with only letters,
/// digits and `_`, so that no word is interpreted as syntax. An identifier and its parts are all
/// words.
pub(crate) fn terms(words: &str) -> Vec<String> {
    let mut terms = Vec::new();
    let names = words.split(|c: char| !c.is_alphanumeric() && c != '_');
    for name in names.map(|name| name.trim_matches('_')).filter(|name| !name.is_empty()) {
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

/// Returns the parts of a text's words that aren't words of the text themselves. For `parseUrl`,
/// these are `parse Url`.
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

/// Returns the parts of a word. These are the parts in camel case, and each pair of letters in a
/// script without spaces between words. The list is empty if the word has only one part.
fn pieces(word: &str) -> Vec<&str> {
    // Most words have only one part.
    if word.bytes().skip(1).all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return Vec::new();
    }
    let mut pieces = humps(word);
    if word.is_ascii() {
        return pieces;
    }
    pieces.retain(|hump| hump.chars().nth(1).is_none() || !hump.starts_with(is_unspaced));
    let letters = word.char_indices();
    for ((at, one), (next, other)) in letters.clone().zip(letters.skip(1)) {
        if is_unspaced(one) && is_unspaced(other) {
            pieces.push(&word[at..next + other.len_utf8()]);
        }
    }
    pieces
}

/// Checks whether a letter is Chinese, Japanese or Korean.
fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3134f}')
}

/// Returns the parts of a word in camel case, or in several scripts. The list is empty if the word
/// has only one part.
fn humps(word: &str) -> Vec<&str> {
    let mut humps = Vec::new();
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
                humps.push(&word[start..index]);
                start = index;
            }
        }
        before = Some(letter);
    }
    if start > 0 {
        humps.push(&word[start..]);
    }
    humps
}

/// Returns a tag as one word. The word ends with a digit, so that the stemmer doesn't change it.
pub(crate) fn tag_token(tag: &str) -> String {
    let mut token = String::with_capacity(2 * tag.len() + 2);
    token.push('t');
    for byte in tag.bytes() {
        for digit in [byte >> 4, byte & 15] {
            token.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
        }
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
