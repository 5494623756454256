//! The parts of a document that tests can run.

use std::fs;
use std::path::{Path, PathBuf};

/// The repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie one level below the root")
}

/// A document of the repository.
pub(crate) fn document(path: &str) -> String {
    fs::read_to_string(root().join(path))
        .unwrap_or_else(|error| panic!("{path} can't be read: {error}"))
}

/// The README and what lies in `docs` and `docs/plugins`.
pub(crate) fn documents() -> Vec<String> {
    let files = ["docs", "docs/plugins"].into_iter().flat_map(|folder| {
        let entries = fs::read_dir(root().join(folder)).expect("there are documents").flatten();
        entries
            .map(move |entry| PathBuf::from(folder).join(entry.file_name()))
            .filter(|path| path.extension().is_some_and(|e| e == "md"))
    });
    files.map(|path| path.display().to_string()).chain(["README.md".to_owned()]).collect()
}

/// A fenced block.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Block {
    /// The text after the opening fence.
    pub(crate) language: String,
    /// The file that it shows, if the line before the block is only a name and a colon.
    pub(crate) file: Option<String>,
    /// The lines, without the indentation of the fence.
    pub(crate) text: String,
}

/// The fenced blocks of a document.
pub(crate) fn blocks(document: &str) -> Vec<Block> {
    let (mut blocks, mut open, mut before) = (Vec::new(), None::<(usize, Block)>, "");
    for line in document.lines() {
        let text = line.trim_start();
        match (&mut open, text.strip_prefix("```")) {
            (None, Some(language)) => {
                let file = before.strip_prefix('`').and_then(|name| name.strip_suffix("`:"));
                let block = Block {
                    language: language.to_owned(),
                    file: file.map(str::to_owned),
                    text: String::new(),
                };
                open = Some((line.len() - text.len(), block));
                before = "";
            }
            (Some(_), Some(_)) => blocks.extend(open.take().map(|(_, block)| block)),
            (Some((indentation, block)), None) => {
                block.text.push_str(line.get(*indentation..).unwrap_or(text));
                block.text.push('\n');
            }
            (None, None) if !text.is_empty() => before = text,
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block has no end");
    blocks
}

/// The text between backticks outside of blocks.
pub(crate) fn code_spans(document: &str) -> Vec<String> {
    let mut fenced = false;
    let prose = document.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    });
    prose.flat_map(|line| line.split('`').skip(1).step_by(2).map(str::to_owned)).collect()
}

#[test]
fn blocks_are_found_with_their_files() {
    let text = "`a.toml`:\n\n```toml\nx = 1\n\n```\n\n```\n```\ntext `b c` and `d`\n1. item\n\n   ```json\n   {\n     }\n   ```\n";
    let toml = Block {
        language: "toml".to_owned(),
        file: Some("a.toml".to_owned()),
        text: "x = 1\n\n".to_owned(),
    };
    let json = Block { language: "json".to_owned(), file: None, text: "{\n  }\n".to_owned() };
    assert_eq!(blocks(text), [toml, Block::default(), json]);
    assert_eq!(code_spans(text), ["a.toml", "b c", "d"]);
}
