//! Encodes and decodes a question to a parser and its answer.
//!
//! A question is the source, and one byte behind it for what is wanted. An answer is one byte for
//! the version, one for flags, then the strings, each once, then the definitions and the
//! references, which name strings by their place, then the chunks. Numbers are LEB128; lines are
//! the distance to the line before, folded so that small distances back stay small.

use std::collections::HashMap;
use std::fmt;

use crate::chunk::MAX_CHUNKS;
use crate::{
    Chunk, Definition, Kind, MAX_DEFINITIONS, MAX_NAME, MAX_REFERENCES, Parsed, ParserQuestion,
    Reference,
};

/// The version of this form.
const VERSION: u8 = 2;

const HAS_ERRORS: u8 = 1;
const LIMITED: u8 = 2;

/// Why bytes are no answer of a parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(&'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the parser's answer isn't valid: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

impl ParserQuestion {
    /// The question as the input of a part.
    pub fn encode(self, source: &[u8]) -> Vec<u8> {
        let mut input = Vec::with_capacity(source.len() + 1);
        input.extend_from_slice(source);
        input.push(self as u8);
        input
    }

    /// Reads a question and the source.
    ///
    /// # Errors
    ///
    /// The bytes aren't from [`encode`](Self::encode).
    pub fn decode(input: &[u8]) -> Result<(Self, &[u8]), String> {
        let last = input.split_last();
        let (wanted, source) =
            last.ok_or("the input is empty; it needs a byte behind the source")?;
        let known = [Self::Chunks, Self::References];
        let found = known.into_iter().find(|one| *one as u8 == *wanted);
        let question =
            found.ok_or_else(|| format!("the last byte is {wanted}; it must be 0 or 1"))?;
        Ok((question, source))
    }
}

impl Parsed {
    /// Returns the bytes. Items beyond a limit are left out, and the bytes say so.
    pub fn encode(&self) -> Vec<u8> {
        let mut strings = Strings::default();
        let mut limited = self.limited;
        let mut items = Vec::new();
        let definitions: Vec<&Definition> = self
            .definitions
            .iter()
            .filter(|one| fits(&one.name) && fits(&one.container))
            .take(MAX_DEFINITIONS)
            .collect();
        limited |= definitions.len() < self.definitions.len();
        number(&mut items, definitions.len() as u64);
        let mut last = 0;
        for one in definitions {
            number(&mut items, strings.place(&one.name));
            items.push(one.kind as u8);
            number(&mut items, strings.place(&one.container));
            distance(&mut items, &mut last, one.start);
            let mut near = one.start;
            distance(&mut items, &mut near, one.end);
            near = one.start;
            distance(&mut items, &mut near, one.line);
            number(&mut items, one.column.into());
        }

        let references: Vec<&Reference> =
            self.references.iter().filter(|one| fits(&one.name)).take(MAX_REFERENCES).collect();
        limited |= references.len() < self.references.len();
        number(&mut items, references.len() as u64);
        let mut last = 0;
        for one in references {
            number(&mut items, strings.place(&one.name));
            distance(&mut items, &mut last, one.line);
            number(&mut items, one.column.into());
        }

        let chunks: Vec<&Chunk> =
            self.chunks.iter().filter(|chunk| chunk.is_valid()).take(MAX_CHUNKS).collect();
        limited |= chunks.len() < self.chunks.len();
        number(&mut items, chunks.len() as u64);
        let mut last = 0;
        for one in chunks {
            distance(&mut items, &mut last, one.first);
            distance(&mut items, &mut last, one.last);
            number(&mut items, one.words.len() as u64);
            items.extend_from_slice(one.words.as_bytes());
        }

        let flags =
            if self.has_errors { HAS_ERRORS } else { 0 } | if limited { LIMITED } else { 0 };
        let mut bytes = vec![VERSION, flags];
        number(&mut bytes, strings.list.len() as u64);
        for string in strings.list {
            number(&mut bytes, string.len() as u64);
            bytes.extend_from_slice(string.as_bytes());
        }
        bytes.extend_from_slice(&items);
        bytes
    }

    /// Reads the bytes of [`encode`](Self::encode), which anyone may have written: it allocates
    /// about as much as they say, but never more than the limits of this crate.
    ///
    /// # Errors
    ///
    /// The bytes have another form, or exceed a limit.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut bytes = Reader(bytes);
        let (flags, strings) = bytes.begin()?;
        let count = bytes.count(MAX_DEFINITIONS, 7)?;
        let mut definitions = Vec::with_capacity(count);
        let mut last = 0;
        for _ in 0..count {
            let name = string_at(&strings, bytes.number()?)?.to_owned();
            let kind = Kind::ALL.get(usize::from(bytes.byte()?));
            let kind = *kind.ok_or(Malformed("it has a kind that isn't known"))?;
            let container = string_at(&strings, bytes.number()?)?.to_owned();
            let start = bytes.distance(&mut last)?;
            let mut end = start;
            let mut line = start;
            bytes.distance(&mut end)?;
            bytes.distance(&mut line)?;
            let column = bytes.small()?;
            definitions.push(Definition { name, kind, container, start, end, line, column });
        }

