//! Decodes escapes of JSON, HTML, URLs, programming languages and quoted-printable, also nested.
//! `%252B`, `&#x2B;`, `\u002B` and `\\u002b` all represent a plus sign.
//!
//! A text doesn't say how often and in which form it was escaped. So each place has several
//! readings: `\\u002B` can be a backslash with text after it, or a plus sign.

use std::cell::Cell;

/// Rounds of decoding. `\u002B` needs one round, and JSON inside JSON needs two.
pub const DEPTH: usize = 4;

/// Bytes of the longest escape of one character. `&#x002B;` fits even if each of its bytes is
/// escaped twice in the same form.
pub const REACH: usize = 512;

/// Most digits of a number. `&#x0000002B;` has 8.
const DIGITS: usize = 8;

/// Most readings of one escape that are decoded further in one round.
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
    /// The offset after the escape.
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

    /// Returns the ASCII byte that the reading represents, and the end of the reading. Returns
    /// `None` if the reading is anything else.
    fn ascii(&self) -> Option<(u8, usize)> {
        let byte = self.bytes[0];
        let is_ascii = self.length == 1 && byte.is_ascii();
        is_ascii.then_some((byte, self.end))
    }

    /// Returns the reading that covers more text, or `second` if both cover the same text. If one
    /// reading is missing, returns the other reading.
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
    /// For each offset of the text, the index of the escape that may start there, or [`NONE`].
    indexes: Vec<u32>,
    escapes: Vec<Escape>,
}

/// Stands for a byte without an escape in [`Readings::indexes`].
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Escape {
    start: usize,
    /// The most likely reading of the latest round.
    likely_reading: Option<Reading>,
    /// The readings of all rounds.
    all_readings: Vec<Reading>,
    /// Whether further rounds give no new readings.
    done: bool,
}

impl Readings {
    /// Reads a text in linear time.
    pub fn new(text: &[u8]) -> Self {
        Self::to_depth(text, DEPTH)
    }

    /// Reads the escapes of a text. Escapes inside escapes are decoded up to `depth` times.
    fn to_depth(text: &[u8], depth: usize) -> Self {
        let mut readings = Self { indexes: vec![NONE; text.len()], escapes: Vec::new() };
        for (start, byte) in text.iter().enumerate() {
            if is_escape(*byte) && may_begin_escape(&text[start..]) {
                readings.indexes[start] = readings.escapes.len() as u32;
                readings.escapes.push(Escape {
                    start,
                    likely_reading: None,
                    all_readings: Vec::new(),
                    done: false,
                });
            }
        }

        for _ in 0..depth {
            let mut is_done = true;
            for index in 0..readings.escapes.len() {
                if !readings.escapes[index].done {
                    readings.decode_once(text, index);
                    is_done = is_done && readings.escapes[index].done;
                }
            }
            if is_done {
                break;
            }
        }
        readings
    }

    /// Decodes one escape with the readings of the previous round.
    fn decode_once(&mut self, text: &[u8], index: usize) {
        let Escape { start, likely_reading, ref all_readings, .. } = self.escapes[index];
        let decoding = Decoding { text, readings: self, start, may_change: Cell::new(false) };
        // The readings of escapes that start with a reading of this escape.
        let mut deeper = RoundReadings::default();
        // The readings of the text itself.
        let mut again = RoundReadings::default();

        // The most likely reading comes first, but other readings may be correct too. For example,
        // `\\=2B` may represent `\=2B`, or a backslash and a plus sign.
        let others = all_readings.iter().filter(|reading| Some(**reading) != likely_reading);
        let ascii_readings = likely_reading.iter().chain(others).filter_map(Reading::ascii);
        let escape_starts = ascii_readings.filter(|(byte, _)| is_escape(*byte));
        for (byte, at) in escape_starts.take(MAX_DEEPER) {
            decoding.read(byte, at, &mut deeper);
        }
        // Later escapes may have new readings since the previous round. For example, `&#4\u0033;`
        // is first the number 4, and then 43.
        decoding.read(text[start], start + 1, &mut again);

        // The most likely reading is decoded further if possible. If not, the longest is used.
        let likely = deeper.likely.or_else(|| Reading::longer(likely_reading, again.likely));
        let may_change = decoding.may_change.get();

        let escape = &mut self.escapes[index];
        escape.likely_reading = likely;
        let mut has_new_start = false;
        for reading in deeper.iter().chain(again.iter()) {
            if escape.all_readings.contains(reading) {
                continue;
            }
            escape.all_readings.push(*reading);
            if let Some((byte, _)) = reading.ascii()
                && is_escape(byte)
            {
                has_new_start = true;
            }
        }
        escape.done = !has_new_start && !may_change;
    }

