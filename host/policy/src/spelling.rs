//! What the characters of a text stand for: the escapes of JSON, HTML, URLs, programming languages
//! and quoted-printable, also within each other. `%252B`, `&#x2B;`, `\u002B` and `\\u002b` are each
//! a plus sign.
//!
//! Nothing says how often a text was written so, and by which rules. So each place has several
//! readings: `\\u002B` begins with a backslash, and is a plus sign.

use std::cell::Cell;

/// How often escapes are taken apart: `\u002B` once, in JSON in JSON twice.
pub const DEPTH: usize = 4;

/// Bytes that stand for one character, at most: room for `&#x002B;` of which each byte is written
/// so, and each byte of that.
pub const REACH: usize = 512;

/// Digits of a number: `&#x0000002B;` has so many.
const DIGITS: usize = 8;

/// Readings of one place that are taken further: what is an escape again.
const BEGUN: usize = 4;

/// Whether something else than itself may begin with this byte.
pub const fn is_escape(byte: u8) -> bool {
    matches!(byte, b'\\' | b'&' | b'%' | b'=')
}

/// One way to read what begins at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    bytes: [u8; 4],
    length: u8,
    /// Where the text goes on.
    pub end: usize,
}

impl Reading {
    /// What it stands for.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    fn of_byte(byte: u8, end: usize) -> Self {
        Self { bytes: [byte, 0, 0, 0], length: 1, end }
    }

    fn of_char(code: u32, end: usize) -> Option<Self> {
        let mut bytes = [0; 4];
        let length = char::from_u32(code)?.encode_utf8(&mut bytes).len();
        Some(Self { bytes, length: length as u8, end })
    }

    fn ascii(&self) -> Option<(u8, usize)> {
        (self.length == 1 && self.bytes[0].is_ascii()).then_some((self.bytes[0], self.end))
    }
}

/// The escapes of a text.
#[derive(Debug, Default)]
pub struct Readings {
    /// For each place of the text the index of its escape, if one may begin there.
    indexes: Vec<u32>,
    escapes: Vec<Escape>,
}

/// No escape.
const NONE: u32 = u32::MAX;

/// What may be an escape.
#[derive(Debug)]
struct Escape {
    start: usize,
    /// What it stands for where the text was taken apart so often as was looked at so far.
    latest: Option<Reading>,
    all: Vec<Reading>,
    /// Whether another look finds no more.
    done: bool,
}

impl Readings {
    /// Looks through a text, in a time that is linear in its length.
    pub fn new(text: &[u8]) -> Self {
        Self::to_depth(text, DEPTH)
    }

    fn to_depth(text: &[u8], depth: usize) -> Self {
        let mut readings = Self { indexes: vec![NONE; text.len()], escapes: Vec::new() };
        for (start, _) in text
            .iter()
            .enumerate()
            .filter(|(start, byte)| is_escape(**byte) && may_be_one(&text[*start..]))
        {
            readings.indexes[start] = readings.escapes.len() as u32;
            readings.escapes.push(Escape { start, latest: None, all: Vec::new(), done: false });
        }
        let mut pending: Vec<usize> = (0..readings.escapes.len()).collect();
        for _ in 0..depth {
            if pending.is_empty() {
                break;
            }
            pending.retain(|index| {
                readings.look(text, *index);
                !readings.escapes[*index].done
            });
        }
        readings
    }

    /// Takes an escape apart once more. What lies behind it was not looked at in this round: it is
    /// what the round before made of it.
    fn look(&mut self, text: &[u8], index: usize) {
        let Escape { start, latest, ref all, .. } = self.escapes[index];
        let place = Place { text, readings: self, start, unsure: Cell::new(false) };
        let (mut deeper, mut again) = (Found::default(), Found::default());
        // The latest one first; another one is it where `\\=2B` was `\=2B`, and not a backslash and
        // a plus sign.
        let others = all.iter().filter(|reading| Some(**reading) != latest);
        let begun = latest
            .iter()
            .chain(others)
            .filter_map(Reading::ascii)
            .filter(|(byte, _)| is_escape(*byte));
        begun.take(BEGUN).for_each(|(byte, at)| place.read(byte, at, &mut deeper));
        // More of it may be readable by now than was in the round before: `&#4\u0033;` is 4 and
        // more, and then 43.
        place.read(text[start], start + 1, &mut again);
        // The likeliest is what the latest goes on to, or else the one that explains most of the
        // text.
        let longest =
            || [latest, again.likely].into_iter().flatten().max_by_key(|reading| reading.end);
        let likely = deeper.likely.or_else(longest);
        let unsure = place.unsure.get();
        let escape = &mut self.escapes[index];
        escape.latest = likely;
        let mut more = false;
        for reading in deeper.iter().chain(again.iter()) {
            if !escape.all.contains(reading) {
                escape.all.push(*reading);
                more |= reading.ascii().is_some_and(|(byte, _)| is_escape(byte));
            }
        }
        escape.done = !more && !unsure;
    }

