//! Words of texts and of queries.

/// Words of a query that count.
const MAX_TERMS: usize = 32;

/// The words of a query in the syntax of FTS5, each as a string that has letters, digits and `_`
/// alone: no word is ever syntax. An identifier is one of them, and so are its parts.
pub(crate) fn terms(words: &str) -> Vec<String> {
    let mut terms = Vec::new();
    let mut add = |word: &str| {
        let term = format!("\"{}\"", word.to_lowercase());
        if terms.len() < MAX_TERMS && !terms.contains(&term) {
            terms.push(term);
        }
    };
    let names = words.split(|c: char| !c.is_alphanumeric() && c != '_');
    for name in names.map(|name| name.trim_matches('_')).filter(|name| !name.is_empty()) {
        add(name);
        for word in name.split('_').filter(|word| !word.is_empty()) {
            add(word);
            humps(word).into_iter().for_each(&mut add);
        }
    }
    terms
}

/// The parts of the identifiers of a text that its words don't have: of `parseUrl`, `parse Url`.
pub(crate) fn parts(text: &str) -> String {
    let mut parts = String::new();
    for word in text.split(|c: char| !c.is_alphanumeric()) {
        for hump in humps(word) {
            parts.push_str(hump);
            parts.push(' ');
        }
    }
    parts
}

/// The parts of a word in camel case. None: it is one part alone.
fn humps(word: &str) -> Vec<&str> {
    let mut humps = Vec::new();
    let (mut start, mut before) = (0, None::<char>);
    let mut rest = word.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        let next_is_lower = rest.peek().is_some_and(|(_, next)| next.is_lowercase());
        // `parseUrl`, and `HTTPServer`.
        let begins = before.is_some_and(|before| {
            c.is_uppercase() && (before.is_lowercase() || before.is_uppercase() && next_is_lower)
        });
        if begins {
            humps.push(&word[start..at]);
            start = at;
        }
        before = Some(c);
    }
    if start > 0 {
        humps.push(&word[start..]);
    }
    humps
}

/// A tag as one word. Its last digit keeps the stemmer off.
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
            prop_assert!(parts(&text).len() <= 2 * text.len());
        }
    }
}
