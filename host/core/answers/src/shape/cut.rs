//! Cuts a long answer to its beginning and its end.

use crate::overflow::byte_offset;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ends<'a> {
    pub(super) head: &'a str,
    pub(super) tail: &'a str,
    /// The number of characters in the head.
    pub(super) offset: usize,
    /// The number of characters between the head and the tail.
    pub(super) left_out: usize,
    /// The number of characters of the whole text.
    pub(super) total: usize,
}

/// Returns the two ends of a text. Each end has half of `threshold`, or less to end at a line.
/// Returns `None` if the text has at most `threshold` characters.
pub(super) fn ends(text: &str, threshold: usize) -> Option<Ends<'_>> {
    if text.len() <= threshold {
        return None;
    }
    let total = text.chars().count();
    if total <= threshold {
        return None;
    }
    let head_length = threshold / 2;
    let tail_length = threshold - head_length;
    let mut head = &text[..byte_offset(text, head_length)];
    let mut tail = &text[byte_offset(text, total - tail_length)..];
    // The cut moves to a line end in the last quarter of the head or the first quarter of the tail.
    if let Some(newline) = head.rfind('\n')
        && newline >= head.len() - head.len() / 4
    {
        head = &head[..=newline];
    }
    if let Some(newline) = tail.find('\n')
        && newline < tail.len() / 4
    {
        tail = &tail[newline + 1..];
    }
    let offset = head.chars().count();
    let left_out = total - offset - tail.chars().count();
    Some(Ends { head, tail, offset, left_out, total })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_stay_and_characters_are_counted() {
        assert_eq!(ends("abcdef", 6), None);
        assert_eq!(ends("äöüß", 4), None);
        assert_eq!(
            ends("abcdef", 4),
            Some(Ends { head: "ab", tail: "ef", offset: 2, left_out: 2, total: 6 })
        );
        assert_eq!(
            ends("äöüßÄÖÜ", 5),
            Some(Ends { head: "äö", tail: "ÄÖÜ", offset: 2, left_out: 2, total: 7 })
        );
        assert_eq!(
            ends("abc", 1),
            Some(Ends { head: "", tail: "c", offset: 0, left_out: 2, total: 3 })
        );
    }

    #[test]
    fn byte_offset_of_a_character_is_that_of_its_first_byte() {
        let text: String = ('a'..='z').chain("äß漢字👩\n".chars()).cycle().take(700).collect();
        let mut offsets = text.char_indices().map(|(at, _)| at);
        for character in 0..710 {
            assert_eq!(byte_offset(&text, character), offsets.next().unwrap_or(text.len()));
        }
    }

    #[test]
    fn cut_prefers_line_ends() {
        let text: String = (0..100).map(|number| format!("line {number:02}\n")).collect();
        let ends = ends(&text, 100).expect("it is longer");
        assert_eq!(
            ends.head,
            (0..6).map(|number| format!("line {number:02}\n")).collect::<String>()
        );
        assert_eq!(
            ends.tail,
            (94..100).map(|number| format!("line {number:02}\n")).collect::<String>()
        );
        assert_eq!((ends.offset, ends.left_out, ends.total), (48, 704, 800));
    }
}
