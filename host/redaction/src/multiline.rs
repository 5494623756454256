//! Values in files of settings that don't end in the line of their key: blocks, lists and texts
//! over several lines.

use super::found::looked_at;
use super::mark;

/// Bytes within which a quoted value has to end; otherwise the quote was no quote.
const MAX_QUOTED: usize = 16 * 1024;

/// Bytes within which a quoted text of several lines has to end, and the first secret of a list or
/// a block to begin.
const MAX: usize = 4096;

/// Bytes within which the first secret of a block has to begin, or of a list over lines: keys in
/// blocks of keys look at the same lines.
const FIRST: usize = 1024;

/// Bytes of a line's number, with the name of its file.
const NUMBER: usize = 1024;

/// Where a value stands.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Where the first secret begins in what stands between two offsets, quoted or not.
pub(super) type Judge<'a> = &'a dyn Fn(usize, usize, bool) -> Option<usize>;

/// The value of a key that begins at `key`, where nothing of it stands behind its sign at `at`, or
/// only that a block follows. `apart`: it ends by itself, as JSON and XML have it, so that its
/// indentation says nothing. `list`: only entries of a list count.
pub(super) fn below(
    bytes: &[u8],
    key: usize,
    at: usize,
    apart: bool,
    list: bool,
    judge: Judge,
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
    looked_at(before);
    let indented = Line::at(bytes, key - before)?.indent;
    let mut line = Line::at(bytes, rest + 1)?;
    while line.is_blank() {
        line = Line::at(bytes, line.next).filter(|line| line.start - at < FIRST)?;
    }
    let first = &bytes[line.start..line.end];
    if !indicator {
        let quote = first[0];
        if first.starts_with(b"- ") {
            return if !apart && line.indent >= indented {
                lines(bytes, line, indented, true, true, judge)
            } else {
                None
            };
        }
        if list {
            return None;
        }
        if matches!(quote, b'"' | b'\'') {
            let end = closed(bytes, line.start + 1, quote, 0)
                .filter(|_| apart || line.indent > indented)?;
            return Some(Span { start: judge(line.start + 1, end, true)?, end });
        }
        if apart {
            let end = line.start + first.iter().take_while(|byte| **byte != b'<').count();
            return Some(Span { start: judge(line.start, end, false)?, end });
        }
        // What follows is a part of the settings, and no value.
        if is_mapping(first) || matches!(quote, b'{' | b'[' | b'&' | b'*' | b'!' | b'#') {
            return None;
        }
    }
    if list || line.indent <= indented {
        return None;
    }
    lines(bytes, line, indented, false, !indicator, judge)
}

/// The lines from the first secret on to the end of the value: those that are indented further than
/// its key, or the entries of a list that are indented as the first.
///
/// Before the first secret, little is looked at, since it is looked at for the next key again;
/// behind it, nothing is.
fn lines(
    bytes: &[u8],
    first: Line,
    indented: usize,
    entries: bool,
    ends_at_key: bool,
    judge: Judge,
) -> Option<Span> {
    let from = first.start;
    let least = if entries { first.indent } else { indented + 1 };
    let (mut begin, mut end, mut next) = (None, 0, Some(first));
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
            begin = judge(within.0, within.1, quoted);
            if begin.is_none() && line.next - from > FIRST {
                return None;
            }
        }
        end = within.1;
    }
    Some(Span { start: begin?, end })
}

/// What stands between two offsets, without the quotes around it.
fn unquoted(bytes: &[u8], start: usize, end: usize) -> ((usize, usize), bool) {
    let start = start + bytes[start..end].iter().take_while(|byte| **byte == b' ').count();
    match bytes[start..end] {
        [quote @ (b'"' | b'\''), .., last] if quote == last => ((start + 1, end - 1), true),
        _ => ((start, end), false),
    }
}

fn is_mapping(line: &[u8]) -> bool {
    looked_at(line.len());
    line.ends_with(b":") || line.windows(2).any(|two| two == b": ")
}

