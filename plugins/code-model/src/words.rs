//! Splits identifiers and queries into the words of the code index, in any style of writing.
//!
//! An identifier counts whole and by its parts: `loadConfig` and `load_config` are both the word
//! `loadconfig` with the parts `load` and `config`.

use std::collections::HashSet;

/// Bytes of a word. Longer ones are encoded data or hashes.
const MAX_WORD: usize = 64;

/// Bytes of a line that are looked at. Longer lines are generated.
const MAX_LINE: usize = 2_000;

/// Marks the whole name of a definition, so that it differs from the words of texts.
const WHOLE_NAME: &str = "yy";

/// Marks a part of the name of a definition.
const PART_OF_NAME: &str = "zz";

/// The whole form of an identifier: lower case, without underscores.
pub fn whole(name: &str) -> String {
    name.chars().filter(|char| char.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Whether `whole` is the whole form of `name`.
pub fn has_whole(name: &str, whole: &str) -> bool {
    if name.is_ascii() {
        let chars = name.bytes().filter(u8::is_ascii_alphanumeric);
        return chars.map(|char| char.to_ascii_lowercase()).eq(whole.bytes());
    }
    self::whole(name) == whole
}

/// The parts of an identifier, in lower case: split at underscores and where the case changes.
pub fn parts(name: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut chars = name.chars().peekable();
    let mut before = ' ';
    while let Some(char) = chars.next() {
        if !char.is_alphanumeric() {
            parts.push(std::mem::take(&mut part));
            before = ' ';
            continue;
        }
        let next_is_lower = chars.peek().is_some_and(|next| next.is_lowercase());
        // `aB`, and the last capital in `HTMLElement`.
        let begins = char.is_uppercase()
            && (before.is_lowercase()
                || before.is_numeric()
                || before.is_uppercase() && next_is_lower);
        if begins {
            parts.push(std::mem::take(&mut part));
        }
        part.extend(char.to_lowercase());
        before = char;
    }
    parts.push(part);
    parts.retain(|part| is_word(part));
    parts
}

/// Whether the index has such a word: no single letter, no number, and nothing endless.
fn is_word(word: &str) -> bool {
    (2..=MAX_WORD).contains(&word.len()) && !word.bytes().all(|byte| byte.is_ascii_digit())
}

/// The identifiers and words of a text, in its order.
pub fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|char: char| !char.is_alphanumeric() && char != '_').filter(|word| !word.is_empty())
}

/// The words of a part of a file, each once, for the index.
pub fn of_lines<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let mut seen = HashSet::new();
    let mut text = String::new();
    for line in lines {
        let line = &line[..line.floor_char_boundary(MAX_LINE)];
        for identifier in identifiers(line).flat_map(pieces) {
            if identifier.len() <= MAX_WORD && seen.insert(identifier) {
                push_forms(&mut text, identifier);
            }
        }
    }
    text
}

/// An identifier, or the pieces of a text that is longer than a word can be. Scripts without spaces
/// between words have such texts, and the index finds their pieces.
fn pieces(identifier: &str) -> impl Iterator<Item = &str> {
    let mut rest = identifier;
    std::iter::from_fn(move || {
        let end = if rest.is_ascii() { rest.len() } else { rest.floor_char_boundary(MAX_WORD) };
        let (piece, more) = rest.split_at(end);
        rest = more;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Adds an identifier whole, and its parts if it has several.
fn push_forms(text: &mut String, identifier: &str) {
    // Most are like this, and need no further look.
    if identifier.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
        push(text, "", identifier);
        return;
    }
    push(text, "", &whole(identifier));
    let parts = parts(identifier);
    if parts.len() > 1 {
        parts.iter().for_each(|part| push(text, "", part));
    }
}

/// The words of a name, for the index of definitions.
pub fn of_name(name: &str) -> String {
    let mut text = String::new();
    let whole = whole(name);
    if !whole.is_empty() {
        text = format!("{WHOLE_NAME}{whole}");
    }
    parts(name).iter().for_each(|part| push(&mut text, PART_OF_NAME, part));
    text
}

/// The query for definitions with exactly this name, in any style. Names of one letter are found
/// too.
pub fn query_of_name(name: &str) -> String {
    format!("{WHOLE_NAME}{}", whole(name))
}

/// The query for definitions that have one of these words in their names.
pub fn query_of_parts(words: &[String]) -> String {
    let mut text = String::new();
    words.iter().for_each(|word| push(&mut text, PART_OF_NAME, word));
    text
}

/// The words of a person's query: every identifier whole, and its parts, each once.
pub fn of_query(query: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for identifier in identifiers(query).flat_map(pieces) {
        for word in std::iter::once(whole(identifier)).chain(parts(identifier)) {
            if is_word(&word) && !words.contains(&word) {
                words.push(word);
            }
        }
    }
    words
}

fn push(text: &mut String, mark: &str, word: &str) {
    if is_word(word) {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(mark);
        text.push_str(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_have_parts() {
        for (name, expected) in [
            ("load_config", "load config"),
            ("loadConfig", "load config"),
            ("HTMLElement", "html element"),
            ("utf8Text", "utf8 text"),
            ("MAX_LINE_2", "max line"),
            ("__init__", "init"),
            ("größeÄndern", "größe ändern"),
            ("x", ""),
        ] {
            assert_eq!(parts(name).join(" "), expected, "{name}");
        }
        assert_eq!(whole("Load_Config"), "loadconfig");
        for (name, whole, expected) in [
            ("Load_Config", "loadconfig", true),
            ("load_configs", "loadconfig", false),
            ("load", "loadconfig", false),
            ("GrößeÄndern", "größeändern", true),
            ("größe", "große", false),
        ] {
            assert_eq!(has_whole(name, whole), expected, "{name}");
        }
    }

    #[test]
    fn text_has_each_word_once() {
        let text = of_lines(["let x = load_config(path);", "load_config(a, 12)"].into_iter());
        assert_eq!(text, "let loadconfig load config path");
        let endless = "a".repeat(MAX_WORD + 1);
        assert_eq!(of_lines([&*endless].into_iter()), "");
    }

    #[test]
    fn long_text_without_spaces_has_pieces() {
        let text = "索".repeat(50);
        let lengths = |text: &str| text.split(' ').map(str::len).collect::<Vec<_>>();
        assert_eq!(lengths(&of_lines([&*text].into_iter())), [63, 24]);
        assert_eq!(of_query(&text).len(), 2);
    }

    #[test]
    fn words_after_the_limit_of_a_line_are_left_out() {
        let line = format!("first {} last", "é ".repeat(MAX_LINE));
        assert_eq!(of_lines([&*line].into_iter()), "first é");
    }

    #[test]
    fn queries_fit_the_index() {
        assert_eq!(of_name("loadConfig"), "yyloadconfig zzload zzconfig");
        assert_eq!(query_of_name("load_config"), "yyloadconfig");
        assert_eq!(
            of_query("where loadConfig is, load"),
            ["where", "loadconfig", "load", "config", "is"]
        );
        assert_eq!(query_of_parts(&of_query("load it")), "zzload zzit");
    }
}
