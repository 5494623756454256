//! Makes the documents of a file for the index: its definitions, and its words in chunks.

use code_model::{Definition, Parsed, words};
use toolhold_sdk::index::Document;

use crate::hash::hash;

/// Definitions of one document. Few, since a hit reads all of them.
const DEFINITIONS: usize = 32;

/// Bytes of a chunk that become its vector. Many models read no more.
const MAX_TEXT: usize = 1500;

/// The tag of a chunk without a vector.
pub(crate) const NO_VECTOR: &str = "vector:none";

/// The documents of a file. `prefix` is the begin of their keys, which names the project, the file
/// and its content.
pub(crate) fn documents(prefix: &str, parsed: Parsed) -> Vec<Document> {
    let definitions = parsed.definitions.chunks(DEFINITIONS).enumerate();
    let mut documents: Vec<Document> = definitions
        .map(|(number, definitions)| Document {
            data: Parsed { definitions: definitions.to_vec(), ..Parsed::default() }.encode(),
            ..Document::new(format!("{prefix}d{number:05}"), names(definitions))
        })
        .collect();
    let chunks = parsed.chunks.into_iter();
    documents.extend(chunks.map(|chunk| Document {
        tags: vec![NO_VECTOR.to_owned()],
        // Tells whether the vector that a chunk had is still right.
        data: hash(chunk.words.as_bytes()).to_le_bytes().to_vec(),
        ..Document::new(format!("{prefix}w{}-{}", chunk.first, chunk.last), chunk.words)
    }));
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

/// Whether a document with this key has definitions.
pub(crate) fn is_definitions(key: &str) -> bool {
    key.rsplit('/').next().is_some_and(|name| name.starts_with('d'))
}

/// The first and the last line, from 1, of the chunk with this key.
pub(crate) fn lines_of(key: &str) -> Option<(u32, u32)> {
    let (_, name) = key.rsplit_once('/')?;
    let (first, last) = name.strip_prefix('w')?.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use code_model::Kind;

    use super::*;

    #[test]
    fn text_for_a_vector_has_no_indentation_and_is_bounded() {
        assert_eq!(text_of(["  a", "", "\tb  c "].into_iter()), "a\nb  c\n");
        assert_eq!(text_of(std::iter::repeat_n("é", 2000)).len(), MAX_TEXT);
        assert!(text_of([&*"é".repeat(2000)].into_iter()).len() <= MAX_TEXT);
    }

    #[test]
    fn documents_name_definitions_and_lines() {
        let definition = Definition {
            name: "loadConfig".to_owned(),
            kind: Kind::Function,
            container: String::new(),
            start: 1,
            end: 2,
            line: 1,
            column: 3,
        };
        let definitions_of_file = vec![definition];
        let chunks = code_model::chunks("fn loadConfig() {\n  1 }", &definitions_of_file);
        let parsed =
            Parsed { definitions: definitions_of_file.clone(), chunks, ..Parsed::default() };
        let documents = documents("c/", parsed);
        let [names, words] = &documents[..] else { panic!("{documents:?}") };
        assert_eq!((&*names.key, &*names.text), ("c/d00000", "yyloadconfig zzload zzconfig"));
        assert_eq!(definitions(&names.data), definitions_of_file);
        assert_eq!((&*words.key, &*words.text), ("c/w1-2", "fn loadconfig load config"));
        assert_eq!(words.data, hash(words.text.as_bytes()).to_le_bytes());
        assert_eq!((lines_of(&words.key), lines_of(&names.key)), (Some((1, 2)), None));
        assert!(definitions(b"damaged").is_empty());
    }
}
