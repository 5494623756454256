//! Decides where a line that is too long is cut.

/// The longest word, in characters, that is left out if a cut goes through it. Of a longer word,
/// enough is shown to recognise it.
const MAX_WORD: usize = 128;

/// The length of `shown` without a last word that continues in `rest`. The beginning of a
/// credential isn't recognised as a secret, but reveals most of it.
pub(crate) fn without_unfinished(shown: &[u8], rest: &[u8]) -> usize {
    let word =
        shown.iter().rev().take(MAX_WORD + 1).take_while(|byte| is_word_byte(**byte)).count();
    let ends = rest.first().is_some_and(|byte| !is_word_byte(*byte));
    if ends || word > MAX_WORD { shown.len() } else { shown.len() - word }
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'+' | b'/' | b'=' | b'~')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_word_is_left_out() {
        let long = "x".repeat(MAX_WORD + 1);
        for (shown, rest, left) in [
            ("a b", "c", "a "),
            ("a b", " c", "a b"),
            ("a b", "", "a "),
            ("a=\"b-c", "d", "a=\""),
            ("", "a", ""),
            (&long, "x", &long),
            ("é", "x", "é"),
        ] {
            assert_eq!(
                &shown[..without_unfinished(shown.as_bytes(), rest.as_bytes())],
                left,
                "{shown} {rest}"
            );
        }
    }
}
