//! Finds secret values that continue after the line of their key in a settings file: blocks, lists
//! and texts of several lines.

use super::found::count_examined;
use super::mark;

/// Bytes within which a quoted value must end. If the value doesn't end there, the character at its
/// start isn't treated as a quote.
const MAX_QUOTED: usize = 16 * 1024;

/// Bytes within which a quoted text of several lines must end. The first secret of a list or a
/// block must start within the same number of bytes.
const MAX_LENGTH: usize = 4096;

/// Bytes within which the first secret must start in a block, or in a list over several lines. The
/// limit is small, because each key of a nested block examines the same lines again.
const MAX_BEFORE_SECRET: usize = 1024;

/// Spaces, options or backslashes in a row.
const MAX_SPACES: usize = 8;

/// Digits of a line number.
const MAX_DIGITS: usize = 10;

/// Bytes of a line number, including the name of the file.
const MAX_NUMBER: usize = 1024;

#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Returns the start of the first secret between two offsets. The flag means that the text is
/// quoted.
pub(super) type FindSecret<'a> = &'a dyn Fn(usize, usize, bool) -> Option<usize>;

/// Returns the part of a value from its first secret to its end, if the value is in the lines below
/// its key. `key` is the offset of the key, and `at` is the offset after the separator. The rest of
/// the key's line must be empty, or only start a block with `|` or `>`.
///
/// `is_delimited` means that a delimiter ends the value, as in JSON and XML. If not, the
/// indentation ends the value. `is_list` means that only entries of a list are accepted.
pub(super) fn below(
    bytes: &[u8],
    key: usize,
    at: usize,
    is_delimited: bool,
    is_list: bool,
    find_secret: FindSecret,
) -> Option<Span> {
    let has_indicator = matches!(bytes.get(at), Some(b'|' | b'>'));
    let after_indicator = at + usize::from(has_indicator);
    let options_length = bytes[after_indicator..]
        .iter()
        .take(MAX_SPACES)
        .take_while(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b' ' | b'\t' | b'\r'))
        .count();
    let line_end = after_indicator + options_length;
    if bytes.get(line_end) != Some(&b'\n') {
        return None;
    }
    // Without an indicator, only a `\r` may come before the end of the line.
    let has_other_text = line_end > at + 1;
    if !has_indicator && has_other_text {
        return None;
    }

    let before_key = bytes[..key].iter().rev().take(MAX_LENGTH);
    let before_length = before_key.take_while(|byte| **byte != b'\n').count();
    count_examined(before_length);
    let key_indent = Line::at(bytes, key - before_length)?.indent;
    let mut line = Line::at(bytes, line_end + 1)?;
    while line.is_blank() {
        line = Line::at(bytes, line.next)?;
        if line.start - at >= MAX_BEFORE_SECRET {
            return None;
        }
    }

    if !has_indicator {
        return plain_below(bytes, line, key_indent, is_delimited, is_list, find_secret);
    }
    // A block is a text, and not a list. Its lines are indented more than its key.
    if is_list || line.indent <= key_indent {
        return None;
    }
    let has_entries = false;
    let ends_at_key = false;
    lines(bytes, line, key_indent, has_entries, ends_at_key, find_secret)
}

/// Returns the value that starts with `line`, after the block indicator. The flags are those of
/// [`below`].
fn plain_below(
    bytes: &[u8],
    line: Line,
    key_indent: usize,
    is_delimited: bool,
    is_list: bool,
    find_secret: FindSecret,
) -> Option<Span> {
    let text = &bytes[line.start..line.end];
    if text.starts_with(b"- ") {
        if is_delimited || line.indent < key_indent {
            return None;
        }
        let has_entries = true;
        let ends_at_key = true;
        return lines(bytes, line, key_indent, has_entries, ends_at_key, find_secret);
    }
    if is_list {
        return None;
    }

    let first_byte = text[0];
    if matches!(first_byte, b'"' | b'\'') {
        let start = line.start + 1;
        let end = closing_quote(bytes, start, first_byte, 0)?;
        if !is_delimited && line.indent <= key_indent {
            return None;
        }
        return Some(Span { start: find_secret(start, end, true)?, end });
    }
    if is_delimited {
        let end = line.start + text.iter().take_while(|byte| **byte != b'<').count();
        return Some(Span { start: find_secret(line.start, end, false)?, end });
    }

    // The next lines are other settings, and not a value.
    if is_mapping(text) || matches!(first_byte, b'{' | b'[' | b'&' | b'*' | b'!' | b'#') {
        return None;
    }
    if line.indent <= key_indent {
        return None;
    }
    let has_entries = false;
    let ends_at_key = true;
    lines(bytes, line, key_indent, has_entries, ends_at_key, find_secret)
}

