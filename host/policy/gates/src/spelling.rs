//! Decodes escapes in a text: JSON, HTML, URLs, programming languages and quoted-printable, and
//! nested escapes. `%252B`, `&#x2B;`, `\u002B` and `\\u002b` all represent a plus sign.
//!
//! A text contains no information about the number of times that it was escaped, or about the
//! rules. For this reason each place has several readings: `\\u002B` can be a backslash with text
//! after it, or a plus sign.

use std::cell::Cell;

/// Number of times that escapes are decoded. `\u002B` needs one time, and JSON inside JSON two
/// times.
pub const DEPTH: usize = 4;

/// Bytes of the longest escape of one character. The limit allows `&#x002B;` with each byte escaped
/// twice in the same form.
pub const REACH: usize = 512;

/// Most digits of a number. `&#x0000002B;` has 8.
const DIGITS: usize = 8;

/// Readings of one place that are decoded further because they start another escape.
const MAX_DEEPER: usize = 4;

/// Checks whether an escape may begin with this byte.
pub const fn is_escape(byte: u8) -> bool {
    matches!(byte, b'\\' | b'&' | b'%' | b'=')
}

/// One possible reading of the text at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    bytes: [u8; 4],
    length: u8,
    /// The offset of the text after the reading.
    pub end: usize,
}

impl Reading {
    /// Returns the bytes that the reading represents.
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

    /// Returns the byte that the reading represents, and its end. Returns `None` unless the reading
    /// is one ASCII byte.
    fn ascii(&self) -> Option<(u8, usize)> {
        let byte = self.bytes[0];
        let is_ascii = self.length == 1 && byte.is_ascii();
        is_ascii.then_some((byte, self.end))
    }

    /// Returns the reading that covers more text. If both are equal, returns the second.
    fn longer(first: Option<Self>, second: Option<Self>) -> Option<Self> {
        match (first, second) {
            (Some(first), Some(second)) if first.end > second.end => Some(first),
            (_, Some(second)) => Some(second),
            (first, None) => first,
        }
    }
}

/// The escapes of a text.
#[derive(Debug, Default)]
pub struct Readings {
    /// For each place of the text, the index of the escape that may start there, or [`NONE`].
    indexes: Vec<u32>,
    escapes: Vec<Escape>,
}

/// No escape.
const NONE: u32 = u32::MAX;

/// A place that may be an escape.
#[derive(Debug)]
struct Escape {
    start: usize,
    /// The most likely reading after the rounds so far.
    latest: Option<Reading>,
    /// All readings.
    all: Vec<Reading>,
    /// Whether another round finds no new reading.
    done: bool,
}

impl Readings {
    /// Reads a text in linear time.
    pub fn new(text: &[u8]) -> Self {
        Self::to_depth(text, DEPTH)
    }

    fn to_depth(text: &[u8], depth: usize) -> Self {
        let mut readings = Self { indexes: vec![NONE; text.len()], escapes: Vec::new() };
        for (start, byte) in text.iter().enumerate() {
            if is_escape(*byte) && may_begin_escape(&text[start..]) {
                readings.indexes[start] = readings.escapes.len() as u32;
                readings.escapes.push(Escape { start, latest: None, all: Vec::new(), done: false });
            }
        }
        let mut pending: Vec<usize> = (0..readings.escapes.len()).collect();
        for _ in 0..depth {
            if pending.is_empty() {
                break;
            }
            pending.retain(|index| {
                readings.decode_once(text, *index);
                !readings.escapes[*index].done
            });
        }
        readings
    }

