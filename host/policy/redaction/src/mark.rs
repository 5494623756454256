//! Writes and recognises the marks that replace secrets: `[REDACTED:github-token ghp_…]`.

/// Kind of private keys in marks.
pub(super) const PRIVATE_KEY: &str = "private-key";

/// Beginning of every mark.
const BEGIN: &str = "[REDACTED:";

/// End of every mark.
const END: &str = "…]";

/// Characters of the secret that a mark shows at most, so that people can tell which secret it was.
const MAX_SHOWN: usize = 4;

/// Bytes that are searched for the end of a mark. Every mark is shorter.
const MAX_MARK: usize = 96;

/// Writes the mark for a secret: its kind and its first characters. At most a quarter of the
/// secret, or of its first line or entry, is shown.
pub(super) fn write(out: &mut String, kind: &str, secret: &str) {
    out.push_str(BEGIN);
    out.push_str(kind);
    out.push(' ');
    // The first characters of a private key are the same for all keys, so none is shown.
    // Of several secrets, only the first one is shown.
    let first = secret.find(['\n', ',', '"', '\'']).unwrap_or(secret.len());
    let shown = if kind == PRIVATE_KEY { 0 } else { MAX_SHOWN.min(first / 4) };
    out.extend(
        secret
            .chars()
            .take(shown)
            .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')),
    );
    out.push_str(END);
}

/// Bytes of the mark at the beginning of `text`. 0 if there is none.
pub(super) fn length(text: &[u8]) -> usize {
    let Some(rest) = text.strip_prefix(BEGIN.as_bytes()) else { return 0 };
    let kind = rest
        .iter()
        .take_while(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || **byte == b'-')
        .count();
    let Some(rest) = rest[kind..].strip_prefix(b" ") else { return 0 };
    let shown = rest
        .iter()
        .take(MAX_SHOWN)
        .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
        .count();
    let whole = (1..=32).contains(&kind) && rest[shown..].starts_with(END.as_bytes());
    if whole { BEGIN.len() + kind + 1 + shown + END.len() } else { 0 }
}

/// The ranges between two offsets that are before, between and after marks. Marks aren't part of a
/// secret, and don't hide the text around them.
pub(super) fn around(
    bytes: &[u8],
    start: usize,
    end: usize,
) -> impl Iterator<Item = (usize, usize)> {
    let mut next = Some(start);
    std::iter::from_fn(move || {
        let from = next?;
        super::found::count_examined(end - from);
        let marks = bytes[from..end]
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'[')
            .map(|(at, _)| from + at);
        let mark = marks
            .map(|at| (at, length(&bytes[at..])))
            .find(|(at, length)| *length > 0 && at + length <= end);
        next = mark.map(|(at, length)| at + length);
        Some((from, mark.map_or(end, |(at, _)| at)))
    })
}

/// The first mark in `text`. A mark that was copied inexactly counts too: with three dots instead
/// of `…`, or without its end.
pub fn first(text: &str) -> Option<&str> {
    let start = text.find(BEGIN)?;
    let rest = &text[start..];
    let near = toolhold_contract::text::cut(rest, MAX_MARK);
    let end = near
        .find([']', '\n'])
        .map_or(near.len(), |end| end + usize::from(near.as_bytes()[end] == b']'));
    Some(&near[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_mark_is_recognised() {
        for (kind, secret, expected) in [
            ("github-token", "ghp_0123456789012345", "[REDACTED:github-token ghp_…]"),
            ("password", "hunter22", "[REDACTED:password hu…]"),
            ("password", "ab", "[REDACTED:password …]"),
            ("password", "hunter2aaaa\", \"hunter3bbbb", "[REDACTED:password hu…]"),
            ("password", "pä55wörter!!", "[REDACTED:password p…]"),
            ("private-key", "-----BEGIN", "[REDACTED:private-key …]"),
        ] {
            let mut out = String::new();
            write(&mut out, kind, secret);
            assert_eq!(out, expected);
            assert_eq!(length(out.as_bytes()), out.len());
            assert_eq!(first(&format!("x {out} y")), Some(&*out));
        }
    }

    #[test]
    fn text_similar_to_a_mark_is_not_recognised() {
        for text in [
            "[REDACTED:]",
            "[REDACTED: …]",
            "[REDACTED:a b]",
            "[REDACTED:a hunter22…]",
            "[REDACTED:A b…]",
            "[REDACTED",
            "",
        ] {
            assert_eq!(length(text.as_bytes()), 0, "{text}");
        }
    }
}
