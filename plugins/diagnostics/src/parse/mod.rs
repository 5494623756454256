//! How the output of each checker is parsed.

pub(crate) mod cargo;
pub(crate) mod eslint;
pub(crate) mod go;
pub(crate) mod mypy;
pub(crate) mod ruff;
pub(crate) mod tsc;

use crate::finding::Collector;

/// How the output of a checker is read.
#[derive(Clone, Copy)]
pub(crate) struct Parser {
    pub(crate) object: fn(&mut Collector, &[u8]),
    pub(crate) line: fn(&mut Collector, &str),
}

/// Splits `PATH:LINE[:COLUMN]: REST`. A path may hold colons.
fn split_position(line: &str) -> Option<(&str, u32, Option<u32>, &str)> {
    for (at, _) in line.match_indices(':') {
        let Some((number, rest)) = line[at + 1..].split_once(':') else { continue };
        let Ok(line_number) = number.parse() else { continue };
        let path = &line[..at];
        if path.is_empty() {
            continue;
        }
        let column =
            rest.split_once(':').and_then(|(number, rest)| Some((number.parse().ok()?, rest)));
        let (column, rest) = match column {
            Some((column, rest)) => (Some(column), rest),
            None => (None, rest),
        };
        return Some((path, line_number, column, rest.trim_start()));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::pieces::{Piece, Pieces};

    #[test]
    fn position_is_split_off() {
        assert_eq!(
            split_position("a.py:3:5: error: x: y"),
            Some(("a.py", 3, Some(5), "error: x: y"))
        );
        assert_eq!(split_position("./a:b.go:3: no"), Some(("./a:b.go", 3, None, "no")));
        assert_eq!(split_position("error: no"), None);
        assert_eq!(split_position(":3: no"), None);
    }

    /// The findings in what a checker has written, each as a line.
    pub(super) fn found(parser: Parser, output: &str) -> Vec<String> {
        let mut collector = Collector::new("test", Path::new("/w"), Path::new("/w"));
        let mut take = |piece: Piece<'_>| match piece {
            Piece::Object(object) => (parser.object)(&mut collector, object),
            Piece::Line(line) => (parser.line)(&mut collector, line),
        };
        let mut pieces = Pieces::default();
        pieces.push(output.as_bytes(), &mut take);
        pieces.finish(take);
        let shown = collector.findings.iter().map(|finding| {
            let mut text = String::new();
            crate::report::add_line(&mut text, finding);
            text.trim_end().to_owned()
        });
        shown.collect()
    }
}