    /// Decodes an escape once more. Later places still have the readings of the previous round.
    fn decode_once(&mut self, text: &[u8], index: usize) {
        let Escape { start, latest, ref all, .. } = self.escapes[index];
        let place = Decoding { text, readings: self, start, may_change: Cell::new(false) };
        let mut deeper = RoundReadings::default();
        let mut again = RoundReadings::default();

        // The latest reading comes first, but other readings may also be correct. For example,
        // `\\=2B` may represent `\=2B` instead of a backslash and a plus sign.
        let others = all.iter().filter(|reading| Some(**reading) != latest);
        let ascii_readings = latest.iter().chain(others).filter_map(Reading::ascii);
        let escape_starts = ascii_readings.filter(|(byte, _)| is_escape(*byte));
        for (byte, at) in escape_starts.take(MAX_DEEPER) {
            place.read(byte, at, &mut deeper);
        }
        // Later places may have new readings since the previous round. For example, `&#4\u0033;` is
        // first the number 4, and then 43.
        place.read(text[start], start + 1, &mut again);

        // The most likely reading continues the latest reading. Otherwise the reading that covers
        // the most text is used.
        let likely = deeper.likely.or_else(|| Reading::longer(latest, again.likely));
        let may_change = place.may_change.get();
        let escape = &mut self.escapes[index];
        escape.latest = likely;
        let mut has_new_start = false;
        for reading in deeper.iter().chain(again.iter()) {
            if escape.all.contains(reading) {
                continue;
            }
            escape.all.push(*reading);
            if let Some((byte, _)) = reading.ascii()
                && is_escape(byte)
            {
                has_new_start = true;
            }
        }
        escape.done = !has_new_start && !may_change;
    }

    /// Returns the readings of a place, without the byte itself.
    pub fn at(&self, place: usize) -> &[Reading] {
        match self.indexes.get(place) {
            Some(index) if *index != NONE => &self.escapes[*index as usize].all,
            _ => &[],
        }
    }
}

/// Checks whether a text may start with an escape. Most bytes that could start an escape don't,
/// such as the equals signs in HTML.
fn may_begin_escape(text: &[u8]) -> bool {
    match (text[0], text.get(1)) {
        (_, None) => false,
        (_, Some(next)) if is_escape(*next) => true,
        (b'%', Some(b'u' | b'U')) => true,
        (b'%' | b'=', _) => may_be_hex(text, 1) && may_be_hex(text, 2),
        (b'&', Some(next)) => *next == b'#' || next.is_ascii_alphabetic(),
        _ => true,
    }
}

/// Checks whether a byte is a hexadecimal digit, or may represent one as the start of another
/// escape.
fn may_be_hex(text: &[u8], at: usize) -> bool {
    text.get(at).is_some_and(|byte| is_escape(*byte) || byte.is_ascii_hexdigit())
}

/// The readings that one round finds.
#[derive(Default)]
struct RoundReadings {
    readings: [Option<Reading>; 8],
    count: usize,
    /// The longest reading of the usual forms. Unlikely forms are ignored.
    likely: Option<Reading>,
}

impl RoundReadings {
    fn iter(&self) -> impl Iterator<Item = &Reading> {
        self.readings.iter().flatten()
    }

    fn add(&mut self, reading: Option<Reading>) {
        self.likely = Reading::longer(self.likely, reading);
        self.add_unlikely(reading);
    }

    fn add_unlikely(&mut self, reading: Option<Reading>) {
        if reading.is_some() && self.count < self.readings.len() {
            self.readings[self.count] = reading;
            self.count += 1;
        }
    }
}

/// Returns `text` with its escapes decoded once. Returns `None` if it has no escapes.
pub fn decoded(text: &str) -> Option<String> {
    let readings = Readings::to_depth(text.as_bytes(), 1);
    let mut out = Vec::with_capacity(text.len());
    let mut from = 0;
    for Escape { start, latest, .. } in &readings.escapes {
        if let Some(reading) = latest
            && *start >= from
        {
            out.extend_from_slice(&text.as_bytes()[from..*start]);
            out.extend_from_slice(reading.bytes());
            from = reading.end;
        }
    }
    let has_escape = from > 0;
    if !has_escape {
        return None;
    }
    out.extend_from_slice(&text.as_bytes()[from..]);
    Some(String::from_utf8_lossy(&out).into_owned())
}

/// A place that is decoded.
struct Decoding<'t> {
    text: &'t [u8],
    readings: &'t Readings,
    start: usize,
    /// Whether a place was used whose reading may change in the next round.
    may_change: Cell<bool>,
}

/// A number: its value, the number of its digits, and its end.
type Number = (u32, usize, usize);