    /// What may be read at a place beside the byte itself.
    pub fn at(&self, place: usize) -> &[Reading] {
        match self.indexes.get(place) {
            Some(index) if *index != NONE => &self.escapes[*index as usize].all,
            _ => &[],
        }
    }
}

/// Whether an escape may begin with what begins so. Most that could begin one don't, as the signs
/// of equality in HTML.
fn may_be_one(text: &[u8]) -> bool {
    // Behind another escape is not the next byte.
    let is_hex =
        |at: usize| text.get(at).is_some_and(|byte| is_escape(*byte) || byte.is_ascii_hexdigit());
    match (text[0], text.get(1)) {
        (_, None) => false,
        (_, Some(next)) if is_escape(*next) => true,
        (b'%', Some(b'u' | b'U')) => true,
        (b'%' | b'=', _) => is_hex(1) && is_hex(2),
        (b'&', Some(next)) => *next == b'#' || next.is_ascii_alphabetic(),
        _ => true,
    }
}

/// What a look has found.
#[derive(Default)]
struct Found {
    readings: [Option<Reading>; 8],
    count: usize,
    /// The longest of those that programs write; others are read that way by some.
    likely: Option<Reading>,
}

impl Found {
    fn iter(&self) -> impl Iterator<Item = &Reading> {
        self.readings.iter().flatten()
    }

    fn add(&mut self, reading: Option<Reading>) {
        self.likely =
            [self.likely, reading].into_iter().flatten().max_by_key(|reading| reading.end);
        self.add_unlikely(reading);
    }

    fn add_unlikely(&mut self, reading: Option<Reading>) {
        if reading.is_some() && self.count < self.readings.len() {
            self.readings[self.count] = reading;
            self.count += 1;
        }
    }
}

/// `text` with its escapes taken apart once. `None` where it has none.
pub fn decoded(text: &str) -> Option<String> {
    let readings = Readings::to_depth(text.as_bytes(), 1);
    let mut out = Vec::with_capacity(text.len());
    let (mut from, mut any) = (0, false);
    for Escape { start, latest, .. } in &readings.escapes {
        if let Some(reading) = latest.filter(|_| *start >= from) {
            out.extend_from_slice(&text.as_bytes()[from..*start]);
            out.extend_from_slice(reading.bytes());
            (from, any) = (reading.end, true);
        }
    }
    out.extend_from_slice(&text.as_bytes()[from..]);
    any.then(|| String::from_utf8_lossy(&out).into_owned())
}

/// A place that is looked at.
struct Place<'t> {
    text: &'t [u8],
    readings: &'t Readings,
    start: usize,
    /// Whether something was looked at that may be read in another way in the next round.
    unsure: Cell<bool>,
}

/// A number: its value, how many digits it has, and where it ends.
type Number = (u32, usize, usize);

