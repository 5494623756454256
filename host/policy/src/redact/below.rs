//! Values in files of settings that don't end in the line of their key: blocks, lists and texts over several lines.

use super::find::looked_at;
use super::keys::closed;
use super::mark;

/// Bytes within which a list, or a quoted text of several lines, has to end.
const MAX: usize = 4096;

/// Where a value stands, and how much of its beginning tells what it is.
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Where the first of its lines, or of its entries, begins and ends.
    pub(super) first: (usize, usize),
    pub(super) quoted: bool,
}

impl Span {
    fn of(start: usize, end: usize, quoted: bool) -> Option<Self> {
        (start < end).then_some(Self { start, end, first: (start, end), quoted })
    }
}

/// The value of a key that begins at `key`, where nothing of it stands behind its sign at `at`, or only that a block follows.
/// `apart`: it ends by itself, as JSON and XML have it, so that its indentation says nothing.
pub(super) fn below(bytes: &[u8], key: usize, at: usize, apart: bool) -> Option<Span> {
    let indicator = matches!(bytes.get(at), Some(b'|' | b'>'));
    let rest = at + usize::from(indicator);
    let rest =
        rest + bytes[rest..].iter().take(8).take_while(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b' ' | b'\t' | b'\r')).count();
    if bytes.get(rest) != Some(&b'\n') || !indicator && rest > at + 1 {
        return None;
    }
    let before = bytes[..key].iter().rev().take(MAX).take_while(|byte| **byte != b'\n').count();
    looked_at(before);
    let indented = Line::at(bytes, key - before)?.indent;
    let mut line = Line::at(bytes, rest + 1)?;
    while line.is_blank() {
        line = Line::at(bytes, line.next)?;
    }
    let first = &bytes[line.start..line.end];
    if !indicator {
        if let Some(quote @ (b'"' | b'\'')) = first.first().copied() {
            return Span::of(line.start + 1, closed(bytes, line.start + 1, quote, 0)?, true).filter(|_| apart || line.indent > indented);
        }
        if apart {
            let length = first.iter().take_while(|byte| **byte != b'<').count();
            return Span::of(line.start, line.start + length, false);
        }
        if first.starts_with(b"- ") {
            return (line.indent >= indented).then(|| entries(bytes, line)).flatten();
        }
        // What follows is a part of the settings, and no value.
        if is_mapping(first) || matches!(first[0], b'{' | b'[' | b'&' | b'*' | b'!' | b'#') {
            return None;
        }
    }
    if line.indent <= indented {
        return None;
    }
    let mut span = Span::of(line.start, line.end, false)?;
    while let Some(more) = Line::at(bytes, line.next) {
        if !more.is_blank() {
            if more.indent <= indented || !indicator && is_mapping(&bytes[more.start..more.end]) {
                break;
            }
            span.end = more.end;
        }
        line = more;
    }
    Some(span)
}

/// The entries of a list, each behind a dash in its own line.
fn entries(bytes: &[u8], mut line: Line) -> Option<Span> {
    let within = |line: &Line| (line.start + 2, line.end);
    let indent = line.indent;
    if is_mapping(&bytes[line.start..line.end]) {
        return None;
    }
    let mut span = Span::of(line.start + 2, line.end, false)?;
    while let Some(more) = Line::at(bytes, line.next).filter(|more| more.indent == indent && bytes[more.start..more.end].starts_with(b"- "))
    {
        span.end = within(&more).1;
        line = more;
    }
    Some(span)
}

fn is_mapping(line: &[u8]) -> bool {
    line.ends_with(b":") || line.windows(2).any(|two| two == b": ")
}

/// What stands between the brackets of a list whose first one is at `at`: no lists, no objects. Its quotes stay outside.
pub(super) fn list(bytes: &[u8], at: usize) -> Option<Span> {
    if bytes.get(at) != Some(&b'[') || mark::length(&bytes[at..]) > 0 {
        return None;
    }
    let within = &bytes[at + 1..bytes.len().min(at + 1 + MAX)];
    let end = within.iter().position(|byte| matches!(byte, b']' | b'[' | b'{' | b'}'));
    looked_at(end.unwrap_or(within.len()));
    let end = end.filter(|end| within[*end] == b']')?;
    let quote = |byte: &u8| matches!(byte, b'"' | b'\'' | b'\\') || byte.is_ascii_whitespace();
    let start = within[..end].iter().position(|byte| !quote(byte))?;
    let last = within[..end].iter().rposition(|byte| !quote(byte))? + 1;
    let first = start + within[start..last].iter().position(|byte| matches!(byte, b',' | b'"' | b'\'')).unwrap_or(last - start);
    let quoted = start > 0 && matches!(within[start - 1], b'"' | b'\'');
    let at = at + 1;
    Some(Span { start: at + start, end: at + last, first: (at + start, at + first), quoted })
}

/// The text between three quotes that begin at `at`, over lines.
pub(super) fn tripled(bytes: &[u8], at: usize) -> Option<Span> {
    let quotes = bytes[at..].first_chunk::<3>().filter(|three| matches!(*three, b"\"\"\"" | b"'''"))?;
    let within = &bytes[at + 3..bytes.len().min(at + 3 + MAX)];
    let end = within.windows(3).position(|three| three == quotes);
    looked_at(end.unwrap_or(within.len()));
    let within = &within[..end?];
    let text = within.trim_ascii();
    let start = at + 3 + (within.len() - within.trim_ascii_start().len());
    Span::of(start, start + text.len(), true)
}

/// The text behind the quote at `at`, which its own line doesn't close, but a later one does.
pub(super) fn open(bytes: &[u8], at: usize) -> Option<Span> {
    let quote = bytes[at];
    let start = at + 1;
    if closed(bytes, start, quote, 0).is_some() {
        return None;
    }
    let within = &bytes[start..bytes.len().min(start + MAX)];
    let first = within.iter().position(|byte| *byte == b'\n')?;
    let end = (first..within.len()).find(|end| within[*end] == quote && within[*end - 1] != b'\\');
    looked_at(end.unwrap_or(within.len()));
    Some(Span { start, end: start + end?, first: (start, start + first), quoted: true })
}

/// A line without its number, as `read` and `grep` put it before: what it holds, and how far that is indented.
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
        looked_at(length);
        let line = rest[..length].trim_ascii_end();
        let number = numbered(line);
        let indent = line[number..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        Some(Self { start: at + number + indent, end: at + line.len(), indent, next: at + length + 1 })
    }

    fn is_blank(&self) -> bool {
        self.start >= self.end
    }
}

/// The bytes of a line's number: `  12\t`, `path:12: `, `path-12- `.
pub(super) fn numbered(line: &[u8]) -> usize {
    let spaces = line.iter().take(8).take_while(|byte| **byte == b' ').count();
    let digits = line[spaces..].iter().take(10).take_while(|byte| byte.is_ascii_digit()).count();
    if digits > 0 && line.get(spaces + digits) == Some(&b'\t') {
        return spaces + digits + 1;
    }
    for (at, sign) in line.iter().enumerate().take(1024) {
        if matches!(sign, b':' | b'-') && at > 0 {
            let digits = line[at + 1..].iter().take(10).take_while(|byte| byte.is_ascii_digit()).count();
            if digits > 0 && line[at + 1 + digits..].starts_with(&[*sign, b' ']) {
                return at + digits + 3;
            }
        } else if matches!(sign, b' ' | b'\t' | b'"') {
            return 0;
        }
    }
    0
}