impl Decoding<'_> {
    /// Reads the escape that begins here with `byte`. `at` is the offset after that byte.
    fn read(&self, byte: u8, at: usize, readings: &mut RoundReadings) {
        match byte {
            b'%' | b'=' => {
                let code = self.code(at, 2);
                readings.add(code.map(|(code, end)| Reading::of_byte(code as u8, end)));
                if byte == b'%' {
                    readings.add(self.sign(at, b"uU").and_then(|at| self.unit(at)));
                }
            }
            b'&' => self.entity(at, readings),
            b'\\' => self.backslash(at, readings),
            _ => {}
        }
    }

    /// Returns the ASCII byte of a place after the previous round, and the offset after it. Returns
    /// `None` if the byte isn't ASCII or is too far away.
    fn byte(&self, at: usize) -> Option<(u8, usize)> {
        let plain = *self.text.get(at)?;
        let (byte, end) = match self.readings.indexes[at] {
            NONE => (plain, at + 1),
            index => {
                let escape = &self.readings.escapes[index as usize];
                if !escape.done {
                    self.may_change.set(true);
                }
                match escape.latest {
                    Some(reading) => reading.ascii()?,
                    None => (plain, at + 1),
                }
            }
        };
        let is_near = end - self.start <= REACH;
        is_near.then_some((byte, end))
    }

    /// Returns the offset after a place, if the place has one of these bytes.
    fn sign(&self, at: usize, signs: &[u8]) -> Option<usize> {
        let (byte, end) = self.byte(at)?;
        signs.contains(&byte).then_some(end)
    }

    /// Reads a number with all its digits, up to `max_digits`.
    fn number(&self, at: usize, radix: u32, max_digits: usize) -> Option<Number> {
        let mut value = 0;
        let mut count = 0;
        let mut end = at;
        while let Some((byte, next)) = self.byte(end)
            && count < max_digits
            && let Some(digit) = char::from(byte).to_digit(radix)
        {
            value = value * radix + digit;
            count += 1;
            end = next;
        }
        (count > 0).then_some((value, count, end))
    }

    /// Reads a number with exactly this number of hexadecimal digits. Returns its value and its
    /// end.
    fn code(&self, at: usize, digits: usize) -> Option<(u32, usize)> {
        let (value, count, end) = self.number(at, 16, digits)?;
        (count == digits).then_some((value, end))
    }

    /// Reads the text after `\u`: four digits, or two groups of four digits for one character.
    fn unit(&self, at: usize) -> Option<Reading> {
        let (high, end) = self.code(at, 4)?;
        if !(0xD800..0xDC00).contains(&high) {
            return Reading::of_char(high, end);
        }
        let escape_end = self.sign(end, b"\\%")?;
        let low_start = self.sign(escape_end, b"u")?;
        let (low, end) = self.code(low_start, 4)?;
        if !(0xDC00..0xE000).contains(&low) {
            return None;
        }
        // In a UTF-16 surrogate pair, each group has ten bits of the character.
        Reading::of_char(0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00), end)
    }

    /// Reads the text after `&`.
    fn entity(&self, at: usize, readings: &mut RoundReadings) {
        if let Some(at) = self.sign(at, b"#") {
            let number = match self.sign(at, b"xX") {
                Some(at) => self.number(at, 16, DIGITS),
                None => self.number(at, 10, DIGITS),
            };
            if let Some((code, _, end)) = number {
                readings.add(self.sign(end, b";").and_then(|end| Reading::of_char(code, end)));
                // The `;` may be missing.
                readings.add_unlikely(Reading::of_char(code, end));
            }
            return;
        }

        let mut name = [0; LONGEST_NAME];
        let mut length = 0;
        let mut end = at;
        let mut old_name = None;
        while let Some((letter, next)) = self.byte(end)
            && length < LONGEST_NAME
            && letter.is_ascii_alphabetic()
        {
            name[length] = letter;
            length += 1;
            end = next;
            // Old names are also valid without a `;`, with any text after them.
            if let Some(byte @ (b'&' | b'<' | b'>' | b'"')) = named(&name[..length]) {
                old_name = Some(Reading::of_byte(byte, end));
            }
        }
        if let Some(byte) = named(&name[..length])
            && let Some(end) = self.sign(end, b";")
        {
            readings.add(Some(Reading::of_byte(byte, end)));
        }
        readings.add_unlikely(old_name);
    }

    /// Reads the text after `\`.
    fn backslash(&self, at: usize, readings: &mut RoundReadings) {
        let Some((byte, end)) = self.byte(at) else { return };
        match byte {
            b'n' => readings.add(Some(Reading::of_byte(b'\n', end))),
            b't' => readings.add(Some(Reading::of_byte(b'\t', end))),
            b'r' => readings.add(Some(Reading::of_byte(b'\r', end))),
            b'b' => readings.add(Some(Reading::of_byte(8, end))),
            b'f' => readings.add(Some(Reading::of_byte(12, end))),
            b'u' => {
                readings.add(self.unit(end));
                readings.add(self.braced(end));
            }
            b'U' => {
                readings.add(self.code(end, 8).and_then(|(code, end)| Reading::of_char(code, end)));
            }
            b'x' => {
                let code = self.code(end, 2);
                readings.add(code.map(|(code, end)| Reading::of_byte(code as u8, end)));
                readings.add(code.and_then(|(code, end)| Reading::of_char(code, end)));
            }
            b'\\' | b'/' | b'"' | b'\'' => readings.add(Some(Reading::of_byte(byte, end))),
            // Shells, Markdown and regular expressions escape any sign like this.
            b' ' | b'!'..=b'/' | b':'..=b'@' | b'['..=b'`' | b'{'..=b'~' => {
                readings.add_unlikely(Some(Reading::of_byte(byte, end)));
            }
            _ => {}
        }

        let plain = self.text[at];
        if is_escape(plain) {
            readings.add_unlikely(Some(Reading::of_byte(plain, at + 1)));
        }
        if !byte.is_ascii_hexdigit() {
            return;
        }
        // The octal form of C and of shells.
        if let Some((code, _, end)) = self.number(at, 8, 3)
            && let Ok(byte) = u8::try_from(code)
        {
            readings.add_unlikely(Some(Reading::of_byte(byte, end)));
        }
        // In the form of CSS, a space ends the number.
        if let Some((code, _, end)) = self.number(at, 16, 6) {
            if let Some(space_end) = self.sign(end, b" ") {
                readings.add_unlikely(Reading::of_char(code, space_end));
            }
            readings.add_unlikely(Reading::of_char(code, end));
        }
    }

    /// Reads the text after `\u` if it is a number in braces.
    fn braced(&self, at: usize) -> Option<Reading> {
        let digits_start = self.sign(at, b"{")?;
        let (code, _, digits_end) = self.number(digits_start, 16, DIGITS)?;
        let end = self.sign(digits_end, b"}")?;
        Reading::of_char(code, end)
    }
}

/// Letters of the longest name that is known.
const LONGEST_NAME: usize = 16;

/// Returns the character of an HTML name, except letters and digits.
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
    fn check(text: &str, expected: &str) {
        let readings = Readings::new(text.as_bytes());
        let whole = readings
            .at(0)
            .iter()
            .any(|reading| reading.bytes() == expected.as_bytes() && reading.end == text.len());
        assert!(whole, "{text} is read as {:?}", readings.at(0));
    }

    #[test]
    fn each_form_of_escape_is_read() {
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
            check(text, "+");
        }
        for text in [
            "\\ud83d\\ude00",
            "&#128512;",
            "&#x1F600;",
            "\\u{1f600}",
            "\\U0001F600",
            "%uD83D%uDE00",
        ] {
            check(text, "😀");
        }
        check("\\/", "/");
        check("&DiacriticalGrave;", "`");
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
            check(text, "+");
        }
        let written =
            |text: &str| text.bytes().map(|byte| format!("\\u{byte:04x}")).collect::<String>();
        let twice = written(&written("+"));
        check(&twice, "+");
        check(&written(&twice), "+");
    }

    #[test]
    fn invalid_escapes_stand_for_themselves() {
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