    /// Returns the readings of the escape at an offset.
    pub fn at(&self, place: usize) -> &[Reading] {
        match self.indexes.get(place) {
            Some(index) if *index != NONE => &self.escapes[*index as usize].all_readings,
            _ => &[],
        }
    }
}

/// Checks whether a text may start with an escape. Most bytes that pass [`is_escape`] don't start
/// an escape, such as the equals signs in HTML.
fn may_begin_escape(text: &[u8]) -> bool {
    let first = text[0];
    let Some(second) = text.get(1) else { return false };
    match (first, *second) {
        // The second byte may be the start of an escape inside this escape.
        (_, second) if is_escape(second) => true,
        (b'%', b'u' | b'U') => true,
        (b'%' | b'=', _) => may_be_hex(text, 1) && may_be_hex(text, 2),
        (b'&', second) => second == b'#' || second.is_ascii_alphabetic(),
        // A backslash may escape any byte.
        _ => true,
    }
}

/// Checks whether a byte is a hexadecimal digit, or may start the escape of a digit.
fn may_be_hex(text: &[u8], at: usize) -> bool {
    text.get(at).is_some_and(|byte| is_escape(*byte) || byte.is_ascii_hexdigit())
}

#[derive(Default)]
struct RoundReadings {
    readings: [Option<Reading>; 8],
    count: usize,
    /// The longest reading in a usual form.
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

    /// Adds a reading that can't become the likely one.
    fn add_unlikely(&mut self, reading: Option<Reading>) {
        if reading.is_some() && self.count < self.readings.len() {
            self.readings[self.count] = reading;
            self.count += 1;
        }
    }
}

/// Returns `text` with its escapes decoded once. Returns `None` if it has no escapes.
pub fn decoded(text: &str) -> Option<String> {
    let depth = 1;
    let readings = Readings::to_depth(text.as_bytes(), depth);
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest_start = 0;
    for Escape { start, likely_reading, .. } in &readings.escapes {
        let is_inside_previous = *start < rest_start;
        if let Some(reading) = likely_reading
            && !is_inside_previous
        {
            decoded.extend_from_slice(&text.as_bytes()[rest_start..*start]);
            decoded.extend_from_slice(reading.bytes());
            rest_start = reading.end;
        }
    }
    let has_escape = rest_start > 0;
    if !has_escape {
        return None;
    }
    decoded.extend_from_slice(&text.as_bytes()[rest_start..]);
    Some(String::from_utf8_lossy(&decoded).into_owned())
}

/// Decodes the escape at `start` with the readings of the previous round.
struct Decoding<'t> {
    text: &'t [u8],
    readings: &'t Readings,
    start: usize,
    /// Whether a reading was used that may change in the next round.
    may_change: Cell<bool>,
}

/// The value of a number, the count of its digits, and the offset after it.
type Number = (u32, usize, usize);

