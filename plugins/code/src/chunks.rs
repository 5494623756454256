//! What the index gets of a file: its definitions, and its words in chunks.

use berth_sdk::index::Document;
use code_model::{Definition, Parsed};

use crate::hash::hash;
use crate::vectors;
use crate::words;

/// Definitions of one document. Few, since a hit reads all of them.
const DEFINITIONS: usize = 32;

/// The first line of a definition begins a new chunk if the one before has so many lines.
const MIN_LINES: usize = 24;

/// Lines of a chunk.
const MAX_LINES: usize = 72;

/// Bytes of a chunk that become its vector. Many models read no more.
const MAX_TEXT: usize = 1500;

/// The documents of a file. `prefix` is the begin of their keys, which names the project, the file
/// and its content.
pub(crate) fn documents(prefix: &str, lines: &[&str], parsed: &Parsed) -> Vec<Document> {
    let definitions = parsed.definitions.chunks(DEFINITIONS).enumerate();
    let mut documents: Vec<Document> = definitions
        .map(|(number, definitions)| Document {
            data: Parsed { definitions: definitions.to_vec(), ..Parsed::default() }.encode(),
            ..Document::new(format!("{prefix}d{number:05}"), names(definitions))
        })
        .collect();
    let words = chunks(lines.len(), &parsed.definitions).into_iter().filter_map(|(first, last)| {
        let lines = &lines[first..last];
        let text = words::of_lines(lines.iter().copied());
        let document = Document {
            tags: vec![vectors::NONE.to_owned()],
            // Tells whether the vector that a chunk had is still right.
            data: hash(text_of(lines.iter().copied()).as_bytes()).to_le_bytes().to_vec(),
            ..Document::new(format!("{prefix}w{}-{last}", first + 1), text)
        };
        (!document.text.is_empty()).then_some(document)
    });
    documents.extend(words);
    documents
}

/// The text of a chunk that becomes its vector: its lines without indentation, as far as many
/// models read.
pub(crate) fn text_of<'l>(lines: impl Iterator<Item = &'l str>) -> String {
    let mut text = String::new();
    for line in lines.map(str::trim).filter(|line| !line.is_empty()) {
        text.push_str(line);
        text.push('\n');
        if text.len() > MAX_TEXT {
            break;
        }
    }
    text.truncate(text.floor_char_boundary(MAX_TEXT));
    text
}

fn names(definitions: &[Definition]) -> String {
    let names: Vec<String> = definitions.iter().map(|one| words::of_name(&one.name)).collect();
    names.join(" ")
}

/// The definitions in the data of a document.
pub(crate) fn definitions(data: &[u8]) -> Vec<Definition> {
    Parsed::decode(data).map(|parsed| parsed.definitions).unwrap_or_default()
}

/// The first and the last line, from 1, of the chunk with this key.
pub(crate) fn lines_of(key: &str) -> Option<(u32, u32)> {
    let (_, name) = key.rsplit_once('/')?;
    let (first, last) = name.strip_prefix('w')?.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// Where the chunks of a file begin and end: ranges of lines, from 0.
fn chunks(lines: usize, definitions: &[Definition]) -> Vec<(usize, usize)> {
    let mut begins: Vec<usize> =
        definitions.iter().map(|one| (one.start as usize).saturating_sub(1)).collect();
    begins.sort_unstable();
    let mut begins = begins.into_iter().peekable();
    let (mut chunks, mut first) = (Vec::new(), 0);
    while first < lines {
        let earliest = first + MIN_LINES;
        while begins.next_if(|begin| *begin < earliest).is_some() {}
        let begin = begins.peek().copied().unwrap_or(lines);
        let end = begin.min(first + MAX_LINES).min(lines);
        chunks.push((first, end));
        first = end;
    }
    chunks
}

#[cfg(test)]
mod tests {
    use code_model::Kind;

    use super::*;

    fn definition(name: &str, start: u32, end: u32) -> Definition {
        Definition {
            name: name.to_owned(),
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
            .map(|(a, b)| definition("f", a, b))
            .into();
        assert_eq!(chunks(150, &definitions), [(0, 29), (29, 69), (69, 141), (141, 150)]);
        assert_eq!(chunks(100, &[]), [(0, 72), (72, 100)]);
        assert_eq!(chunks(0, &[]), []);
    }

    #[test]
    fn text_for_a_vector_has_no_indentation_and_is_bounded() {
        assert_eq!(text_of(["  a", "", "\tb  c "].into_iter()), "a\nb  c\n");
        assert_eq!(text_of(std::iter::repeat_n("é", 2000)).len(), MAX_TEXT);
        assert!(text_of([&*"é".repeat(2000)].into_iter()).len() <= MAX_TEXT);
    }

    #[test]
    fn documents_name_definitions_and_lines() {
        let parsed =
            Parsed { definitions: vec![definition("loadConfig", 1, 2)], ..Parsed::default() };
        let documents = documents("c/", &["fn loadConfig() {", "  1 }"], &parsed);
        let [names, words] = &documents[..] else { panic!("{documents:?}") };
        assert_eq!((&*names.key, &*names.text), ("c/d00000", "yyloadconfig zzload zzconfig"));
        assert_eq!(definitions(&names.data), parsed.definitions);
        assert_eq!((&*words.key, &*words.text), ("c/w1-2", "fn loadconfig load config"));
        assert_eq!(words.data, hash(b"fn loadConfig() {\n1 }\n").to_le_bytes());
        assert_eq!((lines_of(&words.key), lines_of(&names.key)), (Some((1, 2)), None));
        assert!(definitions(b"damaged").is_empty());
    }
}
