//! Splits the output of a checker, while it comes, into JSON objects and lines of text.

use memchr::{memchr, memchr2};

/// Most bytes of one object or line. A longer one is dropped.
const MAX_PIECE: usize = 4 << 20;

/// Takes output and gives whole pieces. Objects may be on one line each, over several lines, or in
/// an array.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    piece: Vec<u8>,
    kind: Kind,
    /// Pieces that were too long.
    pub(crate) dropped: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Kind {
    /// Between pieces.
    #[default]
    Between,
    Line,
    Object {
        depth: usize,
        /// Inside a string; after a backslash.
        string: bool,
        escaped: bool,
    },
}

/// A piece of output.
#[derive(Debug, PartialEq)]
pub(crate) enum Piece<'a> {
    Object(&'a [u8]),
    Line(&'a str),
}

impl Pieces {
    /// Takes more output and hands over each piece that is complete.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut found: impl FnMut(Piece<'_>)) {
        while let Some((&byte, rest)) = bytes.split_first() {
            // Most of an output is text without meaning here, which is searched and copied as a
            // whole.
            let plain = match self.kind {
                Kind::Line => memchr(b'\n', bytes).unwrap_or(bytes.len()),
                Kind::Object { string: true, escaped: false, .. } => {
                    memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len())
                }
                _ => 0,
            };
            if plain > 0 {
                self.keep(&bytes[..plain]);
                bytes = &bytes[plain..];
                continue;
            }
            bytes = rest;
            match &mut self.kind {
                Kind::Between => match byte {
                    b'{' => {
                        self.begin(Kind::Object { depth: 1, string: false, escaped: false }, byte);
                    }
                    b'[' | b']' | b',' | b' ' | b'\t' | b'\r' | b'\n' => {}
                    _ => self.begin(Kind::Line, byte),
                },
                Kind::Line => self.end_line(&mut found),
                Kind::Object { depth, string, escaped } => {
                    match (*string, byte) {
                        (true, _) if *escaped => *escaped = false,
                        (true, b'\\') => *escaped = true,
                        (_, b'"') => *string = !*string,
                        (false, b'{' | b'[') => *depth += 1,
                        (false, b'}' | b']') => *depth -= 1,
                        _ => {}
                    }
                    let is_over = *depth == 0;
                    self.keep(&[byte]);
                    if is_over {
                        if self.is_whole() {
                            found(Piece::Object(&self.piece));
                        }
                        self.kind = Kind::Between;
                    }
                }
            }
        }
    }

    /// Hands over a last line without its end.
    pub(crate) fn finish(mut self, mut found: impl FnMut(Piece<'_>)) -> usize {
        if self.kind == Kind::Line {
            self.end_line(&mut found);
        }
        self.dropped
    }

    fn begin(&mut self, kind: Kind, byte: u8) {
        self.kind = kind;
        self.piece.clear();
        self.piece.push(byte);
    }

    /// Keeps bytes, up to one more than a piece may have.
    fn keep(&mut self, bytes: &[u8]) {
        let room = (MAX_PIECE + 1).saturating_sub(self.piece.len());
        self.piece.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn is_whole(&mut self) -> bool {
        let is_whole = self.piece.len() <= MAX_PIECE;
        self.dropped += usize::from(!is_whole);
        is_whole
    }

    fn end_line(&mut self, found: &mut impl FnMut(Piece<'_>)) {
        if self.is_whole() {
            let line = String::from_utf8_lossy(&self.piece);
            found(Piece::Line(line.trim_end_matches('\r')));
        }
        self.kind = Kind::Between;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(output: &str, expected: &[&str]) {
        for size in [1, 3, output.len()] {
            let (mut pieces, mut found) = (Pieces::default(), Vec::new());
            let mut take = |piece: Piece<'_>| {
                found.push(match piece {
                    Piece::Object(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                    Piece::Line(line) => format!("line: {line}"),
                });
            };
            output.as_bytes().chunks(size).for_each(|chunk| pieces.push(chunk, &mut take));
            pieces.finish(take);
            assert_eq!(found, expected, "{size}");
        }
    }

    #[test]
    fn objects_and_lines_are_told_apart() {
        check("{\"a\":1}\n{\"b\":2}\n", &["{\"a\":1}", "{\"b\":2}"]);
        check(
            "[{\"a\":[{\"c\":1}]},\n {\"b\":\"}\\\"{\"}]\n",
            &["{\"a\":[{\"c\":1}]}", "{\"b\":\"}\\\"{\"}"],
        );
        check(
            "# pkg\n{\n\t\"a\": {}\n}\nlast {",
            &["line: # pkg", "{\n\t\"a\": {}\n}", "line: last {"],
        );
        check("a.ts(1,2): error {x}\r\n", &["line: a.ts(1,2): error {x}"]);
        check("{\"never ends", &[]);
    }

    #[test]
    fn piece_that_is_too_long_is_dropped() {
        let mut pieces = Pieces::default();
        let mut found = 0;
        let mut take = |_: Piece<'_>| found += 1;
        pieces.push(b"{\"a\":\"", &mut take);
        for _ in 0..5 {
            pieces.push(&vec![b'x'; 1 << 20], &mut take);
        }
        assert!(pieces.piece.len() <= MAX_PIECE + 1, "it costs no more memory");
        pieces.push(b"\"}{}", &mut take);
        assert_eq!((pieces.finish(take), found), (1, 1));
    }
}
