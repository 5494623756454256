//! Finds secret values in files of settings that continue after the line of their key: blocks,
//! lists and texts of several lines.

use super::found::count_examined;
use super::mark;

/// Bytes in which a quoted value has to end. Otherwise its first quote isn't a quote.
const MAX_QUOTED: usize = 16 * 1024;

/// Bytes in which a quoted text of several lines has to end, and the first secret of a list or a
/// block has to begin.
const MAX: usize = 4096;

/// Bytes in which the first secret of a block or of a list over lines has to begin. It is smaller,
/// since keys in nested blocks examine the same lines again.
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

/// The value of the key at `key` that is on the lines below it. After the sign of the key at `at`,
/// there is nothing, or only the sign of a block. `is_delimited`: the value has its own end, as in
/// JSON and XML, so its indentation doesn't matter. `is_list`: only entries of a list count.
pub(super) fn below(
    bytes: &[u8],
    key: usize,
    at: usize,
    is_delimited: bool,
    is_list: bool,
    find_secret: FindSecret,
) -> Option<Span> {
    let indicator = matches!(bytes.get(at), Some(b'|' | b'>'));
    let rest = at + usize::from(indicator);
    let rest = rest
        + bytes[rest..]
            .iter()
            .take(8)
            .take_while(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b' ' | b'\t' | b'\r'))
            .count();
    if bytes.get(rest) != Some(&b'\n') || !indicator && rest > at + 1 {
        return None;
    }
    let before = bytes[..key].iter().rev().take(MAX).take_while(|byte| **byte != b'\n').count();
    count_examined(before);
    let indented = Line::at(bytes, key - before)?.indent;
    let mut line = Line::at(bytes, rest + 1)?;
    while line.is_blank() {
        line = Line::at(bytes, line.next).filter(|line| line.start - at < FIRST)?;
    }
    let first = &bytes[line.start..line.end];
    if !indicator {
        let quote = first[0];
        if first.starts_with(b"- ") {
            return if !is_delimited && line.indent >= indented {
                lines(bytes, line, indented, true, true, find_secret)
            } else {
                None
            };
        }
        if is_list {
            return None;
        }
        if matches!(quote, b'"' | b'\'') {
            let end = closing_quote(bytes, line.start + 1, quote, 0)?;
            if !is_delimited && line.indent <= indented {
                return None;
            }
            return Some(Span { start: find_secret(line.start + 1, end, true)?, end });
        }
        if is_delimited {
            let end = line.start + first.iter().take_while(|byte| **byte != b'<').count();
            return Some(Span { start: find_secret(line.start, end, false)?, end });
        }
        // The next lines are other settings, and not a value.
        if is_mapping(first) || matches!(quote, b'{' | b'[' | b'&' | b'*' | b'!' | b'#') {
            return None;
        }
    }
    if is_list || line.indent <= indented {
        return None;
    }
    lines(bytes, line, indented, false, !indicator, find_secret)
}

/// The lines of a value from the first secret to the end. They are indented more than the key, or
/// are entries of a list with the indentation of the first entry.
///
/// Few bytes before the first secret are examined, since the next key examines them again. The
/// bytes after it aren't examined again.
fn lines(
    bytes: &[u8],
    first: Line,
    indented: usize,
    entries: bool,
    ends_at_key: bool,
    find_secret: FindSecret,
) -> Option<Span> {
    let from = first.start;
    let least = if entries { first.indent } else { indented + 1 };
    let mut begin = None;
    let mut end = 0;
    let mut next = Some(first);
    while let Some(line) = next {
        next = Line::at(bytes, line.next);
        if line.is_blank() {
            if begin.is_none() && line.next - from > FIRST {
                return None;
            }
            continue;
        }
        let text = &bytes[line.start..line.end];
        let (within, quoted) = match text {
            [b'-', b' ', ..] if entries && line.indent == least => {
                unquoted(bytes, line.start + 2, line.end)
            }
            [b'#', ..] if entries && line.indent == least => continue,
            _ if entries && line.indent == least => break,
            _ => ((line.start, line.end), false),
        };
        if line.indent < least || ends_at_key && is_mapping(text) {
            break;
        }
        if begin.is_none() {
            begin = find_secret(within.0, within.1, quoted);
            if begin.is_none() && line.next - from > FIRST {
                return None;
            }
        }
        end = within.1;
    }
    Some(Span { start: begin?, end })
}

/// The range between two offsets without quotes around it, and whether it had quotes.
fn unquoted(bytes: &[u8], start: usize, end: usize) -> ((usize, usize), bool) {
    let start = start + bytes[start..end].iter().take_while(|byte| **byte == b' ').count();
    match bytes[start..end] {
        [quote @ (b'"' | b'\''), .., last] if quote == last => ((start + 1, end - 1), true),
        _ => ((start, end), false),
    }
}

fn is_mapping(line: &[u8]) -> bool {
    count_examined(line.len());
    line.ends_with(b":") || line.windows(2).any(|two| two == b": ")
}