/// Returns the lines of a value, from the first secret to the end. The lines are indented more than
/// the key, or are entries of a list with the indentation of the first entry.
///
/// Only few bytes before the first secret are examined, because the next key examines them again.
fn lines(
    bytes: &[u8],
    first: Line,
    key_indent: usize,
    has_entries: bool,
    ends_at_key: bool,
    find_secret: FindSecret,
) -> Option<Span> {
    let from = first.start;
    let min_indent = if has_entries { first.indent } else { key_indent + 1 };
    let mut secret_start = None;
    let mut end = 0;
    let mut next = Some(first);
    while let Some(line) = next {
        next = Line::at(bytes, line.next);
        if line.is_blank() {
            if secret_start.is_none() && line.next - from > MAX_BEFORE_SECRET {
                return None;
            }
            continue;
        }

        let text = &bytes[line.start..line.end];
        let has_entry_indent = has_entries && line.indent == min_indent;
        let ((value_start, value_end), is_quoted) = match text {
            [b'-', b' ', ..] if has_entry_indent => unquoted(bytes, line.start + 2, line.end),
            [b'#', ..] if has_entry_indent => continue,
            _ if has_entry_indent => break,
            _ => ((line.start, line.end), false),
        };
        if line.indent < min_indent {
            break;
        }
        if ends_at_key && is_mapping(text) {
            break;
        }

        if secret_start.is_none() {
            secret_start = find_secret(value_start, value_end, is_quoted);
            if secret_start.is_none() && line.next - from > MAX_BEFORE_SECRET {
                return None;
            }
        }
        end = value_end;
    }
    Some(Span { start: secret_start?, end })
}

/// Returns the range of a value without leading spaces and without quotes, and whether the value
/// has quotes.
fn unquoted(bytes: &[u8], start: usize, end: usize) -> ((usize, usize), bool) {
    let spaces = bytes[start..end].iter().take_while(|byte| **byte == b' ').count();
    let value_start = start + spaces;
    let is_quoted = match bytes[value_start..end] {
        [first @ (b'"' | b'\''), .., last] => first == last,
        _ => false,
    };
    let range = if is_quoted { (value_start + 1, end - 1) } else { (value_start, end) };
    (range, is_quoted)
}

fn is_mapping(line: &[u8]) -> bool {
    count_examined(line.len());
    line.ends_with(b":") || line.windows(2).any(|two| two == b": ")
}

/// Returns the range from the first to the last secret in the list at `at`, without quotes. The
/// list must not contain lists or objects.
pub(super) fn list(bytes: &[u8], at: usize, find_secret: FindSecret) -> Option<Span> {
    if bytes.get(at) != Some(&b'[') || mark::length(&bytes[at..]) > 0 {
        return None;
    }
    let mut span: Option<Span> = None;
    let mut next = skip_blank(bytes, at + 1);
    // Only the first secret must start near the start of the list.
    while span.is_some() || next - at < MAX_LENGTH {
        let Some(entry) = Entry::at(bytes, next) else { break };
        let sign_at = skip_blank(bytes, entry.next);
        let sign = bytes.get(sign_at);
        if !matches!(sign, Some(b',' | b']')) {
            break;
        }
        if let Some(secret_start) = find_secret(entry.start, entry.end, entry.is_quoted) {
            let start = match span {
                Some(earlier) => earlier.start,
                None => secret_start,
            };
            span = Some(Span { start, end: entry.end });
        }
        let is_last = sign == Some(&b']');
        if is_last {
            break;
        }
        next = skip_blank(bytes, sign_at + 1);
    }
    count_examined(next - at);
    span
}

struct Entry {
    start: usize,
    end: usize,
    is_quoted: bool,
    next: usize,
}

