//! Finds the occurrences of a text for `edit`, also with other line ends, and replaces them.

use std::ops::Range;

use memchr::memmem;

/// The greatest number of places that are replaced. No real edit needs more.
pub(super) const MAX_PLACES: usize = 100_000;

/// The places of one text, and its replacement.
pub(super) struct Substitution {
    /// The places, in order and without overlaps. At most one more than [`MAX_PLACES`].
    pub(super) places: Vec<Place>,
    /// The replacement, with each of the two kinds of line ends.
    new: String,
    new_with_returns: String,
}

/// One place of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The range in bytes.
    pub(super) range: Range<usize>,
    /// Whether lines end in CRLF at this place.
    returns: bool,
}

impl Substitution {
    /// Finds `old` in `text`.
    ///
    /// If `old` and `new` have no carriage return, LF also matches CRLF, and the replacement gets
    /// the line ends of the replaced text. If one of them has a carriage return, the bytes have to
    /// be equal.
    pub(super) fn find(text: &str, old: &str, new: &str) -> Self {
        let exact = old.contains('\r') || new.contains('\r') || !text.contains("\r\n");
        let places = if exact {
            let found = memmem::find_iter(text.as_bytes(), old).take(MAX_PLACES + 1);
            found.map(|start| Place { range: start..start + old.len(), returns: false }).collect()
        } else {
            let (plain, returns) = without_returns(text);
            let usual = mostly_returns(text);
            let found = memmem::find_iter(plain.as_bytes(), old).take(MAX_PLACES + 1);
            let ranges =
                found.map(|start| original(start, &returns)..original(start + old.len(), &returns));
            ranges
                .map(|range| Place {
                    returns: ends_in_return(&text[range.clone()]).unwrap_or(usual),
                    range,
                })
                .collect()
        };
        Self { places, new: new.to_owned(), new_with_returns: new.replace('\n', "\r\n") }
    }

    /// The replacement for a place.
    pub(super) fn replacement(&self, place: &Place) -> &str {
        if place.returns { &self.new_with_returns } else { &self.new }
    }

    /// The length of `text` after the replacement.
    pub(super) fn length(&self, text: &str) -> usize {
        self.places.iter().fold(text.len(), |length, place| {
            length - place.range.len() + self.replacement(place).len()
        })
    }

    /// The text after the replacement. If the last line had a line end, it keeps one.
    pub(super) fn apply(&self, text: &str) -> String {
        let mut changed = String::with_capacity(self.length(text) + 2);
        let mut copied = 0;
        for place in &self.places {
            changed.push_str(&text[copied..place.range.start]);
            changed.push_str(self.replacement(place));
            copied = place.range.end;
        }
        changed.push_str(&text[copied..]);
        if text.ends_with('\n') && !changed.is_empty() && !changed.ends_with('\n') {
            changed.push_str(if text.ends_with("\r\n") { "\r\n" } else { "\n" });
        }
        changed
    }
}

/// `text` with LF instead of CRLF, and the positions where a carriage return was removed.
fn without_returns(text: &str) -> (String, Vec<usize>) {
    let mut returns = Vec::new();
    let mut plain = String::with_capacity(text.len());
    for (index, part) in text.split("\r\n").enumerate() {
        if index > 0 {
            returns.push(plain.len());
            plain.push('\n');
        }
        plain.push_str(part);
    }
    (plain, returns)
}

/// The position in the original text for a position in the text without carriage returns. At a line
/// end, it is before the carriage return.
fn original(at: usize, returns: &[usize]) -> usize {
    at + returns.partition_point(|&place| place < at)
}

/// Whether the first line of `text` ends in CRLF. `None` if `text` has no line end.
fn ends_in_return(text: &str) -> Option<bool> {
    text.find('\n').map(|at| text[..at].ends_with('\r'))
}

/// Whether most lines of `text` end in CRLF.
fn mostly_returns(text: &str) -> bool {
    let all = memchr::memchr_iter(b'\n', text.as_bytes()).count();
    memmem::find_iter(text.as_bytes(), "\r\n").count() * 2 >= all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, old: &str, new: &str, expected: &str) {
        let found = Substitution::find(text, old, new);
        assert_eq!(found.apply(text), expected, "{text:?}: {old:?} -> {new:?}");
    }

    #[test]
    fn replacement_gets_the_line_ends_of_the_old_text() {
        check("a\r\nb\r\nc\r\n", "a\nb", "1\n2\n3", "1\r\n2\r\n3\r\nc\r\n");
        check("a\r\nb\r\nc\r\n", "b", "1\n2", "a\r\n1\r\n2\r\nc\r\n");
        check("a\r\nb\nc\n", "b\nc", "1\n2", "a\r\n1\n2\n");
        check("a\nb\nc\r\n", "a", "1\n2", "1\n2\nb\nc\r\n");
        check("a\nb\n", "a\n", "1\n", "1\nb\n");
    }

    #[test]
    fn range_may_start_or_end_at_a_line_end() {
        check("a\r\nb\r\n", "\nb", "\nc", "a\r\nc\r\n");
        check("a\r\nb\r\n", "a\n", "x\n", "x\r\nb\r\n");
        check("a\r\nb\r\n", "a\n", "", "b\r\n");
        check("a\r\n\r\nb", "\n\n", "\n", "a\r\nb");
    }

    #[test]
    fn carriage_return_matches_exactly() {
        check("a\r\nb\r\n", "a\r\n", "a\n", "a\nb\r\n");
        assert!(Substitution::find("a\nb\n", "a\r\nb", "x").places.is_empty());
    }

    #[test]
    fn last_line_keeps_its_end() {
        check("a\nb\n", "b\n", "c", "a\nc\n");
        check("a\r\nb\r\n", "b\n", "c", "a\r\nc\r\n");
        check("a\nb", "b", "c", "a\nc");
        check("a\n", "a\n", "", "");
    }

    #[test]
    fn occurrences_do_not_overlap() {
        let ranges: Vec<_> = Substitution::find("aaaa", "aa", "b")
            .places
            .into_iter()
            .map(|place| place.range)
            .collect();
        assert_eq!(ranges, [0..2, 2..4]);
        check("é é", "é", "e", "e e");
    }

    #[test]
    fn length_is_computed_in_advance() {
        for text in ["a\nb\na\n", "a\r\nb\r\na\r\n"] {
            let found = Substitution::find(text, "a\n", "1\n2\n");
            assert_eq!(found.length(text), found.apply(text).len());
        }
    }
}
