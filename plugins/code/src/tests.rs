//! The tool as a whole, with the stand-ins of the host.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use berth_sdk::{Failure, index, testing};
use code_model::{Definition, Kind, Parsed, ParserQuestion, Reference, words};
use serde_json::{Value, json};

use crate::search_code::SearchCode;

struct Tree(tempfile::TempDir);

/// Stands in for a parser: a line `fn NAME` defines a function, and other words are references, but
/// not in comments.
fn parse(input: &[u8]) -> Result<Vec<u8>, String> {
    let (question, source) = ParserQuestion::decode(input)?;
    let text = std::str::from_utf8(source).map_err(|error| error.to_string())?;
    let mut parsed = Parsed::default();
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim_start().starts_with("//"));
    for (line, number) in lines {
        let column = |word: &str| u32::try_from(line.find(word).unwrap_or(0)).unwrap_or(0);
        let mut words = words::identifiers(line);
        if line.starts_with("fn ") {
            let name = words.nth(1).unwrap_or_default();
            parsed.definitions.push(Definition {
                name: name.to_owned(),
                kind: Kind::Function,
                container: String::new(),
                start: number,
                end: number,
                line: number,
                column: column(name),
            });
        }
        let references = words.map(|word| Reference {
            name: word.to_owned(),
            line: number,
            column: column(word),
        });
        parsed.references.extend(references);
    }
    match question {
        ParserQuestion::Chunks => {
            parsed.references.clear();
            parsed.chunks = code_model::chunks(text, &parsed.definitions);
        }
        ParserQuestion::References => {}
    }
    Ok(parsed.encode())
}

impl Tree {
    fn new(files: &[(&str, &str)]) -> Self {
        testing::set_part("rust", parse);
        testing::set_part("python", parse);
        let tree = Self(tempfile::tempdir().unwrap());
        files.iter().for_each(|(path, text)| tree.write(path, text));
        tree
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Writes a file whose last change is a while ago, so that nothing depends on the clock.
    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        age(&path, 3600);
    }

    fn try_search(&self, mut arguments: Value) -> Result<(String, Value), Failure> {
        if arguments["path"].is_null() {
            arguments["path"] = json!(self.0.path());
        }
        let output = testing::call::<SearchCode>(arguments)?;
        let text = output.joined_text().replace(&format!("{}/", self.0.path().display()), "");
        Ok((text, output.structured.unwrap()))
    }

    fn search(&self, arguments: Value) -> String {
        self.try_search(arguments).unwrap().0
    }
}

fn age(path: &Path, secs: u64) {
    let file = fs::File::options().append(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(secs)).unwrap();
}

fn two_files() -> Tree {
    Tree::new(&[
        (
            "src/config.rs",
            "// load_config in a comment\nfn load_config(path) {\n  parse(path)\n}\n",
        ),
        ("src/main.rs", "fn main() {\n  let config = load_config(path);\n}\n"),
        ("notes.md", "How the configuration is loaded.\n"),
    ])
}

#[test]
fn symbol_is_found_in_any_style() {
    let tree = two_files();
    for symbol in ["load_config", "loadConfig", "load_config()"] {
        let text = tree.search(json!({ "symbol": symbol }));
        let expected =
            "src/config.rs:2 function load_config (definition)\n    fn load_config(path) {\n";
        assert!(text.starts_with(expected), "{symbol}: {text}");
    }
}

#[test]
fn references_leave_out_comments() {
    let text = two_files().search(json!({ "symbol": "load_config", "include_references": true }));
    assert!(
        text.contains("src/main.rs:2 (reference)\n    let config = load_config(path);"),
        "{text}"
    );
    assert!(!text.contains("config.rs:1 (reference)"), "{text}");
}

#[test]
fn words_find_names_and_text() {
    let tree = two_files();
    let text = tree.search(json!({ "query": "load config" }));
    assert!(text.starts_with("src/config.rs:2 function load_config (definition"), "{text}");
    let text = tree.search(json!({ "query": "configuration loaded" }));
    assert!(text.starts_with("notes.md:1 (words)"), "{text}");
}

#[test]
fn edit_is_seen_by_the_next_call() {
    let tree = two_files();
    assert!(tree.search(json!({ "symbol": "fresh" })).contains("Nothing found"));
    tree.write("src/main.rs", "\n\nfn fresh() {}\n");
    assert!(tree.search(json!({ "symbol": "fresh" })).starts_with("src/main.rs:3 function fresh"));
    assert!(!tree.search(json!({ "symbol": "main" })).contains("(definition)"));
    fs::remove_file(tree.path("src/main.rs")).unwrap();
    assert!(tree.search(json!({ "symbol": "fresh" })).contains("Nothing found"));
}

#[test]
fn edit_in_the_same_moment_with_the_same_size_is_seen() {
    let tree = Tree::new(&[("a.rs", "fn first() {}\n")]);
    let now = SystemTime::now();
    let set = |text: &str| {
        fs::write(tree.path("a.rs"), text).unwrap();
        let file = fs::File::options().append(true).open(tree.path("a.rs")).unwrap();
        file.set_modified(now).unwrap();
    };
    set("fn early() {}\n");
    assert!(tree.search(json!({ "symbol": "early" })).contains("(definition)"));
    set("fn later() {}\n");
    assert!(tree.search(json!({ "symbol": "later" })).contains("(definition)"));
}

