//! Divides a source into the chunks whose words the index gets.

use crate::{Definition, MAX_SOURCE, words};

/// The first line of a definition begins a new chunk if the one before has so many lines.
const MIN_LINES: usize = 24;

/// Most lines of a chunk.
const MAX_LINES: usize = 72;

/// Most chunks of one source. Only the last one has less than [`MIN_LINES`].
pub(crate) const MAX_CHUNKS: usize = MAX_SOURCE / MIN_LINES + 1;

/// Most bytes of the words of a chunk: more than its lines have, whole and in parts.
const MAX_WORDS: usize = 1 << 20;

/// Some lines of a source that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its first line, from 1.
    pub first: u32,
    /// Its last line, from 1.
    pub last: u32,
    /// Its words, each once, in the form of the index. Never empty.
    pub words: String,
}

impl Chunk {
    /// Whether it is within the bounds of chunks.
    pub(crate) fn is_valid(&self) -> bool {
        let lines = self.last.checked_sub(self.first);
        let in_bounds = lines.is_some_and(|more| (more as usize) < MAX_LINES) && self.first > 0;
        in_bounds && self.words.len() <= MAX_WORDS
    }
}

/// The chunks of a text. Lines without words may be in none.
pub fn chunks(text: &str, definitions: &[Definition]) -> Vec<Chunk> {
    let lines: Vec<&str> = text.lines().collect();
    ranges(lines.len(), definitions)
        .into_iter()
        .map(|(first, last)| Chunk {
            first: line_number(first + 1),
            last: line_number(last),
            words: words::of_lines(lines[first..last].iter().copied()),
        })
        .filter(|chunk| !chunk.words.is_empty())
        .collect()
}

fn line_number(line: usize) -> u32 {
    u32::try_from(line).unwrap_or(u32::MAX)
}

/// Where the chunks begin and end: ranges of lines, from 0.
fn ranges(lines: usize, definitions: &[Definition]) -> Vec<(usize, usize)> {
    let mut begins: Vec<usize> =
        definitions.iter().map(|one| (one.start as usize).saturating_sub(1)).collect();
    begins.sort_unstable();
    let mut begins = begins.into_iter().peekable();
    let mut ranges = Vec::new();
    let mut first = 0;
    while first < lines {
        let earliest = first + MIN_LINES;
        while begins.next_if(|begin| *begin < earliest).is_some() {}
        let begin = begins.peek().copied().unwrap_or(lines);
        let end = begin.min(first + MAX_LINES).min(lines);
        ranges.push((first, end));
        first = end;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use crate::Kind;

    use super::*;

    fn definition(start: u32, end: u32) -> Definition {
        Definition {
            name: "f".to_owned(),
            kind: Kind::Function,
            container: String::new(),
            start,
            end,
            line: start,
            column: 3,
        }
    }

    #[test]
    fn chunks_begin_at_definitions() {
        let definitions: Vec<Definition> = [(1, 10), (11, 20), (30, 60), (31, 35), (70, 300)]
            .map(|(a, b)| definition(a, b))
            .into();
        assert_eq!(ranges(150, &definitions), [(0, 29), (29, 69), (69, 141), (141, 150)]);
        assert_eq!(ranges(100, &[]), [(0, 72), (72, 100)]);
        assert_eq!(ranges(0, &[]), []);
    }

    #[test]
    fn chunks_have_words() {
        let text = format!("fn loadConfig() {{\n  1 }}{}last\n", "\n".repeat(100));
        let chunk = |first, last, words: &str| Chunk { first, last, words: words.to_owned() };
        assert_eq!(
            chunks(&text, &[definition(1, 2)]),
            [chunk(1, 72, "fn loadconfig load config"), chunk(73, 102, "last")]
        );
        assert_eq!(chunks("{\n}\n", &[]), []);
    }
}