        let count = bytes.count(MAX_REFERENCES, 3)?;
        let mut references = Vec::with_capacity(count);
        let mut last = 0;
        for _ in 0..count {
            let name = string_at(&strings, bytes.number()?)?.to_owned();
            let line = bytes.distance(&mut last)?;
            references.push(Reference { name, line, column: bytes.small()? });
        }

        let count = bytes.count(MAX_CHUNKS, 3)?;
        let mut chunks = Vec::with_capacity(count);
        let mut last = 0;
        for _ in 0..count {
            let chunk = Chunk {
                first: bytes.distance(&mut last)?,
                last: bytes.distance(&mut last)?,
                words: bytes.string(usize::MAX)?.to_owned(),
            };
            if !chunk.is_valid() {
                return Err(Malformed("a chunk is too large"));
            }
            chunks.push(chunk);
        }
        if !bytes.0.is_empty() {
            return Err(Malformed("something follows its end"));
        }
        Ok(Self {
            definitions,
            references,
            chunks,
            has_errors: flags & HAS_ERRORS != 0,
            limited: flags & LIMITED != 0,
        })
    }

    /// The names of the definitions in these bytes, without copying anything. The bytes behind the
    /// definitions aren't read.
    ///
    /// # Errors
    ///
    /// The errors of [`decode`](Self::decode).
    pub fn decode_names(bytes: &[u8]) -> Result<Vec<&str>, Malformed> {
        let mut bytes = Reader(bytes);
        let (_, strings) = bytes.begin()?;
        let count = bytes.count(MAX_DEFINITIONS, 7)?;
        let mut names = Vec::with_capacity(count);
        for _ in 0..count {
            names.push(string_at(&strings, bytes.number()?)?);
            bytes.byte()?;
            for _ in 0..5 {
                bytes.number()?;
            }
        }
        Ok(names)
    }
}

fn fits(name: &str) -> bool {
    name.len() <= MAX_NAME
}

fn string_at<'a>(strings: &[&'a str], place: u64) -> Result<&'a str, Malformed> {
    let string = usize::try_from(place).ok().and_then(|place| strings.get(place).copied());
    string.ok_or(Malformed("it names a string that it doesn't have"))
}

/// Strings and their places.
#[derive(Default)]
struct Strings<'a> {
    list: Vec<&'a str>,
    places: HashMap<&'a str, u64>,
}

impl<'a> Strings<'a> {
    fn place(&mut self, string: &'a str) -> u64 {
        *self.places.entry(string).or_insert_with(|| {
            self.list.push(string);
            self.list.len() as u64 - 1
        })
    }
}

