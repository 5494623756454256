//! What the index gets of a file: its definitions, and its words in chunks.

use berth_sdk::index::Document;
use code_model::{Definition, Parsed, words};

/// Definitions of one document. Few, since a hit reads all of them.
const DEFINITIONS: usize = 32;

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
    documents.extend(chunks.map(|chunk| {
        Document::new(format!("{prefix}w{}-{}", chunk.first, chunk.last), chunk.words)
    }));
    documents
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

#[cfg(test)]
mod tests {
    use code_model::Kind;

    use super::*;

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
        assert_eq!((lines_of(&words.key), lines_of(&names.key)), (Some((1, 2)), None));
        assert!(definitions(b"damaged").is_empty());
    }
}
