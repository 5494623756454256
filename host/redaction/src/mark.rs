//! What stands where a secret stood: `[REDACTED:github-token ghp_…]`.

/// What the marks of private keys say.
pub(super) const PRIVATE_KEY: &str = "private-key";

/// How every mark begins.
const BEGIN: &str = "[REDACTED:";

/// How every mark ends.
const END: &str = "…]";

/// Characters of the secret that a mark keeps at most, so that people can tell which one it was.
const KEPT: usize = 4;

/// What is looked at to find the end of a mark: longer than any.
const LONGEST: usize = 96;

/// Writes the mark for a secret: its kind, and its first characters, at most a quarter of it, or of
/// its first line or entry.
pub(super) fn write(out: &mut String, kind: &str, secret: &str) {
    out.push_str(BEGIN);
    out.push_str(kind);
    out.push(' ');
    // Of keys in many lines, the first characters say nothing.
    // Of several secrets, the first one is told.
    let first = secret.find(['\n', ',', '"', '\'']).unwrap_or(secret.len());
    let kept = if kind == PRIVATE_KEY { 0 } else { KEPT.min(first / 4) };
    out.extend(
        secret
            .chars()
            .take(kept)
            .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')),
    );
    out.push_str(END);
}

/// The bytes of the mark that `text` begins with; 0 where it begins with none.
pub(super) fn length(text: &[u8]) -> usize {
    let Some(rest) = text.strip_prefix(BEGIN.as_bytes()) else { return 0 };
    let kind = rest
        .iter()
        .take_while(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || **byte == b'-')
        .count();
    let Some(rest) = rest[kind..].strip_prefix(b" ") else { return 0 };
    let kept = rest
        .iter()
        .take(KEPT)
        .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
        .count();
    let whole = (1..=32).contains(&kind) && rest[kept..].starts_with(END.as_bytes());
    if whole { BEGIN.len() + kind + 1 + kept + END.len() } else { 0 }
}

/// What stands between two offsets before, between and behind marks. A mark is none of what it
/// stands in, and hides none of it.
pub(super) fn around(
    bytes: &[u8],
    start: usize,
    end: usize,
) -> impl Iterator<Item = (usize, usize)> {
    let mut next = Some(start);
    std::iter::from_fn(move || {
        let from = next?;
        super::found::looked_at(end - from);
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

/// The first mark in `text`, also one that was copied inexactly: with three dots instead of one
/// character, or without its end.
pub fn first(text: &str) -> Option<&str> {
    let start = text.find(BEGIN)?;
    let rest = &text[start..];
    let near = berth_contract::text::cut(rest, LONGEST);
    let end = near
        .find([']', '\n'])
        .map_or(near.len(), |end| end + usize::from(near.as_bytes()[end] == b']'));
    Some(&near[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_recognised_again() {
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
    fn what_only_looks_like_a_mark_is_none() {
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