#[test]
fn change_that_hides_its_time_shows_no_old_line() {
    let tree = Tree::new(&[("a.rs", "fn first() {}\n")]);
    let old = fs::metadata(tree.path("a.rs")).unwrap().modified().unwrap();
    assert!(tree.search(json!({ "symbol": "first" })).contains("(definition)"));
    fs::write(tree.path("a.rs"), "fn other() {}\n").unwrap();
    fs::File::options().append(true).open(tree.path("a.rs")).unwrap().set_modified(old).unwrap();
    let text = tree.search(json!({ "symbol": "first" }));
    assert!(!text.contains("fn first"), "{text}");
    // The failed look has shown the change.
    assert!(tree.search(json!({ "symbol": "other" })).contains("(definition)"));
}

#[test]
fn misspelt_symbol_is_suggested() {
    let text = two_files().search(json!({ "symbol": "laod_config" }));
    assert!(text.contains("[Did you mean load_config?]"), "{text}");
}

#[test]
fn filters_narrow_the_answer() {
    let tree = Tree::new(&[("a/x.rs", "fn same() {}\n"), ("b/x.py", "fn same() {}\n")]);
    let both = tree.search(json!({ "symbol": "same" }));
    assert_eq!(both.matches("(definition").count(), 2, "{both}");
    for narrow in [
        json!({ "symbol": "same", "file_pattern": "*.py" }),
        json!({ "symbol": "same", "language": "Python" }),
        json!({ "symbol": "same", "path": tree.path("b") }),
        json!({ "symbol": "same", "path": tree.path("b/x.py") }),
    ] {
        let text = tree.search(narrow.clone());
        assert!(text.starts_with("b/x.py:1") && !text.contains("a/x.rs"), "{narrow}: {text}");
    }
    let none = tree.search(json!({ "symbol": "same", "kind": "class" }));
    assert!(!none.contains("(definition"), "{none}");
    let failure = tree.try_search(json!({ "symbol": "same", "language": "cobol" })).unwrap_err();
    assert!(failure.message.contains("\"cobol\""), "{failure}");
}

#[test]
fn language_without_its_parser_is_found_by_words_and_said() {
    let tree = Tree::new(&[("a.c", "int lonely_name(void);\n")]);
    let text = tree.search(json!({ "symbol": "lonely_name" }));
    assert!(text.starts_with("a.c:1 (words)\n    int lonely_name(void);\n"), "{text}");
    assert!(
        text.contains("[Definitions in c aren't known, only words: the part `c` is missing]"),
        "{text}"
    );
}

#[test]
fn hostile_files_are_left_out_or_harmless() {
    let tree = two_files();
    tree.write("invalid.txt", b"\xff\xfe\nbroken_utf8\n");
    tree.write("binary.rs", b"fn in_binary() {}\0");
    tree.write("esc\u{1b}[2J.rs", "fn steering() {}\n");
    assert!(tree.search(json!({ "symbol": "broken_utf8" })).starts_with("invalid.txt:2 "));
    assert!(!tree.search(json!({ "symbol": "in_binary" })).contains("(definition)"));
    let text = tree.search(json!({ "symbol": "steering" }));
    assert!(text.starts_with("esc\u{fffd}[2J.rs:1 "), "{text:?}");
}

#[test]
fn second_call_writes_nothing() {
    let tree = two_files();
    tree.search(json!({ "symbol": "main" }));
    let before: Vec<_> = index::list("").map(Result::unwrap).collect();
    tree.search(json!({ "symbol": "load_config" }));
    let after: Vec<_> = index::list("").map(Result::unwrap).collect();
    assert_eq!(before, after);
    assert!(!before.is_empty());
}

#[test]
fn outdated_documents_are_removed() {
    let tree = two_files();
    tree.search(json!({ "symbol": "main" }));
    let count = || index::list("c/").count();
    let before = count();
    tree.write("src/main.rs", "fn main() {\n  changed();\n}\n");
    tree.search(json!({ "symbol": "main" }));
    assert_eq!(count(), before);
    fs::remove_file(tree.path("src/main.rs")).unwrap();
    tree.search(json!({ "symbol": "main" }));
    assert_eq!(count(), before - 2);
}

#[test]
fn outline_lists_definitions() {
    let tree = two_files();
    let (text, found) = tree.try_search(json!({ "outline": tree.path("src/config.rs") })).unwrap();
    assert_eq!(text, "        2-2 function load_config\n");
    assert_eq!(found["hits"][0]["name"], "load_config");
    let failure = tree.try_search(json!({ "outline": tree.path("notes.md") })).unwrap_err();
    assert_eq!(failure.code.as_deref(), Some("language"));
}

#[test]
fn arguments_are_checked() {
    let tree = two_files();
    let fails = |arguments: Value| tree.try_search(arguments).unwrap_err().message;
    assert!(fails(json!({})).contains("one of them is needed"));
    assert!(fails(json!({ "query": " " })).contains("one of them is needed"));
    assert!(fails(json!({ "query": "x".repeat(1001) })).contains("1001 bytes; the limit is 1000"));
    assert!(fails(json!({ "query": "x", "path": tree.path("missing") })).contains("missing"));
}

#[test]
fn text_that_no_index_has_is_found_by_grep() {
    let tree = Tree::new(&[("a.txt", "x = y + 1\n")]);
    let text = tree.search(json!({ "query": "y + 1" }));
    assert!(text.starts_with("a.txt:1 (text)\n    x = y + 1\n"), "{text}");
}
