//! Finds secret values in settings files if the value continues after the line of its key. Such
//! values are blocks, lists and texts of several lines.

use super::found::count_examined;
use super::mark;

/// Bytes within which a quoted value must end. Otherwise its first quote isn't a quote.
const MAX_QUOTED: usize = 16 * 1024;

/// Bytes within which a quoted text of several lines must end. The first secret of a list or a
/// block must start within the same number of bytes.
const MAX: usize = 4096;

/// Bytes within which the first secret of a block or of a list over several lines must start. This
/// limit is smaller because keys in nested blocks examine the same lines again.
const FIRST: usize = 1024;

/// Bytes of a line number, with the name of the file.
const NUMBER: usize = 1024;

/// The range of a value.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Returns the start of the first secret between two offsets. The flag says whether the text is
/// quoted.
pub(super) type FindSecret<'a> = &'a dyn Fn(usize, usize, bool) -> Option<usize>;

/// Returns the value on the lines below the key at `key`. The text after the key's separator at
/// `at` is empty, or only starts a block.
///
/// `is_delimited` means that the value has its own end, as in JSON and XML, so its indentation has
/// no effect. `is_list` means that only entries of a list are accepted.
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
        .take(8)
        .take_while(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b' ' | b'\t' | b'\r'))
        .count();
    let line_end = after_indicator + options_length;
    if bytes.get(line_end) != Some(&b'\n') {
        return None;
    }
    if !has_indicator && line_end > at + 1 {
        return None;
    }

    let before_key = bytes[..key].iter().rev().take(MAX);
    let before_length = before_key.take_while(|byte| **byte != b'\n').count();
    count_examined(before_length);
    let key_indent = Line::at(bytes, key - before_length)?.indent;
    let mut line = Line::at(bytes, line_end + 1)?;
    while line.is_blank() {
        line = Line::at(bytes, line.next)?;
        if line.start - at >= FIRST {
            return None;
        }
    }

    if !has_indicator {
        return plain_below(bytes, line, key_indent, is_delimited, is_list, find_secret);
    }
    if is_list || line.indent <= key_indent {
        return None;
    }
    lines(bytes, line, key_indent, false, false, find_secret)
}

/// Returns the value without the block indicator. `line` is the first line of the block. The flags
/// are the same as for [`below`].
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
        return lines(bytes, line, key_indent, true, true, find_secret);
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
    lines(bytes, line, key_indent, false, true, find_secret)
}

/// Returns the lines of a value from the first secret to the end. The lines are indented more than
/// the key, or are entries of a list with the indentation of the first entry.
///
/// Only few bytes before the first secret are examined, because the next key examines them again.
/// The bytes after the secret aren't examined again.
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
            if secret_start.is_none() && line.next - from > FIRST {
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
            if secret_start.is_none() && line.next - from > FIRST {
                return None;
            }
        }
        end = value_end;
    }
    Some(Span { start: secret_start?, end })
}

/// Returns the range between two offsets without the quotes around it, and whether there were
/// quotes.
fn unquoted(bytes: &[u8], start: usize, end: usize) -> ((usize, usize), bool) {
    let spaces = bytes[start..end].iter().take_while(|byte| **byte == b' ').count();
    let text_start = start + spaces;
    match bytes[text_start..end] {
        [quote @ (b'"' | b'\''), .., last] if quote == last => ((text_start + 1, end - 1), true),
        _ => ((text_start, end), false),
    }
}

fn is_mapping(line: &[u8]) -> bool {
    count_examined(line.len());
    line.ends_with(b":") || line.windows(2).any(|two| two == b": ")
}