impl Entry {
    /// Returns the entry of a list that starts at `at`. Its quotes may be escaped. Returns `None`
    /// for a quote without an end.
    fn at(bytes: &[u8], at: usize) -> Option<Self> {
        let backslashes =
            bytes[at..].iter().take(MAX_SPACES).take_while(|byte| **byte == b'\\').count();
        if let Some(quote @ (b'"' | b'\'')) = bytes.get(at + backslashes) {
            let quote_length = backslashes + 1;
            let start = at + quote_length;
            let end = closing_quote(bytes, start, *quote, backslashes)?;
            return Some(Self { start, end, is_quoted: true, next: end + quote_length });
        }
        let next = at + bare_length(&bytes[at..]);
        let end = at + bytes[at..next].trim_ascii_end().len();
        Some(Self { start: at, end, is_quoted: false, next })
    }
}

/// Returns the length of an entry without quotes. A mark is part of the entry.
fn bare_length(text: &[u8]) -> usize {
    let mut length = 0;
    while let Some(byte) = text.get(length)
        && length < MAX_LENGTH
    {
        match byte {
            b'[' => {
                let mark_length = mark::length(&text[length..]);
                let starts_list = mark_length == 0;
                if starts_list {
                    break;
                }
                length += mark_length;
            }
            b',' | b']' | b'{' | b'}' | b'"' | b'\'' | b'\n' => break,
            _ => length += 1,
        }
    }
    count_examined(length);
    length
}

/// Returns the offset after white space and the line numbers in it.
fn skip_blank(bytes: &[u8], mut at: usize) -> usize {
    while let Some(byte) = bytes.get(at)
        && byte.is_ascii_whitespace()
    {
        at += 1;
        if *byte == b'\n' {
            at += number_at(bytes, at);
        }
    }
    at
}

/// Returns the secret in the triple quotes at `at`.
pub(super) fn triple_quoted(bytes: &[u8], at: usize, find_secret: FindSecret) -> Option<Span> {
    let quotes @ (b"\"\"\"" | b"\'\'\'") = bytes[at..].first_chunk::<3>()? else { return None };
    let start = at + quotes.len();
    let within = &bytes[start..bytes.len().min(start + MAX_LENGTH)];
    let length = within.windows(quotes.len()).position(|three| three == quotes);
    count_examined(length.unwrap_or(within.len()));
    first_secret_line(bytes, start, start + length?, find_secret)
}

/// Returns the secret after the quote at `at`, if a later line closes the quote.
pub(super) fn quoted_lines(bytes: &[u8], at: usize, find_secret: FindSecret) -> Option<Span> {
    let quote = bytes[at];
    let start = at + 1;
    let no_backslashes = 0;
    if closing_quote(bytes, start, quote, no_backslashes).is_some() {
        return None;
    }
    let within = &bytes[start..bytes.len().min(start + MAX_LENGTH)];
    let line_end = within.iter().position(|byte| *byte == b'\n')?;
    let mut later_offsets = line_end + 1..within.len();
    let length =
        later_offsets.find(|offset| within[*offset] == quote && within[*offset - 1] != b'\\');
    count_examined(length.unwrap_or(within.len()));
    first_secret_line(bytes, start, start + length?, find_secret)
}

/// Returns the range from the first line with a secret to the end of a text.
fn first_secret_line(
    bytes: &[u8],
    start: usize,
    end: usize,
    find_secret: FindSecret,
) -> Option<Span> {
    let is_quoted = true;
    let (_, end) = trimmed(bytes, start, end);
    let mut at = start;
    while at < end {
        let line = Line::at(&bytes[..end], at)?;
        // The first line starts after the quote, so it has no line number.
        let line_start = if at == start { at } else { line.start };
        if let Some(secret_start) = find_secret(line_start, line.end, is_quoted) {
            return Some(Span { start: secret_start, end });
        }
        at = line.next;
    }
    None
}

/// Returns a range without the white space, quotes, commas and line numbers at its edges.
pub(super) fn trimmed(bytes: &[u8], mut start: usize, end: usize) -> (usize, usize) {
    while start < end && is_edge(bytes[start]) {
        let is_line_end = bytes[start] == b'\n';
        start += 1;
        if is_line_end {
            start = end.min(start + number_at(bytes, start));
        }
    }
    (start, trimmed_end(bytes, start, end))
}