impl Place<'_> {
    /// What an escape stands for that begins here with a byte, behind which the text goes on at
    /// `at`.
    fn read(&self, byte: u8, at: usize, found: &mut Found) {
        match byte {
            b'%' | b'=' => {
                found.add(self.code(at, 2).map(|(code, end)| Reading::of_byte(code as u8, end)));
                if byte == b'%' {
                    found.add(self.sign(at, b"uU").and_then(|at| self.unit(at)));
                }
            }
            b'&' => self.entity(at, found),
            b'\\' => self.backslash(at, found),
            _ => {}
        }
    }

    /// The byte of ASCII that the round before made of a place, and where the next one is. None
    /// where that is too far away.
    fn byte(&self, at: usize) -> Option<(u8, usize)> {
        let plain = *self.text.get(at)?;
        let (byte, end) = match self.readings.indexes[at] {
            NONE => (plain, at + 1),
            index => {
                let escape = &self.readings.escapes[index as usize];
                self.unsure.set(self.unsure.get() || !escape.done);
                escape.latest.map_or(Some((plain, at + 1)), |reading| reading.ascii())?
            }
        };
        (end - self.start <= REACH).then_some((byte, end))
    }

    /// Where the text goes on behind a place, where one of these bytes is there.
    fn sign(&self, at: usize, any: &[u8]) -> Option<usize> {
        self.byte(at).filter(|(byte, _)| any.contains(byte)).map(|(_, end)| end)
    }

    /// A number of as many digits as there are, at most so many.
    fn number(&self, at: usize, radix: u32, most: usize) -> Option<Number> {
        let (mut value, mut count, mut end) = (0, 0, at);
        while let Some((digit, next)) = self
            .byte(end)
            .filter(|_| count < most)
            .and_then(|(byte, next)| Some((char::from(byte).to_digit(radix)?, next)))
        {
            (value, count, end) = (value * radix + digit, count + 1, next);
        }
        (count > 0).then_some((value, count, end))
    }

    /// A number of so many hexadecimal digits, and where it ends.
    fn code(&self, at: usize, digits: usize) -> Option<(u32, usize)> {
        self.number(at, 16, digits)
            .filter(|(_, count, _)| *count == digits)
            .map(|(value, _, end)| (value, end))
    }

    /// What stands behind `\u`: four digits, or two times four that are one character.
    fn unit(&self, at: usize) -> Option<Reading> {
        let (high, end) = self.code(at, 4)?;
        if !(0xD800..0xDC00).contains(&high) {
            return Reading::of_char(high, end);
        }
        let (low, end) = self.code(self.sign(self.sign(end, b"\\%")?, b"u")?, 4)?;
        (0xDC00..0xE000)
            .contains(&low)
            .then(|| Reading::of_char(0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00), end))
            .flatten()
    }

    /// What stands behind `&`.
    fn entity(&self, at: usize, found: &mut Found) {
        if let Some(at) = self.sign(at, b"#") {
            let number = match self.sign(at, b"xX") {
                Some(at) => self.number(at, 16, DIGITS),
                None => self.number(at, 10, DIGITS),
            };
            if let Some((code, _, end)) = number {
                // With its `;`, or without.
                found.add(self.sign(end, b";").and_then(|end| Reading::of_char(code, end)));
                found.add_unlikely(Reading::of_char(code, end));
            }
            return;
        }
        let mut name = [0; LONGEST_NAME];
        let (mut length, mut end, mut old) = (0, at, None);
        while let Some((byte, next)) =
            self.byte(end).filter(|(byte, _)| length < LONGEST_NAME && byte.is_ascii_alphabetic())
        {
            name[length] = byte;
            (length, end) = (length + 1, next);
            // Old ones count without a `;` too, whatever comes behind them.
            if let Some(byte @ (b'&' | b'<' | b'>' | b'"')) = named(&name[..length]) {
                old = Some(Reading::of_byte(byte, end));
            }
        }
        let whole = named(&name[..length])
            .and_then(|byte| Some(Reading::of_byte(byte, self.sign(end, b";")?)));
        found.add(whole);
        found.add_unlikely(old);
    }

    /// What stands behind `\`.
    fn backslash(&self, at: usize, found: &mut Found) {
        let Some((byte, end)) = self.byte(at) else { return };
        match byte {
            b'n' => found.add(Some(Reading::of_byte(b'\n', end))),
            b't' => found.add(Some(Reading::of_byte(b'\t', end))),
            b'r' => found.add(Some(Reading::of_byte(b'\r', end))),
            b'b' => found.add(Some(Reading::of_byte(8, end))),
            b'f' => found.add(Some(Reading::of_byte(12, end))),
            b'u' => {
                found.add(self.unit(end));
                let braced = self.sign(end, b"{").and_then(|at| self.number(at, 16, DIGITS));
                found.add(
                    braced.and_then(|(code, _, end)| Reading::of_char(code, self.sign(end, b"}")?)),
                );
            }
            b'U' => {
                found.add(self.code(end, 8).and_then(|(code, end)| Reading::of_char(code, end)));
            }
            b'x' => {
                let code = self.code(end, 2);
                found.add(code.map(|(code, end)| Reading::of_byte(code as u8, end)));
                found.add(code.and_then(|(code, end)| Reading::of_char(code, end)));
            }
            b'\\' | b'/' | b'"' | b'\'' => found.add(Some(Reading::of_byte(byte, end))),
            // As shells, Markdown and regular expressions write any sign.
            b' ' | b'!'..=b'/' | b':'..=b'@' | b'['..=b'`' | b'{'..=b'~' => {
                found.add_unlikely(Some(Reading::of_byte(byte, end)));
            }
            _ => {}
        }
        let plain = self.text[at];
        if is_escape(plain) {
            found.add_unlikely(Some(Reading::of_byte(plain, at + 1)));
        }
        if !byte.is_ascii_hexdigit() {
            return;
        }
        // In C and in shells.
        let octal = self.number(at, 8, 3);
        found.add_unlikely(
            octal.and_then(|(code, _, end)| Some(Reading::of_byte(u8::try_from(code).ok()?, end))),
        );
        // In CSS, where a space ends it.
        if let Some((code, _, end)) = self.number(at, 16, 6) {
            let end = self.sign(end, b" ").into_iter().chain([end]);
            end.for_each(|end| found.add_unlikely(Reading::of_char(code, end)));
        }
    }
}

/// Letters of the longest name that is known.
const LONGEST_NAME: usize = 16;