/// Returns the range from the first to the last secret in a list that starts at `at`, without
/// quotes. The list must not contain lists or objects.
pub(super) fn list(bytes: &[u8], at: usize, find_secret: FindSecret) -> Option<Span> {
    if bytes.get(at) != Some(&b'[') || mark::length(&bytes[at..]) > 0 {
        return None;
    }
    let mut span: Option<Span> = None;
    let mut next = skip_blank(bytes, at + 1);
    while span.is_some() || next - at < MAX {
        let Some(entry) = Entry::at(bytes, next) else { break };
        let sign_at = skip_blank(bytes, entry.next);
        let sign = bytes.get(sign_at);
        if !matches!(sign, Some(b',' | b']')) {
            break;
        }
        if let Some(secret_start) = find_secret(entry.start, entry.end, entry.is_quoted) {
            let start = span.map_or(secret_start, |span| span.start);
            span = Some(Span { start, end: entry.end });
        }
        if sign == Some(&b']') {
            break;
        }
        next = skip_blank(bytes, sign_at + 1);
    }
    count_examined(next - at);
    span
}

/// An entry of a list, without its quotes.
struct Entry {
    start: usize,
    end: usize,
    is_quoted: bool,
    /// Offset after the closing quote.
    next: usize,
}

impl Entry {
    /// Reads the entry that starts at `at`. Returns `None` if its quote isn't closed.
    fn at(bytes: &[u8], at: usize) -> Option<Self> {
        let slashes = bytes[at..].iter().take(8).take_while(|byte| **byte == b'\\').count();
        if let Some(quote @ (b'"' | b'\'')) = bytes.get(at + slashes) {
            let start = at + slashes + 1;
            let end = closing_quote(bytes, start, *quote, slashes)?;
            return Some(Self { start, end, is_quoted: true, next: end + slashes + 1 });
        }
        let next = at + bare_length(&bytes[at..]);
        let end = at + bytes[at..next].trim_ascii_end().len();
        Some(Self { start: at, end, is_quoted: false, next })
    }
}

