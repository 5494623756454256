//! Writes and recognises the marks that replace secrets, such as
//! `[REDACTED:github-token ghp_…]`.

/// The kind of private keys.
pub(super) const PRIVATE_KEY: &str = "private-key";

const BEGIN: &str = "[REDACTED:";

const END: &str = "…]";

/// Most characters of the secret in a mark. They help people to recognise the secret.
const MAX_SHOWN: usize = 4;

/// Most bytes of the kind of a secret in a mark.
const MAX_KIND: usize = 32;

/// Bytes in which the end of a mark is searched. Every mark is shorter.
const MAX_MARK: usize = 96;

/// Writes the mark for a secret. The mark shows at most a quarter of the secret, or of its first
/// line or entry.
pub(super) fn write(out: &mut String, kind: &str, secret: &str) {
    out.push_str(BEGIN);
    out.push_str(kind);
    out.push(' ');
    // If there are several secrets, only the first secret is shown.
    let first_length = secret.find(['\n', ',', '"', '\'']).unwrap_or(secret.len());
    // All private keys start with the same characters, so the mark shows no character.
    let max_shown = if kind == PRIVATE_KEY { 0 } else { MAX_SHOWN.min(first_length / 4) };
    let characters = secret.chars().take(max_shown);
    out.extend(characters.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')));
    out.push_str(END);
}

/// Returns the length of the mark at the start of `text`, or 0 without a mark.
pub(super) fn length(text: &[u8]) -> usize {
    let Some(after_begin) = text.strip_prefix(BEGIN.as_bytes()) else { return 0 };
    let kind_length = after_begin
        .iter()
        .take_while(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || **byte == b'-')
        .count();
    let Some(after_kind) = after_begin[kind_length..].strip_prefix(b" ") else { return 0 };
    let shown_length = after_kind
        .iter()
        .take(MAX_SHOWN)
        .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
        .count();
    let has_end = after_kind[shown_length..].starts_with(END.as_bytes());
    if !has_end || !(1..=MAX_KIND).contains(&kind_length) {
        return 0;
    }
    BEGIN.len() + kind_length + b" ".len() + shown_length + END.len()
}

/// Returns the ranges between two offsets that contain no mark.
pub(super) fn unmarked_ranges(
    bytes: &[u8],
    start: usize,
    end: usize,
) -> impl Iterator<Item = (usize, usize)> {
    let mut next_range_start = Some(start);
    std::iter::from_fn(move || {
        let range_start = next_range_start?;
        super::found::count_examined(end - range_start);
        for at in range_start..end {
            if bytes[at] != b'[' {
                continue;
            }
            let mark_length = length(&bytes[at..]);
            let mark_end = at + mark_length;
            if mark_length > 0 && mark_end <= end {
                next_range_start = Some(mark_end);
                return Some((range_start, at));
            }
        }
        next_range_start = None;
        Some((range_start, end))
    })
}

/// Returns the first mark in `text`. Includes marks that were copied inexactly: with three dots
/// instead of `…`, or without an end.
pub fn first(text: &str) -> Option<&str> {
    let start = text.find(BEGIN)?;
    let near = toolhold_contract::text::cut(&text[start..], MAX_MARK);
    let end = match near.find([']', '\n']) {
        Some(bracket) if near.as_bytes()[bracket] == b']' => bracket + 1,
        Some(line_end) => line_end,
        None => near.len(),
    };
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