/// What HTML names, as far as it is neither a letter nor a digit.
fn named(name: &[u8]) -> Option<u8> {
    Some(match name {
        b"amp" | b"AMP" => b'&',
        b"lt" | b"LT" => b'<',
        b"gt" | b"GT" => b'>',
        b"quot" | b"QUOT" => b'"',
        b"apos" => b'\'',
        b"plus" => b'+',
        b"equals" => b'=',
        b"sol" => b'/',
        b"bsol" => b'\\',
        b"colon" => b':',
        b"semi" => b';',
        b"comma" => b',',
        b"period" => b'.',
        b"excl" => b'!',
        b"quest" => b'?',
        b"num" => b'#',
        b"dollar" => b'$',
        b"percnt" => b'%',
        b"lpar" => b'(',
        b"rpar" => b')',
        b"ast" | b"midast" => b'*',
        b"commat" => b'@',
        b"lsqb" | b"lbrack" => b'[',
        b"rsqb" | b"rbrack" => b']',
        b"Hat" => b'^',
        b"lowbar" | b"UnderBar" => b'_',
        b"grave" | b"DiacriticalGrave" => b'`',
        b"lcub" | b"lbrace" => b'{',
        b"rcub" | b"rbrace" => b'}',
        b"verbar" | b"vert" | b"VerticalLine" => b'|',
        b"Tab" => b'\t',
        b"NewLine" => b'\n',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(text: &str, as_what: &str) {
        let readings = Readings::new(text.as_bytes());
        let whole = readings
            .at(0)
            .iter()
            .any(|reading| reading.bytes() == as_what.as_bytes() && reading.end == text.len());
        assert!(whole, "{text} is read as {:?}", readings.at(0));
    }

    #[test]
    fn each_escape_is_read() {
        for text in [
            "\\u002B",
            "\\u002b",
            "&#43;",
            "&#x2B;",
            "&#x2b",
            "&#43",
            "&#0000043;",
            "&plus;",
            "%2B",
            "%2b",
            "%u002B",
            "=2B",
            "\\x2b",
            "\\+",
            "\\053",
            "\\2b ",
            "\\u{2b}",
            "\\U0000002B",
        ] {
            reads(text, "+");
        }
        for text in [
            "\\ud83d\\ude00",
            "&#128512;",
            "&#x1F600;",
            "\\u{1f600}",
            "\\U0001F600",
            "%uD83D%uDE00",
        ] {
            reads(text, "😀");
        }
        reads("\\/", "/");
        reads("&DiacriticalGrave;", "`");
    }

    #[test]
    fn escapes_within_escapes_are_read() {
        for text in [
            "%252B",
            "%25252B",
            "%2525252B",
            "\\\\u002B",
            "\\\\\\\\u002B",
            "&amp;plus;",
            "&amp;#x2B;",
            "&amp;amp;#43;",
            "\\u0026#43;",
            "%26plus%3B",
            "&#4\\u0033;",
            "\\&#117;002b",
            "&plu%73;",
            "\\u0025\\u0032\\u0042",
            "&#37;2B",
            "%&#50;B",
            "=252B",
            "\\u005cu002B",
            "&#x5c;u002b",
            "%5Cu002B",
            "\\\\\\+",
            "&#x26;&#x70;lus;",
        ] {
            reads(text, "+");
        }
        let written =
            |text: &str| text.bytes().map(|byte| format!("\\u{byte:04x}")).collect::<String>();
        let twice = written(&written("+"));
        reads(&twice, "+");
        reads(&written(&twice), "+");
    }

    #[test]
    fn what_is_no_escape_stands_for_itself() {
        for text in [
            "%2",
            "%zz",
            "&#;",
            "&nothing;",
            "&#xFFFFFFFF;",
            "\\ud83d",
            "\\ud83dabcdef",
            "=x",
            "%",
            "&",
            "a+b",
            "\\",
        ] {
            let readings = Readings::new(text.as_bytes());
            assert!(
                readings
                    .escapes
                    .iter()
                    .flat_map(|escape| &escape.all)
                    .all(|reading| reading.end < text.len() || text.starts_with('\\')),
                "{text}: {readings:?}"
            );
        }
        assert_eq!(decoded("plain"), None);
        assert_eq!(decoded("a%2Bb &amp;amp; \\u00e9").as_deref(), Some("a+b &amp; é"));
    }

    #[test]
    fn hostile_texts_are_read_in_linear_time() {
        for piece in
            ["\\", "%25", "&amp;", "\\u005c", "&#x26;", "=3D", "%5C", "\\\\u005c", "&", "%"]
        {
            let text = piece.repeat(20_000);
            let readings = Readings::new(text.as_bytes());
            assert!(readings.escapes.iter().all(|escape| escape.all.len() <= 8 * DEPTH), "{piece}");
        }
    }
}