/// Returns the length of an entry of a list without quotes.
fn bare_length(text: &[u8]) -> usize {
    let mut length = 0;
    while let Some(byte) = text.get(length)
        && length < MAX
    {
        match byte {
            b'[' => match mark::length(&text[length..]) {
                0 => break,
                mark => length += mark,
            },
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

/// Returns the text between triple quotes that begin at `at`.
pub(super) fn triple_quoted(bytes: &[u8], at: usize, find_secret: FindSecret) -> Option<Span> {
    let quotes @ (b"\"\"\"" | b"\'\'\'") = bytes[at..].first_chunk::<3>()? else { return None };
    let start = at + 3;
    let within = &bytes[start..bytes.len().min(start + MAX)];
    let length = within.windows(3).position(|three| three == quotes);
    count_examined(length.unwrap_or(within.len()));
    first_secret_line(bytes, start, start + length?, find_secret)
}

/// Returns the text after the quote at `at`, if a later line closes the quote.
pub(super) fn quoted_lines(bytes: &[u8], at: usize, find_secret: FindSecret) -> Option<Span> {
    let quote = bytes[at];
    let start = at + 1;
    if closing_quote(bytes, start, quote, 0).is_some() {
        return None;
    }
    let within = &bytes[start..bytes.len().min(start + MAX)];
    let line_end = within.iter().position(|byte| *byte == b'\n')?;
    let length =
        (line_end..within.len()).find(|at| within[*at] == quote && within[*at - 1] != b'\\');
    count_examined(length.unwrap_or(within.len()));
    first_secret_line(bytes, start, start + length?, find_secret)
}

/// Returns the lines of a quoted text from the first secret to the end.
fn first_secret_line(
    bytes: &[u8],
    start: usize,
    end: usize,
    find_secret: FindSecret,
) -> Option<Span> {
    let (_, end) = trimmed(bytes, start, end);
    let mut at = start;
    while at < end {
        let line = Line::at(&bytes[..end], at)?;
        // The first line begins after the quote, and has no line number.
        let from = if at == start { at } else { line.start };
        if let Some(start) = find_secret(from.min(end), line.end, true) {
            return Some(Span { start, end });
        }
        at = line.next;
    }
    None
}

/// Returns the range between two offsets without white space, quotes and line numbers at its ends.
pub(super) fn trimmed(bytes: &[u8], mut start: usize, mut end: usize) -> (usize, usize) {
    while start < end && is_edge(bytes[start]) {
        start += 1;
        if bytes[start - 1] == b'\n' {
            start = end.min(start + number_at(bytes, start));
        }
    }
    loop {
        let last = end - bytes[start..end].iter().rev().take_while(|byte| is_edge(**byte)).count();
        let mut last_bytes = bytes[start..last].iter().rev().take(NUMBER);
        let Some(line_length) = last_bytes.position(|byte| *byte == b'\n') else {
            return (start, last);
        };
        let line_start = last - line_length;
        let is_only_number = line_start + numbered(&bytes[line_start..end]) >= last;
        if !is_only_number {
            return (start, last);
        }
        end = line_start - 1;
    }
}

fn is_edge(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'' | b',' | b'\\')
}

/// Returns the length of the line number at `at`.
fn number_at(bytes: &[u8], at: usize) -> usize {
    let near = &bytes[at..bytes.len().min(at + NUMBER)];
    let line_end = near.iter().position(|byte| *byte == b'\n').unwrap_or(near.len());
    numbered(&near[..line_end])
}

/// The content and indentation of a line, without the line number that `read` and `grep` write.
struct Line {
    start: usize,
    end: usize,
    indent: usize,
    next: usize,
}

impl Line {
    fn at(bytes: &[u8], at: usize) -> Option<Self> {
        let rest = bytes.get(at..)?;
        if rest.is_empty() {
            return None;
        }
        let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        count_examined(length);
        let line = rest[..length].trim_ascii_end();
        let number = numbered(line);
        let indent = line[number..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        Some(Self {
            start: at + number + indent,
            end: at + line.len(),
            indent,
            next: at + length + 1,
        })
    }

    fn is_blank(&self) -> bool {
        self.start >= self.end
    }
}

/// Returns the length of a line number: `  12\t`, `+   12\t` in a change, and `path:12: ` or
/// `path-12- ` in a search.
pub(super) fn numbered(line: &[u8]) -> usize {
    let sign = usize::from(matches!(line, [b'+' | b'-', b' ', ..]));
    let spaces = sign + line[sign..].iter().take(8).take_while(|byte| **byte == b' ').count();
    let digits = line[spaces..].iter().take(10).take_while(|byte| byte.is_ascii_digit()).count();
    if digits > 0 && line.get(spaces + digits) == Some(&b'\t') {
        return spaces + digits + 1;
    }
    for (at, sign) in line.iter().enumerate().take(NUMBER) {
        if matches!(sign, b':' | b'-') && at > 0 {
            let digits =
                line[at + 1..].iter().take(10).take_while(|byte| byte.is_ascii_digit()).count();
            if digits > 0 && line[at + 1 + digits..].starts_with(&[*sign, b' ']) {
                return at + digits + 3;
            }
        } else if matches!(sign, b' ' | b'\t' | b'"') {
            return 0;
        }
    }
    0
}

/// Returns the end of a quoted value. The closing quote is on the same line, and has as many
/// backslashes before it as the first quote.
pub(super) fn closing_quote(
    bytes: &[u8],
    start: usize,
    quote: u8,
    escaped: usize,
) -> Option<usize> {
    let mut slashes = 0;
    for (offset, byte) in bytes[start..].iter().take(MAX_QUOTED).enumerate() {
        count_examined(1);
        match *byte {
            b'\\' => slashes += 1,
            b'\n' => return None,
            byte if byte == quote && slashes <= escaped => {
                return Some(start + offset - slashes.min(escaped));
            }
            _ => slashes = 0,
        }
        if *byte == quote {
            slashes = 0;
        }
    }
    None
}