fn number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Writes a line as the distance to the last one, which it then is.
fn distance(bytes: &mut Vec<u8>, last: &mut u32, line: u32) {
    let distance = i64::from(line) - i64::from(*last);
    number(bytes, ((distance << 1) ^ (distance >> 63)).cast_unsigned());
    *last = line;
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads the version, the flags and the strings.
    fn begin(&mut self) -> Result<(u8, Vec<&'a str>), Malformed> {
        if self.byte()? != VERSION {
            return Err(Malformed("it has another version"));
        }
        let flags = self.byte()?;
        // Every definition brings two strings at most, and every reference one.
        let count = self.count(2 * MAX_DEFINITIONS + MAX_REFERENCES, 1)?;
        let mut strings = Vec::with_capacity(count);
        for _ in 0..count {
            strings.push(self.string(MAX_NAME)?);
        }
        Ok((flags, strings))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) =
            self.0.split_at_checked(length).ok_or(Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..=56).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed("a number is too long"))
    }

    fn small(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| Malformed("a number is too large"))
    }

    /// How many items follow, each of at least `size` bytes.
    fn count(&mut self, most: usize, size: usize) -> Result<usize, Malformed> {
        let count = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        if count > most || count > self.0.len() / size {
            return Err(Malformed("it has too many items"));
        }
        Ok(count)
    }

    fn string(&mut self, most: usize) -> Result<&'a str, Malformed> {
        let length = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        if length > most {
            return Err(Malformed("a text is too long"));
        }
        std::str::from_utf8(self.take(length)?).map_err(|_| Malformed("a text isn't UTF-8"))
    }

    fn distance(&mut self, last: &mut u32) -> Result<u32, Malformed> {
        let folded = self.number()?;
        let distance = (folded >> 1).cast_signed() ^ -(folded & 1).cast_signed();
        let line = i64::from(*last).checked_add(distance).and_then(|line| u32::try_from(line).ok());
        *last = line.ok_or(Malformed("a line is too large"))?;
        Ok(*last)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names() -> impl Strategy<Value = String> {
        prop_oneof!["[a-c]{1,2}", ".{0,20}"]
    }

    fn parsed() -> impl Strategy<Value = Parsed> {
        let lines = || prop_oneof![0_u32..200, any::<u32>()];
        let kind = (0..Kind::ALL.len()).prop_map(|place| Kind::ALL[place]);
        let definition = (names(), kind, names(), lines(), lines(), lines(), any::<u32>());
        let definition =
            definition.prop_map(|(name, kind, container, start, end, line, column)| Definition {
                name,
                kind,
                container,
                start,
                end,
                line,
                column,
            });
        let reference = (names(), lines(), any::<u32>())
            .prop_map(|(name, line, column)| Reference { name, line, column });
        let chunk = (1..=u32::MAX - 71, 0_u32..72, names())
            .prop_map(|(first, more, words)| Chunk { first, last: first + more, words });
        let (definitions, references) =
            (prop::collection::vec(definition, 0..20), prop::collection::vec(reference, 0..20));
        let chunks = prop::collection::vec(chunk, 0..20);
        (definitions, references, chunks, any::<bool>(), any::<bool>()).prop_map(
            |(definitions, references, chunks, has_errors, limited)| Parsed {
                definitions,
                references,
                chunks,
                has_errors,
                limited,
            },
        )
    }

    proptest! {
        #[test]
        fn decoding_gives_what_was_encoded(parsed in parsed()) {
            let bytes = parsed.encode();
            let names: Vec<&str> = parsed.definitions.iter().map(|one| &*one.name).collect();
            prop_assert_eq!(Parsed::decode_names(&bytes), Ok(names));
            prop_assert_eq!(Parsed::decode(&bytes), Ok(parsed));
        }

        #[test]
        fn hostile_bytes_are_refused_or_valid(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Parsed::decode(&bytes);
            let bytes = [&[VERSION, 0], &bytes[..]].concat();
            let _ = Parsed::decode_names(&bytes);
            let _ = Parsed::decode(&bytes);
        }

        #[test]
        fn damaged_answers_are_refused_or_valid(
            parsed in parsed(),
            place in any::<prop::sample::Index>(),
            byte in any::<u8>(),
            cut in any::<bool>(),
        ) {
            let mut bytes = parsed.encode();
            let place = place.index(bytes.len());
            if cut {
                bytes.truncate(place);
                prop_assert!(Parsed::decode(&bytes).is_err());
            } else {
                bytes[place] = byte;
                let _ = Parsed::decode(&bytes);
            }
        }
    }

    #[test]
    fn chunk_beyond_its_bounds_is_left_out_and_refused() {
        for (first, last) in [(0, 1), (2, 1), (1, 73), (1, u32::MAX)] {
            let chunk = Chunk { first, last, words: "x".to_owned() };
            let parsed = Parsed { chunks: vec![chunk], ..Parsed::default() };
            let read = Parsed::decode(&parsed.encode()).expect("it is valid");
            assert!(read.chunks.is_empty() && read.limited);
            let mut bytes = vec![VERSION, 0, 0, 0, 0, 1];
            let mut line = 0;
            distance(&mut bytes, &mut line, first);
            distance(&mut bytes, &mut line, last);
            bytes.extend([1, b'x']);
            assert!(Parsed::decode(&bytes).is_err(), "{first} {last}");
        }
    }

    #[test]
    fn question_has_the_source_and_what_is_wanted() {
        for question in [ParserQuestion::Chunks, ParserQuestion::References] {
            for source in [&b""[..], b"\0\x01", b"fn f() {}"] {
                assert_eq!(
                    ParserQuestion::decode(&question.encode(source)),
                    Ok((question, source))
                );
            }
        }
        assert!(
            ParserQuestion::decode(b"").is_err() && ParserQuestion::decode(b"fn f() {}").is_err()
        );
    }

    #[test]
    fn what_exceeds_a_limit_is_left_out_and_said() {
        let long = "x".repeat(MAX_NAME + 1);
        let reference = |name: &str| Reference { name: name.to_owned(), line: 1, column: 0 };
        let parsed =
            Parsed { references: vec![reference(&long), reference("y")], ..Parsed::default() };
        let read = Parsed::decode(&parsed.encode()).expect("it is valid");
        assert_eq!(read.references, [reference("y")]);
        assert!(read.limited);

        let many = vec![reference("y"); MAX_REFERENCES + 1];
        let read = Parsed { references: many, ..Parsed::default() }.encode();
        let read = Parsed::decode(&read).expect("it is valid");
        assert!(read.references.len() == MAX_REFERENCES && read.limited);
    }

    #[test]
    fn count_without_items_is_refused_before_it_is_allocated() {
        for before in [&[][..], &[0], &[0, 0]] {
            let mut bytes = [&[VERSION, 0, 0], before].concat();
            number(&mut bytes, MAX_DEFINITIONS as u64);
            assert!(Parsed::decode(&bytes).is_err());
        }
        let mut bytes = vec![VERSION, 0, 0];
        number(&mut bytes, MAX_DEFINITIONS as u64);
        bytes[2] = 0xff;
        assert!(Parsed::decode(&bytes).is_err());
    }
}