/// Returns the end of a range, before the white space, quotes, commas and lines with only a number
/// at its end.
fn trimmed_end(bytes: &[u8], start: usize, mut end: usize) -> usize {
    loop {
        let edges = bytes[start..end].iter().rev().take_while(|byte| is_edge(**byte));
        let text_end = end - edges.count();
        let mut last_bytes = bytes[start..text_end].iter().rev().take(MAX_NUMBER);
        let Some(line_length) = last_bytes.position(|byte| *byte == b'\n') else {
            return text_end;
        };
        let line_start = text_end - line_length;
        let number_end = line_start + line_number_length(&bytes[line_start..end]);
        let is_only_number = number_end >= text_end;
        if !is_only_number {
            return text_end;
        }
        end = line_start - 1;
    }
}

fn is_edge(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'' | b',' | b'\\')
}

fn number_at(bytes: &[u8], at: usize) -> usize {
    let near = &bytes[at..bytes.len().min(at + MAX_NUMBER)];
    let line_end = near.iter().position(|byte| *byte == b'\n').unwrap_or(near.len());
    line_number_length(&near[..line_end])
}

/// A line, without the line number that `read` and `grep` write.
struct Line {
    start: usize,
    end: usize,
    indent: usize,
    next: usize,
}

impl Line {
    /// Returns the line that starts at `at`, or `None` at the end of the text.
    fn at(bytes: &[u8], at: usize) -> Option<Self> {
        let rest = bytes.get(at..)?;
        if rest.is_empty() {
            return None;
        }
        let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        count_examined(length);
        let line = rest[..length].trim_ascii_end();
        let number_length = line_number_length(line);
        let after_number = &line[number_length..];
        let indent = after_number.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        Some(Self {
            start: at + number_length + indent,
            end: at + line.len(),
            indent,
            next: at + length + 1,
        })
    }

    fn is_blank(&self) -> bool {
        self.start >= self.end
    }
}

/// Returns the length of the line number at the start of a line, or 0 without a number. The forms
/// are ` 12\t`, `+ 12\t` in a change, and `path:12: ` or `path-12- ` in a search.
pub(super) fn line_number_length(line: &[u8]) -> usize {
    let has_sign = matches!(line, [b'+' | b'-', b' ', ..]);
    let spaces_start = usize::from(has_sign);
    let spaces =
        line[spaces_start..].iter().take(MAX_SPACES).take_while(|byte| **byte == b' ').count();
    let digits_start = spaces_start + spaces;
    let digits = count_digits(&line[digits_start..]);
    let digits_end = digits_start + digits;
    if digits > 0 && line.get(digits_end) == Some(&b'\t') {
        return digits_end + b"\t".len();
    }
    search_prefix_length(line)
}

/// Returns the length of the path and line number that a search writes before a line: `path:12: `
/// or `path-12- `. Returns 0 without them.
fn search_prefix_length(line: &[u8]) -> usize {
    for (path_length, separator) in line.iter().enumerate().take(MAX_NUMBER) {
        if matches!(separator, b':' | b'-') && path_length > 0 {
            let digits_start = path_length + 1;
            let digits = count_digits(&line[digits_start..]);
            let digits_end = digits_start + digits;
            let end_of_number = [*separator, b' '];
            if digits > 0 && line[digits_end..].starts_with(&end_of_number) {
                return digits_end + end_of_number.len();
            }
        } else if matches!(separator, b' ' | b'\t' | b'"') {
            return 0;
        }
    }
    0
}

fn count_digits(text: &[u8]) -> usize {
    text.iter().take(MAX_DIGITS).take_while(|byte| byte.is_ascii_digit()).count()
}

/// Returns the end of a quoted value, before its closing quote. Returns `None` if the line has no
/// closing quote. `slashes_before` is the number of backslashes before the opening quote. A quote
/// with more backslashes before it belongs to the value.
pub(super) fn closing_quote(
    bytes: &[u8],
    start: usize,
    quote: u8,
    slashes_before: usize,
) -> Option<usize> {
    let mut slashes = 0;
    for (offset, byte) in bytes[start..].iter().take(MAX_QUOTED).enumerate() {
        count_examined(1);
        let is_closing = *byte == quote && slashes <= slashes_before;
        if is_closing {
            return Some(start + offset - slashes);
        }
        match *byte {
            b'\\' => slashes += 1,
            b'\n' => return None,
            _ => slashes = 0,
        }
    }
    None
}