impl Decoding<'_> {
    /// Adds the readings of an escape. `byte` is its first byte, and `at` is the offset after it.
    fn read(&self, byte: u8, at: usize, readings: &mut RoundReadings) {
        match byte {
            b'%' | b'=' => {
                if let Some((code, end)) = self.code(at, 2) {
                    readings.add(Some(Reading::of_byte(code as u8, end)));
                }
                if byte == b'%'
                    && let Some(digits_start) = self.sign(at, b"uU")
                {
                    readings.add(self.utf16_escape(digits_start));
                }
            }
            b'&' => self.entity(at, readings),
            b'\\' => self.backslash(at, readings),
            _ => {}
        }
    }

    /// Returns the ASCII byte that the previous round read at an offset, and the offset after it.
    /// Returns `None` if the byte isn't ASCII or is more than [`REACH`] bytes away.
    fn byte(&self, at: usize) -> Option<(u8, usize)> {
        let plain = *self.text.get(at)?;
        let (byte, end) = match self.readings.indexes[at] {
            NONE => (plain, at + 1),
            index => {
                let escape = &self.readings.escapes[index as usize];
                // The next round may read this byte in another way.
                if !escape.done {
                    self.may_change.set(true);
                }
                match escape.likely_reading {
                    Some(reading) => reading.ascii()?,
                    None => (plain, at + 1),
                }
            }
        };
        let is_near = end - self.start <= REACH;
        if is_near { Some((byte, end)) } else { None }
    }

    /// Returns the offset after the byte at `at`, if it is one of `signs`.
    fn sign(&self, at: usize, signs: &[u8]) -> Option<usize> {
        let (byte, end) = self.byte(at)?;
        signs.contains(&byte).then_some(end)
    }

    /// Reads a number with at most `max_digits` digits. Returns `None` without a digit.
    fn number(&self, at: usize, radix: u32, max_digits: usize) -> Option<Number> {
        let mut value = 0;
        let mut count = 0;
        let mut end = at;
        while let Some((byte, byte_end)) = self.byte(end)
            && count < max_digits
            && let Some(digit) = char::from(byte).to_digit(radix)
        {
            value = value * radix + digit;
            count += 1;
            end = byte_end;
        }
        if count == 0 {
            return None;
        }
        Some((value, count, end))
    }

    /// Reads a hexadecimal number with exactly `digits` digits. Returns its value, and the offset
    /// after it.
    fn code(&self, at: usize, digits: usize) -> Option<(u32, usize)> {
        let (value, count, end) = self.number(at, 16, digits)?;
        (count == digits).then_some((value, end))
    }

    /// Reads the text after `\u`: four digits, or a surrogate pair.
    fn utf16_escape(&self, at: usize) -> Option<Reading> {
        let high_surrogates = 0xD800_u32..0xDC00;
        let low_surrogates = 0xDC00_u32..0xE000;
        let (high, high_end) = self.code(at, 4)?;
        if !high_surrogates.contains(&high) {
            return Reading::of_char(high, high_end);
        }

        let escape_end = self.sign(high_end, b"\\%")?;
        let low_start = self.sign(escape_end, b"u")?;
        let (low, low_end) = self.code(low_start, 4)?;
        if !low_surrogates.contains(&low) {
            return None;
        }
        // Each half of a surrogate pair has ten bits of the character. The first character with a
        // pair is U+10000.
        let high_bits = (high - high_surrogates.start) << 10;
        let low_bits = low - low_surrogates.start;
        Reading::of_char(0x1_0000 + high_bits + low_bits, low_end)
    }

    /// Adds the readings of the text after `&`, such as `lt;` or `#60;`.
    fn entity(&self, at: usize, readings: &mut RoundReadings) {
        match self.sign(at, b"#") {
            Some(number_start) => self.numeric_entity(number_start, readings),
            None => self.named_entity(at, readings),
        }
    }

    /// Adds the readings of the text after `&#`, such as `60;` or `x3c;`.
    fn numeric_entity(&self, at: usize, readings: &mut RoundReadings) {
        let number = match self.sign(at, b"xX") {
            Some(digits_start) => self.number(digits_start, 16, DIGITS),
            None => self.number(at, 10, DIGITS),
        };
        let Some((code, _, end)) = number else { return };
        if let Some(entity_end) = self.sign(end, b";") {
            readings.add(Reading::of_char(code, entity_end));
        }
        // Browsers also accept a number without `;`.
        readings.add_unlikely(Reading::of_char(code, end));
    }

    /// Adds the readings of a name after `&`, such as `lt;`.
    fn named_entity(&self, at: usize, readings: &mut RoundReadings) {
        let mut name = [0; LONGEST_NAME];
        let mut length = 0;
        let mut end = at;
        let mut old_name = None;
        while let Some((letter, letter_end)) = self.byte(end)
            && length < LONGEST_NAME
            && letter.is_ascii_alphabetic()
        {
            name[length] = letter;
            length += 1;
            end = letter_end;
            // Browsers accept old names without `;`, with any text after them.
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

    fn backslash(&self, at: usize, readings: &mut RoundReadings) {
        let Some((byte, end)) = self.byte(at) else { return };
        match byte {
            b'n' => readings.add(Some(Reading::of_byte(b'\n', end))),
            b't' => readings.add(Some(Reading::of_byte(b'\t', end))),
            b'r' => readings.add(Some(Reading::of_byte(b'\r', end))),
            b'b' => readings.add(Some(Reading::of_byte(8, end))),
            b'f' => readings.add(Some(Reading::of_byte(12, end))),
            b'u' => {
                readings.add(self.utf16_escape(end));
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
            // Shells, Markdown and regular expressions escape any sign with a backslash.
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
        // CSS has a number with an optional space after it.
        if let Some((code, _, end)) = self.number(at, 16, 6) {
            if let Some(space_end) = self.sign(end, b" ") {
                readings.add_unlikely(Reading::of_char(code, space_end));
            }
            readings.add_unlikely(Reading::of_char(code, end));
        }
    }

    /// Reads a hexadecimal number in braces, such as the text `{2b}` after `\u`.
    fn braced(&self, at: usize) -> Option<Reading> {
        let digits_start = self.sign(at, b"{")?;
        let (code, _, digits_end) = self.number(digits_start, 16, DIGITS)?;
        let end = self.sign(digits_end, b"}")?;
        Reading::of_char(code, end)
    }
}

const LONGEST_NAME: usize = 16;

/// Returns the character that the HTML entity `name` stands for. Returns `None` for a name that
/// doesn't stand for an ASCII sign.
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
                    .flat_map(|escape| &escape.all_readings)
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
            assert!(
                readings.escapes.iter().all(|escape| escape.all_readings.len() <= 8 * DEPTH),
                "{piece}"
            );
        }
    }
}