/// The range from the first to the last secret in a list that begins at `at`, without their quotes.
/// The list must not contain lists or objects.
pub(super) fn list(bytes: &[u8], at: usize, find_secret: FindSecret) -> Option<Span> {
    if bytes.get(at) != Some(&b'[') || mark::length(&bytes[at..]) > 0 {
        return None;
    }
    let mut span: Option<Span> = None;
    let mut next = skip_blank(bytes, at + 1);
    while span.is_some() || next - at < MAX {
        let slashes = bytes[next..].iter().take(8).take_while(|byte| **byte == b'\\').count();
        let quote = bytes.get(next + slashes).copied().filter(|byte| matches!(byte, b'"' | b'\''));
        let begin = if quote.is_some() { next + slashes + 1 } else { next };
        let (end, after) = match quote {
            Some(quote) => {
                let Some(end) = closing_quote(bytes, begin, quote, slashes) else { break };
                (end, end + slashes + 1)
            }
            None => {
                let end = begin + bare_length(&bytes[begin..]);
                (
                    end - bytes[begin..end]
                        .iter()
                        .rev()
                        .take_while(|byte| byte.is_ascii_whitespace())
                        .count(),
                    end,
                )
            }
        };
        let after = skip_blank(bytes, after);
        let sign = bytes.get(after);
        if !matches!(sign, Some(b',' | b']')) {
            break;
        }
        if let Some(start) = find_secret(begin, end, quote.is_some()) {
            let start = span.map_or(start, |span| span.start);
            span = Some(Span { start, end });
        }
        if sign == Some(&b']') {
            break;
        }
        next = skip_blank(bytes, after + 1);
    }
    count_examined(next - at);
    span
}

/// Length of an entry of a list without quotes.
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

/// The offset after white space and the line numbers in it.
fn skip_blank(bytes: &[u8], mut at: usize) -> usize {
    while let Some(byte) = bytes.get(at).filter(|byte| byte.is_ascii_whitespace()) {
        at += 1;
        if *byte == b'\n' {
            at += number_at(bytes, at);
        }
    }
    at
}

/// The text between triple quotes that begin at `at`.
pub(super) fn triple_quoted(bytes: &[u8], at: usize, find_secret: FindSecret) -> Option<Span> {
    let quotes =
        bytes[at..].first_chunk::<3>().filter(|three| matches!(*three, b"\"\"\"" | b"\'\'\'"))?;
    let within = &bytes[at + 3..bytes.len().min(at + 3 + MAX)];
    let end = within.windows(3).position(|three| three == quotes);
    count_examined(end.unwrap_or(within.len()));
    first_secret_line(bytes, at + 3, at + 3 + end?, find_secret)
}

/// The text after the quote at `at`, if a later line closes the quote.
pub(super) fn quoted_lines(bytes: &[u8], at: usize, find_secret: FindSecret) -> Option<Span> {
    let quote = bytes[at];
    let start = at + 1;
    if closing_quote(bytes, start, quote, 0).is_some() {
        return None;
    }
    let within = &bytes[start..bytes.len().min(start + MAX)];
    let first = within.iter().position(|byte| *byte == b'\n')?;
    let end = (first..within.len()).find(|end| within[*end] == quote && within[*end - 1] != b'\\');
    count_examined(end.unwrap_or(within.len()));
    first_secret_line(bytes, start, start + end?, find_secret)
}

/// The lines of a quoted text from the first secret to the end.
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

/// The range between two offsets without white space, quotes and line numbers at its ends.
pub(super) fn trimmed(bytes: &[u8], mut start: usize, mut end: usize) -> (usize, usize) {
    while start < end && is_edge(bytes[start]) {
        start += 1;
        if bytes[start - 1] == b'\n' {
            start = end.min(start + number_at(bytes, start));
        }
    }
    loop {
        let last = end - bytes[start..end].iter().rev().take_while(|byte| is_edge(**byte)).count();
        let line = bytes[start..last]
            .iter()
            .rev()
            .take(NUMBER)
            .position(|byte| *byte == b'\n')
            .map(|back| last - back);
        match line {
            // The end of a line, and only the number of the next line.
            Some(line) if line + numbered(&bytes[line..end]) >= last => end = line - 1,
            _ => return (start, last.max(start)),
        }
    }
}

fn is_edge(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'' | b',' | b'\\')
}

/// Length of the line number at `at`.
fn number_at(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..bytes.len().min(at + NUMBER)];
    numbered(&rest[..rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())])
}

/// A line without the line number that `read` and `grep` write: its content and its indentation.
struct Line {
    start: usize,
    end: usize,
    indent: usize,
    next: usize,
}

impl Line {
    fn at(bytes: &[u8], at: usize) -> Option<Self> {
        let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
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

/// Length of a line number: `  12\t`, in a change `+   12\t`, in a search `path:12: ` and
/// `path-12- `.
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

/// The end of a quoted value: a quote on the same line, after as many backslashes as the first
/// quote has.
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