/// What stands between the brackets of a list whose first one is at `at`, from the first secret to
/// the last: no lists, no objects. The quotes around both stay outside.
pub(super) fn list(bytes: &[u8], at: usize, judge: Judge) -> Option<Span> {
    if bytes.get(at) != Some(&b'[') || mark::length(&bytes[at..]) > 0 {
        return None;
    }
    let mut span: Option<Span> = None;
    let mut next = blank(bytes, at + 1);
    while span.is_some() || next - at < MAX {
        let slashes = bytes[next..].iter().take(8).take_while(|byte| **byte == b'\\').count();
        let quote = bytes.get(next + slashes).copied().filter(|byte| matches!(byte, b'"' | b'\''));
        let begin = if quote.is_some() { next + slashes + 1 } else { next };
        let (end, behind) = match quote {
            Some(quote) => {
                let Some(end) = closed(bytes, begin, quote, slashes) else { break };
                (end, end + slashes + 1)
            }
            None => {
                let end = begin + bare(&bytes[begin..]);
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
        let behind = blank(bytes, behind);
        let sign = bytes.get(behind);
        if !matches!(sign, Some(b',' | b']')) {
            break;
        }
        if let Some(start) = judge(begin, end, quote.is_some()) {
            let start = span.map_or(start, |span| span.start);
            span = Some(Span { start, end });
        }
        if sign == Some(&b']') {
            break;
        }
        next = blank(bytes, behind + 1);
    }
    looked_at(next - at);
    span
}

/// The bytes of a list's entry without quotes.
fn bare(text: &[u8]) -> usize {
    let mut length = 0;
    while let Some(byte) = text.get(length).filter(|_| length < MAX) {
        match byte {
            b'[' => match mark::length(&text[length..]) {
                0 => break,
                mark => length += mark,
            },
            b',' | b']' | b'{' | b'}' | b'"' | b'\'' | b'\n' => break,
            _ => length += 1,
        }
    }
    looked_at(length);
    length
}

/// Where something comes behind white space, and the numbers of lines in it.
fn blank(bytes: &[u8], mut at: usize) -> usize {
    while let Some(byte) = bytes.get(at).filter(|byte| byte.is_ascii_whitespace()) {
        at += 1;
        if *byte == b'\n' {
            at += number_at(bytes, at);
        }
    }
    at
}

/// The text between three quotes that begin at `at`, over lines.
pub(super) fn tripled(bytes: &[u8], at: usize, judge: Judge) -> Option<Span> {
    let quotes =
        bytes[at..].first_chunk::<3>().filter(|three| matches!(*three, b"\"\"\"" | b"\'\'\'"))?;
    let within = &bytes[at + 3..bytes.len().min(at + 3 + MAX)];
    let end = within.windows(3).position(|three| three == quotes);
    looked_at(end.unwrap_or(within.len()));
    over(bytes, at + 3, at + 3 + end?, judge)
}

/// The text behind the quote at `at`, which its own line doesn't close, but a later one does.
pub(super) fn open(bytes: &[u8], at: usize, judge: Judge) -> Option<Span> {
    let quote = bytes[at];
    let start = at + 1;
    if closed(bytes, start, quote, 0).is_some() {
        return None;
    }
    let within = &bytes[start..bytes.len().min(start + MAX)];
    let first = within.iter().position(|byte| *byte == b'\n')?;
    let end = (first..within.len()).find(|end| within[*end] == quote && within[*end - 1] != b'\\');
    looked_at(end.unwrap_or(within.len()));
    over(bytes, start, start + end?, judge)
}

/// The lines of a quoted text from the first secret on.
fn over(bytes: &[u8], start: usize, end: usize, judge: Judge) -> Option<Span> {
    let (_, end) = trimmed(bytes, start, end);
    let mut at = start;
    while at < end {
        let line = Line::at(&bytes[..end], at)?;
        // The first one begins behind the quote, and has no number.
        let from = if at == start { at } else { line.start };
        if let Some(start) = judge(from.min(end), line.end, true) {
            return Some(Span { start, end });
        }
        at = line.next;
    }
    None
}

/// What stands between two offsets without white space, quotes and numbers of lines at its ends.
pub(super) fn trimmed(bytes: &[u8], mut start: usize, mut end: usize) -> (usize, usize) {
    let edge =
        |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'' | b',' | b'\\');
    while start < end && edge(&bytes[start]) {
        start += 1;
        if bytes[start - 1] == b'\n' {
            start = end.min(start + number_at(bytes, start));
        }
    }
    loop {
        let last = end - bytes[start..end].iter().rev().take_while(|byte| edge(byte)).count();
        let line = bytes[start..last]
            .iter()
            .rev()
            .take(NUMBER)
            .position(|byte| *byte == b'\n')
            .map(|back| last - back);
        match line {
            // The end of a line, and nothing but the number of the next.
            Some(line) if line + numbered(&bytes[line..end]) >= last => end = line - 1,
            _ => return (start, last.max(start)),
        }
    }
}

/// The bytes of the number of the line that begins at `at`.
fn number_at(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..bytes.len().min(at + NUMBER)];
    numbered(&rest[..rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())])
}

/// A line without its number, as `read` and `grep` put it before: what it holds, and how far that
/// is indented.
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

/// The bytes of a line's number: `  12\t`, in a change `+   12\t`, in a search `path:12: ` and
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

/// Where a quoted value ends: at a quote behind as many backslashes as the first one had, on the
/// same line.
pub(super) fn closed(bytes: &[u8], start: usize, quote: u8, escaped: usize) -> Option<usize> {
    let mut slashes = 0;
    for (offset, byte) in bytes[start..].iter().take(MAX_QUOTED).enumerate() {
        looked_at(1);
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
